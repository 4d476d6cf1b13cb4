// SPDX-License-Identifier: Apache-2.0
// A warp's part of a run whose steps wait for nothing but words of their own, as those of a halo exchange do: sends for credits, receives
// and waits for what comes. One text for GPUs (devices/kernels/independent.hpp), where a warp's lanes poll a step each, and for emulated
// ones (one_thread_run.hpp), whose warps are one thread. SpecialisedRun is what a block of warps does before and after.
//
//   A warp polls the steps of which it has a share, moves that as soon as the step's word allows, and counts itself. The last of a step's
//   sharers publishes it: the flag of a send, the signal of a copy.
//
//   The first warp of the first block gives the credits of all receives ahead of that. Behind its moves it polls what comes in, and sees every
//   send's credit, so that what waits in vain is named by it alone, and in the list's order.
//
// There are no barriers between steps, and no warp waits for another one: where a ProgramExecutor's blocks agree about each step that has
// become ready, here nothing but the end of the run is counted by block. Nothing can lock up: a pass does whatever is ready.
#pragma once
#include "devices/program/item_share.hpp"
#include "devices/program/specialised.hpp"
#include "devices/program/step_times.hpp"
#include "devices/program/timeout.hpp"
#include "devices/program/watch.hpp"

namespace thalweg::device {

/// Steps: step(i); order(k): the numbers of the moves, then of the steps that are polled, then of the receives whose credits are given.
/// Mover: move(m, step, to, share), the sharer's items of what the step moves; arrive(k), of the block's sharers of the k-th move: how many
/// have come before.
template <class M, class Steps, class Mover>
class IndependentRun {
 public:
  /// first: the first warp of the first block.
  THALWEG_DEVICE IndependentRun(M m, const Steps& steps, const Mover& mover, const Program& program,
                                const Specialised& specialised, ItemShare share, bool first)
      : m_(m), steps_(steps), mover_(mover), program_(program), specialised_(specialised), share_(share), first_(first) {}

  /// Ahead of begin(), while the block is not known to own the run: what no run changes.
  THALWEG_DEVICE void prepare() {
    moves_ = lanes_below(specialised_.moves);
    if (first_) posts_ = lanes_below(specialised_.posts);
    if constexpr (kKept) {
      move_.step = steps_.order(moves_ != 0 ? number_of_move(0) : 0);
      post_.step = steps_.order(posts_ != 0 ? number_of_post(0) : 0);
      if (moves_ != 0) move_.words = words_of_move(steps_.step(move_.step));
      if (posts_ != 0) post_.words = words_of_post(steps_.step(post_.step));
    }
    for (u32 b = 0; b < bases(specialised_.moves); ++b) {
      const bool shares = is_in(moves_, b) && share_.has(steps_.step(kKept ? move_.step : steps_.order(number_of_move(b))));
      if (!shares) moves_ &= ~(1u << b);
    }
  }
  /// Gives the credits of the receives that find a free slot.
  THALWEG_DEVICE void begin(u64 run) {
    run_ = run;
    if constexpr (kKept) {
      if (moves_ != 0) move_.watch = watch(move_.words);
      if (posts_ != 0 && give_credit(post_)) posts_ = 0;
    } else {
      give_credits();
    }
  }

  // Passes do what is ready, and wait for nothing. True: that part is over for this warp, or has failed; fail() is next then.

  /// Of the steps of which it has a share.
  THALWEG_DEVICE bool move_pass() {
    bool moved = false;
    for (u32 b = 0; b < bases(specialised_.moves); ++b) moved = move_ready(b) || moved;
    if (machine::any_lane(failed_)) return true;
    return !machine::any_lane(moves_ != 0) || none_ready(moved);
  }
  /// Of the first warp: what comes, and the credits of all sends, so that each wait in vain is seen by it. Behind its own moves: nothing
  /// waits for them.
  THALWEG_DEVICE void begin_ends() {
    polls_ = lanes_below(specialised_.polls);
    moves_ = lanes_below(specialised_.moves);
    if constexpr (kKept) {
      if (polls_ != 0) poll_ = find_poll(0);
      if (moves_ != 0) move_ = find_move(0);
    }
  }
  THALWEG_DEVICE bool end_pass() {
    const bool moved = give_credits() | poll_ends() | see_credits();
    if (machine::any_lane(failed_)) return true;
    return !machine::any_lane((polls_ | moves_ | posts_) != 0) || none_ready(machine::any_lane(moved));
  }
  THALWEG_DEVICE bool failed() const { return machine::any_lane(failed_); }
  /// Says why. By all lanes of a warp that has failed.
  THALWEG_DEVICE void fail() {
    if (in_vain_code_ != 0) blame();
    if (code_ != 0) device::fail(m_, program_.guard, code_, what_, expected_, found_);
  }

