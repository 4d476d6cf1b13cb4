// SPDX-License-Identifier: Apache-2.0
// What the first thread of a block does in one run of a program that has a specialised kernel; one text for GPUs
// (devices/kernels/specialised.hpp) and for emulated ones (one_thread_run.hpp). Between its parts all threads move the bytes:
//
//   begin    becomes the block's owner; gives the credit of a receive
//   credit   one poll of what a send waits for
//   before   one poll of the polled step, if the move comes after it
//   (move)
//   arrive   true for the last block, which does the rest for all of them
//   announce signals, or a send's flag
//   after    one poll of the polled step, if nothing comes after it
//   end      counts, and releases the program
//
// What takes one load after another takes long, so loads go out together: the counts of channels are read before the block is
// known, used for a first poll, and read again after it, as another run may have changed them meanwhile.
//
// Nothing here can deadlock: copies wait for nothing, credits are given first, and nothing depends on a poll that comes
// last. A step whose wait fails records its number, as a ProgramExecutor's does.
//
// Of independent steps this is what a block does around what its warps do (independent_run.hpp): begin, arrive, count, end.
#pragma once
#include "devices/program/specialised.hpp"
#include "devices/program/step_times.hpp"
#include "devices/program/timeout.hpp"
#include "devices/program/watch.hpp"

namespace thalweg::device {

/// Of the machine code of one specialised kernel. A twin's knows its kind when it runs.
template <Poll kPoll, Move kMove>
struct FixedSpecialised {
  static constexpr Poll poll = kPoll;
  static constexpr Move move = kMove;
};
struct AnySpecialised {
  Poll poll;
  Move move;
};

constexpr u32 kFailed = 1, kShut = 2;  // of an outcome
/// ProgramState::arrived there: the upper half counts blocks over all runs, `blocks`, a power of two, for each; its carry
/// goes nowhere. The lower half counts those that failed, no more than one run's, as none begins after.
constexpr u64 kOneArrived = u64{1} << 32;

enum class Ready : u32 { no, yes, failed };

template <class M>
THALWEG_DEVICE_COLD void fail_cold(M m, Guard guard, i64 code, u64 what, u64 expected, u64 found) {
  record(m, guard.abort_flag, guard.failure, code, what, expected, found);
}

/// Steps: step(i), a reference.
template <class Kind, class M, class Steps>
class SpecialisedRun {
 public:
  THALWEG_DEVICE SpecialisedRun(M m, Kind kind, const Steps& steps, const Program& program, const Specialised& specialised,
                                u32 blocks, u32 block)
      : m_(m), kind_(kind), steps_(steps), program_(program), specialised_(specialised), blocks_(blocks), block_(block) {}

  /// False: the caller counts the block in vain.
  THALWEG_DEVICE bool begin() {
    u64 guess = 0;
    const u64* credits = nullptr;
    if (kind_.move == Move::send) {
      guess = m_.load(&sender()->count);
      credits = read_pointer(m_, &sender()->credits);
      recv_buffers_ = read_pointer(m_, &sender()->recv_buffers);
    }
    run_ = own_block(m_, program_.guard, program_.state, program_.step_count, blocks_, block_);
    if (run_ == kRefused) return false;
    if (block_ == 0) begins(program_.step_count);
    if (block_ == 0 && polls_first()) begins(specialised_.poll_step);
    if (kind_.move == Move::send) sent_ = m_.load(&sender()->count);
    if (kind_.poll == Poll::take) taken_ = m_.load(&receiver()->taken);
    if (kind_.poll == Poll::take && specialised_.post_step != kNoStep) posted_ = m_.load(&receiver()->posted);
    if (kind_.move == Move::send) {
      found_ = m_.acquire(credits + guess % kSlots);
      credit_ = credits + sent_ % kSlots;
      if (guess == sent_) take_credit();
    }
    if (kind_.poll == Poll::take) {
      flag_ = read_pointer(m_, &receiver()->flags) + taken_ % kSlots;
      if (specialised_.post_step != kNoStep && posted_ - taken_ < kSlots) give_credit();
    }
    return true;
  }

  /// Of a send: the n-th credit, which says where it lands.
  THALWEG_DEVICE Ready credit() {
    if (credited_) return Ready::yes;
    what_ = specialised_.move_step;
    found_ = m_.acquire(credit_);
    take_credit();
    return credited_ ? Ready::yes : Ready::no;
  }
  THALWEG_DEVICE Ready before() {
    const Ready ready = polls_first() ? poll() : Ready::yes;
    if (block_ != 0 || ready != Ready::yes) return ready;
    if (polls_first()) ends(specialised_.poll_step);
    note_moves(false);
    return ready;
  }
  /// After a poll in vain. True: no more polls, the run has failed.
  THALWEG_DEVICE bool timed_out() {
    if (++polls_ % kPollsPerClock != 0) return false;
    if (what_ != waited_) since_ = 0;  // the limit is of each wait
    waited_ = what_;
    const TimeoutCheck timeout = check_timeout(m_, program_.guard, since_, polls_ / kPollsPerClock - 1);
    since_ = timeout.since;
    if (timeout.code == 0) return false;
    if (timeout.code != kAlreadyAborted) blame(timeout.code);
    return true;
  }

