// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels; compiled by both.
#pragma once
#include <cstdint>

#include "devices/program/exchange_counted.hpp"
#include "devices/program/specialised.hpp"

namespace thalweg::impl::kernels {

/// What every kernel reads first and does last. Addresses, 0: not this one.
struct Ends {
  uint64_t status;  // set: do nothing
  uint64_t signal;  // a word to be stored or added to after all data
  uint64_t value;
  uint64_t counter;  // 32 bits, zero: blocks that are done; needed for a signal of several blocks
  bool add;
};

struct CopyArguments {
  uint64_t to, from;
  uint64_t width, rows, slices;
  int64_t to_row, from_row, to_slice, from_slice;
  uint64_t piece;  // bytes of a row that one warp (wide) or one thread (narrow) takes at a time
  Ends ends;
};

struct BlocksArguments {
  uint64_t pairs, count, length;
  uint64_t piece;  // bytes that one warp takes at a time
  Ends ends;
};

struct AtomicArguments {
  uint64_t word, operand, compare;
  uint64_t old;  // 0: not wanted
  unsigned op, bytes;
  Ends ends;
};

struct WaitArguments {
  uint64_t word, value, limit_ns;
  uint64_t status;
  uint64_t expired;  // what status is set to then
};

constexpr unsigned kAheadThreads = 64;  // of a kernel that waits ahead of a program's

struct ProgramArguments {
  device::Program program;  // where its steps and numbers are; unless they come along
  unsigned blocks, item;    // as ProgramShape
  device::Specialised specialised;
  const unsigned* numbers;  // placed; of a list: which step each piece is of; of independent steps: their order
};

struct ExchangeArguments {
  device::Program program;
  unsigned blocks, reserved;
  device::Exchange exchange;
};

struct CountedArguments {
  ExchangeArguments common;
  device::ExchangeCounts counts;
};

/// With the steps: a launch brings them along faster than a kernel fetches them.
template <unsigned Steps, unsigned Numbers>
struct InlineProgram {
  ProgramArguments common;
  device::Step steps[Steps];
  unsigned after[Numbers];
};
constexpr unsigned kSmallSteps = 3, kSmallAfter = 8;
using SmallProgram = InlineProgram<kSmallSteps, kSmallAfter>;
using LargeProgram = InlineProgram<12, 64>;
static_assert(sizeof(LargeProgram) <= 3584);

}  // namespace thalweg::impl::kernels
