// SPDX-License-Identifier: Apache-2.0
// Programs in the caller's thread.
#include "devices/program/host.hpp"

#include <algorithm>

namespace thalweg::impl {
namespace {

/// For a word that a peer writes.
bool waits_itself(const device::Step& step) {
  using device::StepKind;
  return step.kind == StepKind::send || step.kind == StepKind::post || step.kind == StepKind::take ||
         step.kind == StepKind::wait;
}

}  // namespace

HostProgram::HostProgram(const ProgramRun& program)
    : steps_{program.steps.data(), program.after.data(), std::vector<uint8_t>(program.steps.size())},
      program_(program_of(program)),
      carrier_(program.carrier),
      carried_only_(carrier_ != nullptr && std::none_of(program.steps.begin(), program.steps.end(), waits_itself)) {
  if (carrier_ != nullptr && program.times == 0 && CarriedList::holds(program.steps)) carried_.emplace(program_);
}

bool HostProgram::begin() {
  if (carried_) return carried_->begin();
  std::fill(steps_.done.begin(), steps_.done.end(), uint8_t{0});
  executor_.emplace(device::DirectMachine(), OneThread(steps_), program_, 1, 0, 0);
  return executor_->begin();
}

bool HostProgram::pass() { return carried_ ? carried_->pass() : executor_->pass(); }

Status HostProgram::start() {
  if (runs_) return fail(TW_ERR_BUSY, "the plan's last run is not over; test or finish it first");
  runs_ = begin();
  idle_ = 0;
  asks_.reset();
  return TW_OK;
}

/// A program counts polls, as each of them is cheaper than a clock. A caller that comes seldom would wait for many times its limit.
Status HostProgram::idle() {
  if (!asks_) {
    asks_.emplace(kMillisecond);
  } else if (asks_->passed()) [[unlikely]] {
    carried_ ? carried_->ask_next() : executor_->ask_next();
    idle_ = 0;
    asks_.emplace(kMillisecond);
  }
  return TW_IN_PROGRESS;
}

Status HostProgram::advance() {
  constexpr unsigned kMostRounds = 4;  // an operation that ends lets the next steps begin; but this waits for nothing
  constexpr unsigned kIdle = 8;  // the steps are polled at least so often, for what another thread carries, and for their time
  for (unsigned round = 0; runs_; ++round) {
    if (idle_ % kIdle == 0) runs_ = !pass();
    if (!runs_) break;
    if (carrier_ == nullptr || round == kMostRounds) return idle();
    const bool carried = carrier_->drive();
    idle_ = carried || !carried_only_ ? 0 : idle_ + 1;
    if (!carried) return idle();
  }
  return TW_OK;
}

}  // namespace thalweg::impl
