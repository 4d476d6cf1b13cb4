// SPDX-License-Identifier: Apache-2.0
// Resolving steps: their executor, and what that reaches.
#include "plans/plan_resolve.hpp"

#include <algorithm>
#include <tuple>

#include <thalweg/device/side.hpp>

#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "devices/registry.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

namespace {

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

/// On average; all bytes where they are contiguous.
uint64_t row_of(const PlanStep& step) {
  const Layout* const layout = step.op.layout;
  if (layout == nullptr || layout->contiguous()) return step.op.length;
  return layout->pieces.empty() ? layout->block : layout->bytes / layout->pieces.size();
}

}  // namespace

Status thalweg::impl::choose_executor(const PlanList& list, const std::string& place, Proxy& proxy, Executor** out) {
  if (!place.empty()) return proxy.executor_at(place.c_str(), out);
  Device* device = nullptr;
  for (const PlanStep& step : list) {
    BufferInfo info;
    if (step.exchange != nullptr && device == nullptr) device = &step.exchange->area->device();
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
  return proxy.executor(device, out);
}

Status ResolvedSteps::make_side(Resolved& out, uint64_t address, const Layout* layout, uint64_t length, device::Side* side) {
  uint64_t table = 0;
  size_t table_length = 0;
  if (Status s = thalweg::impl::make_side(*executor_, address, layout, length, side, &table, &table_length); is_error(s))
    return s;
  if (table != 0) out.tables.emplace_back(table, table_length);
  return TW_OK;
}

/// As thalweg::impl::reach, to its end.
Status ResolvedSteps::reach_now(RemoteRegion& region, bool changes, const Deadline& deadline, Reached* out) {
  if (region.peer == nullptr) return fail(TW_ERR_STALE, "it was imported through an endpoint that is closed");
  tw_worker& worker = *region.peer->endpoint->worker;
  Status status;
  while ((status = reach(worker, region, *executor_, changes, out)) == TW_IN_PROGRESS) {
    if (deadline.passed()) return fail(TW_ERR_TIMED_OUT, "the peer's memory was not mapped in time");
    if (Status s = interrupted(); is_error(s)) return s;
    tw_worker_progress(&worker);
  }
  return status;
}

/// The remote memory and signal of a put, get, signal or atomic: reached by the executor, or proxied.
Status ResolvedSteps::resolve_remote(const PlanStep& step, const Deadline& deadline, Resolved& out) {
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
Status ResolvedSteps::admit_buffer(const PlanStep& step, Resolved& out) {
  uint64_t begin = 0, length = 0;
  span_of(step, &begin, &length);
  out.proxied = false;
  const uint64_t row = step.op.verb == Verb::recv ? row_of(step) : 0;
  const Asks asks{.carriable = step.op.verb != Verb::copy, .row = row};
  const Status admitted = executor_->admit(begin, length, asks, &out.local);
  if (!is_error(admitted) || out.local.route() != PreparedRoute::carried) return admitted;
  out.proxied = true;
  out.why = last_error();
  return TW_OK;
}

/// A wait is run by the executor itself, so the word must be near it.
Status ResolvedSteps::resolve_wait(const PlanStep& step, Resolved& out) {
  if (Status s = thalweg::impl::check(step.waited); is_error(s)) return s;
  const Status status =
      executor_->admit(reinterpret_cast<uint64_t>(step.waited->word), sizeof(uint64_t), {.waits = true}, &out.local);
  if (!is_error(status)) return TW_OK;
  const std::string why = last_error();
  return fail(TW_ERR_UNSUPPORTED, "the signal's word is not where %s waits: make it with the place of the waiter (%s)",
              executor_->name().c_str(), why.c_str());
}

/// All of a reduction's memory is reached by the executor itself.
Status ResolvedSteps::resolve_reduce(size_t index, const Deadline& deadline) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  if (Status s = executor_->admit(step.there(), step.op.length, {}, &out.target); is_error(s)) return s;
  if (Status s = make_side(out, step.there(), nullptr, step.op.length, &out.to); is_error(s)) return s;
  out.sources.resize(step.sources.size());
  uint64_t all = step.there();
  for (size_t i = 0; i < step.sources.size(); ++i) {
    const ReduceSource& source = step.sources[i];
    Reached& reached = out.sources[i];
    const Status status = source.region != nullptr ? reach_now(*source.region, false, deadline, &reached)
                                                   : executor_->admit(source.address, step.op.length, {}, &reached.how);
    if (is_error(status)) {
      const std::string why = last_error();
      return fail(status, "source %zu: %s; bring it nearer by a get or a receive, and reduce from there", i, why.c_str());
    }
    all |= source.region != nullptr ? reached.address() + source.address : source.address;
  }
  out.aligned = all % 16 == 0;
  return cut_sources(index, {0});
}

Status ResolvedSteps::cut_sources(size_t index, const std::vector<uint64_t>& offsets) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  std::vector<uint64_t> addresses;
  for (const uint64_t offset : offsets) {
    for (size_t i = 0; i < step.sources.size(); ++i) {
      const ReduceSource& source = step.sources[i];
      addresses.push_back((source.region != nullptr ? out.sources[i].address() : 0) + source.address + offset);
    }
  }
  const size_t bytes = addresses.size() * sizeof addresses[0];
  if (Status s = executor_->own().allocate(bytes, &out.source_table); is_error(s)) return s;
  out.tables.emplace_back(out.source_table, bytes);
  return executor_->store(out.source_table, addresses.data(), bytes);
}

