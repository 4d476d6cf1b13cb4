// SPDX-License-Identifier: Apache-2.0
// A collective as one step of a program: one kernel on each rank's device, which stores straight into areas that all of them reach.
// What every rank sends to every other one is a block of the same length. Three protocols, as NCCL's of the same names:
//
//   LL      Words of 8 bytes, each in one store of 16 with the number of the run: no fence, no flag, one hop. Every block of threads
//           has its own room for every sender, twice, and sends each rank at least one word, so that a run ends when all have begun it:
//           the room of a run is free again two such runs later. Rooms change only with runs in which all ranks meet: a block of
//           threads that has no bytes in a run by Simple ends without, and would come back to a room that others still read.
//   Simple  Pieces into slots, and a flag behind each. Two slots: the next piece is stored while this one is under way.
//           One phase: what was received is reduced, or goes to its place, and the slot is given back.
//           Two phases: a slice of the block to each rank, which stores what becomes of it into second slots of the others.
//           Allreduce: it reduces its slice. Broadcast: it stores its slice on; the root has none, as slices for all would make it
//           send its own to each: of N ranks and B bytes it sends B, and the others (N - 2) / (N - 1) B, where one phase lets it
//           send (N - 1) B, and N slices 2 (N - 1) / N B. All others receive B anyhow. Two ranks: the same as one phase.
//
//   LL128   LL in lines of 128 bytes with the number once, in one phase or two (exchange_lines.hpp).
//
// Symmetric: where all buffers lie in windows of the group, kernels load and store there (exchange_symmetric.hpp). Long allreduces
// store their operands into Simple's slots, and their results into the windows (ExchangeRun, exchange_places.hpp).
//
// Blocks of threads with the same number belong together on all ranks; others do not wait for each other. So a rank's blocks need
// not all be there at once. Reductions are in the order of ranks, and round once: the same bits by both protocols, and by the
// schedules one_shot (allreduce) and linear (reduce, reduce-scatter) of src/collectives.
#pragma once
#include <thalweg/device/machine/machine.hpp>

