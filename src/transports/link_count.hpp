// SPDX-License-Identifier: Apache-2.0
// How many links this process has: what is lost or closed must not stay.
#pragma once
#include <atomic>
#include <cstdint>

namespace thalweg::impl {

/// A member of every transport's link.
class LinkCount {
 public:
  LinkCount() { alive_.fetch_add(1, std::memory_order_relaxed); }
  ~LinkCount() { alive_.fetch_sub(1, std::memory_order_relaxed); }
  LinkCount(const LinkCount&) = delete;
  LinkCount& operator=(const LinkCount&) = delete;
  /// Links of all ports of this process that are not freed yet. Any thread.
  static uint32_t alive() { return alive_.load(std::memory_order_relaxed); }

 private:
  inline static std::atomic<uint32_t> alive_{0};
};

}  // namespace thalweg::impl
