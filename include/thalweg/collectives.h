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

/** inout[i] = inout[i] op from[i] for `count` elements. `from` is of higher ranks than inout. Called from progress. Returns TW_OK, or a
 *  tw_status by which the collective fails on all ranks, with the rank's number. */
typedef tw_status (*tw_reduce_function)(const void *from, void *inout, size_t count, void *arg);

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
  const uint32_t *after_steps; /* of a plan: as in tw_op_options */
  size_t after_count;
} tw_collective_options;
#define TW_COLLECTIVE_OPTIONS_INIT \
  {sizeof(tw_collective_options), 0, 1, NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0}

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

/** Which algorithm a collective takes for `count` elements, as the function counts them: all of its kind with the times that are
 *  predicted for them, or why they cannot do it, the one that is taken, and what this rank does then. collective: "barrier",
 *  "broadcast", "reduce", "allreduce", "reduce_scatter", "allgather", "gather", "scatter", "alltoall", "scan" or "exclusive_scan";
 *  of options the flags, commutative and algorithm are looked at. *size: capacity in, length with the end out; buffer NULL asks for
 *  it. Local. TW_ERR_INVALID, also of a buffer that is too short. */
TW_CHECKED tw_status tw_group_explain(tw_group *group, const char *collective, size_t count, uint32_t type,
                                      const tw_collective_options *options, char *buffer, size_t *size);
/** The same of a call on that queue (tw_allreduce_on and its like, below), also if a graph captures it; queue NULL: of one
 *  in a plan. Whether calls on queues take kernels is known, and said, after the group's first collective on a queue. Local. */
TW_CHECKED tw_status tw_group_explain_on(tw_queue *queue, tw_group *group, const char *collective, size_t count, uint32_t type,
                                         const tw_collective_options *options, char *buffer, size_t *size);

/* ---------------------------------------------------------------- in plans
 * The same as parts of a plan (plans.h): the host, a queue or a graph triggers them. Buffers are read and written at every run, and
 * intermediate results are the plan's, in memory near what runs it. Name the plan's place where its first collective is a barrier,
 * or has no buffer in device memory.
 *
 * All ranks of a group add its collectives to plans in the same order, with the same arguments as of the functions above, and run
 * them the same number of times. That order numbers the channels, which are the group's own: they never meet the user's, nor those of
 * another group, or of another collective of this one. How a plan is triggered may differ between ranks. A plan may have several
 * collectives, of several groups, beside other steps; only after_steps orders them. *step (may be NULL) is the number of a step
 * that ends when this rank's part is over, whatever steps it took; tw_plan_update does not change them.
 *
 * tw_plan_reduce_to_root is tw_reduce: tw_plan_reduce is the reduction of one process (plans.h).
 *
 * By one kernel on each device, as on a queue (below), where all ranks name the algorithm "kernel" (one of them, chosen; steps where
 * the ranks' plans are not at devices that reach each other), "ll", "ll128", "simple", "two_phases", "symmetric" or
 * "symmetric_simple" (TW_ERR_UNSUPPORTED there). The first such call of a group progresses its worker until all ranks have called
 * it. These run in the order in which they were added, and with the group's collectives on queues in that of the triggers and calls,
 * which is the same on all ranks. In such a plan collectives keep the order in which they were added, and sends, receives and waits
 * for signals come before or after each of those kernels, by after_steps (tw_plan_prepare: TW_ERR_UNSUPPORTED).
 *
 * Options: flags, commutative, algorithm, after_steps, scale; the plan has the time limit, and tells how a run ended.
 * TW_ERR_UNSUPPORTED: TW_REDUCE_USER; and TW_REDUCE_AVERAGE, _SCALED_SUM, and reductions of FLOAT8 and BOOL, but by kernels.
 * Reductions are done by what runs the plan, in the order of the call's algorithm: the same bits on the host and on every device. A
 * run that fails fails the plan, not the group: it names the rank that it waited for, and the plans at the other ranks fail in turn.
 *
 * What may be enqueued on several queues at once without a deadlock: a run waits in its kernel for the other ranks' runs, so all
 * runs that wait for each other need room on their devices at the same time, beside the caller's kernels. A run is at most 64
 * thread blocks. So:
 *   - one queue: any plans, if all ranks enqueue those that they share in the same order;
 *   - several queues of a device: plans that no rank orders otherwise by other means (events, one queue for two of them), as long as
 *     their blocks fit on the device together (tw_plan_options.blocks limits them; waits ahead take one block each);
 *   - never: two plans of the same ranks on one queue here and in the opposite order there.
 * A wait that breaks these rules is ended by the plan's time limit, with TW_ERR_TIMED_OUT and the missing rank. Runs of one plan
 * never overlap; other queues may run other plans of the same group at the same time. */
