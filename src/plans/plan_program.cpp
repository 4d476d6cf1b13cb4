// SPDX-License-Identifier: Apache-2.0
// From resolved steps to the executor's program.
#include "plans/plan_program.hpp"

#include "devices/program/ownership.hpp"

#include <algorithm>

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

/// Between the buffer and its bounce buffer; of nothing where this version's buffer is not bounced, as all have the same steps.
device::Step bounce_copy(const PlanStep& step, const Resolved& how) {
  device::Step made{};
  made.kind = StepKind::copy;
  made.bytes = how.bounced ? step.op.length : 0;
  made.from = how.from;
  made.to = how.to;
  return made;
}

/// The doorbell of a proxied operation, with this run's buffer and value: another launch of the plan may have others. Then its end.
/// A bounced one's bytes are copied before that, or behind it: of a message, as many as came.
void lower_proxied(const PlanStep& step, const Resolved& resolved, const Proxied& how, uint64_t offset,
                   std::vector<device::Step>* out) {
  const auto word = [](uint64_t* at) { return reinterpret_cast<device::u64*>(at); };
  device::Step ring{}, await{};
  if (resolved.bounce != 0 && step.moves_to_peer()) out->push_back(bounce_copy(step, resolved));
  ring.kind = StepKind::ring;
  ring.word = word(how.ring);
  if (step.op.signal != nullptr) ring.signal = {word(how.value), step.op.signal_value, step.increment, 0};
  if (step.op.verb == Verb::atomic) ring.signal = {word(how.value), step.op.operand, 0, 0};
  if (step.moves_to_peer() || step.moves_here()) {
    ring.result = word(how.address);
    ring.operand = resolved.bounced ? resolved.bounce : step.address() + offset;
  }
  await.kind = StepKind::await;
  await.word = word(how.done);
  await.result = reinterpret_cast<device::u64*>(resolved.received);
  out->push_back(ring);
  out->push_back(await);
  if (resolved.bounce == 0 || !step.moves_here()) return;
  out->push_back(bounce_copy(step, resolved));
  out->back().word = await.result;
}

/// One or two steps: the last one ends the user's.
void lower(const PlanStep& step, const Resolved& how, std::vector<device::Step>* out) {
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
      made.compare = step.exact() ? 1 : 0;
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

/// A piece of a step that is cut, by the executor: contiguous on all sides.
device::Step lower_piece(const PlanStep& step, const Resolved& how, uint32_t piece, PlanPieces::Range range) {
  std::vector<device::Step> made;
  lower(step, how, &made);
  device::Step& only = made[0];
  only.bytes = range.length;
  only.from.base += range.offset;
  only.to.base += range.offset;
  only.signal = {};
  if (step.op.verb != Verb::reduce) return only;
  only.word += piece * step.sources.size();
  only.operand = how.aligned && range.offset % 16 == 0 ? 1 : 0;
  return only;
}

/// What stands behind the pieces.
device::Step lower_signal(const PlanStep& step, const Resolved& how) {
  device::Step made{};
  made.kind = StepKind::signal;
  made.signal = signal_of(step, how.signal.address());
  return made;
}

std::vector<device::Step> lower_unit(const Unit& unit, const PlanStep& step, const Resolved& how, const PlanPieces& pieces) {
  std::vector<device::Step> made;
  const PlanPieces::Range range = pieces.range(unit.step, unit.piece);
  if (how.proxied) {
    lower_proxied(step, how, *how.steps[unit.piece], range.offset, &made);
  } else if (unit.signals) {
    made.push_back(lower_signal(step, how));
  } else if (pieces.cut(unit.step)) {
    made.push_back(lower_piece(step, how, unit.piece, range));
  } else {
    lower(step, how, &made);
  }
  return made;
}

}  // namespace

/// After its predecessors of the same part. last: by unit, the number in its part of the step that ends it.
void PlanProgram::compose_unit(const std::vector<Unit>& units, uint32_t number, std::vector<uint32_t>& last) {
  const Unit& unit = units[number];
  const uint32_t i = unit.step;
  Part* const part = &parts_[part_of_[i]];
  std::vector<device::Step> made = lower_unit(unit, list_[i], resolved_[i], pieces_);
  if (unit.shares != Unit::kNone) made[0].recv_buffer = last[unit.shares] + 1;
  resolved_[i].first = static_cast<uint32_t>(part->steps.size());  // of what is cut, the last: it has the signal
  if (resolved_[i].proxied && made[0].kind == StepKind::copy) ++resolved_[i].first;  // its doorbell
  std::vector<uint32_t> after;
  for (const Unit::After& earlier : unit.after) {
    if (part_of_[units[earlier.unit].step] != part_of_[i]) continue;
    after.push_back(last[earlier.unit] | (earlier.own ? device::kOwnShare : 0));
  }
  for (size_t k = 0; k < made.size(); ++k) {
    if (k != 0) after = {static_cast<uint32_t>(part->steps.size() - 1)};
    made[k].first_after = static_cast<uint32_t>(part->after.size());
    made[k].after_count = static_cast<uint32_t>(after.size());
    part->after.insert(part->after.end(), after.begin(), after.end());
    part->steps.push_back(made[k]);
    part->owner.push_back(i);
  }
  last[number] = static_cast<uint32_t>(part->steps.size() - 1);
}

