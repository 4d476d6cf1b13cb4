// SPDX-License-Identifier: Apache-2.0
#include "plans/plan_run.hpp"

#include <algorithm>
#include <utility>

#include "core/c_checks.hpp"
#include "devices/program/program_executor.hpp"
#include "plans/queue.hpp"
#include "trace/trace.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

ProgramRun PlanRuns::run(size_t part) const {
  ProgramRun run = program_.run(part);
  run.guard = {abort_flag_of(program_.state()), failure_.record(part),
               reinterpret_cast<const device::u64*>(failure_.abort_word()), limit_ns_};
  if (executor_->device() == nullptr) run.carrier = carried_.carrier();
  times_.put_into(&run, part);
  return run;
}

void PlanRuns::begin(Executor& executor) {
  executor_ = &executor;
  note_moves();
  times_.begin(executor, program_, true);
  const std::lock_guard lock(proxy_.mutex());
  owner_words_ = program_.owner_words();
}

void PlanRuns::use_program() {
  host_run_.reset();
  times_.begin(*executor_, program_, false);
}

void PlanRuns::forget_owner_words() {
  const std::lock_guard lock(proxy_.mutex());
  owner_words_.clear();
  marks_.clear();
}

void PlanRuns::release() {
  under_way_ = false;
  host_run_.reset();
  if (own_queue_ != nullptr) proxy_.forget(own_queue_.get());
  own_queue_.reset();
  last_queue_ = nullptr;
  times_.release();
}

/// A collective's names the rank.
void PlanRuns::on_channel_failed(const Channel& channel, Status status, const std::string& why) {
  const std::vector<ChannelUse>& uses = channels_.uses();
  const auto use = std::find_if(uses.begin(), uses.end(), [&](const ChannelUse& one) { return one.channel == &channel; });
  const bool named = use != uses.end() && !list_[use->step].of.empty();
  failure_.fail_channel(status, named ? list_[use->step].of + ": " + why : why);
}

/// Steps that the runner moves itself: sends, puts, gets and atomic operations.
void PlanRuns::note_moves() {
  moves_.clear();
  for (size_t i = 0; i < list_.size(); ++i) {
    const PlanStep& step = list_[i];
    const bool moves =
        step.op.verb == Verb::send || step.op.verb == Verb::put || step.op.verb == Verb::get || step.op.verb == Verb::atomic;
    if (!moves || resolved_[i].proxied || step.op.length == 0) continue;
    const Way way = way_of_step(executor_->device() != nullptr, step.op.verb == Verb::get);
    auto at = std::find_if(moves_.begin(), moves_.end(), [way](const Moves& one) { return one.way == way; });
    if (at == moves_.end()) at = moves_.insert(at, {way, {}});
    ++at->each.operations;
    at->each.bytes += step.op.length;
  }
}

void PlanRuns::count_run() {
  for (const Moves& one : moves_) moved_.count(one.way, one.each.bytes, one.each.operations);
}

void PlanRuns::trace_begin(uint64_t began) {
  trace::Event event;
  event.what = trace::What::run;
  event.phase = trace::Phase::begins;
  event.id = activity_ = trace::new_activity();
  event.at = began;
  for (const Moves& one : moves_) event.bytes += one.each.bytes;
  if (trace::on()) trace::record(event);
}

void PlanRuns::trace_end(Status status) {
  if (activity_ == 0) [[likely]]
    return;
  trace::Event event;
  event.what = trace::What::run;
  event.phase = trace::Phase::ends;
  event.id = std::exchange(activity_, 0);
  event.status = static_cast<int16_t>(status);
  if (trace::on()) trace::record_now(event);
}

Status tw_plan::trigger(tw_queue* on) {
  const trace::Span span(trace::What::trigger);
  if (!prepared_) return fail(TW_ERR_INVALID, "the plan is not prepared: call tw_plan_prepare");
  if (Status s = failure_.any() ? failure_.now() : failure_.check_ranks(); is_error(s)) return s;
  EnqueueTurn turn(failure_.areas());
  if (Status s = turn.take(); is_error(s)) return s;
  if (on == nullptr) return runs_.start_by_host();
  if (&on->executor != executor_) {
    return fail(TW_ERR_INVALID, "the plan is run by %s, and this queue belongs to %s", executor_->name().c_str(),
                on->executor.name().c_str());
  }
  const bool known = runs_.last_queue() == on;
  if (Status s = runs_.start(*on); is_error(s)) return s;
  if (!known) on->note(*this);
  return TW_OK;
}

/// Counts a run. First of all: another thread that takes a channel over, and writes that before it asks, sees the run or is seen by it.
Status PlanRuns::claim(const void* by) {
  versions_.runs()->fetch_add(1);
  if (channels_.owned(by)) [[likely]]
    return TW_OK;
  versions_.runs()->fetch_sub(1);
  const std::lock_guard lock(proxy_.mutex());
  if (Status s = channels_.take_over(by); is_error(s)) return s;
  versions_.runs()->fetch_add(1);
  return TW_OK;
}

