// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a program: one text for the host (program/host.hpp), for emulated devices (emulated/program.cpp) and for
// GPUs (devices/kernels/block_group.hpp). devices/program.hpp defines a run.
//
// A *block* runs every step once: those that move bytes in part, the others, if it is the first, on behalf of all. It walks over
// its steps again and again and does what has become ready; pass() is one such walk and never waits. So:
//
//   No locking up. Whatever a step waits for, a block that is not done polls it at every walk, whatever else it waits for;
//   what is ready needs nothing but the block itself. If all blocks have room on the device at once, each step is done in all
//   of them once its word has come and its `after` are done, by induction over the list, in which those come first. Programs
//   that wait for each other therefore end, in whatever order they are written, unless no order at all would do.
//
//   One run at a time. Each block becomes its number's owner before anything else (ownership.hpp).
//
//   Nothing baked. Run number and channel counts are read once the block is owned and advanced by the run itself.
//
// Groups. On a GPU each thread of as many warps as there are steps for polls a step, and everyone does what they find. On the
// host the group is one thread, which polls one step at a time. A Group has: lanes() (how many steps at a time: machine::kLanes
// for each of its parts()); one_poll (no program has more steps than that); lane() (at lanes() or beyond: does not poll);
// leader(); sync(), a barrier; any(yes), one, too; tell(value): the leader's, for all; vote(ready, open, moving, found, stop):
// a barrier, after which any_ready(), all_ready() (of those open), first_ready() (lanes(): none), found(lane) and stopped() are
// the same for all; step(i), after(i); done(i), for lanes; mark(base, yes): the lane's step is done; share(base, part, block,
// blocks, item): of the part's ready steps, those in which this thread has bytes to move; move(m, step, recv_buffer, ...) moves
// its share of one, to its target or to a receive buffer.
#pragma once
#include "devices/program/step_times.hpp"
#include "devices/program/timeout.hpp"
#include "devices/program/watch.hpp"

namespace thalweg::device {

/// What a step needs to be ready. Fetched once where a lane has one step.
struct Needs {
  Watch watch;
  StepKind kind;
  u32 first_after, after_count;
  u32 only;  // the earlier step, if it is one
  u32 far;   // the earlier step whose end other blocks signal; or one of these
  static constexpr u32 kNone = ~0u, kSeveral = ~0u - 1;
};

template <class M, class Group>
class ProgramExecutor {
 public:
  THALWEG_DEVICE ProgramExecutor(M m, Group group, const Program& program, u32 blocks, u32 block, u32 item)
      : m_(m),
        group_(group),
        state_(program.state),
        guard_(program.guard),
        over_(program.over),
        times_(block == 0 ? program.times : nullptr),
        kept_runs_(program.kept_runs),
        count_(program.step_count),
        blocks_(blocks),
        block_(block),
        item_(item) {}

  /// False: there is nothing to do for this block, and it may leave.
  THALWEG_DEVICE bool begin() {
    run_ = group_.tell(group_.leader() ? own_block(m_, guard_, state_, count_, blocks_, block_) : 0);
    if (run_ == kRefused) {
      if (group_.leader()) count_in_vain(m_, state_, count_, 1);
      return false;
    }
    if (group_.leader()) begins(count_);
    if (polls(group_.lane())) needs_ = needs(group_.lane());
    group_.mark(0, over_at_once());
    if (!early()) return true;
    if (!Group::one_poll) group_.sync();  // what others have polled must not be counted yet
    channels_ = group_.any(advance_channels());
    return true;
  }

