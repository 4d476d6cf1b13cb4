// SPDX-License-Identifier: Apache-2.0
// An exchange whose buffers lie in windows of the group: kernels load and store there, without slots in between; one text for GPUs
// (devices/kernels/exchange_symmetric.hpp) and for emulated ones (one_thread_symmetric.hpp). Nothing here waits: the driver polls.
//
//   begin           becomes the block's owner
//   push_offsets    to all others: where in the windows this rank's buffers lie, with the run's number, as LL sends its words:
//                   the buffers may be read and written from now on
//   offsets_there   until it is true for all threads
//   place           what all buffers' addresses are here
//   while next():   if it awaits(): flags_there until it is true, a barrier; act
//   end             counts, and releases the block
//
// What is reduced is loaded from all ranks' inputs, by the rank that has the block, or, in an allreduce, the slice, which stores the
// result into all outputs. All else is stored into the outputs by the rank that has it. A broadcast of three ranks and more goes in
// two phases: the root stores a slice to each rank, piece by piece, which stores it on. At the end each rank says that it has done
// its part, and waits for the others': its buffers are not used any more.
#pragma once
#include "devices/program/exchange_block.hpp"
#include "devices/program/exchange_fold.hpp"

namespace thalweg::device {

/// Of all ranks, as this device reaches them. One for all threads of a block.
struct SymmetricPeers {
  u64 input[kMostExchangers], output[kMostExchangers];
};

/// The reduction of a part of a block, by all threads. In line, unlike ReduceSlots': of these functions, which hold several words, the
/// compiler gives each a room of its own in the kernel's frame, together 3.8 KB a thread. What is more than the 1 KiB that a context
/// has for each makes the first launch wait until the device is idle.
template <class M>
struct ReducePeers {
  M m;
  const SymmetricPeers* peers;
  u32 rank, size;       // of the thread
  u32 count;            // sources: of the first ranks
  u32 targets;          // 0: `target` alone; ranks: the outputs of all
  u64 from, bytes, to;  // offsets in inputs and outputs
  u64 target;           // address of this rank's result
  CommonElements::Last last;

  template <class Element, ReduceOp Op>
  THALWEG_DEVICE int run() const {
    using Stored = typename Element::Stored;
    if constexpr (M::whole_runs) {
      for (u64 at = 0; at < bytes; at += kBatch * sizeof(Stored)) {
        const u64 left = (bytes - at) / sizeof(Stored);
        one_run<Element, Op>(at, left < kBatch ? static_cast<u32>(left) : kBatch);
      }
    } else {
      const u64 whole = alignment() % sizeof(Word16) == 0 ? bytes / sizeof(Word16) : 0;
      words<Element, Op, Word16>(0, whole);
      words<Element, Op, Stored>(whole * sizeof(Word16) / sizeof(Stored), bytes / sizeof(Stored));
    }
    return 0;
  }
  template <class Word>
  THALWEG_DEVICE Word read(u32 of, u64 offset) const {
    return m.read(reinterpret_cast<const Word*>(peers->input[of] + from + offset));
  }
  template <class Word>
  THALWEG_DEVICE void write(u64 offset, Word word) const {
    if (targets == 0) return m.write(reinterpret_cast<Word*>(target + offset), word);
    THALWEG_ROLLED
    for (u32 of = 0; of < targets; ++of) m.write(reinterpret_cast<Word*>(peers->output[of] + to + offset), word);
  }
  THALWEG_DEVICE u64 alignment() const {
    u64 all = target;
    for (u32 of = 0; of < count; ++of) all |= peers->input[of] + from;
    for (u32 of = 0; of < targets; ++of) all |= peers->output[of] + to;
    return all;
  }