TW_CHECKED tw_status tw_plan_barrier(tw_plan *plan, tw_group *group, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_broadcast(tw_plan *plan, tw_group *group, void *buffer, size_t count, uint32_t type, uint32_t root,
                                       const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_reduce_to_root(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count,
                                            uint32_t type, uint32_t op, uint32_t root, const tw_collective_options *options,
                                            uint32_t *step);
TW_CHECKED tw_status tw_plan_allreduce(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count,
                                       uint32_t type, uint32_t op, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_reduce_scatter(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count,
                                            uint32_t type, uint32_t op, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_reduce_scatterv(tw_plan *plan, tw_group *group, const void *send, void *recv, const size_t *counts,
                                             uint32_t type, uint32_t op, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_allgather(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count,
                                       uint32_t type, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_allgatherv(tw_plan *plan, tw_group *group, const void *send, void *recv, const size_t *counts,
                                        const size_t *offsets, uint32_t type, const tw_collective_options *options,
                                        uint32_t *step);
TW_CHECKED tw_status tw_plan_gather(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                    uint32_t root, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_gatherv(tw_plan *plan, tw_group *group, const void *send, size_t send_count, void *recv,
                                     const size_t *counts, const size_t *offsets, uint32_t type, uint32_t root,
                                     const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_scatter(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                     uint32_t root, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_scatterv(tw_plan *plan, tw_group *group, const void *send, const size_t *counts,
                                      const size_t *offsets, void *recv, size_t recv_count, uint32_t type, uint32_t root,
                                      const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_alltoall(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                      const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_alltoallv(tw_plan *plan, tw_group *group, const void *send, const size_t *send_counts,
                                       const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                       const size_t *recv_offsets, uint32_t type, const tw_collective_options *options,
                                       uint32_t *step);
TW_CHECKED tw_status tw_plan_scan(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                  uint32_t op, const tw_collective_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_exclusive_scan(tw_plan *plan, tw_group *group, const void *send, void *recv, size_t count,
                                            uint32_t type, uint32_t op, const tw_collective_options *options, uint32_t *step);

/* ---------------------------------------------------------------- on a queue
 * One collective, after the queue's earlier work and before its later work: a plan that the queue keeps for these arguments. The
 * first call with a buffer prepares it (milliseconds; refused while the queue is captured), and progresses the group's worker
 * meanwhile; later ones cost about one launch. The group's first one finds out for all ranks how they go: inside progress (callbacks,
 * handlers) it is TW_ERR_BUSY, as is one that its waits call, and was not made. A group's are called in the same order on all ranks,
 * on one queue, or on queues that are ordered: those that are alike share their channels (TW_ERR_BUSY); by one thread at a time
 * (TW_ERR_THREAD: another one is in such a call, and nothing was enqueued). Options: as in plans, without after_steps.
 *
 * Where the queues of the group's first such call are of devices that all reach each other's memory, a collective is one kernel on
 * each device: algorithm "ll" (low latency; of equal blocks), "ll128" (the same in lines of 128 bytes; of 8 ranks at most, whose devices
 * NVLink joins; not of averages, scaled sums, FLOAT8 and BOOL), "simple" or, of broadcasts, "two_phases", chosen by what the group
 * measures then; or, where the buffers lie in windows that tw_window_register_on was called for, "symmetric" and, of allreduces,
 * "symmetric_simple" (operands as "simple" has them, results straight into the windows: the longest ones).
 * From then on the group's queues are of these devices, and buffers in memory that the device reaches: its own, a
 * reachable one's, pinned, or the library's (TW_ERR_UNSUPPORTED; any memory by an algorithm of several steps, named on all ranks).
 * They take 32 to 512 threads of up to 128 blocks, which wait for each other on all ranks: leave them room. Those of several groups
 * may be on several queues at once, in any order, as long as all of them find room; those of one group come one after the other,
 * on whichever queues (TW_ERR_BUSY where graphs run two at a time). No run of a graph may begin after the group has ended. */
TW_CHECKED tw_status tw_barrier_on(tw_queue *queue, tw_group *group, const tw_collective_options *options);
/** Collective: from now on, until the window is destroyed, kernels of its group's collectives on queues use each other's buffers
 *  themselves where these lie in it: of a broadcast, an allgather and an alltoall the receiving buffer, of a reduction the one with
 *  the operands, of an allreduce both (algorithms "symmetric" and "symmetric_simple", chosen by cost). The window is
 *  tw_group_window's. A buffer that lies in a registered window on one rank lies in the same window on all ranks, at any offset; an alltoall and a reduce-scatter are in place on
 *  all ranks or on none. A rank's buffer may then be read and written from the moment that its queue reaches the call. Before the
 *  window is destroyed, queues and plans that used it are idle. TW_ERR_INVALID: not a group's window, or one that shares memory with
 *  it is registered; TW_ERR_UNSUPPORTED: the group's collectives are not by kernels, or a device does not reach a part. On all
 *  ranks alike. */
TW_CHECKED tw_status tw_window_register_on(tw_window *window, tw_queue *queue);
TW_CHECKED tw_status tw_broadcast_on(tw_queue *queue, tw_group *group, void *buffer, size_t count, uint32_t type, uint32_t root,
                                     const tw_collective_options *options);
TW_CHECKED tw_status tw_reduce_to_root_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count,
                                          uint32_t type, uint32_t op, uint32_t root, const tw_collective_options *options);
TW_CHECKED tw_status tw_allreduce_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count,
                                     uint32_t type, uint32_t op, const tw_collective_options *options);
TW_CHECKED tw_status tw_reduce_scatter_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count,
                                          uint32_t type, uint32_t op, const tw_collective_options *options);
TW_CHECKED tw_status tw_reduce_scatterv_on(tw_queue *queue, tw_group *group, const void *send, void *recv, const size_t *counts,
                                           uint32_t type, uint32_t op, const tw_collective_options *options);
TW_CHECKED tw_status tw_allgather_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count,
                                     uint32_t type, const tw_collective_options *options);
TW_CHECKED tw_status tw_allgatherv_on(tw_queue *queue, tw_group *group, const void *send, void *recv, const size_t *counts,
                                      const size_t *offsets, uint32_t type, const tw_collective_options *options);
TW_CHECKED tw_status tw_gather_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                  uint32_t root, const tw_collective_options *options);
TW_CHECKED tw_status tw_gatherv_on(tw_queue *queue, tw_group *group, const void *send, size_t send_count, void *recv,
                                   const size_t *counts, const size_t *offsets, uint32_t type, uint32_t root,
                                   const tw_collective_options *options);
TW_CHECKED tw_status tw_scatter_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                   uint32_t root, const tw_collective_options *options);
TW_CHECKED tw_status tw_scatterv_on(tw_queue *queue, tw_group *group, const void *send, const size_t *counts,
                                    const size_t *offsets, void *recv, size_t recv_count, uint32_t type, uint32_t root,
                                    const tw_collective_options *options);
TW_CHECKED tw_status tw_alltoall_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                    const tw_collective_options *options);
TW_CHECKED tw_status tw_alltoallv_on(tw_queue *queue, tw_group *group, const void *send, const size_t *send_counts,
                                     const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                     const size_t *recv_offsets, uint32_t type, const tw_collective_options *options);
TW_CHECKED tw_status tw_scan_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count, uint32_t type,
                                uint32_t op, const tw_collective_options *options);
TW_CHECKED tw_status tw_exclusive_scan_on(tw_queue *queue, tw_group *group, const void *send, void *recv, size_t count,
                                          uint32_t type, uint32_t op, const tw_collective_options *options);

/** Rank to rank, as many rows as counts say that lie in memory which the queue's device reads: the dispatch and the combine of
 * a mixture of experts. Neither this call nor its kernel tells the host a count: the queue's earlier work may store them, and
 * a captured call takes those of each launch.
 *
 * Rows have row_bytes bytes, the same on all ranks; counts, offsets and capacities are rows. send_counts[i] rows go to rank i,
 * from row send_offsets[i] of `send`; NULL: one behind the other, in the order of ranks. recv_counts[i] is written: rows of
 * rank i, which lie from row recv_offsets[i] of `recv` on; NULL: one behind the other. What goes to the own rank is copied.
 * All arrays have the group's size and are aligned to 8 bytes; recv_counts is none of the others. To combine, call it with
 * `recv` and recv_counts in the place of `send` and send_counts.
 *
 * Ownership: buffers, counts and offsets are used until the queue has passed it; the arrays' addresses are kept as long as the
 * queue, their contents are read in each run. Rows of `recv` that nothing was sent to keep what they held. `send` and `recv`
 * do not overlap, and lie in memory that the device reaches (as above), as all arrays do.
 *
 * Threads, order and first call: as above; not captured before it was called once with the same arguments. Options: none but
 * the defaults. It takes 512 threads of up to 128 blocks.
 *
 * Errors: TW_ERR_UNSUPPORTED: the group's queues are not of devices that all reach each other: tw_alltoallv_on takes counts of
 * the host. Counts that end behind send_capacity or recv_capacity fail the run by TW_ERR_TRUNCATED (tw_queue_synchronize and
 * tw_queue_check name the rank and the rows), before anything is sent or stored there; on the other ranks this run or their
 * next one fails, which they are told, or notice by TW_ERR_TIMED_OUT after 30 s. The group's later collectives on queues fail. */
TW_CHECKED tw_status tw_alltoallv_counted_on(tw_queue *queue, tw_group *group, const void *send, const uint64_t *send_counts,
                                             const uint64_t *send_offsets, size_t send_capacity, void *recv,
                                             uint64_t *recv_counts, const uint64_t *recv_offsets, size_t recv_capacity,
                                             size_t row_bytes, const tw_collective_options *options);

#ifdef __cplusplus
}
#endif

#endif
