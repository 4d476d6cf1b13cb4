// SPDX-License-Identifier: Apache-2.0
// A block of threads that finds where all ranks' buffers lie in windows of the group. Nothing here waits: the driver polls.
//
//   prepare         ahead of begin
//   push_offsets    to all others: where in the windows this rank's buffers lie, with the run's number, as LL sends its words:
//                   the buffers may be read and written from now on
//   offsets_there   until it is true for all threads; behind a barrier all ranks' addresses are known
#pragma once
#include "devices/program/exchange_block.hpp"

namespace thalweg::device {

/// Of all ranks, as this device reaches them. One for all threads of a block.
struct SymmetricPeers {
  u64 input[kMostExchangers], output[kMostExchangers];
  u64 inputs[kMostExchangers], outputs[kMostExchangers];  // the windows
};

template <class M, class Group>
class PlacedBlock : public ExchangeBlock<M, Group> {
  using Base = ExchangeBlock<M, Group>;

 public:
  static constexpr bool kPlaced = true;
  THALWEG_DEVICE const u64* outputs() const { return peers_.output; }

  THALWEG_DEVICE PlacedBlock(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block,
                             SymmetricPeers& peers)
      : Base(m, group, x, program, blocks, block), peers_(peers) {}

  /// Takes its time, and is not of the run. By the last threads, as the first one becomes the block's owner meanwhile.
  THALWEG_DEVICE void prepare() const {
    const bool loaded = x_.reduces != 0 && x_.by_slots == 0;  // what this rank's earlier kernels wrote, by others
    if (loaded && x_.input_near == 0 && lane() < x_.size) m_.fence();
    THALWEG_ROLLED
    for (u32 p = lane(); p < x_.size; p += group_.size()) {
      peers_.inputs[p] = x_.inputs != nullptr ? m_.load(x_.inputs + p) : 0;
      peers_.outputs[p] = x_.outputs != nullptr ? m_.load(x_.outputs + p) : 0;
    }
  }
  THALWEG_DEVICE bool begin() { return Base::begin_with_pieces(); }
  THALWEG_DEVICE void push_offsets() const {
    THALWEG_ROLLED
    for (u32 p = lane(); p < x_.size; p += group_.size()) {
      if (p == x_.rank) continue;
      m_.store16(place_unit(p, x_.rank), Word16{x_.input_place, run_ + 1});
      m_.store16(place_unit(p, x_.rank) + 1, Word16{x_.output_place, run_ + 1});
    }
  }
  /// One poll of this thread's share. Ranks' buffers that lie in different windows, or not in them, or whose elements would not be
  /// aligned, end the run: what ranks say is not trusted.
  THALWEG_DEVICE bool offsets_there() {
    bool all = true;
    THALWEG_ROLLED
    for (u32 p = lane(); p < x_.size; p += group_.size()) all = find(p) && all;
    found_ = all;
    return all;
  }
  /// After a poll in vain; wait: as the base has it, of what is waited for beside offsets.
  THALWEG_DEVICE bool timed_out(u32 wait) { return Base::timed_out(found_ ? wait : kOffsets); }

 protected:
  /// Threads from the last one on.
  THALWEG_DEVICE u32 lane() const { return group_.size() - 1 - group_.rank(); }
  using Base::block_;
  using Base::group_;
  using Base::layout_;
  using Base::m_;
  using Base::missing_;
  using Base::room_;
  using Base::run_;
  using Base::x_;
  SymmetricPeers& peers_;

 private:
  static constexpr i64 kInvalid = -101;  // as tw_status
  static constexpr u32 kOffsets = ~u32{0};
  bool found_ = true;

  THALWEG_DEVICE Word16* place_unit(u32 of, u32 from) const {
    return reinterpret_cast<Word16*>(Base::area(of) + layout_.place_units(block_, room_, from));
  }
  THALWEG_DEVICE bool find(u32 p) {
    if (p == x_.rank) {
      peers_.input[p] = x_.input;
      peers_.output[p] = x_.output;
      return true;
    }
    const Word16 input = m_.acquire16(place_unit(x_.rank, p)), output = m_.acquire16(place_unit(x_.rank, p) + 1);
    missing_ = p;
    if (input.high != run_ + 1 || output.high != run_ + 1) return false;
    if (!fits(input.low, x_.input_place, x_.input_limit) || !fits(output.low, x_.output_place, x_.output_limit)) {
      Base::fail_run(kInvalid, run_ + 1, p);  // the next look at the clock finds the plan aborted
      return false;
    }
    peers_.input[p] = peers_.inputs[p] + offset_of(input.low);
    peers_.output[p] = peers_.outputs[p] + offset_of(output.low);
    return true;
  }
  THALWEG_DEVICE bool fits(u64 place, u64 own, u64 limit) const {
    return place >> kPlaceBits == own >> kPlaceBits && offset_of(place) <= limit &&
           (offset_of(place) & (x_.place_align - 1)) == 0;
  }
  static THALWEG_DEVICE u64 offset_of(u64 place) { return place & ((u64{1} << kPlaceBits) - 1); }
};

}  // namespace thalweg::device
