// SPDX-License-Identifier: Apache-2.0
// core.hpp: the C++ view of what thalweg.h itself declares: contexts, workers, connections, memory, messages, stores. Part of
// thalweg.hpp, whose conventions hold.
#pragma once
#if __cplusplus <= 201703L
#error "thalweg.hpp needs C++20: compile with -std=c++20 (CMake's target thalweg::thalweg asks for it; thalweg.h needs C99)"
#else
#include <thalweg/thalweg.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

/// What set-up throws: the status and the library's text with its remedy.
class Error : public std::runtime_error {
 public:
  explicit Error(tw_status status, const std::string& text = tw_last_error())
      : std::runtime_error(std::string(tw_status_name(status)) + ": " + text), status_(status) {}
  [[nodiscard]] tw_status status() const noexcept { return status_; }

 private:
  tw_status status_;
};

namespace detail {

inline void check(tw_status status) {
  if (status < 0) throw Error(status);
}

/// A C handle with the function that ends it.
template <class T, auto End>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T* handle) : handle_(handle) {}
  T* get() const noexcept { return handle_.get(); }
  T* release() noexcept { return handle_.release(); }
  /// Ends it, and says how that went: what C refuses to end stays.
  [[nodiscard]] tw_status end() noexcept
    requires std::is_same_v<decltype(End(static_cast<T*>(nullptr))), tw_status>
  {
    const tw_status status = handle_ ? End(get()) : tw_status{TW_OK};
    if (status == TW_OK) static_cast<void>(release());
    return status;
  }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  struct Ender {
    void operator()(T* handle) const noexcept { static_cast<void>(End(handle)); }
  };
  std::unique_ptr<T, Ender> handle_;
};

template <class F>
std::string text_of(F ask) {
  size_t length = 0;
  check(ask(nullptr, &length));
  for (;;) {  // it may have grown since it was asked for
    std::string text(length, '\0');
    const tw_status status = ask(text.data(), &length);
    if (status == TW_ERR_INVALID && length > text.size()) continue;
    check(status);
    text.resize(length == 0 ? 0 : length - 1);
    return text;
  }
}

/// Bytes whose size is asked first: keys, addresses.
template <class F>
std::string bytes_of(F ask) {
  size_t size = 0;
  check(ask(nullptr, &size));
  std::string bytes(size, '\0');
  check(ask(bytes.data(), &size));
  bytes.resize(size);
  return bytes;
}

/// A time that is over already is none, and not the number without a sign that means for ever.
inline uint64_t nanoseconds(std::optional<std::chrono::nanoseconds> time) {
  if (!time) return TW_FOREVER;
  return time->count() > 0 ? static_cast<uint64_t>(time->count()) : 0;
}

}  // namespace detail

/// Throws the error of a status of the data path: check(plan.run()).
inline void check(tw_status status) { detail::check(status); }

/// Bytes of any contiguous range of trivially copyable values.
class ConstBytes {
 public:
  ConstBytes() = default;
  ConstBytes(const void* data, size_t size) : data_(data), size_(size) {}
  template <class T, size_t N>
    requires std::is_trivially_copyable_v<T>
  ConstBytes(std::span<T, N> from) : data_(from.data()), size_(from.size_bytes()) {}
  template <class R>
    requires(!std::is_same_v<std::remove_cvref_t<R>, ConstBytes> && requires(R& range) { std::span(range); })
  ConstBytes(R&& from) : ConstBytes(std::span(from)) {}
  const void* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
};

/// The same, to be written into.
class Bytes {
 public:
  Bytes() = default;
  Bytes(void* data, size_t size) : data_(data), size_(size) {}
  template <class T, size_t N>
    requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>)
  Bytes(std::span<T, N> to) : data_(to.data()), size_(to.size_bytes()) {}
  template <class R>
    requires(!std::is_same_v<std::remove_cvref_t<R>, Bytes> && requires(R& range) { std::span(range); })
  Bytes(R&& to) : Bytes(std::span(to)) {}
  void* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// A request that releases itself. Empty: nothing to wait for. Letting go of a running one does not stop it.
