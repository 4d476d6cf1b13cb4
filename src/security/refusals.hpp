// SPDX-License-Identifier: Apache-2.0
// Refused peers, counted by cause. Any thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "security/handshake.hpp"

namespace thalweg::impl {

const char* refusal_name(Refusal cause);  ///< "authentication"

class RefusalCounters {
 public:
  void count(Refusal cause) { counts_[size_t(cause)].fetch_add(1, std::memory_order_relaxed); }
  uint64_t value(Refusal cause) const { return counts_[size_t(cause)].load(std::memory_order_relaxed); }
  /// {"authentication": 0, "version": 0, ...}
  std::string json() const;

 private:
  std::array<std::atomic<uint64_t>, size_t(Refusal::count_)> counts_{};
};

}  // namespace thalweg::impl
