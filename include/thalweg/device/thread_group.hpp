// SPDX-License-Identifier: Apache-2.0
// Groups of threads: one thread, a warp, a block, or several blocks that share one transfer. All threads of a group make its
// calls, with the same arguments; none of them may have left the kernel. On the host each is one thread.
//
// Members of a thread group: rank() of size() threads that divide work; sync(), its barrier; all(ok), a barrier and a vote:
// true if ok on every thread; broadcast(), thread 0's value, to all; crew_rank() of crew_size() threads that divide a
// transfer: of Blocks those of all blocks; last(), a barrier that is true for exactly one thread, when all parts are done
// and that thread's next release covers all of them; passed(), the same without the release; leads(), one thread of all;
// shared() by several blocks; counting(), see Blocks; whole_warps.
#pragma once
#include <thalweg/device/order.hpp>

namespace thalweg::device {

struct Thread {
  static constexpr bool whole_warps = false;
  THALWEG_DEVICE u32 rank() const { return 0; }
  THALWEG_DEVICE u32 size() const { return 1; }
  THALWEG_DEVICE void sync() const {}
  THALWEG_DEVICE bool all(bool ok) const { return ok; }
  THALWEG_DEVICE u64 broadcast(u64 value) const { return value; }
  THALWEG_DEVICE bool leads() const { return rank() == 0; }
  THALWEG_DEVICE u32 crew_rank() const { return rank(); }
  THALWEG_DEVICE u32 crew_size() const { return size(); }
  template <class M>
  THALWEG_DEVICE bool last(M) const {
    return true;
  }
  template <class M>
  THALWEG_DEVICE bool passed(M) const {
    return true;
  }
  THALWEG_DEVICE bool shared() const { return false; }
  THALWEG_DEVICE Thread counting(u32*) const { return *this; }
};

/// Whole warps only. Votes and shuffles order no memory, which all() and broadcast() do, like a block's: the barrier does.
struct Warp {
  static constexpr bool whole_warps = true;
  THALWEG_DEVICE u32 rank() const { return machine::lane(); }
  THALWEG_DEVICE u32 size() const { return machine::kLanes; }
  THALWEG_DEVICE void sync() const { machine::sync_lanes(); }
  THALWEG_DEVICE bool all(bool ok) const {
    sync();
    return machine::all_lanes(ok);
  }
  THALWEG_DEVICE u64 broadcast(u64 value) const {
    sync();
    return machine::from_lane(value, 0);
  }
  THALWEG_DEVICE bool leads() const { return rank() == 0; }
  THALWEG_DEVICE u32 crew_rank() const { return rank(); }
  THALWEG_DEVICE u32 crew_size() const { return size(); }
  template <class M>
  THALWEG_DEVICE bool last(M) const {
    sync();
    return rank() == 0;
  }
  template <class M>
  THALWEG_DEVICE bool passed(M) const {
    sync();
    return rank() == 0;
  }
  THALWEG_DEVICE bool shared() const { return false; }
  THALWEG_DEVICE Warp counting(u32*) const { return *this; }
};

struct Block {
  static constexpr bool whole_warps = true;
  THALWEG_DEVICE u32 rank() const { return machine::block_rank(); }
  THALWEG_DEVICE u32 size() const { return machine::block_size(); }
  THALWEG_DEVICE void sync() const { machine::sync_block(); }
  THALWEG_DEVICE bool all(bool ok) const { return machine::all_of_block(ok); }
  THALWEG_DEVICE u64 broadcast(u64 value) const { return machine::from_first_of_block(value); }
  THALWEG_DEVICE bool leads() const { return rank() == 0; }
  THALWEG_DEVICE u32 crew_rank() const { return rank(); }
  THALWEG_DEVICE u32 crew_size() const { return size(); }
  template <class M>
  THALWEG_DEVICE bool last(M) const {
    sync();
    return rank() == 0;
  }
  template <class M>
  THALWEG_DEVICE bool passed(M) const {
    sync();
    return rank() == 0;
  }
  THALWEG_DEVICE bool shared() const { return false; }
  THALWEG_DEVICE Block counting(u32*) const { return *this; }
};

/// Block `index` of `count` that share each transfer: each copies some of it, so all of the source must be there for each of
/// them; the last block to finish does what follows (a signal), once.
/// `arrived` is a word of this device's memory, 0 before and after. One transfer at a time: before a block begins another one
/// with the same word, the one before must be over for all of them (an answer to its signal, a grid barrier). Channels use
/// words of their own, and need none here.
struct Blocks : Block {
  u32* arrived;
  u32 index, count;

  THALWEG_DEVICE Blocks(u32* arrived_word, u32 block_index, u32 block_count)
      : arrived(arrived_word), index(block_index), count(block_count) {}
  THALWEG_DEVICE bool leads() const { return index == 0 && rank() == 0; }
  /// Whole warps of the blocks in turn, so that a transfer of less than a word for each thread still takes all of them.
  THALWEG_DEVICE u32 crew_rank() const {
    constexpr u32 lanes = machine::kLanes;
    return size() % lanes == 0 ? (rank() / lanes * count + index) * lanes + rank() % lanes : index * size() + rank();
  }
  THALWEG_DEVICE u32 crew_size() const { return count * size(); }
  template <class M>
  THALWEG_DEVICE bool last(M m) const {
    sync();
    if (rank() != 0) return false;
    if (count == 1) return true;
    m.fence();
    const bool is_last = m.last_of(arrived, count);
    if (is_last) m.fence_near();  // behind the count, which is relaxed: the next release covers what all blocks stored
    return is_last;
  }
  template <class M>
  THALWEG_DEVICE bool passed(M m) const {
    sync();
    return rank() == 0 && (count == 1 || m.last_of(arrived, count));
  }
  THALWEG_DEVICE bool shared() const { return count > 1; }
  THALWEG_DEVICE Blocks counting(u32* word) const { return {word, index, count}; }
};

}  // namespace thalweg::device