namespace {

/// The arrays of counts and offsets: a word for each rank.
Status admit_counts(Executor& by, const ExchangeStep& exchange) {
  const device::ExchangeCounts& counts = exchange.counts;
  const std::pair<const void*, const char*> all[] = {{counts.send_counts, "send_counts"},
                                                     {counts.send_offsets, "send_offsets"},
                                                     {counts.recv_counts, "recv_counts"},
                                                     {counts.recv_offsets, "recv_offsets"}};
  for (const auto& [array, name] : all) {
    if (array == nullptr) continue;
    Reaching how;
    const Status status = by.admit(reinterpret_cast<uint64_t>(array), exchange.what.size * sizeof(device::u64), {}, &how);
    if (!is_error(status)) continue;
    const std::string why = last_error();
    return fail(status,
                "%s: %s; use memory of the device, pinned or library memory; or, on all ranks, tw_alltoallv_on with the "
                "host's counts",
                name, why.c_str());
  }
  return TW_OK;
}

}  // namespace

Status ResolvedSteps::resolve_exchange(const PlanStep& step, Resolved& out) {
  const ExchangeStep& exchange = *step.exchange;
  if (Status s = exchange.area->check(); is_error(s)) return s;
  if (executor_->device() != &exchange.area->device())
    return fail(TW_ERR_INVALID, "the group's kernels run on another device than %s", executor_->name().c_str());
  const std::pair<uint64_t, uint64_t> sides[] = {{exchange.what.input, exchange.input_bytes},
                                                 {exchange.what.output, exchange.output_bytes}};
  if (exchange.counted() && !exchange.by_host()) {
    if (Status s = admit_counts(*executor_, exchange); is_error(s)) return s;
  }
  for (size_t i = 0; i < 2; ++i) {
    if (sides[i].second == 0) continue;
    const Status status = executor_->admit(sides[i].first, sides[i].second, {}, i == 0 ? &out.local : &out.target);
    if (!is_error(status)) continue;
    const std::string why = last_error();
    return fail(status, "%s; use memory of the device, pinned or library memory; or, on all ranks, %s", why.c_str(),
                exchange.counted() && !exchange.by_host() ? "tw_alltoallv_on with the host's counts"
                                                          : "name an algorithm of several steps");
  }
  return TW_OK;
}

