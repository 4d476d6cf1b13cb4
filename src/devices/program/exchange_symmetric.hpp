// SPDX-License-Identifier: Apache-2.0
// An exchange whose buffers lie in windows of the group: kernels load and store there, without slots in between; one text for GPUs
// (devices/kernels/exchange_symmetric.hpp) and for emulated ones (one_thread_symmetric.hpp). Nothing here waits: the driver polls.
//
//   prepare, begin, push_offsets   as exchange_places.hpp says
//   while next():                  if it awaits(): flags_there until it is true, a barrier; act
//   end                            counts, and releases the block
//
// What is reduced is loaded from all ranks' inputs, by the rank that has the block, or, in an allreduce, the slice, which stores the
// result into all outputs. All else is stored into the outputs by the rank that has it. A broadcast of three ranks and more goes in
// two phases: the root stores a slice to each rank, piece by piece, which stores it on. At the end each rank says that it has done
// its part, and waits for the others': its buffers are not used any more.
#pragma once
#include <type_traits>

#include "devices/program/exchange_places.hpp"
#include "devices/program/exchange_reduce.hpp"

namespace thalweg::device {

/// As of LinesForm: kernels for what is called most, without the code of all else. Each takes what it is for wherever the other ranks'
/// buffers lie.
enum class SymmetricForm : u32 {
  any,         // all of it
  stores,      // nothing is reduced, in one phase
  broadcasts,  // in two phases
  sums,        // of float32 and bfloat16
};
constexpr SymmetricForm form_of_symmetric(const Exchange& x) {
  if (x.reduces == 0) return x.slice != 0 ? SymmetricForm::broadcasts : SymmetricForm::stores;
  return SumElements::has(x.type, x.op) ? SymmetricForm::sums : SymmetricForm::any;
}

/// Of a reduction, in offsets of all inputs and outputs.
struct PeerPlaces {
  const SymmetricPeers* peers;
  u64 from, to;
  u64 here;       // this rank's result
  u32 all, rank;  // ranks, whose outputs get the result; 0: this one's alone
  THALWEG_DEVICE u64 source(u32 of) const { return peers->input[of] + from; }
  THALWEG_DEVICE u32 targets() const { return all != 0 ? all : 1; }
  THALWEG_DEVICE u64 target(u32 i) const {
    return all != 0 ? peers->output[rank + i < all ? rank + i : rank + i - all] + to : here;
  }
};

template <class M, class Group, SymmetricForm kForm = SymmetricForm::any>
class SymmetricRun : public PlacedBlock<M, Group> {
  using Base = PlacedBlock<M, Group>;

 public:
  THALWEG_DEVICE SymmetricRun(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block,
                              SymmetricPeers& peers)
      : Base(m, group, x, program, blocks, block, peers) {
    const u64 whole = x.slice != 0 ? x.slice : x.bytes;
    begin_ = x.share * block < whole ? x.share * block : whole;
    end_ = whole - begin_ < x.share ? whole : begin_ + x.share;
    if (stores_on())
      pieces_ = static_cast<u32>((x.share + x.cut - 1) / x.cut);  // as many on all ranks, however short the last are
  }

  /// Simple's slots, too, are free for all ranks.
  THALWEG_DEVICE void push_offsets() const {
    Base::push_offsets();
    THALWEG_ROLLED
    for (u32 p = Base::lane(); p < x_.size; p += group_.size()) {
      if (p != x_.rank) m_.store(Base::word_at(p, layout_.flag(block_, 1, x_.rank)), before_ + pieces_ + 1);
    }
  }
  THALWEG_DEVICE bool next() {
    if (done_ < pieces_) {
      action_ = Action::piece;
      awaited_ = x_.rank == x_.unsliced ? 0 : before_ + done_ + 1;
    } else if (done_ == pieces_) {
      action_ = Action::rest;
      awaited_ = 0;
    } else if (done_ == pieces_ + 1) {
      action_ = Action::leave;
      awaited_ = before_ + pieces_ + 1;
    } else {
      return false;
    }
    return true;
  }
  THALWEG_DEVICE bool awaits() const { return awaited_ != 0 || done_ == 0; }
  /// One poll of this thread's share of the flags: of the root's pieces, or of all at the end. First of all, of where buffers lie.
  THALWEG_DEVICE bool flags_there() {
    bool all = done_ != 0 || Base::offsets_there();
    if (awaited_ == 0) return all;
    THALWEG_ROLLED
    for (u32 from = group_.rank(); from < x_.size; from += group_.size()) {
      if (from == x_.rank || (action_ == Action::piece && from != x_.unsliced)) continue;
      all = Base::flag_there(0, from, awaited_) && all;
    }
    return all;
  }
  /// By all threads, behind a barrier that follows the flags, if there are any.
  THALWEG_DEVICE void act() {
    ++done_;
    switch (action_) {
      case Action::piece:
        if constexpr (kStoresOn) move_piece(done_ - 1);
        if (x_.rank == x_.unsliced) Base::template announce<true>(0, before_ + done_);
        break;
      case Action::rest:
        if constexpr (kReduces) {
          if (x_.reduces != 0) reduce();
        }
        if constexpr (kStores) {
          if (x_.reduces == 0 && !stores_on()) store();
        }
        finish_part();
        break;
      case Action::leave:
        break;
    }
  }

  /// After a poll in vain; as it says of the base.
  THALWEG_DEVICE bool timed_out() { return Base::timed_out(awaited_ != 0 ? done_ + 1 : 0); }

  /// By all threads, behind a barrier.
  THALWEG_DEVICE void end(bool failed) { Base::end(failed, pieces_ + 1, true); }

