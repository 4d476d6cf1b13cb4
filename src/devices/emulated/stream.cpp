// SPDX-License-Identifier: Apache-2.0
// Running tasks in order, after a delay, until one breaks the stream.
#include "devices/emulated/stream.hpp"

#include <time.h>

#include <chrono>
#include <utility>

#include "base/platform/signals.hpp"

namespace thalweg::impl::emulated {

EmulatedStream::EmulatedStream(std::shared_ptr<Engine> engine, bool order_only)
    : engine_(std::move(engine)), order_only_(order_only) {
  if (stepped()) return;
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (kept_ != nullptr) {  // stepped: it runs, and ends
    (void)tasks_.front().run(*this);
    kept_.reset();
    tasks_.pop_front();
  }
  for (const Task& task : tasks_) lose(task);
}

void EmulatedStream::lose(const Task& task) {
  if (task.lost) task.lost();
}

Status EmulatedStream::perform(Task& task) {
  Status refused = is_error(failed_) ? failed_ : engine_->faults.check(Operation::run);
  if (!is_error(refused) && task.kernel && !engine_->slots.acquire(stop_)) refused = TW_ERR_CLOSED;
  if (is_error(refused)) {
    lose(task);
    return refused;
  }
  const Status status = task.run(*this);
  if (task.kernel) engine_->slots.release();
  return status;
}

void EmulatedStream::wait_while_held(std::unique_lock<std::mutex>& lock) {
  if (!engine_->held) return;
  ++engine_->held_back;
  while (engine_->held && !stop_) changed_.wait_for(lock, std::chrono::milliseconds(1));
  --engine_->held_back;
}

void EmulatedStream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    // Asynchronous: code must not rely on a task having run because it was enqueued.
    const auto delay = std::chrono::nanoseconds(engine_->options.task_delay_ns);
    if (delay.count() > 0 && changed_.wait_for(lock, delay, [this] { return stop_.load(); })) return;
    wait_while_held(lock);
    if (stop_) return;
    step_locked(lock);
    if (tasks_.empty()) changed_.notify_all();
  }
}

bool EmulatedStream::step() {
  std::unique_lock lock(mutex_);
  return step_locked(lock);
}

bool EmulatedStream::step_locked(std::unique_lock<std::mutex>& lock) {
  if (tasks_.empty() || running_) return false;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  running_ = true;
  lock.unlock();
  const Status status = perform(task);
  const bool again = stepped() && status == TW_IN_PROGRESS;
  if (!again) {  // releases the memory before the stream becomes idle
    kept_.reset();
    task = Task();
  }
  lock.lock();
  running_ = asked_ = false;
  if (again) tasks_.push_front(std::move(task));
  if (is_error(status)) failed_ = status;  // by the stepping thread only
  return !again;
}

Status EmulatedStream::enqueue(Task task) {
  {
    const std::shared_lock driver(engine_->driver);
    const std::lock_guard lock(mutex_);
    asked_ = false;
    if (is_error(failed_)) return fail(failed_, "the queue was broken by an earlier failure; make a new one");
    if (capture_ == CaptureState::invalidated) return fail(TW_ERR_INVALID, "the queue's capture was spoilt; end it");
    if (capture_ == CaptureState::active) {
      captured_.push_back(std::move(task));
      return TW_OK;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return TW_OK;
}

Status EmulatedStream::await(const std::function<Status()>& ready) const {
  if (stepped()) {
    const Status status = ready();
    return status == TW_IN_PROGRESS && stop_.load(std::memory_order_relaxed) ? Status{TW_ERR_CLOSED} : status;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(engine_->options.wait_limit_ns);
  for (unsigned turn = 0;; ++turn) {
    if (const Status status = ready(); status != TW_IN_PROGRESS) return status;
    if (stop_.load(std::memory_order_relaxed)) return TW_ERR_CLOSED;
    if (turn < 1000) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() >= end) return TW_ERR_TIMED_OUT;
    const timespec pause{0, 20'000};  // it may be another process's word: there is no wakeup
    nanosleep(&pause, nullptr);
  }
}

/// Under the lock.
Status EmulatedStream::refuse_in_capture(const char* what) {
  if (capture_ == CaptureState::none) return TW_OK;
  capture_ = CaptureState::invalidated;
  return fail(TW_ERR_INVALID, "%s of a queue that is being captured spoils the capture; ask capture_state() first", what);
}

Status EmulatedStream::query() {
  std::unique_lock lock(mutex_);
  if (Status s = refuse_in_capture("a query"); is_error(s)) return s;
  // A host that polls repeatedly waits inside a call, where no test can step.
  if (stepped() && std::exchange(asked_, true)) step_locked(lock);
  if (is_error(failed_)) return fail(failed_, "work of the queue failed or a wait was not fulfilled in time; make a new queue");
  return tasks_.empty() && !running_ ? TW_OK : TW_IN_PROGRESS;
}

Status EmulatedStream::synchronize() {
  if (thread_.get_id() == std::this_thread::get_id())
    return fail(TW_ERR_INVALID, "a function that the queue runs cannot wait for the queue: it would wait for itself");
  {
    std::unique_lock lock(mutex_);
    if (Status s = refuse_in_capture("a synchronisation"); is_error(s)) return s;
    while (stepped() && step_locked(lock)) {
    }
    if (stepped() && !tasks_.empty()) return fail(TW_ERR_TIMED_OUT, "the queue waits for what nobody does meanwhile");
    changed_.wait(lock, [this] { return tasks_.empty() && !running_; });
  }
  return query();
}

CaptureState EmulatedStream::capture_state() {
  const std::lock_guard lock(mutex_);
  return capture_;
}

Status EmulatedStream::begin_capture() {
  const std::lock_guard lock(mutex_);
  if (capture_ != CaptureState::none || order_only_) return fail(TW_ERR_BUSY, "captured already, or a default stream");
  capture_ = CaptureState::active;
  return TW_OK;
}

Status EmulatedStream::end_capture(std::vector<Task>* out) {
  const std::lock_guard lock(mutex_);
  const CaptureState was = std::exchange(capture_, CaptureState::none);
  *out = std::exchange(captured_, {});
  if (was == CaptureState::active) return TW_OK;
  out->clear();
  return fail(TW_ERR_INVALID, was == CaptureState::none ? "the queue is not being captured" : "the capture was spoilt");
}

}  // namespace thalweg::impl::emulated
