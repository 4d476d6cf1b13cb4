/* SPDX-License-Identifier: Apache-2.0
 *
 * windows.h: symmetric memory. Each of `size` ranks gives a region of one length; then every rank knows where the others' parts
 * are: for its loads and stores, for the kernels of its devices, and as imported memory for puts, gets and atomics over any
 * transport. Part of thalweg.h, whose conventions hold.
 *
 * Another buffer is another window: creating one over the same endpoints costs two exchanges of some hundred bytes (of a group's, a
 * third of none), and memory that is imported already is found in the cache. Windows do not grow, because kernels and captured graphs
 * hold a window's addresses by value.
 *
 * Threads: all functions but tw_window_check belong to the user of the worker; they progress it where they wait.
 */
#ifndef THALWEG_WINDOWS_H
#define THALWEG_WINDOWS_H

#include <thalweg/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_window tw_window;

/** An allgather: values[i * length] becomes rank i's `mine`. Called by all ranks in the same order; returns TW_OK or an
 *  error, within a timeout of its own. MPI_Allgather takes three lines; tw_store_exchange none. While it waits in a store,
 *  the worker is progressed, and the loss of a peer of the window ends the wait. */
typedef tw_status (*tw_exchange)(void *arg, const void *mine, size_t length, void *values);

typedef struct tw_window_options {
  size_t size;
  uint64_t timeout_ns; /* until all peers are connected and imported, of each bind, and of each wait of device code; 0: 30 s */
} tw_window_options;
#define TW_WINDOW_OPTIONS_INIT {sizeof(tw_window_options), 0}

/** Collective over the ranks: all call it, with regions of the same length, or none gets a window. endpoints[size]: to each rank, by
 *  this worker; the own entry is NULL (size 1: endpoints may be NULL). memory: this rank's part, from tw_memory_allocate at any
 *  place, or a registered buffer; it stays the caller's and must outlive the window. exchange NULL: arg is a tw_store whose rank and
 *  count are these. The exchange is called twice here and once by tw_window_destroy.
 *  If one rank's arguments are invalid, creation fails on all ranks; the text has its number. TW_ERR_INVALID: lengths or
 *  sizes differ, two ranks are equal, or one gives an endpoint twice; TW_ERR_TIMED_OUT: a rank is missing; TW_ERR_PEER_LOST.
 *  End with tw_window_destroy, before the worker. */
TW_CHECKED tw_status tw_window_create(tw_worker *worker, tw_endpoint *const *endpoints, uint32_t size, uint32_t rank,
                                      tw_memory *memory, tw_exchange exchange, void *arg, const tw_window_options *options,
                                      tw_window **window);
/** Collective: no kernel of this rank may use the window any more. Releases the peers' memory, then waits until all ranks
 *  have done so: afterwards each may free its part. The handle is invalid in any case but TW_ERR_BUSY: a group's window in a
 *  callback or a handler, which run inside progress, stays as it is, and is destroyed behind them. If a peer is lost, also while the
 *  exchange waits in a store (detected within 2 s), it does not wait and returns TW_ERR_PEER_LOST: ranks of one process then
 *  free their parts only after each other's kernels; other memory is guarded by tw_memory_release, which waits for imports
 *  or returns TW_ERR_BUSY. */
TW_CHECKED tw_status tw_window_destroy(tw_window *window);
TW_API uint32_t tw_window_rank(const tw_window *window);
TW_API uint32_t tw_window_size(const tw_window *window);
TW_API size_t tw_window_length(const tw_window *window);

/** Where loads and stores of this process reach rank's part: host memory of this rank, of a rank in this process, or of
 *  tw_memory_allocate on this machine. Valid while the window lives, also after its loss. TW_ERR_UNSUPPORTED has why. */
TW_CHECKED tw_status tw_window_address(tw_window *window, uint32_t rank, void **address);
/** Rank's part as imported memory, for tw_put, tw_get, tw_atomic and plans by tw_window_endpoint; any transport. The window's: not
 *  to be released. The own rank's uses the transport self: TW_ERR_UNREACHABLE where that is disabled. */
TW_CHECKED tw_status tw_window_remote(tw_window *window, uint32_t rank, tw_remote_memory **remote);
/** The endpoint to a rank: of the others what tw_window_create was given, of the own rank one of the worker to itself. The
 *  window's: not to be closed. */
TW_CHECKED tw_status tw_window_endpoint(tw_window *window, uint32_t rank, tw_endpoint **endpoint);

/* Plain data, the same bytes as thalweg::device::Guard and ::Window (device/types.hpp): pass it to a kernel by value. */
typedef struct tw_device_guard {
  uint64_t *abort_flag;  /* in the device's memory: not 0: device code does nothing. Set by the device when a wait expires */
  void *failure;         /* thalweg::device::Failure, in pinned memory: why; read it with tw_window_check */
  const uint64_t *abort; /* in pinned memory: not 0: waits end; set by the library when a peer is lost */
  uint64_t limit_ns;     /* of a wait */
} tw_device_guard;
typedef struct tw_device_window {
  uint32_t rank, size;
  uint64_t length;
  char *const *bases; /* [size], in the device's memory: where rank i's part is for this device */
  tw_device_guard guard;
  char *first_bases[8]; /* the same of the first ranks, among a kernel's parameters */
} tw_device_window;

/** What code at `place` needs to use the window: "cuda:1", "emulated:0": kernels of that device; "host": their twins on the CPU.
 *  Not collective; the result is cached for each place. The struct is valid while the window lives; the window owns all in
 *  it. Host memory is pinned for the device where it is not yet. Binding a place again clears what tw_window_check reports
 *  of it; none of its code may be running then.
 *  TW_ERR_UNSUPPORTED, TW_ERR_UNREACHABLE: a rank's memory cannot be reached by loads and stores from there (another machine or tcp,
 *  pool or managed memory, no peer access, device memory from the host): the text has the rank, the reason and what to do.
 *  TW_ERR_PEER_LOST: a peer has left. */
TW_CHECKED tw_status tw_window_bind(tw_window *window, const char *place, tw_device_window *bound);
/** TW_OK, or the first failure, with a text: TW_ERR_PEER_LOST with the rank; or the failure that device code recorded: what
 *  it waited for and what it found. Does not block. Any thread, also while others use the window. */
TW_CHECKED tw_status tw_window_check(tw_window *window);

#ifdef __cplusplus
}
#endif

#endif