class [[nodiscard]] Request {
 public:
  Request() = default;
  explicit Request(tw_request number) : number_(number) {}
  Request(Request&& other) noexcept : number_(std::exchange(other.number_, TW_REQUEST_NONE)) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, TW_REQUEST_NONE);
    }
    return *this;
  }
  ~Request() { reset(); }
  [[nodiscard]] bool done() const noexcept { return tw_request_test(number_) != TW_IN_PROGRESS; }
  [[nodiscard]] tw_status test() const noexcept { return tw_request_test(number_); }
  /// Progresses until done. The request stays: info() and message() may follow.
  [[nodiscard]] tw_status wait(std::optional<std::chrono::nanoseconds> timeout = {}) noexcept {
    return number_ == TW_REQUEST_NONE ? TW_OK : tw_request_wait(number_, detail::nanoseconds(timeout));
  }
  [[nodiscard]] tw_status cancel() noexcept { return tw_request_cancel(number_); }
  /// Reports completion to the queue, counter, record or signal of the options; tw_request_tell.
  void tell(const tw_op_options* options) const { detail::check(tw_request_tell(number_, options)); }
  /// Later work of the stream (CUstream, cudaStream_t) waits until the request has ended; tw_request_before.
  void before(const void* stream) const { detail::check(tw_request_before(number_, stream)); }
  tw_recv_info info() const noexcept {
    tw_recv_info info{};
    (void)tw_request_info(number_, &info);
    return info;
  }
  const char* message() const noexcept { return tw_request_message(number_); }
  tw_request number() const noexcept { return number_; }
  /// The number, which is the caller's to release from now on.
  [[nodiscard]] tw_request detach() noexcept { return std::exchange(number_, TW_REQUEST_NONE); }
  void reset() noexcept {
    if (number_ != TW_REQUEST_NONE) (void)tw_request_release(std::exchange(number_, TW_REQUEST_NONE));
  }
  /// Where a C call stores its number.
  tw_request* out() noexcept {
    reset();
    return &number_;
  }

 private:
  tw_request number_ = TW_REQUEST_NONE;
};

/// Progresses until one of them is done, however it ended: TW_OK and its index; tw_request_wait_any.
[[nodiscard]] inline tw_status wait_any(std::span<const Request> requests, std::optional<std::chrono::nanoseconds> timeout,
                                        size_t* index) {
  std::vector<tw_request> numbers;
  numbers.reserve(requests.size());
  for (const Request& request : requests) numbers.push_back(request.number());
  return tw_request_wait_any(numbers.data(), numbers.size(), detail::nanoseconds(timeout), index);
}

/// Numbers of an array's dimensions, of any integer type: {nz, ny, nx}.
class Dimensions {
 public:
  template <class... N>
    requires(std::is_integral_v<N> && ...)
  Dimensions(N... numbers) : numbers_{static_cast<uint64_t>(numbers)...} {}
  operator std::span<const uint64_t>() const noexcept { return numbers_; }

 private:
  std::vector<uint64_t> numbers_;
};

namespace detail {

/// A call of a user's, which may throw: its status.
template <class Call>
int64_t status_of(const Call& call) noexcept {
  try {
    return call();
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return TW_ERR_NO_MEMORY;
  } catch (...) {
    return TW_ERR_INVALID;
  }
}

/// The functions of a layout of callbacks over a user's type.
template <class Type>
struct Callbacks {
  using State = decltype(std::declval<Type&>().start(static_cast<const void*>(nullptr), size_t{0}, 0));

  static tw_status start(void* type, const void* buffer, size_t length, int direction, void** state) {
    return static_cast<tw_status>(status_of([&] {
      *state = new State(static_cast<Type*>(type)->start(buffer, length, direction));
      return TW_OK;
    }));
  }
  static size_t packed_size(void* state) { return static_cast<State*>(state)->packed_size(); }
  static void finish(void* state) { delete static_cast<State*>(state); }
  static void destroy(void* type) { delete static_cast<Type*>(type); }

