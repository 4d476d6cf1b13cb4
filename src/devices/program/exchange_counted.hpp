// SPDX-License-Identifier: Apache-2.0
// Blocks of several lengths, from rank to rank, whose counts lie in memory that the device reads: an alltoallv of counts that the host
// does not know, and the v forms, where it does. What a launch brings along beside its Exchange, and what a block of threads keeps of
// each other rank meanwhile.
#pragma once
#include "devices/program/exchange.hpp"

namespace thalweg::device {

/// By value in a launch's parameters. Counts, offsets and capacities in rows.
struct ExchangeCounts {
  const u64* send_counts;   // of this rank to each
  const u64* send_offsets;  // null: one behind the other, in the order of ranks
  u64* recv_counts;         // written: of each rank to this one; null: not wanted
  const u64* recv_offsets;  // null: as above
  const u64* expected;      // what recv_counts would have to become; null: not known
  u64 row_bytes;
  u64 send_capacity, recv_capacity;  // where input and output end
};
constexpr u64 kMostCountedBytes = u64{1} << 56;  // of a capacity

/// Failure::found of a run that ends by TW_ERR_TRUNCATED: the rank, and which capacity in the upper half. Failure::expected: rows.
enum class CountedFault : u32 {
  sends = 1,  // the rows to that rank end behind send_capacity
  receives,   // the rows of that rank end behind recv_capacity
  elsewhere,  // that rank has given up for such a reason
  unexpected  // that rank sends another number of rows than are expected
};

/// What a block has of another rank: its part of what goes there, and of what comes from there. The own rank's: from input to output.
struct CountedPair {
  u64 sent, received;  // rows, of all blocks
  u64 from, send_bytes;
  u64 to, recv_bytes;
  u32 sends, takes;   // pieces
  u32 pushed, taken;  // of them, so far
  u32 now;            // what the last poll found
  u32 reserved;
};
/// Shared by the threads of a block.
struct CountedPairs {
  CountedPair of[kMostExchangers];
};

}  // namespace thalweg::device
