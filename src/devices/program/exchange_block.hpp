// SPDX-License-Identifier: Apache-2.0
// A block of threads in one run of any exchange (exchange.hpp): becomes the owner of its words, waits no longer than its guard says,
// copies, counts and ends. What is exchanged in between: exchange_run.hpp, exchange_counted_run.hpp.
//
// A Group: rank() of size() threads; sync(), a barrier; tell(value): the first thread's, for all.
#pragma once
#include "devices/program/exchange.hpp"
#include "devices/program/specialised_run.hpp"
#include "devices/program/step_times.hpp"

namespace thalweg::device {

constexpr u32 kTogether = 8;  // words that a thread loads before it looks at the first

/// Not in line: most memory is aligned.
template <class M>
THALWEG_DEVICE_COLD void copy_unaligned(M m, u32 rank, u32 size, u64 to, u64 from, u64 bytes) {
  copy_run(m, rank, size, to, from, bytes);
}

/// A word of 8 bytes, or less of it, of any alignment. Not in line: nearly all words are whole.
template <class M>
THALWEG_DEVICE_COLD u64 read_part(M m, u64 at, u32 bytes) {
  u64 word = 0;
  if ((at | bytes) % 4 == 0) {
    word = m.read(reinterpret_cast<const u32*>(at));
    if (bytes > 4) word |= u64{m.read(reinterpret_cast<const u32*>(at + 4))} << 32;
    return word;
  }
  for (u32 i = 0; i < bytes; ++i) word |= u64{m.read(reinterpret_cast<const unsigned char*>(at + i))} << (8 * i);
  return word;
}
template <class M>
THALWEG_DEVICE_COLD void write_part(M m, u64 at, u32 bytes, u64 word) {
  if ((at | bytes) % 4 == 0) {
    m.write(reinterpret_cast<u32*>(at), static_cast<u32>(word));
    if (bytes > 4) m.write(reinterpret_cast<u32*>(at + 4), static_cast<u32>(word >> 32));
    return;
  }
  for (u32 i = 0; i < bytes; ++i)
    m.write(reinterpret_cast<unsigned char*>(at + i), static_cast<unsigned char>(word >> (8 * i)));
}
/// left: bytes of what ends there, at least 1.
template <class M>
THALWEG_DEVICE u64 read_word(M m, u64 at, u64 left) {
  if (left >= 8 && at % 8 == 0) return m.read(reinterpret_cast<const u64*>(at));
  return read_part(m, at, left < 8 ? static_cast<u32>(left) : 8);
}
template <class M>
THALWEG_DEVICE void write_word(M m, u64 at, u64 left, u64 word) {
  if (left >= 8 && at % 8 == 0) return m.write(reinterpret_cast<u64*>(at), word);
  write_part(m, at, left < 8 ? static_cast<u32>(left) : 8, word);
}

template <class M>
THALWEG_DEVICE u64 area_of(M m, const Exchange& x, u32 of) {
  return of < kFirstAreas ? x.areas[of] : m.load(x.more_areas + of);
}

/// For the run's plan, and for the group's later kernels, which find the block taken.
template <class M>
THALWEG_DEVICE_COLD void fail_exchange(M m, Guard guard, ExchangeWords* words, i64 code, u64 expected, u64 found) {
  m.store(&words->found, found);
  m.release(reinterpret_cast<u64*>(&words->failed), static_cast<u64>(code));
  record(m, guard.abort_flag, guard.failure, code, 0, expected, found);
}
/// A block is under way: because its run failed, which any of the rank's blocks may know; else another run of the group's is. Others
/// reach the words, too: what is no status is none.
template <class M>
THALWEG_DEVICE_COLD void fail_taken(M m, Guard guard, ExchangeWords* words, u32 blocks, u64 run, u32 rank) {
  constexpr i64 kLowest = -1000;  // below all of tw_status
  i64 code = kBusy;
  u64 found = rank;
  for (u32 i = 0; i < blocks && code == kBusy; ++i) {
    const i64 failed = static_cast<i64>(m.acquire(reinterpret_cast<u64*>(&words[i].failed)));
    if (failed >= 0 || failed <= kLowest) continue;
    code = failed;
    found = m.load(&words[i].found) | kEarlierRun;
  }
  record(m, guard.abort_flag, guard.failure, code, 0, run, found);
}

template <class M, class Group>
class ExchangeBlock {
 public:
  static constexpr bool kPlaced = false;  // all ranks' outputs are known
  static THALWEG_DEVICE const u64* outputs() { return nullptr; }
  THALWEG_DEVICE ExchangeBlock(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block)
      : m_(m),
        group_(group),
        x_(x),
        program_(program),
        blocks_(blocks),
        block_(block),
        layout_{x.room_blocks, x.size, x.piece} {}

