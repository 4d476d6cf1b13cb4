// SPDX-License-Identifier: Apache-2.0
// The Python objects' C++ halves. A child holds a reference to its parent's Python object (worker -> context, endpoint ->
// worker, ...), so that C handles are always ended children first, whatever order the interpreter drops things in.
// Everything here is touched with the GIL held unless a comment says otherwise.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <thalweg/thalweg.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gil.hpp"

namespace thalweg::python {

/// Counts forks of this process: what was made in an earlier generation belongs to the parent and is left alone.
int fork_generation() noexcept;

/// Takes out of os.environ what the library has taken out of the environment.
void hide_job_key();

class BufferView;

/// What was dropped while the library used it, with all that it uses.
struct Dropped {
  virtual ~Dropped() = default;
  virtual bool end() noexcept = 0;  ///< false: still in use, try later. With the GIL held
};

struct Context {
  static constexpr size_t kDroppedMax = 64;
  tw_context* handle = nullptr;
  int generation = fork_generation();
  int children = 0;  ///< live workers and memories: they must end first
  /// Memory that was dropped while a peer was in the middle of a copy, with the buffers that it uses: ended with the
  /// context.
  std::vector<std::pair<tw_memory*, std::shared_ptr<BufferView>>> unreleased;
  /// Plans that were dropped while they ran. Tried again when a plan is made or ended, when a worker is closed, and at the
  /// end.
  std::vector<std::unique_ptr<Dropped>> dropped;

  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { close(); }
  void close() noexcept;
  void end_dropped() noexcept;
  bool alive() const { return handle != nullptr && generation == fork_generation(); }
  tw_context* get() const;  ///< raises when closed
};

/// An active message taken from progress, waiting for its Python handler.
struct AmRecord {
  tw_endpoint* endpoint;
  uint16_t id;
  std::string header, data;
  size_t length;
  tw_am_data* descriptor;  ///< null: data holds the payload, or it was received
  bool here;               ///< the descriptor names a short one that has arrived
  size_t bytes() const { return sizeof *this + header.size() + data.size(); }
};

/// While one of these lives its Memory may not be released.
class Loan {
 public:
  Loan() = default;
  explicit Loan(nb::handle memory);
  Loan(const Loan& other) : Loan(nb::handle(other.memory_)) {}
  Loan(Loan&& other) noexcept : memory_(std::move(other.memory_)) {}
  Loan& operator=(Loan other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Loan();

 private:
  nb::object memory_;  ///< invalid: of none
};

struct Worker {
  nb::object context;
  tw_worker* handle = nullptr;
  int generation = fork_generation();
  bool multi = false, progress_thread = false;
  int waiters = 0;                                        ///< threads that are inside without the GIL; counted with it
  std::atomic<bool> closing{false};                       ///< they are to leave
  mutable bool touched = false;                           ///< entered since the event loop's last turn
  bool armed = false;                                     ///< an event loop sleeps on its descriptor
  nb::object on_disarm;                                   ///< the event loop's: called when something else progresses then
  nb::object on_close;                                    ///< the event loop's: called before the worker ends
  std::vector<nb::object> watched;                        ///< requests an event loop waits for
  std::vector<nb::object> orphans;                        ///< requests dropped by Python while the library used their buffers
  size_t next_orphan = 0;                                 ///< to be looked at
  std::thread::id inside{};                               ///< runs handlers in the middle of a call that waits
  nb::object raised;                                      ///< by a handler, for the next call; counted in am_waiting
  std::vector<std::pair<uint16_t, nb::object>> handlers;  ///< active message id -> callable
  std::mutex am_mutex;
  std::deque<AmRecord> am_queue;  ///< filled inside progress, by any thread, without the GIL
  size_t am_bytes = 0;            ///< of that queue
  std::atomic<size_t> am_waiting{0};
  std::vector<std::function<void()>> after_close;  ///< ends of sinks that operations under way still had
  std::vector<std::function<void()>> handed_over;  ///< what destructors on other threads could not do at once
  /// Endpoint::kept of those that have no Python object now. Its address is the user of their endpoints meanwhile.
  std::unordered_map<tw_endpoint*, nb::object> kept;

