/* SPDX-License-Identifier: Apache-2.0
 *
 * thalweg.h: the C interface of Thalweg. It is the stable ABI; thalweg.hpp and the Python package are views of it.
 *
 * Conventions that hold for every function unless its comment says otherwise
 *  - Lengths, offsets and strides are bytes. Times are nanoseconds; TW_FOREVER never expires.
 *  - A function returns a tw_status: 0 is success, positive values are not errors (TW_IN_PROGRESS, TW_AGAIN), negative
 *    values are errors in classes of one hundred. tw_last_error() gives the calling thread's last error text with remedy.
 *  - Invalid arguments fail before any data moves.
 *  - Option structs start with their size: initialise them with their TW_..._INIT macro. NULL means all defaults.
 *  - Handles are opaque. Their creator owns and ends them. The words come in pairs:
 *      create   / destroy   objects that one owner makes and ends (layouts are made by tw_layout_strided and its like, graphs by
 *                           tw_queue_end_capture)
 *      listen, connect, accept, open / close   listeners, endpoints, stores
 *      import, register, bind, a posted operation / release   what is shared, or comes from a peer: imports, memory, ends of
 *                           channels, requests, kept payloads
 *      allocate / free      bytes by their address
 *    In Python close() ends what C destroys or closes, and release() ends what C releases. In C++ destructors end all; to
 *    get the status, call the member with C's word (an end of a channel: release(), a window: destroy()).
 *  - What posts an operation or makes a connection is a verb (tw_send, tw_put, tw_connect); everything else is tw_<object>_<verb>.
 *  - Arguments: the object, then what moves, then where to or from, then options, then outputs. A buffer is followed by its length, an
 *    array by its number. Transfers name the local side before the remote one, copies the destination before the source (memcpy). A
 *    value comes before how it is compared. Outputs of unknown size are (buffer, *size): capacity in, size out; NULL asks for the size.
 *  - Threads: a context, its memory and its layouts may be used from any thread. A worker made with TW_THREADS_SINGLE is
 *    used by one thread at a time (checked in debug builds); with TW_THREADS_MULTI any thread may post and test.
 *  - Buffers of an operation belong to the library from the call until its completion.
 *  - After fork() the child gets TW_ERR_FORKED from every object of its parent.
 *
 * Completion: an operation returns TW_OK when it is complete already (then *request is TW_REQUEST_NONE), TW_IN_PROGRESS
 * when *request will complete later, TW_AGAIN when TW_OP_NO_WAIT was given and nothing could be queued, or an error.
 * Passing request == NULL asks for no completion of its own (use flush or a signal).
 */
#ifndef THALWEG_H
#define THALWEG_H

#include <thalweg/options.h>
#include <thalweg/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0
/** major * 10000 + minor * 100 + patch of the library at run time. */
TW_API int tw_version(void);
TW_API const char *tw_version_string(void);

enum { TW_LOG_DEBUG = 0, TW_LOG_INFO = 1, TW_LOG_WARNING = 2, TW_LOG_ERROR = 3, TW_LOG_OFF = 4 };
/** Gets every line of the log at or above the level in THALWEG_LOG (debug, info, warning, error, off; warning when unset).
 *  Any thread may call it, one at a time; it may not change the handler's own set-up. */
typedef void (*tw_log_handler)(void *arg, int level, const char *text);
/** Sends the log to handler instead of stderr; NULL: back to stderr. After it returns, the old handler does not run. A
 *  forked child starts without one. */
TW_API void tw_set_log_handler(tw_log_handler handler, void *arg);

/* ------------------------------------------------------------------------------------------------ context */

typedef struct tw_context_options {
  size_t size;
  const void *job_key; /* at least 16 bytes of secret; NULL: key_file if given, then THALWEG_JOB_KEY (hex), then the
                             user's key file */
  size_t job_key_length;
  const char *key_file;   /* hex text, made with mode 0600 when absent; NULL: THALWEG_JOB_KEY, then
                             $XDG_CONFIG_HOME/thalweg/job.key or ~/.config/thalweg/job.key */
  const char *transports; /* comma list of self,shm,tcp; NULL: THALWEG_TRANSPORTS, then all */
  const char *interfaces; /* comma list of network interfaces or addresses tcp may use; NULL: THALWEG_INTERFACES, then all */
  const char *socket_dir; /* where unix sockets of this user live; NULL: THALWEG_SOCKET_DIR, XDG_RUNTIME_DIR, /tmp */
  uint64_t silent_timeout_ns;    /* when a silent network makes a peer lost; 0: 5 s */
  uint64_t handshake_timeout_ns; /* how long a stranger may take to authenticate; 0: 5 s */
  uint32_t tls;                  /* 1: every TCP connection of this context uses TLS 1.3 with the job key; 0: what THALWEG_TLS
                                    says (1), else not */
  /* Small contiguous copies of devices by a kernel that stays on each device while it is busy: lower latency, at the price of
     persistent_blocks x 512 threads of the device, 1 to 8. 0: what THALWEG_PERSISTENT says ("2", or "2,500" with persistent_idle_ns in
     microseconds), else none. Device libraries' calls that wait for the whole device (cudaDeviceSynchronize, cudaFree) wait
     for it too: it ends when it was idle for persistent_idle_ns, 10 us to 100 ms (0: 1 ms), and after 16 times that in any case.
     The first worker of the process that uses a device decides for it. */
  uint32_t persistent_blocks;
  uint64_t persistent_idle_ns;
  /* For measurements: large transfers go by this way alone wherever it is possible, else as frames: "eager", "frames", "mapped",
     "kernel" (process_vm_readv); of device memory "push", "pull", "staging". Set the same at both ends. With another one
     than "mapped" no memory of peers is mapped: windows and plans that need it fail. NULL: THALWEG_WAY, then the best. */
  const char *way;
} tw_context_options;
#define TW_CONTEXT_OPTIONS_INIT {sizeof(tw_context_options), NULL, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL}

