// SPDX-License-Identifier: Apache-2.0
// How many kernels a device runs at a time, and waits until none runs; the count of its calls for injected failures.
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
      changed_.wait_for(lock, std::chrono::milliseconds(1));  // stop does not notify
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

/// Thread-safe.
class Faults {
 public:
  explicit Faults(const Options& options) {
    for (size_t i = 0; i < kinds_.size(); ++i) kinds_[i].fail_at = options.fail_at[i];
  }
  Status check(Operation operation) {
    Kind& kind = kinds_[static_cast<size_t>(operation)];
    const unsigned call = kind.calls.fetch_add(1, std::memory_order_relaxed) + 1;
    if (call != kind.fail_at.load(std::memory_order_relaxed)) [[likely]]
      return TW_OK;
    return fail(TW_ERR_DEVICE, "call %u was told to fail (options of the emulated device)", call);
  }
  /// The nth call from now on fails; 0: none.
  void inject(Operation operation, unsigned nth) {
    Kind& kind = kinds_[static_cast<size_t>(operation)];
    kind.fail_at = 0;
    kind.calls = 0;
    kind.fail_at = nth;
  }
  unsigned calls(Operation operation) const { return kinds_[static_cast<size_t>(operation)].calls; }

 private:
  struct Kind {
    std::atomic<unsigned> fail_at{0}, calls{0};
  };
  std::array<Kind, static_cast<size_t>(Operation::count_)> kinds_;
};

}  // namespace thalweg::impl::emulated
