// SPDX-License-Identifier: Apache-2.0
// What a block of threads does in one run of an exchange whose counts lie in device memory (exchange_counted.hpp); one text for
// GPUs (devices/kernels/exchange_counted.hpp) and for emulated ones (one_thread_counted.hpp). Nothing here waits: the driver polls.
//
//   begin           becomes the block's owner
//   push_counts     this rank's counts to all others: a word each, with the run's number, as LL sends its words
//   counts_there    until it is true for all threads
//   place_counts    where all of it comes from and goes to
//   round           until it is Round::over: what can be pushed, is; what can be taken, is
//   end             counts, and releases the block
//
// All blocks exchange all counts: none waits for another one of its rank. Each moves its part of what each pair of ranks has, in
// pieces, as many as that pair needs, by four slots (those of both phases of Simple). A flag's upper half has the run's number, its
// lower half the pieces of this run: nothing is left of a run that pairs would have to count alike.
//
// No deadlock: a round waits for nothing, and a rank goes on to take whatever it has still to push.
//
// Slots are Simple's. That a rank's count is here says that it has left its last run, and so has read all slots. For a Simple run
// that comes next, a rank says at the end of this one that it has read them, by Simple's own flags, and all count kAdvance pieces.
//
// Counts that do not fit are found before the first row is stored: nothing is written behind a capacity. What this rank cannot
// send is said in place of its counts; what it cannot take, in the flags of those that still wait for it.
//
// A Group, beside what exchange_block.hpp says: any(yes), a barrier: is it so for one thread?
#pragma once
#include "devices/program/exchange_block.hpp"
#include "devices/program/exchange_counted.hpp"

namespace thalweg::device {

enum class Round : u32 { over, some, none, failed };

template <class M, class Group>
class CountedRun : public ExchangeBlock<M, Group> {
  using Base = ExchangeBlock<M, Group>;

 public:
  THALWEG_DEVICE CountedRun(M m, Group group, const Exchange& x, const ExchangeCounts& counts, const Program& program,
                            u32 blocks, u32 block, CountedPairs& pairs)
      : Base(m, group, x, program, blocks, block), c_(counts), pairs_(pairs) {}
  THALWEG_DEVICE bool begin() { return Base::begin_with_pieces(); }

