// SPDX-License-Identifier: Apache-2.0
// Runs of a prepared plan, and how they failed.
#include <algorithm>

#include "core/c_checks.hpp"
#include "devices/program/program_executor.hpp"
#include "plans/queue.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

std::string thalweg::impl::text_of(const tw_plan& plan, const device::Failure& failure) {
  const auto code = static_cast<Status>(failure.code);
  if (code == TW_ERR_CLOSED) return "a queue ended, or broke, before it had run what it was given. Prepare the plan again";
  if (failure.what >= plan.owner.size()) return status_name(code);
  const uint32_t index = plan.owner[failure.what];
  const PlanStep& step = plan.steps[index];
  std::string text = "step " + std::to_string(index) + " (" + name_of(step.op.verb);
  if (plan.resolved[index].channel != nullptr) text += ", channel " + std::to_string(step.op.tag);
  text += ")";
  if (const uint64_t id = plan.resolved[index].peer_id; id != 0) {
    char peer[64];
    std::snprintf(peer, sizeof peer, ", peer %016llx", static_cast<unsigned long long>(id));
    text += peer;
  }
  if (code == TW_ERR_BUSY) return text + ": the plan was triggered while it was still running";
  const bool waited = code == TW_ERR_TIMED_OUT;
  text += waited ? ": nothing came in time" : std::string(": ") + status_name(code);
  return text + "; waited for " + std::to_string(failure.expected) + ", found " + std::to_string(failure.found) +
         ". The plan does nothing more until it is prepared again";
}

Status tw_plan::failure_now() {
  if (failure == nullptr) return TW_OK;
  // acquire: the record was filled in before its code
  auto code = static_cast<Status>(static_cast<int64_t>(__atomic_load_n(&failure->code, __ATOMIC_ACQUIRE)));
  const bool recorded = is_error(code);
  if (!recorded) code = static_cast<Status>(static_cast<int64_t>(__atomic_load_n(abort_word, __ATOMIC_ACQUIRE)));
  if (!is_error(code)) return TW_OK;
  std::string text;
  {
    const std::lock_guard lock(mutex);
    text = proxy_why.empty() && !recorded ? channel_why : proxy_why;
  }
  if (code != TW_ERR_BUSY) {  // the peers' waits end too
    const std::lock_guard proxies(proxy.mutex());
    for (const ChannelUse& use : channels)
      use.channel->fail_end(use.epoch, code, text.empty() ? "a plan at the peer failed" : text);
  }
  if (text.empty()) text = text_of(*this, *failure);
  return fail(code, "%s", text.c_str());
}

Status tw_plan::check() {
  {
    const std::lock_guard lock(mutex);
    if (told) return TW_OK;
  }
  const Status status = failure_now();
  const std::lock_guard lock(mutex);
  told = is_error(status);
  return status;
}

/// A channel is an ordered pipe: another queue takes it over only when the plans that use it have nothing more to do. They are
/// asked, not the queue: it may be a stream that is not there any more.
Status tw_plan::claim_channels(Queue* queue) {
  const auto claimed = [queue](const ChannelUse& use) { return use.channel->queue.load(std::memory_order_relaxed) == queue; };
  if (std::all_of(channels.begin(), channels.end(), claimed)) return TW_OK;
  const std::lock_guard lock(proxy.mutex());
  for (const ChannelUse& use : channels) {
    const Queue* const other = use.channel->queue;
    if (other == nullptr || other == queue) continue;
    for (const Channel::User* user : use.channel->users()) {
      const Status status = user->runs_over();
      if (status == TW_OK) continue;
      if (is_error(status)) return status;
      return fail(TW_ERR_BUSY, "channel %llu is in use by another queue: order the queues, or use another channel",
                  static_cast<unsigned long long>(use.channel->name.tag));
    }
  }
  for (const ChannelUse& use : channels) use.channel->queue = queue;
  return TW_OK;
}

ProgramRun tw_plan::run_of() const {
  ProgramRun run;
  run.steps = program;
  run.after = program_after;
  run.placed = placed;
  run.state = state;
  run.guard = {poison_of(state), failure, reinterpret_cast<const device::u64*>(abort_word), limit_ns()};
  run.shape = shape;
  if (executor->device() == nullptr) run.carrier = carried;
  return run;
}

/// Steps that the runner moves itself: sends, puts, gets and atomic operations.
void tw_plan::note_moves() {
  moves_.clear();
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlanStep& step = steps[i];
    const bool moves =
        step.op.verb == Verb::send || step.op.verb == Verb::put || step.op.verb == Verb::get || step.op.verb == Verb::atomic;
    if (!moves || resolved[i].proxied || step.op.length == 0) continue;
    const Way way = way_of_step(executor->device() != nullptr, step.op.verb == Verb::get);
    auto at = std::find_if(moves_.begin(), moves_.end(), [way](const Moves& one) { return one.way == way; });
    if (at == moves_.end()) at = moves_.insert(at, {way, {}});
    ++at->each.operations;
    at->each.bytes += step.op.length;
  }
}

void tw_plan::count_run() {
  for (const Moves& one : moves_) moved_.count(one.way, one.each.bytes, one.each.operations);
}

Status tw_plan::trigger(tw_queue* on) {
  if (!prepared) return fail(TW_ERR_INVALID, "the plan is not prepared: call tw_plan_prepare");
  if (Status s = failure_now(); is_error(s)) return s;
  if (on == nullptr) return trigger_by_host();
  if (&on->executor != executor) {
    return fail(TW_ERR_INVALID, "the plan is run by %s, and this queue belongs to %s", executor->name().c_str(),
                on->executor.name().c_str());
  }
  if (Status s = claim_channels(on->queue.get()); is_error(s)) return s;
  if (Status s = enqueue(*on); is_error(s)) return s;
  if (last_queue != on) on->note(*this);
  last_queue = on;
  if (carried != nullptr && executor->device() != nullptr) proxy.hurry();
  return TW_OK;
}

