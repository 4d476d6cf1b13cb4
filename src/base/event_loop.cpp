// SPDX-License-Identifier: Apache-2.0
// The service thread. One epoll descriptor, one eventfd that wakes it, a queue of posted work and a set of timers.
//
// Every added descriptor gets a number that is never used again, and epoll reports the number: an event that was collected
// for a descriptor which a callback then removed (and whose number the kernel may have given out again) finds no entry.
//
// fork: the thread does not exist in a child, and the locks may be held for ever there. A child never touches State: calls
// do nothing, and the destructor leaks it.
#include "base/event_loop.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/platform/fork.hpp"
#include "base/platform/signals.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kWakeNumber = 0;

struct Entry {
  int fd;
  std::function<void(uint32_t)> ready;
};

}  // namespace

struct EventLoop::State {
  BornHere born;
  UniqueFd epoll, wake;
  Status made = TW_OK;  // whether the descriptors could be created; start() returns it
  std::thread thread;
  std::atomic<std::thread::id> thread_id{};

  std::mutex mutex;  // over the three below
  std::deque<std::function<void()>> posted;
  bool running = false;  // the thread accepts work
  bool stopping = false;

  // loop thread only (or before start)
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries;
  std::unordered_map<int, uint64_t> numbers;
  uint64_t next_number = 1;
  std::map<std::pair<uint64_t, uint64_t>, std::function<void()>> timers;  // (deadline, id)
  std::unordered_map<uint64_t, uint64_t> deadlines;                       // id -> deadline
  uint64_t next_timer = 1;

  void run();
  void run_posted();
  void run_timers();
  void dispatch(const epoll_event* events, int count);
  int timeout_ms() const;
  void signal();
  bool enqueue(std::function<void()> work);
};

void EventLoop::State::signal() {
  const uint64_t one = 1;
  const ssize_t written = write(wake.get(), &one, sizeof one);
  (void)written;  // EAGAIN: it is signalled already
}

bool EventLoop::State::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex);
    if (!running) return false;
    posted.push_back(std::move(work));
    if (posted.size() > 1) return true;  // the first one was signalled
  }
  signal();
  return true;
}

void EventLoop::State::run_posted() {
  std::deque<std::function<void()>> batch;
  {
    const std::lock_guard lock(mutex);
    batch.swap(posted);
  }
  for (auto& work : batch) {
    work();
    work = nullptr;  // what it holds is let go in order, before the next runs
  }
}

int EventLoop::State::timeout_ms() const {
  if (timers.empty()) return -1;
  const uint64_t at = timers.begin()->first.first;
  const uint64_t now = monotonic_ns();
  if (at <= now) return 0;
  const uint64_t ms = (at - now + kMillisecond - 1) / kMillisecond;
  return ms > 1'000'000 ? 1'000'000 : int(ms);
}

void EventLoop::State::run_timers() {
  // Only what was due on entry: a timer that re-arms itself with no delay may not keep descriptors waiting.
  const uint64_t now = monotonic_ns();
  const uint64_t last = next_timer;
  for (auto next = timers.begin(); next != timers.end() && next->first.first <= now;) {
    if (next->first.second >= last) {
      ++next;
      continue;
    }
    const std::function<void()> work = std::move(next->second);
    deadlines.erase(next->first.second);
    timers.erase(next);
    work();
    next = timers.begin();  // work may have added and cancelled
  }
}

void EventLoop::State::dispatch(const epoll_event* events, int count) {
  for (int i = 0; i < count; ++i) {
    const uint64_t number = events[i].data.u64;
    if (number == kWakeNumber) {
      uint64_t drained;
      while (read(wake.get(), &drained, sizeof drained) > 0) {
      }
      continue;
    }
    const auto found = entries.find(number);
    if (found == entries.end()) continue;                // removed by an earlier callback of this batch
    const std::shared_ptr<Entry> entry = found->second;  // it may remove itself while it runs
    entry->ready(events[i].events);
  }
}

void EventLoop::State::run() {
  epoll_event events[64];
  for (;;) {
    const int count = epoll_wait(epoll.get(), events, 64, timeout_ms());
    dispatch(events, count > 0 ? count : 0);
    run_timers();
    run_posted();
    const std::lock_guard lock(mutex);
    if (!stopping) continue;
    if (!posted.empty()) {
      signal();  // work posted by the last work still runs
      continue;
    }
    running = false;
    return;
  }
}

