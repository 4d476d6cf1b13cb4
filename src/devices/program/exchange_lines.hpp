// SPDX-License-Identifier: Apache-2.0
// LL in whole lines (LL128): 120 bytes of data and the run's number in each line of 128, which eight neighbouring threads store by one
// instruction (thalweg/device/ll128.hpp). For up to eight ranks, whose devices' stores arrive so (PeerAccess::whole_lines). As LL has
// it, every block of threads has its own room for every sender, twice, and sends each rank at least one line.
//
// In two phases (Exchange::slice): to each rank its slice; it reduces it, or takes the root's, and sends the result to all that have one.
//
// A thread's object; each holds its own part of a line in registers:
//
//   load     the loads of a line go out
//   begin    behind the first ones: becomes the block's owner
//   push     that line to all others, and goes to the thread's next one; false: there is none
//   take     one poll; until it is true
//   end      counts, and releases the block
#pragma once
#include <thalweg/device/ll128.hpp>

#include "devices/program/exchange_block.hpp"
#include "devices/program/exchange_fold.hpp"

namespace thalweg::device {

/// Where bytes are few, a kernel's time is that of its instructions, and what is skipped is fetched all the same. So there are kernels
/// for what is called most. Ranks may differ in which of them they run.
enum class LinesForm : u32 {
  any,         // all of it
  one_phase,   // of whole words of 8 bytes
  two_phases,  // the same
};
constexpr LinesForm form_of(const Exchange& x) {
  const u64 all = x.input | x.output | x.bytes | x.input_stride | x.output_stride;
  return all % 8 != 0 ? LinesForm::any : x.slice != 0 ? LinesForm::two_phases : LinesForm::one_phase;
}

/// kRanks: of no more than that. What a collective moves has less than 2^32 bytes, as areas have no room for more.
template <class M, class Group, u32 kRanks, LinesForm kForm = LinesForm::any>
class LinesRun : public ExchangeBlock<M, Group> {
  using Base = ExchangeBlock<M, Group>;
  static_assert(kRanks <= kFirstAreas);
  static constexpr u32 kWord = sizeof(Word16), kData = kLineData;
  struct Part {  // what a thread has of a line
    Word16 word[kWordsOfThread];
  };

 public:
  THALWEG_DEVICE LinesRun(M m, Group group, const Exchange& x, const Program& program, u32 blocks, u32 block)
      : Base(m, group, x, program, blocks, block),
        first_line_(group.rank() / kLineThreads),
        step_(group.size() / kLineThreads),
        first_word_(group.rank() % kLineThreads * kWordsOfThread) {
    const u32 whole = static_cast<u32>(sliced() ? x.slice : x.bytes), share = static_cast<u32>(x.share);
    begin_ = share * block < whole ? share * block : whole;
    end_ = whole - begin_ < share ? whole : begin_ + share;
    const u32 lines = (end_ - begin_ + kData - 1) / kData;
    lines_ = lines != 0 ? lines : 1;
    const u64 in_area = x.lines + block * 2 * x.size * kRoomOfLines + first_word_ * kWord;
    THALWEG_UNROLL
    for (u32 k = 0; k < kRanks; ++k) {
      rooms_[k] = k < x.size ? x.areas[peer(k)] + in_area : 0;
      machine::keep(rooms_[k]);
    }
    line_ = first_line_;
  }

  THALWEG_DEVICE void load() {
    if (line_ >= lines_) return;
    const bool one = !sliced() && x_.input_stride == 0;
    if (one && x_.sends != 0) parts_[0] = read_input(x_.rank);
    THALWEG_UNROLL
    for (u32 k = 1; k < kRanks; ++k) {
      if (one)
        parts_[k] = parts_[0];
      else if (k < x_.size && has(x_.sends, peer(k)))
        parts_[k] = read_input(peer(k));
    }
  }
  THALWEG_DEVICE bool push() {
    if (line_ < lines_) {
      meet();
      THALWEG_UNROLL
      for (u32 k = 1; k < kRanks; ++k) {
        if (k < x_.size && (line_ == 0 || has(x_.sends, peer(k)))) store_line(room(k, x_.rank, line_), parts_[k]);
      }
      line_ += step_;
      if (line_ < lines_) return true;
    }
    go_to(first_line_, 0);
    meet();
    return false;
  }
  /// One poll. True: this thread has taken all of its lines.
  THALWEG_DEVICE bool take() {
    while (true) {
      if (line_ >= lines_) {
        if (!sliced() || phase_ == 1) return true;
        go_to(first_line_, 1);
        meet();
        continue;
      }
      if (!there()) return false;
      if (!sliced() || phase_ == 0)
        use();
      else
        bring();
      go_to(line_ + step_, phase_);
      meet();
    }
  }
  /// After a poll in vain. Threads that share a line give up together.
  THALWEG_DEVICE bool timed_out() { return machine::any_neighbour<kLineThreads>(Base::timed_out(2 * line_ + phase_)); }
  /// By all threads, behind a barrier.
  THALWEG_DEVICE void end(bool failed) { Base::end(failed, 0, true); }