  /// By a warp of the last block: the counts of the channels. Each has one step of a kind.
  THALWEG_DEVICE void advance_channels() const {
    constexpr u32 kAtOnce = kKept ? 3 : 1;  // loads under way together: a warp's program has no more steps
    for (u32 base = 0; base < program_.step_count; base += kAtOnce * machine::kLanes) {
      u64* counts[kAtOnce];
      u64 before[kAtOnce];
      THALWEG_UNROLL
      for (u32 k = 0; k < kAtOnce; ++k) {
        const u32 i = base + k * machine::kLanes + machine::lane();
        const Step& step = steps_.step(i < program_.step_count ? i : 0);
        counts[k] = i < program_.step_count ? count_of(step) : nullptr;
      }
      THALWEG_UNROLL
      for (u32 k = 0; k < kAtOnce; ++k) before[k] = m_.load(counts[k] != nullptr ? counts[k] : &program_.state->runs);
      THALWEG_UNROLL
      for (u32 k = 0; k < kAtOnce; ++k)
        if (counts[k] != nullptr) m_.store(counts[k], before[k] + 1);
    }
    m_.fence_near();
    end_moves();
  }

 private:
  static constexpr bool kKept = machine::kLanes >= kMostIndependent;  // a lane has no second step of a kind

  /// Where a step's words are: its end's count, and slots; count null: the word of a wait; both: it waits for nothing. Of a send, also
  /// where it lands.
  struct Words {
    u64* count = nullptr;
    u64* slots = nullptr;
    const RecvBuffer* recv_buffers = nullptr;
  };
  /// A step, and what it waits for.
  struct Own {
    u32 step = 0;
    Words words{};
    Watch watch{};
  };

  // A lane's numbers of a kind: b * kLanes + lane(). Sets of them have a bit for each b.
  static THALWEG_DEVICE u32 bases(u32 count) {
    return kKept ? (count != 0 ? 1 : 0) : (count + machine::kLanes - 1) / machine::kLanes;
  }
  static THALWEG_DEVICE bool is_in(u32 set, u32 b) { return (set >> b & 1) != 0; }
  static THALWEG_DEVICE u32 lanes_below(u32 count) {
    if constexpr (kKept) return machine::lane() < count ? 1 : 0;
    return static_cast<u32>((u64{1} << count) - 1);
  }
  // In the order of all.
  THALWEG_DEVICE u32 number_of_move(u32 b) const { return b * machine::kLanes + machine::lane(); }
  THALWEG_DEVICE u32 number_of_poll(u32 b) const { return specialised_.moves + number_of_move(b); }
  THALWEG_DEVICE u32 number_of_post(u32 b) const { return specialised_.moves + specialised_.polls + number_of_move(b); }

  THALWEG_DEVICE Words words_of_move(const Step& step) const {
    if (step.kind != StepKind::send) return {};
    SendEnd* const end = static_cast<SendEnd*>(step.end);
    return {&end->count, read_pointer(m_, &end->credits), read_pointer(m_, &end->recv_buffers)};
  }
  THALWEG_DEVICE Words words_of_poll(const Step& step) const {
    if (step.kind == StepKind::wait) return {nullptr, step.signal.word};
    RecvEnd* const end = static_cast<RecvEnd*>(step.end);
    return {&end->taken, read_pointer(m_, &end->flags)};
  }
  THALWEG_DEVICE Words words_of_post(const Step& step) const {
    RecvEnd* const end = static_cast<RecvEnd*>(step.end);
    return {&end->posted, read_pointer(m_, &end->credits)};
  }
  THALWEG_DEVICE Watch watch(Words words) const {
    return words.count == nullptr ? Watch{} : watch_slot(words.slots, m_.load(words.count));
  }
  THALWEG_DEVICE Watch watch_poll(const Step& step, Words words) const {
    return words.count != nullptr ? watch(words) : Watch{words.slots, value_in(step.signal, run_), step.compare};
  }
  THALWEG_DEVICE Own find_move(u32 b) const {
    const u32 step = steps_.order(number_of_move(b));
    const Words words = words_of_move(steps_.step(step));
    return {step, words, watch(words)};
  }
  THALWEG_DEVICE Own find_poll(u32 b) const {
    const u32 step = steps_.order(number_of_poll(b));
    const Words words = words_of_poll(steps_.step(step));
    return {step, words, watch_poll(steps_.step(step), words)};
  }
  THALWEG_DEVICE Own move_at(u32 b) const {
    if constexpr (kKept) {
      return move_;
    } else {
      return find_move(b);
    }
  }
  THALWEG_DEVICE Own poll_at(u32 b) const {
    if constexpr (kKept) {
      return poll_;
    } else {
      return find_poll(b);
    }
  }
  THALWEG_DEVICE bool is_ready(const Watch& watch, u64* found) const {
    if (watch.word == nullptr) return true;
    *found = m_.acquire(watch.word);
    return watch.reached(*found);
  }

