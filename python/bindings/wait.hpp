// SPDX-License-Identifier: Apache-2.0
// Waiting with the GIL released, at the pace of the C functions: a wait spins for some hundred microseconds (the other side
// of a ping-pong answers sooner), yields for two milliseconds, then sleeps in the worker. Every slice_ns, and when an active
// message came, it takes the GIL to see Ctrl-C and to run handlers.
#pragma once
#include <thalweg/views.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "errors.hpp"

namespace thalweg::python {

inline uint64_t now_ns() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

/// None and what was not given: for ever. Else seconds from now, as a moment of now_ns(). Raises for negative numbers.
uint64_t deadline_of(PyObject* seconds);
/// Nanoseconds of a duration in seconds; None and null: otherwise.
uint64_t duration_of(PyObject* seconds, uint64_t otherwise);

constexpr uint64_t spin_ns = 100'000;
constexpr uint64_t yield_ns = 2'000'000;
constexpr uint64_t slice_ns = 20'000'000;   ///< the longest that Ctrl-C waits
constexpr uint64_t stored_nap_ns = 50'000;  ///< of a wait for what a peer may store into mapped memory, which wakes no thread
constexpr uint64_t shared_nap_ns = 1'000'000;  ///< another thread may take the event of this one
constexpr uint64_t watching_nap_ns = 20'000;   ///< the progress thread takes all events

/// Marks the worker as waited in by this thread, and lets others run Python meanwhile.
class Waiting {
 public:
  explicit Waiting(Worker& worker) : worker_(worker), saved_((worker.disarm(), ++worker.waiters, PyEval_SaveThread())) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    take_gil(saved_);
    worker_.left();
  }

 private:
  Worker& worker_;
  PyThreadState* saved_;
};

/// Without the GIL in a call of the library that may wait, with every worker marked as waited in. What such calls ask
/// meanwhile is whether a signal is to be handled (what its handler raised is pending then) or a worker is to be left; and
/// handlers of active messages run then, because the peer may wait for their answer.
class Unlocked {
 public:
  explicit Unlocked(std::vector<Worker*> workers = {});
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();
  /// Is this thread in such a call, which has called Python?
  static bool inside();

 private:
  static int asked(void* self);
  void dispatch() const noexcept;
  std::vector<Worker*> workers_;
  Unlocked* const outer_;  ///< of this thread: an exchange of a window calls a store
  PyThreadState* saved_;
};

/// A call without the GIL; raises what a signal handler raised, ClosedError when a worker was closed meanwhile. Before it what
/// handlers of active messages raised in the middle of an earlier one.
template <class Call>
tw_status without_gil(const std::vector<Worker*>& workers, Call&& call) {
  for (Worker* worker : workers) worker->raise_kept();
  tw_status status;
  {
    const Unlocked unlocked(workers);
    status = call();
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  for (const Worker* worker : workers) worker->enter();
  return status;
}

/// By what the end of a wait is noticed: by progress, or (also) by a word that a peer stores.
enum class Comes : uint8_t { by_event, by_store };

/// In the timeline, as the waits of the C functions: from the first look that found nothing. Of one thread.
class TracedWait {
 public:
  TracedWait() = default;
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;
  ~TracedWait() { tw_wait_ended(began_); }
  void begin() {
    if (began_ == 0) began_ = tw_wait_began();
  }

 private:
  uint64_t began_ = 0;
};

/// A wait over as many slices as it takes.
struct Wait {
  Worker& worker;
  uint64_t deadline;
  Comes comes;
  bool asleep = false;  ///< nothing came for so long that it sleeps
  TracedWait traced{};

  bool wanted() const {  ///< is something to be done with the GIL?
    return worker.am_waiting.load(std::memory_order_relaxed) != 0 || worker.closing.load(std::memory_order_relaxed);
  }
  /// Sleeps in the worker, until `end` at most; false: nothing came.
  bool nap(uint64_t end) const;
  /// With the GIL: Ctrl-C, handlers, a worker that was closed meanwhile. Raises.
  void between() const;
};

/// Polls done() without sleeping. True when it holds; else wait.asleep is set when it is time to sleep.
template <class Done>
bool look(Wait& wait, Done& done) {
  const unsigned looks = wait.comes == Comes::by_store ? 8 : 1;
  unsigned events = 0;
  uint64_t idle_since = 0;
  for (unsigned round = 1;; ++round) {
    if (!wait.worker.progress_thread) events += tw_worker_progress(wait.worker.handle);
    for (unsigned i = 0; i < looks; ++i) {
      if (done()) return true;
    }
    if (round == 1) wait.traced.begin();
    if (wait.wanted()) return false;
    if (round % 64 != 0) continue;
    const uint64_t now = now_ns();
    if (now >= wait.deadline) return false;
    if (std::exchange(events, 0) != 0 || idle_since == 0) idle_since = now;
    if (now - idle_since >= yield_ns) break;
    if (now - idle_since >= spin_ns) std::this_thread::yield();
  }
  wait.asleep = true;
  return false;
}

/// One slice without the GIL: true when done() holds, false when it is time to look at the interpreter.
template <class Done>
bool wait_slice(Wait& wait, Done& done) {
  const Waiting waiting(wait.worker);
  const uint64_t end = std::min(wait.deadline, now_ns() + slice_ns);
  while (true) {
    if (!wait.asleep) {
      if (look(wait, done)) return true;
    } else if (wait.nap(end)) {
      wait.asleep = false;
    }
    if (done()) return true;
    if (wait.wanted() || now_ns() >= end) return false;
  }
}

/// Progresses until done() holds: true; or until the deadline: false. Raises what a signal handler raised, and ClosedError
/// when the worker was closed meanwhile. done() is called without the GIL too.
template <class Done>
bool wait_until(Worker& worker, uint64_t deadline, Done&& done, Comes comes = Comes::by_event) {
  Wait wait{worker, deadline, comes};
  while (true) {
    if (done() || wait_slice(wait, done)) return true;
    wait.between();
    if (done()) return true;
    if (now_ns() >= deadline) return false;
  }
}

}  // namespace thalweg::python
