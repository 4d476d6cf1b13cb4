// SPDX-License-Identifier: Apache-2.0
#include "plans/plan_times.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <set>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "plans/plan_program.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {
namespace {

using device::StepKind;
using device::StepTime;

constexpr size_t kRingBytes = size_t{1} << 20;
constexpr uint32_t kFewestRuns = 8, kMostRuns = 2048;  // powers of two

const char* name_of(StepKind kind) {
  static constexpr const char* kNames[] = {"copy", "send",   "reduce", "post",  "take",    "signal",
                                           "wait", "atomic", "ring",   "await", "exchange"};
  static_assert(std::size(kNames) == static_cast<size_t>(StepKind::exchange) + 1);
  return kNames[static_cast<size_t>(kind)];
}

uint64_t clock_of(Executor& executor) {
  Device* const device = executor.device();
  return trace::clock(executor.name(), [device](uint64_t* time) {
    return device != nullptr ? device->clock(time) : (*time = monotonic_ns(), true);
  });
}

/// A line for each plan, with the clock of what runs it.
uint64_t track_of(Executor& executor) {
  static std::atomic<uint64_t> last{0};
  const uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return trace::track(executor.name() + ", plan " + std::to_string(number), clock_of(executor));
}

/// Kernels of a group's collectives run one after the other, whatever plans and queues they are of.
uint64_t track_of(Executor& executor, ExchangeArea& area) {
  static std::mutex mutex;
  static uint64_t last = 0;
  const std::lock_guard lock(mutex);
  if (area.line == 0) area.line = trace::track(executor.name() + ", collectives " + std::to_string(++last), clock_of(executor));
  return area.line;
}

/// "allreduce, LL". It stays: there are as many as collectives have protocols.
const char* name_of(const PlanStep& step) {
  static std::mutex mutex;
  static std::set<std::string> all;
  std::string_view of = step.of;
  if (of.starts_with("tw_")) of.remove_prefix(3);
  if (of.ends_with("_on")) of.remove_suffix(3);
  const std::lock_guard lock(mutex);
  return all.insert(std::string(of) + ", " + step.exchange->protocol()).first->c_str();
}

/// All but the times.
trace::Event interval(uint64_t track, trace::What what, const char* name = nullptr, uint64_t bytes = 0) {
  trace::Event event;
  event.phase = trace::Phase::on_track;
  event.id = track;
  event.what = what;
  event.tag = reinterpret_cast<uint64_t>(name);
  event.bytes = bytes;
  return event;
}

/// The executor may be storing it.
bool read(const StepTime* from, StepTime* out) {
  const auto load = [](const device::u64* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); };
  *out = {load(&from->begun), load(&from->ended), load(&from->run), load(&from->check)};
  return out->run != 0 && (out->ended ^ out->run) == out->check && out->begun <= out->ended;
}

}  // namespace

struct PlanTimes::Ring {
  uint64_t address = 0;  // in executor.pinned()
  size_t length = 0;
  uint32_t kept_runs = 0, steps = 0;
  bool found = false;  // a run; from then on the next one is known
  uint64_t next = 0;
  std::vector<trace::Event> intervals;  // of a run: its steps, and the whole of it
  const StepTime* run(uint64_t number) const {
    return reinterpret_cast<const StepTime*>(address) + (number & (kept_runs - 1)) * (uint64_t{steps} + 1);
  }
};

/// What its runs keep times of: a collective's kernel has no steps.
void PlanTimes::describe(const PlanProgram& program, size_t part, Ring* out) {
  const ProgramRun run = program.run(part);
  if (run.exchange != nullptr) {
    const PlanStep& step = program.first_step(part);
    const uint64_t bytes = step.exchange->counted() && !step.exchange->by_host() ? 0 : step.exchange->what.bytes;
    out->intervals = {interval(track_of(*executor_, *step.exchange->area), trace::What::collective, name_of(step), bytes)};
    return;
  }
  if (track_ == 0) track_ = track_of(*executor_);
  for (const device::Step& step : run.steps) {
    out->intervals.push_back(
        interval(track_, trace::What::step, name_of(step.kind), step.kind <= StepKind::reduce ? step.bytes : 0));
    out->intervals.back().number = out->steps++;
  }
  out->intervals.push_back(interval(track_, trace::What::run));
}

