// SPDX-License-Identifier: Apache-2.0
// The thread of an emulated queue and its tasks. Addresses are looked up when a task is enqueued and the memory is held until
// it has run.
#include "devices/emulated/queue.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "devices/emulated/emulated.hpp"

namespace thalweg::impl::emulated {
namespace {

struct Prepared {
  Place to, from;
  Copy copy;
};

/// Bytes that one side of a rectangular copy touches, around its address.
void reach_of(const Copy& copy, int64_t row, int64_t slice, int64_t* first, int64_t* last) {
  const int64_t rows = static_cast<int64_t>(copy.rows - 1) * row, slices = static_cast<int64_t>(copy.slices - 1) * slice;
  *first = std::min<int64_t>(rows, 0) + std::min<int64_t>(slices, 0);
  *last = std::max<int64_t>(rows, 0) + std::max<int64_t>(slices, 0) + static_cast<int64_t>(copy.width);
}

Status prepare(const Copy& copy, Prepared* out) {
  out->copy = copy;
  if (copy.width == 0 || copy.rows == 0 || copy.slices == 0) {
    out->copy.width = 0;
    return TW_OK;
  }
  int64_t first, last;
  reach_of(copy, copy.to_row, copy.to_slice, &first, &last);
  if (Status s = locate(copy.to, first, last, &out->to); is_error(s)) return s;
  reach_of(copy, copy.from_row, copy.from_slice, &first, &last);
  return locate(copy.from, first, last, &out->from);
}

void perform(const Prepared& prepared) {
  const Copy& copy = prepared.copy;
  if (copy.width == 0) return;
  for (uint64_t z = 0; z < copy.slices; ++z) {
    std::byte* to = prepared.to.pointer + static_cast<int64_t>(z) * copy.to_slice;
    const std::byte* from = prepared.from.pointer + static_cast<int64_t>(z) * copy.from_slice;
    for (uint64_t y = 0; y < copy.rows; ++y) {
      std::memmove(to, from, copy.width);
      to += copy.to_row;
      from += copy.from_row;
    }
  }
}

Status locate_word(uint64_t address, Place* out) {
  if (address % sizeof(uint64_t) != 0) return fail(TW_ERR_MISALIGNED, "a queue's word must be aligned to 8 bytes");
  return locate(address, 0, sizeof(uint64_t), out);
}

}  // namespace

EmulatedQueue::EmulatedQueue(uint64_t task_delay_ns, uint64_t wait_limit_ns)
    : delay_ns_(task_delay_ns), wait_limit_ns_(wait_limit_ns), thread_([this] { run(); }) {}

EmulatedQueue::~EmulatedQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EmulatedQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    // Behind the host: nobody may rely on a task having run because it was enqueued.
    const auto delay = std::chrono::nanoseconds(delay_ns_.load(std::memory_order_relaxed));
    if (delay.count() > 0 && changed_.wait_for(lock, delay, [this] { return stop_.load(); })) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = true;
    const bool poisoned = is_error(failed_);
    lock.unlock();
    const Status status = poisoned ? TW_OK : task();
    task = nullptr;  // lets go of the memory before the queue says idle
    lock.lock();
    running_ = false;
    if (is_error(status)) failed_ = status;
    if (tasks_.empty()) changed_.notify_all();
  }
}

Status EmulatedQueue::enqueue(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_error(failed_)) return fail(failed_, "the queue was poisoned by an earlier failure; make a new one");
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return TW_OK;
}

Status EmulatedQueue::copy(const Copy* copies, size_t count) {
  std::vector<Prepared> prepared(count);
  for (size_t i = 0; i < count; ++i) {
    if (Status s = prepare(copies[i], &prepared[i]); is_error(s)) return s;
  }
  return enqueue([prepared = std::move(prepared)] {
    for (const Prepared& one : prepared) perform(one);
    return TW_OK;
  });
}

Status EmulatedQueue::write_value(uint64_t address, uint64_t value, bool add) {
  Place place;
  if (Status s = locate_word(address, &place); is_error(s)) return s;
  return enqueue([place, value, add] {
    uint64_t* word = reinterpret_cast<uint64_t*>(place.pointer);
    // release: the queue's earlier copies are visible to whoever acquires the word
    if (add) {
      __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
    } else {
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
    return TW_OK;
  });
}

Status EmulatedQueue::await(const uint64_t* word, uint64_t value) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait_limit_ns_);
  for (unsigned turn = 0;; ++turn) {
    if (static_cast<int64_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0) return TW_OK;
    if (stop_.load(std::memory_order_relaxed)) return TW_ERR_CLOSED;
    if (turn < 1000) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() >= end) return TW_ERR_TIMED_OUT;
    const timespec pause{0, 20'000};  // the word may be another process's: nobody can wake us
    nanosleep(&pause, nullptr);
  }
}

Status EmulatedQueue::wait_geq(uint64_t address, uint64_t value) {
  Place place;
  if (Status s = locate_word(address, &place); is_error(s)) return s;
  return enqueue([this, place, value] { return await(reinterpret_cast<const uint64_t*>(place.pointer), value); });
}

Status EmulatedQueue::launch(std::function<void()> kernel) {
  return enqueue([kernel = std::move(kernel)] {
    kernel();
    return TW_OK;
  });
}

Status EmulatedQueue::query() {
  const std::lock_guard lock(mutex_);
  if (is_error(failed_)) return fail(failed_, "a wait of the queue was not fulfilled in time; make a new queue");
  return tasks_.empty() && !running_ ? TW_OK : TW_IN_PROGRESS;
}

Status EmulatedQueue::synchronize() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty() && !running_; });
  }
  return query();
}

}  // namespace thalweg::impl::emulated