  ~Worker() { close(); }
  void close() noexcept;
  tw_worker* get() const;    ///< raises when closed
  tw_worker* enter() const;  ///< as get, and refuses a second thread on a single-thread worker
  bool alive() const { return handle != nullptr && generation == fork_generation(); }
  bool entered_elsewhere() const { return waiters > 0 && !multi && alive() && inside != std::this_thread::get_id(); }
  /// Ends an object of this worker: now, or when the thread leaves that is inside; because a destructor runs on any thread.
  template <class End>
  void in_turn(End&& end) noexcept {
    if (!alive()) return;
    if (!entered_elsewhere()) return end();
    handed_over.emplace_back(std::forward<End>(end));
  }
  /// Ends what operations end in: in its turn, or with the worker where some are under way. `where` stays until then.
  template <class Handle>
  void end_sink(Handle* handle, tw_status (*destroy)(Handle*), const Loan& where = {}) noexcept {
    if (!alive()) {
      (void)destroy(handle);
      return;
    }
    in_turn([this, handle, destroy, where] {
      if (destroy(handle) == TW_ERR_BUSY) after_close.emplace_back([handle, destroy, where] { (void)destroy(handle); });
    });
  }
  /// Ends an import: in its turn, or behind its worker, where that was closed first.
  template <class Handle>
  void end_import(Handle* import, void (*release)(Handle*)) noexcept {
    if (generation != fork_generation()) return;
    if (handle == nullptr) return release(import);
    in_turn([import, release] { release(import); });
  }
  /// Before whatever progresses, which ends the arming of the descriptor, or ends requests: the event loop has to look, and
  /// arm again.
  void disarm() noexcept {
    if (armed) [[unlikely]]
      tell_disarmed();
  }
  void tell_disarmed() noexcept;
  void tell_closing() noexcept;
  void keep(tw_endpoint* endpoint, nb::object what) noexcept;
  nb::object take_kept(tw_endpoint* endpoint) noexcept;  ///< not valid: nothing was kept
  void left() noexcept;                                  ///< a waiter is out: what was handed over is done by the last one
  void end_handed() noexcept;
  /// A call of this thread's has progressed with the GIL, and a function of Python's ran meanwhile.
  void progressed() noexcept {
    if (!handed_over.empty() && waiters == 0) [[unlikely]]
      end_handed();
  }
  bool leave_all() noexcept;  ///< wakes the waiters and waits until they are out, with the GIL released; false: one stays
  /// Ends those of the dropped requests that are over; looks at `most` of them, one behind the other.
  void reap_orphans(size_t most = SIZE_MAX) noexcept;
  /// Runs the handlers of waiting active messages; false: none waited. Raises what one of them, or of an earlier call, raised.
  bool dispatch();
  /// The same in the middle of a call of this thread that waits: what they raise is for the next call.
  void dispatch_inside() noexcept;
  bool run_handlers();
  bool take_message(AmRecord* record);
  void keep_raised(nb::python_error& error) noexcept;
  void raise_kept();  ///< what an earlier call has kept
};

struct Endpoint {
  nb::object worker_object;
  Worker* worker = nullptr;
  tw_endpoint* handle = nullptr;
  PyObject* object = nullptr;  ///< of this one: the endpoint's user
  bool owned = false;          ///< made by this program's connect or accept; else met as the sender of a message
  nb::object kept;             ///< objects.Kept: lives as long as the handle, in one Endpoint or another

