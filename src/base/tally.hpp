// SPDX-License-Identifier: Apache-2.0
// A number that one thread counts and any thread reads.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/platform/own_add.hpp"

namespace thalweg::impl {

/// Written by one thread at a time, read by any. No locked additions: they cost ten times as much.
class Tally {
 public:
  void add(uint64_t n = 1) { own_add(value_, n); }
  void sub(uint64_t n = 1) { own_add(value_, uint64_t{0} - n); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace thalweg::impl