  /// Once over all steps that are not done. True: the run is over for this block.
  THALWEG_DEVICE bool pass() {
    bool moved = false, over = false;
    for (u32 base = first_; base < count_ && !over; base += group_.lanes()) {
      const u32 i = base + group_.lane();
      u64 found = 0;
      const bool open = polls(i) && !group_.done(i);
      const bool ready = open && !stop_ && is_ready(i, &found);
      group_.vote(ready, open, ready && moves(kind_of(i)), found, stop_);
      over = group_.stopped();
      if (!over && group_.any_ready()) {
        perform(base, ready, found);
        moved = true;
      }
      if (base == first_ && group_.all_ready()) first_ += group_.lanes();
      if (Group::one_poll) break;
    }
    if (over || first_ >= count_) return leave();
    if (group_.leader()) moved ? rest() : check_failure();
    return false;
  }
  /// One thread, whose passes come seldom: the next one in vain asks for the time and the abort word, which else come by number.
  THALWEG_DEVICE void ask_next() { polls_ = kPollsPerClock * kClocksPerAbort - 1; }

 private:
  /// A step, or the run, for the timeline.
  THALWEG_DEVICE void begins(u32 step) const {
    if (times_ != nullptr) keep_begin(m_, times_, kept_runs_, count_, run_, step);
  }
  THALWEG_DEVICE void ends(u32 step) const {
    if (times_ != nullptr) keep_end(m_, times_, kept_runs_, count_, run_, step);
  }
  /// Behind a barrier: what others of the group noted comes first.
  THALWEG_DEVICE void run_ends() const {
    if (times_ == nullptr) return;
    m_.fence();
    ends(count_);
  }
  THALWEG_DEVICE bool early() const { return blocks_ == 1 && (Group::one_poll || count_ <= group_.lanes()); }
  THALWEG_DEVICE bool polls(u32 i) const { return group_.lane() < group_.lanes() && i < count_; }
  THALWEG_DEVICE u32* words(u32 step) const { return reinterpret_cast<u32*>(shared_word(state_, step)); }
  THALWEG_DEVICE u32 all_done() const { return static_cast<u32>(run_ + 1) * blocks_; }
  static THALWEG_DEVICE bool moves(StepKind kind) { return kind <= StepKind::reduce; }
  /// Each block detects its end itself; for all other kinds the words have it.
  static THALWEG_DEVICE bool only_polls(StepKind kind) { return kind == StepKind::wait || kind == StepKind::take; }

  THALWEG_DEVICE Watch watch_next(const u64* count, u64* const* slots, u64 offset) const {
    return watch_slot(read_pointer(m_, slots), m_.load(count) + offset);
  }

  THALWEG_DEVICE Watch watch(const Step& step) const {
    const u32 ge = static_cast<u32>(Compare::greater_equal);
    const SendEnd* const send = static_cast<const SendEnd*>(step.end);
    const RecvEnd* const recv = static_cast<const RecvEnd*>(step.end);
    switch (step.kind) {
      case StepKind::send:
        return watch_next(&send->count, &send->credits, step.operand);
      case StepKind::take:
        return watch_next(&recv->taken, &recv->flags, step.operand);
      case StepKind::post:
        return {&recv->taken, m_.load(&recv->posted) + step.operand + 1 - kSlots, ge};
      case StepKind::wait:
        return {step.signal.word, value_in(step.signal, run_), step.compare};
      case StepKind::await:
        return {block_ == 0 ? step.word : nullptr, run_ + 1, ge};
      default:
        return {nullptr, 0, ge};
    }
  }

  /// Lanes, before anything is polled: steps that are another block's; and receives whose slot is free, whose credit a peer's send
  /// waits for.
  THALWEG_DEVICE bool over_at_once() const {
    const u32 i = group_.lane();
    if (!polls(i) || moves(needs_.kind) || only_polls(needs_.kind)) return false;
    if (block_ != 0) return true;
    u64 number = 0;
    if (needs_.kind != StepKind::post || needs_.after_count != 0 || !is_ready(i, &number)) return false;
    give_credit(group_.step(i), number);
    if (blocks_ > 1) m_.fetch_add(reinterpret_cast<u64*>(words(i)), u64{blocks_});
    begins(i);
    ends(i);
    return true;
  }
  THALWEG_DEVICE u32 earlier_of(u32 at) const { return group_.after(at) & ~kOwnShare; }

