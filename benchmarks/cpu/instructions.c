/* SPDX-License-Identifier: Apache-2.0
 * Instructions of an 8-byte tagged send and receive, counted by callgrind between two workers of one process. Run by run.py:
 *   valgrind --tool=callgrind --collect-atstart=no --toggle-collect=measured_send    ./instructions shm
 *   valgrind --tool=callgrind --collect-atstart=no --toggle-collect=measured_receive ./instructions shm
 * Prints the number of measured calls; callgrind prints the instructions of all of them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg/thalweg.h>

enum { WARM = 300, CALLS = 1000, TAG = 5, ADDRESS_ROOM = 256 };

static tw_worker* workers[2];
static tw_endpoint* endpoints[2];

static void must(tw_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(status), tw_last_error());
  exit(1);
}

__attribute__((noinline)) void measured_send(const uint64_t* value) {
  tw_request request;
  must(tw_send(endpoints[0], value, sizeof *value, TAG, NULL, &request), "tw_send");
  if (request != TW_REQUEST_NONE) must(tw_request_finish(request), "tw_request_finish");
}

__attribute__((noinline)) void measured_receive(uint64_t* value) {
  tw_request request;
  must(tw_recv(workers[1], value, sizeof *value, TAG, UINT64_MAX, NULL, &request), "tw_recv");
  if (request != TW_REQUEST_NONE) must(tw_request_finish(request), "tw_request_finish");
}

/* Before the measured calls: both workers progress, so that what connecting left to do is done. */
static void warm_one(uint64_t value) {
  tw_request requests[2];
  uint64_t got = 0;
  must(tw_recv(workers[1], &got, sizeof got, TAG, UINT64_MAX, NULL, &requests[0]), "tw_recv");
  must(tw_send(endpoints[0], &value, sizeof value, TAG, NULL, &requests[1]), "tw_send");
  for (int i = 0; i < 2; i++) {
    while (requests[i] != TW_REQUEST_NONE && tw_request_test(requests[i]) == TW_IN_PROGRESS) {
      tw_worker_progress(workers[0]);
      tw_worker_progress(workers[1]);
    }
    if (requests[i] != TW_REQUEST_NONE) must(tw_request_finish(requests[i]), "tw_request_finish");
  }
  if (got != value) exit(1);
}

/* shm: two workers; self: one that talks to itself. */
static void connect_both(tw_context* context, const char* transport) {
  char address[2][ADDRESS_ROOM];
  size_t length[2] = {ADDRESS_ROOM, ADDRESS_ROOM};
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.transport = transport;
  for (int i = 0; i < 2; i++) {
    if (i == 1 && strcmp(transport, "self") == 0)
      workers[1] = workers[0];
    else
      must(tw_worker_create(context, NULL, &workers[i]), "tw_worker_create");
    must(tw_worker_address(workers[i], address[i], &length[i]), "tw_worker_address");
  }
  for (int i = 0; i < 2; i++) must(tw_connect(workers[i], address[!i], length[!i], &options, &endpoints[i]), "tw_connect");
  for (;;) {
    tw_status first = tw_endpoint_state(endpoints[0]), second = tw_endpoint_state(endpoints[1]);
    must(first, "connect");
    must(second, "connect");
    if (first == TW_OK && second == TW_OK) return;
    tw_worker_progress(workers[0]);
    tw_worker_progress(workers[1]);
  }
}

int main(int argc, char** argv) {
  tw_context* context;
  must(tw_context_create(NULL, &context), "tw_context_create");
  connect_both(context, argc > 1 ? argv[1] : "shm");
  for (uint64_t i = 0; i < WARM; i++) warm_one(i);
  for (uint64_t i = 0; i < CALLS; i++) {
    uint64_t got = 0;
    measured_send(&i);
    measured_receive(&got);
    if (got != i) {
      fprintf(stderr, "message %lu arrived as %lu\n", (unsigned long)i, (unsigned long)got);
      return 1;
    }
  }
  printf("%d\n", CALLS);
  return 0;
}
