// SPDX-License-Identifier: Apache-2.0
// A queue that is a thread: tasks run behind the host, in order. Also the host queue (no device needed).
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "devices/device.hpp"

namespace thalweg::impl::emulated {

class EmulatedQueue final : public Queue {
 public:
  EmulatedQueue(uint64_t task_delay_ns, uint64_t wait_limit_ns);
  ~EmulatedQueue() override;  // what is queued is dropped; a task that runs ends first
  Status copy(const Copy* copies, size_t count) override;
  Status write_value(uint64_t address, uint64_t value, bool add) override;
  Status wait_geq(uint64_t address, uint64_t value) override;
  Status launch(std::function<void()> kernel) override;
  /// TW_OK idle, TW_IN_PROGRESS, or the error that poisoned the queue (then nothing more runs).
  Status query() override;
  Status synchronize() override;
  void set_delay(uint64_t task_delay_ns) { delay_ns_.store(task_delay_ns, std::memory_order_relaxed); }

 private:
  using Task = std::function<Status()>;
  Status enqueue(Task task);
  Status await(const uint64_t* word, uint64_t value);
  void run();

  std::atomic<uint64_t> delay_ns_;
  const uint64_t wait_limit_ns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool running_ = false;
  std::atomic<bool> stop_{false};
  Status failed_ = TW_OK;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace thalweg::impl::emulated
