// SPDX-License-Identifier: Apache-2.0
// Resolving a plan: its executor, what that reaches, what the host has to do for it.
#include <tuple>

#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "devices/registry.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

namespace {

Status at_step(size_t index, const PlanStep& step, Status status) {
  const std::string why = last_error();
  return fail(status, "step %zu (%s): %s", index, name_of(step.op.verb), why.c_str());
}

/// Where the local bytes of a step begin and end: a layout's, or an atomic operation's old value.
void span_of(const PlanStep& step, uint64_t* begin, uint64_t* length) {
  if (step.op.verb == Verb::atomic) {
    *begin = reinterpret_cast<uint64_t>(step.op.result);
    *length = step.op.result != nullptr ? step.op.length : 0;
    return;
  }
  *begin = step.address();
  *length = step.op.length;
  if (step.op.layout == nullptr) return;
  *begin = step.address() + static_cast<uint64_t>(step.op.layout->first);
  *length = static_cast<uint64_t>(step.op.layout->last - step.op.layout->first);
}

uint64_t row_of(const Layout* layout) {
  if (layout == nullptr || layout->contiguous()) return 0;
  return layout->pieces.empty() ? layout->block : layout->bytes / layout->pieces.size();
}

/// What is done with the other memories of what is carried.
void carry_along(Resolved& one) {
  for (Reaching* const other : {&one.local, &one.remote.how, &one.signal.how}) {
    if (other->asked && other->route() < PreparedRoute::carried) other->facts.along = other->facts.carriable;
  }
}

}  // namespace

Status tw_plan::choose_executor() {
  if (!place.empty()) return proxy.executor_at(place.c_str(), &executor);
  Device* device = nullptr;
  for (const PlanStep& step : steps) {
    BufferInfo info;
    if (device != nullptr || step.op.length == 0) continue;
    uint64_t begin = 0, length = 0;
    span_of(step, &begin, &length);
    std::vector<uint64_t> buffers = {begin, step.there()};
    for (const ReduceSource& source : step.sources) {
      if (source.region == nullptr) buffers.push_back(source.address);
    }
    for (const uint64_t address : buffers) {
      if (address != 0 && find_device(address, &info) == TW_OK && wants_device(place_of(info))) device = info.device;
    }
  }
  return proxy.executor(device, &executor);
}

Status tw_plan::make_side(Resolved& out, uint64_t address, const Layout* layout, uint64_t length, device::Side* side) {
  uint64_t table = 0;
  size_t table_length = 0;
  if (Status s = thalweg::impl::make_side(*executor, address, layout, length, side, &table, &table_length); is_error(s))
    return s;
  if (table != 0) out.tables.emplace_back(table, table_length);
  return TW_OK;
}

void tw_plan::progress_workers() {
  tw_worker* last = nullptr;
  for (const PlanStep& step : steps) {
    if (step.endpoint == nullptr || step.endpoint->worker == last) continue;
    last = step.endpoint->worker;
    tw_worker_progress(last);
  }
}

/// As thalweg::impl::reach, to its end.
Status tw_plan::reach_now(RemoteRegion& region, bool changes, const Deadline& deadline, Reached* out) {
  if (region.peer == nullptr) return fail(TW_ERR_STALE, "it was imported through an endpoint that is closed");
  tw_worker& worker = *region.peer->endpoint->worker;
  Status status;
  while ((status = reach(worker, region, *executor, changes, out)) == TW_IN_PROGRESS) {
    if (deadline.passed()) return fail(TW_ERR_TIMED_OUT, "the peer's memory was not mapped within 10 s");
    if (Status s = interrupted(); is_error(s)) return s;
    tw_worker_progress(&worker);
  }
  return status;
}

/// The remote memory and signal of a put, get, signal or atomic: reached by the executor, or proxied.
Status tw_plan::resolve_remote(PlanStep& step, Resolved& out) {
  const Deadline deadline(10 * kSecond);
  const bool adds = step.op.signal_op == TW_SIGNAL_ADD, operates = step.op.verb == Verb::atomic;
  for (auto [region, changes, reached] :
       {std::tuple{step.op.remote, operates, &out.remote}, std::tuple{step.op.signal, adds, &out.signal}}) {
    if (region == nullptr || out.proxied) continue;
    const Status status = reach_now(*region, changes, deadline, reached);
    if (status == TW_ERR_UNREACHABLE && reached->how.route() == PreparedRoute::carried) {
      out.proxied = true;
      out.why = last_error();
    } else if (is_error(status)) {
      return status;
    }
  }
  return TW_OK;
}

/// As tw_atomic would, at every run.
Status check_carried_result(const PlanStep& step, const std::string& why) {
  BufferInfo info;
  if (step.op.result == nullptr || !is_device_memory(step.op.result, &info)) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED,
              "the host carries it (%s), and stores no old value in device memory: give pinned memory for the result, or none",
              why.c_str());
}