Status PlanProgram::part() { return part_plan(list_, &part_of_, &part_count_); }

Status PlanProgram::compose() {
  parts_.clear();
  parts_.resize(part_count_);
  const std::vector<Unit> units = units_of(list_, resolved_, pieces_);
  std::vector<uint32_t> last(units.size());
  for (uint32_t i = 0; i < units.size(); ++i) {
    compose_unit(units, i, last);
    parts_[part_of_[units[i].step]].exchange = list_[units[i].step].exchange.get();
  }
  ahead_ = part_count_ == 1 ? waits_ahead(list_, resolved_, *executor_) : WaitsAhead{};
  state_length_ = 0;
  for (Part& part : parts_) {
    part.state = state_length_;
    state_length_ += (state_bytes(part.steps.size()) + 127) / 128 * 128;
    if (Status s = arrange(part.steps, part.after, blocks_, most_, &part.shape); is_error(s)) return s;
  }
  return TW_OK;
}

/// The executor's copy of programs that are too long for a launch's parameters.
Status PlanProgram::place() {
  std::vector<std::byte> bytes;
  for (Part& part : parts_) {
    if (part.fits()) continue;
    part.placed = bytes.size();
    bytes.resize((bytes.size() + placed_bytes(part.steps, part.after, part.shape) + 127) / 128 * 128);
    thalweg::impl::place(part.steps, part.after, part.shape, bytes.data() + part.placed);
  }
  if (bytes.empty()) return TW_OK;
  if (bytes.size() > placed_length_) {  // an update has made steps wait for more than before
    executor_->own().free(placed_, placed_length_);
    placed_ = 0;
  }
  if (placed_ == 0) {
    placed_length_ = bytes.size();
    if (Status s = executor_->own().allocate(placed_length_, &placed_); is_error(s)) return s;
  }
  return executor_->store(placed_, bytes.data(), bytes.size());
}

/// As far as is known of the memory of those peers that the steps reach.
bool PlanProgram::peers_share_device() const {
  if (executor_->device() == nullptr) return false;
  const Uuid& here = executor_->device()->uuid();
  const auto lies_here = [&](const Reached& one) {
    return one.how.facts.place.on_device() && one.how.facts.place.device == here;
  };
  return std::any_of(resolved_.begin(), resolved_.end(), [&](const Resolved& one) {
    return lies_here(one.remote) || lies_here(one.signal) || std::any_of(one.sources.begin(), one.sources.end(), lies_here) ||
           (one.channel != nullptr && lies_here(one.channel->their_words()));
  });
}

Status PlanProgram::build(Executor& executor) {
  executor_ = &executor;
  shares_device_ = peers_share_device();
  most_ = most_blocks(executor.multiprocessors(), shares_device_);
  if (Status s = compose(); is_error(s)) return s;
  if (Status s = executor_->own().allocate(state_length_, &state_); is_error(s)) return s;
  return place();
}

std::vector<OwnerWords> PlanProgram::owner_words() const {
  std::vector<OwnerWords> all;
  for (const Part& part : parts_) {
    const uint64_t state = state_ + part.state;
    auto* const words =
        device::owner_words(reinterpret_cast<device::ProgramState*>(state), static_cast<uint32_t>(part.steps.size()));
    const uint32_t blocks = executor_->device() != nullptr ? part.shape.blocks : 1;
    all.push_back({state, reinterpret_cast<uint64_t>(words), blocks, part.exchange == nullptr ? blocks : 0});
  }
  return all;
}

ProgramRun PlanProgram::run(size_t index) const {
  const Part& part = parts_[index];
  ProgramRun run;
  run.steps = part.steps;
  run.after = part.after;
  run.placed = part.fits() ? 0 : placed_ + part.placed;
  run.state = state_ + part.state;
  run.shape = part.shape;
  if (part.exchange != nullptr) {
    run.exchange = &part.exchange->what;
    run.shares_device = part.exchange->shares_device;
    if (part.exchange->counted()) run.counts = &part.exchange->counts;
  }
  return run;
}

void PlanProgram::set_value(uint32_t index, uint64_t value) {
  PlanStep& step = list_[index];
  step.op.signal_value = value;
  if (parts_.empty()) return;  // what prepares it reads the list
  if (step.op.signal != nullptr || step.op.verb == Verb::wait) parts_[0].steps[resolved_[index].first].signal.value = value;
}

void PlanProgram::release() {
  if (executor_ != nullptr) {
    executor_->own().free(state_, state_length_);
    executor_->own().free(placed_, placed_length_);
  }
  state_ = placed_ = 0;
  parts_.clear();
}
