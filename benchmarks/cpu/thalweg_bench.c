/* SPDX-License-Identifier: Apache-2.0
 * Thalweg behind the measuring loop of the peers: compiled against the peers folder's bench_core.h, so that every library is
 * timed by the same lines. Only thalweg.h is used.
 *
 *   THALWEG_BENCH_TRANSPORT=shm|tcp   only this transport (default: what the library chooses)
 *   THALWEG_BENCH_MEMORY=library      buffers from tw_memory_allocate (with BENCH_THP=1: on huge pages)
 *   BENCH_TESTS=lat,bw,msgrate,put    put: latency of 8-byte to 16 MiB puts, the target polls the last byte
 * and bench_core.h's BENCH_THP, BENCH_DISTINCT, BENCH_SCALE. */
#define xalloc core_xalloc
#include "bench_core.h"
#undef xalloc
#include <thalweg/thalweg.h>

enum { KEY_ROOM = 256, ADDRESS_ROOM = 256 };

static tw_context* context;
static tw_worker* worker;
static tw_endpoint* endpoint;
static tw_request sends[WINDOW], receives[WINDOW];
enum { TAG = 1 };

static void must(tw_status status, const char* what) {
  if (status < 0) DIE("%s: %s: %s", what, tw_status_name(status), tw_last_error());
}

/* --- buffers: the loop's xalloc and free, by the library's allocator when asked */
static struct {
  void* address;
  tw_memory* memory;
} owned[16];

static tw_memory* library_memory(size_t n) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  tw_memory* memory;
  options.huge_pages = getenv("BENCH_THP") != NULL;
  must(tw_memory_allocate(context, n, &options, &memory), "tw_memory_allocate");
  memset(tw_memory_address(memory), 0, n);
  return memory;
}

static void* xalloc(size_t n) {
  const char* kind = getenv("THALWEG_BENCH_MEMORY");
  if (!kind || strcmp(kind, "library") != 0) return core_xalloc(n);
  for (unsigned i = 0; i < sizeof owned / sizeof *owned; i++) {
    if (owned[i].address) continue;
    owned[i].memory = library_memory(n);
    return owned[i].address = tw_memory_address(owned[i].memory);
  }
  DIE("xalloc: too many buffers");
}

static void xfree(void* address) {
  for (unsigned i = 0; address && i < sizeof owned / sizeof *owned; i++) {
    if (owned[i].address != address) continue;
    must(tw_memory_release(owned[i].memory), "tw_memory_release");
    owned[i].address = NULL;
    return;
  }
  free(address);
}

/* --- the eight functions of the loop */
static inline void finish(tw_request* request) {
  if (*request != TW_REQUEST_NONE) must(tw_request_finish(*request), "tw_request_finish");
}
static inline void x_send(const void* b, size_t n) { must(tw_send_blocking(endpoint, b, n, TAG), "tw_send_blocking"); }
static inline void x_recv(void* b, size_t n) {
  must(tw_recv_blocking(worker, b, n, TAG, UINT64_MAX, NULL), "tw_recv_blocking");
}
static inline void x_isend(int i, const void* b, size_t n) { must(tw_send(endpoint, b, n, TAG, NULL, &sends[i]), "tw_send"); }
static inline void x_irecv(int i, void* b, size_t n) {
  must(tw_recv(worker, b, n, TAG, UINT64_MAX, NULL, &receives[i]), "tw_recv");
}
static inline void x_waitall_send(int n) {
  for (int i = 0; i < n; i++) finish(&sends[i]);
}
static inline void x_waitall_recv(int n) {
  for (int i = 0; i < n; i++) finish(&receives[i]);
}

#define free xfree
#define BENCH_IMPL
#include "bench_core.h"
#undef free

/* --- put: both put into each other's memory and poll the last byte, as ucx_perftest's put_lat */
static void await_byte(const volatile unsigned char* byte, unsigned char value, int mapped) {
  while (__atomic_load_n(byte, __ATOMIC_ACQUIRE) != value) {
    if (!mapped) tw_worker_progress(worker);
#if defined(__x86_64__)
    else
      __builtin_ia32_pause(); /* the loads of a tight loop hold up the very line they wait for: 61 ns instead of 29 */
#endif
  }
}

