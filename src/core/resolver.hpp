// SPDX-License-Identifier: Apache-2.0
// Names are looked up beside the service thread: a name server may be slow. A few threads take what is asked in turn.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

/// Any thread.
class Resolver {
 public:
  static constexpr size_t kThreads = 8;

  Resolver() = default;
  ~Resolver() { close(); }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  /// look_up() will run on one of the threads. TW_ERR_LIMIT: there is none, and none can be made; it will not run.
  Status ask(std::function<void()> look_up);
  /// Waits for what runs; what has not begun never does.
  void close();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> asked_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool closed_ = false;
};

}  // namespace thalweg::impl
