// SPDX-License-Identifier: Apache-2.0
#include "plans/queue.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>

#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "core/hello.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl {
namespace {

/// Every queue of this process, for tw_stream_check and for plans that end.
struct Queues {
  std::mutex mutex;
  std::set<tw_queue*> all;
  std::map<std::pair<Executor*, void*>, tw_queue*> streams;
};
Queues& queues() {
  static auto* const all = new Queues;  // streams may be looked at until exit
  return *all;
}

}  // namespace

Status check(const tw_queue* queue) {
  if (queue == nullptr) return fail(TW_ERR_INVALID, "the queue is NULL");
  return queue->born.check("queue");
}

Status queue_of_stream(tw_plan& plan, void* stream, tw_queue** out) {
  Executor& executor = *plan.executor();
  if (executor.device() == nullptr) {
    return fail(TW_ERR_INVALID, "the host runs this plan: trigger it on a queue of the place \"host\", or without a queue");
  }
  Queues& known = queues();
  const std::lock_guard lock(known.mutex);
  auto found = known.streams.find({&executor, stream});
  if (found == known.streams.end()) {
    std::unique_ptr<Queue> wrapped;
    if (Status s = executor.device()->wrap_queue(stream, &wrapped); is_error(s)) return s;
    auto made = std::make_unique<tw_queue>(plan.proxy, executor);
    made->open(std::move(wrapped), TW_WAITS_AUTO);
    made->of_stream = true;
    known.all.insert(made.get());
    found = known.streams.emplace(std::pair{&executor, stream}, made.release()).first;
  }
  *out = found->second;
  found->second->note(plan);
  return TW_OK;
}

void register_queue(tw_queue* queue) {
  const std::lock_guard lock(queues().mutex);
  queues().all.insert(queue);
}

Status come_behind(Queue& queue, uint64_t number) {
  const std::lock_guard lock(queues().mutex);
  for (tw_queue* known : queues().all) {
    if (known->number != number) continue;
    if (known->queue->capture_state() != CaptureState::none)
      return fail(TW_ERR_BUSY, "the group's last collective is on a queue that is captured now: end that capture first");
    std::unique_ptr<Event> event;
    if (Status s = queue.device()->make_event(&event); is_error(s)) return s;
    if (Status s = known->queue->record(*event); is_error(s)) return s;
    return queue.wait_event(*event);
  }
  return TW_OK;
}

