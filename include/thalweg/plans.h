/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.h: operations prepared once and triggered from anywhere: by the host, by a queue (a CUDA stream, a host queue), by a
 * captured graph. Part of thalweg.h, whose conventions hold.
 */
#ifndef THALWEG_PLANS_H
#define THALWEG_PLANS_H
#include <thalweg/options.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_queue tw_queue;
typedef struct tw_graph tw_graph;
typedef struct tw_plan tw_plan;

/* ---------------------------------------------------------------- queues */
/** How a device's queue waits for the peers of the plans that are triggered on it: in the plan's kernel, whose blocks, up to 64,
 *  hold multiprocessors meanwhile, but resume at once (2 to 3 us); or in a kernel of one block ahead of it, which costs one more
 *  launch for each run. Either way a wait is bounded (tw_plan_options.timeout_ns) and tw_queue_check reports its failure.
 *
 *  Ahead of the plan's kernel the queue waits for the peers' sends and receives that all of the run needs: tw_plan_explain
 *  lists the steps. The plan's kernel waits for everything else: what only a part of the run needs, signals of the caller's,
 *  what the host carries. On a host queue the option has no effect. */
#define TW_WAITS_AUTO \
  0u /* ahead where a run's kernel has more thread blocks than a quarter of the multiprocessors, else in the kernel */
#define TW_WAITS_KERNEL 1u
#define TW_WAITS_AHEAD 2u /* wherever it can */
typedef struct tw_queue_options {
  size_t size;
  uint32_t waits; /* TW_WAITS_* */
} tw_queue_options;
#define TW_QUEUE_OPTIONS_INIT {sizeof(tw_queue_options), TW_WAITS_AUTO}
/** A queue of the library's own at a place (places.h): "host": a thread that runs what is enqueued, in order; "cuda:1",
 *  "emulated:0": a stream of that device. options NULL: the defaults. End with tw_queue_destroy. */
TW_CHECKED tw_status tw_queue_create(tw_context *context, const char *place, const tw_queue_options *options, tw_queue **queue);
/** The caller's stream (CUstream, cudaStream_t) of the device at `place`; it must outlive *queue. A default stream fails:
 *  the library never enqueues work there. */
TW_CHECKED tw_status tw_queue_wrap(tw_context *context, void *stream, const char *place, const tw_queue_options *options,
                                   tw_queue **queue);
/** Waits for work of tw_send_on and its like, and for runs that wait ahead of their kernels; for nothing else. Runs of
 *  plans on a device continue; those that a host queue has not ended are aborted, and their plans fail (TW_ERR_CLOSED).
 *  A capture that was begun and not ended is dropped. Not from a function that the queue runs (tw_queue_call). Before the
 *  workers whose endpoints, remote memory or signals were named in work of tw_send_on and its like. */
TW_API void tw_queue_destroy(tw_queue *queue);
TW_API void *tw_queue_native(tw_queue *queue); /* CUstream; what tw_queue_wrap takes */
/** Runs fn(arg) on a host queue's thread, in the queue's order. TW_ERR_UNSUPPORTED on a device's. fn must not wait for the
 *  queue: tw_queue_synchronize there is TW_ERR_INVALID. */
TW_CHECKED tw_status tw_queue_call(tw_queue *queue, void (*fn)(void *arg), void *arg);
/** Waits for what is enqueued, then tw_queue_check. */
TW_CHECKED tw_status tw_queue_synchronize(tw_queue *queue);
/** The first failure of operations that ran on the queue since the last check, with a text: operation, peer, generation, what
 *  was missing. Does not block. */
TW_CHECKED tw_status tw_queue_check(tw_queue *queue);
/** *in_use: 1 while tw_send_on and its like, or collectives on this queue, use a buffer that begins in [address, address + length): a
 *  run of theirs has not ended, or a graph has one; or one has failed, so that a message of then may still come, until the operation is
 *  called again. 0: that memory may be freed or used otherwise; the plan that the queue keeps for it does nothing until the next call.
 *  It knows nothing of the caller's own plans (tw_plan_test). Does not block: 1 while another thread prepares an operation of this
 *  queue. Any thread. */
