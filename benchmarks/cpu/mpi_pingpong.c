/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_pingpong.c: how long a message takes one way between two ranks on processors 0 and 1, and a put of 8 bytes with its flush into
 * memory of MPI_Win_allocate. `mpirun -n 2 mpi_pingpong [bytes ...]` prints lines "test,bytes,microseconds" with medians: lat, put.
 * Every message is new data: its sender stores a word into each of its cache lines before the clock starts, and its receiver compares
 * these words after it has stopped. The first and the last message of a size are compared byte for byte.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 4000, kGroup = 20, kLine = 64, kSlots = 512 };
static double times[kMost];
static uint64_t sent;

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(int count) {
  qsort(times, (size_t)count, sizeof *times, by_value);
  return times[count / 2] * 1e6;
}

static void wrong(const char* what, size_t at) {
  fprintf(stderr, "mpi_pingpong: wrong %s at %zu\n", what, at);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static char byte_of(size_t i, int rank) { return (char)(i * 31 + (i >> 12) + (size_t)rank * 7); }

static uint64_t word_of(size_t i, uint64_t number, int rank) { return number * 0x9E3779B97F4A7C15u + i + (uint64_t)rank; }

static void write_lines(char* out, size_t bytes, uint64_t number, int rank) {
  for (size_t i = 0; i + 8 <= bytes; i += kLine) {
    const uint64_t word = word_of(i, number, rank);
    memcpy(out + i, &word, 8);
  }
}

static void compare_lines(const char* in, size_t bytes, uint64_t number, int from) {
  for (size_t i = 0; i + 8 <= bytes; i += kLine) {
    const uint64_t word = word_of(i, number, from);
    if (memcmp(in + i, &word, 8) != 0) wrong("word", i);
  }
}

static void compare_all(const char* in, size_t bytes, uint64_t number, int from) {
  compare_lines(in, bytes, number, from);
  for (size_t i = 0; i < bytes; ++i) {
    const int word = i % kLine < 8 && i / kLine * kLine + 8 <= bytes;
    if (!word && in[i] != byte_of(i, from)) wrong("byte", i);
  }
}

static void exchange(char* out, char* in, int bytes, int rank) {
  if (rank == 0) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

/* Small messages are timed in groups, with their few stores and comparisons: the clock is too coarse for one. */
static double message(int rank, size_t bytes) {
  const int group = bytes <= 1024 ? kGroup : 1, count = bytes <= 1024      ? 1500
                                                        : bytes <= 131072  ? 1500
                                                        : bytes <= 2097152 ? 200
                                                                           : 20;
  char *out = malloc(bytes), *in = calloc(bytes, 1);
  for (size_t i = 0; i < bytes; ++i) out[i] = byte_of(i, rank);
  for (int i = -count / 5 - 2; i < count; ++i) {
    if (group == 1) write_lines(out, bytes, ++sent, rank);
    const double start = MPI_Wtime();
    for (int g = 0; g < group; ++g) {
      if (group > 1) write_lines(out, bytes, ++sent, rank);
      exchange(out, in, (int)bytes, rank);
      if (group > 1) compare_lines(in, bytes, sent, 1 - rank);
    }
    if (i >= 0) times[i] = (MPI_Wtime() - start) / group / 2;
    if (group == 1) compare_lines(in, bytes, sent, 1 - rank);
    if (i == -count / 5 - 2 || i == count - 1) compare_all(in, bytes, sent, 1 - rank);
  }
  free(out);
  free(in);
  return median(count);
}

/* Rank 0 puts, rank 1 waits in a barrier: what it has received is compared behind it. */
static double put(int rank) {
  MPI_Win window;
  uint64_t *base, word = 0;
  MPI_Win_allocate(kSlots * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  memset(base, 0, kSlots * 8);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  const int count = 2000;
  for (int i = -count / 5; rank == 0 && i < count; ++i) {
    const double start = MPI_Wtime();
    for (int g = 0; g < kGroup; ++g) {
      ++word;
      MPI_Put(&word, 1, MPI_UINT64_T, 1, (MPI_Aint)(word % kSlots), 1, MPI_UINT64_T, window);
      MPI_Win_flush(1, window);
    }
    if (i >= 0) times[i] = (MPI_Wtime() - start) / kGroup;
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
  const uint64_t last = (uint64_t)(count + count / 5) * kGroup;
  for (uint64_t one = last - kSlots + 1; rank == 1 && one <= last; ++one) {
    if (base[one % kSlots] != one) wrong("slot", one % kSlots);
  }
  MPI_Win_unlock(rank, window);
  MPI_Win_free(&window);
  return rank == 0 ? median(count) : 0;
}

static void bind_to_own_processor(void) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank ? atoi(rank) : 0, &set);
  if (rank && sched_setaffinity(0, sizeof set, &set) != 0) perror("mpi_pingpong: sched_setaffinity");
}

int main(int argc, char** argv) {
  int rank;
  bind_to_own_processor();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; ++i) {
    const double us = message(rank, (size_t)atol(argv[i]));
    if (rank == 0) printf("lat,%s,%.4f\n", argv[i], us);
  }
  const double us = put(rank);
  if (rank == 0) printf("put,8,%.4f\n", us);
  MPI_Finalize();
  return 0;
}
