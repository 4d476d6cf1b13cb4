// SPDX-License-Identifier: Apache-2.0
// The service thread: one per context, asleep in epoll. Connection set-up, deaths of peers, imports. Callbacks run on the
// loop's thread and must not block.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.hpp"

namespace thalweg::impl {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();  // stops and joins
  Status start();
  void stop();
  bool in_loop() const;                   // called from the loop's thread?
  void post(std::function<void()> work);  // any thread; runs on the loop, in order
  /// Runs work on the loop and waits for it (direct call when already there).
  void call(const std::function<void()>& work);
  /// Loop thread only. `events` are EPOLL*; level-triggered. The descriptor stays the caller's.
  Status add(int fd, uint32_t events, std::function<void(uint32_t)> ready);
  Status modify(int fd, uint32_t events);
  void remove(int fd);  // no callback for it afterwards, not even one already collected
  uint64_t after(uint64_t delay_ns, std::function<void()> work);  // timer id
  void cancel(uint64_t timer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thalweg::impl
