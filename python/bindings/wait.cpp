// SPDX-License-Identifier: Apache-2.0
#include "wait.hpp"

namespace thalweg::python {

uint64_t duration_of(PyObject* seconds, uint64_t otherwise) {
  if (seconds == nullptr || seconds == Py_None) return otherwise;
  double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!(value >= 0)) raise(TW_ERR_INVALID, "a time in seconds is not negative (None: no limit)");
  if (value > 1e9) return TW_FOREVER;
  return static_cast<uint64_t>(value * 1e9);
}

uint64_t deadline_of(PyObject* seconds) {
  uint64_t duration = duration_of(seconds, TW_FOREVER);
  return duration == TW_FOREVER ? TW_FOREVER : now_ns() + duration;
}

static thread_local Unlocked* innermost = nullptr;

Unlocked::Unlocked(std::vector<Worker*> workers) : workers_(std::move(workers)), outer_(innermost) {
  for (const Worker* worker : workers_) worker->enter();
  for (Worker* worker : workers_) worker->disarm(), ++worker->waiters;
  innermost = this;
  tw_set_interrupt(&Unlocked::asked, this);
  saved_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  take_gil(saved_);
  innermost = outer_;
  tw_set_interrupt(outer_ != nullptr ? &Unlocked::asked : nullptr, outer_);
  for (Worker* worker : workers_) worker->left();
}

bool Unlocked::inside() { return innermost != nullptr; }

int Unlocked::asked(void* arg) {
  Unlocked& self = *static_cast<Unlocked*>(arg);
  for (const Worker* worker : self.workers_) {
    if (worker->closing.load(std::memory_order_relaxed)) return 1;
  }
  take_gil(self.saved_);
  const bool raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  if (!raised) self.dispatch();
  self.saved_ = PyEval_SaveThread();
  return raised ? 1 : 0;
}

void Unlocked::dispatch() const noexcept {
  for (const Unlocked* call = this; call != nullptr; call = call->outer_) {
    for (Worker* worker : call->workers_) worker->dispatch_inside();
  }
}

bool Wait::nap(uint64_t end) const {
  const uint64_t now = now_ns();
  if (now >= end) return false;
  uint64_t longest = end - now;
  if (worker.progress_thread) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(longest, watching_nap_ns)));
    return false;
  }
  if (worker.multi) longest = std::min(longest, shared_nap_ns);
  if (comes == Comes::by_store) longest = std::min(longest, stored_nap_ns);
  return tw_worker_wait(worker.handle, longest) == TW_OK;
}

void Wait::between() const {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  worker.enter();
  if (!worker.orphans.empty()) worker.reap_orphans();
  worker.dispatch();
  worker.enter();  // a handler may have closed it
}

}  // namespace thalweg::python
