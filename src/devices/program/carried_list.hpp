// SPDX-License-Identifier: Apache-2.0
// A host's program that its carrier carries whole: pairs of a doorbell and the wait for its end. It writes the words that a
// ProgramExecutor would, and needs less: no step moves bytes or is another block's, and an end is polled only behind its doorbell.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "devices/program/ownership.hpp"
#include "devices/program/timeout.hpp"

namespace thalweg::impl {

class CarriedList {
 public:
  /// Is the program such pairs, and nothing else?
  static bool holds(std::span<const device::Step> steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != (i % 2 == 0 ? device::StepKind::ring : device::StepKind::await)) return false;
    }
    return steps.size() % 2 == 0;
  }
  /// What the program names stays.
  explicit CarriedList(const device::Program& program) : program_(program), pairs_(program.step_count / 2, At::waits) {}

  /// False: there is nothing to do.
  bool begin() {
    run_ = device::own_block(m_, program_.guard, program_.state, program_.step_count, 1, 0);
    if (run_ == device::kRefused) {
      device::count_in_vain(m_, program_.state, program_.step_count, 1);
      return false;
    }
    std::fill(pairs_.begin(), pairs_.end(), At::waits);
    open_ = pairs_.size();
    rest();
    return true;
  }
  /// Once over all that is open. True: the run is over.
  bool pass() {
    bool moved = false;
    for (uint32_t pair = 0; pair < pairs_.size(); ++pair) moved |= advance(pair);
    if (open_ == 0) return leave(false);
    if (moved) {
      rest();
      return false;
    }
    return times_out() && leave(true);
  }
  /// The next pass in vain asks for the time and the abort word.
  void ask_next() { polls_ = device::kPollsPerClock * device::kClocksPerAbort - 1; }

 private:
  enum class At : uint8_t { waits, rung, done };

  const device::Step& doorbell(uint32_t pair) const { return program_.steps[2 * pair]; }
  uint64_t found(uint32_t pair) const { return m_.acquire(program_.steps[2 * pair + 1].word); }
  /// Its `after` are ends of earlier pairs.
  bool may_ring(uint32_t pair) const {
    const device::Step& step = doorbell(pair);
    for (uint32_t k = 0; k < step.after_count; ++k) {
      if (pairs_[(program_.after[step.first_after + k] & ~device::kOwnShare) / 2] != At::done) return false;
    }
    return true;
  }
  bool advance(uint32_t pair) {
    if (pairs_[pair] == At::done) return false;
    if (pairs_[pair] == At::waits) {
      if (!may_ring(pair)) return false;
      device::tell_carrier(m_, doorbell(pair), run_);
      device::ring_doorbell(m_, doorbell(pair), run_);  // the host's stores are in order
      pairs_[pair] = At::rung;
      return true;
    }
    if (found(pair) < run_ + 1) return false;
    pairs_[pair] = At::done;
    --open_;
    return true;
  }

  void rest() {
    polls_ = 0;
    since_ = 0;
  }
  bool times_out() {
    if (++polls_ % device::kPollsPerClock != 0) return false;
    const device::TimeoutCheck check = device::check_timeout(m_, program_.guard, since_, polls_ / device::kPollsPerClock - 1);
    since_ = check.since;
    if (check.code != 0 && check.code != device::kAlreadyAborted) blame(check.code);
    return check.code != 0;
  }
  /// Names the first one that waits.
  void blame(int64_t code) {
    const auto first = static_cast<uint32_t>(std::find(pairs_.begin(), pairs_.end(), At::rung) - pairs_.begin());
    device::fail(m_, program_.guard, code, 2 * first + 1, run_ + 1, found(first));
  }
  bool leave(bool failed) {
    device::end_run(m_, program_.state, program_.step_count, 1, run_, failed, !failed);
    if (!failed) device::tell_over(m_, program_.over);
    return true;
  }

  const device::DirectMachine m_{};
  const device::Program program_;
  std::vector<At> pairs_;
  size_t open_ = 0;
  uint64_t run_ = 0, since_ = 0;
  uint32_t polls_ = 0;
};

}  // namespace thalweg::impl
