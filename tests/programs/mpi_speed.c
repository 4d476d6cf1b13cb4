/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_speed.c: how long a message takes one way between two ranks, and a put of 8 bytes with its flush into memory of MPI_Win_allocate:
 * medians in microseconds. `mpirun -n 2 mpi_speed [bytes ...]`. Every answer is compared to what was sent.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 20000 };
static double times[kMost];

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static double median(int count) {
  qsort(times, (size_t)count, sizeof *times, by_value);
  return times[count / 2] * 1e6;
}

/* Rounds are timed in groups where the clock is too coarse for one. */
static double message(int rank, size_t bytes) {
  const int group = bytes <= 4096 ? 50 : 1, count = bytes <= 4096 ? 2000 : bytes <= 1048576 ? 1000 : 50;
  char *out = malloc(bytes), *in = malloc(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = (char)(i * 31 + (size_t)rank);
  memset(in, 0, bytes);
  for (int i = -count / 10; i < count; ++i) {
    const double start = MPI_Wtime();
    for (int g = 0; g < group; ++g) {
      if (rank == 0) {
        MPI_Send(out, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(in, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else {
        MPI_Recv(in, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
      }
    }
    if (i >= 0) times[i] = (MPI_Wtime() - start) / group / 2;
  }
  for (size_t i = 0; i < bytes; ++i) {
    if (in[i] != (char)(i * 31 + (size_t)(1 - rank))) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  free(out);
  free(in);
  return median(count);
}

static double put(int rank) {
  MPI_Win window;
  long *base, word = 0;
  MPI_Win_allocate(4096, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  MPI_Win_lock_all(0, window);
  const int count = 2000, group = 50;
  for (int i = 0; rank == 0 && i < count; ++i) {
    const double start = MPI_Wtime();
    for (int g = 0; g < group; ++g) {
      ++word;
      MPI_Put(&word, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window);
      MPI_Win_flush(1, window);
    }
    times[i] = (MPI_Wtime() - start) / group;
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
  if (rank == 1 && base[0] != (long)count * group) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Win_unlock(rank, window);
  MPI_Win_free(&window);
  return median(count);
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; ++i) {
    const double us = message(rank, (size_t)atol(argv[i]));
    if (rank == 0) printf("%s B: %.2f us\n", argv[i], us);
  }
  const double us = put(rank);
  if (rank == 0) printf("put of 8 B and flush: %.2f us\n", us);
  MPI_Finalize();
  return 0;
}
