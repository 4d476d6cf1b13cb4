// SPDX-License-Identifier: Apache-2.0
#include "collectives/planned.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/collectives.hpp"
#include "collectives/run.hpp"
#include "core/c_checks.hpp"
#include "groups/exchange.hpp"
#include "plans/c_steps.hpp"
#include "plans/queue.hpp"

namespace thalweg::impl {
namespace {

// Channels of a group: 47 bits for which of its collectives, 16 for a part of the messages between two ranks. Those in plans are
// counted, which all ranks do in the same order. Single ones on queues are told apart by what they are: which buffers they were
// used with, and so how many plans are kept, differs between ranks, whose plans share the channels then.
constexpr unsigned kPartBits = 16;
constexpr uint64_t kOnQueue = uint64_t{1} << 63, kCollectiveMask = (uint64_t{1} << (63 - kPartBits)) - 1;
/// Of one run: a program has at most device::kSlots receives of one channel, and an end buffers for as many plans as fit.
constexpr uint32_t kMessagesPerChannel = 8;
static_assert(kMostMessages / kMessagesPerChannel <= uint64_t{1} << kPartBits);

constexpr uint64_t channels(uint64_t of) { return (of & kCollectiveMask) << kPartBits; }

Status check_planned(const Call& call, const tw_collective_options& options) {
  if (sinks_of(options).named() != 0)
    return fail(TW_ERR_INVALID,
                "%s: tw_plan_test, tw_plan_finish and tw_queue_check tell how a run ended: name no callback, queue, "
                "counter, record or signal",
                call.name);
  if (options.timeout_ns != 0)
    return fail(TW_ERR_INVALID, "%s: the plan's own timeout_ns limits its waits, 30 s those on a queue", call.name);
  if (!call.reduces) return TW_OK;
  if (call.op == TW_REDUCE_USER)
    return fail(TW_ERR_UNSUPPORTED,
                "%s: a function of the caller's is called from progress, which plans do not need: use %s itself", call.name,
                call.name);
  return TW_OK;
}

/// Where no kernel does it.
Status check_steps(const Call& call) {
  if (!call.reduces) return TW_OK;
  if (call.op == TW_REDUCE_AVERAGE || call.op == TW_REDUCE_SCALED_SUM)
    return fail(TW_ERR_UNSUPPORTED,
                "%s: kernels scale sums, and steps of plans do not: use TW_REDUCE_SUM and scale the result, or %s itself",
                call.name, call.name);
  if (call.type > TW_TYPE_UINT8)
    return fail(TW_ERR_UNSUPPORTED,
                "%s: kernels combine elements of %s, and steps of plans do not: use %s itself, with host memory", call.name,
                type_name(call.type), call.name);
  return TW_OK;
}

// ------------------------------------------------------------------------------------------------ steps

/// One schedule on its way into a plan.
class Lowering {
 public:
  Lowering(tw_plan& plan, tw_group& group, const char* name, const CollectiveTask& task, uint64_t first_channel)
      : plan_(plan), group_(group), name_(name), task_(task), first_channel_(first_channel) {}
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;

  Status add(std::span<const uint32_t> after, uint32_t* number);

 private:
  void* address(const Part& part) const { return bases_[static_cast<size_t>(part.where)] + part.offset; }
  Status add_steps(std::span<const uint32_t> after, uint32_t* number);
  Status fill(uint32_t index, PlanStep* out);
  Status fill_message(uint32_t index, PlanStep* out);
  Status fill_reduce(const CollectiveStep& step, PlanStep* out);
  Status add_one(PlanStep&& step, std::span<const uint32_t> after, uint32_t* number);
  void join(uint32_t* number);