/// Under the lock: a wrapper may go with its last plan, and another thread may end a user's queue.
Status check_stream(const void* stream) {
  const std::lock_guard lock(queues().mutex);
  for (tw_queue* queue : queues().all) {
    if (queue->queue->native() != stream) continue;
    if (Status s = queue->check(); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace thalweg::impl

using namespace thalweg::impl;

uint64_t tw_queue::next_number() {
  static std::atomic<uint64_t> made = 0;
  return made.fetch_add(1, std::memory_order_relaxed) + 1;
}

void tw_queue::open(std::unique_ptr<Queue> of, uint32_t waits_) {
  queue = std::move(of);
  waits = waits_;
}

/// What is captured ends with the queue, as a queue that is captured cannot be waited for.
void tw_queue::discard_capture() {
  if (queue->capture_state() == CaptureState::none) return;
  std::unique_ptr<Graph> discarded;
  (void)queue->end_capture(&discarded);
}

/// Until it is waited for, others find it (come_behind), and plans of other threads' that end (forget).
tw_queue::~tw_queue() {
  Queues& known = queues();
  bool of_groups = false;
  {
    const std::lock_guard lock(known.mutex);
    of_groups = std::any_of(noted_.begin(), noted_.end(), [](const tw_plan* plan) { return plan->has_kernels(); });
  }
  // A group's next kernel, on whichever queue, comes behind this one's. A stream's wrapper goes with plans whose runs are over; the
  // stream is its user's, and may not be there any more, or be captured.
  if (!of_stream && (waited_ahead || of_groups || !kept_.empty())) {
    discard_capture();
    (void)queue->synchronize();  // a run that waits has begun; bounded: every wait of a plan is
  }
  // A run that could not be waited for: the plan stays, its buffer is not ours. So it does while a peer is in the middle of a message,
  // but with the proxy, which ends it then.
  std::vector<tw_plan*> left;
  for (const auto& [key, one] : kept_) {
    if (drop(one) || is_error(one.plan->at_rest())) continue;
    one.plan->leave_endpoints();
    left.push_back(one.plan);
  }
  {
    const std::lock_guard lock(known.mutex);
    known.all.erase(this);
    for (tw_plan* plan : noted_) plan->forget(*this);
  }
  leave_captured();
  proxy.forget(queue.get());
  queue.reset();
  proxy.release_left(false);
  for (tw_plan* const plan : left) proxy.leave(plan);
  proxy.users_.fetch_sub(1);
}

void tw_queue::note(tw_plan& plan) {
  const std::lock_guard lock(mutex_);
  noted_.insert(&plan);
}

void tw_queue::forget(tw_plan& plan) {
  std::vector<std::unique_ptr<tw_queue>> gone;  // outside the lock
  Queues& known = queues();
  const std::lock_guard lock(known.mutex);
  for (tw_queue* queue : known.all) {
    const std::lock_guard inner(queue->mutex_);
    if (queue->noted_.erase(&plan) == 0) continue;
    plan.forget(*queue);  // its next run is noted again
    if (queue->of_stream && queue->noted_.empty()) gone.emplace_back(queue);
  }
  for (const auto& queue : gone) {
    known.all.erase(queue.get());
    known.streams.erase({&queue->executor, queue->queue->native()});
  }
}

void tw_queue::leave_captured() {
  for (const auto& [version, runs] : captured) version->for_good = true;
  captured.clear();
  capturing = false;
}

void tw_graph::count(bool back) {
  for (const auto& [version, of_launch] : runs)
    back ? version->runs->fetch_sub(of_launch) : version->runs->fetch_add(of_launch);
}

/// As PlanRuns::claim.
Status tw_graph::begin(tw_queue& on) {
  bool owned = true;
  count(false);
  for (const auto& [version, of_launch] : runs) {
    const PlanRuns* const plan = version->plan;
    if (plan == nullptr) {
      count(true);
      return fail(TW_ERR_STALE, "a plan of the graph was destroyed, or prepared again: capture the graph anew");
    }
    owned = owned && plan->owns_channels(*on.queue);
  }
  if (owned) return TW_OK;
  count(true);
  const std::lock_guard lock(on.proxy.mutex());
  for (const auto& [version, of_launch] : runs) {
    if (Status s = version->plan.load()->take_channels(*on.queue); is_error(s)) return s;
  }
  count(false);
  return TW_OK;
}

Status tw_queue::check() {
  const std::lock_guard lock(mutex_);
  for (tw_plan* plan : noted_) {
    if (Status s = plan->check(); is_error(s)) return s;
  }
  return TW_OK;
}

namespace {

/// A contiguous layout is not kept by plans, so another one may come to lie where it did: what it says, else which one it is.
void add_layout(const tw_layout* layout, std::string* key) {
  const bool kept = layout != nullptr && !layout->contiguous();
  const uint64_t says[] = {kept ? reinterpret_cast<uint64_t>(layout) : 0, layout != nullptr && !kept ? layout->bytes + 1 : 0,
                           layout != nullptr && !kept ? static_cast<uint64_t>(layout->start) : 0};
  key->append(reinterpret_cast<const char*>(says), sizeof says);
}

}  // namespace

Status tw_queue::Keeping::take() {
  const std::thread::id me = std::this_thread::get_id();
  if (queue_.keeper_.load(std::memory_order_relaxed) == me) {
    return fail(
        TW_ERR_BUSY,
        "this queue prepares an operation in this thread, and called this one meanwhile: call it when that has returned");
  }
  if (!may_be_interrupted()) {
    queue_.keeping_.lock();
  } else {
    while (!queue_.keeping_.try_lock()) {
      if (Status s = interrupted(); is_error(s)) return s;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  queue_.keeper_.store(me, std::memory_order_relaxed);
  return TW_OK;
}

tw_queue::Keeping::~Keeping() {
  if (is_error(status_)) return;
  queue_.keeper_.store({}, std::memory_order_relaxed);
  queue_.keeping_.unlock();
}

/// Operations are alike where their plan may run for both. Handles are named by what is not given again.
Status tw_queue::kept(PlanStep&& step, const tw_op_options& options, const Work& run) {
  uint64_t endpoint = 0;
  if (step.endpoint != nullptr) {
    if (Status s = Proxy::check_peer(*step.endpoint); is_error(s)) return s;
    if (Status s = say_hello(*step.endpoint, &endpoint); is_error(s)) return s;
  }
  const void* const channel[] = {reinterpret_cast<const void*>(endpoint), reinterpret_cast<const void*>(step.op.tag),
                                 reinterpret_cast<const void*>(uint64_t{static_cast<uint8_t>(step.op.verb)})};
  const void* const parts[] = {
      reinterpret_cast<const void*>((uint64_t{step.op.word} << 16) | (uint64_t{step.op.atomic_op} << 8) | options.signal_op),
      reinterpret_cast<const void*>(step.address()),
      reinterpret_cast<const void*>(step.op.length),
      step.op.remote,
      step.op.signal != nullptr ? static_cast<const void*>(step.op.signal) : options.signal,
      reinterpret_cast<const void*>(step.op.remote_offset),
      step.waited != nullptr ? step.waited->word : nullptr};
  Key key{"step", 4 + sizeof channel};
  key.text.append(reinterpret_cast<const char*>(channel), sizeof channel);
  key.text.append(reinterpret_cast<const char*>(parts), sizeof parts);
  add_layout(options.layout, &key.text);
  add_layout(options.remote_layout, &key.text);
  key.text.append(reinterpret_cast<const char*>(step.sources.data()), step.sources.size() * sizeof(ReduceSource));
  std::vector<const void*> buffers{step.op.address, reinterpret_cast<const void*>(step.there())};
  for (const ReduceSource& source : step.sources) buffers.push_back(reinterpret_cast<const void*>(source.address));
  const bool values = step.op.verb == Verb::wait || step.op.verb == Verb::signal;
  const uint64_t value = values ? step.op.signal_value : options.signal_value;
  const Keeping keeping(*this);
  if (is_error(keeping.status())) return keeping.status();
  const auto found = find(key.text);
  if (found != kept_.end()) {
    found->second.plan->set_value(0, value);
    found->second.plan->set_waited(0, step.waited);  // another signal at the same word
  }
  return enqueue(found, key, buffers, [&](tw_plan& plan) { return plan.add(std::move(step), options, nullptr); }, run);
}

Status tw_queue::kept(const Key& key, Buffers buffers, const Work& fill, const Work& run) {
  const Keeping keeping(*this);
  return is_error(keeping.status()) ? keeping.status() : enqueue(find(key.text), key, buffers, fill, run);
}

/// Under keeping_, as all of the following. One whose memory has gone is set aside: its runs may be under way, or in graphs.
tw_queue::AllKept::iterator tw_queue::find(const std::string& key) {
  const auto found = kept_.find(key);
  if (found == kept_.end() || !has_moved(found->second)) return found;
  auto aside = kept_.extract(found);
  aside.key() += '\0' + std::to_string(++calls_);
  kept_.insert(std::move(aside));
  return kept_.end();
}

/// found: by find(key.text).
Status tw_queue::enqueue(AllKept::iterator found, const Key& key, Buffers buffers, const Work& fill, const Work& run) {
  const bool known = found != kept_.end();
  if (Status s = known ? ready(*found->second.plan) : keep(key, buffers, fill); is_error(s)) return s;
  if (!known) found = kept_.find(key.text);
  found->second.used = ++calls_;
  return run(*found->second.plan);
}

Status tw_queue::refuse_in_capture(const char* what) {
  if (queue->capture_state() == CaptureState::none) return TW_OK;
  return fail(TW_ERR_INVALID,
              "this operation %s, and preparing it cannot be captured: call it once before the capture, or prepare a plan",
              what);
}

/// Behind a failure that was told, and where that did not succeed before, it is prepared again.
Status tw_queue::ready(tw_plan& plan) {
  if (plan.prepared() && !plan.failure_told()) return TW_OK;
  if (Status s = refuse_in_capture("has failed on the queue"); is_error(s)) return s;
  return plan.prepare(0);
}

/// Of the library, a device, or pinned: no other one has its number. 0: the program's own memory, which peers know by its address.
/// ask: also of what no device can own, which may be pinned.
uint64_t tw_queue::allocation_at(const void* address, bool ask) const {
  uint64_t segment = 0, offset = 0;
  if (proxy.context.registry->find_segment(address, 1, &segment, &offset)) return segment;
  if (address == nullptr || (!ask && !may_be_on_device(address))) return 0;
  BufferInfo info;
  return find_device(reinterpret_cast<uint64_t>(address), &info) == TW_OK ? info.buffer_id : 0;
}

tw_queue::Buffer tw_queue::buffer_at(const void* address) const {
  BufferInfo info;
  return {address, allocation_at(address, true), address != nullptr && on_device(address, &info)};
}

/// Kernels of collectives use nothing but the address, which memory of the host has to be pinned for.
bool tw_queue::has_moved(const Kept& one) const {
  const bool by_address = one.plan->prepared() && one.plan->has_kernels();
  return std::any_of(one.buffers.begin(), one.buffers.end(), [&](const Buffer& was) {
    return !(by_address && was.of_device) && allocation_at(was.address, was.allocation != 0) != was.allocation;
  });
}

bool tw_queue::uses(const void* address, size_t length) {
  if (keeper_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return true;
  const std::unique_lock lock(keeping_, std::try_to_lock);
  if (!lock.owns_lock()) return true;
  const auto first = reinterpret_cast<uintptr_t>(address);
  const auto lies_there = [&](const Buffer& one) {
    const auto at = reinterpret_cast<uintptr_t>(one.address);
    return one.address != nullptr && at >= first && at - first < std::max<size_t>(length, 1);
  };
  const auto any_lies_there = [&](const std::vector<Buffer>& all) { return std::any_of(all.begin(), all.end(), lies_there); };
  drop_returned();
  if (std::any_of(owed_.begin(), owed_.end(), [&](const Owed& one) { return any_lies_there(one.buffers); })) return true;
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& one) {
    const Kept& kept = one.second;
    return any_lies_there(kept.buffers) && may_use_buffers(*kept.plan);
  });
}

/// What peers have given back since then.
void tw_queue::drop_returned() {
  std::erase_if(owed_, [](const Owed& one) {
    return std::all_of(one.lives.begin(), one.lives.end(), [](const auto& life) { return life.expired(); });
  });
}

/// Behind a failure what peers had under way may still come, until both sides have prepared again.
bool tw_queue::may_use_buffers(tw_plan& plan) {
  return plan.captured() || (plan.prepared() && (plan.has_failed() || is_error(plan.at_rest())));
}

/// False: it has runs under way. Peers that stand still may keep its buffers.
bool tw_queue::drop(const Kept& one) {
  tw_plan& plan = *one.plan;
  if (plan.prepared() && is_error(plan.at_rest())) return false;
  forget(plan);  // first: other threads may ask queues how their plans are
  if (is_error(plan.release())) return false;
  if (!plan.owed().empty()) owed_.push_back({one.buffers, proxy.lives_of(plan.owed())});
  delete &plan;
  return true;
}

/// Plans that can run no more, because their group or a window has gone, and those whose memory has.
void tw_queue::drop_ended() {
  drop_returned();
  std::erase_if(kept_, [this](const auto& one) {
    const Kept& kept = one.second;
    return (kept.plan->has_ended() || (!kept.plan->captured() && has_moved(kept))) && drop(kept);
  });
}

/// The one that was not used for the longest time, of those that have nothing under way, and that no graph runs.
bool tw_queue::drop_oldest(std::vector<AllKept::iterator> of) {
  std::sort(of.begin(), of.end(), [](const auto& a, const auto& b) { return a->second.used < b->second.used; });
  for (const auto& one : of) {
    if (one->second.plan->captured() || !drop(one->second)) continue;
    kept_.erase(one);
    return true;
  }
  return false;
}

/// In the channels that it shares with others, ahead of need: what a sender had under way when a buffer went has to be over before its
/// number is another one's, and may wait for this plan.
void tw_queue::leave_room(const Key& key, uint32_t receives) {
  constexpr uint32_t kMost = Channel::kRecvBuffers * 3 / 4;
  for (;;) {
    std::vector<AllKept::iterator> sharing;
    uint32_t taken = receives;
    const std::string_view shared(key.text.data(), key.shared);
    for (auto one = kept_.lower_bound(std::string(shared)); one != kept_.end() && one->first.starts_with(shared); ++one) {
      taken += one->second.receives;
      sharing.push_back(one);
    }
    if (taken <= kMost || receives == 0 || !drop_oldest(std::move(sharing))) return;
  }
}

/// Other ranks may have room, and wait for this one's part: it waits for the end of a run, as long as a run may take.
bool tw_queue::await_room(const Deadline& deadline) {
  const std::string why = last_error();
  for (;;) {
    std::vector<AllKept::iterator> all;
    for (auto one = kept_.begin(); one != kept_.end(); ++one) {
      if (!one->second.plan->captured()) all.push_back(one);
    }
    const bool none = all.empty();  // no run's end gives room
    if (drop_oldest(std::move(all))) return true;
    if (none || deadline.passed() || is_error(interrupted())) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  set_last_error(why);
  return false;
}

Status tw_queue::keep(const Key& key, Buffers buffers, const Work& fill) {
  constexpr size_t kMostKept = 1024;
  if (Status s = refuse_in_capture("was not used on the queue before"); is_error(s)) return s;
  const Deadline deadline(30 * kSecond);
  drop_ended();
  if (kept_.size() >= kMostKept && !await_room(deadline)) {
    return fail(TW_ERR_LIMIT, "%zu different operations of this queue are under way, or in graphs: prepare plans for them",
                kMostKept);
  }
  PlanOptions asked;
  asked.place = executor.name();
  asked.kept = true;
  auto plan = std::make_unique<tw_plan>(proxy, asked);
  Kept made{plan.get(), 0, 0, {}};
  for (const void* const address : buffers) made.buffers.push_back(buffer_at(address));
  if (Status s = fill(*plan); is_error(s)) return s;
  made.receives = plan->receives_of_channel();
  leave_room(key, made.receives);
  if (Status s = plan->prepare(0); is_error(s)) return s;
  kept_[key.text] = std::move(made);
  (void)plan.release();
  return TW_OK;
}