  /// Whether other blocks' part of the earlier step has to be polled. A message that has arrived comes after its credit.
  THALWEG_DEVICE bool is_far(const Step& step, u32 number) const {
    if ((number & kOwnShare) != 0) return false;
    const Step& earlier = group_.step(number);
    const bool own_credit = earlier.kind == StepKind::post && step.kind == StepKind::take && earlier.end == step.end;
    return !only_polls(earlier.kind) && !own_credit;
  }

  THALWEG_DEVICE Needs needs(u32 i) const {
    const Step& step = group_.step(i);
    Needs found{watch(step), step.kind, step.first_after, step.after_count, 0, Needs::kNone};
    if (step.after_count == 1) found.only = earlier_of(step.first_after);
    if (blocks_ == 1) return found;
    for (u32 k = 0; k < step.after_count; ++k) {
      const u32 earlier = group_.after(step.first_after + k);
      if (is_far(step, earlier)) found.far = found.far == Needs::kNone ? earlier : Needs::kSeveral;
    }
    return found;
  }
  THALWEG_DEVICE Needs needs_of(u32 i) const { return Group::one_poll || i < group_.lanes() ? needs_ : needs(i); }

  THALWEG_DEVICE StepKind kind_of(u32 i) const {
    return Group::one_poll || i < group_.lanes() ? needs_.kind : group_.step(i).kind;
  }

  THALWEG_DEVICE bool all_arrived(u32 earlier) const {
    const u32 arrived = static_cast<u32>(m_.load(reinterpret_cast<u64*>(words(earlier))));
    return static_cast<int>(arrived - all_done()) >= 0;
  }

  THALWEG_DEVICE bool after_done(u32 i, const Needs& own) const {
    if (own.after_count == 1 && !group_.done(own.only)) return false;
    for (u32 k = 0; own.after_count > 1 && k < own.after_count; ++k) {
      if (!group_.done(earlier_of(own.first_after + k))) return false;
    }
    if (own.far == Needs::kNone) return true;
    bool all = true;  // other blocks' shares; one poll need not wait for the one before
    if (own.far != Needs::kSeveral) all = all_arrived(own.far);
    for (u32 k = 0; own.far == Needs::kSeveral && k < own.after_count; ++k) {
      const u32 earlier = group_.after(own.first_after + k);
      if (is_far(group_.step(i), earlier)) all = all_arrived(earlier) && all;
    }
    if (all) m_.fence();
    return all;
  }

  /// *found: what the word held; of a post, its number.
  THALWEG_DEVICE bool is_ready(u32 i, u64* found) const {
    const Needs own = needs_of(i);
    if (block_ != 0 && !moves(own.kind) && !only_polls(own.kind)) return true;  // the first block's
    if (!after_done(i, own)) return false;
    if (own.watch.word == nullptr) return true;
    *found = m_.acquire(own.watch.word);
    if (!own.watch.reached(*found)) return false;
    if (own.kind == StepKind::post) *found = own.watch.value + kSlots - 1;
    return true;
  }

  /// The ready steps, `mine`: the lane's is one: what they move, shared by all blocks; then, lane by lane, what follows it.
  THALWEG_DEVICE void perform(u32 base, bool mine, u64 found) {
    const u32 i = base + group_.lane();
    if (mine) begins(i);
    if (mine && kind_of(i) == StepKind::post && group_.step(i).after_count == 0) give_credit(group_.step(i), found);
    i64 status = 0;
    if (mine && kind_of(i) == StepKind::send &&
        !fits_receive(group_.step(i), m_.read(&recv_buffer(group_.step(i), found)->capacity)))
      status = kTruncated;
    for (u32 part = 0; part < group_.parts(); ++part) move_part(base, part);
    group_.sync();
    const bool done = mine && complete(i, found, status);
    if (done) ends(i);
    if (mine && !done) stop_ = true;
    group_.mark(base, done);
  }