  template <class Element, ReduceOp Op, class Word>
  THALWEG_DEVICE void words(u64 first, u64 end) const {
    constexpr u32 kAtOnce = 4;  // ranks' words under way together
    THALWEG_ROLLED
    for (u64 at = first + rank; at < end; at += size) {
      const u64 offset = at * sizeof(Word);
      Word held[kAtOnce];
      THALWEG_UNROLL
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (i < count) held[i] = read<Word>(i, offset);
      }
      Folded<Element, Op, Word> sum(held[0]);
      THALWEG_UNROLL
      for (u32 i = 1; i < kAtOnce; ++i) {
        if (i < count) sum.take(held[i]);
      }
      THALWEG_ROLLED
      for (u32 base = kAtOnce; base < count; base += kAtOnce) {
        THALWEG_UNROLL
        for (u32 i = 0; i < kAtOnce; ++i) {
          if (base + i < count) held[i] = read<Word>(base + i, offset);
        }
        THALWEG_UNROLL
        for (u32 i = 0; i < kAtOnce; ++i) {
          if (base + i < count) sum.take(held[i]);
        }
      }
      write(offset, sum.result(last));
    }
  }
  /// By one thread that moves whole runs: `number` elements.
  template <class Element, ReduceOp Op>
  THALWEG_DEVICE void one_run(u64 offset, u32 number) const {
    using Stored = typename Element::Stored;
    Stored held[kBatch];
    typename Element::Accumulated sum[kBatch] THALWEG_HOST_ZERO;
    for (u32 of = 0; of < count; ++of) {
      const Stored* const next = m.view(reinterpret_cast<const Stored*>(peers->input[of] + from + offset), number, held);
      for (u32 i = 0; i < number; ++i) {
        const auto wide = Element::widen(next[i]);
        sum[i] = of == 0 ? wide : Apply<Op>::to(sum[i], wide);
      }
    }
    for (u32 of = 0; of < (targets != 0 ? targets : 1); ++of) {
      Stored* const at = reinterpret_cast<Stored*>((targets != 0 ? peers->output[of] + to : target) + offset);
      Stored* const room = m.room(at, held);
      for (u32 i = 0; i < number; ++i) room[i] = Element::narrow(sum[i]);
      m.put(at, room, number);
    }
  }
};

template <class M, class Group>
class SymmetricRun : public ExchangeBlock<M, Group> {
  using Base = ExchangeBlock<M, Group>;

 public:
  THALWEG_DEVICE SymmetricRun(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block,
                              SymmetricPeers& peers)
      : Base(m, group, x, program, blocks, block), peers_(peers) {
    const u64 whole = x.slice != 0 ? x.slice : x.bytes;
    begin_ = x.share * block < whole ? x.share * block : whole;
    end_ = whole - begin_ < x.share ? whole : begin_ + x.share;
    if (stores_on())
      pieces_ = static_cast<u32>((x.share + x.cut - 1) / x.cut);  // as many on all ranks, however short the last are
  }