TW_CHECKED tw_status tw_queue_uses(tw_queue *queue, const void *address, size_t length, int *in_use);
/** tw_queue_check of the queues that wrap this stream. */
TW_CHECKED tw_status tw_stream_check(const void *stream);

/** Captures what is enqueued from now on, instead of running it; for CUDA streams the same as cudaStreamBeginCapture
 *  (thread-local mode), which may be used as well. */
TW_CHECKED tw_status tw_queue_begin_capture(tw_queue *queue);
TW_CHECKED tw_status tw_queue_end_capture(tw_queue *queue, tw_graph **graph);
/** Enqueues what was captured. TW_ERR_STALE: a plan of it was destroyed or prepared again since; capture it anew. TW_ERR_BUSY: as
 *  tw_plan_trigger, or the queue is being captured. */
TW_CHECKED tw_status tw_graph_launch(tw_graph *graph, tw_queue *queue);
TW_API void tw_graph_destroy(tw_graph *graph);

/* ---------------------------------------------------------------- plans */
typedef struct tw_plan_options {
  size_t size;
  const char *place;   /* whose queue runs it; NULL: of the first buffer in device memory, else "host" */
  uint64_t timeout_ns; /* of every wait inside a run; 0: 30 s */
  uint32_t blocks;     /* thread blocks of a device; 0: chosen */
  /* A copy, put, get or reduction that reads what an earlier one of its `after_steps` writes begins with the first so many bytes that
   * are there. Rounded up to a multiple of 64, and to a 64th of all (the host: 1024th). 0: chosen; UINT64_MAX: after all of them. */
  uint64_t chunk_bytes;
} tw_plan_options;
#define TW_PLAN_OPTIONS_INIT {sizeof(tw_plan_options), NULL, 0, 0, 0}
TW_CHECKED tw_status tw_plan_create(tw_context *context, const tw_plan_options *options, tw_plan **plan);
/** TW_ERR_BUSY, and the plan still exists: it runs, runs of it are enqueued, or a peer did not release a buffer that a
 *  receive named within 5 s. */
TW_CHECKED tw_status tw_plan_destroy(tw_plan *plan);

/* Each adds one step; *step (may be NULL) is its number: 0, 1, ... Only `after_steps` orders steps. Of
 * tw_op_options a step takes after_steps; send and recv: layout; put: layout, remote_layout, signal with increment; get and copy:
 * layout, remote_layout; signal and wait: increment. */
/** `channel` is a number for each endpoint and direction, and no tag: a send on channel 7 never matches tw_recv with tag 7,
 *  nor channel 7 the other way. The n-th send ever on a channel matches the n-th receive of the peer from it,
 *  whether plans, queues (tw_send_on) or kernels (channels.h) make them. */
