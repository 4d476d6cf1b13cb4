/* SPDX-License-Identifier: Apache-2.0
 *
 * shmem_all.c: OpenSHMEM's puts, gets, atomics, locks, waits and collectives, compared element by element: `oshrun -n 2..8 shmem_all`.
 */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, all;

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      fprintf(stderr, "PE %d: %s:%d: %s does not hold\n", me, __FILE__, __LINE__, #condition); \
      shmem_global_exit(1);                                                                    \
    }                                                                                          \
  } while (0)

static long statics[64]; /* symmetric, too */

static void puts_and_gets(void) {
  const int to = (me + 1) % all, from = (me + all - 1) % all;
  for (size_t n = 1; n <= 400000; n = n * 13 + 1) {
    long *there = shmem_malloc(n * sizeof(long)), *back = malloc(n * sizeof(long)), *mine = malloc(n * sizeof(long));
    for (size_t i = 0; i < n; ++i) {
      mine[i] = me * 10000000L + (long)i;
      there[i] = -1;
    }
    shmem_barrier_all();
    shmem_long_put(there, mine, n, to);
    shmem_barrier_all();
    for (size_t i = 0; i < n; ++i) CHECK(there[i] == from * 10000000L + (long)i);
    memset(back, 0, n * sizeof(long));
    shmem_long_get(back, there, n, to);
    for (size_t i = 0; i < n; ++i) CHECK(back[i] == me * 10000000L + (long)i);
    shmem_barrier_all();
    memset(back, 0, n * sizeof(long));
    shmem_long_get_nbi(back, there, n, to);
    shmem_quiet();
    for (size_t i = 0; i < n; ++i) CHECK(back[i] == me * 10000000L + (long)i);
    shmem_barrier_all();
    shmem_long_put_nbi(there, back, n, me); /* to itself */
    shmem_quiet();
    CHECK(there[n - 1] == back[n - 1]);
    shmem_barrier_all();
    free(mine);
    free(back);
    shmem_free(there);
  }
  statics[3] = -1;
  shmem_barrier_all();
  shmem_long_p(&statics[3], me * 7L, to);
  shmem_barrier_all();
  CHECK(statics[3] == from * 7L && shmem_long_g(&statics[3], to) == me * 7L);
  shmem_barrier_all();
}

static void order(void) {
  /* data, fence, flag: who sees the flag sees the data */
  enum { kRounds = 2000, kWords = 100 };
  static long data[kWords], flag, answer;
  const int to = (me + 1) % all;
  flag = answer = 0;
  shmem_barrier_all();
  for (long round = 1; round <= kRounds; ++round) {
    long out[kWords];
    for (int i = 0; i < kWords; ++i) out[i] = round * 1000 + i;
    shmem_long_put(data, out, kWords, to);
    shmem_fence();
    shmem_long_p(&flag, round, to);
    shmem_long_wait_until(&flag, SHMEM_CMP_GE, round);
    for (int i = 0; i < kWords; ++i) CHECK(data[i] == round * 1000 + i);
    shmem_long_p(&answer, round, (me + all - 1) % all);
    shmem_long_wait_until(&answer, SHMEM_CMP_GE, round);
  }
  shmem_barrier_all();
}

static void atomics(void) {
  static long counter, word;
  static int small;
  counter = 0;
  small = 0;
  word = 5;
  shmem_barrier_all();
  for (int i = 0; i < 1000; ++i) {
    shmem_long_atomic_inc(&counter, 0);
    const int old = shmem_int_atomic_fetch_add(&small, 2, all - 1);
    CHECK(old >= 0 && old % 2 == 0 && old < 2000 * all);
  }
  shmem_barrier_all();
  if (me == 0) CHECK(counter == 1000L * all);
  if (me == all - 1) CHECK(small == 2000 * all);
  shmem_barrier_all();
  const int to = (me + 1) % all;
  CHECK(shmem_long_atomic_compare_swap(&word, 4, 9, to) == 5 && shmem_long_atomic_fetch(&word, to) == 5);
  CHECK(shmem_long_atomic_compare_swap(&word, 5, 9, to) == 5 && shmem_long_atomic_swap(&word, 11, to) == 9);
  shmem_long_atomic_set(&word, 20, to);
  shmem_quiet();
  CHECK(shmem_long_atomic_fetch(&word, to) == 20);
  shmem_barrier_all();
}