/** Makes a context: transports, job key, service thread. End with tw_context_destroy after its workers. */
TW_CHECKED tw_status tw_context_create(const tw_context_options *options, tw_context **context);
TW_API void tw_context_destroy(tw_context *context);
/** What was found, as JSON text: version, build, transports and why others are not, limits and remedies.
 *  *size is the capacity in, the size with its NUL out; buffer NULL asks for the size. */
TW_CHECKED tw_status tw_context_info(tw_context *context, char *buffer, size_t *size);
/** Keeps costs that were measured on this machine for this user: contexts made from now on choose routes by them. `values` are
 *  lines "name = value" with the names and units that `costs` of tw_context_info shows; what is left out stays a default.
 *  The file is THALWEG_COSTS, else one of this machine in $XDG_CACHE_HOME/thalweg or ~/.cache/thalweg; its path goes to `file`
 *  as in tw_context_info (size NULL: not wanted). Contexts ignore it (THALWEG_COSTS=off: always) when it is damaged, of
 *  another machine (host name, processor, kernel) or of another version. `thalweg tune` measures and calls this.
 *  TW_ERR_INVALID: not such lines, or an absurd value. TW_ERR_IO: it cannot be written. */
TW_CHECKED tw_status tw_costs_save(const char *values, char *file, size_t *size);
/** What the context counts, now, as JSON. Refused connections, by cause (authentication, version, malformed, timeout, replay, overload, closed; target: the
 *  client means another than this process; integrity: a message of the set-up was changed, repeated or left out on its way;
 *  identity: the peer claims to be a worker that it is not), `links`: ends of connections that this process has, and `moved`: for
 *  each way (eager, frames, mapped, kernel, push, pull, staging) how many operations it has moved and their bytes, of all workers of
 *  this context: announced messages count at their receiver, all other operations where they were posted. Of plans each send, put,
 *  get and atomic operation counts for each run that the host starts: push or pull by a device's kernels, mapped by the host;
 *  what the host carries counts as the operation that carries it. What replays of captured graphs move by themselves is not
 *  counted, nor what code on windows and ends of channels moves. `named`: bytes of device
 *  memory that went by staging in bounce buffers which the receiver reads where they are, counted where they were sent.
 *  `workers`: of each its `posted` receives and `unexpected` messages, the number of its `endpoints`, the `sum` of what these and those before
 *  them counted, and, `listed`, at most 256 of them, which moved most: `id` in this process, `peer` (its worker), its `pid` and `host`,
 *  `transport`, `state`; `sent` and `received` messages with their bytes (byte streams' included), `accesses` (puts, gets, atomics, blocks) that
 *  were posted here, `retries` (how often what was to be sent found no room or credit), and `moved`. `caches`: hits and misses, and `traced`:
 *  `events` of the timeline and those `dropped`, of this process. Any thread; the service thread answers, workers are not disturbed.
 *  The same is read from outside by `thalweg top` (docs/observing.md). */
TW_CHECKED tw_status tw_context_counters(tw_context *context, char *buffer, size_t *size);
/** Records the timeline of this process, of all its contexts and threads, into a new file (an older one is overwritten) in Perfetto's format:
 *  operations, messages, copies, waits, steps of plans. "%p" in the path becomes this process's id. NULL: ends it; so do
 *  tw_context_destroy of the same context and the end of the process. THALWEG_TRACE=file does the same from the first context on.
 *  What happens before the call, or under way at it, is not in the file. Any thread. docs/observing.md says what it costs.
 *  TW_ERR_BUSY: it is recorded already. TW_ERR_INVALID: NULL, where this context has begun none. TW_ERR_IO and its like: the
 *  file cannot be made, or, at the end, could not be written. */
TW_CHECKED tw_status tw_context_trace(tw_context *context, const char *file);

/* ------------------------------------------------------------------------------------------------ worker */

enum { TW_THREADS_SINGLE = 0, TW_THREADS_MULTI = 1 };
enum { TW_PROGRESS_CALLER = 0, TW_PROGRESS_THREAD = 1 };
typedef struct tw_worker_options {
  size_t size;
  uint32_t threads;           /* TW_THREADS_* */
  uint32_t progress;          /* TW_PROGRESS_*; THREAD implies TW_THREADS_MULTI */
  uint64_t unexpected_budget; /* bytes of unmatched messages kept for all endpoints; 0: 64 MiB. While endpoints that have ended
                                 left more, new connections of the worker end with TW_ERR_LIMIT */
} tw_worker_options;
#define TW_WORKER_OPTIONS_INIT {sizeof(tw_worker_options), 0, 0, 0}