  static tw_layout_callbacks_options options() {
    tw_layout_callbacks_options made = TW_LAYOUT_CALLBACKS_OPTIONS_INIT;
    made.start = &start;
    made.packed_size = &packed_size;
    made.finish = &finish;
    made.destroy = &destroy;
    if constexpr (requires(State& state, std::span<std::byte> to) { state.pack(uint64_t{0}, to); }) {
      made.pack = [](void* state, uint64_t offset, void* to, size_t length) {
        return status_of([&] {
          return static_cast<int64_t>(static_cast<State*>(state)->pack(offset, std::span(static_cast<std::byte*>(to), length)));
        });
      };
    }
    if constexpr (requires(State& state, std::span<const std::byte> from) { state.unpack(uint64_t{0}, from); }) {
      made.unpack = [](void* state, uint64_t offset, const void* from, size_t length) {
        return static_cast<tw_status>(status_of([&] {
          static_cast<State*>(state)->unpack(offset, std::span(static_cast<const std::byte*>(from), length));
          return TW_OK;
        }));
      };
    }
    return made;
  }
};

}  // namespace detail

class [[nodiscard]] Layout {
 public:
  static Layout strided(size_t block, std::span<const uint64_t> count, std::span<const int64_t> stride) {
    if (count.size() != stride.size()) throw Error(TW_ERR_INVALID, "as many strides as counts are needed");
    tw_layout* made = nullptr;
    detail::check(tw_layout_strided(static_cast<unsigned>(count.size()), block, count.data(), stride.data(), &made));
    return Layout(made);
  }
  static Layout subarray(std::span<const uint64_t> shape, std::span<const uint64_t> extent, std::span<const uint64_t> start,
                         size_t element, int order = TW_ORDER_C) {
    if (shape.size() != extent.size() || shape.size() != start.size()) {
      throw Error(TW_ERR_INVALID, "shape, extent and start must have as many dimensions");
    }
    tw_layout* made = nullptr;
    detail::check(tw_layout_subarray(static_cast<unsigned>(shape.size()), shape.data(), extent.data(), start.data(), element,
                                     order, &made));
    return Layout(made);
  }
  /// Of an array of T.
  template <class T>
  static Layout subarray(const Dimensions& shape, const Dimensions& extent, const Dimensions& start, int order = TW_ORDER_C) {
    return subarray(shape, extent, start, sizeof(T), order);
  }
  static Layout pieces(std::span<const tw_piece> pieces) {
    tw_layout* made = nullptr;
    detail::check(tw_layout_pieces(pieces.data(), pieces.size(), &made));
    return Layout(made);
  }
  /// Of the user's own functions; tw_layout_callbacks. `type`.start(buffer, length, direction) gives what one operation needs, an object
  /// that ends with it, with
  ///   size_t packed_size() noexcept
  ///   size_t pack(uint64_t offset, std::span<std::byte> to)            of what is sent: the bytes written, at least one
  ///   void unpack(uint64_t offset, std::span<const std::byte> from)    of what is received
  /// What start, pack and unpack throw ends the operation: an Error with its status, others as TW_ERR_INVALID.
  template <class Type>
  static Layout callbacks(Type type) {
    auto kept = std::make_unique<Type>(std::move(type));
    tw_layout_callbacks_options options = detail::Callbacks<Type>::options();
    options.arg = kept.get();
    tw_layout* made = nullptr;
    detail::check(tw_layout_callbacks(&options, &made));
    static_cast<void>(kept.release());
    return Layout(made);
  }
  size_t bytes() const noexcept { return tw_layout_bytes(get()); }
  tw_layout* get() const noexcept { return handle_.get(); }

 private:
  explicit Layout(tw_layout* layout) : handle_(layout) {}
  detail::Handle<tw_layout, tw_layout_destroy> handle_;
};

struct ContextOptions : tw_context_options {
  ContextOptions() : tw_context_options TW_CONTEXT_OPTIONS_INIT {}
};
struct WorkerOptions : tw_worker_options {
  WorkerOptions() : tw_worker_options TW_WORKER_OPTIONS_INIT {}
};
struct EndpointOptions : tw_endpoint_options {
  EndpointOptions() : tw_endpoint_options TW_ENDPOINT_OPTIONS_INIT {}
};

struct MemoryInfo : tw_memory_info {
  MemoryInfo() : tw_memory_info TW_MEMORY_INFO_INIT {}
};
/// What lies at an address: tw_memory_query.
inline MemoryInfo memory_query(const void* address) {
  MemoryInfo info;
  detail::check(tw_memory_query(address, &info));
  return info;
}