  /// False: the block is refused, which end() is told as a failure.
  THALWEG_DEVICE bool begin() {
    u64 turn = 0;
    if (group_.rank() == 0) turn = own();
    return begin_run(group_.tell(turn));
  }
  /// Of all but LL and LL128.
  THALWEG_DEVICE bool begin_with_pieces() {
    Word16 both{};
    if (group_.rank() == 0) both = own_with_pieces();
    both = group_.tell(both);
    before_ = both.high;
    return begin_run(both.low);
  }

 protected:
  /// After a poll in vain. True: no more polls, the run has failed. wait: a number that no other wait of the run has. The limit is of
  /// each; one that has ended since the clock was last asked is known by its number, and not by anything that polls would have to do.
  THALWEG_DEVICE bool timed_out(u32 wait) {
    if (++polls_ % kPollsPerClock != 0) return false;
    if (wait != wait_) since_ = 0;
    wait_ = wait;
    const TimeoutCheck timeout = check_timeout(m_, program_.guard, since_, polls_ / kPollsPerClock - 1);
    since_ = timeout.since;
    if (timeout.code == 0) return false;
    if (timeout.code != kAlreadyAborted) fail_run(timeout.code, run_ + 1, missing_);
    return true;
  }
  THALWEG_DEVICE void fail_run(i64 code, u64 expected, u64 found) const {
    fail_exchange(m_, program_.guard, words(), code, expected, found);
  }

  /// By all threads, behind a barrier. A block that failed stays taken. pieces: of Simple, by which all ranks count. met: none ends
  /// such a run before all have begun it.
  THALWEG_DEVICE void end(bool failed, u32 pieces, bool met) {
    if (group_.rank() != 0) return;
    if (!failed) {
      if (x_.low_latency == 0) m_.store(&words()->pieces, before_ + pieces);
      m_.store(&words()->turn, 4 * (run_ + 1) | (met ? room_ ^ 1 : room_) << 1);
      if (program_.times != nullptr) keep_exchange_end(m_, program_.times, program_.kept_runs, timed(), blocks_);
    }
    count(failed);
  }

  static THALWEG_DEVICE bool has(u64 mask, u32 rank) { return (mask >> rank & 1) != 0; }
  /// The ranks behind this one: k = 1, 2, ...; 0: itself.
  THALWEG_DEVICE u32 peer(u32 k) const { return x_.rank + k < x_.size ? x_.rank + k : x_.rank + k - x_.size; }

  struct Range {
    u64 begin, bytes;  // of a block
  };
  /// In two phases of the slice of `of`; otherwise of any block.
  THALWEG_DEVICE Range range_in(u32 of, u64 begin, u64 end) const {
    if (x_.slice != 0) {
      const u64 before = x_.slice * (of < x_.unsliced ? of : of - 1);
      begin += before;
      end += before;
      if (end > x_.bytes) end = x_.bytes;
    }
    return {begin, end > begin ? end - begin : 0};
  }

  THALWEG_DEVICE bool flag_there(u32 given, u32 from, u64 awaited) {
    const u64 found = m_.acquire(word_at(x_.rank, layout_.flag(block_, given, from)));
    if (static_cast<i64>(found - awaited) >= 0) return true;
    missing_ = from;
    return false;
  }
  /// What all threads have done so far.
  template <bool kPublishes>
  THALWEG_DEVICE void announce(u32 given, u64 pieces) const {
    group_.sync();
    THALWEG_ROLLED
    for (u32 to = group_.rank(); to < x_.size; to += group_.size()) {
      if (to == x_.rank) continue;
      u64* const flag = word_at(to, layout_.flag(block_, given, x_.rank));
      kPublishes ? m_.release(flag, pieces) : m_.store(flag, pieces);
    }
  }
  THALWEG_DEVICE u64 area(u32 of) const { return area_of(m_, x_, of); }
  THALWEG_DEVICE u64* word_at(u32 of, u64 offset) const { return reinterpret_cast<u64*>(area(of) + offset); }
  /// By all threads.
  THALWEG_DEVICE void copy(u64 to, u64 from, u64 bytes) const {
    if constexpr (!M::whole_runs) {
      if ((to | from | bytes) % sizeof(Word16) == 0) {
        THALWEG_ROLLED
        for (u64 at = 0; at < bytes; at += turn()) copy_turn(to, from, at, bytes);
        return;
      }
    }
    copy_unaligned(m_, group_.rank(), group_.size(), to, from, bytes);
  }
  struct Copied {
    u64 to, from, bytes;
  };
  /// By all threads: several copies, of what each rank gets, in turns: no link waits for another. of(k): a Copied.
  template <class Of>
  THALWEG_DEVICE void copy_in_turns(u32 count, const Of& of) const {
    u64 most = 0, all = 0;
    THALWEG_ROLLED
    for (u32 k = 0; k < count; ++k) {
      const Copied one = of(k);
      if (one.bytes != 0) all |= one.to | one.from | one.bytes;
      if (one.bytes > most) most = one.bytes;
    }
    if (M::whole_runs || all % sizeof(Word16) != 0) {
      THALWEG_ROLLED
      for (u32 k = 0; k < count; ++k) {
        const Copied one = of(k);
        copy_unaligned(m_, group_.rank(), group_.size(), one.to, one.from, one.bytes);
      }
      return;
    }
    THALWEG_ROLLED
    for (u64 at = 0; at < most; at += turn()) {
      THALWEG_ROLLED
      for (u32 k = 0; k < count; ++k) {
        const Copied one = of(k);
        copy_turn(one.to, one.from, at, one.bytes);
      }
    }
  }