  /// Of a receive that finds a free slot.
  THALWEG_DEVICE bool give_credit(const Own& own) const {
    const Step& step = steps_.step(own.step);
    const u64 n = m_.load(own.words.count);
    if (n - m_.load(&static_cast<const RecvEnd*>(step.end)->taken) >= kSlots) return false;
    write_slot<Publish::fenced>(m_, own.words.slots, n, step.recv_buffer);
    at_once(own.step);
    return true;
  }
  THALWEG_DEVICE bool give_credits() {
    if (posts_ == 0) return false;
    bool gave = false;
    for (u32 b = 0; b < bases(specialised_.posts); ++b) {
      if (!is_in(posts_, b)) continue;
      const u32 step = steps_.order(number_of_post(b));
      if (!give_credit({step, words_of_post(steps_.step(step)), {}})) continue;
      posts_ &= ~(1u << b);
      gave = true;
    }
    return gave;
  }
  THALWEG_DEVICE bool poll_ends() {
    bool came = false;
    for (u32 b = 0; b < bases(specialised_.polls); ++b) {
      u64 found = 0;
      if (!is_in(polls_, b)) continue;
      const Own own = poll_at(b);
      if (!is_ready(own.watch, &found)) continue;
      polls_ &= ~(1u << b);
      came = true;
      if (own.watch.how == kSlotWord && slot_info(found) != 0) {
        note(-static_cast<i64>(slot_info(found)), own.step, 0, slot_info(found));
      } else {
        at_once(own.step);
      }
    }
    return came;
  }
  THALWEG_DEVICE bool see_credits() {
    bool came = false;
    for (u32 b = 0; b < bases(specialised_.moves); ++b) {
      u64 found = 0;
      if (!is_in(moves_, b)) continue;
      const Own own = move_at(b);
      if (!is_ready(own.watch, &found)) continue;
      begins(own.step);
      moves_ &= ~(1u << b);
      came = true;
    }
    return came;
  }

  THALWEG_DEVICE bool move_ready(u32 b) {
    Own own;
    u64 found = 0;
    bool ready = false;
    if (is_in(moves_, b)) {
      own = move_at(b);
      ready = is_ready(own.watch, &found);
    }
    const machine::LaneMask all = machine::lanes_with(ready);
    if (all == 0) return false;
    i64 status = 0;
    for (machine::LaneMask rest = all; rest != 0; rest &= rest - 1) {
      const u32 lane = machine::lowest(rest);
      const auto* const recv_buffers =
          reinterpret_cast<const RecvBuffer*>(machine::from_lane(reinterpret_cast<u64>(own.words.recv_buffers), lane));
      const i64 one = move(steps_.step(machine::from_lane(own.step, lane)), recv_buffers, machine::from_lane(found, lane));
      if (lane == machine::lane()) status = one;
    }
    machine::sync_lanes();  // all that the warp has stored comes before what a lane publishes
    if (!ready) return true;
    finish(number_of_move(b), own, status);
    moves_ &= ~(1u << b);
    return true;
  }

  /// The warp's share. The status of a send.
  THALWEG_DEVICE i64 move(const Step& step, const RecvBuffer* recv_buffers, u64 credit) const {
    if (step.kind == StepKind::signal) return 0;
    const Side* to = &step.to;
    Sending sending{};
    if (step.kind == StepKind::send) {
      sending = begin_send(m_, recv_buffers, 0, credit, step.bytes);
      to = &sending.to;
      if (!fits_receive(step, sending.capacity)) return kTruncated;
    }
    mover_.move(m_, step, *to, share_);
    return 0;
  }

