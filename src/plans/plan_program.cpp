// SPDX-License-Identifier: Apache-2.0
// From resolved steps to the executor's program.
#include "plans/plan_program.hpp"

#include "devices/program/ownership.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;
using device::StepKind;

namespace {

device::Signal signal_of(const PlanStep& step, uint64_t word) {
  return {reinterpret_cast<device::u64*>(word), step.op.signal_value, step.increment,
          step.op.signal_op == TW_SIGNAL_ADD ? 1u : 0u};
}

device::Step transfer(StepKind kind, const PlanStep& step, const Resolved& how) {
  device::Step made{};
  made.kind = kind;
  made.bytes = step.op.length;
  made.from = how.from;
  made.to = how.to;
  if (step.op.signal != nullptr) made.signal = signal_of(step, how.signal.address());
  return made;
}

/// The doorbell of a proxied operation, with this run's buffer and value: another launch of the plan may have others. Then its end.
void lower_proxied(const PlanStep& step, const Proxied& how, std::vector<device::Step>* out) {
  const auto word = [](uint64_t* at) { return reinterpret_cast<device::u64*>(at); };
  device::Step ring{}, await{};
  ring.kind = StepKind::ring;
  ring.word = word(how.ring);
  if (step.op.signal != nullptr) ring.signal = {word(how.value), step.op.signal_value, step.increment, 0};
  if (step.op.verb == Verb::atomic) ring.signal = {word(how.value), step.op.operand, 0, 0};
  if (step.moves_to_peer() || step.moves_here()) {
    ring.result = word(how.address);
    ring.operand = step.address();
  }
  await.kind = StepKind::await;
  await.word = word(how.done);
  out->push_back(ring);
  out->push_back(await);
}

/// One or two steps: the last one ends the user's.
void lower(const PlanStep& step, const Resolved& how, std::vector<device::Step>* out) {
  if (how.proxied) return lower_proxied(step, *how.step, out);
  device::Step made{};
  switch (step.op.verb) {
    case Verb::recv:
      made.kind = StepKind::post;
      made.end = reinterpret_cast<void*>(how.channel->words());
      made.recv_buffer = static_cast<uint32_t>(how.recv_buffer);
      out->push_back(made);
      made.kind = StepKind::take;
      break;
    case Verb::send:
      made = transfer(StepKind::send, step, how);
      made.end = reinterpret_cast<void*>(how.channel->words());
      break;
    case Verb::signal:
      made.kind = StepKind::signal;
      made.signal = signal_of(step, how.signal.address());
      break;
    case Verb::wait:
      made.kind = StepKind::wait;
      made.signal = signal_of(step, reinterpret_cast<uint64_t>(step.waited->word));
      made.compare = step.op.atomic_op;
      break;
    case Verb::atomic:
      made.kind = StepKind::atomic;
      made.word = reinterpret_cast<device::u64*>(how.remote.address() + step.op.remote_offset);
      made.atomic_op = step.op.atomic_op;
      made.atomic_bytes = static_cast<uint32_t>(step.op.length);
      made.operand = step.op.operand;
      made.operand2 = step.op.compare;
      made.result = reinterpret_cast<device::u64*>(step.op.result);
      break;
    case Verb::collective:
      made.kind = StepKind::exchange;
      made.blocks = step.exchange->blocks;
      made.compare = step.exchange->what.threads;
      break;
    case Verb::reduce:
      made.kind = StepKind::reduce;
      made.bytes = step.op.length;
      made.to = how.to;
      made.word = reinterpret_cast<device::u64*>(how.source_table);
      made.compare = static_cast<uint32_t>(step.sources.size());
      made.atomic_op = step.op.atomic_op;
      made.atomic_bytes = step.op.word;
      made.operand = how.aligned;
      break;
    default:
      made = transfer(StepKind::copy, step, how);
  }
  out->push_back(made);
}

}  // namespace

/// One step's, after its predecessors' ones. last: of the program, by step of the user's.
void PlanProgram::compose_step(uint32_t i, std::vector<uint32_t>& last) {
  Resolved& how = resolved_[i];
  std::vector<device::Step> made;
  lower(list_[i], how, &made);
  how.first = static_cast<uint32_t>(steps_.size());
  std::vector<uint32_t> after;
  for (const uint32_t earlier : list_[i].after) after.push_back(last[earlier]);
  if (how.proxied && how.channel != nullptr) {  // an ordered pipe: the proxy sees one message of it at a time
    for (uint32_t j = i; j-- > 0;) {
      if (resolved_[j].channel != how.channel) continue;
      after.push_back(last[j]);
      break;
    }
  }
  for (size_t k = 0; k < made.size(); ++k) {
    if (k != 0) after = {static_cast<uint32_t>(steps_.size() - 1)};
    made[k].first_after = static_cast<uint32_t>(after_.size());
    made[k].after_count = static_cast<uint32_t>(after.size());
    after_.insert(after_.end(), after.begin(), after.end());
    steps_.push_back(made[k]);
    owner_.push_back(i);
  }
  last[i] = static_cast<uint32_t>(steps_.size() - 1);
}

Status PlanProgram::compose() {
  steps_.clear();
  after_.clear();
  owner_.clear();
  std::vector<uint32_t> last(list_.size());
  for (uint32_t i = 0; i < list_.size(); ++i) compose_step(i, last);
  ahead_ = waits_ahead(list_, resolved_, *executor_);
  return arrange(steps_, after_, blocks_, &shape_);
}

/// The executor's copy of a program that is too long for a launch's parameters.
Status PlanProgram::place() {
  if (fits_inline(steps_.size(), after_.size())) return TW_OK;
  std::vector<std::byte> bytes(placed_bytes(steps_, after_, shape_));
  thalweg::impl::place(steps_, after_, shape_, bytes.data());
  if (placed_ == 0) {
    placed_length_ = bytes.size();
    if (Status s = executor_->own().allocate(placed_length_, &placed_); is_error(s)) return s;
  }
  return executor_->store(placed_, bytes.data(), bytes.size());
}

Status PlanProgram::build(Executor& executor) {
  executor_ = &executor;
  if (Status s = compose(); is_error(s)) return s;
  state_length_ = state_bytes(steps_.size());
  if (Status s = executor_->own().allocate(state_length_, &state_); is_error(s)) return s;
  return place();
}

OwnerWords PlanProgram::owner_words() const {
  auto* const words =
      device::owner_words(reinterpret_cast<device::ProgramState*>(state_), static_cast<uint32_t>(steps_.size()));
  return {reinterpret_cast<uint64_t>(words), executor_->device() != nullptr ? shape_.blocks : 1};
}

ProgramRun PlanProgram::run() const {
  ProgramRun run;
  run.steps = steps_;
  run.after = after_;
  run.placed = placed_;
  run.state = state_;
  run.shape = shape_;
  if (const ExchangeStep* const exchange = list_[0].exchange.get(); exchange != nullptr) {
    run.exchange = &exchange->what;
    if (exchange->counted()) run.counts = &exchange->counts;
  }
  return run;
}

void PlanProgram::set_value(uint32_t index, uint64_t value) {
  PlanStep& step = list_[index];
  step.op.signal_value = value;
  if (step.op.signal != nullptr || step.op.verb == Verb::wait) steps_[resolved_[index].first].signal.value = value;
}

void PlanProgram::release() {
  if (executor_ != nullptr) {
    executor_->own().free(state_, state_length_);
    executor_->own().free(placed_, placed_length_);
  }
  state_ = placed_ = 0;
  steps_.clear();
  after_.clear();
  owner_.clear();
}
