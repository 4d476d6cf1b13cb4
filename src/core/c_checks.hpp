// SPDX-License-Identifier: Apache-2.0
// What every C function checks before anything moves: handles, options, and in debug builds the thread.
#pragma once
#include <cstring>

#include "core/op_fields.hpp"
#include "core/worker.hpp"
#include "devices/host_ranges.hpp"
#include "devices/registry.hpp"
#include "protocols/active.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {

[[gnu::cold]] Status no_size();  // c_context.cpp

/// The caller's options, or all defaults, in the layout of this library: shorter ones of older callers are filled up.
template <class T>
class Options {
 public:
  Options(const T* given, const T& defaults) {
    if (given == nullptr) {
      use_ = &defaults;
    } else if (given->size >= sizeof(T)) {
      use_ = given;
    } else {
      copy_ = defaults;
      sized_ = given->size > sizeof given->size;
      if (sized_) std::memcpy(static_cast<void*>(&copy_), given, given->size);
      use_ = &copy_;
    }
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  const T& operator*() const { return *use_; }
  const T* operator->() const { return use_; }
  /// TW_ERR_INVALID: they say that they have no field. What a caller has set in a zeroed struct would be left out.
  Status status() const { return sized_ ? Status{TW_OK} : no_size(); }

 private:
  const T* use_;
  bool sized_ = true;
  T copy_;
};
inline constexpr tw_op_options kOpDefaults = TW_OP_OPTIONS_INIT;
// Older callers' options end before these: never in what was their padding.
static_assert(offsetof(tw_op_options, notify) % 8 == 0 && offsetof(tw_op_options, increment) % 8 == 0 &&
              sizeof(tw_completion_queue_options) == 16);

[[gnu::cold]] Status refuse_endpoint(const tw_endpoint* endpoint);
// local_memory.cpp
[[gnu::noinline]] bool is_device_memory(const void* address, BufferInfo* info);
/// known: of the address, by is_device_memory() in the same call; null: unknown yet.
[[gnu::noinline]] Status set_device(OpDesc& op, const tw_op_options& options, const BufferInfo* known);

inline Status check(const tw_worker* worker) {
  if (worker == nullptr) [[unlikely]]
    return fail(TW_ERR_INVALID, "the worker is NULL");
  return worker->born.check("worker");
}
inline Status check(const tw_endpoint* endpoint) {
  if (endpoint == nullptr || endpoint->magic != tw_endpoint::kAlive) [[unlikely]]
    return refuse_endpoint(endpoint);
  return endpoint->worker->born.check("endpoint");
}
inline Status check(const tw_context* context) {
  if (context == nullptr) return fail(TW_ERR_INVALID, "the context is NULL");
  return context->born.check("context");
}
inline Status check(const tw_memory* memory) {
  if (memory == nullptr) return fail(TW_ERR_INVALID, "the memory is NULL");
  return memory->born.check("memory");
}
inline Status check(const tw_signal* signal) {
  if (signal == nullptr) [[unlikely]]
    return fail(TW_ERR_INVALID, "the signal is NULL");
  return signal->born.check("signal");
}

/// The handle is alive and of this process; debug builds also mark the calling thread as the user of a single-threaded
/// worker for the call.
class Enter {
 public:
  explicit Enter(tw_worker* worker) : status_(check(worker)) {
    if (status_ == TW_OK) mark(*worker);
  }
  explicit Enter(tw_endpoint* endpoint) : status_(check(endpoint)) {
    if (status_ == TW_OK) mark(*endpoint->worker);
  }
  explicit Enter(tw_worker& checked) { mark(checked); }
  Enter(const Enter&) = delete;
  Enter& operator=(const Enter&) = delete;
  Status status() const { return status_; }

#ifdef NDEBUG
 private:
  void mark(tw_worker&) {}
#else
  ~Enter() {
    if (worker_ != nullptr) worker_->user.store({}, std::memory_order_release);
  }