TW_CHECKED tw_status tw_plan_send(tw_plan *plan, tw_endpoint *endpoint, const void *buffer, size_t length, uint64_t channel,
                                  const tw_op_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_recv(tw_plan *plan, tw_endpoint *endpoint, void *buffer, size_t length, uint64_t channel,
                                  const tw_op_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_put(tw_plan *plan, tw_endpoint *endpoint, const void *buffer, size_t length,
                                 tw_remote_memory *remote, uint64_t offset, const tw_op_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_get(tw_plan *plan, tw_endpoint *endpoint, void *buffer, size_t length, tw_remote_memory *remote,
                                 uint64_t offset, const tw_op_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_signal(tw_plan *plan, tw_remote_signal *signal, uint64_t value, const tw_op_options *options,
                                    uint32_t *step);
TW_CHECKED tw_status tw_plan_wait(tw_plan *plan, tw_signal *signal, uint64_t value, uint32_t compare,
                                  const tw_op_options *options, uint32_t *step);
/** operand, compare: as of tw_atomic. result: a word of `size` bytes, aligned, in memory that the plan's executor reaches; where
 *  the host carries the step, host or pinned memory, else tw_plan_prepare returns TW_ERR_UNSUPPORTED. NULL: the old value is
 *  not fetched. */
TW_CHECKED tw_status tw_plan_atomic(tw_plan *plan, tw_endpoint *endpoint, uint32_t op, tw_remote_memory *remote,
                                    uint64_t offset, size_t size, uint64_t operand, uint64_t compare, void *result,
                                    const tw_op_options *options, uint32_t *step);
TW_CHECKED tw_status tw_plan_copy(tw_plan *plan, void *to, const void *from, size_t length, const tw_op_options *options,
                                  uint32_t *step);

/** Types of elements. Those of 16 bits are accumulated in 32 bits and rounded once, to nearest, ties to even. So are those of 8 bits,
 *  in the formats of the Open Compute Project (OFP8): what is too large becomes the largest finite number, an infinity stays one
 *  (E4M3 has none: NaN). A BOOL is a byte, false where it is 0; AND, OR and XOR are the logical ones, and give 0 or 1. FLOAT8 and BOOL:
 *  of collectives (collectives.h) only; reductions of them are in host memory, or by kernels on queues. */
enum {
  TW_TYPE_FLOAT16,
  TW_TYPE_BFLOAT16,
  TW_TYPE_FLOAT32,
  TW_TYPE_FLOAT64,
  TW_TYPE_INT8,
  TW_TYPE_INT16,
  TW_TYPE_INT32,
  TW_TYPE_INT64,
  TW_TYPE_UINT8,
  TW_TYPE_FLOAT8_E4M3,
  TW_TYPE_FLOAT8_E5M2,
  TW_TYPE_BOOL
};
/** Integers wrap. MIN and MAX pass a NaN on. AND, OR and XOR: of integers and BOOL, for which there are no others. The last three are
 *  collectives' (collectives.h): the sum, then multiplied by 1 / size (integers: divided, towards zero) or by a factor; a function
 *  of the caller's. */
enum {
  TW_REDUCE_SUM,
  TW_REDUCE_PRODUCT,
  TW_REDUCE_MIN,
  TW_REDUCE_MAX,
  TW_REDUCE_AND,
  TW_REDUCE_OR,
  TW_REDUCE_XOR,
  TW_REDUCE_AVERAGE,
  TW_REDUCE_SCALED_SUM,
  TW_REDUCE_USER
};
/** An operand of a reduction: memory of this process (remote NULL), or a peer's from `offset` on (address NULL). */
typedef struct tw_source {
  const void *address;
  tw_remote_memory *remote;
  uint64_t offset;
} tw_source;
/** to[i] = sources[0][i] op sources[1][i] ... for `count` elements, in one pass and in the order of the sources: the same operands give
 *  the same bits on the host and on every device, however the plan is triggered; a NaN of 32 or 64 bits is any NaN.
 *  sources[source_count] (1 to 1024) is not used after the call; `to` may be one of them, and overlaps none otherwise
 *  (TW_ERR_INVALID). All is contiguous, aligned to its elements (TW_ERR_MISALIGNED), and memory that the plan's executor reaches
 *  itself: else tw_plan_prepare returns TW_ERR_UNREACHABLE or TW_ERR_UNSUPPORTED, with the source. Peers are not notified of
 *  the reads: order them by signals or messages. */
TW_CHECKED tw_status tw_plan_reduce(tw_plan *plan, void *to, const tw_source *sources, size_t source_count, size_t count,
                                    uint32_t type, uint32_t op, const tw_op_options *options, uint32_t *step);

/** Resolves routes, exchanges buffers with the peers of every channel (which must prepare their ends too), builds descriptors.
 *  Progresses the endpoints' workers meanwhile; TW_ERR_TIMED_OUT names the channel that is missing.
 *  Called again, on both sides, it re-arms a plan that failed: its channels begin anew, also for other plans that use them. */
TW_CHECKED tw_status tw_plan_prepare(tw_plan *plan, uint64_t timeout_ns);
/** Starts a run. queue NULL: by the host; tw_plan_test or tw_plan_finish progress and end it (tw_plan_run does both). With a
 *  queue: after its earlier work, and before its later work. TW_ERR_BUSY: the last run by the host is not over, or runs on
 *  another queue, or of another plan by the host, use one of its channels. */
TW_CHECKED tw_status tw_plan_trigger(tw_plan *plan, tw_queue *queue);
/** The same for a stream of the plan's device that is not wrapped. It may end before the plan. */
TW_CHECKED tw_status tw_plan_trigger_stream(tw_plan *plan, void *stream);
/** Of runs by the host: TW_OK, TW_IN_PROGRESS, or how it failed. */
TW_CHECKED tw_status tw_plan_test(tw_plan *plan);
TW_CHECKED tw_status tw_plan_finish(tw_plan *plan, uint64_t timeout_ns);
/** One run by the host, from start to end: tw_plan_trigger with queue NULL, then tw_plan_finish. */
TW_CHECKED tw_status tw_plan_run(tw_plan *plan, uint64_t timeout_ns);
/** Changes the local address (NULL: leave it) or the value (of signal, wait, atomic; NULL) of a step that is prepared and does
 *  not run. The new buffer has the same length and layout; increments of a value continue. Graphs that were captured before
 *  keep the old ones, and the plan keeps what they need while they exist. TW_ERR_BUSY: it runs, or runs of it are
 *  enqueued. The error of a run, where one has failed: prepare the plan again. TW_IN_PROGRESS: it has changed, but a peer has not
 *  released the receive's old buffer within 5 s: do not touch that one until another call, with NULL for both, returns TW_OK. */
TW_CHECKED tw_status tw_plan_update(tw_plan *plan, uint32_t step, const void *address, const uint64_t *value);
/** Every step, its way (mapped, by proxy) and why. Text; *size as in tw_context_info. */
TW_CHECKED tw_status tw_plan_explain(tw_plan *plan, char *buffer, size_t *size);

/* ---------------------------------------------------------------- one operation on a queue: a plan of one step, kept for reuse
 * The first call with a channel, memory or buffer prepares it (milliseconds; refused while the queue is captured); later ones
 * cost about one launch. Memory that was allocated where other memory was released is another buffer. A queue keeps 1,024 plans, 192
 * receives of a channel among them: a new one takes the place of the one that was not used for the longest time and has no run under
 * way (TW_ERR_LIMIT: none has ended within 30 s, or graphs run them all). A peer that is more than 64 of a channel's messages ahead
 * of a rank that uses another buffer for each of them is waited for in vain (TW_ERR_TIMED_OUT). Buffers are used until the queue has
 * passed the operation (tw_queue_uses, tw_queue_synchronize), and as long as a graph has it. Options are those of the plan's step,
 * without after_steps and increment. */
TW_CHECKED tw_status tw_send_on(tw_queue *queue, tw_endpoint *endpoint, const void *buffer, size_t length, uint64_t channel,
                                const tw_op_options *options);
TW_CHECKED tw_status tw_recv_on(tw_queue *queue, tw_endpoint *endpoint, void *buffer, size_t length, uint64_t channel,
                                const tw_op_options *options);
TW_CHECKED tw_status tw_put_on(tw_queue *queue, tw_endpoint *endpoint, const void *buffer, size_t length,
                               tw_remote_memory *remote, uint64_t offset, const tw_op_options *options);
TW_CHECKED tw_status tw_get_on(tw_queue *queue, tw_endpoint *endpoint, void *buffer, size_t length, tw_remote_memory *remote,
                               uint64_t offset, const tw_op_options *options);
TW_CHECKED tw_status tw_signal_on(tw_queue *queue, tw_remote_signal *signal, uint64_t value, const tw_op_options *options);
TW_CHECKED tw_status tw_wait_on(tw_queue *queue, tw_signal *signal, uint64_t value, uint32_t compare,
                                const tw_op_options *options);
TW_CHECKED tw_status tw_copy_on(tw_queue *queue, void *to, const void *from, size_t length, const tw_op_options *options);
TW_CHECKED tw_status tw_reduce_on(tw_queue *queue, void *to, const tw_source *sources, size_t source_count, size_t count,
                                  uint32_t type, uint32_t op, const tw_op_options *options);

#ifdef __cplusplus
}
#endif
#endif