  ~Endpoint() { drop(); }
  tw_endpoint* let_go() noexcept;                 ///< the handle, which is this one's no more
  void take_back(tw_endpoint* refused) noexcept;  ///< what let_go() gave: its close was refused, and it is alive
  void drop() noexcept;                           ///< graceful close without waiting
  tw_endpoint* get() const;                       ///< raises when closed
  /// Is the handle still this endpoint's? The library ends one that no program holds some time after its peer, and gives the place
  /// to another one.
  bool named() const { return tw_endpoint_user(handle) == object; }
  bool ended() const { return handle == nullptr || (worker->alive() && !named()); }
  bool closed() const { return worker->handle == nullptr || ended(); }
};

/// The Python object of an endpoint: the one there is, else a new one (owned: it ends the connection with itself). None: it has ended.
nb::object wrap_endpoint(nb::handle worker, tw_endpoint* endpoint, bool owned);

struct Listener {
  nb::object worker_object;
  Worker* worker = nullptr;
  tw_listener* handle = nullptr;
  Listener() = default;
  Listener(Listener&& other) noexcept
      : worker_object(std::move(other.worker_object)), worker(other.worker), handle(std::exchange(other.handle, nullptr)) {}
  ~Listener() { close(); }
  void close() noexcept;
  tw_listener* get() const;
};

struct Memory {
  nb::object context_object;
  Context* context = nullptr;
  tw_memory* handle = nullptr;
  std::shared_ptr<BufferView> source;         ///< held for a registered buffer
  tw_memory_info info = TW_MEMORY_INFO_INIT;  ///< of its first byte
  bool writable = true;
  Py_ssize_t views = 0;  ///< buffers handed out: the memory may not go away under them
  Memory() = default;
  Memory(Memory&& other) noexcept
      : context_object(std::move(other.context_object)),
        context(other.context),
        handle(std::exchange(other.handle, nullptr)),
        source(std::move(other.source)),
        info(other.info),
        writable(other.writable) {}
  ~Memory();
  tw_status close() noexcept;  ///< TW_ERR_BUSY: a peer is in the middle of a copy, and all stays
  tw_memory* get() const;
};

struct RemoteMemory {
  nb::object endpoint_object;
  nb::object owner;  ///< a Window whose part it is, and which ends it; else not valid
  Endpoint* endpoint = nullptr;
  tw_remote_memory* handle = nullptr;
  int users = 0;  ///< threads that wait for its mapping
  RemoteMemory() = default;
  RemoteMemory(RemoteMemory&& other) noexcept
      : endpoint_object(std::move(other.endpoint_object)),
        owner(std::move(other.owner)),
        endpoint(other.endpoint),
        handle(std::exchange(other.handle, nullptr)) {}
  ~RemoteMemory() { close(); }
  void close() noexcept;
  tw_remote_memory* get() const;
};

struct Signal {
  nb::object worker_object;
  Loan memory;  ///< where the word is, when it is not the library's
  Worker* worker = nullptr;
  tw_signal* handle = nullptr;
  bool adds = false;
  int waits = 0;  ///< threads that wait for it
  Signal() = default;
  Signal(Signal&& other) noexcept
      : worker_object(std::move(other.worker_object)),
        memory(std::move(other.memory)),
        worker(other.worker),
        handle(std::exchange(other.handle, nullptr)),
        adds(other.adds) {}
  ~Signal() { close(); }
  void close() noexcept;
  tw_signal* get() const;
};

struct RemoteSignal {
  nb::object endpoint_object;
  Endpoint* endpoint = nullptr;
  tw_remote_signal* handle = nullptr;
  bool adds = false;
  RemoteSignal() = default;
  RemoteSignal(RemoteSignal&& other) noexcept
      : endpoint_object(std::move(other.endpoint_object)),
        endpoint(other.endpoint),
        handle(std::exchange(other.handle, nullptr)),
        adds(other.adds) {}
  ~RemoteSignal() { close(); }
  void close() noexcept;
  tw_remote_signal* get() const;
};

/// Of Layout.callbacks.
struct LayoutFunctions {
  nb::object size, pack, unpack;  ///< None: not given
};

struct Layout {
  tw_layout* handle = nullptr;
  std::shared_ptr<LayoutFunctions> functions;  ///< null: it names bytes
  Layout() = default;
  explicit Layout(tw_layout* taken) : handle(taken) {}
  Layout(Layout&& other) noexcept : handle(std::exchange(other.handle, nullptr)), functions(std::move(other.functions)) {}
  Layout& operator=(Layout&& other) noexcept {
    std::swap(handle, other.handle);
    std::swap(functions, other.functions);
    return *this;
  }
  ~Layout() {
    if (handle != nullptr) tw_layout_destroy(handle);
  }
};

/// What a receive learned.
struct RecvInfo {
  nb::object endpoint;
  uint64_t tag, immediate;
  size_t length;
};

struct Store {
  tw_store* handle = nullptr;
  int users = 0;  ///< threads that wait in it
  int generation = fork_generation();
  ~Store() { close(); }
  void close() noexcept;
  tw_store* get() const;
};

/// Counts a thread in while it uses a handle without the GIL.
class Using {
 public:
  explicit Using(int& count) : count_(count) { ++count_; }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;
  ~Using() { --count_; }

 private:
  int& count_;
};

/// Makes a class usable in `with`: its close method runs at the end. Where that fails because the block did, the block's error is told.
template <class T>
void context_manager(nb::handle type, const char* close = "close") {
  nb::borrow<nb::class_<T>>(type)
      .def("__enter__", [](nb::handle_t<T> self) { return nb::borrow(self); })
      .def("__exit__", [close](nb::handle_t<T> self, nb::args why) {
        try {
          self.attr(close)();
        } catch (const nb::python_error& error) {
          if (why.size() == 0 || why[0].is_none() || !error.matches(PyExc_Exception)) throw;
        }
      });
}

void bind_context(nb::module_& m);
void bind_worker(nb::module_& m);
void bind_endpoint(nb::module_& m);
void bind_messages(nb::module_& m);
void bind_one_sided(nb::module_& m);
void bind_active_messages(nb::module_& m);
void bind_request(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_places(nb::module_& m);
void bind_topology(nb::module_& m);
void bind_layout(nb::module_& m);
void bind_signal(nb::module_& m);
void bind_block(nb::module_& m);
void bind_blocks(nb::module_& m);
void bind_completions(nb::module_& m);
void bind_store(nb::module_& m);
void bind_window(nb::module_& m);
void bind_group(nb::module_& m);
void bind_queue(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_channel_end(nb::module_& m);
void bind_log(nb::module_& m);

}  // namespace thalweg::python
