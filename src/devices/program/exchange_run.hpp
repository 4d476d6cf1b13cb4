// SPDX-License-Identifier: Apache-2.0
// What a block of threads does in one run of an exchange (exchange.hpp); one text for GPUs (devices/kernels/exchange.hpp) and for
// emulated ones (one_thread_exchange.hpp). Nothing here waits: who drives it polls.
//
//   begin                                 becomes the block's owner
//   LL      push_units; take_units until it is true
//   Simple  while next(): flags_there until it is true, a barrier, act. Its results may go straight into windows
//           (exchange_places.hpp). Of parts each rank says what all of them come to ahead of its first flag: no hop more
//   end                                   counts, and releases the block
//
// A Group: rank() of size() threads; sync(), a barrier; tell(value): the first thread's, for all.
#pragma once
#include <type_traits>

#include "devices/program/exchange_block.hpp"
#include "devices/program/exchange_reduce.hpp"

namespace thalweg::device {

/// Of the reduction of a piece. In two phases each rank stores its result to all, first to itself.
template <class M>
struct SlotPlaces {
  M m;
  const Exchange* x;
  const u64* outputs;  // all ranks', in windows; null: results go into areas
  u64 slots;           // of operands: the first rank's
  u64 own, target_here;
  u64 elsewhere;  // where in the other ranks' areas, or outputs

  THALWEG_DEVICE u64 source(u32 from) const { return from != x->rank ? slots + from * x->piece : own; }
  THALWEG_DEVICE u32 targets() const { return x->slice != 0 ? x->size : 1; }
  THALWEG_DEVICE u64 target(u32 i) const {
    if (i == 0) return target_here;
    const u32 to = x->rank + i < x->size ? x->rank + i : x->rank + i - x->size;
    return (outputs != nullptr ? outputs[to] : area_of(m, *x, to)) + elsewhere;
  }
};

/// Block: ExchangeBlock; or, of an allreduce whose results go from slots into windows, PlacedBlock (exchange_places.hpp).
template <class M, class Group, class Elements, class Block = ExchangeBlock<M, Group>>
class ExchangeRun : public Block {
  using Base = Block;

 public:
  template <class... More>
  THALWEG_DEVICE ExchangeRun(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block, More&... more)
      : Base(m, group, x, program, blocks, block, more...) {
    const u64 whole = x.slice != 0 ? x.slice : x.bytes;
    begin_ = x.share * block < whole ? x.share * block : whole;
    end_ = whole - begin_ < x.share ? whole : begin_ + x.share;
    if (x.low_latency != 0) {
      units_ = static_cast<u32>((end_ - begin_ + kUnitBytes - 1) / kUnitBytes);
      unit_ = group.rank();
      if (x.input_stride == 0 && unit_ < units_ && (x.sends | (x.takes >> x.rank & 1)) != 0) ahead_ = input_word(0, unit_);
    } else {
      pieces_ = static_cast<u32>((end_ - begin_ + x.piece - 1) / x.piece);
    }
  }

  THALWEG_DEVICE bool begin() { return x_.low_latency != 0 ? Base::begin() : Base::begin_with_pieces(); }

  // ---------------------------------------------------------------------------------------------- LL

  THALWEG_DEVICE void push_units() {
    const u64 generation = run_ + 1;
    THALWEG_ROLLED
    for (u32 unit = group_.rank(); unit < units_ || unit == 0; unit += group_.size()) {
      THALWEG_ROLLED
      for (u32 k = 1; k < x_.size; ++k) {
        const u32 to = peer(k);
        const bool sends = has(x_.sends, to) && unit < units_;
        if (!sends && unit != 0) continue;
        const u64 word = !sends ? 0 : unit == group_.rank() && x_.input_stride == 0 ? ahead_ : input_word(to, unit);
        m_.store16(unit_at(to, x_.rank, unit), Word16{word, generation});
      }
    }
  }
  /// One poll. True: this thread has taken all of its words.
  THALWEG_DEVICE bool take_units() {
    THALWEG_ROLLED
    for (; unit_ < units_ || unit_ == 0; unit_ += group_.size()) {
      if (!take_unit(unit_)) return false;
    }
    return true;
  }