/// The destructor cannot report that a peer is in the middle of a copy: the memory stays then, until its context ends. Who needs to
/// know calls release().
class [[nodiscard]] Memory {
 public:
  Memory() = default;
  explicit Memory(tw_memory* memory) : handle_(memory) {}
  void* data() const noexcept { return tw_memory_address(handle_.get()); }
  size_t size() const noexcept { return tw_memory_length(handle_.get()); }
  template <class T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(data()), size() / sizeof(T)};
  }
  [[nodiscard]] std::string key() const { return key(0, 0, 0); }
  [[nodiscard]] std::string key(size_t offset, size_t length, uint32_t access) const {
    return detail::bytes_of(
        [&](void* key, size_t* size) { return tw_memory_export_range(handle_.get(), offset, length, access, key, size); });
  }
  tw_memory* get() const noexcept { return handle_.get(); }
  /// TW_OK: it is released. TW_ERR_BUSY: it still exists (tw_memory_release).
  [[nodiscard]] tw_status release() noexcept {
    const tw_status status = handle_ ? tw_memory_release(get()) : tw_status{TW_OK};
    if (status == TW_OK) handle_.release();
    return status;
  }

 private:
  detail::Handle<tw_memory, tw_memory_release> handle_;
};

class [[nodiscard]] Context {
 public:
  explicit Context(const tw_context_options& options = ContextOptions()) {
    tw_context* made = nullptr;
    detail::check(tw_context_create(&options, &made));
    handle_ = detail::Handle<tw_context, tw_context_destroy>(made);
  }
  explicit Context(tw_context* context) : handle_(context) {}
  [[nodiscard]] std::string info() const {
    return detail::text_of([this](char* to, size_t* length) { return tw_context_info(get(), to, length); });
  }
  [[nodiscard]] std::string counters() const {
    return detail::text_of([this](char* to, size_t* length) { return tw_context_counters(get(), to, length); });
  }
  /// Records the timeline of the process into `file`, until end_trace() or the end of the context.
  void trace(const char* file) const { detail::check(tw_context_trace(get(), file)); }
  void end_trace() const { detail::check(tw_context_trace(get(), nullptr)); }
  /// place: "host", "pinned", "cuda:1", ... (thalweg/places.h). The host may not touch a device's.
  Memory allocate(size_t length, const char* place = "host") const {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    tw_memory* made = nullptr;
    detail::check(tw_memory_allocate(get(), length, &options, &made));
    return Memory(made);
  }
  /// Blocking, between any two memories: tw_memory_copy.
  void copy(void* to, const void* from, size_t length) const { detail::check(tw_memory_copy(get(), to, from, length)); }
  Memory register_memory(Bytes memory) const {
    tw_memory* made = nullptr;
    detail::check(tw_memory_register(get(), memory.data(), memory.size(), nullptr, &made));
    return Memory(made);
  }
  tw_context* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_context, tw_context_destroy> handle_;
};

class [[nodiscard]] RemoteMemory {
 public:
  RemoteMemory() = default;
  explicit RemoteMemory(tw_remote_memory* remote) : handle_(remote) {}
  size_t size() const noexcept { return tw_remote_memory_length(handle_.get()); }
  /// Where loads and stores reach it; null when they cannot.
  [[nodiscard]] void* map() const noexcept {
    void* address = nullptr;
    return tw_remote_memory_map(handle_.get(), &address) == TW_OK ? address : nullptr;
  }
  /// The ways of a "put", "get" or "atomic" to this memory.
  [[nodiscard]] std::string explain(const char* verb, size_t length) const {
    return detail::text_of([&](char* to, size_t* size) { return tw_remote_memory_explain(get(), verb, length, to, size); });
  }
  tw_remote_memory* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_remote_memory, tw_remote_memory_release> handle_;
};