TW_CHECKED tw_status tw_worker_create(tw_context *context, const tw_worker_options *options, tw_worker **worker);
/** Ends every endpoint without waiting, fails what is pending with TW_ERR_CLOSED, frees the worker. */
TW_API void tw_worker_destroy(tw_worker *worker);
/** Moves the worker's work forward; never blocks. Returns the number of events handled (0: idle). */
TW_API unsigned tw_worker_progress(tw_worker *worker);
/** Sleeps until there may be an event, at most timeout_ns; then progresses. TW_ERR_TIMED_OUT: there was no event. */
TW_CHECKED tw_status tw_worker_wait(tw_worker *worker, uint64_t timeout_ns);
/** Makes a sleeping tw_worker_wait return. Any thread, any signal handler. */
TW_CHECKED tw_status tw_worker_wake(tw_worker *worker);
/** A file descriptor that becomes readable when progress is needed. Owned by the worker. Poll it after tw_worker_arm. */
TW_CHECKED tw_status tw_worker_fd(tw_worker *worker, int *fd);
/** Arms the descriptor. TW_ERR_BUSY: events are pending, perhaps a signal: progress first. Signals from device code wake no
 *  thread. Every progress disarms it: tw_worker_progress, waits, blocking calls, and flushes even if they complete at once.
 *  So arm it last before polling the descriptor, and again after such a call. */
TW_CHECKED tw_status tw_worker_arm(tw_worker *worker);
/** The address by which others connect: some tens of bytes, to travel by any means. *size: capacity in, size out; address NULL asks for
 *  the size, which stays the same while the worker lives. */
TW_CHECKED tw_status tw_worker_address(tw_worker *worker, void *address, size_t *size);
/** Completes when all earlier one-sided operations of all endpoints of the worker are visible at their targets. */
TW_CHECKED tw_status tw_worker_flush(tw_worker *worker, tw_request *request);

/* ------------------------------------------------------------------------------------------------ connections */

/** Private data of connect, accept and reject: at most this many bytes. */
#define TW_PRIVATE_MAX 1024

typedef struct tw_listener_options {
  size_t size;
  uint32_t backlog; /* connection requests not answered yet; 0: 128 */
  /* called from the worker's progress for every request; NULL: fetch them with tw_listener_next */
  void (*on_request)(void *arg, tw_connection_request *request);
  void *arg;
} tw_listener_options;
#define TW_LISTENER_OPTIONS_INIT {sizeof(tw_listener_options), 0, NULL, NULL}

/** Listens at "host:port", "[v6]:port", ":port" (all interfaces), port 0 picks one; or "unix:/path".
 *  End with tw_listener_close, which waits while another thread is in its on_request. */
TW_CHECKED tw_status tw_listen(tw_worker *worker, const char *address, const tw_listener_options *options,
                               tw_listener **listener);
TW_API void tw_listener_close(tw_listener *listener);
/** The port listened on (0 for unix). */
TW_API uint16_t tw_listener_port(const tw_listener *listener);
/** The next waiting request, or TW_AGAIN. Each request must be answered by tw_accept or tw_reject. */
TW_CHECKED tw_status tw_listener_next(tw_listener *listener, tw_connection_request **request);
/** Private data the client sent, and the client's address as text; both valid until the request is answered. */
TW_API const void *tw_connection_request_data(const tw_connection_request *request, size_t *length);
TW_API const char *tw_connection_request_peer(const tw_connection_request *request);

typedef struct tw_endpoint_options {
  size_t size;
  const void *private_data; /* sent along: to the listener's user (connect) or to the client (accept) */
  size_t private_length;
  uint64_t timeout_ns;                                              /* until connected; 0: 10 s */
  void (*on_lost)(void *arg, tw_endpoint *endpoint, tw_status why); /* from progress, once */
  void *arg;
  const char *transport; /* only this transport ("shm", "tcp"); NULL: the cheapest reachable */
  uint32_t tls;          /* 1: TLS 1.3 with the job key (TCP) */
} tw_endpoint_options;
#define TW_ENDPOINT_OPTIONS_INIT {sizeof(tw_endpoint_options), NULL, 0, 0, NULL, NULL, NULL, 0}

/** Answers a connection request; consumes it. The endpoint may be used at once. */
TW_CHECKED tw_status tw_accept(tw_connection_request *request, const tw_endpoint_options *options, tw_endpoint **endpoint);
TW_CHECKED tw_status tw_reject(tw_connection_request *request, const void *data, size_t length);
/** Connects to a worker address. Never blocks: operations may be posted at once, they start when connected. Connecting
 *  twice to one worker, or from both sides at once, gives the same single connection. Connecting to oneself is allowed. */
TW_CHECKED tw_status tw_connect(tw_worker *worker, const void *address, size_t length, const tw_endpoint_options *options,
                                tw_endpoint **endpoint);
/** Connects to a listener at "host:port", "[v6]:port" or "unix:/path". Never blocks. */
TW_CHECKED tw_status tw_connect_to(tw_worker *worker, const char *address, const tw_endpoint_options *options,
                                   tw_endpoint **endpoint);
