// SPDX-License-Identifier: Apache-2.0
// Which links to poll: a few recently active ones directly, all others by epoll, so that a thousand idle links cost an
// active one next to nothing. A link that is polled directly for long leaves the epoll set: a socket that no thread waits
// for is cheaper for the kernel. Before sleeping, everything is in the set.
#pragma once
#include <sys/epoll.h>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transports/tcp/link.hpp"

namespace thalweg::impl::tcp {

class Poller {
 public:
  Status open();
  int fd() const { return epoll_.get(); }
  /// Any thread, async-signal-safe.
  void wake() const;

  Status add(TcpLink& link);
  void remove(TcpLink& link);
  /// The link sent or received something in `round`: polled directly from now on.
  void touch(TcpLink& link, uint64_t round);
  /// Its `blocked` changed.
  void update(TcpLink& link);
  /// Once per round: gives idle links back to epoll and takes busy ones out.
  void age(uint64_t round);
  unsigned hot_count() const { return hot_count_; }
  TcpLink* hot(unsigned i) const { return hot_[i]; }

  struct Ready {
    size_t links = 0;    // in the caller's array
    bool woken = false;  // by wake(); consumed
    bool timer = false;  // the timer ran out; consumed
  };
  /// What is ready now, up to max events, without waiting.
  Ready collect(epoll_event* out, size_t max);
  /// Everything into the set. Returns false when something could not be registered.
  bool prepare_sleep();
  /// One shot of the timer that wakes a sleeper; replaced by a later call.
  void set_timer(uint64_t delay_ns);
  bool timer_set() const { return timer_set_; }

 private:
  bool want(TcpLink& link, uint32_t events);
  void cool(unsigned i);

  UniqueFd epoll_, wake_, timer_;
  TcpLink* hot_[kHot] = {};
  unsigned hot_count_ = 0;
  unsigned polled_rounds_ = 0;  // since the last prepare_sleep
  bool timer_set_ = false;
};

}  // namespace thalweg::impl::tcp
