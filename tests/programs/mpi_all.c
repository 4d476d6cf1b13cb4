/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_all.c: what MPI's point-to-point, collective and one-sided operations move, compared byte by byte. For any MPI over any
 * transport: `mpirun -n 2..8 mpi_all [part ...]`. Prints one line a part; ends with 1 at the first wrong byte.
 */
#include <mpi.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "rank %d: %s:%d: %s does not hold\n", rank, __FILE__, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

/* What byte i of message `seed` is. */
static unsigned char byte_of(unsigned seed, size_t i) {
  unsigned long long x = (seed + 1) * 0x9E3779B97F4A7C15ull + i * 0xBF58476D1CE4E5B9ull;
  x ^= x >> 29;
  return (unsigned char)(x * 0x94D049BB133111EBull >> 56);
}
static void fill(unsigned char* at, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; ++i) at[i] = byte_of(seed, i);
}
static int holds(const unsigned char* at, size_t length, unsigned seed) {
  for (size_t i = 0; i < length; ++i) {
    if (at[i] != byte_of(seed, i)) return 0;
  }
  return 1;
}

static const size_t kLengths[] = {0, 1, 7, 8, 63, 1000, 4096, 8191, 40000, 65536, 65537, 300000, 1048576, 5000001};
enum { kCount = sizeof kLengths / sizeof *kLengths, kGuard = 64 };

/* Round a ring, each length by each mode of sending; guard bytes behind the buffer stay. */
static void point_to_point(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int i = 0; i < kCount; ++i) {
    const size_t n = kLengths[i];
    unsigned char *out = malloc(n + 1), *in = malloc(n + kGuard);
    for (int mode = 0; mode < 4; ++mode) {
      MPI_Request requests[2];
      MPI_Status status;
      int count;
      fill(out, n, (unsigned)(rank * 1000 + i * 4 + mode));
      memset(in, 0xEE, n + kGuard);
      MPI_Irecv(in, (int)n, MPI_BYTE, mode == 3 ? MPI_ANY_SOURCE : from, 100 + mode, MPI_COMM_WORLD, &requests[0]);
      if (mode == 0) MPI_Isend(out, (int)n, MPI_BYTE, to, 100, MPI_COMM_WORLD, &requests[1]);
      if (mode == 1) MPI_Issend(out, (int)n, MPI_BYTE, to, 101, MPI_COMM_WORLD, &requests[1]);
      if (mode == 2) {
        MPI_Barrier(MPI_COMM_WORLD); /* the receive is posted */
        MPI_Irsend(out, (int)n, MPI_BYTE, to, 102, MPI_COMM_WORLD, &requests[1]);
      }
      if (mode == 3) MPI_Isend(out, (int)n, MPI_BYTE, to, 103, MPI_COMM_WORLD, &requests[1]);
      MPI_Wait(&requests[0], &status);
      MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
      MPI_Get_count(&status, MPI_BYTE, &count);
      CHECK(count == (int)n && status.MPI_SOURCE == from && status.MPI_TAG == 100 + mode);
      CHECK(holds(in, n, (unsigned)(from * 1000 + i * 4 + mode)));
      for (int g = 0; g < kGuard; ++g) CHECK(in[n + g] == 0xEE);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    free(out);
    free(in);
  }
}