/** TW_IN_PROGRESS while connecting, TW_OK, or why it ended. */
TW_CHECKED tw_status tw_endpoint_state(tw_endpoint *endpoint);
/** Progresses until the endpoint failed or is connected: mapped operations then go without any progress of the peer. */
TW_CHECKED tw_status tw_endpoint_wait(tw_endpoint *endpoint, uint64_t timeout_ns);
/** Private data that came with accept or reject. */
TW_API const void *tw_endpoint_data(tw_endpoint *endpoint, size_t *length);
TW_API tw_worker *tw_endpoint_worker(tw_endpoint *endpoint);
/** The transport in use ("shm", "tcp", "self"), "" while connecting. */
TW_API const char *tw_endpoint_transport(tw_endpoint *endpoint);
/** 1: no third party can read or change what travels or did: shared memory, a unix socket, TLS, one process. 0: plain tcp, or not
 *  connected yet. */
TW_API int tw_endpoint_protected(tw_endpoint *endpoint);
/** Any value of the caller's, kept with the endpoint. */
TW_API void tw_endpoint_set_user(tw_endpoint *endpoint, void *user);
TW_API void *tw_endpoint_user(tw_endpoint *endpoint);

enum { TW_CLOSE_GRACEFUL = 0, TW_CLOSE_FORCE = 1 };
/** Ends the endpoint; the handle is invalid when the request completes. Graceful: flushes, notifies the peer. Force: does
 *  not wait; what is pending ends with TW_ERR_CLOSED. request NULL with GRACEFUL: blocks, progressing. Either waits while
 *  another thread is in the endpoint's on_lost. TW_ERR_LIMIT: it would wait, and no request is left for that: it stays, release some. */
TW_CHECKED tw_status tw_endpoint_close(tw_endpoint *endpoint, uint32_t mode, tw_request *request);
/** The table of protocols for an operation of length bytes of ordinary memory: candidates, predicted cost or why it is
 *  impossible, why the loser lost. verb: "send", "am", "bytes"; "put", "get", "atomic", "signal", "put_blocks" and
 *  "get_blocks" depend on the target's memory: a table for each kind of it (tw_remote_memory_explain: for one). "am": the payload, which
 *  goes the same way whatever its header, unless the receiver has no memory for that: then it is announced. Text; *size as in tw_context_info. */
TW_CHECKED tw_status tw_endpoint_explain(tw_endpoint *endpoint, const char *verb, size_t length, char *buffer, size_t *size);
/** The same for the local buffer at `address`, which may be device memory: its ways to each kind of memory that may receive it, and
 *  why it would go through the host. `remote`: the target of a put, get, atomic or blocks; else NULL. `options`: those that the operation
 *  would be posted with (layouts, TW_OP_SYNC, after), or NULL. The last lines name the way as tw_context_counters counts it:
 *  "way: push" (behind a fence also the way where all before it is applied by then), or, of a message, "way into KIND: push" for each kind
 *  of memory that may receive it; of a message from library memory also the way until the receiver has mapped that. */
TW_CHECKED tw_status tw_endpoint_explain_buffer(tw_endpoint *endpoint, const char *verb, const void *address, size_t length,
                                                tw_remote_memory *remote, const tw_op_options *options, char *buffer,
                                                size_t *size);

/* ------------------------------------------------------------------------------------------------ memory */

enum { TW_MEMORY_READ = 1, TW_MEMORY_WRITE = 2, TW_MEMORY_ATOMIC = 4, TW_MEMORY_ALL = 7 };
typedef struct tw_memory_options {
  size_t size;
  uint32_t access;     /* what peers may do: TW_MEMORY_*; 0: all */
  uint32_t huge_pages; /* tw_memory_allocate: 1 asks for huge pages (reported by tw_context_info when not granted) */
  const char *place;   /* tw_memory_allocate: "host" (NULL), "pinned", "cuda:1", ...: thalweg/places.h */
} tw_memory_options;
#define TW_MEMORY_OPTIONS_INIT {sizeof(tw_memory_options), 0, 0, NULL}

/** Registers a region of host or device memory so that peers may be given access. Costs no pinning. End with tw_memory_release,
 *  before the memory is freed. TW_ERR_UNSUPPORTED: this process may not read it, as a GPU's memory without its driver. */
TW_CHECKED tw_status tw_memory_register(tw_context *context, void *address, size_t length, const tw_memory_options *options,
                                        tw_memory **memory);
/** Allocates memory that peers on this machine map, so that a put is a store and a message one copy. Zeroed, page aligned.
 *  Shared also with a forked child: each sees the other's stores. End with tw_memory_release (in the parent). With the place
 *  of a device: that device's memory, with undefined contents, accessible by the host where tw_memory_query reports so. */
TW_CHECKED tw_status tw_memory_allocate(tw_context *context, size_t length, const tw_memory_options *options,
                                        tw_memory **memory);
TW_API void *tw_memory_address(const tw_memory *memory);
TW_API size_t tw_memory_length(const tw_memory *memory);
/** Revokes every exported key, waits for copies that peers have begun, then ends the registration (and frees what
 *  tw_memory_allocate gave). Of device memory, it also waits for devices that work on it for peers and for other workers of this
 *  process. TW_ERR_BUSY: a stopped peer has not finished a copy, or a device its work; release it again then. */
