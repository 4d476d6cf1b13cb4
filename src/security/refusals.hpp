// SPDX-License-Identifier: Apache-2.0
// Refused peers, counted by cause. Any thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "security/handshake.hpp"

namespace thalweg::impl {

const char* refusal_name(Refusal cause);  ///< "authentication"

class RefusalCounters {
 public:
  void count(Refusal cause) { counts_[size_t(cause)].fetch_add(1, std::memory_order_relaxed); }
  uint64_t value(Refusal cause) const { return counts_[size_t(cause)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, size_t(Refusal::count_)> counts_{};
};

}  // namespace thalweg::impl
