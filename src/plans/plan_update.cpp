// SPDX-License-Identifier: Apache-2.0
// Changing addresses and values of a prepared plan. What graphs that were captured before name stays as it is: the program that
// a long plan reads from memory, tables of layouts, receive buffers. It is given back when the plan sees that they are gone, at its next
// update; of graphs that the program has captured from a stream, when it is prepared again.
#include <algorithm>
#include <utility>

#include "core/c_checks.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

namespace {

bool in_graphs(const std::shared_ptr<Version>& one) { return one->for_good || one.use_count() > 1; }

}  // namespace

/// Of a plan of one step, in what goes along with every launch.
void tw_plan::set_value(uint32_t index, uint64_t value) {
  PlanStep& step = steps[index];
  step.op.signal_value = value;
  if (step.op.signal != nullptr || step.op.verb == Verb::wait) program[resolved[index].first].signal.value = value;
}

void tw_plan::give_back(const Outdated& left) {
  executor->own().free(left.placed.first, left.placed.second);
  executor->own().free(left.table.first, left.table.second);
  if (left.channel == nullptr) return;
  owed.emplace_back(left.channel, left.recv_buffer);
  proxy.take_back(owed);
}

Status tw_plan::update(uint32_t index, const void* address, const uint64_t* value) {
  if (!prepared || index >= steps.size()) return fail(TW_ERR_INVALID, "there is no step %u in a plan that is prepared", index);
  if (Status s = at_rest(); is_error(s)) return s;
  PlanStep& step = steps[index];
  const bool has_value = step.op.signal != nullptr || step.op.verb == Verb::wait || step.op.verb == Verb::atomic;
  if (value != nullptr && !has_value) return fail(TW_ERR_INVALID, "step %u (%s) has no value", index, name_of(step.op.verb));
  if (!owed.empty()) proxy.take_back(owed);
  std::erase_if(outdated, [this](const Outdated& one) {
    if (in_graphs(one.version)) return false;
    give_back(one);
    return true;
  });
  if (address == nullptr && value == nullptr) return given_back();
  Outdated left;
  if (address != nullptr) {
    if (Status s = move_step(index, reinterpret_cast<uint64_t>(address), &left); is_error(s)) return s;
  }
  if (value != nullptr) (step.op.verb == Verb::atomic ? step.op.operand : step.op.signal_value) = *value;
  if (in_graphs(version)) {
    left.placed = {std::exchange(placed, 0), placed_length};
    left.version = std::exchange(version, std::make_shared<Version>(runs_due));
    outdated.push_back(left);
  } else {
    give_back(left);
  }
  if (Status s = compose(); is_error(s)) return s;
  host_run.reset();
  if (Status s = place_program(); is_error(s)) return s;
  return given_back();
}

/// The same layout around another address. Offsets of layouts that are contiguous are in the old address already.
Status tw_plan::move_step(uint32_t index, uint64_t address, Outdated* left) {
  PlanStep& step = steps[index];
  Resolved& how = resolved[index];
  if (!step.moves_to_peer() && !step.moves_here() && step.op.verb != Verb::copy)
    return fail(TW_ERR_INVALID, "step %u (%s) has no buffer, or several", index, name_of(step.op.verb));
  if (step.op.length == 0) return TW_OK;  // nothing is read or written there
  std::byte* const before = step.op.address;
  step.op.address = reinterpret_cast<std::byte*>(address + step.start);
  if (how.proxied) return TW_OK;  // the program tells the proxy
  const int64_t first = step.op.layout != nullptr ? step.op.layout->first : 0;
  const int64_t last = step.op.layout != nullptr ? step.op.layout->last : static_cast<int64_t>(step.op.length);
  const Asks asks{.carriable = step.op.verb != Verb::copy};
  Reaching local;
  Status status =
      executor->admit(step.address() + static_cast<uint64_t>(first), static_cast<uint64_t>(last - first), asks, &local);
  if (!is_error(status)) status = step.op.verb == Verb::recv ? move_recv_buffer(index, left) : move_side(index, left);
  if (is_error(status)) {
    step.op.address = before;
  } else {
    how.local = std::move(local);
  }
  return status;
}

Status tw_plan::move_side(uint32_t index, Outdated* left) {
  const PlanStep& step = steps[index];
  Resolved& how = resolved[index];
  device::Side& side = step.op.verb == Verb::get ? how.to : how.from;
  const auto table = reinterpret_cast<uint64_t>(side.pieces);
  if (Status s = make_side(how, step.address(), step.op.layout, step.op.length, &side); is_error(s)) return s;
  const auto old = std::find_if(how.tables.begin(), how.tables.end(), [table](const auto& one) { return one.first == table; });
  if (old == how.tables.end()) return TW_OK;
  left->table = *old;
  how.tables.erase(old);
  return TW_OK;
}

Status tw_plan::move_recv_buffer(uint32_t index, Outdated* left) {
  Resolved& how = resolved[index];
  const int before = how.recv_buffer;
  uint16_t made = 0;
  {
    const std::lock_guard lock(proxy.mutex());
    const PlanStep& step = steps[index];
    if (Status s = how.channel->offer(step.address(), step.op.layout, step.op.length, &made); is_error(s)) return s;
    how.recv_buffer = made;
  }
  proxy.hurry();
  const Status status = await_recv_buffer(index, Deadline(10 * kSecond));
  if (is_error(status)) {
    how.recv_buffer = before;
    owed.emplace_back(how.channel, made);
    proxy.take_back(owed);
    return status;
  }
  left->channel = how.channel;
  left->recv_buffer = static_cast<uint16_t>(before);
  return TW_OK;
}
