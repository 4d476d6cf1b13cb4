/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_threads.c: MPI_THREAD_MULTIPLE, where an MPI gives it: threads of all ranks exchange messages at once, each with its own tag,
 * then in communicators of their own. `mpirun -n 2..8 mpi_threads`.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kThreads = 4, kRounds = 500, kLong = 100000 };
static int rank, size;
static MPI_Comm own[kThreads];

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void exchange(MPI_Comm comm, int tag, long* out, long* in, int words, long seed) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Request requests[2];
  for (int i = 0; i < words; ++i) out[i] = seed + rank * 1000003L + i;
  MPI_Irecv(in, words, MPI_LONG, from, tag, comm, &requests[0]);
  MPI_Isend(out, words, MPI_LONG, to, tag, comm, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < words; ++i) {
    if (in[i] != seed + from * 1000003L + i) fail("a message is wrong");
  }
}

static void* work(void* arg) {
  const int me = (int)(long)arg;
  long *out = malloc(kLong * sizeof(long)), *in = malloc(kLong * sizeof(long));
  for (int round = 0; round < kRounds; ++round) exchange(MPI_COMM_WORLD, me, out, in, 1 + round % 50, me * 10L + round);
  for (int round = 0; round < 10; ++round) exchange(MPI_COMM_WORLD, me, out, in, kLong, me * 10L + round);
  for (int round = 0; round < 50; ++round) {
    long sum = 0, mine = rank + me;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, own[me]);
    if (sum != (long)size * (size - 1) / 2 + (long)size * me) fail("a sum is wrong");
    exchange(own[me], 7, out, in, 100, round);
  }
  free(out);
  free(in);
  return NULL;
}

int main(int argc, char** argv) {
  int provided = 0;
  pthread_t threads[kThreads];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided == MPI_THREAD_MULTIPLE) {
    for (int i = 0; i < kThreads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
    for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < kThreads; ++i) MPI_Comm_free(&own[i]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("mpi_threads: threads: right%s\n", provided == MPI_THREAD_MULTIPLE ? "" : ", as none are allowed");
  MPI_Finalize();
  return 0;
}