 private:
  using Base::before_;
  using Base::block_;
  using Base::copy;
  using Base::group_;
  using Base::has;
  using Base::layout_;
  using Base::m_;
  using Base::peer;
  using Base::peers_;
  using Base::range_in;
  using Base::x_;
  using typename Base::Copied;
  using typename Base::Range;
  enum class Action : u32 { piece, rest, leave };
  static constexpr bool kAny = kForm == SymmetricForm::any;
  static constexpr bool kReduces = kAny || kForm == SymmetricForm::sums, kStores = kAny || kForm == SymmetricForm::stores,
                        kStoresOn = kAny || kForm == SymmetricForm::broadcasts;

  THALWEG_DEVICE bool stores_on() const { return kAny ? x_.slice != 0 && x_.reduces == 0 : kStoresOn; }

  /// Of a result that stays here, the others hear only that their operands are read.
  THALWEG_DEVICE void finish_part() const {
    if (kReduces && x_.reduces != 0 && x_.slice == 0)
      Base::template announce<false>(0, before_ + 1);
    else
      Base::template announce<true>(0, before_ + pieces_ + 1);
  }
  THALWEG_DEVICE void reduce() {
    if (!has(x_.takes, 0)) return;
    using Elements = std::conditional_t<kForm == SymmetricForm::sums, SumElements, CommonElements>;
    const Range range = range_in(x_.rank, begin_, end_);
    const u64 from = x_.input_stride * x_.rank + range.begin;
    const PeerPlaces places{&peers_, from, range.begin, x_.output + range.begin, x_.slice != 0 ? x_.size : 0, x_.rank};
    ReducePlaces<M, Elements, PeerPlaces, 4> work{
        m_, places, group_.rank(), group_.size(), 0, range.bytes, typename Elements::Last(x_)};
    while (work.count < x_.size && has(x_.takes, work.count)) ++work.count;  // of the first ranks
    if (range.bytes != 0) Elements::with(x_.type, x_.op, work);
  }
  /// Blocks for each rank, or one for all.
  THALWEG_DEVICE void store() {
    const u64 bytes = end_ - begin_, place = x_.output_stride * x_.rank + begin_;
    u64 to = x_.sends;
    if (has(x_.takes, x_.rank) && x_.input + x_.input_stride * x_.rank != x_.output + x_.output_stride * x_.rank)
      to |= u64{1} << x_.rank;
    if (x_.input_stride == 0) return store_to_all(to, place, x_.input + begin_, bytes);
    Base::copy_in_turns(x_.size, [&](u32 k) {
      const u32 p = peer(k);
      return Copied{peers_.output[p] + place, x_.input + x_.input_stride * p + begin_, has(to, p) ? bytes : 0};
    });
  }
  /// Each word is loaded once.
  THALWEG_DEVICE void store_to_all(u64 to, u64 place, u64 from, u64 bytes) {
    if constexpr (!M::whole_runs) {
      u64 all = from | bytes;
      THALWEG_ROLLED
      for (u32 p = 0; p < x_.size; ++p) all |= has(to, p) ? peers_.output[p] + place : 0;
      if (all % sizeof(Word16) == 0) return store_words(to, place, from, static_cast<u32>(bytes / sizeof(Word16)));
    }
    THALWEG_ROLLED
    for (u32 k = 0; k < x_.size; ++k) {
      if (has(to, peer(k))) copy(peers_.output[peer(k)] + place, from, bytes);
    }
  }
  THALWEG_DEVICE void store_words(u64 to, u64 place, u64 from, u32 count) {
    constexpr u32 kAtOnce = 4;
    const u32 size = group_.size();
    const Word16* const source = reinterpret_cast<const Word16*>(from);
    THALWEG_ROLLED
    for (u32 at = group_.rank(); at < count; at += kAtOnce * size) {
      Word16 held[kAtOnce];
      THALWEG_UNROLL
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (at + i * size < count) held[i] = m_.read(source + at + i * size);
      }
      THALWEG_ROLLED
      for (u32 k = 0; k < x_.size; ++k) {
        if (!has(to, peer(k))) continue;
        Word16* const target = reinterpret_cast<Word16*>(peers_.output[peer(k)] + place);
        THALWEG_UNROLL
        for (u32 i = 0; i < kAtOnce; ++i) {
          if (at + i * size < count) m_.write(target + at + i * size, held[i]);
        }
      }
    }
  }
  /// Two phases of a broadcast.
  THALWEG_DEVICE void move_piece(u32 piece) {
    const u64 first = begin_ + u64{piece} * x_.cut, begin = first < end_ ? first : end_;
    const u64 end = end_ - begin < x_.cut ? end_ : begin + x_.cut;
    if (x_.rank != x_.unsliced) {
      const Range range = range_in(x_.rank, begin, end);
      const u64 all = ~u64{0} >> (64 - x_.size), others = all & ~(u64{1} << x_.rank | u64{1} << x_.unsliced);
      return store_to_all(others, range.begin, x_.output + range.begin, range.bytes);
    }
    const u32 others = x_.size - 1;
    THALWEG_ROLLED
    for (u32 k = 0; k < others; ++k) {  // blocks begin with different ranks, whose links would be full in turns otherwise
      const u32 to = peer(1 + (block_ + k) % others);
      const Range range = range_in(to, begin, end);
      copy(peers_.output[to] + range.begin, x_.input + range.begin, range.bytes);
    }
  }

  u64 begin_ = 0, end_ = 0;  // this block's part of the slice, or of each block
  u32 pieces_ = 0, done_ = 0;
  Action action_ = Action::piece;
  u64 awaited_ = 0;
};

}  // namespace thalweg::device
