// SPDX-License-Identifier: Apache-2.0
// The hot set and the epoll set.
#include "transports/tcp/poller.hpp"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace thalweg::impl::tcp {

namespace {

// Markers in epoll_data for descriptors that are not links.
char wake_marker, timer_marker;

uint32_t wanted(const TcpLink& link) { return EPOLLIN | (link.blocked || link.socket.read_wants_write() ? EPOLLOUT : 0u); }

}  // namespace

Status Poller::open() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno(errno, "epoll_create1");
  wake_ = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_) return fail_errno(errno, "eventfd");
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_) return fail_errno(errno, "timerfd_create");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &wake_marker;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) return fail_errno(errno, "epoll_ctl");
  event.data.ptr = &timer_marker;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) return fail_errno(errno, "epoll_ctl");
  return TW_OK;
}

void Poller::wake() const {
  const int saved = errno;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  errno = saved;
}

bool Poller::want(TcpLink& link, uint32_t events) {
  if (link.interest == events) return true;
  const int operation = link.interest == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  event.data.ptr = &link;
  if (::epoll_ctl(epoll_.get(), operation, link.socket.fd(), &event) != 0) return false;
  link.interest = events;
  return true;
}

Status Poller::add(TcpLink& link) {
  return want(link, wanted(link)) ? TW_OK : fail_errno(errno, "epoll_ctl (see /proc/sys/fs/epoll/max_user_watches)");
}

void Poller::remove(TcpLink& link) {
  for (unsigned i = 0; i < hot_count_; ++i) {
    if (hot_[i] == &link) hot_[i--] = hot_[--hot_count_];
  }
  link.hot = false;
  want(link, 0);
}

void Poller::touch(TcpLink& link, uint64_t round) {
  link.active_round = round;
  link.idle_rounds = 0;
  if (link.hot || link.silent || link.lost) return;
  if (hot_count_ == kHot) {
    unsigned oldest = 0;
    for (unsigned i = 1; i < kHot; ++i) {
      if (hot_[i]->active_round < hot_[oldest]->active_round) oldest = i;
    }
    if (hot_[oldest]->active_round == round) return;  // all busy just now
    cool(oldest);
    if (hot_count_ == kHot) return;
  }
  link.hot = true;
  hot_[hot_count_++] = &link;
}

/// Back to epoll. Stays hot when it cannot be registered: it must not be forgotten.
void Poller::cool(unsigned i) {
  if (!want(*hot_[i], wanted(*hot_[i]))) return;
  hot_[i]->hot = false;
  hot_[i] = hot_[--hot_count_];
}

void Poller::update(TcpLink& link) {
  // A hot link is served directly, in both directions; what epoll should wait for is settled when it cools or sleeps.
  if (link.hot || link.gone || link.lost) return;
  if (!want(link, wanted(link))) {
    link.hot = hot_count_ < kHot;
    if (link.hot) hot_[hot_count_++] = &link;
  }
}

void Poller::age(uint64_t round) {
  bool any_active = false;
  for (unsigned i = 0; i < hot_count_; ++i) any_active |= hot_[i]->active_round == round;
  if (any_active) {
    for (unsigned i = 0; i < hot_count_;) {
      TcpLink& link = *hot_[i];
      const unsigned before = hot_count_;
      if (link.active_round != round && ++link.idle_rounds > kHotIdle) cool(i);
      if (hot_count_ == before) ++i;
    }
  }
  if (++polled_rounds_ < kHotAlone) return;
  polled_rounds_ = 0;
  for (unsigned i = 0; i < hot_count_; ++i) want(*hot_[i], 0);
}

bool Poller::prepare_sleep() {
  polled_rounds_ = 0;
  bool all = true;
  for (unsigned i = 0; i < hot_count_; ++i) all &= want(*hot_[i], wanted(*hot_[i]));
  return all;
}

Poller::Ready Poller::collect(epoll_event* out, size_t max) {
  const int n = ::epoll_wait(epoll_.get(), out, static_cast<int>(max), 0);
  Ready ready;
  for (int i = 0; i < n; ++i) {
    void* const who = out[i].data.ptr;
    uint64_t count;
    if (who == &wake_marker) {
      (void)!::read(wake_.get(), &count, sizeof(count));
      ready.woken = true;
    } else if (who == &timer_marker) {
      (void)!::read(timer_.get(), &count, sizeof(count));
      timer_set_ = false;
      ready.timer = true;
    } else {
      out[ready.links++] = out[i];
    }
  }
  return ready;
}

void Poller::set_timer(uint64_t delay_ns) {
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(delay_ns / 1'000'000'000);
  spec.it_value.tv_nsec = static_cast<long>(delay_ns % 1'000'000'000) + 1;
  if (spec.it_value.tv_nsec > 999'999'999) spec.it_value.tv_nsec = 999'999'999;
  timer_set_ = ::timerfd_settime(timer_.get(), 0, &spec, nullptr) == 0;
}

}  // namespace thalweg::impl::tcp
