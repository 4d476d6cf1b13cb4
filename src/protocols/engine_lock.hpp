// SPDX-License-Identifier: Apache-2.0
// The lock of a multi-threaded engine: recursive (handlers of active messages may post), short spins, then yields.
#pragma once
#include <atomic>
#include <thread>

namespace thalweg::impl {

class EngineLock {
 public:
  void lock() {
    const void* me = identity();
    if (owner_.load(std::memory_order_relaxed) == me) {
      ++depth_;
      return;
    }
    for (unsigned spins = 0;; ++spins) {
      const void* nobody = nullptr;
      // acquire: what the last holder wrote is visible here
      if (owner_.load(std::memory_order_relaxed) == nullptr &&
          owner_.compare_exchange_weak(nobody, me, std::memory_order_acquire, std::memory_order_relaxed)) {
        break;
      }
      if (spins > 64) std::this_thread::yield();
    }
    depth_ = 1;
  }
  void unlock() {
    if (--depth_ == 0) owner_.store(nullptr, std::memory_order_release);  // release: pairs with the acquire above
  }

 private:
  static const void* identity() {
    static thread_local char mark;
    return &mark;
  }
  std::atomic<const void*> owner_{nullptr};
  unsigned depth_ = 0;
};

}  // namespace thalweg::impl
