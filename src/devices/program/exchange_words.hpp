// SPDX-License-Identifier: Apache-2.0
// LL where each thread has one word at most, of each of a few ranks: what is short enough for the time of a run to be that of its
// instructions. The same words in the same places as ExchangeRun's LL, so that ranks may differ in which of the two they run.
//
// A thread's object; each holds its own words in registers:
//
//   (made)   all addresses, from the parameters alone: the kernel ahead may still run
//   load     the own words' loads go out
//   begin    becomes the block's owner; the first thread of a block owns it, all learn the run's number
//   push     the words to all others
//   there    one poll; until it is true
//   finish   what becomes of the words
//   end      counts, and releases the block
#pragma once
#include "devices/program/exchange_block.hpp"
#include "devices/program/exchange_fold.hpp"

namespace thalweg::device {

/// kRanks: of no more than that; what is not there is skipped, but its code has to be fetched in each run.
template <class M, class Group, u32 kRanks>
class WordsRun : public ExchangeBlock<M, Group> {
  using Base = ExchangeBlock<M, Group>;
  static_assert(kRanks <= kFirstAreas && kRanks <= kTogether);
  static constexpr u32 kRoom = kUnitsOfBlock * sizeof(Word16);  // bytes, of one sender

 public:
  THALWEG_DEVICE WordsRun(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block)
      : Base(m, group, x, program, blocks, block), first_(group.rank() == 0) {
    const u64 in_block = u64{group.rank()} * kUnitBytes;
    offset_ = x.share * block + in_block;
    const u64 left = offset_ < x.bytes ? x.bytes - offset_ : 0;
    bytes_ = in_block >= x.share ? 0 : left < kUnitBytes ? static_cast<u32>(left) : static_cast<u32>(kUnitBytes);
    const u64 all = ~u64{0} >> (64 - x.size);
    sends_ = static_cast<u32>(bytes_ != 0 ? x.sends : 0);
    takes_ = static_cast<u32>(bytes_ != 0 ? x.takes : 0);
    missing_bits_ = static_cast<u32>(first_ ? all : takes_) & ~(1u << x.rank);
    const u64 in_area = x.units + u64{block * 2 * x.size} * kRoom + u64{group.rank()} * sizeof(Word16);
    THALWEG_UNROLL
    for (u32 k = 0; k < kRanks; ++k) {
      rooms_[k] = k < x.size ? x.areas[peer(k)] + in_area : 0;
      machine::keep(rooms_[k]);
    }
  }

  THALWEG_DEVICE void load() {
    if (x_.input_stride == 0) {
      ahead_[0] = (sends_ | (takes_ >> x_.rank & 1)) != 0 ? read(x_.input + offset_) : 0;
      THALWEG_UNROLL
      for (u32 k = 1; k < kRanks; ++k) ahead_[k] = ahead_[0];
      return;
    }
    THALWEG_UNROLL
    for (u32 k = 0; k < kRanks; ++k) {
      const bool has = k < x_.size && ((k != 0 ? sends_ : takes_) >> peer(k) & 1) != 0;
      ahead_[k] = has ? read(x_.input + x_.input_stride * peer(k) + offset_) : 0;
    }
  }

  THALWEG_DEVICE void push() const {
    THALWEG_UNROLL
    for (u32 k = 1; k < kRanks; ++k) {
      const u32 to = k < x_.size ? peer(k) : 0;
      const bool sends = (sends_ >> to & 1) != 0;  // the first thread's tell that this rank has begun the run
      if (k < x_.size && (sends || first_)) m_.store16(room(k, x_.rank), Word16{sends ? ahead_[k] : 0, run_ + 1});
    }
  }
  THALWEG_DEVICE bool there() {
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      if ((missing_bits_ >> from & 1) != 0) held_[from] = m_.load16(room(0, from));
    }
    u32 missing = 0;
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      if ((missing_bits_ >> from & 1) != 0 && held_[from].high != run_ + 1) missing |= 1u << from;
    }
    missing_bits_ = missing;
    if (missing != 0) missing_ = machine::lowest(missing);
    return missing == 0;
  }
  THALWEG_DEVICE bool timed_out() { return Base::timed_out(0); }
  THALWEG_DEVICE void finish() {
    if (takes_ == 0) return;
    if (x_.reduces != 0) return write(x_.output + offset_, sum());
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      if ((takes_ >> from & 1) != 0) write(x_.output + x_.output_stride * from + offset_, word(from));
    }
  }

  /// By all threads, behind a barrier.
  THALWEG_DEVICE void end(bool failed) { Base::end(failed, 0, true); }

 private:
  using Base::m_;
  using Base::missing_;
  using Base::peer;
  using Base::room_;
  using Base::run_;
  using Base::x_;

  /// In the area of peer(k).
  THALWEG_DEVICE Word16* room(u32 k, u32 from) const {
    return reinterpret_cast<Word16*>(rooms_[k] + (room_ * x_.size + from) * kRoom);
  }
  THALWEG_DEVICE u64 read(u64 at) const { return read_word(m_, at, bytes_); }
  THALWEG_DEVICE void write(u64 at, u64 word) const { write_word(m_, at, bytes_, word); }

  THALWEG_DEVICE u64 word(u32 from) const {
    const u64 own = ahead_[0],
              other = held_[from].low;  // by value: an array whose element's address is taken is kept in memory
    return from == x_.rank ? own : other;
  }
  /// What is summed most often is in line. A reduction takes from the first ranks.
  THALWEG_DEVICE u64 sum() const {
    if (x_.op == static_cast<u32>(ReduceOp::sum)) {
      if (x_.type == static_cast<u32>(ElementType::float32)) return sum_of<Plain<float>>();
      if (x_.type == static_cast<u32>(ElementType::bfloat16)) return sum_of<Brain>();
    }
    u64 words[kRanks];
    u32 count = 0;
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      words[from] = (takes_ >> from & 1) != 0 ? word(from) : 0;
      count += takes_ >> from & 1;
    }
    return fold_words<CommonElements>(x_.type, x_.op, words, count, CommonElements::Last(x_));
  }
  template <class Element>
  THALWEG_DEVICE u64 sum_of() const {
    Folded<Element, ReduceOp::sum, u64> sum(word(0));
    THALWEG_UNROLL
    for (u32 from = 1; from < kRanks; ++from) {
      if ((takes_ >> from & 1) != 0) sum.take(word(from));
    }
    return sum.result(CommonElements::Last(x_));
  }

  const bool first_;
  u64 rooms_[kRanks];  // of this thread's word, in the area of peer(k), for rank 0 and the first of two rooms
  u64 offset_ = 0;     // of the thread's word, in a block
  u32 bytes_ = 0;      // of it; 0: none
  u32 sends_ = 0, takes_ = 0, missing_bits_ = 0;  // ranks
  u64 ahead_[kRanks] THALWEG_HOST_ZERO;           // own words: for peer(k), or the only one
  Word16 held_[kRanks] THALWEG_HOST_ZERO;
};

}  // namespace thalweg::device
