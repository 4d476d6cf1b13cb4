// SPDX-License-Identifier: Apache-2.0
// One collective over the memory that all ranks map (direct_area.hpp): the blocking calls' other way beside schedules. Each kind is a
// series of steps of pieces: every rank that brings something fills its part of a step, and those that read it drain the parts of
// others. Reductions combine in the order of ranks, from left to right, on all ranks alike.
//
// A rank's buffer may lie in a device's memory, which the others do not know: it goes through host memory here.
#pragma once
#include <algorithm>
#include <array>

#include "collectives/direct_area.hpp"
#include "collectives/estimate.hpp"
#include "collectives/group_wire.hpp"
#include "collectives/run.hpp"
#include "memory/local_copy.hpp"

namespace thalweg::impl {

class DirectRun {
 public:
  DirectRun(DirectArea& area, const Collective& what, const CollectiveTask& task, const CollectiveCosts& costs,
            LocalCopier& copier)
      : area_(area), what_(what), task_(task), costs_(costs), copier_(copier) {}
  Status run();

 private:
  static constexpr uint64_t kPiece = 64u << 10;  // of reductions: what is copied is still in the cache when it is combined

  static constexpr uint64_t kBlockPiece = 32u << 10;  // of each of several blocks

  Status broadcast();
  Status allgather();
  Status gather();
  Status scatter();
  Status alltoall();
  Status allreduce();
  Status reduce();
  Status scan();
  Status reduce_scatter();

  /// A block of a buffer, in bytes.
  struct Block {
    uint64_t offset, length;
  };
  Block input_block(uint32_t rank) const { return block(what_.send_counts, what_.send_offsets, rank); }
  Block output_block(uint32_t rank) const { return block(what_.recv_counts, what_.recv_offsets, rank); }
  Block block(const uint64_t* counts, const uint64_t* offsets, uint32_t rank) const {
    if (counts == nullptr) return {what_.bytes() * rank, what_.bytes()};
    return {(offsets != nullptr ? offsets[rank] : 0) * what_.element, counts[rank] * what_.element};
  }
  /// The piece of a block of `length` bytes that begins at `at`.
  static uint64_t piece_at(uint64_t length, uint64_t at, uint64_t piece) {
    return at >= length ? 0 : std::min(piece, length - at);
  }
  /// The most whole elements, a multiple of cache lines, of which `blocks` fit into a part.
  uint64_t piece_of(uint64_t blocks, uint64_t room = DirectArea::kBuffer) const;

  Status take(std::byte* to, uint64_t offset, uint64_t length) const { return copy_in(to, task_.bound.input, offset, length); }
  Status give(uint64_t offset, const std::byte* from, uint64_t length) const { return copy_out(offset, from, length); }
  Status copy_in(std::byte* to, const Buffer& from, uint64_t offset, uint64_t length) const;
  Status copy_out(uint64_t offset, const std::byte* from, uint64_t length) const;

  /// Where this rank's operand of a piece is: its buffer, or the copy of it in its part, if its buffer is a device's.
  const std::byte* own(uint64_t offset, const std::byte* copied) const {
    return task_.bound.input.on_device ? copied : task_.bound.input.address + offset;
  }
  Status combine(std::byte* to, uint32_t ranks, uint64_t length, bool last = true);  // last: scaled, where that is asked for
  /// To the output; the operands are in sources_.
  Status combine_out(uint64_t offset, uint32_t ranks, uint64_t length);

  /// Steps of this rank: in each it fills its part, if it fills any; then it drains the step before, when `of` has published that:
  /// all ranks, or one. kNoRank: it drains none.
  template <class Fill, class Drain>
  Status steps(uint64_t count, uint32_t of, Room room, Fill fill, Drain drain);
  static constexpr uint32_t kAll = UINT32_MAX - 1;

  /// Of kinds whose counts not all ranks know: the most of what any rank says.
  Status agree_on_most(uint64_t own, uint64_t* most, std::array<uint64_t, DirectArea::kMostRanks>* all);
  Status refuse_length(uint32_t rank, uint64_t sent, uint64_t expected);
  Status agree_on_lengths(uint64_t* longest);
  /// From the own input to the own output.
  Status move_own(uint64_t to, uint64_t from, uint64_t length) const;

  /// No piece, no part: each rank reads its blocks where the others have them. *done: false: it cannot be, on any rank.
  Status alltoall_by_reading(bool* done);

  /// Each reader combines all that it needs: the inputs of ranks [0, ranks). reader: kAll, or one rank.
  Status combine_at_readers(uint32_t reader, uint32_t ranks);
  /// Each rank combines its share of each piece, and readers take all shares.
  Status combine_by_shares(uint32_t reader);
  /// Short ones, in two steps: each rank combines the inputs of its group, and then one result of each group. A group: `each` ranks
  /// that follow each other.
  Status combine_by_groups(uint32_t each);
  Status barrier();
  /// All ranks have come here, and have read what was published before.
  Status meet();

  DirectArea& area_;
  const Collective& what_;
  const CollectiveTask& task_;
  const CollectiveCosts& costs_;  // on all ranks alike
  LocalCopier& copier_;
  std::array<uint64_t, DirectArea::kMostRanks> sources_;
};

}  // namespace thalweg::impl