/* Messages that nobody expects, taken out of order of their tags and in order within one. */
static void unexpected(void) {
  enum { kTags = 5, kEach = 200 };
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  unsigned char out[512], in[512];
  for (int i = 0; i < kEach; ++i) {
    for (int tag = 0; tag < kTags; ++tag) {
      fill(out, sizeof out, (unsigned)(rank * 10000 + tag * kEach + i));
      MPI_Request request;
      MPI_Isend(out, sizeof out, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  for (int tag = kTags - 1; tag >= 0; --tag) {
    for (int i = 0; i < kEach; ++i) {
      MPI_Recv(in, sizeof in, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CHECK(holds(in, sizeof in, (unsigned)(from * 10000 + tag * kEach + i)));
    }
  }
}

struct mixed {
  char a;
  double b;
  short c[3];
};

/* Without gaps here, with gaps there: elements are cut anywhere on their way. */
static void tight_to_gaps(int to, int from, const int* lengths, const MPI_Datatype* types, MPI_Datatype structure) {
  const MPI_Aint tight_offsets[3] = {0, 1, 9};
  MPI_Datatype tight_raw, tight;
  MPI_Type_create_struct(3, lengths, tight_offsets, types, &tight_raw);
  MPI_Type_create_resized(tight_raw, 0, 15, &tight);
  MPI_Type_commit(&tight);
  for (int n = 1; n <= 200000; n = n * 10 + 3) {
    char *out = malloc((size_t)n * 15), *back = malloc((size_t)n * 15);
    struct mixed* in = calloc((size_t)n, sizeof *in);
    for (int i = 0; i < n; ++i) {
      const double b = rank + i * 0.5;
      const short c[3] = {(short)i, (short)(i + 1), (short)(i + 2)};
      out[i * 15] = (char)i;
      memcpy(out + i * 15 + 1, &b, sizeof b);
      memcpy(out + i * 15 + 9, c, sizeof c);
    }
    MPI_Sendrecv(out, n, tight, to, 5, in, n, structure, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; ++i) {
      CHECK(in[i].a == (char)i && in[i].b == from + i * 0.5 && in[i].c[0] == (short)i && in[i].c[2] == (short)(i + 2));
    }
    MPI_Sendrecv(in, n, structure, from, 6, back, n, tight, to, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(memcmp(out, back, (size_t)n * 15) == 0);
    free(out);
    free(back);
    free(in);
  }
  MPI_Type_free(&tight_raw);
  MPI_Type_free(&tight);
}

static void datatypes(void) {
  enum { kRows = 300, kColumns = 41 };
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  static int matrix[kRows][kColumns], there[kRows][kColumns], packed[kRows * 3];
  MPI_Datatype column, structure, indexed;
  MPI_Type_vector(kRows, 3, kColumns, MPI_INT, &column);
  MPI_Type_commit(&column);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) matrix[r][c] = rank * 1000000 + r * kColumns + c;
  }
  /* strided to strided, and strided to packed */
  memset(there, 0xFF, sizeof there);
  MPI_Sendrecv(&matrix[0][5], 1, column, to, 1, &there[0][9], 1, column, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      CHECK(there[r][c] == (c >= 9 && c < 12 ? from * 1000000 + r * kColumns + c - 4 : -1));
    }
  }
  MPI_Sendrecv(&matrix[0][0], 1, column, to, 2, packed, kRows * 3, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < kRows * 3; ++i) CHECK(packed[i] == from * 1000000 + i / 3 * kColumns + i % 3);
  /* a structure of mixed types, many of them: by rendezvous */
  const int lengths[3] = {1, 1, 3};
  const MPI_Aint offsets[3] = {offsetof(struct mixed, a), offsetof(struct mixed, b), offsetof(struct mixed, c)};
  const MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
  MPI_Datatype raw;
  MPI_Type_create_struct(3, lengths, offsets, types, &raw);
  MPI_Type_create_resized(raw, 0, sizeof(struct mixed), &structure);
  MPI_Type_commit(&structure);
  for (int n = 1; n <= 200000; n = n * 10 + 3) {
    struct mixed *out = calloc((size_t)n, sizeof *out), *in = calloc((size_t)n, sizeof *in);
    for (int i = 0; i < n; ++i) out[i] = (struct mixed){(char)i, rank + i * 0.5, {(short)i, (short)(i + 1), (short)(i + 2)}};
    MPI_Sendrecv(out, n, structure, to, 3, in, n, structure, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; ++i) {
      CHECK(in[i].a == (char)i && in[i].b == from + i * 0.5 && in[i].c[0] == (short)i && in[i].c[2] == (short)(i + 2));
    }
    free(out);
    free(in);
  }
  tight_to_gaps(to, from, lengths, types, structure);
  const int counts[4] = {5, 1, 9, 2}, places[4] = {100, 0, 50, 20};
  int out[200], in[200];
  MPI_Type_indexed(4, counts, places, MPI_INT, &indexed);
  MPI_Type_commit(&indexed);
  for (int i = 0; i < 200; ++i) out[i] = rank * 1000 + i, in[i] = -7;
  MPI_Sendrecv(out, 1, indexed, to, 4, in, 1, indexed, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < 200; ++i) {
    const int sent = (i >= 100 && i < 105) || i == 0 || (i >= 50 && i < 59) || (i >= 20 && i < 22);
    CHECK(in[i] == (sent ? from * 1000 + i : -7));
  }
  MPI_Type_free(&column);
  MPI_Type_free(&raw);
  MPI_Type_free(&structure);
  MPI_Type_free(&indexed);
}

static void probes(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int i = 0; i < kCount; ++i) {
    const size_t n = kLengths[i];
    unsigned char *out = malloc(n + 1), *in = malloc(n + 1);
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    int count, flag = 0;
    fill(out, n, (unsigned)(rank * 77 + i));
    for (int matched = 0; matched < 3; ++matched) {
      MPI_Isend(out, (int)n, MPI_BYTE, to, 50 + i, MPI_COMM_WORLD, &request);
      if (matched == 0) {
        MPI_Probe(from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == (int)n && status.MPI_TAG == 50 + i);
        MPI_Recv(in, count, MPI_BYTE, from, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (matched == 1) {
        MPI_Mprobe(MPI_ANY_SOURCE, 50 + i, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == (int)n && status.MPI_SOURCE == from);
        MPI_Mrecv(in, count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      } else {
        for (flag = 0; !flag;) MPI_Improbe(from, 50 + i, MPI_COMM_WORLD, &flag, &message, &status);
        MPI_Request received;
        MPI_Imrecv(in, (int)n, MPI_BYTE, &message, &received);
        MPI_Wait(&received, MPI_STATUS_IGNORE);
      }
      CHECK(holds(in, n, (unsigned)(from * 77 + i)));
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    free(out);
    free(in);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static void cancels_and_truncation(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  unsigned char in[64] = {0}, out[128];
  MPI_Request request;
  MPI_Status status;
  int cancelled = 0, count;
  MPI_Irecv(in, sizeof in, MPI_BYTE, from, 9999, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  CHECK(cancelled);
  MPI_Barrier(MPI_COMM_WORLD); /* nobody sends before all have canceled */
  /* the canceled receive takes nothing */
  fill(out, sizeof out, (unsigned)rank);
  MPI_Sendrecv(out, 64, MPI_BYTE, to, 9999, in, 64, MPI_BYTE, from, 9999, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_BYTE, &count);
  CHECK(count == 64 && holds(in, 64, (unsigned)from));
  /* too long a message is an error of its receive, and the next one is whole */
  MPI_Comm mine;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine);
  MPI_Comm_set_errhandler(mine, MPI_ERRORS_RETURN);
  MPI_Isend(out, 128, MPI_BYTE, to, 1, mine, &request);
  int error = MPI_Recv(in, 64, MPI_BYTE, from, 1, mine, &status), class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
  CHECK(class == MPI_ERR_TRUNCATE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Sendrecv(out, 64, MPI_BYTE, to, 2, in, 64, MPI_BYTE, from, 2, mine, MPI_STATUS_IGNORE);
  CHECK(holds(in, 64, (unsigned)from));
  MPI_Comm_free(&mine);
}

static void persistent(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  enum { kLong = 200000 };
  unsigned char *out = malloc(kLong), *in = malloc(kLong);
  MPI_Request requests[2];
  for (int length = 16; length <= kLong; length *= 100) {
    MPI_Send_init(out, length, MPI_BYTE, to, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, length, MPI_BYTE, from, 3, MPI_COMM_WORLD, &requests[1]);
    for (unsigned i = 0; i < 50; ++i) {
      fill(out, (size_t)length, (unsigned)rank * 100 + i);
      MPI_Startall(2, requests);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      CHECK(holds(in, (size_t)length, (unsigned)from * 100 + i));
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
  }
  free(out);
  free(in);
}

static void many_at_once(void) {
  enum { kMany = 500, kBytes = 3000 };
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  unsigned char *out = malloc(kMany * kBytes), *in = malloc(kMany * kBytes);
  MPI_Request* requests = malloc(2 * kMany * sizeof *requests);
  for (int i = 0; i < kMany; ++i) fill(out + i * kBytes, kBytes, (unsigned)(rank * kMany + i));
  for (int i = 0; i < kMany; ++i) MPI_Irecv(in + i * kBytes, kBytes, MPI_BYTE, from, kMany - i, MPI_COMM_WORLD, &requests[i]);
  for (int i = 0; i < kMany; ++i) {
    MPI_Isend(out + i * kBytes, kBytes, MPI_BYTE, to, kMany - i, MPI_COMM_WORLD, &requests[kMany + i]);
  }
  MPI_Waitall(2 * kMany, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < kMany; ++i) CHECK(holds(in + i * kBytes, kBytes, (unsigned)(from * kMany + i)));
  free(out);
  free(in);
  free(requests);
}

static void collectives(void) {
  for (int n = 1; n <= 300000; n = n * 17 + 2) {
    long *mine = malloc((size_t)n * sizeof(long)), *all = malloc((size_t)n * (size_t)size * sizeof(long));
    long *sum = malloc((size_t)n * sizeof(long)), *back = malloc((size_t)n * (size_t)size * sizeof(long));
    for (int i = 0; i < n; ++i) mine[i] = (long)rank * 1000003 + i;
    MPI_Allreduce(mine, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; ++i) CHECK(sum[i] == (long)size * (size - 1) / 2 * 1000003 + (long)size * i);
    MPI_Allgather(mine, n, MPI_LONG, all, n, MPI_LONG, MPI_COMM_WORLD);
    for (int r = 0; r < size; ++r) {
      for (int i = 0; i < n; ++i) CHECK(all[(size_t)r * (size_t)n + (size_t)i] == (long)r * 1000003 + i);
    }
    for (int r = 0; r < size; ++r) {
      for (int i = 0; i < n; ++i) all[(size_t)r * (size_t)n + (size_t)i] = (long)rank * 1000 + r + (long)i * 1000000;
    }
    MPI_Alltoall(all, n, MPI_LONG, back, n, MPI_LONG, MPI_COMM_WORLD);
    for (int r = 0; r < size; ++r) {
      for (int i = 0; i < n; ++i) CHECK(back[(size_t)r * (size_t)n + (size_t)i] == (long)r * 1000 + rank + (long)i * 1000000);
    }
    for (int root = 0; root < size; ++root) {
      for (int i = 0; i < n; ++i) sum[i] = rank == root ? root * 5 + i : -1;
      MPI_Bcast(sum, n, MPI_LONG, root, MPI_COMM_WORLD);
      for (int i = 0; i < n; ++i) CHECK(sum[i] == root * 5 + i);
      MPI_Reduce(mine, sum, n, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
      for (int i = 0; rank == root && i < n; ++i) CHECK(sum[i] == (long)(size - 1) * 1000003 + i);
      MPI_Gather(mine, n, MPI_LONG, back, n, MPI_LONG, root, MPI_COMM_WORLD);
      for (int i = 0; rank == root && i < n * size; ++i) CHECK(back[i] == (long)(i / n) * 1000003 + i % n);
      MPI_Scatter(back, n, MPI_LONG, sum, n, MPI_LONG, root, MPI_COMM_WORLD);
      for (int i = 0; i < n; ++i) CHECK(sum[i] == mine[i]);
    }
    MPI_Scan(mine, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; ++i) CHECK(sum[i] == (long)rank * (rank + 1) / 2 * 1000003 + (long)(rank + 1) * i);
    MPI_Request request;
    MPI_Iallreduce(mine, sum, n, MPI_LONG, MPI_MIN, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; ++i) CHECK(sum[i] == i);
    free(mine);
    free(all);
    free(sum);
    free(back);
  }
}

static void communicators(void) {
  MPI_Comm half, reversed;
  int value = rank, sum = 0, expected = 0, place;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, half);
  for (int r = rank % 2; r < size; r += 2) expected += r;
  CHECK(sum == expected);
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reversed);
  MPI_Comm_rank(reversed, &place);
  CHECK(place == size - 1 - rank);
  /* the same tag in two communicators does not mix */
  int out[2] = {rank, rank + 100}, in[2] = {-1, -1};
  MPI_Request requests[4];
  MPI_Irecv(&in[1], 1, MPI_INT, size - 1 - (rank + 1) % size, 5, reversed, &requests[0]);
  MPI_Irecv(&in[0], 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(&out[0], 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(&out[1], 1, MPI_INT, size - 1 - (rank + size - 1) % size, 5, reversed, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  CHECK(in[0] == (rank + 1) % size && in[1] == (rank + 1) % size + 100);
  MPI_Comm_free(&half);
  MPI_Comm_free(&reversed);
}

/* A lock by compare-and-swap, and exclusive locks: no update is lost. */
static void locks(MPI_Win window) {
  for (int i = 0; i < 10; ++i) {
    long seen;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Get(&seen, 1, MPI_LONG, 0, 2, 1, MPI_LONG, window);
    MPI_Win_flush(0, window);
    ++seen;
    MPI_Put(&seen, 1, MPI_LONG, 0, 2, 1, MPI_LONG, window);
    MPI_Win_unlock(0, window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  const long compare = 10L * size, value = -55;
  long old = 0;
  if (rank == size - 1) {
    MPI_Compare_and_swap(&value, &compare, &old, MPI_LONG, 0, 2, window);
    MPI_Win_flush(0, window);
    CHECK(old == compare);
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Each of them, fetching. */
static void accumulates(MPI_Win window, long* base) {
  const int to = (rank + 1) % size;
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_REPLACE};
  for (size_t o = 0; o < sizeof ops / sizeof *ops; ++o) {
    base[3] = 12;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, window);
    const long five = 5;
    long before = -1;
    MPI_Get_accumulate(&five, 1, MPI_LONG, &before, 1, MPI_LONG, to, 3, 1, MPI_LONG, ops[o], window);
    MPI_Win_unlock(to, window);
    CHECK(before == 12);
    MPI_Barrier(MPI_COMM_WORLD);
    const long results[] = {17, 60, 12, 5, 4, 13, 9, 5};
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    CHECK(base[3] == results[o]);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* Windows of memory that the MPI allocates, and of the program's own. */
static void one_sided_in(MPI_Win window, long* base, int words) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  long *mine = malloc((size_t)words * sizeof(long)), *back = malloc((size_t)words * sizeof(long));
  for (int i = 0; i < words; ++i) {
    mine[i] = rank * 1000000L + i;
    base[i] = -1;
  }
  MPI_Win_fence(0, window);
  MPI_Put(mine, words, MPI_LONG, to, 0, words, MPI_LONG, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < words; ++i) CHECK(base[i] == from * 1000000L + i);
  MPI_Get(back, words, MPI_LONG, to, 0, words, MPI_LONG, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < words; ++i) CHECK(back[i] == rank * 1000000L + i);
  /* every rank adds to every other's first words, under shared locks */
  for (int i = 0; i < words; ++i) base[i] = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i < 20; ++i) {
      const long one = 1;
      long old;
      MPI_Accumulate(&one, 1, MPI_LONG, r, 0, 1, MPI_LONG, MPI_SUM, window);
      MPI_Fetch_and_op(&one, &old, MPI_LONG, r, 1, MPI_SUM, window);
      MPI_Win_flush(r, window);
      CHECK(old >= 0 && old < 20L * size);
    }
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
  CHECK(base[0] == 20L * size && base[1] == 20L * size);
  MPI_Win_unlock(rank, window);
  MPI_Barrier(MPI_COMM_WORLD);
  locks(window);
  accumulates(window, base);
  free(mine);
  free(back);
}

static void one_sided(void) {
  enum { kWords = 20000 };
  MPI_Win window;
  long* base;
  MPI_Win_allocate(kWords * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  one_sided_in(window, base, kWords);
  MPI_Win_free(&window);
  base = malloc(kWords * sizeof(long));
  MPI_Win_create(base, kWords * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  one_sided_in(window, base, kWords);
  MPI_Win_free(&window);
  free(base);
}

/* Only by name: the last rank dies while the others, who have had a message of its, wait for another. Who is told so prints it. */
static void killed(void) {
  int word = 0;
  if (rank == size - 1) {
    for (int other = 0; other < size - 1; ++other) MPI_Send(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
    MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    raise(SIGKILL);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Recv(&word, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 0) {
    printf("mpi_all: killed: all have talked\n");
    fflush(stdout);
    MPI_Send(&word, 1, MPI_INT, size - 1, 2, MPI_COMM_WORLD);
  }
  char text[MPI_MAX_ERROR_STRING] = "no error";
  int length = 0;
  int code = MPI_SUCCESS;
  for (int tries = 0; code == MPI_SUCCESS && tries < 100; ++tries) {  // MPICH forgets the status of one that was under way
    code = MPI_Ssend(&word, 1, MPI_INT, size - 1, 1, MPI_COMM_WORLD);
  }
  if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
  printf("mpi_all: killed: told of it: %s\n", text);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static const struct {
  const char* name;
  void (*run)(void);
} kParts[] = {{"point_to_point", point_to_point},
              {"unexpected", unexpected},
              {"datatypes", datatypes},
              {"probes", probes},
              {"cancels_and_truncation", cancels_and_truncation},
              {"persistent", persistent},
              {"many_at_once", many_at_once},
              {"collectives", collectives},
              {"communicators", communicators},
              {"one_sided", one_sided},
              {"killed", killed}};

static int wanted(const char* name, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return 1;
  }
  return argc <= 1 && strcmp(name, "killed") != 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int ran = 0;
  for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i) {
    if (!wanted(kParts[i].name, argc, argv)) continue;
    const double start = MPI_Wtime();
    kParts[i].run();
    MPI_Barrier(MPI_COMM_WORLD);
    ++ran;
    if (rank == 0) printf("mpi_all: %s: right in %.2f s\n", kParts[i].name, MPI_Wtime() - start);
    fflush(stdout);
  }
  MPI_Finalize();
  return ran == 0;
}