  // ---------------------------------------------------------------------------------------------- Simple

  /// What is next: false: nothing.
  THALWEG_DEVICE bool next() {
    if (pushed_ < pieces_ && pushed_ <= over_ + 1) {
      action_ = Action::push;
      awaited_ = before_ + pushed_ - 1;  // the slot's last piece is read
    } else if (reduced_ < pieces_ && (x_.slice == 0 || reduced_ == over_)) {
      action_ = Action::take;
      awaited_ = before_ + reduced_ + 1;
    } else if (over_ < pieces_ && x_.slice != 0) {
      action_ = Action::finish;
      awaited_ = before_ + over_ + 1;
    } else {
      return false;
    }
    return true;
  }
  THALWEG_DEVICE bool awaits() const { return true; }
  /// One poll of this thread's share of the flags.
  THALWEG_DEVICE bool flags_there() {
    const u32 given = action_ != Action::take ? 1 : 0;
    bool all = true;
    if constexpr (Base::kPlaced) {
      if (action_ == Action::take && reduced_ == 0) all = Base::offsets_there();  // pieces for slots went before
    }
    THALWEG_ROLLED
    for (u32 from = group_.rank(); from < x_.size; from += group_.size()) {
      if (from != x_.rank && !(Base::flag_there(given, from, awaited_) && is_alike(from))) all = false;
    }
    return all;
  }
  /// By all threads, behind a barrier that follows the flags.
  THALWEG_DEVICE void act() {
    switch (action_) {
      case Action::push:
        if (pushed_ == 0) push_checksum();
        push_piece(pushed_);
        Base::template announce<true>(0, before_ + ++pushed_);
        break;
      case Action::take:
        take_piece(reduced_);
        ++reduced_;
        if (x_.slice != 0) {
          Base::template announce<true>(1, before_ + reduced_);
        } else {
          Base::template announce<false>(1, before_ + reduced_);  // the slots are read; nothing is published
          over_ = reduced_;
        }
        break;
      case Action::finish:
        bring_results(over_);
        ++over_;
    }
  }

  /// After a poll in vain; as it says of the base. Each word or piece that is there makes another wait.
  THALWEG_DEVICE bool timed_out() { return Base::timed_out(unit_ + pushed_ + reduced_ + over_); }

  /// By all threads, behind a barrier.
  THALWEG_DEVICE void end(bool failed) { Base::end(failed, pieces_, x_.low_latency != 0 || pieces_ != 0); }

 private:
  using Base::area;
  using Base::before_;
  using Base::block_;
  using Base::copy;
  using Base::group_;
  using Base::has;
  using Base::layout_;
  using Base::m_;
  using Base::missing_;
  using Base::peer;
  using Base::room_;
  using Base::run_;
  using Base::word_at;
  using Base::x_;
  using typename Base::Copied;
  using typename Base::Range;
  enum class Action : u32 { push, take, finish };
  // ---- words

  THALWEG_DEVICE u64 offset_of(u32 unit) const { return begin_ + u64{unit} * kUnitBytes; }
  THALWEG_DEVICE u64 bytes_of(u32 unit) const {
    const u64 left = end_ - offset_of(unit);
    return left < kUnitBytes ? left : kUnitBytes;
  }
  THALWEG_DEVICE u64 input_word(u32 to, u32 unit) const {
    return read_word(m_, x_.input + x_.input_stride * to + offset_of(unit), bytes_of(unit));
  }
  THALWEG_DEVICE Word16* unit_at(u32 of, u32 from, u32 unit) const {
    return reinterpret_cast<Word16*>(area(of) + layout_.units(block_, room_, from)) + unit;
  }