Status PlanRuns::start(tw_queue& on) {
  if (Status s = enqueue(on); is_error(s)) return s;
  last_queue_ = &on;
  if (carried_.carrier() != nullptr && executor_->device() != nullptr) proxy_.hurry();
  return TW_OK;
}

/// Groups' kernels come one after the other.
Status PlanRuns::order(Queue& on, const tw_queue* of) {
  for (ExchangeArea* const ranks : failure_.areas()) {
    if (Status s = ranks->order(on, of); is_error(s)) return s;
  }
  return TW_OK;
}

Status PlanRuns::note(Queue& on, const tw_queue* of) {
  for (ExchangeArea* const ranks : failure_.areas()) {
    if (Status s = ranks->note(on, of); is_error(s)) return s;
  }
  return TW_OK;
}

Status PlanRuns::launch(Queue& on, tw_queue* of) {
  if (Status s = order(on, of); is_error(s)) return s;
  waited_ahead_ = program_.has_wait_ahead(of != nullptr ? of->waits : TW_WAITS_AUTO);
  if (waited_ahead_) {
    if (Status s = program_.wait_ahead(on, run(0).guard); is_error(s)) return s;
  }
  for (size_t part = 0; part < program_.parts(); ++part) {
    ProgramRun program = run(part);
    if (of == nullptr && tells_over_ && part + 1 == program_.parts())
      program.over = reinterpret_cast<uint64_t>(failure_.over_word());
    const Status status = on.run(program);
    if (is_error(status)) return give_up(on, status, waited_ahead_ || part != 0, "not all kernels of a run could be launched");
  }
  const Status noted = note(on, of);
  return is_error(noted) ? give_up(on, noted, true, "its queue broke") : noted;
}

/// begun: nothing comes behind the kernel that waits, or behind the first programs.
Status PlanRuns::give_up(Queue& on, Status status, bool begun, const char* why) {
  if (!begun) return status;
  failure_.fail_step(0, status, why);
  (void)on.synchronize();
  (void)failure_.now();  // its groups hear of it: other ranks wait for the kernels that are missing
  return status;
}

Status PlanRuns::enqueue(tw_queue& on) {
  const std::lock_guard order(on.order);
  const bool captured = on.queue->capture_state() != CaptureState::none;
  if (!captured && on.capturing) on.leave_captured();  // the program has ended that capture by itself
  if (Status s = claim(on.queue.get()); is_error(s)) return s;
  if (captured) versions_.runs()->fetch_sub(1);
  if (Status s = launch(*on.queue, &on); is_error(s)) {
    if (!captured) versions_.runs()->fetch_sub(1);
    return s;
  }
  on.waited_ahead = on.waited_ahead || (waited_ahead_ && !captured);
  if (!captured) {
    count_run();
    return came_behind(*on.queue);
  }
  if (!on.capturing) {
    versions_.newest()->for_good = true;
  } else {
    ++on.captured[versions_.newest()];
  }
  return TW_OK;
}

Status PlanRuns::start_by_host() {
  if (under_way_) return fail(TW_ERR_BUSY, "the plan is still running: wait for it with tw_plan_finish");
  Status status = TW_IN_PROGRESS;
  const uint64_t began = trace::on() ? cpu_ticks() : 0;
  if (executor_->device() == nullptr) {
    if (Status s = claim(this); is_error(s)) return s;
    if (host_run_ == nullptr) host_run_ = std::make_unique<HostProgram>(run(0));
    if (Status s = host_run_->start(); is_error(s)) {
      versions_.runs()->fetch_sub(1);
      return s;
    }
    status = host_run_->advance();
  } else {
    if (own_queue_ == nullptr) {
      if (Status s = executor_->device()->make_queue(&own_queue_); is_error(s)) return s;
    }
    if (Status s = claim(own_queue_.get()); is_error(s)) return s;
    tells_over_ = run(program_.parts() - 1).exchange == nullptr;
    __atomic_store_n(failure_.over_word(), uint64_t{0}, __ATOMIC_RELAXED);
    if (Status s = launch(*own_queue_, nullptr); is_error(s)) {
      versions_.runs()->fetch_sub(1);
      return s;
    }
    if (Status s = came_behind(*own_queue_); is_error(s)) {
      under_way_ = true;
      return s;
    }
    if (carried_.carrier() != nullptr) proxy_.hurry();
  }
  count_run();
  if (began != 0) [[unlikely]]
    trace_begin(began);
  under_way_ = status == TW_IN_PROGRESS;
  if (!under_way_) trace_end(status);
  return is_error(status) ? failure_.now() : Status{TW_OK};
}

