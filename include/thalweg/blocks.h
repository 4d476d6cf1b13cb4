/* SPDX-License-Identifier: Apache-2.0
 *
 * thalweg/blocks.h: the part of the C interface that moves many equal blocks, chosen by index, in one operation: key-value
 * caches, paged arrays. Included by thalweg.h, whose conventions hold here too.
 *
 * Both sides prepare their blocks once: ranges of memory cut into blocks of one length. A block is named by its number; the
 * ranges count on, in the order given. The owner exports its blocks as one key, the other side imports it.
 */
#ifndef THALWEG_BLOCKS_H
#define THALWEG_BLOCKS_H

#include <thalweg/options.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_blocks tw_blocks;
typedef struct tw_remote_blocks tw_remote_blocks;

/** count blocks, stride bytes from one begin to the next. */
typedef struct tw_block_range {
  tw_memory *memory; /* NULL: `address` is used, and the blocks cannot be exported */
  void *address;     /* where memory is NULL */
  uint64_t offset;   /* of the first block from the begin of memory, or from address */
  uint64_t stride;   /* at least the block's length; 0: that length */
  uint64_t count;
} tw_block_range;
#define TW_BLOCK_RANGES_MAX 4096

/** Prepares blocks of `length` bytes each, less than 2^32 of them. The memory must outlive them. Any thread. End with
 *  tw_blocks_destroy, also while operations on them are under way. */
TW_CHECKED tw_status tw_blocks_create(tw_context *context, const tw_block_range *ranges, size_t range_count, size_t length,
                                      tw_blocks **blocks);
TW_API void tw_blocks_destroy(tw_blocks *blocks);
TW_API uint64_t tw_blocks_count(const tw_blocks *blocks);
TW_API size_t tw_blocks_length(const tw_blocks *blocks);
/** A key of all blocks with at most the access of their memory (TW_MEMORY_*; 0: all of it); revoked by the release of that
 *  memory. Of each memory it grants the bytes from the first block to the last one's end: gaps between the blocks are reachable,
 *  too. *size as in tw_memory_export; it grows with the ranges and the memories. TW_ERR_INVALID: a range has no tw_memory. */
TW_CHECKED tw_status tw_blocks_export(tw_blocks *blocks, uint32_t access, void *key, size_t *size);
/** Makes a peer's blocks addressable through an endpoint to it, as tw_memory_import. End with tw_remote_blocks_release. */
TW_CHECKED tw_status tw_blocks_import(tw_endpoint *endpoint, const void *key, size_t key_length, tw_remote_blocks **remote);
TW_API void tw_remote_blocks_release(tw_remote_blocks *remote);
TW_API uint64_t tw_remote_blocks_count(const tw_remote_blocks *remote);
TW_API size_t tw_remote_blocks_length(const tw_remote_blocks *remote);

typedef struct tw_blocks_options {
  size_t size;
  uint32_t flags;           /* TW_OP_NO_WAIT; put: TW_OP_REMOTE, TW_OP_AFTER_ALL (of the signal and the notification) */
  uint32_t notify;          /* TW_NOTIFY_* */
  const void *notification; /* at most TW_NOTIFICATION_MAX bytes, copied during the call */
  size_t notification_length;
  uint32_t handler;         /* TW_NOTIFY_HANDLER: id of tw_am_register */
  uint32_t signal_op;       /* TW_SIGNAL_* */
  tw_remote_signal *signal; /* put: touched when all blocks are there */
  uint64_t signal_value;
  tw_callback callback; /* this and what follows as in tw_op_options */
  void *arg;
  tw_completion_queue *queue;
  tw_counter *counter;
  tw_completion *record;
  tw_signal *done;
  uint64_t done_value;
} tw_blocks_options;
#define TW_BLOCKS_OPTIONS_INIT {sizeof(tw_blocks_options), 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0}

/** Moves n blocks: local[local_index[i]] to or from remote[remote_index[i]]. NULL for an index means 0, 1, ... n - 1. The
 *  indices are read during the call only. Every index is checked before anything moves (TW_ERR_OUT_OF_BOUNDS); blocks of
 *  another length at the other side are TW_ERR_INVALID; 2^32 pairs or more, or more than 2^62 bytes in all, are TW_ERR_LIMIT. A
 *  destination that is named twice in one call gets the bytes of one of its sources, undefined which. Completion as tw_put and
 *  tw_get; the order of the blocks is undefined. The
 *  notification arrives when all blocks are at the target (put) or were read (get), and not at all after a failure; it counts
 *  as an eager message of the endpoint, so an owner that takes none makes later operations with one wait. Either side may be
 *  memory of a device: where no device of this process reaches both, the blocks go through pinned memory, by progress of the
 *  caller and, unless its memory is mapped here, of the target. */
TW_CHECKED tw_status tw_put_blocks(tw_endpoint *endpoint, tw_blocks *local, const uint64_t *local_index,
                                   tw_remote_blocks *remote, const uint64_t *remote_index, size_t n,
                                   const tw_blocks_options *options, tw_request *request);
TW_CHECKED tw_status tw_get_blocks(tw_endpoint *endpoint, tw_blocks *local, const uint64_t *local_index,
                                   tw_remote_blocks *remote, const uint64_t *remote_index, size_t n,
                                   const tw_blocks_options *options, tw_request *request);

typedef struct tw_notification {
  tw_endpoint *endpoint; /* of the sender; NULL: that endpoint is closed */
  size_t length;         /* of a put's or a signal's: 8, and data is its immediate */
  unsigned char data[TW_NOTIFICATION_MAX];
} tw_notification;
/** The next notification that peers queued here, in the order of arrival; TW_AGAIN: none. Does not progress. Where a completion queue
 *  takes them (completions.h), there are none for this call. */
TW_CHECKED tw_status tw_worker_next_notification(tw_worker *worker, tw_notification *notification);

#ifdef __cplusplus
}
#endif

#endif
