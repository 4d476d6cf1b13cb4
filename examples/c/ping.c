/* SPDX-License-Identifier: Apache-2.0
 * ping: two processes send a message back and forth and count its hops. */
#include <time.h>

#include "pair.h"

enum { ROUNDS = 10000, TAG = 1 };

int main(int argc, char **argv) {
  pair p;
  struct timespec start, end;
  unsigned long hops = 0;
  (void)argc;
  pair_open(&p, argv);
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < ROUNDS; i++) {
    if (p.rank == 0) {
      hops++;
      must(tw_send_blocking(p.endpoint, &hops, sizeof hops, TAG), "send");
      pair_receive(&p, &hops, sizeof hops, TAG);
    } else {
      pair_receive(&p, &hops, sizeof hops, TAG);
      hops++;
      must(tw_send_blocking(p.endpoint, &hops, sizeof hops, TAG), "send");
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (hops != 2ul * ROUNDS) fail("ping", "a hop was lost");
  if (p.rank == 0) {
    double ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    printf("ping: %lu hops over %s, %.3f us each\n", hops, tw_endpoint_transport(p.endpoint), ns / 1e3 / (double)hops);
  }
  return pair_close(&p);
}
