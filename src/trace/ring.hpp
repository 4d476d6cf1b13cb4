// SPDX-License-Identifier: Apache-2.0
// A thread's events on their way to the file: one writer, one reader, no lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/tally.hpp"
#include "trace/event.hpp"

namespace thalweg::impl::trace {

class Ring {
 public:
  /// 4 MiB, of which the kernel gives what is used.
  static constexpr uint64_t kEvents = 1u << 16;

  /// Of the calling thread. Null: no memory.
  static std::unique_ptr<Ring> make(uint64_t events = kEvents);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // --- its thread
  void push(const Event& event) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_seen_ >= size_ && !look()) [[unlikely]]
      return dropped_.add();
    events_[head & (size_ - 1)] = event;
    head_.store(head + 1, std::memory_order_release);  // with the event
  }
  void leave() { left_.store(true, std::memory_order_release); }

  // --- the reader
  /// Calls take(event) for what is there, oldest first.
  template <class Take>
  void drain(const Take& take) {
    const uint64_t head = head_.load(std::memory_order_acquire);
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (; tail != head; ++tail) take(events_[tail & (size_ - 1)]);
    tail_.store(tail, std::memory_order_release);  // read before it is overwritten
  }
  /// Its thread has ended: nothing comes any more behind what is there.
  bool left() const { return left_.load(std::memory_order_acquire); }
  bool empty() const { return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed); }

  // --- any thread
  uint64_t pushed() const { return head_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.get(); }
  uint64_t number() const { return number_; }  // no other ring of this process has it
  int thread() const { return thread_; }
  const std::string& name() const { return name_; }

 private:
  Ring(Event* events, uint64_t size);
  bool look() {
    tail_seen_ = tail_.load(std::memory_order_acquire);
    return head_.load(std::memory_order_relaxed) - tail_seen_ < size_;
  }

  Event* const events_;
  const uint64_t size_;  // a power of two
  const uint64_t number_;
  const int thread_;  // as the kernel numbers it
  std::string name_;
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t tail_seen_ = 0;
  Tally dropped_;
  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<bool> left_{false};
};

}  // namespace thalweg::impl::trace