Status tw_plan::launch(Queue& on, uint32_t waits) {
  waited_ahead = !ahead.waits.empty() && (waits == TW_WAITS_AHEAD || (waits == TW_WAITS_AUTO && holds_many()));
  if (waited_ahead) {
    if (Status s = wait_ahead(on); is_error(s)) return s;
  }
  const Status status = on.run(run_of());
  if (is_error(status) && waited_ahead) {  // nothing comes behind the kernel that waits
    fail_run(0, status, "the program could not be launched behind its waits");
    (void)on.synchronize();
  }
  return status;
}

Status tw_plan::enqueue(tw_queue& on) {
  const std::lock_guard order(on.order);
  const bool captured = on.queue->capture_state() != CaptureState::none;
  if (!captured) runs_due->fetch_add(1);
  if (Status s = launch(*on.queue, on.waits); is_error(s)) {
    if (!captured) runs_due->fetch_sub(1);
    return s;
  }
  on.waited_ahead = on.waited_ahead || (waited_ahead && !captured);
  if (!captured) {
    count_run();
    return TW_OK;
  }
  if (on.of_stream) {
    version->for_good = true;
  } else {
    ++on.captured[version];
  }
  return TW_OK;
}

Status tw_plan::trigger_by_host() {
  if (under_way) return fail(TW_ERR_BUSY, "the plan is still running: wait for it with tw_plan_finish");
  Status status = TW_IN_PROGRESS;
  if (executor->device() == nullptr) {
    if (Status s = claim_channels(nullptr); is_error(s)) return s;
    if (host_run == nullptr) host_run = std::make_unique<HostProgram>(run_of());
    runs_due->fetch_add(1);
    if (Status s = host_run->start(); is_error(s)) {
      runs_due->fetch_sub(1);
      return s;
    }
    status = host_run->advance();
  } else {
    if (own_queue == nullptr) {
      if (Status s = executor->device()->make_queue(&own_queue); is_error(s)) return s;
    }
    if (Status s = claim_channels(own_queue.get()); is_error(s)) return s;
    runs_due->fetch_add(1);
    if (Status s = launch(*own_queue, TW_WAITS_AUTO); is_error(s)) {
      runs_due->fetch_sub(1);
      return s;
    }
    if (carried != nullptr) proxy.hurry();
  }
  count_run();
  under_way = status == TW_IN_PROGRESS;
  return is_error(status) ? failure_now() : Status{TW_OK};
}

/// Every launched block ends as part of a run that is counted, or in vain (devices/program/ownership.hpp). A run's last
/// blocks are released after its count, so these are read last. Any thread, under the proxy's mutex or the user's
/// own order of calls.
Status tw_plan::runs_over() const {
  if (owner_words_.count == 0) return TW_OK;
  const auto load = [this](uint64_t* to, uint64_t from, size_t count) {
    if (executor->device() != nullptr) return executor->load(to, from, count * sizeof *to);
    for (size_t i = 0; i < count; ++i) to[i] = __atomic_load_n(reinterpret_cast<const uint64_t*>(from) + i, __ATOMIC_ACQUIRE);
    return Status{TW_OK};
  };
  const uint64_t due = runs_due->load() * owner_words_.count;
  if (due == 0) return TW_OK;
  uint64_t runs = 0, vain = 0;
  if (Status s = load(&runs, state + offsetof(device::ProgramState, runs), 1); is_error(s)) return s;
  if (runs * owner_words_.count < due) {
    if (Status s = load(&vain, owner_words_.words + device::kMostOwners * sizeof vain, 1); is_error(s)) return s;
    if (runs * owner_words_.count + vain < due) return TW_IN_PROGRESS;
  }
  std::vector<uint64_t> words(owner_words_.count);
  if (Status s = load(words.data(), owner_words_.words, words.size()); is_error(s)) return s;
  const auto held = [](uint64_t word) { return (word & 1) != 0 && (word & device::kClosed) == 0; };
  return std::any_of(words.begin(), words.end(), held) ? Status{TW_IN_PROGRESS} : Status{TW_OK};
}

Status tw_plan::at_rest() {
  if (under_way && test() == TW_IN_PROGRESS) return fail(TW_ERR_BUSY, "the plan is still running");
  const Status status = runs_over();
  if (status != TW_IN_PROGRESS) return status;
  return fail(TW_ERR_BUSY, failed() ? "the plan has failed, and queues have more runs of it, which do nothing: synchronize them"
                                    : "the plan is still running on a queue");
}

Status tw_plan::test() {
  if (!under_way) return failure_now();
  const Status status = executor->device() != nullptr ? own_queue->query() : host_run->advance();
  if (status == TW_IN_PROGRESS) return status;
  under_way = false;
  if (const Status failed = failure_now(); is_error(failed)) return failed;
  return status;
}

void tw_plan::on_channel_failed(Status status, const std::string& why) {
  {
    const std::lock_guard lock(mutex);
    if (channel_why.empty()) channel_why = why;
  }
  __atomic_store_n(abort_word, static_cast<uint64_t>(int64_t{status}), __ATOMIC_RELEASE);
}

/// A proxied step failed: the executor's wait ends, and the record has why. Any thread.
void tw_plan::fail_run(uint32_t index, Status status, const char* why) {
  {
    const std::lock_guard lock(mutex);
    proxy_why = "step " + std::to_string(index) + " (" + name_of(steps[index].op.verb) + "), carried by the host: " + why;
  }
  __atomic_store_n(abort_word, static_cast<uint64_t>(int64_t{status}), __ATOMIC_RELEASE);
}
