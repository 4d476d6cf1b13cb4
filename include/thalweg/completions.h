/* SPDX-License-Identifier: Apache-2.0
 *
 * thalweg/completions.h: where operations report completion, beside requests and callbacks: a completion queue, a counter, a
 * record in the caller's memory, a signal's word. Part of thalweg.h, whose conventions hold.
 *
 * An operation names at most one of them in its options (tw_op_options, tw_blocks_options); two are TW_ERR_INVALID. It gets
 * the completion of every operation that the call accepts, also of one that is complete when the call returns, and of none
 * that fails at the call (an error or TW_AGAIN). It also gets `arg` of the options.
 *
 *   queue       one entry an operation. The call returns TW_IN_PROGRESS, never TW_OK. Its request, where asked for, can be tested and
 *               canceled, and is released when the entry is taken.
 *   counter     one more completed, or one more failed.
 *   record      filled in, its status last. It must not move or be freed until then.
 *   done        set to done_value, or done_value is added to it, if the operation succeeds; a failure leaves it unchanged:
 *               ask for a request, too. The word may lie in memory of a device, where kernels and plans wait for it.
 *
 * With counter, record and done no request is needed; if one is asked for, the caller releases it as usual.
 */
#ifndef THALWEG_COMPLETIONS_H
#define THALWEG_COMPLETIONS_H

#include <thalweg/options.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What ended. */
enum {
  TW_COMPLETION_SEND = 0,
  TW_COMPLETION_RECV = 1,
  TW_COMPLETION_AM = 2,
  TW_COMPLETION_AM_RECV = 3,
  TW_COMPLETION_BYTES_SEND = 4,
  TW_COMPLETION_BYTES_RECV = 5,
  TW_COMPLETION_PUT = 6,
  TW_COMPLETION_GET = 7,
  TW_COMPLETION_ATOMIC = 8,
  TW_COMPLETION_SIGNAL = 9,
  TW_COMPLETION_PUT_BLOCKS = 11,
  TW_COMPLETION_GET_BLOCKS = 12,
  TW_COMPLETION_COLLECTIVE = 16,
  TW_COMPLETION_NOTIFICATION = 100, /* a peer's: TW_NOTIFY_QUEUE */
  TW_COMPLETION_ENDED = 101         /* tw_request_tell with TW_REQUEST_NONE: what it was is not known */
};

/** How an operation ended. As a record in the caller's memory: read `status` by tw_completion_test, the rest after it. */
struct tw_completion {
  tw_status
      status;    /* a record: TW_IN_PROGRESS until it ends, or what the call returned that refused the operation; arguments that
                          make no sense are refused before a record is touched */
  uint32_t kind; /* TW_COMPLETION_* */
  void *arg;     /* of the options */
  tw_recv_info
      info; /* receives and notifications: as in tw_recv_info; others: the bytes, and the endpoint where it is still known.
                          endpoint NULL: closed meanwhile */
  const char *message; /* text of a failure; NULL: it ended well. Of a queue: valid until its next poll */
  const void *data;    /* a notification's info.length bytes, valid until the queue's next poll; else NULL */
};
/** The record's status, with acquire order: if not TW_IN_PROGRESS, the data and the other fields are visible. Any thread. */
TW_CHECKED tw_status tw_completion_test(const tw_completion *record);

/** As if the operation of the request had been posted with this queue, counter, record or signal, and this arg: it reports
 *  its completion there, at once if it has ended. `options` sets nothing else. TW_REQUEST_NONE, which complete calls give,
 *  reports success. TW_ERR_INVALID: none or two are named, or the request already reports elsewhere. Worker's threads. */
TW_CHECKED tw_status tw_request_tell(tw_request request, const tw_op_options *options);

typedef struct tw_completion_queue_options {
  size_t size;
  uint32_t
      notifications; /* 1: notifications of peers to the worker are entries of this queue, not for tw_worker_next_notification; of one
                             queue a worker */
  uint32_t reserved; /* 0 */
} tw_completion_queue_options;
#define TW_COMPLETION_QUEUE_OPTIONS_INIT {sizeof(tw_completion_queue_options), 0, 0}

/** Makes a queue for operations of this worker's endpoints and its receives. It takes as many entries as the worker has requests: it
 *  never overruns. End with tw_completion_queue_destroy. */
TW_CHECKED tw_status tw_completion_queue_create(tw_worker *worker, const tw_completion_queue_options *options,
                                                tw_completion_queue **queue);
/** TW_ERR_BUSY: operations in flight will report here; wait for them, cancel them or close their endpoints. Entries that
 *  were not polled are dropped. */
TW_CHECKED tw_status tw_completion_queue_destroy(tw_completion_queue *queue);
/** Takes up to `count` entries, in the order in which the operations ended; if there is none it progresses the worker once
 *  and polls again. *taken: how many. TW_OK, also with none; TW_ERR_CLOSED: the worker was destroyed. One thread at a time,
 *  and not in callbacks or handlers. */
TW_CHECKED tw_status tw_completion_queue_poll(tw_completion_queue *queue, tw_completion *entries, size_t count, size_t *taken);
/** The same, progressing until there is one, at most timeout_ns: TW_ERR_TIMED_OUT. */
TW_CHECKED tw_status tw_completion_queue_wait(tw_completion_queue *queue, tw_completion *entries, size_t count,
                                              uint64_t timeout_ns, size_t *taken);

/** Makes a counter of operations of this worker. End with tw_counter_destroy (TW_ERR_BUSY: operations are under way that count here). */
TW_CHECKED tw_status tw_counter_create(tw_worker *worker, tw_counter **counter);
TW_CHECKED tw_status tw_counter_destroy(tw_counter *counter);
/** How many operations succeeded and failed since the counter was made; either pointer may be NULL. Acquire order: the data
 *  of counted operations is visible. Any thread. */
TW_CHECKED tw_status tw_counter_read(const tw_counter *counter, uint64_t *completed, uint64_t *failed);
/** Progresses until completed + failed >= total: TW_OK, also where some failed; TW_ERR_TIMED_OUT. */
TW_CHECKED tw_status tw_counter_wait(tw_counter *counter, uint64_t total, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