  /// The block's run: known to the thread that called begin(), which passes it to the threads that announce and end it.
  THALWEG_DEVICE u64 run() const { return run_; }

  THALWEG_DEVICE const Step& move_step() const { return steps_.step(specialised_.move_step); }
  /// Of a send whose credit is there.
  THALWEG_DEVICE const RecvBuffer* recv_buffer() const { return recv_buffer_of(recv_buffers_, its_credit_); }
  /// A send's room. False: there is too little, or it is not what is sent; nothing is moved.
  THALWEG_DEVICE bool fits(u64 capacity) {
    if (!fits_receive(move_step(), capacity)) status_ = kTruncated;
    return status_ == 0;
  }

  /// Behind a barrier. By one thread.
  THALWEG_DEVICE bool arrive(bool failed) {
    outcome_ = failed ? kFailed : 0;
    if (blocks_ == 1) return true;
    if (announces() || program_.times != nullptr) m_.fence();
    const u64 closed = m_.load(&program_.state->closed);
    const u64 before = m_.fetch_add(&program_.state->arrived, failed ? kOneArrived | 1 : kOneArrived);
    outcome_ |= (static_cast<u32>(before) != 0 ? kFailed : 0) | (closed != 0 ? kShut : 0);
    return ((before / kOneArrived + 1) & (blocks_ - 1)) == 0;
  }
  /// What the last block to arrive knows; its other threads join. Returns: has the run failed?
  THALWEG_DEVICE u32 outcome() const { return outcome_; }
  THALWEG_DEVICE bool join(u64 run, u32 outcome) {
    run_ = run;
    outcome_ = outcome;
    return (outcome & kFailed) != 0;
  }
  /// By each of `lanes` threads of the last block. False, to the first: the run has failed.
  THALWEG_DEVICE bool announce(u32 lane, u32 lanes) {
    if (lane == 0) {
      note_moves(true);
      if (kind_.poll != Poll::none && !polls_first()) begins(specialised_.poll_step);
    }
    if (kind_.move == Move::list) {
      u32 i = specialised_.first_signal + lane;
      Signal signal = signal_of(i);  // under way together with the fence
      m_.fence();
      for (; i < program_.step_count; signal = signal_of(i += lanes)) {
        give(m_, signal, run_);
        if (program_.times != nullptr && steps_.step(i).kind == StepKind::signal) at_once(i);
      }
    } else if (kind_.move != Move::none && kind_.move != Move::independent && lane == 0) {
      if (kind_.move == Move::send) return finish_send();
      give_released(m_, move_step().signal, run_);
    }
    return true;
  }
  THALWEG_DEVICE Ready after() {
    if (kind_.poll == Poll::none || polls_first()) return Ready::yes;
    const Ready ready = poll();
    if (ready == Ready::yes) ends(specialised_.poll_step);
    return ready;
  }

  /// First by one thread, then, after a barrier, by each of `lanes`.
  THALWEG_DEVICE void count(bool failed) {
    if (failed) {
      m_.store(&program_.state->closed, run_ + 1);
      return count_in_vain(m_, program_.state, program_.step_count, blocks_);
    }
    if (program_.times != nullptr) m_.fence();
    ends(program_.step_count);
    m_.store(&program_.state->runs, run_ + 1);
    if (kind_.poll == Poll::take) {
      m_.store(&receiver()->taken, taken_ + 1);
      if (specialised_.post_step != kNoStep) m_.store(&receiver()->posted, posted_ + 1);
      m_.fence_near();
    }
  }
  THALWEG_DEVICE void end(bool failed, u32 lane, u32 lanes) const {
    release_blocks(m_, program_.state, program_.step_count, blocks_, run_, !failed && (outcome_ & kShut) == 0, lane, lanes);
    if (program_.over == nullptr || failed) return;
    if (lanes > 1) machine::sync_lanes();  // all words are released
    if (lane == 0) tell_over(m_, program_.over);
  }

 private:
  THALWEG_DEVICE SendEnd* sender() const { return static_cast<SendEnd*>(move_step().end); }
  THALWEG_DEVICE RecvEnd* receiver() const { return static_cast<RecvEnd*>(poll_step().end); }
  THALWEG_DEVICE const Step& poll_step() const { return steps_.step(specialised_.poll_step); }

