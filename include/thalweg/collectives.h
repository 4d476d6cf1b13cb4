/* SPDX-License-Identifier: Apache-2.0
 *
 * collectives.h: what all ranks of a group (groups.h) do together. Part of thalweg.h, whose conventions hold.
 *
 * All ranks of a group call the same collectives in the same order, with the same type, operation, root, count and options. Several
 * may be under way at once, of one group and of several. A call whose request is NULL, and whose options name no callback, queue,
 * counter, record or signal, is blocking: it progresses the group's worker and returns when this rank's part is over. Any other one
 * returns TW_IN_PROGRESS, and goes on in the worker's progress.
 *
 * All ranks call it in the same form: all blocking, or all not. Blocking calls of ranks that all map each other's memory (processes or
 * threads of one machine, connected by shm, up to 64) go past messages, by the algorithm "direct", which is chosen where it is the
 * fastest; the first of them makes and maps a segment of 1 MiB for each rank of the group, and tries that once.
 *
 * Counts are elements of TW_TYPE_* (plans.h). Buffers lie in host memory or in a device's, and are aligned to their elements; a
 * rank's may be in another kind of memory than another rank's. TW_IN_PLACE stands for the buffer that the function names. Otherwise
 * what is sent and what is received do not overlap.
 *
 * Messages of collectives never meet users' messages, whatever tags and masks those use.
 *
 * Errors: arguments that make no sense are refused before anything moves (TW_ERR_INVALID, TW_ERR_MISALIGNED, TW_ERR_UNSUPPORTED), on
 * this rank alone. What fails later, fails the group: this collective and all others under way end with an error that names the
 * rank, on all ranks, and later ones fail at once. TW_ERR_PEER_LOST; TW_ERR_TIMED_OUT of a blocking call; TW_ERR_TRUNCATED and
 * TW_ERR_INVALID where ranks called different things. What was received is undefined then.
 */
#ifndef THALWEG_COLLECTIVES_H
#define THALWEG_COLLECTIVES_H

#include <thalweg/groups.h>
#include <thalweg/options.h>
#include <thalweg/plans.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_IN_PLACE ((void *)1)

enum {
  TW_COLLECTIVE_REPEATABLE = 1u /* the same input, ranks and places of the ranks give the same bits, in any order of arrival */
};

/** inout[i] = inout[i] op from[i] for `count` elements. `from` is of higher ranks than inout. Called from progress. */
typedef void (*tw_reduce_function)(const void *from, void *inout, size_t count, void *arg);

typedef struct tw_collective_options {
  size_t size;
  uint32_t flags;            /* TW_COLLECTIVE_* */
  uint32_t commutative;      /* TW_REDUCE_USER: 1: operands may change places; 0: they are applied in the order of ranks */
  const char *algorithm;     /* by name, of all ranks; NULL: chosen by measured costs */
  double scale;              /* TW_REDUCE_SCALED_SUM: what the sum is multiplied by */
  tw_reduce_function reduce; /* TW_REDUCE_USER: associative. Host memory only */
  void *reduce_arg;
  uint64_t timeout_ns; /* of a blocking call; 0: the group's */
  /* Where completion is reported, beside a request or instead: at most one, as in tw_op_options. */
  tw_callback callback;
  void *arg; /* of the callback, completion queue or record */
  tw_completion_queue *queue;
  tw_counter *counter;
  tw_completion *record;
  tw_signal *done;
  uint64_t done_value;
} tw_collective_options;
#define TW_COLLECTIVE_OPTIONS_INIT \
  {sizeof(tw_collective_options), 0, 1, NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0}

/** No rank comes out before all have come in. */
TW_CHECKED tw_status tw_barrier(tw_group *group, const tw_collective_options *options, tw_request *request);
/** root's buffer to all others'. */
TW_CHECKED tw_status tw_broadcast(tw_group *group, void *buffer, size_t count, uint32_t type, uint32_t root,
                                  const tw_collective_options *options, tw_request *request);