  THALWEG_DEVICE bool take_unit(u32 unit) {
    u64 taken[kTogether];  // of a reduction: the first ranks'
    u32 count = 0;
    for (u32 base = 0; base < x_.size; base += kTogether) {
      Word16 held[kTogether] THALWEG_HOST_ZERO;
      if (!load_units(unit, base, held)) return false;
      THALWEG_UNROLL
      for (u32 k = 0; k < kTogether; ++k) {
        const u32 from = base + k;
        if (from >= x_.size || !has(x_.takes, from) || unit >= units_) continue;
        const u64 word = from != x_.rank ? held[k].low : own_word(unit);
        if (x_.reduces != 0) {
          if (base == 0) taken[k] = word;
          ++count;
        } else {
          write_word(m_, x_.output + x_.output_stride * from + offset_of(unit), bytes_of(unit), word);
        }
      }
    }
    if (count == 0) return true;
    const u64 sum = count <= kTogether ? fold_words<Elements>(x_.type, x_.op, taken, count, last()) : fold_units(unit, count);
    write_word(m_, x_.output + offset_of(unit), bytes_of(unit), sum);
    return true;
  }
  /// Of many ranks, whose words are there: loaded once more.
  THALWEG_DEVICE u64 fold_units(u32 unit, u32 count) const {
    const Word16* const first = unit_at(x_.rank, 0, unit);
    return fold_from(m_, x_.type, x_.op, FoldUnits<M, Elements>{m_, first, x_.rank, count, own_word(unit), last()});
  }
  THALWEG_DEVICE typename Elements::Last last() const { return typename Elements::Last(x_); }
  THALWEG_DEVICE u64 own_word(u32 unit) const {
    return unit == group_.rank() && x_.input_stride == 0 ? ahead_ : input_word(x_.rank, unit);
  }
  THALWEG_DEVICE bool load_units(u32 unit, u32 base, Word16* held) {
    THALWEG_UNROLL
    for (u32 k = 0; k < kTogether; ++k) {
      const u32 from = base + k;
      if (from < x_.size && from != x_.rank) held[k] = m_.load16(unit_at(x_.rank, from, unit));
    }
    bool there = true;
    THALWEG_UNROLL
    for (u32 k = 0; k < kTogether; ++k) {
      const u32 from = base + k;
      if (from >= x_.size || from == x_.rank || (unit != 0 && !has(x_.takes, from))) continue;
      if (held[k].high == run_ + 1) continue;
      missing_ = from;
      there = false;
    }
    return there;
  }

  // ---- pieces

  /// A piece of the slice of `of`, or of the block for it.
  THALWEG_DEVICE Range range_of(u32 piece, u32 of) const {
    const u64 begin = begin_ + u64{piece} * x_.piece;
    u64 end = end_ - begin < x_.piece ? end_ : begin + x_.piece;
    if constexpr (Elements::parts) {  // blocks that are no slices
      if (x_.parts != nullptr) {
        const u64 bytes = m_.load(x_.parts + 2 * of + 1);
        if (end > bytes) end = bytes;
      }
    }
    return Base::range_in(of, begin, end);
  }
  THALWEG_DEVICE u64 slot_at(u32 of, u32 piece, u32 second, u32 from) const {
    return area(of) + layout_.slot(block_, static_cast<u32>((before_ + piece) & 1), second, from);
  }
  THALWEG_DEVICE u64 input_of(u32 to) const {
    if constexpr (Elements::parts) {
      if (x_.parts != nullptr) return x_.input + m_.load(x_.parts + 2 * to);
    }
    return x_.input + x_.input_stride * to;
  }

  /// Parts: to all others, ahead of the flags of the first pieces: what all ranks' parts come to, with the run's number.
  THALWEG_DEVICE void push_checksum() const {
    if constexpr (Elements::parts) {
      if (x_.parts == nullptr) return;
      const u64 sum = m_.load(x_.parts + 2 * x_.size);
      THALWEG_ROLLED
      for (u32 to = group_.rank(); to < x_.size; to += group_.size()) {
        if (to != x_.rank) m_.store16(checksum_at(to, x_.rank), Word16{sum, run_ + 1});
      }
    }
  }
  /// Behind the flag of a piece. A rank with other parts ends the run before anything is taken: the next look at the clock finds the
  /// plan aborted.
  THALWEG_DEVICE bool is_alike([[maybe_unused]] u32 from) {
    if constexpr (Elements::parts) {
      if (x_.parts == nullptr || action_ != Action::take || reduced_ != 0) return true;
      const Word16 found = m_.load16(checksum_at(x_.rank, from));
      if (found.high == run_ + 1 && found.low == m_.load(x_.parts + 2 * x_.size)) return true;
      missing_ = from;
      Base::fail_run(kTruncated, run_ + 1, from);
      return false;
    }
    return true;
  }
  /// Of one run in two that all ranks meet in, as LL's rooms.
  THALWEG_DEVICE Word16* checksum_at(u32 of, u32 from) const {
    return reinterpret_cast<Word16*>(area(of) + layout_.count_unit(block_, room_, from));
  }

