/* SPDX-License-Identifier: Apache-2.0
 * One host of the network tests.
 *   host_peer listen ADDRESS COUNT [lost]      accepts COUNT clients one after another, echoes to each
 *   host_peer connect ADDRESS [lost]           connects to a listener, exchanges verified messages
 *   host_peer exchange MINE THEIRS [lost]      the same by worker addresses through two files
 * Prints one line per event. "lost": afterwards waits until the connection is lost and says after how long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg/thalweg.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESS_ROOM = 256 };

static tw_worker* worker;
static const size_t sizes[] = {0, 1, 8, 777, 65537, 3000001};
enum { COUNT = sizeof sizes / sizeof *sizes };

static void die(const char* what, tw_status s) {
  printf("failed %s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  exit(1);
}
static void must(tw_status s, const char* what) {
  if (s < 0) die(what, s);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fill(unsigned char* p, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(i * 131 + (i >> 9) + seed);
}

static void talk(tw_endpoint* ep, int first) {
  for (int k = 0; k < COUNT; k++) {
    size_t n = sizes[k];
    unsigned char *out = malloc(n + 1), *in = calloc(n + 1, 1), *want = malloc(n + 1);
    tw_request r[2] = {0, 0};
    fill(out, n, (unsigned)k + (first ? 1u : 50u));
    fill(want, n, (unsigned)k + (first ? 50u : 1u));
    must(tw_recv(worker, in, n, (uint64_t)k, ~0ull, NULL, &r[0]), "tw_recv");
    must(tw_send(ep, out, n, (uint64_t)k, NULL, &r[1]), "tw_send");
    must(tw_request_finish_all(r, 2), "exchange");
    if (memcmp(in, want, n) != 0) {
      printf("failed payload of %zu bytes\n", n);
      exit(1);
    }
    free(out);
    free(in);
    free(want);
  }
  printf("ok transport=%s\n", tw_endpoint_transport(ep));
  fflush(stdout);
}

static void until_lost(tw_endpoint* ep) {
  char byte;
  tw_request r = 0;
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.source = ep;
  must(tw_recv(worker, &byte, 1, 99, ~0ull, &o, &r), "tw_recv");
  double start = seconds();
  printf("waiting\n");
  fflush(stdout);
  tw_status s = tw_request_wait(r, 60000000000ull);
  printf("ended %s after %.2f s: %s\n", tw_status_name(s), seconds() - start, tw_request_message(r));
  fflush(stdout);
}

static tw_endpoint* accept_one(tw_listener* listener) {
  tw_connection_request* request = NULL;
  tw_endpoint* ep = NULL;
  tw_status s;
  while ((s = tw_listener_next(listener, &request)) == TW_AGAIN) {
    s = tw_worker_wait(worker, 100000000);
    if (s != TW_ERR_TIMED_OUT) must(s, "waiting");
  }
  must(s, "tw_listener_next");
  printf("client %s\n", tw_connection_request_peer(request));
  must(tw_accept(request, NULL, &ep), "tw_accept");
  return ep;
}

static tw_endpoint* exchange(const char* mine, const char* theirs) {
  unsigned char address[ADDRESS_ROOM];
  size_t length = sizeof address;
  char temporary[4096];
  must(tw_worker_address(worker, address, &length), "tw_worker_address");
  snprintf(temporary, sizeof temporary, "%s.new", mine);
  FILE* f = fopen(temporary, "wb");
  fwrite(address, 1, length, f);
  fclose(f);
  rename(temporary, mine);
  while ((f = fopen(theirs, "rb")) == NULL) usleep(10000);
  length = fread(address, 1, sizeof address, f);
  fclose(f);
  tw_endpoint* ep = NULL;
  must(tw_connect(worker, address, length, NULL, &ep), "tw_connect");
  must(tw_endpoint_wait(ep, 20000000000ull), "connecting");
  return ep;
}

int main(int argc, char** argv) {
  tw_context* context = NULL;
  tw_endpoint* ep = NULL;
  int lost = argc > 1 && strcmp(argv[argc - 1], "lost") == 0;
  if (argc < 3) return 2;
  must(tw_context_create(NULL, &context), "tw_context_create");
  must(tw_worker_create(context, NULL, &worker), "tw_worker_create");
  if (strcmp(argv[1], "listen") == 0) {
    tw_listener* listener = NULL;
    must(tw_listen(worker, argv[2], NULL, &listener), "tw_listen");
    printf("listening %u\n", tw_listener_port(listener));
    fflush(stdout);
    for (int i = atoi(argv[3]); i > 0; i--) {
      ep = accept_one(listener);
      must(tw_endpoint_wait(ep, 20000000000ull), "accepting");
      talk(ep, 0);
    }
  } else if (strcmp(argv[1], "connect") == 0) {
    must(tw_connect_to(worker, argv[2], NULL, &ep), "tw_connect_to");
    must(tw_endpoint_wait(ep, 20000000000ull), "connecting");
    talk(ep, 1);
  } else {
    int first = strcmp(argv[2], argv[3]) < 0;
    ep = exchange(argv[2], argv[3]);
    talk(ep, first);
  }
  if (lost)
    until_lost(ep);
  else
    must(tw_endpoint_close(ep, TW_CLOSE_GRACEFUL, NULL), "closing");
  tw_worker_destroy(worker);
  tw_context_destroy(context);
  return 0;
}