 private:
  using Base::has;
  using Base::m_;
  using Base::missing_;
  using Base::peer;
  using Base::room_;
  using Base::run_;
  using Base::x_;

  /// In two phases?
  THALWEG_DEVICE bool sliced() const { return kForm == LinesForm::any ? x_.slice != 0 : kForm == LinesForm::two_phases; }
  /// Threads that share a line load and store it together, by one instruction: words that are not whole part them before. A vote is no
  /// barrier for what the compiler may move behind it: where one thread still wrote the end of a result, its part of the line came
  /// later than the flag.
  THALWEG_DEVICE void meet() const { machine::sync_neighbours<kLineThreads>(); }
  THALWEG_DEVICE void go_to(u32 line, u32 phase) {
    const u32 all = ~0u >> (32 - x_.size);
    line_ = line;
    phase_ = phase;
    if (!sliced() || phase == 0) {
      awaited_ = line == 0 ? all : static_cast<u32>(x_.takes);
      if (line < lines_ && has(x_.takes, x_.rank)) own_ = read_input(x_.rank);  // there when the others' are
    } else {
      awaited_ = x_.rank == x_.unsliced ? 0 : all & ~(x_.unsliced < x_.size ? 1u << x_.unsliced : 0);
    }
    awaited_ &= ~(1u << x_.rank);
  }

  // ---- lines in areas

  /// In the area of peer(k): this thread's part of a line of `from`.
  THALWEG_DEVICE Word16* room(u32 k, u32 from, u32 line) const {
    return reinterpret_cast<Word16*>(rooms_[k] + ((room_ * x_.size + from) * kRoomOfLines + line * static_cast<u32>(kLine)));
  }
  /// Where one thread has all of a line, it arrives as words do.
  THALWEG_DEVICE void store_line(Word16* to, const Part& part) const {
    if constexpr (kLineThreads == 1) {
      constexpr u32 kLast = kWordsOfThread - 1;
      for (u32 i = 0; i < kLast; ++i) m_.store16(to + i, part.word[i]);
      m_.write(&to[kLast].low, part.word[kLast].low);
      m_.release(&to[kLast].high, run_ + 1);
    } else {
      m_.store16(to, Word16{part.word[0].low, first_word_ == kLineWords - 1 ? run_ + 1 : part.word[0].high});
    }
  }
  /// Is a line of this run? This thread's part of it is in *held.
  THALWEG_DEVICE bool load_there(const Word16* from, Part* held) const {
    if constexpr (kLineThreads == 1) {
      if (m_.acquire(&from[kWordsOfThread - 1].high) != run_ + 1) return false;
      for (u32 i = 0; i < kWordsOfThread; ++i) held->word[i] = m_.load16(from + i);
      return true;
    } else {
      return machine::from_last_neighbour<kLineThreads>(held->word[0].high) == run_ + 1;
    }
  }
  /// One poll of the line's senders. All that are missing are loaded before the first is looked at.
  THALWEG_DEVICE bool there() {
    const u32 line = (sliced() ? phase_ * kLinesOfPhase : 0) + line_;
    if constexpr (kLineThreads != 1) {
      THALWEG_UNROLL
      for (u32 from = 0; from < kRanks; ++from) {
        if ((awaited_ >> from & 1) != 0) parts_[from].word[0] = m_.load16(room(0, from, line));
      }
    }
    u32 missing = 0;
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      if ((awaited_ >> from & 1) != 0 && !load_there(room(0, from, line), &parts_[from])) missing |= 1u << from;
    }
    awaited_ = missing;
    if (missing != 0) missing_ = machine::lowest(missing);
    return missing == 0;
  }

  // ---- lines in buffers

