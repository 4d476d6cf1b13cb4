// SPDX-License-Identifier: Apache-2.0
// Waiting with the GIL released. A wait spins for a few dozen microseconds (the other side of a ping-pong answers sooner),
// then sleeps in the worker; between two sleeps it takes the GIL to see Ctrl-C and to run active message handlers.
#pragma once
#include <algorithm>
#include <chrono>
#include <thread>

#include "errors.hpp"

namespace thalweg::python {

inline uint64_t now_ns() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

/// None and what was not given: for ever. Else seconds from now, as a moment of now_ns(). Raises for negative numbers.
uint64_t deadline_of(PyObject* seconds);
/// Nanoseconds of a duration in seconds; None and null: otherwise.
uint64_t duration_of(PyObject* seconds, uint64_t otherwise);

constexpr uint64_t spin_ns = 50'000;
constexpr uint64_t slice_ns = 100'000'000;  ///< the longest that a signal waits for its handler

/// Marks the worker as waited in by this thread, and lets others run Python meanwhile.
class Waiting {
 public:
  explicit Waiting(Worker& worker) : worker_(worker), saved_((worker.waiting = true, PyEval_SaveThread())) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    PyEval_RestoreThread(saved_);
    worker_.waiting = false;
  }

 private:
  Worker& worker_;
  PyThreadState* saved_;
};

/// One slice of a wait without the GIL: true when done() holds, false when it is time to look at the interpreter.
template <class Done>
bool wait_slice(Worker& worker, uint64_t deadline, Done&& done) {
  Waiting waiting(worker);
  tw_worker* handle = worker.handle;
  {
    uint64_t stop = 0;
    for (unsigned round = 0;; ++round) {
      if (!worker.progress_thread) tw_progress(handle);
      if (done()) return true;
      if (worker.am_waiting.load(std::memory_order_relaxed) != 0) return false;
      if ((round & 63) != 63) continue;
      uint64_t now = now_ns();
      if (stop == 0) stop = now + spin_ns;
      if (now >= deadline) return false;
      if (now >= stop) break;
    }
  }
  uint64_t now = now_ns();
  uint64_t end = std::min(deadline, now + slice_ns);
  while (now < end) {
    if (worker.progress_thread) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // another thread progresses: this one only looks
    } else {
      (void)tw_worker_wait(handle, end - now);
    }
    if (done()) return true;
    if (worker.am_waiting.load(std::memory_order_relaxed) != 0) return false;
    now = now_ns();
  }
  return done();
}

/// Progresses until done() holds: true; or until the deadline: false. Raises what a signal handler raised.
template <class Done>
bool wait_until(Worker& worker, uint64_t deadline, Done&& done) {
  while (true) {
    if (done()) return true;
    if (wait_slice(worker, deadline, done)) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    worker.dispatch();
    if (done()) return true;
    if (now_ns() >= deadline) return false;
    worker.enter();  // a handler may have closed it
  }
}

}  // namespace thalweg::python