Status ResolvedSteps::resolve_step(size_t index, const Deadline& deadline) {
  const PlanStep& step = list_[index];
  Resolved& out = resolved_[index];
  uint64_t begin = 0, length = 0;
  span_of(step, &begin, &length);
  if (step.op.verb == Verb::collective) return resolve_exchange(step, out);
  if (step.op.verb == Verb::wait) return resolve_wait(step, out);
  if (step.op.verb == Verb::reduce) return step.op.length != 0 ? resolve_reduce(index, deadline) : Status{TW_OK};
  if (step.op.remote != nullptr || step.op.signal != nullptr) {
    if (Status s = resolve_remote(step, deadline, out); is_error(s)) return s;
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
      const Status s = executor_->admit(step.there() + static_cast<uint64_t>(first), span, {}, &out.target);
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

Status ResolvedSteps::resolve(Executor& executor, const Deadline& deadline) {
  executor_ = &executor;
  resolved_.resize(list_.size());
  for (size_t i = 0; i < list_.size(); ++i) {
    if (Status s = resolve_step(i, deadline); is_error(s)) return at_step(i, list_[i], s);
  }
  return TW_OK;
}

void ResolvedSteps::name_peers() {
  for (size_t i = 0; i < list_.size(); ++i) {
    const tw_endpoint* const endpoint = list_[i].endpoint;
    if (endpoint != nullptr && endpoint->peer) resolved_[i].peer_id = endpoint->peer->identity.worker;
  }
}

/// How the kernels reach the step's own bytes. TW_ERR_UNREACHABLE: they lie elsewhere.
Status ResolvedSteps::admit_bounced(const PlanStep& step, Reaching* how) {
  uint64_t begin = 0, length = 0;
  span_of(step, &begin, &length);
  BufferInfo info;
  if (!on_device(reinterpret_cast<void*>(begin), &info)) return TW_ERR_UNREACHABLE;
  return executor_->admit(begin, length, {}, how);
}

bool ResolvedSteps::may_bounce(size_t index) {
  Reaching local;
  return !is_error(admit_bounced(list_[index], &local));
}

Status ResolvedSteps::bounce(size_t index, uint64_t address) {
  const PlanStep& step = list_[index];
  Resolved& how = resolved_[index];
  Reaching local;
  if (Status s = executor_->admit(address, step.op.length); is_error(s)) return s;
  if (Status s = admit_bounced(step, &local); is_error(s)) return s;
  if (step.op.verb == Verb::recv && step.of.empty()) {  // a collective's messages are as long as their receives
    if (Status s = executor_->own().allocate(sizeof(uint64_t), &how.received); is_error(s)) return s;
    how.tables.emplace_back(how.received, sizeof(uint64_t));
  }
  device::Side &mine = step.moves_here() ? how.to : how.from, &other = step.moves_here() ? how.from : how.to;
  if (Status s = make_side(how, step.address(), step.op.layout, step.op.length, &mine); is_error(s)) return s;
  other = device::contiguous_at(address);
  how.local = std::move(local);
  how.bounce = address;
  how.bounced = true;
  return TW_OK;
}

/// Where the buffer lies elsewhere now, the table stays with the versions that were bounced.
Status ResolvedSteps::move_bounced(uint32_t index, std::pair<uint64_t, size_t>* left) {
  Resolved& how = resolved_[index];
  Reaching local;
  if (is_error(admit_bounced(list_[index], &local))) {
    device::Side& mine = list_[index].moves_here() ? how.to : how.from;
    *left = take_table(how, mine);
    mine = device::contiguous_at(0);
    how.bounced = false;
    return TW_OK;
  }
  if (Status s = move_side(index, left); is_error(s)) return s;
  how.local = std::move(local);
  how.bounced = true;
  return TW_OK;
}

/// Of the side, out of the list; {0, 0}: it has none.
std::pair<uint64_t, size_t> ResolvedSteps::take_table(Resolved& how, const device::Side& side) {
  const auto table = reinterpret_cast<uint64_t>(side.pieces);
  const auto old = std::find_if(how.tables.begin(), how.tables.end(), [table](const auto& one) { return one.first == table; });
  if (table == 0 || old == how.tables.end()) return {};
  const std::pair<uint64_t, size_t> taken = *old;
  how.tables.erase(old);
  return taken;
}

Status ResolvedSteps::move_side(uint32_t index, std::pair<uint64_t, size_t>* left) {
  const PlanStep& step = list_[index];
  Resolved& how = resolved_[index];
  device::Side& side = step.moves_here() ? how.to : how.from;
  const device::Side before = side;
  if (Status s = make_side(how, step.address(), step.op.layout, step.op.length, &side); is_error(s)) return s;
  *left = take_table(how, before);
  return TW_OK;
}

void ResolvedSteps::release() {
  for (Resolved& one : resolved_) {
    for (const auto& [address, length] : one.tables) executor_->own().free(address, length);
    if (one.bounce != 0) one.peer->bounces->free(one.bounce, list_[&one - resolved_.data()].op.length);
    if (one.proxy_remote != nullptr) tw_remote_memory_release(one.proxy_remote);
    if (one.proxy_signal != nullptr) tw_remote_signal_release(one.proxy_signal);
  }
  resolved_.clear();
}