  THALWEG_DEVICE void push_offsets() const {
    // What this rank's earlier kernels wrote, others load: of the threads that store.
    if (x_.reduces != 0 && group_.rank() < x_.size) m_.fence();
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (p == x_.rank) continue;
      m_.store16(unit_at(p, x_.rank), Word16{x_.input_place, run_ + 1});
      m_.store16(unit_at(p, x_.rank) + 1, Word16{x_.output_place, run_ + 1});
    }
  }
  /// One poll of this thread's share.
  THALWEG_DEVICE bool offsets_there() {
    bool all = true;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (p == x_.rank) continue;
      const Word16 input = m_.load16(unit_at(x_.rank, p)), output = m_.load16(unit_at(x_.rank, p) + 1);
      peers_.input[p] = input.low;
      peers_.output[p] = output.low;
      if (input.high == run_ + 1 && output.high == run_ + 1) continue;
      missing_ = p;
      all = false;
    }
    return all;
  }
  /// By all threads, behind a barrier; another comes before what it placed is read. False: ranks' buffers lie in different windows,
  /// or not in them, or elements would not be aligned: what ranks say is not trusted.
  THALWEG_DEVICE bool place() {
    bool alike = true;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (p == x_.rank) {
        peers_.input[p] = x_.input;
        peers_.output[p] = x_.output;
        continue;
      }
      const bool same = same_window(peers_.input[p], x_.input_place) && same_window(peers_.output[p], x_.output_place);
      const bool inside = lies_in(peers_.input[p], x_.input_limit) && lies_in(peers_.output[p], x_.output_limit);
      if (!same || !inside) Base::fail_run(kInvalid, run_ + 1, p);
      alike = alike && same && inside;
      peers_.input[p] = x_.inputs != nullptr ? m_.load(x_.inputs + p) + offset_of(peers_.input[p]) : 0;
      peers_.output[p] = x_.outputs != nullptr ? m_.load(x_.outputs + p) + offset_of(peers_.output[p]) : 0;
    }
    if (x_.reduces != 0 && group_.rank() < x_.size) m_.fence();  // behind the words of the others, which these threads polled
    return !group_.any(!alike);
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
  THALWEG_DEVICE bool awaits() const { return awaited_ != 0; }
  /// One poll of this thread's share of the flags: of the root's pieces, or of all at the end.
  THALWEG_DEVICE bool flags_there() {
    if (awaited_ == 0) return true;
    bool all = true;
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
        move_piece(done_ - 1);
        if (x_.rank == x_.unsliced) Base::template announce<true>(0, before_ + done_);
        break;
      case Action::rest:
        if (x_.reduces != 0) {
          reduce();
        } else if (!stores_on()) {
          store();
        }
        Base::template announce<true>(0, before_ + pieces_ + 1);
        break;
      case Action::leave:
        break;
    }
  }

  /// After a poll in vain; as it says of the base.
  THALWEG_DEVICE bool timed_out() { return Base::timed_out(awaited_ != 0 ? done_ + 1 : 0); }

  /// By all threads, behind a barrier. Simple's slots are free for all ranks.
  THALWEG_DEVICE void end(bool failed) {
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size && !failed; p += group_.size()) {
      if (p != x_.rank) m_.store(Base::word_at(p, layout_.flag(block_, 1, x_.rank)), before_ + pieces_ + 1);
    }
    Base::end(failed, pieces_ + 1, true);
  }

 private:
  using Base::before_;
  using Base::block_;
  using Base::copy;
  using Base::group_;
  using Base::has;
  using Base::layout_;
  using Base::m_;
  using Base::missing_;
  using Base::peer;
  using Base::range_in;
  using Base::room_;
  using Base::run_;
  using Base::x_;
  using typename Base::Range;
  enum class Action : u32 { piece, rest, leave };
  static constexpr i64 kInvalid = -101;  // as tw_status

  THALWEG_DEVICE bool stores_on() const { return x_.slice != 0 && x_.reduces == 0; }
  THALWEG_DEVICE Word16* unit_at(u32 of, u32 from) const {
    return reinterpret_cast<Word16*>(Base::area(of) + layout_.place_units(block_, room_, from));
  }
  static THALWEG_DEVICE bool same_window(u64 a, u64 b) { return a >> kPlaceBits == b >> kPlaceBits; }
  THALWEG_DEVICE bool lies_in(u64 place, u64 limit) const {
    return offset_of(place) <= limit && (offset_of(place) & (x_.place_align - 1)) == 0;
  }
  static THALWEG_DEVICE u64 offset_of(u64 place) { return place & ((u64{1} << kPlaceBits) - 1); }

  THALWEG_DEVICE void reduce() {
    if (!has(x_.takes, 0)) return;
    const Range range = range_in(x_.rank, begin_, end_);
    ReducePeers<M> work{m_,
                        &peers_,
                        group_.rank(),
                        group_.size(),
                        0,
                        x_.slice != 0 ? x_.size : 0,
                        x_.input_stride * x_.rank + range.begin,
                        range.bytes,
                        range.begin,
                        x_.output + range.begin,
                        CommonElements::Last(x_)};
    while (work.count < x_.size && has(x_.takes, work.count)) ++work.count;  // of the first ranks
    if (range.bytes != 0) CommonElements::with(x_.type, x_.op, work);
  }
  /// Blocks for each rank, or one for all.
  THALWEG_DEVICE void store() {
    const u64 bytes = end_ - begin_, place = x_.output_stride * x_.rank + begin_;
    u64 to = x_.sends;
    if (has(x_.takes, x_.rank) && x_.input + x_.input_stride * x_.rank != x_.output + x_.output_stride * x_.rank)
      to |= u64{1} << x_.rank;
    if (x_.input_stride == 0) return store_to_all(to, place, x_.input + begin_, bytes);
    THALWEG_ROLLED
    for (u32 k = 0; k < x_.size; ++k) {
      if (has(to, peer(k))) copy(peers_.output[peer(k)] + place, x_.input + x_.input_stride * peer(k) + begin_, bytes);
    }
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
  SymmetricPeers& peers_;
  u64 begin_ = 0, end_ = 0;  // this block's part of the slice, or of each block
  u32 pieces_ = 0, done_ = 0;
  Action action_ = Action::piece;
  u64 awaited_ = 0;
};

}  // namespace thalweg::device