static void locks(void) {
  static long lock, shared;
  shared = 0;
  shmem_barrier_all();
  for (int i = 0; i < 100; ++i) {
    shmem_set_lock(&lock);
    const long value = shmem_long_g(&shared, 0);
    shmem_long_p(&shared, value + 1, 0);
    shmem_quiet();
    shmem_clear_lock(&lock);
  }
  shmem_barrier_all();
  if (me == 0) CHECK(shared == 100L * all);
  shmem_barrier_all();
}

static void collectives(void) {
  enum { kWords = 5000 };
  static long sync[SHMEM_REDUCE_SYNC_SIZE > SHMEM_COLLECT_SYNC_SIZE ? SHMEM_REDUCE_SYNC_SIZE : SHMEM_COLLECT_SYNC_SIZE];
  static long source[kWords], target[kWords], work[kWords + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
  for (size_t i = 0; i < sizeof sync / sizeof *sync; ++i) sync[i] = SHMEM_SYNC_VALUE;
  for (int i = 0; i < kWords; ++i) source[i] = me * 100000L + i;
  shmem_barrier_all();
  shmem_long_sum_to_all(target, source, kWords, 0, 0, all, work, sync);
  for (int i = 0; i < kWords; ++i) CHECK(target[i] == all * (all - 1) / 2 * 100000L + (long)all * i);
  shmem_barrier_all();
  for (int i = 0; i < kWords; ++i) target[i] = -1;
  shmem_barrier_all();
  shmem_broadcast64(target, source, kWords, all - 1, 0, 0, all, sync);
  if (me != all - 1) {
    for (int i = 0; i < kWords; ++i) CHECK(target[i] == (all - 1) * 100000L + i);
  }
  shmem_barrier_all();
  long* every = shmem_malloc((size_t)all * kWords * sizeof(long));
  shmem_barrier_all();
  shmem_fcollect64(every, source, kWords, 0, 0, all, sync);
  for (int pe = 0; pe < all; ++pe) {
    for (int i = 0; i < kWords; ++i) CHECK(every[pe * kWords + i] == pe * 100000L + i);
  }
  shmem_barrier_all();
  shmem_free(every);
}

static void direct(void) {
  /* where PEs of this machine reach each other's heap by loads and stores */
  long* there = shmem_malloc(sizeof(long));
  *there = -1;
  shmem_barrier_all();
  long* const seen = shmem_ptr(there, (me + 1) % all);
  if (seen != NULL) *seen = me;
  shmem_barrier_all();
  CHECK(seen == NULL || *there == (me + all - 1) % all);
  if (me == 0) printf("shmem_all: shmem_ptr: %s\n", seen != NULL ? "mapped" : "not mapped");
  shmem_barrier_all();
  shmem_free(there);
}

/* Only by name: the last PE dies when all have talked, and the others wait for it. */
static void killed(void) {
  shmem_barrier_all();
  if (me == 0) printf("shmem_all: killed: all have talked\n");
  fflush(stdout);
  shmem_barrier_all();
  if (me == all - 1) raise(SIGKILL);
  shmem_barrier_all();
}

int main(int argc, char** argv) {
  shmem_init();
  me = shmem_my_pe();
  all = shmem_n_pes();
  if (argc > 1 && strcmp(argv[1], "killed") == 0) killed();
  static const struct {
    const char* name;
    void (*run)(void);
  } parts[] = {{"puts_and_gets", puts_and_gets}, {"order", order},  {"atomics", atomics}, {"locks", locks},
               {"collectives", collectives},     {"direct", direct}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    parts[i].run();
    shmem_barrier_all();
    if (me == 0) printf("shmem_all: %s: right\n", parts[i].name);
    fflush(stdout);
  }
  shmem_finalize();
  return 0;
}