  const M m_;
  Group group_;
  const Exchange& x_;
  const Program& program_;
  const u32 blocks_, block_;
  const AreaLayout layout_;
  u64 run_ = 0, before_ = 0;
  u32 room_ = 0;  // of two
  u32 missing_ = 0, polls_ = 0, wait_ = 0;
  u64 since_ = 0;  // when the clock was first asked in that wait; 0: not yet

 private:
  THALWEG_DEVICE bool begin_run(u64 turn) {
    if (turn == kRefused) return false;
    run_ = turn >> 1;
    room_ = static_cast<u32>(turn & 1);
    return true;
  }
  static constexpr u32 kAtOnce = 4;  // words that a thread has in flight: eight would not all stay in registers
  THALWEG_DEVICE u64 turn() const { return u64{kAtOnce} * group_.size() * sizeof(Word16); }
  /// A turn of a copy, or what is left from `at` on.
  THALWEG_DEVICE void copy_turn(u64 to, u64 from, u64 at, u64 bytes) const {
    const u64 apart = group_.size() * sizeof(Word16);
    at += group_.rank() * sizeof(Word16);
    Word16 held[kAtOnce];
    THALWEG_UNROLL
    for (u32 i = 0; i < kAtOnce; ++i) {
      if (at + i * apart < bytes) held[i] = m_.read(reinterpret_cast<const Word16*>(from + at + i * apart));
    }
    THALWEG_UNROLL
    for (u32 i = 0; i < kAtOnce; ++i) {
      if (at + i * apart < bytes) m_.write(reinterpret_cast<Word16*>(to + at + i * apart), held[i]);
    }
  }
  THALWEG_DEVICE ExchangeWords* words() const { return reinterpret_cast<ExchangeWords*>(area(x_.rank)) + block_; }

  /// Blocks that the timeline has seen end.
  THALWEG_DEVICE u64* timed() const { return owner_words(program_.state, program_.step_count); }
  /// What own() says, and the pieces so far, which are under way before it: those of the same turn, unless another run ended since.
  THALWEG_DEVICE Word16 own_with_pieces() {
    Word16 ahead;
    if constexpr (M::whole_runs) {
      ahead.low = m_.acquire(&words()->turn);
      ahead.high = m_.load(&words()->pieces);
    } else {
      ahead = m_.load16(reinterpret_cast<const Word16*>(words()));
    }
    const u64 turn = own();
    const bool same = turn == ahead.low >> 1 && (ahead.low & 1) == 0;
    return {turn, turn == kRefused || same ? ahead.high : m_.load(&words()->pieces)};
  }
  THALWEG_DEVICE u64 own() {
    const u64 aborted = program_.guard.abort_flag != nullptr ? m_.load(program_.guard.abort_flag) : 0;
    const u64 before = machine::take_lowest_bit(m_, &words()->turn);  // under way together
    if (aborted != 0) return kRefused;                                // what others took from here would be wrong
    if ((before & 1) == 0) {
      if (program_.times != nullptr && block_ == 0)
        keep_exchange_begin(m_, program_.times, program_.kept_runs, timed(), blocks_);
      return before >> 1;
    }
    fail_taken(m_, program_.guard, words() - block_, x_.room_blocks, (before >> 2) + 1, x_.rank);
    return kRefused;
  }

  /// Each block for itself: nothing waits for the others', and no run is counted.
  THALWEG_DEVICE void count(bool failed) {
    if (failed) m_.fence();
    m_.fetch_add(ended_word(program_.state, program_.step_count), u64{1});
  }
};

}  // namespace thalweg::device