TW_CHECKED tw_status tw_memory_release(tw_memory *memory);
/** tw_memory_allocate and tw_memory_address in one; tw_free takes the address back. NULL on failure. */
TW_CHECKED void *tw_allocate(tw_context *context, size_t length);
TW_CHECKED tw_status tw_free(tw_context *context, void *address);

/** A key for a sub-range (length 0: to the end), with at most the access of the region. Unguessable, bounds-checked,
 *  revoked by tw_memory_release. *size: capacity in, size out; key NULL asks for the size, and makes no key. */
TW_CHECKED tw_status tw_memory_export_range(tw_memory *memory, size_t offset, size_t length, uint32_t access, void *key,
                                            size_t *size);
TW_CHECKED tw_status tw_memory_export(tw_memory *memory, void *key, size_t *size);
/** Makes a peer's memory addressable through an endpoint to it. Never blocks. Memory of tw_memory_allocate is mapped when
 *  its owner's service thread has answered; operations posted before wait for that in order, and then need no progress of
 *  the target either. End with tw_remote_memory_release. */
TW_CHECKED tw_status tw_memory_import(tw_endpoint *endpoint, const void *key, size_t key_length, tw_remote_memory **remote);
TW_API void tw_remote_memory_release(tw_remote_memory *remote);
TW_API size_t tw_remote_memory_length(const tw_remote_memory *remote);
/** As tw_endpoint_explain, of a "put", "get", "atomic", "put_blocks" or "get_blocks" to this memory. */
TW_CHECKED tw_status tw_remote_memory_explain(tw_remote_memory *remote, const char *verb, size_t length, char *buffer,
                                              size_t *size);
/** The address where loads and stores reach the peer's memory (made by tw_memory_allocate, same machine), or
 *  TW_ERR_UNSUPPORTED. Waits 10 s at most for its owner's answer (TW_ERR_TIMED_OUT); in a callback or handler, which cannot
 *  wait, TW_ERR_BUSY. Valid until tw_remote_memory_release or the endpoint's close, also when the peer is lost.
 *  TW_ERR_PERMISSION: the key has not TW_MEMORY_READ. Without TW_MEMORY_WRITE only loads are allowed, which nothing enforces: the
 *  pages are mapped for writing (docs/security.md). */
TW_CHECKED tw_status tw_remote_memory_map(tw_remote_memory *remote, void **address);

/* ------------------------------------------------------------------------------------------------ layouts */

/** count blocks of block bytes, stride apart, in up to eight dimensions: dimension 0 varies fastest.
 *  Strides are bytes and may be negative. Blocks must not overlap when received into. End with tw_layout_destroy. */
TW_CHECKED tw_status tw_layout_strided(unsigned dimensions, size_t block, const uint64_t *count, const int64_t *stride,
                                       tw_layout **layout);
enum { TW_ORDER_C = 0, TW_ORDER_FORTRAN = 1 };
/** The part of an N-dimensional array (N <= 8) that starts at start[] and has extent[] elements; shape[] is the whole.
 *  Offsets are from the array's first element. */
TW_CHECKED tw_status tw_layout_subarray(unsigned dimensions, const uint64_t *shape, const uint64_t *extent,
                                        const uint64_t *start, size_t element, int order, tw_layout **layout);
typedef struct tw_piece {
  uint64_t offset, length;
} tw_piece;
/** Pieces in the order given, each relative to the buffer's address. */
TW_CHECKED tw_status tw_layout_pieces(const tw_piece *pieces, size_t count, tw_layout **layout);

enum { TW_LAYOUT_PACK = 0, TW_LAYOUT_UNPACK = 1 }; /* what an operation does with its buffer: sends from it, receives into it */
/** Functions that serialise what no strides and pieces describe. Each operation calls start, then packed_size, then pack or unpack as its
 *  bytes move, at last finish.
 *   - Threads: start and packed_size run on the thread that posts the operation, the others on any that posts to its worker
 *     or progresses it. Calls for one operation never overlap; calls for several may. A worker's lock may be held: they must
 *     not call the library, wait for a thread that does, or throw, and must return soon, as the worker is blocked meanwhile.
 *   - Offsets count packed bytes. They ascend without gaps: each byte is packed, or unpacked, once.
 *   - Errors are negative TW_ERR_*; an invalid result counts as TW_ERR_INVALID, and so do TW_ERR_HANDLE, _THREAD, _FORKED, _BUSY
 *     and _TIMED_OUT, which say of a call, not of an operation, that it failed. After one only finish is called. The
 *     operation fails with it, and with a text that names the function and the bytes; so does the receive of a message that
 *     has begun. A put has written what was packed before. The connection stays up. */
