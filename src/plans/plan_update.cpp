// SPDX-License-Identifier: Apache-2.0
// Changing addresses and values of a prepared plan.
#include "core/c_checks.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;

/// In the steps that go with every launch; the caller places a program that is read from memory.
void tw_plan::set_value(uint32_t index, uint64_t value) {
  steps[index].value = value;
  for (uint32_t i = resolved[index].first; i < owner.size() && owner[i] == index; ++i) program[i].signal.value = value;
}

Status tw_plan::update(uint32_t index, const void* address, const uint64_t* value) {
  if (!prepared || index >= steps.size()) return fail(TW_ERR_INVALID, "there is no step %u in a plan that is prepared", index);
  if (Status s = at_rest(); is_error(s)) return s;
  PlanStep& step = steps[index];
  const bool has_value = step.signal != nullptr || step.verb == StepVerb::wait || step.verb == StepVerb::atomic;
  if (value != nullptr && !has_value) return fail(TW_ERR_INVALID, "step %u (%s) has no value", index, name_of(step.verb));
  if (value != nullptr) (step.verb == StepVerb::atomic ? step.operand : step.value) = *value;
  if (address != nullptr) {
    if (Status s = move_step(index, reinterpret_cast<uint64_t>(address)); is_error(s)) return s;
  }
  if (Status s = compose(); is_error(s)) return s;
  host_run.reset();
  return place_program();
}

/// The same layout around another address. Offsets of layouts that are contiguous are in the old address already.
Status tw_plan::move_step(uint32_t index, uint64_t address) {
  PlanStep& step = steps[index];
  Resolved& how = resolved[index];
  if (step.verb == StepVerb::signal || step.verb == StepVerb::wait || step.verb == StepVerb::atomic)
    return fail(TW_ERR_INVALID, "step %u (%s) has no buffer", index, name_of(step.verb));
  if (step.length == 0) return TW_OK;  // nothing is read or written there
  const uint64_t before = step.address;
  step.address = address + step.start;
  if (how.proxied) return TW_OK;  // the agent reads it at the next run
  const int64_t first = step.layout != nullptr ? step.layout->first : 0;
  const int64_t last = step.layout != nullptr ? step.layout->last : static_cast<int64_t>(step.length);
  Status status = executor->admit(step.address + static_cast<uint64_t>(first), static_cast<uint64_t>(last - first));
  if (!is_error(status)) {
    if (step.verb == StepVerb::recv) {
      status = move_landing(index, step.address);
    } else {
      status = make_side(how, step.address, step.layout, step.length, step.verb == StepVerb::get ? &how.to : &how.from);
    }
  }
  if (is_error(status)) step.address = before;
  return status;
}

Status tw_plan::move_landing(uint32_t index, uint64_t address) {
  Resolved& how = resolved[index];
  const int before = how.landing;
  uint16_t made = 0;
  {
    const std::lock_guard lock(agent.mutex());
    if (Status s = how.channel->offer(address, steps[index].layout, steps[index].length, &made); is_error(s)) return s;
    how.landing = made;
  }
  agent.hurry();
  const Status status = await_landing(index, Deadline(10 * kSecond));
  if (is_error(status)) how.landing = before;
  agent.take_back({{how.channel, is_error(status) ? made : static_cast<uint16_t>(before)}});
  return status;
}
