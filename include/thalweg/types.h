/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h: what every part of the C interface is made of: how functions are declared, status, handles, requests. It includes no other
 * part; the parts include it, and thalweg.h, whose conventions hold, includes them all.
 */
#ifndef THALWEG_TYPES_H
#define THALWEG_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

/* Of a function that returns a tw_status, which must be looked at (an operation that was refused has moved nothing), or bytes that
 * must be freed. Where it truly does not matter, C++ and C23 say (void). */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202311L)
#define TW_CHECKED [[nodiscard]] TW_API
#elif defined(__GNUC__)
#define TW_CHECKED __attribute__((warn_unused_result)) TW_API
#else
#define TW_CHECKED TW_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------ status */

typedef int32_t tw_status;
enum {
  TW_OK = 0,
  TW_IN_PROGRESS = 1, /* will complete later */
  TW_AGAIN = 2,       /* nothing was queued: try again after progress */
  /* the caller's mistake */
  TW_ERR_INVALID = -101,       /* an argument makes no sense */
  TW_ERR_HANDLE = -102,        /* a handle or request that is not alive (any more) */
  TW_ERR_UNSUPPORTED = -103,   /* this cell of the support table is empty */
  TW_ERR_OUT_OF_BOUNDS = -104, /* outside the registered region */
  TW_ERR_MISALIGNED = -105,    /* atomics and signals need natural alignment */
  TW_ERR_THREAD = -106,        /* a single-thread worker used by two threads */
  TW_ERR_FORKED = -107,        /* an object of the parent process used after fork() */
  TW_ERR_BUSY = -108,          /* in use, or events pending (tw_worker_arm) */
  TW_ERR_PERMISSION = -109,    /* the key does not allow this access */
  /* the machine's limits */
  TW_ERR_NO_MEMORY = -201,
  TW_ERR_NO_DESCRIPTORS = -202,   /* RLIMIT_NOFILE reached */
  TW_ERR_NO_SHARED_MEMORY = -203, /* /dev/shm or the memory cgroup is full */
  TW_ERR_LIMIT = -204,            /* a documented limit of this library */
  TW_ERR_IO = -205,               /* a system call failed; the text names it */
  /* the connection */
  TW_ERR_PEER_LOST = -301,
  TW_ERR_UNREACHABLE = -302,
  TW_ERR_REJECTED = -303, /* the listener called tw_reject; private data has the reason */
  TW_ERR_TIMED_OUT = -304,
  TW_ERR_CLOSED = -305, /* this side closed it, or the peer did: no crash */
  TW_ERR_STALE = -306,  /* key or address of an earlier incarnation, or revoked */
  TW_ERR_ADDRESS_IN_USE = -307,
  /* security */
  TW_ERR_AUTHENTICATION = -401,
  TW_ERR_VERSION = -402,
  TW_ERR_PROTOCOL = -403, /* the peer sent what no peer may send */
  TW_ERR_KEY_FILE = -404,
  /* messages */
  TW_ERR_TRUNCATED = -501, /* receive buffer too short; the true length is in tw_recv_info */
  TW_ERR_CANCELED = -502,
  TW_ERR_NO_MATCH = -503, /* probe found nothing */
  /* devices and queues */
  TW_ERR_DEVICE = -601
};
/** The name of a status, such as "peer_lost". Never NULL. */
TW_API const char *tw_status_name(tw_status status);
/** Text and remedy of the calling thread's last error; "" when there was none. Valid until its next failing call. */
TW_API const char *tw_last_error(void);

#define TW_FOREVER UINT64_MAX

typedef struct tw_context tw_context;
typedef struct tw_worker tw_worker;
typedef struct tw_listener tw_listener;
typedef struct tw_connection_request tw_connection_request;
typedef struct tw_endpoint tw_endpoint;
typedef struct tw_memory tw_memory;
typedef struct tw_remote_memory tw_remote_memory;
typedef struct tw_signal tw_signal;
typedef struct tw_remote_signal tw_remote_signal;
typedef struct tw_layout tw_layout;
typedef struct tw_message tw_message;
typedef struct tw_am_data tw_am_data;
typedef struct tw_store tw_store;
typedef struct tw_group tw_group;           /* ranks that work together (groups.h) */
typedef struct tw_op_options tw_op_options; /* below, with the operations */
typedef struct tw_completion tw_completion; /* completions.h */
typedef struct tw_completion_queue tw_completion_queue;
typedef struct tw_counter tw_counter;

/** A request: worker, slot and generation in 64 bits. Using one that was released is TW_ERR_HANDLE, never a crash. */
typedef uint64_t tw_request;
#define TW_REQUEST_NONE ((tw_request)0)

#define TW_STORE_ENVIRONMENT UINT32_MAX /* a rank or count: the environment has it */

#ifdef __cplusplus
}
#endif
#endif