typedef struct tw_layout_callbacks_options {
  size_t size;
  void *arg; /* given to start and destroy */
  /* Begins an operation. buffer: as posted, never read by the library, so it need not be an address; length: as posted;
   * direction: TW_LAYOUT_*. *state goes to all other functions. An error refuses the operation, and finish is not called. */
  tw_status (*start)(void *arg, const void *buffer, size_t length, int direction, void **state);
  /* Bytes that the operation sends, or can receive; called once. The operation's length is 0 or the same. */
  size_t (*packed_size)(void *state);
  /* Writes packed bytes from offset on to dest: 1 to max_length of them, and returns how many; or an error. NULL: nothing is sent. */
  int64_t (*pack)(void *state, uint64_t offset, void *dest, size_t max_length);
  /* Takes the length packed bytes at source, which belong at offset. Only bytes that have arrived; a message may be shorter
   * than packed_size. Over shared memory the sender can still change them: read each once, check it. NULL: no receives. */
  tw_status (*unpack)(void *state, uint64_t offset, const void *source, size_t length);
  /* The operation has ended or failed: once for every start that returned TW_OK, before the request completes or the
   * callback runs. The buffer is not used any more. */
  void (*finish)(void *state);
  /* The layout was destroyed and its last operation has ended: nothing is called any more. May be NULL. */
  void (*destroy)(void *arg);
} tw_layout_callbacks_options;
#define TW_LAYOUT_CALLBACKS_OPTIONS_INIT {sizeof(tw_layout_callbacks_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL}
/** A layout of the user's own functions, what UCX calls a generic datatype: of messages (tw_send, tw_recv, tw_message_recv, tw_am_send,
 *  tw_am_recv) and of the local side of puts and gets in host memory. What is packed goes straight into frames or mapped memory, and is
 *  unpacked from there. TW_ERR_UNSUPPORTED: as remote_layout, with `after`, with the peer's device memory, in byte streams, plans and
 *  channels. tw_layout_bytes and tw_layout_extent return 0. */
TW_CHECKED tw_status tw_layout_callbacks(const tw_layout_callbacks_options *options, tw_layout **layout);
TW_API void tw_layout_destroy(tw_layout *layout);
/** Bytes moved, and the span [first, last) touched relative to the buffer's address. */
TW_API size_t tw_layout_bytes(const tw_layout *layout);
TW_API void tw_layout_extent(const tw_layout *layout, int64_t *first, int64_t *last);

/* ------------------------------------------------------------------------------------------------ operations */

/* --- requests */
/** TW_IN_PROGRESS, or how it ended. The request stays alive until tw_request_release. Any thread. Does not progress. */
TW_CHECKED tw_status tw_request_test(tw_request request);
/** Of count requests, the index of one that is done, or TW_IN_PROGRESS. TW_REQUEST_NONE entries are ignored. */
TW_CHECKED tw_status tw_request_test_any(const tw_request *requests, size_t count, size_t *index);
/** Progresses until done or timeout; the request stays alive. TW_ERR_TIMED_OUT: timeout_ns have passed, and the operation goes on:
 *  tw_request_test is TW_IN_PROGRESS. A collective may end with that, too, where another call of its group timed out: then
 *  tw_request_test says so. */
TW_CHECKED tw_status tw_request_wait(tw_request request, uint64_t timeout_ns);
/** The same, progressing the requests' workers until one is done: TW_OK and its index, even if it failed (tw_request_test
 *  has the status), or TW_ERR_TIMED_OUT. None is released. Workers' threads. */
TW_CHECKED tw_status tw_request_wait_any(const tw_request *requests, size_t count, uint64_t timeout_ns, size_t *index);
/** tw_request_finish of all, which are set to TW_REQUEST_NONE; the first error is returned. */
TW_CHECKED tw_status tw_request_finish_all(tw_request *requests, size_t count);
/** Waits without limit, then releases. */
TW_CHECKED tw_status tw_request_finish(tw_request request);
/** Sender, tag, immediate and true length of a completed receive. */
TW_CHECKED tw_status tw_request_info(tw_request request, tw_recv_info *info);
/** The text of how it ended. Valid until release. */
TW_API const char *tw_request_message(tw_request request);
/** Frees the request; an operation still running continues without it. */
TW_CHECKED tw_status tw_request_release(tw_request request);
/** Work enqueued on the stream (CUstream, cudaStream_t; NULL: the default stream) from now on waits until the request has
 *  ended, successfully or not: check the request's status. Returns at once; TW_OK if it has ended already (also for
 *  TW_REQUEST_NONE). The stream is of the buffer's device; for a buffer in host memory of any, a default stream of the first
 *  one. The worker must be progressed meanwhile: a host that waits for such a stream without progress deadlocks. The request
 *  may be released. Worker's threads. TW_ERR_UNSUPPORTED: the stream is being captured; TW_ERR_LIMIT: streams wait for 8 requests of
 *  this worker and device; TW_ERR_INVALID: no such stream. */
TW_CHECKED tw_status tw_request_before(tw_request request, const void *stream);
/** Asks an unmatched receive or an unannounced send to end with TW_ERR_CANCELED. TW_ERR_BUSY: too late. */
TW_CHECKED tw_status tw_request_cancel(tw_request request);

/* --- tagged messages */
TW_CHECKED tw_status tw_send(tw_endpoint *endpoint, const void *buffer, size_t length, uint64_t tag,
                             const tw_op_options *options, tw_request *request);
/** Matches messages whose tag equals tag in the bits of mask. request may be NULL if the options say where its end is told. */
TW_CHECKED tw_status tw_recv(tw_worker *worker, void *buffer, size_t length, uint64_t tag, uint64_t mask,
                             const tw_op_options *options, tw_request *request);
/** Blocking forms: progress until done. */
TW_CHECKED tw_status tw_send_blocking(tw_endpoint *endpoint, const void *buffer, size_t length, uint64_t tag);
TW_CHECKED tw_status tw_recv_blocking(tw_worker *worker, void *buffer, size_t length, uint64_t tag, uint64_t mask,
                                      tw_recv_info *info);