  /// Where this thread's part of the line begins, and where ends what the block of threads moves: in a block; in two phases in the slice
  /// of `of`.
  struct Span {
    u32 at, end;
  };
  THALWEG_DEVICE Span span_of(u32 of) const {
    Span span{begin_ + line_ * kData + first_word_ * kWord, end_};
    if (!sliced()) return span;
    const u32 before = static_cast<u32>(x_.slice) * (of < x_.unsliced ? of : of - 1), all = static_cast<u32>(x_.bytes);
    span.at += before;
    span.end = end_ + before < all ? end_ + before : all;
    return span;
  }
  THALWEG_DEVICE u64 read_at(u64 at, u32 left) const {
    if constexpr (kForm != LinesForm::any)
      return m_.read(reinterpret_cast<const u64*>(at));
    else
      return read_word(m_, at, left);
  }
  THALWEG_DEVICE void write_at(u64 at, u32 left, u64 word) const {
    if constexpr (kForm != LinesForm::any)
      m_.write(reinterpret_cast<u64*>(at), word);
    else
      write_word(m_, at, left, word);
  }
  /// Has a thread's word a second half of data?
  THALWEG_DEVICE bool goes_on(u32 i, u32 at, u32 end) const { return at + 8 < end && first_word_ + i != kLineWords - 1; }
  THALWEG_DEVICE Part read(u64 base, Span span) const {
    Part part;
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) {
      const u32 at = span.at + i * kWord;
      part.word[i].low = at < span.end ? read_at(base + at, span.end - at) : 0;
      part.word[i].high = goes_on(i, at, span.end) ? read_at(base + at + 8, span.end - at - 8) : 0;
    }
    return part;
  }
  THALWEG_DEVICE void write(u64 base, Span span, const Part& part) const {
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) {
      const u32 at = span.at + i * kWord;
      if (at < span.end) write_at(base + at, span.end - at, part.word[i].low);
      if (goes_on(i, at, span.end)) write_at(base + at + 8, span.end - at - 8, part.word[i].high);
    }
  }
  THALWEG_DEVICE Part read_input(u32 to) const { return read(x_.input + x_.input_stride * to, span_of(to)); }

  // ---- what becomes of lines

  /// All of the first phase's are there.
  THALWEG_DEVICE void use() {
    if (x_.takes == 0) return;
    if (has(x_.takes, x_.rank)) set(x_.rank, own_);
    if (x_.reduces == 0 && !sliced()) {
      THALWEG_UNROLL
      for (u32 from = 0; from < kRanks; ++from) {
        if (has(x_.takes, from)) write(x_.output + x_.output_stride * from, span_of(from), parts_[from]);
      }
      return;
    }
    const Part result = x_.reduces != 0 ? sum() : only();
    if (sliced()) {
      meet();
      THALWEG_UNROLL
      for (u32 k = 1; k < kRanks; ++k) {
        if (k < x_.size && peer(k) != x_.unsliced) store_line(room(k, x_.rank, kLinesOfPhase + line_), result);
      }
    }
    write(x_.output, span_of(x_.rank), result);
  }
  /// The other ranks' results.
  THALWEG_DEVICE void bring() const {
    if (x_.rank == x_.unsliced) return;
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      if (from < x_.size && from != x_.rank && from != x_.unsliced) write(x_.output, span_of(from), parts_[from]);
    }
  }

  /// Without an index that the compiler does not know: an array that has one is kept in memory.
  THALWEG_DEVICE void set(u32 of, const Part& part) {
    THALWEG_UNROLL
    for (u32 from = 0; from < kRanks; ++from) {
      if (from == of) parts_[from] = part;
    }
  }
  THALWEG_DEVICE Part only() const {
    Part one = parts_[0];
    THALWEG_UNROLL
    for (u32 from = 1; from < kRanks; ++from) {
      if (has(x_.takes, from)) one = parts_[from];
    }
    return one;
  }
  /// In the order of ranks: of the first ones. What is summed most often is in line.
  THALWEG_DEVICE Part sum() const {
    if (x_.op == static_cast<u32>(ReduceOp::sum)) {
      if (x_.type == static_cast<u32>(ElementType::float32)) return sum_of<Plain<float>>();
      if (x_.type == static_cast<u32>(ElementType::bfloat16)) return sum_of<Brain>();
    }
    Part result;
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) {
      u64 low[kRanks], high[kRanks];
      u32 count = 0;
      THALWEG_UNROLL
      for (u32 from = 0; from < kRanks; ++from) {
        low[from] = parts_[from].word[i].low;
        high[from] = parts_[from].word[i].high;
        count += has(x_.takes, from) ? 1 : 0;
      }
      result.word[i].low = fold_words<CommonElements>(x_.type, x_.op, low, count, CommonElements::Last(x_));
      result.word[i].high = fold_words<CommonElements>(x_.type, x_.op, high, count, CommonElements::Last(x_));
    }
    return result;
  }
  template <class Element>
  THALWEG_DEVICE Part sum_of() const {
    Part result;
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) {
      Folded<Element, ReduceOp::sum, Word16> sum(parts_[0].word[i]);
      THALWEG_UNROLL
      for (u32 from = 1; from < kRanks; ++from) {
        if (has(x_.takes, from)) sum.take(parts_[from].word[i]);
      }
      result.word[i] = sum.result(CommonElements::Last(x_));
    }
    return result;
  }

  const u32 first_line_, step_, first_word_;
  u64 rooms_[kRanks];        // of this thread's part of line 0, in the area of peer(k), for rank 0 and the first of two rooms
  u32 begin_ = 0, end_ = 0;  // this block's part of the slice, or of each block
  u32 lines_ = 0, line_ = 0, phase_ = 0;
  u32 awaited_ = 0;                       // ranks whose part of the line is not there
  Part parts_[kRanks] THALWEG_HOST_ZERO;  // for peer(k), then of each rank
  Part own_ THALWEG_HOST_ZERO;            // this rank's, of what it takes
};

}  // namespace thalweg::device
