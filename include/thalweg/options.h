/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: options of operations of every kind, and what receives return. Part of thalweg.h, whose conventions hold.
 */
#ifndef THALWEG_OPTIONS_H
#define THALWEG_OPTIONS_H

#include <thalweg/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TW_OP_SYNC = 1u,       /* send: complete when matched */
  TW_OP_NO_WAIT = 2u,    /* TW_AGAIN instead of queueing past the flow-control budget */
  TW_OP_REMOTE = 4u,     /* put, atomic, signal post: complete when visible at the target */
  TW_OP_AFTER_ALL = 8u,  /* put with signal, signal post: the signal covers all earlier puts of the endpoint */
  TW_OP_WAIT_ALL = 16u,  /* byte stream receive: complete only when the buffer is full */
  TW_OP_EAGER = 32u,     /* active message: never rendezvous */
  TW_OP_RENDEZVOUS = 64u /* active message: always rendezvous */
};
enum { TW_SIGNAL_SET = 0, TW_SIGNAL_ADD = 1 };

#define TW_NOTIFICATION_MAX 64
enum {
  TW_NOTIFY_NONE = 0,
  TW_NOTIFY_QUEUE = 1,  /* taken at the peer by tw_worker_next_notification */
  TW_NOTIFY_HANDLER = 2 /* an active message at the peer: the notification is its header, it has no payload */
};

typedef struct tw_recv_info {
  tw_endpoint *endpoint; /* the sender's endpoint on this side; NULL: it has been closed since */
  uint64_t tag;
  uint64_t immediate;
  size_t length; /* true length, also when truncated */
} tw_recv_info;

typedef void (*tw_callback)(void *arg, tw_request request, tw_status status, const tw_recv_info *info);

/** Options of one operation: of a call, of a plan's step, of an operation on a queue. Each option lists its calls; a call
 *  fails on any other with TW_ERR_INVALID and a text that names both, and never ignores it. */
typedef struct tw_op_options {
  size_t size;
  uint32_t flags;     /* TW_OP_* */
  uint32_t signal_op; /* TW_SIGNAL_* */
  /* Of the local buffer (of `from` of tw_plan_copy); NULL: contiguous. length 0 or the layout's bytes (callbacks: packed size) */
  const tw_layout *layout;
  const tw_layout *remote_layout; /* put, get: of the remote side, relative to the remote offset; tw_plan_copy: of `to` */
  uint64_t immediate;             /* send: travels with the message. put, signal post: of the notification */
  tw_remote_signal *signal;       /* put: touched when the data is there */
  uint64_t signal_value;
  tw_endpoint *source;  /* receive, probe: only from this endpoint */
  tw_callback callback; /* from progress, none after TW_OK; may post, may not progress. The request is released afterwards */
  void *arg;            /* of the callback, completion queue or record */
  /* Stream or event of a device (CUstream, CUevent) whose earlier work produced the buffer, or last read it. */
  const void *after;
  uint32_t after_kind; /* TW_AFTER_*: what `after` is. The bytes are not touched before that work is done; never blocks */
  uint32_t reserved;   /* 0 */
  /* put, signal post: the peer's worker is notified of `immediate` when the data is there (of a signal: when it is touched), as
     TW_NOTIFY_* select. A signal of the same operation travels with the notification. It counts as an eager message of the
     endpoint, so a peer that takes none makes later one-sided operations wait. A failed operation notifies no one.
     Notifications arrive in the order of their data, which devices and gets by index may change. */
  uint32_t notify;
  uint32_t handler; /* TW_NOTIFY_HANDLER: id of tw_am_register; the header of that message is `immediate`, 8 bytes */
  /* Where completion is reported, beside a request or instead: at most one, and no callback with it. See completions.h. */
  tw_completion_queue *queue; /* of the same worker */
  tw_counter *counter;        /* of the same worker */
  tw_completion *record;      /* in the caller's memory */
  tw_signal *done;            /* of the same worker */
  uint64_t done_value;        /* what `done` is set to, or what is added to it, as it was made */
  /* Steps of plans only (plans.h). */
  uint64_t increment; /* of signal_value, or of the value of signal and wait steps, with every trigger after the first */
  const uint32_t *after_steps; /* steps of this plan that end before this one begins; copied during the call */
  size_t after_count;
} tw_op_options;
/* clang-format off */
#define TW_OP_OPTIONS_INIT \
  {sizeof(tw_op_options), 0, 0, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, \
   0, NULL, 0}
/* clang-format on */
enum {
  TW_AFTER_NONE = 0,
  TW_AFTER_STREAM = 1, /* everything enqueued on the stream so far; a NULL stream is the default stream */
  TW_AFTER_EVENT = 2
};

#ifdef __cplusplus
}
#endif
#endif