/** Probes for an unmatched message: TW_OK with info, or TW_ERR_NO_MATCH. message non-NULL takes it out of matching; it must
 *  then be received by tw_message_recv. */
TW_CHECKED tw_status tw_probe(tw_worker *worker, uint64_t tag, uint64_t mask, const tw_op_options *options, tw_recv_info *info,
                              tw_message **message);
TW_CHECKED tw_status tw_message_recv(tw_message *message, void *buffer, size_t length, const tw_op_options *options,
                                     tw_request *request);

/* --- active messages */
#define TW_AM_HEADER_SHORT 256 /* bytes; headers up to here cost least. Longer ones may take frames of their own */
typedef struct tw_am_message {
  tw_endpoint *endpoint; /* reply here */
  uint16_t id;
  const void *header; /* a copy, valid during the handler; not kept with the payload */
  size_t header_length;
  const void *data; /* NULL: rendezvous, fetch with tw_am_recv */
  size_t length;
  tw_am_data *descriptor; /* names the payload when kept */
} tw_am_message;
/** Runs in progress, under the lock of a worker made with TW_THREADS_MULTI; may post through endpoints of this worker, may
 *  not progress. Through another worker's only where no handler of that one posts through this one's, nor by way of a third:
 *  they would wait for each other for ever (completion callbacks run without the lock). Returns TW_OK when done with the message,
 *  TW_IN_PROGRESS to keep message->descriptor for a later tw_am_recv or tw_am_release. */
typedef tw_status (*tw_am_handler)(void *arg, const tw_am_message *message);
/** Sets the handler of id (< 4096); NULL takes it away. Messages without a handler are counted and dropped with a warning. */
TW_CHECKED tw_status tw_am_register(tw_worker *worker, uint16_t id, tw_am_handler handler, void *arg);
/** The header is copied before the call returns; the library owns the payload until completion. The handler runs when the
 *  whole header has arrived. A header of more than TW_AM_HEADER_SHORT bytes takes the receiver's credit for unmatched
 *  messages; more than about 64 KiB, or beyond the credit, asks the receiver first, and the endpoint's later messages wait
 *  for the answer. TW_ERR_LIMIT (of the request): more than an eighth of what the receiver's endpoints leave of its
 *  unexpected_budget. */
TW_CHECKED tw_status tw_am_send(tw_endpoint *endpoint, uint16_t id, const void *header, size_t header_length,
                                const void *buffer, size_t length, const tw_op_options *options, tw_request *request);
/** Receives a kept payload into buffer and ends the descriptor. */
TW_CHECKED tw_status tw_am_recv(tw_am_data *data, void *buffer, size_t length, const tw_op_options *options,
                                tw_request *request);
/** Drops a kept payload (a rendezvous sender completes). */
TW_CHECKED tw_status tw_am_release(tw_am_data *data);

/* --- byte streams: contiguous, ordered, no message borders */
TW_CHECKED tw_status tw_bytes_send(tw_endpoint *endpoint, const void *buffer, size_t length, const tw_op_options *options,
                                   tw_request *request);
/** Completes with 1..length bytes (tw_recv_info.length), or all with TW_OP_WAIT_ALL. */
TW_CHECKED tw_status tw_bytes_recv(tw_endpoint *endpoint, void *buffer, size_t length, const tw_op_options *options,
                                   tw_request *request);

/* --- one-sided */
/** Offsets are relative to the exported range. Completion: local (source reusable / data arrived); see TW_OP_REMOTE, flush. */
TW_CHECKED tw_status tw_put(tw_endpoint *endpoint, const void *buffer, size_t length, tw_remote_memory *remote, uint64_t offset,
                            const tw_op_options *options, tw_request *request);
TW_CHECKED tw_status tw_get(tw_endpoint *endpoint, void *buffer, size_t length, tw_remote_memory *remote, uint64_t offset,
                            const tw_op_options *options, tw_request *request);
/** Completes when all earlier one-sided operations of the endpoint are visible at the target. */
TW_CHECKED tw_status tw_endpoint_flush(tw_endpoint *endpoint, tw_request *request);
/** Later one-sided operations of the endpoint become visible after earlier ones. Does not wait. */
TW_CHECKED tw_status tw_endpoint_fence(tw_endpoint *endpoint);

enum { TW_ATOMIC_ADD = 0, TW_ATOMIC_AND = 1, TW_ATOMIC_OR = 2, TW_ATOMIC_XOR = 3, TW_ATOMIC_SWAP = 4, TW_ATOMIC_CSWAP = 5 };
/** On the naturally aligned 4- or 8-byte word at offset. operand: the value; compare: only for CSWAP. Those of a 4-byte word fit 32
 *  bits, unsigned or as a sign-extended negative number, else TW_ERR_INVALID. result: where the old value goes (4 or 8 bytes),
 *  NULL: not fetched. */
TW_CHECKED tw_status tw_atomic(tw_endpoint *endpoint, uint32_t op, tw_remote_memory *remote, uint64_t offset, size_t size,
                               uint64_t operand, uint64_t compare, void *result, const tw_op_options *options,
                               tw_request *request);