static void put_round(const unsigned char* from, unsigned char* to, size_t n, tw_remote_memory* remote, unsigned char value,
                      int rank, int mapped) {
  unsigned char* source = (unsigned char*)from;
  tw_request request;
  if (rank == 1) await_byte(to + n - 1, value, mapped);
  source[n - 1] = value;
  must(tw_put(endpoint, source, n, remote, 0, NULL, &request), "tw_put");
  finish(&request);
  if (rank == 0) await_byte(to + n - 1, value, mapped);
}

static void bench_put(int rank) {
  static const size_t S[] = {8, 64, 1024, 8192, 65536, 1 << 20, 16 << 20};
  tw_memory *from = library_memory(MAXLEN), *to = library_memory(MAXLEN);
  unsigned char *sb = tw_memory_address(from), *rb = tw_memory_address(to);
  char mine[KEY_ROOM] = {0}, theirs[KEY_ROOM];
  size_t length = sizeof mine, their_length;
  tw_remote_memory* remote;
  void* address;
  must(tw_memory_export(to, mine, &length), "tw_memory_export");
  boot_xchg(&length, &their_length, sizeof length);
  boot_xchg(mine, theirs, sizeof mine);
  must(tw_memory_import(endpoint, theirs, their_length, &remote), "tw_memory_import");
  /* where a put is a store the target's processor is its own: it only looks. Elsewhere it has to progress. */
  int mapped = tw_remote_memory_map(remote, &address) == TW_OK;
  boot_barrier();
  for (unsigned k = 0; k < sizeof S / sizeof *S; k++) {
    size_t n = S[k];
    unsigned char value = 0;
    int batches, batch;
    lat_params(n, &batches, &batch);
    fill(sb, n, 29 + rank);
    memset(rb, 0, n);
    x_sync(rank);
    put_round(sb, rb, n, remote, ++value, rank, mapped);
    /* the last byte says nothing about the others: flush, then tell */
    tw_request flushed;
    must(tw_endpoint_flush(endpoint, &flushed), "tw_endpoint_flush");
    finish(&flushed);
    x_sync(rank);
    check(rb, n - 1, 29 + !rank, "put");
    int warm = batches / 10 + 1;
    double* v = malloc((size_t)batches * sizeof *v);
    for (int b = -warm; b < batches; b++) {
      uint64_t t0 = now_ns();
      for (int i = 0; i < batch; i++) put_round(sb, rb, n, remote, ++value ? value : ++value, rank, mapped);
      if (b >= 0) v[b] = (double)(now_ns() - t0) / 2e3 / batch;
    }
    if (rank == 0) emit("put_lat", n, median(v, batches), "us");
    free(v);
    x_sync(rank);
  }
  tw_remote_memory_release(remote);
  boot_barrier();
  must(tw_memory_release(from), "tw_memory_release");
  must(tw_memory_release(to), "tw_memory_release");
}

int main(void) {
  int rank = boot_fork(); /* before there is a context: a child may not use its parent's */
  char mine[ADDRESS_ROOM] = {0}, theirs[ADDRESS_ROOM];
  size_t length = sizeof mine, their_length;
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.transport = getenv("THALWEG_BENCH_TRANSPORT");
  must(tw_context_create(NULL, &context), "tw_context_create");
  must(tw_worker_create(context, NULL, &worker), "tw_worker_create");
  must(tw_worker_address(worker, mine, &length), "tw_worker_address");
  boot_xchg(&length, &their_length, sizeof length);
  boot_xchg(mine, theirs, sizeof mine);
  must(tw_connect(worker, theirs, their_length, &options, &endpoint), "tw_connect");
  must(tw_endpoint_wait(endpoint, 10000000000ull), "tw_endpoint_wait");
  bench_p2p(rank);
  if (want("put")) bench_put(rank);
  boot_barrier();
  must(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, NULL), "tw_endpoint_close");
  boot_barrier();
  tw_worker_destroy(worker);
  tw_context_destroy(context);
  return boot_join(rank);
}