  /// By all threads. False: the run has failed.
  THALWEG_DEVICE bool push_counts() {
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) pairs_.of[p].sent = m_.load(c_.send_counts + p);
    group_.sync();
    bool fits = true;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) fits = place_sent(p) && fits;
    const bool well = !group_.any(!fits);
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (p != x_.rank) m_.store16(count_at(p, x_.rank), Word16{well ? pairs_.of[p].sent : kNoCount, run_ + 1});
    }
    return well;
  }
  /// One poll of this thread's share.
  THALWEG_DEVICE bool counts_there() {
    bool all = true;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      const Word16 found = p != x_.rank ? m_.load16(count_at(x_.rank, p)) : Word16{pairs_.of[p].sent, run_ + 1};
      pairs_.of[p].received = found.low;
      if (found.high == run_ + 1) continue;
      missing_ = p;
      all = false;
    }
    return all;
  }
  /// By all threads, behind a barrier. False: the run has failed.
  THALWEG_DEVICE bool place_counts() {
    bool fits = true;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (pairs_.of[p].received == kNoCount) fits = refuse(CountedFault::elsewhere, p, 0);
    }
    if (group_.any(!fits)) return false;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (block_ == 0 && c_.recv_counts != nullptr) m_.write(c_.recv_counts + p, pairs_.of[p].received);
      fits = place_received(p) && fits;
    }
    ++waits_;
    if (!group_.any(!fits)) return true;
    give_up();
    return false;
  }

  /// By all threads. Behind Round::none, a barrier comes first.
  THALWEG_DEVICE Round round() {
    missing_ = kNobody;
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) pairs_.of[p].now = look(p);
    group_.sync();
    u64 push = 0, take = 0;
    u32 all = 0;
    THALWEG_ROLLED
    for (u32 p = 0; p < x_.size; ++p) {
      const u32 now = pairs_.of[p].now;
      push |= u64{now & kPush} << p;
      take |= u64{(now & kTake) / kTake} << p;
      all |= now;
    }
    if ((all & kFails) != 0) {
      give_up();
      return Round::failed;
    }
    if (all == 0) return Round::over;
    THALWEG_ROLLED
    for (u32 takes = 0; takes < 2; ++takes) {
      if ((takes != 0 ? take : push) != 0) move_pieces(takes != 0, takes != 0 ? take : push);
    }
    if ((push | take) == 0) return Round::none;
    ++waits_;
    return Round::some;
  }
  /// After a round of nothing.
  THALWEG_DEVICE bool timed_out() { return missing_ != kNobody && Base::timed_out(waits_); }

  /// By all threads, behind a barrier.
  THALWEG_DEVICE void end(bool failed) {
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size && !failed; p += group_.size()) {
      if (p != x_.rank) m_.store(Base::word_at(p, Base::layout_.flag(block_, 1, x_.rank)), Base::before_ + kAdvance);
    }
    Base::end(failed, kAdvance, true);
  }

 private:
  using Base::block_;
  using Base::group_;
  using Base::m_;
  using Base::missing_;
  using Base::room_;
  using Base::run_;
  using Base::x_;
  static constexpr u64 kNoCount = ~u64{0};
  static constexpr u32 kNoPieces = ~u32{0}, kNobody = ~u32{0};
  static constexpr u32 kSlotsOfPair = 4;
  static constexpr u32 kAdvance = 2;  // of Simple's pieces: no flag of an earlier run has as many
  static constexpr u32 kPush = 1, kTake = 2, kWaits = 4, kFails = 8;  // of CountedPair::now; 0: nothing is left

  THALWEG_DEVICE u64 generation() const { return (run_ + 1) << 32; }
  THALWEG_DEVICE Word16* count_at(u32 of, u32 from) const {
    return reinterpret_cast<Word16*>(Base::area(of) + Base::layout_.count_unit(block_, room_, from));
  }
  /// Of this rank, at another one.
  THALWEG_DEVICE u64* flag_at(u32 of, u32 given) const {
    return Base::word_at(of, Base::layout_.counted_flag(block_, given, x_.rank));
  }
  THALWEG_DEVICE u64 slot_at(u32 of, u32 piece, u32 from) const {
    return Base::area(of) + Base::layout_.slot(block_, piece & 1, piece >> 1 & 1, from);
  }

  // ---- counts

  /// As the failure of the run. Always false.
  THALWEG_DEVICE bool refuse(CountedFault why, u32 of, u64 rows) {
    Base::fail_run(kTruncated, rows, u64{static_cast<u32>(why)} << 32 | of);
    return false;
  }
  static THALWEG_DEVICE bool fit(u64 offset, u64 rows, u64 capacity) { return rows <= capacity && offset <= capacity - rows; }
  struct Part {
    u64 begin, bytes;
    u32 pieces;
  };
  /// This block's, of so many rows.
  THALWEG_DEVICE Part part_of(u64 rows) const {
    const u64 whole = rows * c_.row_bytes;
    const u64 share = ((whole + sizeof(Word16) - 1) / sizeof(Word16) + Base::blocks_ - 1) / Base::blocks_ * sizeof(Word16);
    const u64 begin = share * block_ < whole ? share * block_ : whole, bytes = whole - begin < share ? whole - begin : share;
    return {begin, bytes, static_cast<u32>((bytes + x_.piece - 1) / x_.piece)};
  }
  THALWEG_DEVICE bool place_sent(u32 p) {
    CountedPair& pair = pairs_.of[p];
    u64 offset = 0;
    if (c_.send_offsets != nullptr) {
      offset = m_.load(c_.send_offsets + p);
    } else {
      for (u32 i = 0; i < p; ++i) offset += pairs_.of[i].sent;
    }
    if (!fit(offset, pair.sent, c_.send_capacity)) return refuse(CountedFault::sends, p, pair.sent);
    const Part part = part_of(pair.sent);
    pair.from = x_.input + offset * c_.row_bytes + part.begin;
    pair.send_bytes = part.bytes;
    pair.sends = p != x_.rank ? part.pieces : 0;
    pair.pushed = 0;
    return true;
  }
  THALWEG_DEVICE bool place_received(u32 p) {
    CountedPair& pair = pairs_.of[p];
    u64 offset = 0;
    if (c_.recv_offsets != nullptr) {
      offset = m_.load(c_.recv_offsets + p);
    } else {
      for (u32 i = 0; i < p; ++i) offset += pairs_.of[i].received;
    }
    if (c_.expected != nullptr && pair.received != m_.load(c_.expected + p))
      return refuse(CountedFault::unexpected, p, pair.received);
    if (!fit(offset, pair.received, c_.recv_capacity)) return refuse(CountedFault::receives, p, pair.received);
    const Part part = part_of(pair.received);
    pair.to = x_.output + offset * c_.row_bytes + part.begin;
    pair.recv_bytes = part.bytes;
    pair.takes = p != x_.rank || pair.to != pair.from ? part.pieces : 0;  // in place
    pair.taken = 0;
    return true;
  }

  /// Ends the waits of those that push to this rank, or take from it.
  THALWEG_DEVICE void give_up() const {
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (p == x_.rank) continue;
      for (u32 given = 0; given < 2; ++given) m_.store(flag_at(p, given), generation() | kNoPieces);
    }
  }

  // ---- pieces

  /// Of this run, as a flag says.
  THALWEG_DEVICE u32 pieces_in(u64 flag) const {
    return static_cast<u32>(flag >> 32) == static_cast<u32>(run_ + 1) ? static_cast<u32>(flag) : 0;
  }
  THALWEG_DEVICE u64 own_flag(u32 p, u32 given) const {
    return m_.acquire(Base::word_at(x_.rank, Base::layout_.counted_flag(block_, given, p)));
  }
  /// One poll: what can be done with rank p.
  THALWEG_DEVICE u32 look(u32 p) {
    const CountedPair& pair = pairs_.of[p];
    if (p == x_.rank) return pair.taken < pair.takes ? kTake : 0;
    u32 now = 0, given = 0, arrived = 0;
    if (pair.pushed < pair.sends) {
      given = pieces_in(own_flag(p, 1));
      now |= pair.pushed - given < kSlotsOfPair ? kPush : kWaits;
    }
    if (pair.taken < pair.takes) {
      arrived = pieces_in(own_flag(p, 0));
      now |= arrived > pair.taken ? kTake : kWaits;
    }
    if (given == kNoPieces || arrived == kNoPieces) {
      refuse(CountedFault::elsewhere, p, 0);
      return kFails;
    }
    if ((now & kWaits) != 0) missing_ = p;
    return now;
  }
  THALWEG_DEVICE u64 bytes_of(u32 piece, u64 whole) const {
    const u64 left = whole - piece * x_.piece;
    return left < x_.piece ? left : x_.piece;
  }
  /// One to each of these, or of each, and then the flags. Slots that were read publish nothing.
  THALWEG_DEVICE void move_pieces(bool takes, u64 ranks) {
    THALWEG_ROLLED
    for (u32 k = 0; k < x_.size; ++k) {
      const u32 p = Base::peer(k);
      if (Base::has(ranks, p)) move_piece(takes, p, pairs_.of[p]);
    }
    group_.sync();
    THALWEG_ROLLED
    for (u32 p = group_.rank(); p < x_.size; p += group_.size()) {
      if (!Base::has(ranks, p)) continue;
      CountedPair& pair = pairs_.of[p];
      const u64 moved = generation() | (takes ? ++pair.taken : ++pair.pushed);
      if (!takes) {
        m_.release(flag_at(p, 0), moved);
      } else if (p != x_.rank) {
        m_.store(flag_at(p, 1), moved);
      }
    }
  }
  THALWEG_DEVICE void move_piece(bool takes, u32 p, const CountedPair& pair) const {
    const u32 piece = takes ? pair.taken : pair.pushed;
    const u64 offset = piece * x_.piece, bytes = bytes_of(piece, takes ? pair.recv_bytes : pair.send_bytes);
    const u64 slot = slot_at(takes ? x_.rank : p, piece, takes ? p : x_.rank);
    Base::copy(takes ? pair.to + offset : slot, takes && p != x_.rank ? slot : pair.from + offset, bytes);
  }

  const ExchangeCounts& c_;
  CountedPairs& pairs_;
  u32 waits_ = 0;  // that have ended: the counts', and rounds in which something moved
};

}  // namespace thalweg::device