class [[nodiscard]] RemoteSignal {
 public:
  RemoteSignal() = default;
  explicit RemoteSignal(tw_remote_signal* remote) : handle_(remote) {}
  [[nodiscard]] tw_status post(uint64_t value, const tw_op_options* options = nullptr) const noexcept {
    return tw_signal_post(handle_.get(), value, options, nullptr);
  }
  [[nodiscard]] tw_status post(uint64_t value, Request& request, const tw_op_options* options = nullptr) const noexcept {
    return tw_signal_post(handle_.get(), value, options, request.out());
  }
  tw_remote_signal* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_remote_signal, tw_remote_signal_release> handle_;
};

class [[nodiscard]] Signal {
 public:
  explicit Signal(tw_signal* signal) : handle_(signal) {}
  uint64_t read() const noexcept { return tw_signal_read(handle_.get()); }
  [[nodiscard]] tw_status reset(uint64_t value) const noexcept { return tw_signal_reset(handle_.get(), value); }
  [[nodiscard]] bool test(uint64_t value, uint32_t compare = TW_COMPARE_GE) const noexcept {
    return tw_signal_test(handle_.get(), value, compare) == TW_OK;
  }
  [[nodiscard]] tw_status wait(uint64_t value, uint32_t compare = TW_COMPARE_GE,
                               std::optional<std::chrono::nanoseconds> timeout = {}) const noexcept {
    return tw_signal_wait(handle_.get(), value, compare, detail::nanoseconds(timeout));
  }
  [[nodiscard]] std::string key() const {
    return detail::bytes_of([this](void* key, size_t* size) { return tw_signal_export(handle_.get(), key, size); });
  }
  tw_signal* get() const noexcept { return handle_.get(); }
  /// TW_ERR_BUSY: operations will end in it, and it still exists. The destructor cannot report that: it leaves it there.
  [[nodiscard]] tw_status destroy() noexcept { return handle_.end(); }

 private:
  detail::Handle<tw_signal, tw_signal_destroy> handle_;
};

/// Completion queue of operations that name it in OpOptions::queue or Request::tell: thalweg/completions.h.
class [[nodiscard]] CompletionQueue {
 public:
  CompletionQueue() = default;
  explicit CompletionQueue(tw_completion_queue* queue) : handle_(queue) {}
  /// The entries that are there, at most entries.size(); their pointers are valid until the next call.
  [[nodiscard]] std::span<tw_completion> poll(std::span<tw_completion> entries) const {
    size_t taken = 0;
    detail::check(tw_completion_queue_poll(get(), entries.data(), entries.size(), &taken));
    return entries.first(taken);
  }
  /// The same, progressing until there is one; none after the timeout.
  [[nodiscard]] std::span<tw_completion> wait(std::span<tw_completion> entries,
                                              std::optional<std::chrono::nanoseconds> timeout = {}) const {
    size_t taken = 0;
    const tw_status status =
        tw_completion_queue_wait(get(), entries.data(), entries.size(), detail::nanoseconds(timeout), &taken);
    if (status != TW_ERR_TIMED_OUT) detail::check(status);
    return entries.first(taken);
  }
  tw_completion_queue* get() const noexcept { return handle_.get(); }
  /// TW_ERR_BUSY: operations will end in it, and it still exists. The destructor cannot report that: it leaves it there.
  [[nodiscard]] tw_status destroy() noexcept { return handle_.end(); }

 private:
  detail::Handle<tw_completion_queue, tw_completion_queue_destroy> handle_;
};

/// Counts operations that name it in OpOptions::counter.
class [[nodiscard]] Counter {
 public:
  Counter() = default;
  explicit Counter(tw_counter* counter) : handle_(counter) {}
  uint64_t completed() const {
    uint64_t count = 0;
    detail::check(tw_counter_read(get(), &count, nullptr));
    return count;
  }
  uint64_t failed() const {
    uint64_t count = 0;
    detail::check(tw_counter_read(get(), nullptr, &count));
    return count;
  }
  /// Progresses until that many have ended, well or not.
  [[nodiscard]] tw_status wait(uint64_t total, std::optional<std::chrono::nanoseconds> timeout = {}) const noexcept {
    return tw_counter_wait(get(), total, detail::nanoseconds(timeout));
  }
  tw_counter* get() const noexcept { return handle_.get(); }
  /// TW_ERR_BUSY: operations will end in it, and it still exists. The destructor cannot report that: it leaves it there.
  [[nodiscard]] tw_status destroy() noexcept { return handle_.end(); }

