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

enum { WARM = 300, CALLS = 1000, TAG = 5 };

static tw_worker *workers[2];
static tw_endpoint *endpoints[2];

static void must(tw_status status, const char *what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(status), tw_last_error());
  exit(1);
}

static inline __attribute__((always_inline)) void send_one(const uint64_t *value) {
  tw_request request;
  must(tw_send(endpoints[0], value, sizeof *value, TAG, NULL, &request), "tw_send");
  if (request != TW_REQUEST_NONE) must(tw_wait(request), "tw_wait");
}

static inline __attribute__((always_inline)) void receive_one(uint64_t *value) {
  tw_request request;
  must(tw_recv(workers[1], value, sizeof *value, TAG, UINT64_MAX, NULL, &request), "tw_recv");
  if (request != TW_REQUEST_NONE) must(tw_wait(request), "tw_wait");
}

__attribute__((noinline)) void measured_send(const uint64_t *value) { send_one(value); }
__attribute__((noinline)) void measured_receive(uint64_t *value) { receive_one(value); }

static void connect_both(tw_context *context, const char *transport) {
  char address[2][TW_ADDRESS_MAX];
  size_t length[2] = {TW_ADDRESS_MAX, TW_ADDRESS_MAX};
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.transport = transport;
  for (int i = 0; i < 2; i++) {
    must(tw_worker_create(context, NULL, &workers[i]), "tw_worker_create");
    must(tw_worker_address(workers[i], address[i], &length[i]), "tw_worker_address");
  }
  for (int i = 0; i < 2; i++) must(tw_connect(workers[i], address[!i], length[!i], &options, &endpoints[i]), "tw_connect");
  for (;;) {
    tw_status first = tw_endpoint_state(endpoints[0]), second = tw_endpoint_state(endpoints[1]);
    must(first, "connect");
    must(second, "connect");
    if (first == TW_OK && second == TW_OK) return;
    tw_progress(workers[0]);
    tw_progress(workers[1]);
  }
}

int main(int argc, char **argv) {
  tw_context *context;
  must(tw_context_create(NULL, &context), "tw_context_create");
  connect_both(context, argc > 1 && strcmp(argv[1], "auto") != 0 ? argv[1] : NULL);
  for (uint64_t i = 0; i < WARM + CALLS; i++) {
    uint64_t got = 0;
    if (i < WARM) send_one(&i); else measured_send(&i);
    if (i < WARM) receive_one(&got); else measured_receive(&got);
    if (got != i) { fprintf(stderr, "message %lu arrived as %lu\n", (unsigned long)i, (unsigned long)got); return 1; }
  }
  printf("%d\n", CALLS);
  return 0;
}