  THALWEG_DEVICE void move_part(u32 base, u32 part) {
    for (machine::LaneMask rest = group_.share(base, part, block_, blocks_, item_); rest != 0; rest &= rest - 1) {
      const u32 lane = part * machine::kLanes + machine::lowest(rest);
      const Step& step = group_.step(base + lane);
      group_.move(m_, step, step.kind == StepKind::send ? recv_buffer(step, group_.found(lane)) : nullptr, block_, blocks_,
                  item_);
    }
  }

  THALWEG_DEVICE const RecvBuffer* recv_buffer(const Step& step, u64 credit) const {
    return recv_buffer_of(read_pointer(m_, &static_cast<const SendEnd*>(step.end)->recv_buffers), credit);
  }

  /// By the lane whose step it is, after the block's share of the data. False: the step has failed.
  THALWEG_DEVICE bool complete(u32 i, u64 found, i64 status) {
    const StepKind kind = kind_of(i);
    if (kind == StepKind::wait || (kind == StepKind::take && slot_info(found) == 0)) return true;
    const Step& step = group_.step(i);
    if (kind == StepKind::take) {
      fail(m_, guard_, -static_cast<i64>(slot_info(found)), i, step.operand, slot_info(found));
      return false;
    }
    if (moves(step.kind)) {
      if (blocks_ > 1 && m_.arrive(words(i)) + 1 != all_done()) return status == 0;
      if (step.kind == StepKind::send || step.signal.word != nullptr) m_.fence();
      return finish_move(step, i, found, status);
    }
    if (block_ != 0) return true;
    if (step.kind == StepKind::ring) tell_carrier(m_, step, run_);
    if (step.kind == StepKind::await && step.result != nullptr) {
      m_.store(step.result, m_.load(step.word + 1));
      m_.fence_near();  // for the block's other threads, too
    }
    if (step.kind != StepKind::await && (step.kind != StepKind::post || step.after_count != 0)) m_.fence();
    if (step.kind == StepKind::post && step.after_count != 0) give_credit(step, found);
    if (step.kind == StepKind::ring) ring_doorbell(m_, step, run_);
    if (step.kind == StepKind::atomic) change_word(step);
    if (step.kind == StepKind::atomic && step.signal.word != nullptr) m_.fence();
    if (step.kind == StepKind::signal || step.kind == StepKind::atomic) give(m_, step.signal, run_);
    u64* const word = reinterpret_cast<u64*>(words(i));
    if (blocks_ > 1 && step.kind == StepKind::post) m_.fetch_add(word, u64{blocks_});  // a credit publishes nothing
    if (blocks_ > 1 && step.kind != StepKind::post) m_.add_release(word, u64{blocks_});
    return true;
  }

  THALWEG_DEVICE bool finish_move(const Step& step, u32 i, u64 credit, i64 status) {
    if (step.kind != StepKind::send) {
      give(m_, step.signal, run_);
      return true;
    }
    const u64 n = (credit >> 16) - 1;
    write_flag<Publish::fenced>(m_, static_cast<SendEnd*>(step.end), n, status);
    if (status == 0) return true;
    fail(m_, guard_, status, i, n, step.bytes);
    return false;
  }

  THALWEG_DEVICE void give_credit(const Step& step, u64 n) const {
    if (block_ != 0) return;
    write_credit<Publish::fenced>(m_, static_cast<RecvEnd*>(step.end), n, step.recv_buffer);
  }

  template <class Word>
  THALWEG_DEVICE u64 changed(Word* word, const Step& step) const {
    const Word operand = static_cast<Word>(step.operand);
    switch (step.atomic_op) {
      case 0:
        return m_.fetch_add(word, operand);
      case 1:
        return m_.fetch_and(word, operand);
      case 2:
        return m_.fetch_or(word, operand);
      case 3:
        return m_.fetch_xor(word, operand);
      case 4:
        return m_.swap(word, operand);
      default:
        return m_.compare_swap(word, static_cast<Word>(step.operand2), operand);
    }
  }
  THALWEG_DEVICE void change_word(const Step& step) const {
    const u64 old = step.atomic_bytes == 4 ? changed(reinterpret_cast<u32*>(step.word), step) : changed(step.word, step);
    m_.fence();  // what the word's earlier changes published is visible to what comes after
    if (step.result == nullptr) return;
    if (step.atomic_bytes == 4) {
      m_.write(reinterpret_cast<u32*>(step.result), static_cast<u32>(old));
    } else {
      m_.write(step.result, old);
    }
  }