/* --- signals: a 64-bit word at the waiter */
typedef struct tw_signal_options {
  size_t size;
  uint32_t kind; /* TW_SIGNAL_SET: one writer sets it. TW_SIGNAL_ADD: any number add to it. Fixed. */
  uint64_t initial;
  tw_memory
      *memory; /* where the word is: registered memory of the waiter, such as a device's; not managed. NULL: the library's */
  uint64_t offset; /* of the word in it, a multiple of 8; nothing else may use these 8 bytes until tw_signal_destroy */
} tw_signal_options;
#define TW_SIGNAL_OPTIONS_INIT {sizeof(tw_signal_options), 0, 0, NULL, 0}
enum { TW_COMPARE_GE = 0, TW_COMPARE_EQ = 1, TW_COMPARE_NE = 2 }; /* GE is cyclic: (int64_t)(word - value) >= 0 */
TW_CHECKED tw_status tw_signal_create(tw_worker *worker, const tw_signal_options *options, tw_signal **signal);
TW_CHECKED tw_status tw_signal_destroy(tw_signal *signal);
/** A key for peers; *size as in tw_memory_export. */
TW_CHECKED tw_status tw_signal_export(tw_signal *signal, void *key, size_t *size);
TW_CHECKED tw_status tw_signal_import(tw_endpoint *endpoint, const void *key, size_t key_length, tw_remote_signal **remote);
TW_API void tw_remote_signal_release(tw_remote_signal *remote);
/** Reads the word with acquire ordering: what the signal covers is visible. A word in device memory is fetched (microseconds), as by
 *  the functions below; steps of plans and kernels wait for it at no such cost. */
TW_API uint64_t tw_signal_read(const tw_signal *signal);
/** Stores the word. Only while no thread waits and no operation is in flight. */
TW_CHECKED tw_status tw_signal_reset(tw_signal *signal, uint64_t value);
/** TW_OK when the comparison holds (acquire), else TW_IN_PROGRESS. Does not progress. */
TW_CHECKED tw_status tw_signal_test(const tw_signal *signal, uint64_t value, uint32_t compare);
/** Progresses until it holds. */
TW_CHECKED tw_status tw_signal_wait(tw_signal *signal, uint64_t value, uint32_t compare, uint64_t timeout_ns);
/** Sets or adds to a remote word, alone, as the signal's kind is. TW_OP_AFTER_ALL covers all earlier puts; options->notify as of a
 *  put. */
TW_CHECKED tw_status tw_signal_post(tw_remote_signal *remote, uint64_t value, const tw_op_options *options,
                                    tw_request *request);

/* ------------------------------------------------------------------------------------------------ store */

typedef struct tw_store_options {
  size_t size;
  const void *job_key; /* NULL: THALWEG_JOB_KEY, then the user's key file, as in tw_context_options */
  size_t job_key_length;
  uint64_t timeout_ns; /* of blocking calls; 0: 60 s */
  /* For exchange and barrier. TW_STORE_ENVIRONMENT (the default): THALWEG_RANK and THALWEG_SIZE, which `thalweg run` sets,
     else 0 of 1. rank < count, and count 0 is TW_ERR_INVALID. */
  uint32_t rank, count;
  uint32_t tls; /* 1: "tcp:" and "serve:" use TLS 1.3 with the job key; 0: what THALWEG_TLS says (1), else not */
} tw_store_options;
#define TW_STORE_OPTIONS_INIT {sizeof(tw_store_options), NULL, 0, 0, TW_STORE_ENVIRONMENT, TW_STORE_ENVIRONMENT, 0}
/** "file:/path" (a shared file), "tcp:host:port" (a server must run), "serve:host:port" (serves and uses it; port 0 picks
 *  one, see tw_store_address), NULL: THALWEG_STORE. Thread-safe. End with tw_store_close. */
TW_CHECKED tw_status tw_store_open(const char *address, const tw_store_options *options, tw_store **store);
TW_API void tw_store_close(tw_store *store);
TW_API const char *tw_store_address(const tw_store *store);
/** This process's place in exchange and barrier, also when it came from the environment. 0 for NULL. */
TW_API uint32_t tw_store_rank(const tw_store *store);
TW_API uint32_t tw_store_count(const tw_store *store);
TW_CHECKED tw_status tw_store_put(tw_store *store, const char *key, const void *value, size_t length);
/** TW_ERR_NO_MATCH when absent. *size: capacity in, true size out (TW_ERR_TRUNCATED when short). */
TW_CHECKED tw_status tw_store_get(tw_store *store, const char *key, void *value, size_t *size);
/** Waits until the key exists, then as tw_store_get. */
TW_CHECKED tw_status tw_store_wait(tw_store *store, const char *key, void *value, size_t *size);
/** An allgather: values[i * length] is rank i's `mine`. Called by all ranks in the same order. */
TW_CHECKED tw_status tw_store_exchange(tw_store *store, const void *mine, size_t length, void *values);
TW_CHECKED tw_status tw_store_barrier(tw_store *store);

#ifdef __cplusplus
}
#endif

#include <thalweg/blocks.h>
#include <thalweg/channels.h>
#include <thalweg/collectives.h>
#include <thalweg/completions.h>
#include <thalweg/groups.h>
#include <thalweg/places.h>
#include <thalweg/plans.h>
#include <thalweg/topology.h>
#include <thalweg/windows.h>

#endif