/// Every launched block ends as part of a run that is counted, or in vain (devices/program/ownership.hpp). A run's last
/// blocks are released after its count, so these are read last. Any thread, under the proxy's mutex or the user's
/// own order of calls.
Status PlanRuns::runs_over() const {
  for (const OwnerWords& part : owner_words_) {
    if (const Status s = part_over(part); s != TW_OK) return s;
  }
  if (marking_ != 0) return TW_IN_PROGRESS;
  for (const auto& [queue, event] : marks_) {
    if (event->query() == TW_IN_PROGRESS) return TW_IN_PROGRESS;
  }
  return TW_OK;
}

Status PlanRuns::runs_over_now() const {
  const std::lock_guard lock(proxy_.mutex());
  return runs_over();
}

/// The event is recorded under no lock, as a full queue takes it when a run ends, which may need the proxy. So it is when the queue is
/// waited for, without an event. Until then no run is over.
Status PlanRuns::mark(Queue& on) {
  std::unique_ptr<Event> event;
  {
    const std::lock_guard lock(proxy_.mutex());
    ++marking_;
    if (const auto found = marks_.find(&on); found != marks_.end()) event = std::move(marks_.extract(found).mapped());
  }
  const bool made = event != nullptr || !is_error(executor_->device()->make_event(&event));
  const bool recorded = made && !is_error(on.record(*event));
  const Status status = recorded ? Status{TW_OK} : on.synchronize();
  const std::lock_guard lock(proxy_.mutex());
  --marking_;
  if (recorded) marks_[&on] = std::move(event);
  return status;
}

Status PlanRuns::load_words(uint64_t* to, uint64_t from, size_t count) const {
  if (executor_->device() != nullptr) return executor_->load(to, from, count * sizeof *to);
  for (size_t i = 0; i < count; ++i) to[i] = __atomic_load_n(reinterpret_cast<const uint64_t*>(from) + i, __ATOMIC_ACQUIRE);
  return TW_OK;
}

/// The first `runs` runs have ended, or their blocks in vain.
Status PlanRuns::part_counted(const OwnerWords& part, uint64_t runs) const {
  const uint64_t due = runs * part.blocks;
  uint64_t ended = 0, vain = 0;
  if (Status s = load_words(&ended, part.state + offsetof(device::ProgramState, runs), 1); is_error(s)) return s;
  if (ended * part.blocks >= due) return TW_OK;
  if (Status s = load_words(&vain, part.words + device::kMostOwners * sizeof vain, 1); is_error(s)) return s;
  return ended * part.blocks + vain < due ? Status{TW_IN_PROGRESS} : Status{TW_OK};
}

Status PlanRuns::part_over(const OwnerWords& part) const {
  const uint64_t runs = versions_.runs()->load();
  if (runs == 0) return TW_OK;
  if (Status s = part_counted(part, runs); s != TW_OK) return s;
  if (part.held == 0) return TW_OK;
  std::vector<uint64_t> words(part.held);
  if (Status s = load_words(words.data(), part.words, words.size()); is_error(s)) return s;
  const auto held = [](uint64_t word) { return (word & 1) != 0 && (word & device::kClosed) == 0; };
  return std::any_of(words.begin(), words.end(), held) ? Status{TW_IN_PROGRESS} : Status{TW_OK};
}

/// Runs of graphs that nobody here sees launched are counted when they end, but not when they begin: then all are to be over.
bool PlanRuns::past(uint64_t runs) const {
  if (versions_.unseen()) return runs_over() == TW_OK;
  return std::all_of(owner_words_.begin(), owner_words_.end(),
                     [&](const OwnerWords& part) { return part_counted(part, runs) == TW_OK; });
}

Status PlanRuns::at_rest() {
  if (under_way_ && test() == TW_IN_PROGRESS) return fail(TW_ERR_BUSY, "the plan is still running");
  const Status status = runs_over();
  if (status != TW_IN_PROGRESS) return status;
  return fail(TW_ERR_BUSY, failure_.recorded()
                               ? "the plan has failed, and queues have more runs of it, which do nothing: synchronize them"
                               : "the plan is still running on a queue");
}

/// The word tells it microseconds before the queue; the queue knows how a kernel broke.
Status PlanRuns::test_device() {
  constexpr unsigned kPolls = 16;
  if (tells_over_ && __atomic_load_n(failure_.over_word(), __ATOMIC_ACQUIRE) != 0) return TW_OK;
  if (tells_over_ && !failure_.any() && ++polls_ % kPolls != 0) return TW_IN_PROGRESS;
  return own_queue_->query();
}

Status PlanRuns::test() {
  if (!under_way_) return failure_.now();
  const Status status = executor_->device() != nullptr ? test_device() : host_run_->advance();
  if (status == TW_IN_PROGRESS) return status;
  under_way_ = false;
  trace_end(status);
  if (const Status failed = failure_.now(); is_error(failed)) return failed;
  return status;
}