 private:
  void mark(tw_worker& worker) {
    if (worker.multi) return;
    const std::thread::id me = std::this_thread::get_id();
    std::thread::id nobody{};
    if (worker.user.compare_exchange_strong(nobody, me, std::memory_order_acquire)) {
      worker_ = &worker;
    } else if (nobody != me) {
      status_ =
          fail(TW_ERR_THREAD, "two threads use a worker made with TW_THREADS_SINGLE at once: make it with TW_THREADS_MULTI");
    }
  }
  tw_worker* worker_ = nullptr;
#endif
  Status status_ = TW_OK;
};

/// May this be device memory, so that the drivers must be asked? Hot: the short forms check nothing more if it cannot be.
inline bool may_be_on_device(const void* address) {
  return backend_count.load(std::memory_order_acquire) != 0 && !host_ranges.contain(address);
}
/// Is this memory that only a device's queues may touch?
inline bool on_device(const void* address, BufferInfo* info) {
  return may_be_on_device(address) && is_device_memory(address, info);
}

/// Host buffers from here on are asked whether they can be read before they are used (check_host_memory): a fraction of a
/// microsecond of some. Shorter ones are not: they would pay as much as they take.
inline constexpr size_t kAsked = 128u << 10;
Status check_buffer(const OpDesc& op);  // local_memory.cpp

/// A layout of callbacks is started for this operation: op's layout and length. op's address may be none.
Status set_callbacks(OpDesc& op, size_t length, const tw_op_options& options);  // local_memory.cpp

/// Fills in the local side of op: address, layout, length, device and what it waits for. TW_ERR_INVALID when they do not fit
/// together. The caller has a LocalHold on op until it is posted.
inline Status set_local(OpDesc& op, const void* buffer, size_t length, const tw_op_options& options,
                        const BufferInfo* known = nullptr) {
  op.address = static_cast<std::byte*>(const_cast<void*>(buffer));
  op.length = length;
  op.flags = options.flags & ~kOpInternal;
  if (options.layout != nullptr) {
    const Status status = options.layout->born.check("layout");
    if (is_error(status)) return status;
    if (options.layout->calls != nullptr) return set_callbacks(op, length, options);
    if (length != 0 && length != options.layout->bytes) {
      return fail(TW_ERR_INVALID, "length %zu, but the layout moves %llu bytes: pass 0 or the same", length,
                  static_cast<unsigned long long>(options.layout->bytes));
    }
    if (op.verb == Verb::recv || op.verb == Verb::am_recv) {
      if (const Status status = check_receive(options.layout); is_error(status)) return status;
    }
    op.layout = options.layout;
    op.length = options.layout->bytes;
  }
  if (buffer == nullptr && op.length != 0) [[unlikely]]
    return fail(TW_ERR_INVALID, "the buffer is NULL");
  const bool plain = options.layout == nullptr ? !may_be_on_device(buffer) : backend_count.load(std::memory_order_acquire) == 0;
  if (plain && options.after_kind == TW_AFTER_NONE) [[likely]]
    return op.length < kAsked ? Status{TW_OK} : check_buffer(op);
  return set_device(op, options, known);
}

/// The poster's share of OpDesc::after, and of a layout of callbacks that was started for the operation.
class LocalHold {
 public:
  explicit LocalHold(const OpDesc& op) : op_(op) {}
  ~LocalHold() {
    if ((op_.flags & kOpLate) != 0) [[unlikely]]
      release(op_.after);
    if (by_calls(op_)) [[unlikely]]
      release(op_.layout);
  }
  LocalHold(const LocalHold&) = delete;
  LocalHold& operator=(const LocalHold&) = delete;