/** recv, of root (elsewhere it is not used), is the reduction of all ranks' `count` elements. send may be TW_IN_PLACE at root: the
 *  input is in recv. */
TW_CHECKED tw_status tw_reduce(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t op,
                               uint32_t root, const tw_collective_options *options, tw_request *request);
/** The same on all ranks, with the same bits. send may be TW_IN_PLACE: the input is in recv. */
TW_CHECKED tw_status tw_allreduce(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t op,
                                  const tw_collective_options *options, tw_request *request);
/** Of the reduction of size * count elements each rank gets its `count`. send may be TW_IN_PLACE: the whole input is in recv, and the
 *  result is at its begin. */
TW_CHECKED tw_status tw_reduce_scatter(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t op,
                                       const tw_collective_options *options, tw_request *request);
/** The same where rank i gets counts[i] elements: counts[size], not used after the call. */
TW_CHECKED tw_status tw_reduce_scatterv(tw_group *group, const void *send, void *recv, const size_t *counts, uint32_t type,
                                        uint32_t op, const tw_collective_options *options, tw_request *request);
/** Rank i's `count` elements come to element i * count of recv, on all ranks. send may be TW_IN_PLACE: they are there. */
TW_CHECKED tw_status tw_allgather(tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                  const tw_collective_options *options, tw_request *request);
/** Rank i's counts[i] elements come to element offsets[i] of recv (offsets NULL: one behind the other). Neither is used after the call;
 *  counts are the same on all ranks. */
TW_CHECKED tw_status tw_allgatherv(tw_group *group, const void *send, void *recv, const size_t *counts, const size_t *offsets,
                                   uint32_t type, const tw_collective_options *options, tw_request *request);
/** The same at root alone; recv is not used elsewhere. send may be TW_IN_PLACE at root. */
TW_CHECKED tw_status tw_gather(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t root,
                               const tw_collective_options *options, tw_request *request);
/** send_count of each rank is counts[rank] of root; counts and offsets are not used elsewhere. */
TW_CHECKED tw_status tw_gatherv(tw_group *group, const void *send, size_t send_count, void *recv, const size_t *counts,
                                const size_t *offsets, uint32_t type, uint32_t root, const tw_collective_options *options,
                                tw_request *request);
/** From element i * count of root's send, `count` elements come to rank i's recv; send is not used elsewhere. recv may be TW_IN_PLACE
 *  at root: its part stays where it is. */
TW_CHECKED tw_status tw_scatter(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t root,
                                const tw_collective_options *options, tw_request *request);
TW_CHECKED tw_status tw_scatterv(tw_group *group, const void *send, const size_t *counts, const size_t *offsets, void *recv,
                                 size_t recv_count, uint32_t type, uint32_t root, const tw_collective_options *options,
                                 tw_request *request);
/** From element j * count of rank i's send, `count` elements come to element i * count of rank j's recv. send may be TW_IN_PLACE: they
 *  are taken from recv. */
TW_CHECKED tw_status tw_alltoall(tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                 const tw_collective_options *options, tw_request *request);
/** send_counts[j] elements from send_offsets[j] on go to rank j, whose recv_counts[i] is the same number. Offsets NULL: one behind the
 *  other. None of the four is used after the call. */
TW_CHECKED tw_status tw_alltoallv(tw_group *group, const void *send, const size_t *send_counts, const size_t *send_offsets,
                                  void *recv, const size_t *recv_counts, const size_t *recv_offsets, uint32_t type,
                                  const tw_collective_options *options, tw_request *request);
/** recv is the reduction of the ranks up to this one (scan), or before it (exclusive_scan: rank 0's recv stays as it is). send may be
 *  TW_IN_PLACE: the input is in recv. No TW_REDUCE_AVERAGE. */
TW_CHECKED tw_status tw_scan(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t op,
                             const tw_collective_options *options, tw_request *request);
TW_CHECKED tw_status tw_exclusive_scan(tw_group *group, const void *send, void *recv, size_t count, uint32_t type, uint32_t op,
                                       const tw_collective_options *options, tw_request *request);

#ifdef __cplusplus
}
#endif

#endif