/// The step's own bytes: reached by the executor, or carried.
Status tw_plan::admit_buffer(const PlanStep& step, Resolved& out) {
  uint64_t begin = 0, length = 0;
  span_of(step, &begin, &length);
  out.proxied = false;
  const uint64_t row = step.op.verb == Verb::recv ? row_of(step.op.layout) : 0;
  const Asks asks{.carriable = step.op.verb != Verb::copy, .row = row};
  const Status admitted = executor->admit(begin, length, asks, &out.local);
  if (!is_error(admitted) || out.local.route() != PreparedRoute::carried) return admitted;
  out.proxied = true;
  out.why = last_error();
  return TW_OK;
}

/// A wait is run by the executor itself, so the word must be near it.
Status tw_plan::resolve_wait(PlanStep& step, Resolved& out) {
  if (Status s = thalweg::impl::check(step.waited); is_error(s)) return s;
  const Status status =
      executor->admit(reinterpret_cast<uint64_t>(step.waited->word), sizeof(uint64_t), {.waits = true}, &out.local);
  if (!is_error(status)) return TW_OK;
  const std::string why = last_error();
  return fail(TW_ERR_UNSUPPORTED, "the signal's word is not where %s waits: make it with the place of the waiter (%s)",
              executor->name().c_str(), why.c_str());
}

/// All of a reduction's memory is reached by the executor itself.
Status tw_plan::resolve_reduce(PlanStep& step, Resolved& out) {
  if (Status s = executor->admit(step.there(), step.op.length, {}, &out.target); is_error(s)) return s;
  if (Status s = make_side(out, step.there(), nullptr, step.op.length, &out.to); is_error(s)) return s;
  const Deadline deadline(10 * kSecond);
  out.sources.resize(step.sources.size());
  std::vector<uint64_t> addresses;
  uint64_t all = step.there();
  for (size_t i = 0; i < step.sources.size(); ++i) {
    const ReduceSource& source = step.sources[i];
    Reached& reached = out.sources[i];
    const Status status = source.region != nullptr ? reach_now(*source.region, false, deadline, &reached)
                                                   : executor->admit(source.address, step.op.length, {}, &reached.how);
    if (is_error(status)) {
      const std::string why = last_error();
      return fail(status, "source %zu: %s; bring it nearer by a get or a receive, and reduce from there", i, why.c_str());
    }
    addresses.push_back(source.region != nullptr ? reached.address() + source.address : source.address);
    all |= addresses.back();
  }
  out.aligned = all % 16 == 0;
  const size_t bytes = addresses.size() * sizeof addresses[0];
  if (Status s = executor->own().allocate(bytes, &out.source_table); is_error(s)) return s;
  out.tables.emplace_back(out.source_table, bytes);
  return executor->store(out.source_table, addresses.data(), bytes);
}

Status tw_plan::resolve(size_t index) {
  PlanStep& step = steps[index];
  Resolved& out = resolved[index];
  uint64_t begin = 0, length = 0;
  span_of(step, &begin, &length);
  if (step.op.verb == Verb::wait) return resolve_wait(step, out);
  if (step.op.verb == Verb::reduce) return step.op.length != 0 ? resolve_reduce(step, out) : Status{TW_OK};
  if (step.op.remote != nullptr || step.op.signal != nullptr) {
    if (Status s = resolve_remote(step, out); is_error(s)) return s;
  }
  if (length != 0 && !out.proxied) {
    if (Status s = admit_buffer(step, out); is_error(s)) return s;
  }
  if (step.op.verb == Verb::atomic && out.proxied) return check_carried_result(step, out.why);
  if (step.op.verb == Verb::copy) {
    const int64_t first = step.op.remote_layout != nullptr ? step.op.remote_layout->first : 0;
    const int64_t last = step.op.remote_layout != nullptr ? step.op.remote_layout->last : static_cast<int64_t>(step.op.length);
    if (last > first) {
      const auto span = static_cast<uint64_t>(last - first);
      const Status s = executor->admit(step.there() + static_cast<uint64_t>(first), span, {}, &out.target);
      if (is_error(s)) return s;
    }
    if (Status s = make_side(out, step.address(), step.op.layout, step.op.length, &out.from); is_error(s)) return s;
    return make_side(out, step.there(), step.op.remote_layout, step.op.length, &out.to);
  }
  if (out.proxied || step.op.verb == Verb::recv) return TW_OK;
  if (step.op.verb == Verb::send) return make_side(out, step.address(), step.op.layout, step.op.length, &out.from);
  if (step.op.verb == Verb::signal) return TW_OK;
  const uint64_t there = out.remote.address() + step.op.remote_offset;
  if (step.op.verb == Verb::atomic) return TW_OK;
  const bool put = step.op.verb == Verb::put;
  if (Status s = make_side(out, step.address(), step.op.layout, step.op.length, put ? &out.from : &out.to); is_error(s))
    return s;
  return make_side(out, there, step.op.remote_layout, step.op.length, put ? &out.to : &out.from);
}

