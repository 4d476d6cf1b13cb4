/* SPDX-License-Identifier: Apache-2.0
 * The part that every example shares: this process starts a second one (itself, with a socket to talk over), both make a
 * worker, exchange addresses over the socket and connect. Real programs exchange addresses by any means; see tw_store_open. */
#ifndef EXAMPLES_PAIR_H
#define EXAMPLES_PAIR_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

enum { PAIR_SECONDS = 30 }; /* neither waits longer for what the other has not done */

typedef struct pair {
  int rank; /* 0: started by the user, 1: started by rank 0 */
  int socket;
  pid_t child;
  tw_context *context;
  tw_worker *worker;
  tw_endpoint *endpoint;
} pair;

static inline void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static inline void must(tw_status status, const char *what) {
  if (status < 0) fail(what, *tw_last_error() ? tw_last_error() : tw_status_name(status));
}

static inline void pair_move(pair *p, int out, void *data, size_t length) {
  ssize_t moved;
  if (length == 0) return;
  moved = out ? send(p->socket, data, length, MSG_NOSIGNAL) : recv(p->socket, data, length, MSG_WAITALL);
  if (moved != (ssize_t)length) fail(p->rank == 0 ? "rank 1" : "rank 0", "it has ended, or has not come to this point in 30 s");
}

/* Small things before there is a connection: addresses and keys, length first. Gives what was received, to be freed, and its length. */
static inline void *pair_exchange(pair *p, const void *mine, size_t length, size_t *received) {
  void *theirs;
  pair_move(p, 1, &length, sizeof length);
  pair_move(p, 1, (void *)mine, length);
  pair_move(p, 0, received, sizeof *received);
  if ((theirs = malloc(*received + 1)) == NULL) fail("exchange", "no memory");
  pair_move(p, 0, theirs, *received);
  return theirs;
}

/* Both are here. */
static inline void pair_meet(pair *p) {
  size_t none;
  free(pair_exchange(p, "", 0, &none));
}

static inline void pair_open(pair *p, char **argv) {
  const struct timeval patience = {PAIR_SECONDS, 0};
  char number[16];
  void *mine, *theirs;
  size_t length = 0;
  memset(p, 0, sizeof *p);
  if (getenv("PAIR_SOCKET")) {
    p->rank = 1;
    p->socket = atoi(getenv("PAIR_SOCKET"));
  } else {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair", "failed");
    p->child = fork(); /* before there is a context: a fork later would be refused its use */
    if (p->child == 0) {
      close(ends[0]);
      snprintf(number, sizeof number, "%d", ends[1]);
      setenv("PAIR_SOCKET", number, 1);
      execv("/proc/self/exe", argv);
      fail("execv", "failed");
    }
    close(ends[1]);
    p->socket = ends[0];
  }
  if (setsockopt(p->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) fail("setsockopt", "failed");
  must(tw_context_create(NULL, &p->context), "tw_context_create");
  must(tw_worker_create(p->context, NULL, &p->worker), "tw_worker_create");
  must(tw_worker_address(p->worker, NULL, &length), "tw_worker_address"); /* how much it takes */
  if ((mine = malloc(length)) == NULL) fail("malloc", "no memory");
  must(tw_worker_address(p->worker, mine, &length), "tw_worker_address");
  theirs = pair_exchange(p, mine, length, &length);
  must(tw_connect(p->worker, theirs, length, NULL, &p->endpoint), "tw_connect");
  free(mine);
  free(theirs);
  must(tw_endpoint_wait(p->endpoint, 10000000000ull), "tw_endpoint_wait");
}

/* Both have done their part: end. Returns the exit code of the program. */
static inline int pair_close(pair *p) {
  int status = 0;
  must(tw_endpoint_close(p->endpoint, TW_CLOSE_GRACEFUL, NULL), "tw_endpoint_close");
  pair_meet(p); /* neither tears its worker down while the other still closes */
  tw_worker_destroy(p->worker);
  tw_context_destroy(p->context);
  if (p->rank == 0) waitpid(p->child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* From the other process alone: a receive from anybody would go on waiting when it is gone. */
static inline void pair_receive(pair *p, void *data, size_t length, uint64_t tag) {
  tw_op_options from = TW_OP_OPTIONS_INIT;
  tw_request request = TW_REQUEST_NONE;
  from.source = p->endpoint;
  must(tw_recv(p->worker, data, length, tag, UINT64_MAX, &from, &request), "tw_recv");
  if (tw_request_wait(request, PAIR_SECONDS * 1000000000ull) == TW_ERR_TIMED_OUT)
    fail(p->rank == 0 ? "rank 1" : "rank 0", "it has sent nothing in 30 s");
  must(tw_request_finish(request), "tw_request_finish");
}

#endif