 private:
  detail::Handle<tw_counter, tw_counter_destroy> handle_;
};

/// A connection. The destructor closes by force: close() first to deliver what is queued.
class [[nodiscard]] Endpoint {
 public:
  Endpoint() = default;
  explicit Endpoint(tw_endpoint* endpoint) : handle_(endpoint) {}
  [[nodiscard]] tw_status state() const noexcept { return tw_endpoint_state(get()); }
  /// Progresses until connected; throws when that fails.
  void wait(std::optional<std::chrono::nanoseconds> timeout = {}) const {
    detail::check(tw_endpoint_wait(get(), detail::nanoseconds(timeout)));
  }
  std::string_view transport() const noexcept { return tw_endpoint_transport(get()); }
  /// Can no third party read or change what travels? (Not over plain tcp.)
  bool is_protected() const noexcept { return tw_endpoint_protected(get()) != 0; }
  std::string_view data() const noexcept {
    size_t length = 0;
    const void* data = tw_endpoint_data(get(), &length);
    return {static_cast<const char*>(data), length};
  }
  [[nodiscard]] std::string explain(const char* verb, size_t length) const {
    return detail::text_of([&](char* to, size_t* size) { return tw_endpoint_explain(get(), verb, length, to, size); });
  }
  /// Of a local buffer, which may be device memory; remote: the target of a put, get or atomic.
  [[nodiscard]] std::string explain(const char* verb, ConstBytes buffer, tw_remote_memory* remote = nullptr,
                                    const tw_op_options* options = nullptr) const {
    return detail::text_of([&](char* to, size_t* size) {
      return tw_endpoint_explain_buffer(get(), verb, buffer.data(), buffer.size(), remote, options, to, size);
    });
  }
  /// Flushes, notifies the peer, ends the handle. It is kept with TW_ERR_BUSY, in a handler that would have to wait, and TW_ERR_LIMIT, where
  /// no request is left.
  [[nodiscard]] tw_status close() noexcept {
    const tw_status status = tw_endpoint_close(get(), TW_CLOSE_GRACEFUL, nullptr);
    if (status != TW_ERR_BUSY && status != TW_ERR_LIMIT) static_cast<void>(handle_.release());
    return status;
  }

  // --- messages
  [[nodiscard]] tw_status send(ConstBytes from, uint64_t tag, Request& request,
                               const tw_op_options* options = nullptr) const noexcept {
    return tw_send(get(), from.data(), from.size(), tag, options, request.out());
  }
  [[nodiscard]] tw_status send_blocking(ConstBytes from, uint64_t tag) const noexcept {
    return tw_send_blocking(get(), from.data(), from.size(), tag);
  }
  [[nodiscard]] tw_status am_send(uint16_t id, ConstBytes header, ConstBytes from, Request& request,
                                  const tw_op_options* options = nullptr) const noexcept {
    return tw_am_send(get(), id, header.data(), header.size(), from.data(), from.size(), options, request.out());
  }
  [[nodiscard]] tw_status bytes_send(ConstBytes from, Request& request, const tw_op_options* options = nullptr) const noexcept {
    return tw_bytes_send(get(), from.data(), from.size(), options, request.out());
  }
  [[nodiscard]] tw_status bytes_recv(Bytes to, Request& request, const tw_op_options* options = nullptr) const noexcept {
    return tw_bytes_recv(get(), to.data(), to.size(), options, request.out());
  }