namespace thalweg::device {

constexpr u32 kFirstAreas = 8;        // whose addresses come along with a launch
constexpr u32 kMostExchangers = 64;   // ranks: a bit each
constexpr u32 kExchangeBlocks = 128;  // of threads, at most
constexpr u32 kUnitsOfBlock = 2048;   // LL: words of 8 bytes that a block sends to a rank in one run, at most
constexpr u32 kUnitBlocks = 64;       // LL: blocks of threads, at most
constexpr u64 kUnitBytes = 8;         // of data, in 16
constexpr u32 kLinesOfPhase =
    128;  // LL128: lines that a block sends to a rank in one of two phases, at most; in one phase, twice that
constexpr u32 kRoomOfLines = 2 * kLinesOfPhase * 128;  // bytes

/// By value in a launch's parameters.
struct Exchange {
  u32 rank, size;
  u32 low_latency;           // LL, or LL128; 0: Simple, or symmetric
  u32 one_word;              // LL of one word a thread at most, of a few ranks: exchange_words.hpp
  u32 symmetric;             // the buffers lie in windows: exchange_symmetric.hpp
  u32 by_slots;              // the same of an allreduce whose operands go by Simple's slots, and results into the windows
  u32 reduces;               // what is taken is reduced; 0: it goes to its places
  u32 type, op;              // ElementType, ReduceOp
  u32 threads;               // of a block
  u64 sends, takes;          // bits: ranks to which this one sends a block, from which it takes one; its own bit: its own block
  u64 input, output, bytes;  // addresses here; length of a block
  u64 slice;                 // in two phases: bytes of one, a multiple of 16 so that elements stay whole; the last ones may be
                             // shorter, or empty. 0: one phase
  u64 share;                 // bytes of a block, or slice, that each block of threads moves; those of the last ones may be
                             // shorter, or empty. Whole words of 16, LL's of 8, LL128's of 120
  u64 input_stride, output_stride;  // from the block of one rank to that of the next
  u32 room_blocks;                  // for how many blocks of threads areas have room
  u32 unsliced;                     // two phases: the rank without a slice; size: none
  u64 piece;                        // bytes of a slot, a multiple of 16
  double factor;                    // of sums that are scaled: what floating-point elements are multiplied by
  u32 scales;                       // a sum is scaled once it is rounded; integers are divided by size
  u32 any;                          // scaled, of a type that is not an ElementType, or of parts: by AnyElements
  const u64* parts;                 // in this device's memory; null: equal blocks. Of each rank: where its block begins in
                                    // input, and its bytes, `bytes` at most; then a checksum of these, the same on all ranks.
                                    // Of reductions by Simple
  u64 areas[kFirstAreas];           // of the first ranks, as this device reaches them
  const u64* more_areas;            // of all, in this device's memory; as many as there are
  // Symmetric: all ranks' parts of the windows, as this device reaches them, in its memory; null: the exchange needs none. And where
  // this rank's buffers are: the window's number above kPlaceBits of offset.
  const u64 *inputs, *outputs;
  u64 input_place, output_place;
  u64 input_limit,
      output_limit;  // offsets up to which other ranks' buffers may begin, whatever they say: they end in the window
  u32 place_align;   // of those offsets: bytes, a power of two
  u32 input_near;    // the input is memory of this rank's device, where kernels ahead have left it for all
  u64 cut;           // bytes of a piece of a broadcast in two phases, a multiple of 16
  u64 units;         // one_word: AreaLayout::units(0, 0, 0)
  u64 lines;         // LL128: AreaLayout::lines(0, 0, 0); 0: not by lines
};
constexpr u32 kPlaceBits = 48;

/// The own words of a block of threads, at the begin of an area. The first two are read together, and stored the second one first.
struct alignas(16) ExchangeWords {
  u64 turn;    // runs, times 4; 2: which of two rooms is next; 1: a run is under way
  u64 pieces;  // of Simple, so far
  i64 failed;  // as tw_status: how a run of this block failed, which therefore is under way for ever; 0: none did, or others of its
               // blocks know
  u64 found;  // Failure::found of that
};
/// Of Failure::found: an earlier run failed so, whose blocks the group's kernels still find under way. Failure::expected is its number.
constexpr u64 kEarlierRun = u64{1} << 63;

/// Where what lies in an area, in bytes. Zeroed before the first run.
struct AreaLayout {
  u32 blocks, size;
  u64 piece;
  /// arrived, given: of each sender one, which it stores: pieces that are there; pieces of this rank that it has read, and whose
  /// result is there.
  THALWEG_DEVICE u64 flag(u32 block, u32 given, u32 from) const {
    return u64{blocks} * sizeof(ExchangeWords) + ((u64{block} * 2 + given) * size + from) * sizeof(u64);
  }
  /// Of exchanges whose counts lie in device memory: a unit of each sender for two runs in turn; and flags as above, of their own. Of
  /// parts, the unit has their checksum.
  THALWEG_DEVICE u64 count_unit(u32 block, u32 turn, u32 from) const {
    return (flag(blocks, 0, 0) + 127) / 128 * 128 + ((u64{block} * 2 + turn) * size + from) * 2 * kUnitBytes;
  }
  THALWEG_DEVICE u64 counted_flag(u32 block, u32 given, u32 from) const {
    return count_unit(blocks, 0, 0) + ((u64{block} * 2 + given) * size + from) * sizeof(u64);
  }
  /// Of symmetric exchanges: two units of each sender for two runs in turn.
  THALWEG_DEVICE u64 place_units(u32 block, u32 turn, u32 from) const {
    return (counted_flag(blocks, 0, 0) + 127) / 128 * 128 + ((u64{block} * 2 + turn) * size + from) * 4 * kUnitBytes;
  }
  THALWEG_DEVICE u64 units(u32 block, u32 turn, u32 from) const {
    const u64 begin = (place_units(blocks, 0, 0) + 127) / 128 * 128;
    return begin + ((u64{block} * 2 + turn) * size + from) * kUnitsOfBlock * 2 * kUnitBytes;
  }
  /// Of LL128: of each sender a room for two runs in turn. Of few ranks.
  THALWEG_DEVICE u64 lines(u32 block, u32 turn, u32 from) const {
    const u64 begin = units(blocks < kUnitBlocks ? blocks : kUnitBlocks, 0, 0);
    return begin + (size <= kFirstAreas ? ((u64{block} * 2 + turn) * size + from) * kRoomOfLines : 0);
  }
  THALWEG_DEVICE u64 slot(u32 block, u32 half, u32 second, u32 from) const {
    return lines(blocks, 0, 0) + (((u64{block} * 2 + half) * 2 + second) * size + from) * piece;
  }
  THALWEG_DEVICE u64 length() const { return slot(blocks, 0, 0, 0); }
};

}  // namespace thalweg::device