EventLoop::EventLoop() : state_(std::make_unique<State>()) {
  state_->epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!state_->epoll) state_->made = fail_errno(errno, "epoll_create1");
  state_->wake = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_->wake) state_->made = fail_errno(errno, "eventfd");
  if (state_->made != TW_OK) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeNumber;
  if (epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, state_->wake.get(), &event) != 0) {
    state_->made = fail_errno(errno, "epoll_ctl");
  }
}

EventLoop::~EventLoop() {
  if (state_->born.forked()) {
    (void)state_.release();  // see the top of this file
    return;
  }
  stop();
}

Status EventLoop::start() {
  State& s = *state_;
  if (const Status status = s.born.check("service loop"); is_error(status)) return status;
  if (is_error(s.made)) return fail(s.made, "the service thread could not be set up: %s", status_text(s.made));
  if (s.thread.joinable()) return fail(TW_ERR_INVALID, "the service thread was started before");
  s.running = true;
  s.stopping = false;
  const SignalsBlocked blocked;
  try {
    s.thread = std::thread([&s] {
      s.thread_id.store(std::this_thread::get_id());
      pthread_setname_np(pthread_self(), "thalweg-service");
      s.run();
    });
  } catch (const std::system_error& error) {
    s.running = false;
    return fail(TW_ERR_LIMIT, "no thread for the service loop: %s; raise the limit (ulimit -u, pids cgroup)", error.what());
  }
  return TW_OK;
}

void EventLoop::stop() {
  State& s = *state_;
  if (s.born.forked()) return;
  {
    const std::lock_guard lock(s.mutex);
    s.stopping = true;
  }
  s.signal();
  if (in_loop()) return;  // ends after the current callbacks; the destructor joins
  if (s.thread.joinable()) s.thread.join();
  s.thread_id.store(std::thread::id());
}

bool EventLoop::in_loop() const {
  return !state_->born.forked() && state_->thread_id.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

void EventLoop::post(std::function<void()> work) {
  if (!state_->born.forked()) state_->enqueue(std::move(work));
}

void EventLoop::call(const std::function<void()>& work) {
  State& s = *state_;
  if (s.born.forked()) return;
  if (in_loop()) return work();
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  const bool queued = s.enqueue([&] {
    work();
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  if (!queued) return work();  // no thread: there is no concurrent access
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

Status EventLoop::add(int fd, uint32_t events, std::function<void(uint32_t)> ready) {
  State& s = *state_;
  if (const Status status = s.born.check("service loop"); is_error(status)) return status;
  if (s.numbers.count(fd)) return fail(TW_ERR_INVALID, "descriptor %d is in the service loop already", fd);
  const uint64_t number = s.next_number++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (epoll_ctl(s.epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl(add)");
  s.numbers.emplace(fd, number);
  s.entries.emplace(number, std::make_shared<Entry>(Entry{fd, std::move(ready)}));
  return TW_OK;
}

Status EventLoop::modify(int fd, uint32_t events) {
  State& s = *state_;
  if (const Status status = s.born.check("service loop"); is_error(status)) return status;
  const auto found = s.numbers.find(fd);
  if (found == s.numbers.end()) return fail(TW_ERR_INVALID, "descriptor %d is not in the service loop", fd);
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second;
  if (epoll_ctl(s.epoll.get(), EPOLL_CTL_MOD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl(modify)");
  return TW_OK;
}

void EventLoop::remove(int fd) {
  State& s = *state_;
  if (s.born.forked()) return;
  const auto found = s.numbers.find(fd);
  if (found == s.numbers.end()) return;
  const auto node = s.entries.extract(found->second);  // what the callback holds goes last: it may call back in here
  s.numbers.erase(found);
  epoll_ctl(s.epoll.get(), EPOLL_CTL_DEL, fd, nullptr);  // fails harmlessly when the descriptor is closed already
}

uint64_t EventLoop::after(uint64_t delay_ns, std::function<void()> work) {
  State& s = *state_;
  if (s.born.forked()) return 0;
  const uint64_t now = monotonic_ns();
  const uint64_t at = delay_ns > UINT64_MAX - now ? UINT64_MAX : now + delay_ns;
  const uint64_t id = s.next_timer++;
  s.timers.emplace(std::pair(at, id), std::move(work));
  s.deadlines.emplace(id, at);
  return id;
}

void EventLoop::cancel(uint64_t timer) {
  State& s = *state_;
  if (s.born.forked()) return;
  const auto found = s.deadlines.find(timer);
  if (found == s.deadlines.end()) return;
  const auto node = s.timers.extract(std::pair(found->second, timer));
  s.deadlines.erase(found);
}

}  // namespace thalweg::impl
