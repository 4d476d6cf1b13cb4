// SPDX-License-Identifier: Apache-2.0
// Adding steps to a list, and dropping them.
#include "plans/plan_list.hpp"

#include <utility>

#include "core/c_checks.hpp"
#include "devices/program.hpp"

namespace thalweg::impl {

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

Status check_length(uint64_t length) {
  constexpr uint64_t kMost = uint64_t{1} << 60;  // no address space has more
  if (length <= kMost) return TW_OK;
  return fail(TW_ERR_INVALID, "%llu bytes are more than an address space has: give the length of the buffer, in bytes",
              static_cast<unsigned long long>(length));
}

namespace {

/// May be the last user of a region whose endpoint is still there.
void drop(RemoteRegion* region) {
  if (region == nullptr) return;
  if (region->peer == nullptr) return release_region(region);
  const Engine::Guard guard(*region->peer->engine);
  release_region(region);
}

uint32_t access_of(Verb verb) {
  return verb == Verb::put ? TW_MEMORY_WRITE : verb == Verb::get ? TW_MEMORY_READ : TW_MEMORY_ATOMIC;
}

}  // namespace

Status PlanList::add(PlanStep&& step, const tw_op_options& options, uint32_t* number) {
  if (steps_.size() == kMostSteps) return fail(TW_ERR_LIMIT, "a plan has at most %u steps", kMostSteps);
  if (step.endpoint != nullptr) {
    if (Status s = check(step.endpoint); is_error(s)) return s;
  }
  if (Status s = check_layout(options.layout, &step.op.length); is_error(s)) return s;
  if (Status s = check_layout(options.remote_layout, &step.op.length); is_error(s)) return s;
  if (Status s = check_length(step.op.length); is_error(s)) return s;
  if (Status s = check_receive(step.moves_here() ? options.layout : nullptr); is_error(s)) return s;
  if (Status s = check_receive(options.remote_layout); is_error(s)) return s;
  const bool moves = step.moves_to_peer() || step.moves_here() || step.op.verb == Verb::copy;
  if (moves && step.op.length != 0 && (step.address() == 0 || (step.op.verb == Verb::copy && step.there() == 0)))
    return fail(TW_ERR_INVALID, "the buffer is NULL");
  if (options.signal != nullptr) {
    if (Status s = set_signal(step.op, *step.endpoint, options); is_error(s)) return s;
  }
  if (options.increment != 0 && step.op.verb == Verb::put && options.signal == nullptr)
    return fail(TW_ERR_INVALID, "the option `increment` of tw_plan_put is of its signal's value: name the signal, too");
  if (options.after_count != 0 && options.after_steps == nullptr)
    return fail(TW_ERR_INVALID, "after_steps is NULL, after_count is %zu", options.after_count);
  for (size_t i = 0; i < options.after_count; ++i) {
    if (options.after_steps[i] >= steps_.size())
      return fail(TW_ERR_INVALID, "step %zu comes after step %u, which is not there yet", steps_.size(),
                  options.after_steps[i]);
  }
  if (step.op.remote != nullptr) {
    step.op.remote_layout = options.remote_layout;
    if (Status s = check_range(step.op, access_of(step.op.verb)); is_error(s)) return s;
  }
  if (step.op.remote != nullptr) step.op.remote->references.fetch_add(1, std::memory_order_relaxed);
  for (const ReduceSource& source : step.sources) {
    if (source.region != nullptr) source.region->references.fetch_add(1, std::memory_order_relaxed);
  }
  if (step.op.signal != nullptr) step.op.signal->references.fetch_add(1, std::memory_order_relaxed);
  step.increment = options.increment;
  step.op.layout = options.layout != nullptr && !options.layout->contiguous() ? options.layout : nullptr;
  step.op.remote_layout =
      options.remote_layout != nullptr && !options.remote_layout->contiguous() ? options.remote_layout : nullptr;
  if (options.layout != nullptr && step.op.layout == nullptr) step.start = static_cast<uint64_t>(options.layout->start);
  step.op.address += step.start;
  if (options.remote_layout != nullptr && step.op.remote_layout == nullptr) {
    step.op.remote_offset += static_cast<uint64_t>(options.remote_layout->start);
  }
  retain(step.op.layout);
  retain(step.op.remote_layout);
  for (size_t i = 0; i < options.after_count; ++i) {
    const auto several = ends_.find(options.after_steps[i]);
    step.after.push_back(options.after_steps[i]);
    if (several != ends_.end()) step.after.insert(step.after.end(), several->second.begin(), several->second.end());
  }
  if (number != nullptr) *number = static_cast<uint32_t>(steps_.size());
  steps_.push_back(std::move(step));
  return TW_OK;
}

void PlanList::leave_endpoints() {
  for (PlanStep& step : steps_) {
    drop(std::exchange(step.op.remote, nullptr));
    drop(std::exchange(step.op.signal, nullptr));
    for (ReduceSource& source : step.sources) drop(std::exchange(source.region, nullptr));
  }
}

void PlanList::truncate(size_t count) {
  for (; steps_.size() > count; steps_.pop_back()) {
    const PlanStep& step = steps_.back();
    impl::release(step.op.layout);
    impl::release(step.op.remote_layout);
    drop(step.op.remote);
    drop(step.op.signal);
    for (const ReduceSource& source : step.sources) drop(source.region);
  }
  ends_.erase(ends_.lower_bound(static_cast<uint32_t>(count)), ends_.end());
}

std::string name_of_channel(const PlanStep& step) {
  return step.of.empty() ? "channel " + std::to_string(step.op.tag) : step.of;
}

std::string name_of_step(size_t index, const PlanStep& step) {
  return "step " + std::to_string(index) + " (" + name_of(step.op.verb) + (step.of.empty() ? "" : " of " + step.of) + ")";
}

Status at_step(size_t index, const PlanStep& step, Status status) {
  const std::string why = last_error();
  return fail(status, "%s: %s", name_of_step(index, step).c_str(), why.c_str());
}

}  // namespace thalweg::impl
