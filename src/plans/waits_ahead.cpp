// SPDX-License-Identifier: Apache-2.0
// Which waits of a plan may be waited for before any of its steps is begun.
//
// A step's needs: the credits and flags without which it cannot end. What is needed by every step whose effect is seen outside
// of the plan may be waited for first; anything more could lock up two plans that each need the other's first step. Credits of
// receives that come after nothing are seen outside too, but the kernel ahead gives them itself.
#include "plans/waits_ahead.hpp"

#include <algorithm>
#include <utility>

#include "devices/program/wait_ahead.hpp"
#include "devices/queue.hpp"
#include "plans/plan_program.hpp"

namespace thalweg::impl {
namespace {

static_assert(WaitsAhead::kMostSteps == device::kMostAhead);

bool comes_first(const PlanStep& step) { return step.op.verb == Verb::recv && step.after.empty(); }

bool can_be_awaited(const PlanStep& step, const Resolved& how) {
  return !how.proxied && (comes_first(step) || step.op.verb == Verb::send);
}

}  // namespace

WaitsAhead waits_ahead(const PlanList& list, const ResolvedSteps& resolved, const Executor& executor) {
  const size_t count = list.size();
  WaitsAhead out;
  if (count > WaitsAhead::kMostSteps || executor.device() == nullptr) return out;
  std::vector<uint64_t> needs(count);
  uint64_t all = 0, common = ~uint64_t{0};
  for (uint32_t i = 0; i < count; ++i) {
    const PlanStep& step = list[i];
    const Resolved& how = resolved[i];
    for (const uint32_t earlier : step.after) needs[i] |= needs[earlier];
    const bool awaited = can_be_awaited(step, how), posts = comes_first(step) && !how.proxied;
    for (uint32_t j = 0; awaited && j <= i; ++j) {  // a channel's messages come in their order
      if (resolved[j].channel == how.channel && can_be_awaited(list[j], resolved[j])) needs[i] |= 1ull << j;
    }
    all |= needs[i];
    if (!posts && step.op.verb != Verb::wait) common &= needs[i];
    if (posts) out.posts.push_back(i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if ((all & common) >> i & 1) out.waits.push_back(i);
  }
  return out;
}

}  // namespace thalweg::impl

using namespace thalweg::impl;
namespace device = thalweg::device;

/// A kernel that waits holds at most as many multiprocessors as it has blocks. Where peers' kernels run there, too, each holds its part.
bool PlanProgram::holds_many() const {
  const uint32_t blocks = parts_[0].shape.blocks;
  return blocks * kHeldPart > executor_->multiprocessors() || (shares_device_ && blocks > 1 && blocks == most_);
}

Status PlanProgram::wait_ahead(Queue& on, const device::Guard& guard) const {
  device::WaitAhead list{};
  list.state = reinterpret_cast<device::ProgramState*>(state_);
  list.guard = guard;
  const std::vector<device::Step>& steps = parts_[0].steps;
  list.step_count = static_cast<uint32_t>(steps.size());
  list.blocks = parts_[0].shape.blocks;
  const auto add = [&](uint32_t step, bool post, device::AheadStep* out) {
    uint32_t at = resolved_[step].first;
    if (!post && steps[at].kind == device::StepKind::post) ++at;  // the take of a receive
    const device::Step& its = steps[at];
    *out = {its.end, its.kind, at, static_cast<uint32_t>(its.operand), its.recv_buffer};
  };
  for (const uint32_t step : ahead_.posts) add(step, true, &list.post[list.posts++]);
  for (const uint32_t step : ahead_.waits) add(step, false, &list.wait[list.waits++]);
  return on.launch(WaitAheadKernel{&list});
}

std::string PlanProgram::explain_parts() const {
  std::string text = "  programs: one after the other, which wait in their kernels; of steps";
  for (const Part& part : parts_) {
    uint32_t said = UINT32_MAX;
    for (const uint32_t step : part.owner) {
      if (step != std::exchange(said, step)) text.append(" ").append(std::to_string(step));
    }
    text += &part != &parts_.back() ? ";" : "\n";
  }
  return text;
}

std::string PlanProgram::explain_blocks() const {
  const auto is_limited = [&](const Part& part) { return part.exchange == nullptr && part.shape.blocks == most_; };
  if (most_ == kMostBlocks || std::none_of(parts_.begin(), parts_.end(), is_limited)) return "";
  return "  blocks of threads: " + std::to_string(most_) + ", the most of " + std::to_string(executor_->multiprocessors()) +
         " multiprocessors" + (shares_device_ ? ", which kernels of peers use, too\n" : "\n");
}

std::string PlanProgram::explain_waits(bool last_run_waited) const {
  if (executor_->device() == nullptr) return "";
  return explain_blocks() + (parts_.size() != 1 ? explain_parts() : explain_ahead(last_run_waited));
}

std::string PlanProgram::explain_ahead(bool last_run_waited) const {
  const auto waits = [](const PlanStep& step) {
    return step.op.verb == Verb::send || step.op.verb == Verb::recv || step.op.verb == Verb::wait;
  };
  if (std::none_of(list_.begin(), list_.end(), waits)) return "";
  if (ahead_.waits.empty()) return "  waits: in the kernel; there is no peer that all of the run needs\n";
  std::string text = "  waits: by a kernel of one block ahead of the program's, for step";
  for (const uint32_t step : ahead_.waits) text += " " + std::to_string(step);
  const bool many = holds_many();
  text += many ? ", by TW_WAITS_AUTO too (" : "; by TW_WAITS_AUTO in the program's kernel (";
  text +=
      std::to_string(parts_[0].shape.blocks) + " blocks, " + std::to_string(executor_->multiprocessors()) + " multiprocessors)";
  return text + (last_run_waited ? "; so did the last run\n" : "\n");
}
