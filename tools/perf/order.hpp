// SPDX-License-Identifier: Apache-2.0
// What rank 0 orders, as it travels, and what of it is refused.
#pragma once
#include <cstdint>
#include <string>

#include "options.hpp"

namespace perf {

/// One measurement as rank 0 orders it; travels as a message.
struct Order {
  char test[24];        // "": end
  uint64_t size;        // bytes moved
  uint64_t iterations;  // round trips, or windows
  uint64_t window;
  uint64_t seed;    // of the payload
  uint64_t verify;  // 1: check payload, do not care about time
  Layout layout;
  uint8_t sleep, trigger, waits, reuse, unused[4];  // trigger: Trigger; waits: TW_WAITS_*
  char memory[2][kMemoryName];                      // of rank 0's buffers and of rank 1's: as in --memory
};

/// What cannot be measured, in words; "": nothing is wrong. For what the user asks, and for what a peer orders. The texts of an order
/// must have ends.
std::string why_refused(const Order& order);

}  // namespace perf