  /// By the lane whose step it is.
  THALWEG_DEVICE void finish(u32 k, const Own& own, i64 status) {
    const Step& step = steps_.step(own.step);
    if (!is_last(k, own.step, step)) return;
    if (step.kind == StepKind::send) {
      write_flag<Publish::released>(m_, static_cast<const SendEnd*>(step.end), own.watch.value, status);
      if (status != 0) note(status, own.step, own.watch.value, step.bytes);
    } else if (step.signal.word == nullptr) {
      m_.fence();  // ahead of the run's end
    } else {
      give_released(m_, step.signal, run_);
    }
  }
  /// First of its block, so that one fence is for all of its warps: those of one multiprocessor wait for each other.
  THALWEG_DEVICE bool is_last(u32 k, u32 number, const Step& step) const {
    const u32 near = share_.sharers_in_block(step), blocks = share_.blocks(step);
    if (near != 1 && mover_.arrive(k) + 1 != near) return false;
    if (blocks == 1) return true;
    u32* const word = reinterpret_cast<u32*>(shared_word(program_.state, number));
    return m_.arrive(word) + 1 == static_cast<u32>(run_ + 1) * blocks;
  }

  /// True: the run has failed.
  THALWEG_DEVICE bool none_ready(bool moved) {
    in_vain_ = moved ? 0 : in_vain_ + 1;
    if (moved) since_ = 0;
    if (moved || in_vain_ % kPollsPerClock != 0) return false;
    i64 code = 0;
    if (machine::lane() == 0) code = first_ ? asked() : abort_flag_set(m_, program_.guard) ? kAlreadyAborted : 0;
    code = machine::from_lane(code, 0);
    failed_ = code != 0;
    if (code != kAlreadyAborted) in_vain_code_ = code;
    return failed_;
  }
  THALWEG_DEVICE i64 asked() {
    const TimeoutCheck timeout = ask_timeout(m_, program_.guard, since_, in_vain_ / kPollsPerClock - 1);
    since_ = timeout.since;
    return timeout.code;
  }

  /// Told behind the passes, in one place: a call within them would keep the run's state in memory.
  THALWEG_DEVICE void note(i64 code, u32 what, u64 expected, u64 found) {
    failed_ = true;
    code_ = code;
    what_ = what;
    expected_ = expected;
    found_ = found;
  }
  /// By the first warp: the first step that waits.
  THALWEG_DEVICE void blame() {
    u32 named = ~0u;
    for (u32 i = machine::lane(); i < program_.step_count && named == ~0u; i += machine::kLanes)
      if (note_if_it_waits(i)) named = i;
    const u32 mine = named;
    for (machine::LaneMask rest = machine::lanes_with(mine != ~0u); rest != 0; rest &= rest - 1) {
      const u32 one = machine::from_lane(mine, machine::lowest(rest));
      if (one < named) named = one;
    }
    if (named != mine) code_ = 0;
    if (named == ~0u && machine::lane() == 0) note(in_vain_code_, program_.step_count, 0, 0);  // all have come by now
  }
  THALWEG_DEVICE bool note_if_it_waits(u32 number) {
    const Step& step = steps_.step(number);
    Watch waits{};
    if (step.kind == StepKind::send) waits = watch(words_of_move(step));
    if (step.kind == StepKind::take || step.kind == StepKind::wait) waits = watch_poll(step, words_of_poll(step));
    if (waits.word == nullptr) return false;
    const u64 found = m_.load(waits.word);
    if (waits.reached(found)) return false;
    note(in_vain_code_, number, waits.expected(), waits.shown(found));
    return true;
  }

  /// By the last block: who was the last sharer of each is known no more.
  THALWEG_DEVICE void end_moves() const {
    if (program_.times == nullptr) return;
    for (u32 i = machine::lane(); i < program_.step_count; i += machine::kLanes) {
      const StepKind kind = steps_.step(i).kind;
      if (kind == StepKind::send || kind == StepKind::copy || kind == StepKind::signal) ends(i);
    }
  }
  THALWEG_DEVICE void begins(u32 step) const {
    if (program_.times != nullptr) note_begin(m_, program_.times, program_.kept_runs, program_.step_count, run_, step);
  }
  THALWEG_DEVICE void ends(u32 step) const {
    if (program_.times != nullptr) note_end(m_, program_.times, program_.kept_runs, program_.step_count, run_, step);
  }
  THALWEG_DEVICE void at_once(u32 step) const {
    begins(step);
    ends(step);
  }

  const M m_;
  const Steps& steps_;
  const Mover& mover_;
  const Program& program_;
  const Specialised& specialised_;
  const ItemShare share_;
  const bool first_;
  u64 run_ = 0;
  u32 moves_ = 0, polls_ = 0, posts_ = 0;  // of this lane, not done
  Own move_, poll_, post_;                 // kKept: this lane's
  bool failed_ = false;
  u32 in_vain_ = 0;                  // passes
  u64 since_ = 0;                    // of the first lane
  i64 in_vain_code_ = 0, code_ = 0;  // why it has failed: a wait in vain; this lane's step
  u32 what_ = 0;
  u64 expected_ = 0, found_ = 0;
};

}  // namespace thalweg::device