/// Null where there is no memory for it: a plan runs without a timeline, too.
std::unique_ptr<PlanTimes::Ring> PlanTimes::make_ring(const PlanProgram& program, size_t part, bool before_first) {
  auto ring = std::make_unique<Ring>();
  describe(program, part, ring.get());
  ring->found = before_first;
  const size_t each = ring->intervals.size() * sizeof(StepTime);
  ring->kept_runs = std::bit_floor(static_cast<uint32_t>(std::clamp<size_t>(kRingBytes / each, kFewestRuns, kMostRuns)));
  ring->length = each * ring->kept_runs;
  if (is_error(executor_->pinned().allocate(ring->length, &ring->address))) return nullptr;
  return ring;
}

void PlanTimes::begin(Executor& executor, const PlanProgram& program, bool before_first) {
  executor_ = &executor;
  if (same_steps(program)) return;
  first_ = rings_.size();
  if (!trace::on() || (executor.device() != nullptr && !executor.device()->has_clock())) return;
  std::vector<std::unique_ptr<Ring>> made;
  for (size_t part = 0; part < program.parts(); ++part) made.push_back(make_ring(program, part, before_first));
  {
    const std::lock_guard lock(mutex_);
    std::move(made.begin(), made.end(), std::back_inserter(rings_));
  }
  if (source_ == 0) source_ = trace::add_source([this](const auto& keep) { take_all(keep); });
}

/// Of the newest rings: an update moves buffers, and seldom changes steps.
bool PlanTimes::same_steps(const PlanProgram& program) const {
  if (rings_.size() - first_ != program.parts()) return false;
  for (size_t part = 0; part < program.parts(); ++part) {
    const Ring* const ring = rings_[first_ + part].get();
    const ProgramRun run = program.run(part);
    if (ring == nullptr || ring->steps != (run.exchange != nullptr ? 0 : run.steps.size())) return false;
  }
  return true;
}

void PlanTimes::put_into(ProgramRun* run, size_t part) const {
  if (first_ + part >= rings_.size() || rings_[first_ + part] == nullptr) return;
  run->times = rings_[first_ + part]->address;
  run->kept_runs = rings_[first_ + part]->kept_runs;
}

PlanTimes::PlanTimes() = default;
PlanTimes::~PlanTimes() { release(); }

void PlanTimes::release() {
  if (source_ != 0) trace::remove_source(source_);
  source_ = 0;
  for (const auto& ring : rings_)
    if (ring != nullptr) executor_->pinned().free(ring->address, ring->length);
  rings_.clear();
  first_ = 0;
}

/// An update may come behind any number of runs.
void PlanTimes::find_first(Ring& ring) {
  StepTime whole{};
  for (uint32_t i = 0; i < ring.kept_runs; ++i) {
    if (!read(ring.run(i) + ring.steps, &whole) || (ring.found && whole.run > ring.next)) continue;
    ring.next = whole.run - 1;
    ring.found = true;
  }
}

void PlanTimes::take_all(const trace::Keep& keep) {
  const std::lock_guard lock(mutex_);
  for (const auto& ring : rings_)
    if (ring != nullptr) take(*ring, keep);
}

/// All runs that are over. One that was overwritten since the last time is lost, as an event that finds its ring full.
void PlanTimes::take(Ring& ring, const trace::Keep& keep) {
  StepTime whole{};
  if (!ring.found) find_first(ring);
  while (ring.found && read(ring.run(ring.next) + ring.steps, &whole) && whole.run > ring.next) {
    if (whole.run - 1 != ring.next) {  // it is overwritten; those behind it may still be there
      trace::count_dropped((whole.run - ring.kept_runs - ring.next) * (ring.steps + 1));
      ring.next = whole.run - ring.kept_runs;
      continue;
    }
    for (uint32_t i = 0; i <= ring.steps; ++i) {
      StepTime time{};
      const bool read_whole = read(ring.run(ring.next) + i, &time);
      if (!read_whole || time.run > whole.run) trace::count_dropped(1);  // the executor is overwriting it
      if (!read_whole || time.run != whole.run) continue;                // older: this run, which failed, did not do it
      trace::Event event = ring.intervals[i];
      event.begin = time.begun;
      event.at = time.ended;
      keep(event);
    }
    ++ring.next;
  }
}

}  // namespace thalweg::impl