  THALWEG_DEVICE void push_piece(u32 piece) {
    Base::copy_in_turns(x_.size - 1, [&](u32 k) {
      const u32 to = peer(1 + k);
      const Range range = range_of(piece, to);
      return Copied{slot_at(to, piece, 0, x_.rank), input_of(to) + range.begin, has(x_.sends, to) ? range.bytes : 0};
    });
  }
  THALWEG_DEVICE void take_piece(u32 piece) {
    if (x_.reduces != 0) {
      const Range range = range_of(piece, x_.rank);
      const u32 half = static_cast<u32>((before_ + piece) & 1);
      const SlotPlaces<M> places{m_,
                                 &x_,
                                 Base::outputs(),
                                 slot_at(x_.rank, piece, 0, 0),
                                 input_of(x_.rank) + range.begin,
                                 x_.output + range.begin,
                                 Base::kPlaced ? range.begin : layout_.slot(block_, half, 1, x_.rank)};
      u32 count = 0;
      while (count < x_.size && has(x_.takes, count)) ++count;  // of the first ranks
      if (count != 0) reduce_piece(places, count, range.bytes);
      return;
    }
    const Range range = range_of(piece, x_.rank);
    THALWEG_ROLLED
    for (u32 from = 0; from < x_.size; ++from) {
      if (!has(x_.takes, from)) continue;
      const u64 source = from != x_.rank ? slot_at(x_.rank, piece, 0, from) : input_of(x_.rank) + range.begin;
      const u64 target = x_.output + x_.output_stride * from + range.begin;
      if (x_.slice != 0) store_on(piece, source, range.bytes);
      if (source != target) copy(target, source, range.bytes);
    }
  }
  /// Kernels of sums have them in line.
  THALWEG_DEVICE void reduce_piece(const SlotPlaces<M>& places, u32 count, u64 bytes) const {
    if constexpr (std::is_same_v<Elements, SumElements>) {
      ReducePlaces<M, Elements, SlotPlaces<M>, 4> work{m_, places, group_.rank(), group_.size(), count, bytes, last()};
      Elements::with(x_.type, x_.op, work);
    } else {
      using Work = ReducePlaces<M, Elements, SlotPlaces<M>, 1>;
      CalledReduce<Work> called{Work{m_, places, group_.rank(), group_.size(), count, bytes, last()}};
      Elements::with(x_.type, x_.op, called);
    }
  }
  /// Two phases of a broadcast: this rank's slice, to all others that have one.
  THALWEG_DEVICE void store_on(u32 piece, u64 source, u64 bytes) const {
    THALWEG_ROLLED
    for (u32 k = 1; k < x_.size; ++k) {
      const u32 to = peer(k);
      if (to != x_.unsliced) copy(slot_at(to, piece, 1, x_.rank), source, bytes);
    }
  }
  /// Two phases: the other ranks' results.
  THALWEG_DEVICE void bring_results([[maybe_unused]] u32 piece) {
    if constexpr (!Base::kPlaced) {        // otherwise they are where they belong
      if (x_.rank == x_.unsliced) return;  // it has all
      THALWEG_ROLLED
      for (u32 from = 0; from < x_.size; ++from) {
        if (from == x_.rank || from == x_.unsliced) continue;
        const Range range = range_of(piece, from);
        copy(x_.output + range.begin, slot_at(x_.rank, piece, 1, from), range.bytes);
      }
    }
  }

  u64 begin_ = 0, end_ = 0;  // this block's part of the slice, or of each block
  u32 units_ = 0, unit_ = 0;
  u64 ahead_ = 0;  // the thread's first word
  u32 pieces_ = 0, pushed_ = 0, reduced_ = 0, over_ = 0;
  Action action_ = Action::push;
  u64 awaited_ = 0;
};

}  // namespace thalweg::device
