// SPDX-License-Identifier: Apache-2.0
// A step that the host carries out for an executor, because the executor's own loads and stores do not get there: over tcp, from
// pageable memory, between a device and the host. The executor stores the run's number into `ring`; the proxy's thread, or the thread
// that drives a run by the host, sees it, posts the ordinary operation on the proxy's worker, and stores the number into `done` when
// it is complete, for which the executor waits. Which buffer this run moves, and what its signal or atomic operation carries, the
// executor has stored into `address` and `value` before: graphs that were captured before an update have others.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include <thalweg/device/types.hpp>

#include "core/worker.hpp"

namespace thalweg::impl {

constexpr size_t kProxiedWords = 5;  // ring, done, received, value, address

/// What the proxy's thread looks at in each turn, under its mutex.
struct Watched {
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  virtual ~Watched() = default;
  /// Begins what code has asked for. True: something happened.
  virtual bool look() = 0;
};

struct Proxied final : Watched {
  uint64_t* ring = nullptr;  // pinned, or the host's
  uint64_t* done = nullptr;
  uint64_t* value = nullptr;
  uint64_t* address = nullptr;
  uint64_t* received = nullptr;   // behind `done`: bytes of the message
  std::atomic<uint64_t> seen{0};  // runs that were begun
  std::atomic<bool> running{false};
  tw_request request = TW_REQUEST_NONE;  // of what runs
  std::optional<uint64_t> expected;      // bytes of the message that a receive takes; none: any that has room
  /// Posts the operation of one run; with TW_IN_PROGRESS `completion` gets its status.
  std::function<Status(const Completion& completion)> post;
  /// A run failed: notifies the plan. Any thread.
  std::function<void(Status status, const char* why)> failed;

  /// Begins the next run when it was asked for. Any thread, with the mutex or without.
  bool look() override;
  void finish(Status status, const char* why);
  static void on_complete(void* arg, tw_request request, tw_status status, const tw_recv_info* info);
};

}  // namespace thalweg::impl