  /// Lanes: the counts of the channels after this run. Each channel has one step that holds the number of its messages.
  THALWEG_DEVICE bool advance_channels() const {
    bool any = false;
    for (u32 i = group_.lane(); polls(i); i += group_.lanes()) {  // each step by one lane
      const Step& step = group_.step(i);
      u64* const count = count_of(step);
      if (count == nullptr || step.operand2 == 0) continue;
      m_.store(count, m_.load(count) + step.operand2);
      any = true;
    }
    return any;
  }

  THALWEG_DEVICE void rest() {
    polls_ = 0;
    since_ = 0;
  }
  /// The leader, when nothing was ready: has the run failed elsewhere, been aborted, or taken too long?
  THALWEG_DEVICE void check_failure() {
    if (++polls_ % kPollsPerClock != 0) return;
    const TimeoutCheck timeout = check_timeout(m_, guard_, since_, polls_ / kPollsPerClock - 1);
    since_ = timeout.since;
    stop_ = timeout.code != 0;
    if (timeout.code != kAlreadyAborted) code_ = timeout.code;
  }

  /// Names the first step that waits.
  THALWEG_DEVICE void blame(i64 code) {
    for (u32 base = 0; base < count_; base += group_.lanes()) {
      const u32 i = base + group_.lane();
      u64 found = 0;
      const bool open = polls(i) && !group_.done(i);
      const bool waits = open && after_done(i, needs_of(i)) && !is_ready(i, &found);
      group_.vote(waits, open, false, found, false);
      if (!group_.any_ready()) continue;
      if (group_.lane() != group_.first_ready()) return;
      const Watch own = needs_of(i).watch;
      return fail(m_, guard_, code, i, own.expected(), own.shown(found));
    }
    if (group_.leader()) fail(m_, guard_, code, count_, 0, 0);  // other blocks' shares are missing
  }

  THALWEG_DEVICE bool leave() {
    bool failed = group_.any(stop_);
    if (group_.leader()) run_ends();
    const i64 code = failed ? static_cast<i64>(group_.tell(static_cast<u64>(code_))) : 0;
    if (code != 0) blame(code);
    if (blocks_ > 1) {
      group_.sync();
      const bool last = group_.leader() && last_to_leave();
      const u64 told = group_.tell(last ? 1 + abort_flag_set(m_, guard_) : 0);
      if (told == 0) return true;
      failed = told == 2;
    }
    if (!failed && !early()) channels_ = advance_channels();
    group_.sync();
    if (group_.leader()) end_run(failed);
    return true;
  }

  THALWEG_DEVICE bool last_to_leave() const {
    m_.fence();
    const bool last = m_.last_of(reinterpret_cast<u32*>(&state_->arrived), blocks_);
    if (last) m_.fence();
    return last;
  }

  THALWEG_DEVICE void end_run(bool failed) {
    const bool closed = failed || (blocks_ > 1 && m_.load(&state_->closed) != 0);
    if (channels_) m_.fence_near();
    device::end_run(m_, state_, count_, blocks_, run_, failed, !closed);
    if (!failed) tell_over(m_, over_);
  }

  const M m_;
  Group group_;
  ProgramState* const state_;
  const Guard guard_;
  u64* const over_;
  StepTime* const times_;  // of the first block
  const u32 kept_runs_;
  const u32 count_, blocks_, block_, item_;
  u64 run_ = 0;
  Needs needs_{};  // of the step numbered as this lane is
  u32 first_ = 0;  // steps before it are done
  bool channels_ = false;
  bool stop_ = false;
  u32 polls_ = 0;
  u64 since_ = 0;
  i64 code_ = 0;  // of the leader
};

}  // namespace thalweg::device
