// SPDX-License-Identifier: Apache-2.0
// Adding steps to a plan.
#include "plans/plan.hpp"

#include "core/c_checks.hpp"

namespace thalweg::impl {

const char* name_of(StepVerb verb) {
  constexpr const char* kNames[] = {"send", "recv", "put", "get", "signal", "wait", "atomic", "copy"};
  return kNames[static_cast<size_t>(verb)];
}

Status check_layout(const Layout* layout, uint64_t* length) {
  if (layout == nullptr) return TW_OK;
  if (Status s = check_named(*layout); is_error(s)) return s;
  if (*length != 0 && *length != layout->bytes) {
    return fail(TW_ERR_INVALID, "length %llu, but the layout moves %llu bytes: pass 0 or the same",
                static_cast<unsigned long long>(*length), static_cast<unsigned long long>(layout->bytes));
  }
  *length = layout->bytes;
  return TW_OK;
}

namespace {

/// May be the last user of a region whose endpoint is still there.
void drop(RemoteRegion* region) {
  if (region == nullptr) return;
  if (region->peer == nullptr) return release_region(region);
  const Engine::Guard guard(*region->peer->engine);
  release_region(region);
}

bool writes_local(StepVerb verb) { return verb == StepVerb::recv || verb == StepVerb::get; }

}  // namespace
}  // namespace thalweg::impl

using namespace thalweg::impl;

Status tw_plan::add(PlanStep&& step, const tw_op_options& options, uint32_t* number) {
  if (Status s = born.check("plan"); is_error(s)) return s;
  if (prepared) return fail(TW_ERR_INVALID, "the plan is prepared: steps are added before that; make another plan");
  if (steps.size() == kMostSteps) return fail(TW_ERR_LIMIT, "a plan has at most %u steps", kMostSteps);
  if (step.endpoint != nullptr) {
    if (Status s = thalweg::impl::check(step.endpoint); is_error(s)) return s;
  }
  if (Status s = check_layout(options.layout, &step.length); is_error(s)) return s;
  if (Status s = check_layout(options.remote_layout, &step.length); is_error(s)) return s;
  if (Status s = check_receive(writes_local(step.verb) ? options.layout : nullptr); is_error(s)) return s;
  if (Status s = check_receive(options.remote_layout); is_error(s)) return s;
  const bool moves = step.verb <= StepVerb::get || step.verb == StepVerb::copy;
  if (moves && step.length != 0 && (step.address == 0 || (step.verb == StepVerb::copy && step.to == 0)))
    return fail(TW_ERR_INVALID, "the buffer is NULL");
  if (options.increment != 0 && step.verb == StepVerb::put && options.signal == nullptr)
    return fail(TW_ERR_INVALID, "the option `increment` of tw_plan_put is of its signal's value: name the signal, too");
  if (options.after_count != 0 && options.after_steps == nullptr)
    return fail(TW_ERR_INVALID, "after_steps is NULL, after_count is %zu", options.after_count);
  for (size_t i = 0; i < options.after_count; ++i) {
    if (options.after_steps[i] >= steps.size())
      return fail(TW_ERR_INVALID, "step %zu comes after step %u, which is not there yet", steps.size(), options.after_steps[i]);
  }
  if (step.remote != nullptr) {
    const uint64_t length = step.remote->key.length;
    const int64_t first = options.remote_layout != nullptr ? options.remote_layout->first : 0;
    const int64_t last = options.remote_layout != nullptr ? options.remote_layout->last : static_cast<int64_t>(step.length);
    const __int128 at = step.offset;
    if (at + first < 0 || at + last > length) {
      return fail(TW_ERR_OUT_OF_BOUNDS, "bytes %lld to %lld of the remote memory: it has %llu",
                  static_cast<long long>(at + first), static_cast<long long>(at + last),
                  static_cast<unsigned long long>(length));
    }
    step.remote->references.fetch_add(1, std::memory_order_relaxed);
  }
  if (options.signal != nullptr) {
    step.signal = region_of(options.signal);
    step.signal_op = options.signal_op;
    step.value = options.signal_value;
  }
  if (step.signal != nullptr) step.signal->references.fetch_add(1, std::memory_order_relaxed);
  step.increment = options.increment;
  step.layout = options.layout != nullptr && !options.layout->contiguous() ? options.layout : nullptr;
  step.remote_layout =
      options.remote_layout != nullptr && !options.remote_layout->contiguous() ? options.remote_layout : nullptr;
  if (options.layout != nullptr && step.layout == nullptr) step.start = static_cast<uint64_t>(options.layout->start);
  step.address += step.start;
  if (options.remote_layout != nullptr && step.remote_layout == nullptr) {
    step.offset += static_cast<uint64_t>(options.remote_layout->start);
    step.to += step.verb == StepVerb::copy ? static_cast<uint64_t>(options.remote_layout->start) : 0;
  }
  retain(step.layout);
  retain(step.remote_layout);
  step.after.assign(options.after_steps, options.after_steps + options.after_count);
  if (number != nullptr) *number = static_cast<uint32_t>(steps.size());
  steps.push_back(std::move(step));
  return TW_OK;
}

tw_plan::~tw_plan() {
  proxy.abandon(owed);
  for (PlanStep& step : steps) {
    thalweg::impl::release(step.layout);
    thalweg::impl::release(step.remote_layout);
    drop(step.remote);
    drop(step.signal);
  }
  proxy.context.traffic.remove(moved_);
  proxy.users_.fetch_sub(1);
}