 private:
  const OpDesc& op_;
};

/// Null: its endpoint has ended, which a progress thread may do meanwhile.
inline Peer* peer_of(RemoteRegion& region) { return std::atomic_ref(region.peer).load(std::memory_order_relaxed); }
inline RemoteRegion* region_of(tw_remote_memory* remote) { return reinterpret_cast<RemoteRegion*>(remote); }
inline RemoteRegion* region_of(tw_remote_signal* remote) { return reinterpret_cast<RemoteRegion*>(remote); }

/// The region was imported through this endpoint.
inline Status check_region(const tw_endpoint* endpoint, const RemoteRegion* region) {
  if (region == nullptr) [[unlikely]]
    return fail(TW_ERR_INVALID, "the remote memory is NULL");
  if (region->peer != &*endpoint->peer) [[unlikely]] {
    return fail(region->peer == nullptr ? TW_ERR_STALE : TW_ERR_INVALID,
                "the remote memory was imported through another endpoint, or through one that is closed");
  }
  return TW_OK;
}
/// The signal of a put, if there is one. TW_ERR_INVALID: it is another endpoint's, or of the other kind.
Status set_signal(OpDesc& op, const tw_endpoint& endpoint, const tw_op_options& options);
/// An operand (`what`) of an atomic operation on a word of `size` bytes: a narrow word would drop its high bits.
Status check_operand(const char* what, size_t size, uint64_t value);
/// An atomic operation on a word of `size` bytes. (All in c_one_sided.cpp.)
Status check_atomic(uint32_t code, size_t size, const RemoteRegion& region, uint64_t offset, uint64_t operand,
                    uint64_t compare);

/// Fills in who is notified behind the data of a put, or behind a signal.
inline Status set_notification(OpDesc& op, const tw_op_options& options) {
  if (options.notify == TW_NOTIFY_NONE) return TW_OK;
  if (options.notify > TW_NOTIFY_HANDLER) return fail(TW_ERR_INVALID, "notify is %u, not one of TW_NOTIFY_*", options.notify);
  if (options.notify == TW_NOTIFY_HANDLER && options.handler >= ActiveTable::kHandlers)
    return fail(TW_ERR_INVALID, "handler %u: ids are below %u", options.handler, ActiveTable::kHandlers);
  op.flags |= kOpNotify;
  op.tag = options.notify == TW_NOTIFY_HANDLER ? options.handler : kNotifyQueue;
  op.immediate = options.immediate;
  return TW_OK;
}

/// Starts an operation whose record is filled in but for what its buffer is: that may have changed since the last run. op's peer,
/// regions and buffer are checked.
Status start_prepared(tw_endpoint& endpoint, OpDesc& op, const Completion& completion);  // local_memory.cpp
/// The short form of a send. TW_AGAIN: it needs the other one.
Status send_prepared(tw_endpoint& endpoint, const void* address, uint64_t length, uint64_t tag);

/// Imports a memory's or a signal's key; asks for its segment where that can be mapped.
Status import_key(tw_endpoint* endpoint, const void* key, size_t key_length, bool signal, RemoteRegion** out);

/// Text or bytes out: *capacity is the room in, the length needed out.
Status copy_out(const void* from, size_t length, void* to, size_t* capacity);

/// Of a request that is alive. (c_request.cpp)
Status find_worker(tw_request request, tw_worker** worker);

/// The sinks in an operation's options: what is notified of its completion.
struct SinkOptions {
  tw_callback callback;
  void* arg;
  tw_completion_queue* queue;
  tw_counter* counter;
  tw_completion* record;
  tw_signal* done;
  uint64_t done_value;
  bool beside_callback() const { return queue != nullptr || counter != nullptr || record != nullptr || done != nullptr; }
  int named() const {
    return (callback != nullptr) + (queue != nullptr) + (counter != nullptr) + (record != nullptr) + (done != nullptr);
  }
};
template <class T>
SinkOptions sinks_of(const T& options) {
  return {options.callback, options.arg, options.queue, options.counter, options.record, options.done, options.done_value};
}
/// completion_of() of any but a callback alone. (c_completion.cpp)
Status check_sinks(const tw_worker& worker, const SinkOptions& given, tw_request* request, Completion* out);
/// TW_ERR_INVALID: more than one, or one of another worker.
[[gnu::always_inline]] inline Status completion_of(const tw_worker& worker, const SinkOptions& given, tw_request* request,
                                                   Completion* out) {
  if (!given.beside_callback()) [[likely]] {
    *out = {request, given.callback != nullptr ? SinkKind::callback : SinkKind::none, {given.callback}, given.arg, 0};
    return TW_OK;
  }
  return check_sinks(worker, given, request, out);
}

/// Posts an operation by post(completion), with the sinks of its options.
template <class Post>
Status post_with_sink(const tw_worker& worker, const SinkOptions& sinks, tw_request* request, const Post& post) {
  Completion completion;
  Status status = completion_of(worker, sinks, request, &completion);
  if (is_error(status)) return status;
  status = post(completion);
  if (status != TW_OK && status != TW_IN_PROGRESS) [[unlikely]]
    note_refused(completion, status);
  return status;
}
template <class T>
Status start_with_sink(const tw_worker& worker, const OpDesc& op, const T& options, tw_request* request) {
  return post_with_sink(worker, sinks_of(options), request,
                        [&](const Completion& completion) { return worker.engine->start(op, completion); });
}

}  // namespace thalweg::impl
