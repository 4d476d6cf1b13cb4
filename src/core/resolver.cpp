// SPDX-License-Identifier: Apache-2.0
#include "core/resolver.hpp"

#include <pthread.h>

#include <exception>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/platform/signals.hpp"

namespace thalweg::impl {

Status Resolver::ask(std::function<void()> look_up) {
  const std::lock_guard lock(mutex_);
  if (closed_) return TW_OK;
  asked_.push_back(std::move(look_up));
  changed_.notify_one();
  if (asked_.size() <= idle_ || threads_.size() == kThreads) return TW_OK;
  try {
    const SignalsBlocked blocked;
    threads_.reserve(kThreads);
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& error) {
    if (!threads_.empty()) return TW_OK;  // it waits for one of those
    asked_.pop_back();
    return fail(TW_ERR_LIMIT, "no thread to look a name up with: %s; connect to a numeric address, or raise RLIMIT_NPROC",
                error.what());
  }
  return TW_OK;
}

void Resolver::run() {
  pthread_setname_np(pthread_self(), "thalweg-names");
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return closed_ || !asked_.empty(); });
    --idle_;
    if (closed_) return;
    const std::function<void()> look_up = std::move(asked_.front());
    asked_.pop_front();
    lock.unlock();
    try {
      look_up();
    } catch (const std::exception& error) {  // who asked runs out of time
      log(LogLevel::error, "a name was not looked up: %s", error.what());
    }
    lock.lock();
  }
}

void Resolver::close() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    asked_.clear();
    threads = std::move(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace thalweg::impl