  // --- one-sided
  RemoteMemory import_memory(std::string_view key) const {
    tw_remote_memory* made = nullptr;
    detail::check(tw_memory_import(get(), key.data(), key.size(), &made));
    return RemoteMemory(made);
  }
  RemoteSignal import_signal(std::string_view key) const {
    tw_remote_signal* made = nullptr;
    detail::check(tw_signal_import(get(), key.data(), key.size(), &made));
    return RemoteSignal(made);
  }
  [[nodiscard]] tw_status put(ConstBytes from, const RemoteMemory& to, uint64_t offset, Request& request,
                              const tw_op_options* options = nullptr) const noexcept {
    return tw_put(get(), from.data(), from.size(), to.get(), offset, options, request.out());
  }
  [[nodiscard]] tw_status get(Bytes to, const RemoteMemory& from, uint64_t offset, Request& request,
                              const tw_op_options* options = nullptr) const noexcept {
    return tw_get(get(), to.data(), to.size(), from.get(), offset, options, request.out());
  }
  [[nodiscard]] tw_status atomic(uint32_t op, const RemoteMemory& at, uint64_t offset, size_t size, uint64_t operand,
                                 uint64_t compare, void* result, Request& request,
                                 const tw_op_options* options = nullptr) const noexcept {
    return tw_atomic(get(), op, at.get(), offset, size, operand, compare, result, options, request.out());
  }
  [[nodiscard]] tw_status flush(Request& request) const noexcept { return tw_endpoint_flush(get(), request.out()); }
  [[nodiscard]] tw_status fence() const noexcept { return tw_endpoint_fence(get()); }
  tw_endpoint* get() const noexcept { return handle_.get(); }
  operator tw_endpoint*() const noexcept { return get(); }  // for the C functions, and plans

 private:
  static void end(tw_endpoint* endpoint) noexcept { (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr); }
  detail::Handle<tw_endpoint, &Endpoint::end> handle_;
};

/// A client that waits for accept or reject. The destructor rejects it.
class [[nodiscard]] ConnectionRequest {
 public:
  explicit ConnectionRequest(tw_connection_request* request) : handle_(request) {}
  std::string_view data() const noexcept {
    size_t length = 0;
    const void* data = tw_connection_request_data(handle_.get(), &length);
    return {static_cast<const char*>(data), length};
  }
  std::string_view peer() const noexcept { return tw_connection_request_peer(handle_.get()); }
  Endpoint accept(const tw_endpoint_options& options = EndpointOptions()) {
    tw_endpoint* made = nullptr;
    detail::check(tw_accept(handle_.get(), &options, &made));
    handle_.release();
    return Endpoint(made);
  }
  void reject(ConstBytes data = {}) {
    detail::check(tw_reject(handle_.get(), data.data(), data.size()));
    handle_.release();
  }

 private:
  static void end(tw_connection_request* request) noexcept { (void)tw_reject(request, nullptr, 0); }
  detail::Handle<tw_connection_request, &ConnectionRequest::end> handle_;
};

class [[nodiscard]] Listener {
 public:
  explicit Listener(tw_listener* listener) : handle_(listener) {}
  uint16_t port() const noexcept { return tw_listener_port(handle_.get()); }
  /// The next waiting request, if there is one.
  [[nodiscard]] std::optional<ConnectionRequest> next() const {
    tw_connection_request* request = nullptr;
    const tw_status status = tw_listener_next(handle_.get(), &request);
    detail::check(status);
    if (status == TW_AGAIN) return std::nullopt;
    return ConnectionRequest(request);
  }

 private:
  detail::Handle<tw_listener, tw_listener_close> handle_;
};

