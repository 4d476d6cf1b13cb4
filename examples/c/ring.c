/* SPDX-License-Identifier: Apache-2.0
 * ring: however many processes there are, whatever started them ("thalweg run -n 4 ./example_c_ring", mpirun, torchrun, nothing): one
 * line makes them a group. A number goes around, and every rank adds its own. */
#include <stdio.h>
#include <stdlib.h>
#include <thalweg/thalweg.h>

enum { TAG = 1 };

static void must(tw_status status, const char *what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, *tw_last_error() ? tw_last_error() : tw_status_name(status));
  exit(1);
}

int main(void) {
  tw_group *world;
  tw_endpoint *next;
  unsigned long sum = 0;
  must(tw_init(NULL, &world), "tw_init");
  unsigned rank = tw_group_rank(world), size = tw_group_size(world);
  must(tw_group_endpoint(world, (rank + 1) % size, &next), "tw_group_endpoint");
  if (rank != 0) must(tw_recv_blocking(tw_group_worker(world), &sum, sizeof sum, TAG, UINT64_MAX, NULL), "receive");
  sum += rank + 1;
  if (size > 1) must(tw_send_blocking(next, &sum, sizeof sum, TAG), "send");
  if (rank == 0) {
    if (size > 1) must(tw_recv_blocking(tw_group_worker(world), &sum, sizeof sum, TAG, UINT64_MAX, NULL), "receive");
    if (sum != (unsigned long)size * (size + 1) / 2) must(TW_ERR_PROTOCOL, "the sum is wrong");
    printf("ring: %u ranks, each added its number: %lu\n", size, sum);
  }
  must(tw_barrier(world, NULL, NULL), "tw_barrier");
  must(tw_group_destroy(world), "tw_group_destroy");
  return 0;
}
