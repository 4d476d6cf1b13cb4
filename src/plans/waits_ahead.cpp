// SPDX-License-Identifier: Apache-2.0
// Which waits of a plan may be waited for before any of its steps is begun.
//
// A step's needs: the credits and flags without which it cannot end. What is needed by every step whose doing is seen outside
// of the plan may be waited for first; anything more could lock up two plans that each need the other's first step. Credits of
// receives that come after nothing are doings, too, but the row gives them itself.
#include <algorithm>
#include <thread>

#include "plans/queue.hpp"

namespace thalweg::impl {
namespace {

bool comes_first(const PlanStep& step) { return step.op.verb == Verb::recv && step.after.empty(); }

/// A row that is released signals a failure by a room that is too small, which an empty send cannot have.
bool can_be_awaited(const PlanStep& step, const Resolved& how) {
  return !how.proxied && (comes_first(step) || (step.op.verb == Verb::send && step.op.length != 0));
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
    if ((all & common) >> i & 1) out.looks.push_back(i);
  }
  return out;
}

}  // namespace thalweg::impl

using namespace thalweg::impl;

uint64_t PlanRuns::message_of(uint32_t step) const {
  const Channel* const channel = resolved_[step].channel;
  uint64_t number = channel->messages.load(std::memory_order_relaxed);
  for (uint32_t j = 0; j < step; ++j) number += resolved_[j].channel == channel;
  return number;
}

/// The caller holds the order of the channels' queue.
void PlanRuns::count_messages(bool known) {
  for (const Resolved& one : resolved_) {
    if (one.channel == nullptr) continue;
    one.channel->messages.fetch_add(1, std::memory_order_relaxed);
    if (!known) one.channel->counted.store(false, std::memory_order_relaxed);
  }
}

/// A kernel that waits holds at most as many multiprocessors as it has blocks.
bool PlanRuns::holds_many() const { return program_.shape().blocks * kHeldPart > executor_->multiprocessors(); }

bool PlanRuns::waits_by_memory(const tw_queue& queue) const {
  if (queue.rows == nullptr || ahead_.looks.empty()) return false;
  if (queue.waits == TW_WAITS_AUTO && !holds_many()) return false;
  for (const Resolved& one : resolved_) {
    if (one.channel != nullptr && !one.channel->counted.load(std::memory_order_relaxed)) return false;
  }
  return true;
}

std::string PlanRuns::explain_waits() const {
  if (executor_->device() == nullptr) return "";
  const auto waits = [](const PlanStep& step) {
    return step.op.verb == Verb::send || step.op.verb == Verb::recv || step.op.verb == Verb::wait;
  };
  if (std::none_of(list_.begin(), list_.end(), waits)) return "";
  if (ahead_.looks.empty()) return "  waits: in the kernel; there is no peer that all of the run needs\n";
  std::string text = "  waits: by memory operations ahead of the kernel, for step";
  for (const uint32_t step : ahead_.looks) text += " " + std::to_string(step);
  const bool many = holds_many();
  text += many ? ", by TW_WAITS_AUTO too (" : "; by TW_WAITS_AUTO in the kernel (";
  text += std::to_string(program_.shape().blocks) + " blocks, " + std::to_string(executor_->multiprocessors()) +
          " multiprocessors)";
  return text + (waited_ahead_ ? "; so did the last run\n" : "\n");
}

/// Queues get through what is left of a run that failed; of others they are in the middle.
Status PlanRuns::await_rows() {
  const Deadline patience(kSecond);
  while (rows_.load() != 0) {
    proxy_.look_through_rows();
    if (rows_.load() == 0) break;
    if ((!failure_.recorded() && __atomic_load_n(failure_.abort_word(), __ATOMIC_ACQUIRE) == 0) || patience.passed())
      return fail(TW_ERR_BUSY, "a queue waits for what the plan's next run needs");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return TW_OK;
}