  tw_plan& plan_;
  tw_group& group_;
  const char* const name_;
  const CollectiveTask& task_;
  const uint64_t first_channel_;
  std::array<std::byte*, 3> bases_{};  // by Where
  std::vector<uint32_t> numbers_;      // in the plan, by step
  std::vector<bool> followed_;         // another step comes after it
};

Status Lowering::fill_message(uint32_t index, PlanStep* out) {
  const CollectiveStep& step = task_.schedule->steps()[index];
  const uint64_t channel = first_channel_ + task_.schedule->message_of(index) / kMessagesPerChannel;
  const bool sends = step.verb == StepVerb::send;
  tw_endpoint* endpoint = nullptr;
  if (Status s = group_.await_endpoint(step.peer, &endpoint); is_error(s)) return s;
  out->group = group_.id;
  out->of += (sends ? ", to rank " : ", from rank ") + std::to_string(step.peer);
  return sends ? send_step(endpoint, address(step.from), step.from.length, channel, out)
               : recv_step(endpoint, address(step.to), step.to.length, channel, out);
}

Status Lowering::fill_reduce(const CollectiveStep& step, PlanStep* out) {
  std::vector<tw_source> sources;
  for (const Part& part : task_.schedule->sources_of(step)) sources.push_back({address(part), nullptr, 0});
  return reduce_step(address(step.to), sources, step.to.length / task_.element, task_.operation.type, task_.operation.op, out);
}

Status Lowering::fill(uint32_t index, PlanStep* out) {
  const CollectiveStep& step = task_.schedule->steps()[index];
  out->of = name_;
  switch (step.verb) {
    case StepVerb::send:
    case StepVerb::recv:
      return fill_message(index, out);
    case StepVerb::copy:
      return copy_step(address(step.to), address(step.from), address(step.to) == address(step.from) ? 0 : step.to.length, out);
    case StepVerb::reduce:
      return fill_reduce(step, out);
  }
  return TW_OK;
}

Status Lowering::add_one(PlanStep&& step, std::span<const uint32_t> after, uint32_t* number) {
  tw_op_options order = kOpDefaults;
  order.after_steps = after.data();
  order.after_count = after.size();
  return plan_.add(std::move(step), order, number);
}

Status Lowering::add_steps(std::span<const uint32_t> first_after, uint32_t* number) {
  const Schedule& schedule = task_.schedule->schedule();
  numbers_.resize(schedule.steps.size());
  followed_.assign(schedule.steps.size(), false);
  std::vector<uint32_t> after;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    after.clear();
    for (uint32_t k = 0; k < schedule.steps[i].after; ++k) {
      const uint32_t earlier = schedule.after[schedule.steps[i].first_after + k];
      followed_[earlier] = true;
      after.push_back(numbers_[earlier]);
    }
    PlanStep made;
    if (Status s = fill(i, &made); is_error(s)) return s;
    const bool first = after.empty();
    if (Status s = add_one(std::move(made), first ? first_after : std::span<const uint32_t>(after), &numbers_[i]); is_error(s))
      return s;
  }
  if (!numbers_.empty()) {
    join(number);
    return TW_OK;
  }
  PlanStep nothing;  // this rank has no part
  nothing.of = name_;
  if (Status s = copy_step(nullptr, nullptr, 0, &nothing); is_error(s)) return s;
  return add_one(std::move(nothing), first_after, number);
}

/// The last step's number stands for all that nothing follows.
void Lowering::join(uint32_t* number) {
  std::vector<uint32_t> last;
  for (uint32_t i = 0; i + 1 < numbers_.size(); ++i) {
    if (!followed_[i]) last.push_back(numbers_[i]);
  }
  *number = numbers_.back();
  if (!last.empty()) plan_.end_with(*number, std::move(last));
}

Status Lowering::add(std::span<const uint32_t> after, uint32_t* number) {
  Executor* near = nullptr;
  if (Status s = plan_.executor_for(task_.device, &near); is_error(s)) return s;
  uint64_t scratch = 0;
  if (Status s = plan_.take_scratch(*near, task_.schedule->schedule().scratch, &scratch); is_error(s)) return s;
  bases_ = {task_.bound.input.address, task_.bound.output.address, reinterpret_cast<std::byte*>(scratch)};
  const uint32_t before = plan_.step_count();
  uint32_t last = 0;
  const Status status = add_steps(after, &last);
  if (is_error(status)) {
    plan_.drop_steps(before);
    return status;
  }
  if (number != nullptr) *number = last;
  return TW_OK;
}

Status check_added(const tw_plan& plan, const tw_group& group, const Call& call, const tw_collective_options& options) {
  if (Status s = plan.check_open(); is_error(s)) return s;
  if (&plan.proxy.context != &group.worker.context)
    return fail(TW_ERR_INVALID, "%s: the plan and the group are of different contexts", call.name);
  if (options.after_count != 0 && options.after_steps == nullptr)
    return fail(TW_ERR_INVALID, "%s: after_steps is NULL, after_count is %zu", call.name, options.after_count);
  return TW_OK;
}

/// Inside progress, which cannot wait: TW_ERR_BUSY where this rank has a message with one that it is not connected to.
Status check_connected(tw_group& group, const CollectiveTask& task) {
  if (group.worker.engine->may_progress()) return TW_OK;
  for (const CollectiveStep& step : task.schedule->steps()) {
    if (step.verb != StepVerb::send && step.verb != StepVerb::recv) continue;
    tw_endpoint* endpoint = nullptr;
    if (group.endpoint(step.peer, &endpoint) != TW_IN_PROGRESS) continue;
    if (Status s = group.check_may_connect(step.peer); is_error(s)) return s;
  }
  return TW_OK;
}

Status add(tw_plan& plan, tw_group& group, Call& call, const tw_collective_options& options, const uint64_t* first_channel,
           uint32_t* step) {
  if (Status s = check_steps(call); is_error(s)) return s;
  Collectives* all = nullptr;
  CollectiveTask task;
  uint64_t first = 0;
  {
    const Engine::Guard guard(*group.worker.engine);
    if (Status s = Collectives::of(group, &all); is_error(s)) return s;
    if (Status s = all->check(); is_error(s)) return s;
    if (Status s = resolve_planned(*all, call, options, &task); is_error(s)) return s;
    if (Status s = check_connected(group, task); is_error(s)) return s;
    first = first_channel != nullptr ? *first_channel : channels(all->planned++);  // what follows may fail on one rank alone
  }
  return Lowering(plan, group, call.name, task, first).add({options.after_steps, options.after_count}, step);
}

// ------------------------------------------------------------------------------------------------ by kernels

/// "kernel": the one of them that is chosen; where the ranks' devices do not reach each other, steps.
constexpr const char* kAnyKernel = "kernel";
bool names(const tw_collective_options& options, const char* name) {
  return options.algorithm != nullptr && std::strcmp(options.algorithm, name) == 0;
}
/// Of the group's first collective by kernels: whether all ranks' executors are devices that reach each other.
Status find_device(Executor& executor, Collectives& all) {
  {
    const Engine::Guard guard(all.engine());
    if (Status s = all.check(); is_error(s)) return s;
  }
  if (all.device_tried()) return TW_OK;
  if (Status s = check_exchange(all.group()); is_error(s)) return s;  // before others wait for this rank's part
  if (all.finding_device())
    return fail(
        TW_ERR_BUSY,
        "the group's first collective on a queue is under way in this thread, and finds out for all how they go: call this "
        "one when that is over");
  const Status found = all.find_device(executor);
  return is_error(found) ? settle(all, found) : found;
}

Status find_device(tw_plan& plan, Collectives& all, Call& call, const tw_collective_options& options) {
  CollectiveTask task;
  {
    const Engine::Guard guard(all.engine());
    if (Status s = prepare_task(all, call, options, &task); is_error(s)) return s;
  }
  Executor* executor = nullptr;
  if (Status s = plan.executor_for(task.device, &executor); is_error(s)) return s;
  return find_device(*executor, all);
}

/// Its result goes to scratch memory first, where its output lies in what other ranks' blocks still come from.
Status add_steps(tw_plan& plan, const char* name, Executor& by, std::shared_ptr<ExchangeStep> exchange,
                 const tw_collective_options& options, uint32_t* step) {
  const uint64_t output = exchange->what.output, bytes = exchange->output_bytes;
  const bool copies = exchange->apart && bytes != 0;
  uint64_t scratch = 0;
  if (copies) {
    if (Status s = plan.take_scratch(by, bytes, &scratch); is_error(s)) return s;
    exchange->what.output = scratch;
  }
  tw_op_options order = kOpDefaults;
  order.after_steps = options.after_steps;
  order.after_count = options.after_count;
  uint32_t number = 0;
  if (Status s = plan.add(exchange_step(name, std::move(exchange)), order, &number); is_error(s)) return s;
  if (copies) {
    const uint32_t kernel = number;
    order.after_steps = &kernel;
    order.after_count = 1;
    PlanStep copy;
    copy.of = name;
    const auto* const result = reinterpret_cast<const void*>(scratch);
    if (Status s = copy_step(reinterpret_cast<void*>(output), result, bytes, &copy); is_error(s)) return s;
    if (Status s = plan.add(std::move(copy), order, &number); is_error(s)) return s;
  }
  if (step != nullptr) *step = number;
  return TW_OK;
}

/// The call as one step, where kernels do it.
Status add_exchange(tw_plan& plan, tw_group& group, Call& call, const tw_collective_options& options, bool* added,
                    uint32_t* step) {
  std::shared_ptr<ExchangeStep> exchange;
  {
    const Engine::Guard guard(*group.worker.engine);
    if (Status s = group.collectives->check(); is_error(s)) return s;
    if (Status s = resolve_exchange(*group.collectives, call, options, &exchange); is_error(s)) return s;
  }
  *added = exchange != nullptr;
  if (exchange == nullptr) return TW_OK;
  if (Status s = place_counts(*exchange); is_error(s)) return s;
  const uint32_t before = plan.step_count();
  const Status status = add_steps(plan, call.name, group.collectives->device()->executor(), std::move(exchange), options, step);
  if (is_error(status)) plan.drop_steps(before);
  return status;
}

// ------------------------------------------------------------------------------------------------ kept by a queue

void append(std::string& key, const void* bytes, size_t length) { key.append(static_cast<const char*>(bytes), length); }
template <class T>
void append(std::string& key, const T& value) {
  append(key, &value, sizeof value);
}
void append(std::string& key, const std::vector<uint64_t>& values) {
  append(key, values.size());
  append(key, values.data(), values.size() * sizeof(uint64_t));
}

/// What all ranks call alike.
std::string called_alike(const tw_group& group, const Call& call, const tw_collective_options& options) {
  std::string key("collective");
  append(key, group.id);
  append(key, call.what.kind);
  append(key, call.type);
  append(key, call.op);
  append(key, call.what.root);
  append(key, options.flags);
  const bool v = call.what.counts_at_root || call.sent.given() || call.received.given();
  append(key, v ? ~uint64_t{0} : call.what.count);
  if (options.algorithm != nullptr) key += options.algorithm;
  return key;
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

/// What goes by steps comes behind the group's kernels, too.
Status trigger(tw_plan& plan, tw_queue& queue, DeviceArea* area) {
  if (area == nullptr || plan.has_kernels()) return plan.trigger(&queue);
  if (Status s = area->order(*queue.queue, &queue); is_error(s)) return s;
  if (Status s = plan.trigger(&queue); is_error(s)) return s;
  return area->note(*queue.queue, &queue);
}

}  // namespace

tw_collective_options without_any(tw_collective_options options) {
  if (names(options, kAnyKernel)) options.algorithm = nullptr;
  return options;
}

bool names_kernels(CollectiveKind kind, const tw_collective_options& options) {
  return names(options, kAnyKernel) || std::ranges::any_of(algorithms_of(kind), [&](const Algorithm& each) {
           return each.kernels != Kernels::none && names(options, each.name);
         });
}

Status add_call(tw_plan& plan, tw_group& group, Call& call, const tw_collective_options& options, uint32_t* step) {
  if (Status s = check_call(group, call, options); is_error(s)) return s;
  if (Status s = check_planned(call, options); is_error(s)) return s;
  if (Status s = check_added(plan, group, call, options); is_error(s)) return s;
  if (!names_kernels(call.what.kind, options)) {
    const Occupied here(group);  // connections are waited for
    return add(plan, group, call, options, nullptr, step);
  }
  Collectives* all = nullptr;
  if (Status s = enter(group, &all); is_error(s)) return s;
  const std::lock_guard turn(all->enqueue_order(), std::adopt_lock);
  const Occupied here(group);
  const tw_collective_options chosen = without_any(options);
  if (Status s = find_device(plan, *all, call, chosen); is_error(s)) return s;
  bool added = false;
  if (Status s = add_exchange(plan, group, call, chosen, &added, step); is_error(s) || added) return s;
  return add(plan, group, call, chosen, nullptr, step);
}

Status enter(tw_group& group, Collectives** out) {
  {
    const Engine::Guard guard(*group.worker.engine);
    if (Status s = Collectives::of(group, out); is_error(s)) return s;
  }
  return (*out)->enqueue_order().enter();
}

Status find_device(tw_queue& queue, Collectives& all, const char* name) {
  if (all.device_tried()) return TW_OK;
  if (queue.queue->capture_state() != CaptureState::none)
    return fail(TW_ERR_INVALID,
                "%s: the group's first collective on a queue cannot be captured: call it once before the capture", name);
  return find_device(queue.executor, all);
}

Status call_on(tw_queue& queue, tw_group& group, Call& call, const tw_collective_options& given) {
  const tw_collective_options options = without_any(given);
  if (Status s = check_call(group, call, options); is_error(s)) return s;
  if (Status s = check_planned(call, options); is_error(s)) return s;
  if (options.after_count != 0)
    return fail(TW_ERR_INVALID, "%s: a queue keeps its order by itself: name no after_steps", call.name);
  Collectives* all = nullptr;
  if (Status s = enter(group, &all); is_error(s)) return s;
  const std::lock_guard turn(all->enqueue_order(), std::adopt_lock);
  const Occupied here(group);  // connections and channels are waited for. By one thread: others are refused by enter()
  if (Status s = find_device(queue, *all, call.name); is_error(s)) return s;
  std::string key = called_alike(group, call, options);
  const uint64_t first_channel = kOnQueue | channels(hash_of(key));
  const size_t shared = key.size() + 1;
  key += '\0';
  append(key, call.what.count);
  append(key, options.scale);
  append(key, call.send.address);
  append(key, call.recv.address);
  {
    const Engine::Guard guard(*group.worker.engine);
    if (Status s = all->check(); is_error(s)) return s;  // of one that is kept, too
    append(key, group.windows.number_at(reinterpret_cast<uint64_t>(call.send.address)));
    append(key, group.windows.number_at(reinterpret_cast<uint64_t>(call.recv.address)));
  }
  for (const Counts* counts : {&call.sent, &call.received}) {
    append(key, counts->counts);
    append(key, counts->offsets);
  }
  const auto fill = [&](tw_plan& made) {
    bool by_kernel = false;
    if (Status s = check_added(made, group, call, options); is_error(s)) return s;
    if (Status s = add_exchange(made, group, call, options, &by_kernel, nullptr); is_error(s) || by_kernel) return s;
    return add(made, group, call, options, &first_channel, nullptr);
  };
  const void* const buffers[] = {call.send.address, call.recv.address};
  return queue.kept({std::move(key), shared}, buffers, fill,
                    [&](tw_plan& plan) { return trigger(plan, queue, all->device().get()); });
}

}  // namespace thalweg::impl