  /// For the timeline: a step, or the run. What blocks do together begins with the first, and ends with the last of them.
  THALWEG_DEVICE void begins(u32 step) const {
    if (program_.times != nullptr) keep_begin(m_, program_.times, program_.kept_runs, program_.step_count, run_, step);
  }
  THALWEG_DEVICE void ends(u32 step) const {
    if (program_.times != nullptr) keep_end(m_, program_.times, program_.kept_runs, program_.step_count, run_, step);
  }
  THALWEG_DEVICE void at_once(u32 step) const {
    begins(step);
    ends(step);
  }
  /// What all threads move.
  THALWEG_DEVICE void note_moves(bool ended) const {
    if (program_.times == nullptr || kind_.move == Move::independent) return;
    const bool list = kind_.move == Move::list;
    const u32 first = list ? 0 : specialised_.move_step;
    const u32 end = list ? program_.step_count : kind_.move == Move::none ? first : first + 1;
    for (u32 i = first; i < end; ++i)
      if (!list || steps_.step(i).kind == StepKind::copy) ended ? ends(i) : begins(i);
  }

  /// The polled step comes ahead of the move.
  THALWEG_DEVICE bool polls_first() const {
    return kind_.poll != Poll::none && (kind_.move == Move::none || specialised_.behind != 0);
  }
  /// Or: the end of the run is told of what no step of its own has told of.
  THALWEG_DEVICE bool announces() const {
    if (kind_.move == Move::independent) return specialised_.copies != 0;
    return kind_.move == Move::send || kind_.move == Move::list ||
           (kind_.move != Move::none && move_step().signal.word != nullptr);
  }
  THALWEG_DEVICE void take_credit() {
    credited_ = slot_reached(found_, sent_);
    its_credit_ = found_;
  }
  THALWEG_DEVICE void give_credit() {
    if (block_ != 0) return;
    write_credit<Publish::fenced>(m_, receiver(), posted_, steps_.step(specialised_.post_step).recv_buffer);
    at_once(specialised_.post_step);
  }

  THALWEG_DEVICE Ready poll() {
    what_ = specialised_.poll_step;
    if (kind_.poll == Poll::wait) {
      const Step& step = poll_step();
      expected_ = value_in(step.signal, run_);
      found_ = m_.acquire(step.signal.word);
      return holds(found_, static_cast<Compare>(step.compare), expected_) ? Ready::yes : Ready::no;
    }
    found_ = m_.acquire(flag_);
    if (!slot_reached(found_, taken_)) return Ready::no;
    if (specialised_.post_step != kNoStep && posted_ - taken_ >= kSlots) give_credit();  // its slot was this receive's
    if (slot_info(found_) == 0) return Ready::yes;
    fail_cold(m_, program_.guard, -static_cast<i64>(slot_info(found_)), what_, 0, slot_info(found_));
    return Ready::failed;
  }
  /// Slots' words as numbers of messages.
  THALWEG_DEVICE void blame(i64 code) const {
    const bool credit = kind_.move == Move::send && what_ == specialised_.move_step;
    const bool slot = credit || kind_.poll == Poll::take;
    fail_cold(m_, program_.guard, code, what_, slot ? (credit ? sent_ : taken_) + 1 : expected_, slot ? found_ >> 16 : found_);
  }

  THALWEG_DEVICE Signal signal_of(u32 i) const {
    if (i >= program_.step_count) return {};
    const Step& step = steps_.step(i);
    return step.kind == StepKind::copy || step.kind == StepKind::signal ? step.signal : Signal{};
  }
  THALWEG_DEVICE bool finish_send() {
    m_.store(&sender()->count, sent_ + 1);
    write_flag<Publish::released>(m_, sender(), sent_, status_);
    if (status_ == 0) return true;
    fail_cold(m_, program_.guard, status_, specialised_.move_step, sent_, move_step().bytes);
    return false;
  }

  const M m_;
  const Kind kind_;
  const Steps& steps_;
  const Program& program_;
  const Specialised& specialised_;
  const u32 blocks_, block_;
  u64 run_ = 0;
  u64 sent_ = 0, taken_ = 0, posted_ = 0;
  const u64 *credit_ = nullptr, *flag_ = nullptr;
  const RecvBuffer* recv_buffers_ = nullptr;
  bool credited_ = false;
  u64 its_credit_ = 0;
  u64 expected_ = 0, found_ = 0;
  u32 what_ = 0, polls_ = 0;
  u32 waited_ = 0;  // what_ when the clock was last asked
  i64 status_ = 0;
  u32 outcome_ = 0;
  u64 since_ = 0;  // when the clock was first asked in that wait; 0: not yet
};

}  // namespace thalweg::device
