// SPDX-License-Identifier: Apache-2.0
// How many kernels a device runs at a time, and who waits until none does; the count of its calls for injected failures.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "devices/emulated/options.hpp"

namespace thalweg::impl::emulated {

class KernelSlots {
 public:
  explicit KernelSlots(unsigned slots) : slots_(slots) {}
  /// False when `stop` was set before a slot came free.
  bool acquire(const std::atomic<bool>& stop) {
    std::unique_lock lock(mutex_);
    while (running_ >= slots_) {
      if (stop.load(std::memory_order_relaxed)) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(1));  // nobody notifies for stop
    }
    ++running_;
    return true;
  }
  void release() {
    {
      const std::lock_guard lock(mutex_);
      --running_;
    }
    changed_.notify_all();
  }
  bool wait_idle(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return running_ == 0; });
  }

 private:
  const unsigned slots_;
  unsigned running_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

class Faults {
 public:
  explicit Faults(const Options& options) : fail_at_(options.fail_at) {}
  Status check(Operation operation) {
    const auto i = static_cast<size_t>(operation);
    const unsigned call = calls_[i].fetch_add(1, std::memory_order_relaxed) + 1;
    if (call != fail_at_[i]) [[likely]]
      return TW_OK;
    return fail(TW_ERR_DEVICE, "call %u was told to fail (options of the emulated device)", call);
  }

 private:
  const std::array<unsigned, static_cast<size_t>(Operation::count_)> fail_at_;
  std::array<std::atomic<unsigned>, static_cast<size_t>(Operation::count_)> calls_{};
};

}  // namespace thalweg::impl::emulated
