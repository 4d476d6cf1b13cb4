// SPDX-License-Identifier: Apache-2.0
// Which device memory of this process one peer may have imported. Its owner's release waits until the peer says that it has
// dropped it, or has ended.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_set>

#include "base/clock.hpp"

namespace thalweg::impl {

class DeviceLoans {
 public:
  static constexpr size_t kMaxCount = 65536;
  enum class Added { fresh, again, refused };

  /// Before the memory's name is looked up, so that whoever takes the name away and then waits misses nothing.
  Added add(uint64_t segment) {
    const std::lock_guard lock(mutex_);
    if (refusing_ || segments_.size() >= kMaxCount) return Added::refused;
    return segments_.insert(segment).second ? Added::fresh : Added::again;
  }
  void settle(uint64_t segment) {
    const std::lock_guard lock(mutex_);
    segments_.erase(segment);
    changed_.notify_all();
  }
  void settle_all() {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
    segments_.clear();
    changed_.notify_all();
  }
  /// Nothing is lent from now on. True: something is lent.
  bool refuse() {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
    return !segments_.empty();
  }
  bool has(uint64_t segment) const {
    const std::lock_guard lock(mutex_);
    return segments_.contains(segment);
  }
  /// False: the peer still has it when the time is over.
  bool await(uint64_t segment, const Deadline& deadline) {
    return await([&] { return !segments_.contains(segment); }, deadline);
  }
  bool await_all(const Deadline& deadline) {
    return await([&] { return segments_.empty(); }, deadline);
  }

 private:
  template <class Settled>
  bool await(const Settled& settled, const Deadline& deadline) {
    std::unique_lock lock(mutex_);
    while (!settled()) {
      if (deadline.passed()) return false;
      changed_.wait_for(lock, std::chrono::nanoseconds(std::min(deadline.left_ns(), kSecond)));
    }
    return true;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<uint64_t> segments_;
  bool refusing_ = false;
};

}  // namespace thalweg::impl