class [[nodiscard]] Worker {
 public:
  explicit Worker(const Context& context, const tw_worker_options& options = WorkerOptions()) {
    tw_worker* made = nullptr;
    detail::check(tw_worker_create(context.get(), &options, &made));
    handle_ = detail::Handle<tw_worker, tw_worker_destroy>(made);
  }
  explicit Worker(tw_worker* worker) : handle_(worker) {}
  unsigned progress() const noexcept { return tw_worker_progress(get()); }
  [[nodiscard]] tw_status wait(std::optional<std::chrono::nanoseconds> timeout = {}) const noexcept {
    return tw_worker_wait(get(), detail::nanoseconds(timeout));
  }
  void wake() const noexcept { (void)tw_worker_wake(get()); }
  [[nodiscard]] int fd() const {
    int fd = -1;
    detail::check(tw_worker_fd(get(), &fd));
    return fd;
  }
  [[nodiscard]] tw_status arm() const noexcept { return tw_worker_arm(get()); }
  [[nodiscard]] std::string address() const {
    return detail::bytes_of([this](void* address, size_t* size) { return tw_worker_address(get(), address, size); });
  }
  Endpoint connect(std::string_view address, const tw_endpoint_options& options = EndpointOptions()) const {
    tw_endpoint* made = nullptr;
    detail::check(tw_connect(get(), address.data(), address.size(), &options, &made));
    return Endpoint(made);
  }
  Endpoint connect_to(const std::string& address, const tw_endpoint_options& options = EndpointOptions()) const {
    tw_endpoint* made = nullptr;
    detail::check(tw_connect_to(get(), address.c_str(), &options, &made));
    return Endpoint(made);
  }
  Listener listen(const std::string& address) const {
    tw_listener* made = nullptr;
    detail::check(tw_listen(get(), address.c_str(), nullptr, &made));
    return Listener(made);
  }
  [[nodiscard]] tw_status recv(Bytes to, uint64_t tag, Request& request, uint64_t mask = UINT64_MAX,
                               const tw_op_options* options = nullptr) const noexcept {
    return tw_recv(get(), to.data(), to.size(), tag, mask, options, request.out());
  }
  [[nodiscard]] tw_status recv_blocking(Bytes to, uint64_t tag, tw_recv_info* info = nullptr,
                                        uint64_t mask = UINT64_MAX) const noexcept {
    return tw_recv_blocking(get(), to.data(), to.size(), tag, mask, info);
  }
  [[nodiscard]] tw_status probe(uint64_t tag, tw_recv_info& info, uint64_t mask = UINT64_MAX) const noexcept {
    return tw_probe(get(), tag, mask, nullptr, &info, nullptr);
  }
  void am_register(uint16_t id, tw_am_handler handler, void* arg) const {
    detail::check(tw_am_register(get(), id, handler, arg));
  }
  /// The next notification of peers, if there is one.
  [[nodiscard]] std::optional<tw_notification> next_notification() const {
    tw_notification next{};
    const tw_status status = tw_worker_next_notification(get(), &next);
    detail::check(status);
    return status == TW_OK ? std::optional(next) : std::nullopt;
  }
  [[nodiscard]] tw_status flush(Request& request) const noexcept { return tw_worker_flush(get(), request.out()); }
  /// notifications: of peers, as entries.
  CompletionQueue completion_queue(bool notifications = false) const {
    tw_completion_queue_options options = TW_COMPLETION_QUEUE_OPTIONS_INIT;
    options.notifications = notifications ? 1 : 0;
    tw_completion_queue* made = nullptr;
    detail::check(tw_completion_queue_create(get(), &options, &made));
    return CompletionQueue(made);
  }
  Counter counter() const {
    tw_counter* made = nullptr;
    detail::check(tw_counter_create(get(), &made));
    return Counter(made);
  }
  Signal signal(uint32_t kind = TW_SIGNAL_SET, uint64_t initial = 0) const {
    tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
    options.kind = kind;
    options.initial = initial;
    tw_signal* made = nullptr;
    detail::check(tw_signal_create(get(), &options, &made));
    return Signal(made);
  }
  tw_worker* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_worker, tw_worker_destroy> handle_;
};

class [[nodiscard]] Store {
 public:
  /// address null: THALWEG_STORE; without options rank and count come from THALWEG_RANK and THALWEG_SIZE, else 0 of 1.
  explicit Store(const char* address = nullptr, const tw_store_options* options = nullptr) {
    tw_store* made = nullptr;
    detail::check(tw_store_open(address, options, &made));
    handle_ = detail::Handle<tw_store, tw_store_close>(made);
  }
  [[nodiscard]] std::string address() const { return tw_store_address(get()); }
  uint32_t rank() const noexcept { return tw_store_rank(get()); }
  uint32_t count() const noexcept { return tw_store_count(get()); }
  void put(const std::string& key, ConstBytes value) const {
    detail::check(tw_store_put(get(), key.c_str(), value.data(), value.size()));
  }
  /// Waits until the key is there.
  std::string wait(const std::string& key) const {
    std::string value(256, '\0');
    for (;;) {
      size_t length = value.size();
      const tw_status status = tw_store_wait(get(), key.c_str(), value.data(), &length);
      if (status != TW_ERR_TRUNCATED) detail::check(status);
      value.resize(length);
      if (status == TW_OK) return value;
    }
  }
  void barrier() const { detail::check(tw_store_barrier(get())); }
  tw_store* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<tw_store, tw_store_close> handle_;
};

}  // namespace thalweg
#endif