Status tw_plan::prepare(uint64_t limit_ns) {
  if (Status s = born.check("plan"); is_error(s)) return s;
  if (steps.empty()) return fail(TW_ERR_INVALID, "the plan has no steps");
  if (prepared) {
    if (Status s = at_rest(); is_error(s)) return s;
    reopen_channels();
  }
  if (Status s = release(); is_error(s)) return s;
  const Deadline deadline(limit_ns == 0 ? 30 * kSecond : limit_ns);
  if (Status s = choose_executor(); is_error(s)) return s;
  if (executor->device() != nullptr && !kernels_wait) kernels_wait.emplace();
  resolved.resize(steps.size());
  pinned_length = sizeof(device::Failure) + (1 + kProxiedWords * steps.size()) * sizeof(uint64_t);
  Status status = executor->pinned().allocate(pinned_length, &pinned);
  failure = reinterpret_cast<device::Failure*>(pinned);
  abort_word = reinterpret_cast<uint64_t*>(pinned + sizeof(device::Failure));
  for (size_t i = 0; i < steps.size() && !is_error(status); ++i) {
    status = resolve(i);
    if (is_error(status)) status = at_step(i, steps[i], status);
  }
  if (!is_error(status)) status = open_channels(deadline);
  for (size_t i = 0; i < steps.size() && !is_error(status); ++i) {
    if (!resolved[i].proxied) continue;
    carry_along(resolved[i]);
    status = make_proxied(i);
    if (is_error(status)) status = at_step(i, steps[i], status);
  }
  if (!is_error(status)) status = build();
  if (is_error(status)) {
    const std::string why = last_error();
    release();
    set_last_error(why);
    return status;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const tw_endpoint* const endpoint = steps[i].endpoint;
    if (endpoint != nullptr && endpoint->peer) resolved[i].peer_id = endpoint->peer->identity.worker;
  }
  prepared = true;
  return TW_OK;
}

/// Prepared again: whatever the two ends think of their channels, they begin anew; once, where several plans use them.
void tw_plan::reopen_channels() {
  const std::lock_guard lock(proxy.mutex());
  for (const ChannelUse& use : channels)
    use.channel->fail_end(use.epoch, TW_ERR_STALE, "a plan that uses the channel was prepared again");
}

/// Who ends a failed plan may never have asked it: its channels' ends no longer agree on what has passed.
void tw_plan::tell_failure() {
  const std::string said = last_error();
  (void)failure_now();
  set_last_error(said);
}

Status tw_plan::release() {
  if (prepared) tell_failure();
  for (Resolved& one : resolved) {
    if (one.step == nullptr) continue;
    if (Status s = proxy.unwatch(one.step.get()); is_error(s)) return s;
    one.step.reset();
  }
  for (const Resolved& one : resolved) {
    if (one.channel != nullptr && one.recv_buffer >= 0) owed.emplace_back(one.channel, static_cast<uint16_t>(one.recv_buffer));
  }
  for (const Outdated& one : outdated) {
    if (one.channel != nullptr) owed.emplace_back(one.channel, one.recv_buffer);
  }
  leave_channels();
  proxy.take_back(owed);
  if (executor != nullptr) executor->settle();  // a wait that was ended may have closed this program
  for (Resolved& one : resolved) {
    for (const auto& [address, length] : one.tables) executor->own().free(address, length);
    if (one.proxy_remote != nullptr) tw_remote_memory_release(one.proxy_remote);
    if (one.proxy_signal != nullptr) tw_remote_signal_release(one.proxy_signal);
  }
  resolved.clear();
  if (executor != nullptr) {
    executor->own().free(state, state_length);
    executor->own().free(placed, placed_length);
    for (const Outdated& one : outdated) {
      executor->own().free(one.placed.first, one.placed.second);
      executor->own().free(one.table.first, one.table.second);
    }
    executor->pinned().free(pinned, pinned_length);
  }
  state = placed = pinned = 0;
  failure = nullptr;
  abort_word = nullptr;
  program.clear();
  program_after.clear();
  owner.clear();
  prepared = told = under_way = false;
  carried.reset();
  host_run.reset();
  if (own_queue != nullptr) proxy.forget(own_queue.get());
  own_queue.reset();
  last_queue = nullptr;
  proxy_why.clear();
  channel_why.clear();
  runs_due = new_run_count();
  version = std::make_shared<Version>(runs_due);
  outdated.clear();
  return TW_OK;
}
