// SPDX-License-Identifier: Apache-2.0
#include "devices/deferred_release.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/platform/fork.hpp"
#include "base/platform/signals.hpp"

namespace thalweg::impl {
namespace {

struct Held {
  std::shared_ptr<void> what;
  size_t bytes;
};

struct Releases {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Held> held;
  size_t bytes = 0;        // of `held`
  unsigned kernels = 0;    // KernelsWait
  unsigned starting = 0;   // of these: made while a release was under way, and waiting for it
  bool releasing = false;  // the thread is in a driver's call
  bool thread = false;     // ends when nothing is held

  bool may_release() const { return kernels == 0 || bytes > kMostDeferred; }
  bool settled() const { return !releasing && (held.empty() || !may_release()); }

  void run() {
    std::unique_lock lock(mutex);
    while (!held.empty()) {
      changed.wait(lock, [this] { return may_release(); });
      Held next = std::move(held.front());
      held.pop_front();
      bytes -= next.bytes;
      releasing = true;
      lock.unlock();
      next.what.reset();
      lock.lock();
      releasing = false;
      changed.notify_all();
    }
    thread = false;
    changed.notify_all();
  }
};

}  // namespace

/// Counted first: what is queued behind the release under way is kept back.
KernelsWait::KernelsWait() {
  Releases& all = state_of_process<Releases>();
  std::unique_lock lock(all.mutex);
  const bool none = all.kernels++ == all.starting;
  if (!none || !all.releasing) return;
  ++all.starting;
  all.changed.wait(lock, [&all] { return !all.releasing; });
  --all.starting;
}

KernelsWait::~KernelsWait() {
  Releases& all = state_of_process<Releases>();
  const std::lock_guard lock(all.mutex);
  if (all.kernels != 0 && --all.kernels == 0) all.changed.notify_all();  // 0: a forked child, which has none
}

bool kernels_wait() {
  Releases& all = state_of_process<Releases>();
  const std::lock_guard lock(all.mutex);
  return all.kernels != 0;
}

void release_later(std::shared_ptr<void> held, size_t bytes) {
  Releases& all = state_of_process<Releases>();
  std::unique_lock lock(all.mutex);
  all.held.push_back({std::move(held), bytes});
  all.bytes += bytes;
  all.changed.notify_all();
  if (all.thread) return;
  try {
    const SignalsBlocked blocked;
    std::thread([&all] {
      pthread_setname_np(pthread_self(), "thalweg-unpin");
      all.run();
    }).detach();
    all.thread = true;
  } catch (const std::system_error&) {
    Held here = std::move(all.held.back());  // no thread is to be had: by the caller after all
    all.held.pop_back();
    all.bytes -= here.bytes;
    lock.unlock();
    here.what.reset();
  }
}

void await_releases(uint64_t limit_ns) {
  Releases& all = state_of_process<Releases>();
  std::unique_lock lock(all.mutex);
  all.changed.wait_for(lock, std::chrono::nanoseconds(limit_ns), [&all] { return all.settled(); });
}

}  // namespace thalweg::impl
