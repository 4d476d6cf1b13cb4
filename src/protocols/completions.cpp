// SPDX-License-Identifier: Apache-2.0
// Storing how runs ended, telling their sinks, and what a completion queue's poll takes.
#include "protocols/completions.hpp"

#include <cstring>

#include "base/log.hpp"
#include "memory/signal.hpp"
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/engine.hpp"
#include "protocols/one_sided.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {

static_assert(static_cast<int>(Verb::send) == TW_COMPLETION_SEND && static_cast<int>(Verb::recv) == TW_COMPLETION_RECV);
static_assert(static_cast<int>(Verb::am) == TW_COMPLETION_AM && static_cast<int>(Verb::am_recv) == TW_COMPLETION_AM_RECV);
static_assert(static_cast<int>(Verb::bytes_send) == TW_COMPLETION_BYTES_SEND &&
              static_cast<int>(Verb::bytes_recv) == TW_COMPLETION_BYTES_RECV);
static_assert(static_cast<int>(Verb::put) == TW_COMPLETION_PUT && static_cast<int>(Verb::get) == TW_COMPLETION_GET);
static_assert(static_cast<int>(Verb::atomic) == TW_COMPLETION_ATOMIC && static_cast<int>(Verb::signal) == TW_COMPLETION_SIGNAL);
static_assert(static_cast<int>(Verb::put_blocks) == TW_COMPLETION_PUT_BLOCKS &&
              static_cast<int>(Verb::get_blocks) == TW_COMPLETION_GET_BLOCKS &&
              static_cast<int>(Verb::collective) == TW_COMPLETION_COLLECTIVE);

namespace {

constexpr uint8_t kEndedBefore = UINT8_MAX;  // OpRun::stage of an entry of tell_ended()

/// Their end brings its own info.
bool has_own_info(Verb verb) { return verb == Verb::recv || verb == Verb::am_recv || verb == Verb::bytes_recv; }

std::atomic<uint32_t>* expected_by(SinkKind kind, const SinkTarget& sink) {
  switch (kind) {
    case SinkKind::queue:
      return &sink.queue->expects;
    case SinkKind::counter:
      return &sink.counter->expects;
    case SinkKind::done:
      return &sink.done->expects;
    default:
      return nullptr;
  }
}

/// under_way: until now, so its peer is still there.
tw_recv_info info_of(const OpDesc& op, bool under_way) {
  tw_endpoint* const endpoint = under_way && op.peer != nullptr ? op.peer->endpoint : nullptr;
  return {endpoint, op.tag, op.immediate, op.length};
}

void count(tw_counter& counter, Status status) {
  // Release: a reader of the number with acquire sees the bytes.
  (is_error(status) ? counter.failed : counter.completed).fetch_add(1, std::memory_order_release);
}

void raise_word(Engine& engine, const tw_signal& signal, uint64_t value) {
  if (signal.copier == nullptr) return touch_signal(signal.word, signal.kind, value);
  const Target target{reinterpret_cast<std::byte*>(signal.word), signal.memory->origin.kind,
                      signal.memory->origin.buffer.device};
  if (!is_error(signal_on_device(engine, target, signal.kind, value))) return;
  warn_once("done", std::string("a signal in device memory could not be touched at an operation's end: ") + last_error());
}

void fill(tw_completion* record, const OpDesc& op, const tw_recv_info& info, void* arg, Status status) {
  const bool ends_put = op.verb == Verb::signal && op.atomic_op == static_cast<uint8_t>(Verb::put);
  record->kind = static_cast<uint32_t>(ends_put ? Verb::put : op.verb);
  record->arg = arg;
  record->info = info;
  record->message = is_error(status) ? status_text(status) : nullptr;
  record->data = nullptr;
  __atomic_store_n(&record->status, status, __ATOMIC_RELEASE);  // with the bytes and what is above
}

/// All but queues and callbacks, which get the run itself.
void tell(Engine& engine, const Completion& completion, const OpDesc& op, const tw_recv_info& info, Status status) {
  switch (completion.kind) {
    case SinkKind::counter:
      return count(*completion.sink_target.counter, status);
    case SinkKind::record:
      return fill(completion.sink_target.record, op, info, completion.arg, status);
    case SinkKind::done:
      if (!is_error(status)) raise_word(engine, *completion.sink_target.done, completion.value);
      return;
    default:
      return;
  }
}

}  // namespace

void expect_one(SinkKind kind, const SinkTarget& sink) {
  if (std::atomic<uint32_t>* const expects = expected_by(kind, sink)) expects->fetch_add(1, std::memory_order_relaxed);
}
void end_expected(SinkKind kind, const SinkTarget& sink) {
  // Release: a thread that sees that nothing is expected any more may free it.
  if (std::atomic<uint32_t>* const expects = expected_by(kind, sink)) expects->fetch_sub(1, std::memory_order_release);
}

Status Completions::add(tw_completion_queue& queue) {
  const Engine::Guard guard(engine_);
  if (queue.notifications && notified_ != nullptr)
    return fail(TW_ERR_INVALID, "another completion queue of this worker takes the notifications");
  if (queue.notifications) notified_ = &queue;
  queue.engine = &engine_;
  queues_.push_back(&queue);
  return TW_OK;
}

void Completions::add(tw_counter& counter) {
  const Engine::Guard guard(engine_);
  counter.engine = &engine_;
  counters_.push_back(&counter);
}

namespace {

Status refuse_while_expecting(const CompletionSink& sink, const char* what) {
  const uint32_t under_way = sink.expects.load(std::memory_order_relaxed);
  if (under_way == 0) return TW_OK;
  return fail(TW_ERR_BUSY,
              "%u operations are under way that will end in this %s: wait for them, cancel them or close their endpoints",
              under_way, what);
}

}  // namespace

Status Completions::remove(tw_completion_queue& queue) {
  const Engine::Guard guard(engine_);
  if (Status s = refuse_while_expecting(queue, "completion queue"); is_error(s)) return s;
  while (!queue.ended.empty()) runs_->free(*queue.ended.pop_front());
  if (notified_ == &queue) notified_ = nullptr;
  std::erase(queues_, &queue);
  return TW_OK;
}

Status Completions::remove(tw_counter& counter) {
  const Engine::Guard guard(engine_);
  if (Status s = refuse_while_expecting(counter, "counter"); is_error(s)) return s;
  std::erase(counters_, &counter);
  return TW_OK;
}

uint32_t Completions::expected(const std::atomic<uint32_t>& expects) {
  const Engine::Guard guard(engine_);  // every notification has been made
  return expects.load(std::memory_order_relaxed);
}

/// Runs that wait in queues are gone with the pool.
void Completions::leave() {
  for (tw_completion_queue* queue : queues_) queue->engine = nullptr;
  for (tw_counter* counter : counters_) counter->engine = nullptr;
  queues_.clear();
  counters_.clear();
}

/// Ended requests, entries of queues and callbacks that are due: nobody has seen them yet.
void Completions::forget(const Peer& peer) {
  runs_->each([&peer](OpRun& run) {
    if (run.info.endpoint == peer.endpoint) run.info.endpoint = nullptr;
  });
}

/// A word that a device's queue touches: not in the middle of that queue's own round.
static bool on_device(const OpRun& run) { return run.sink == SinkKind::done && run.sink_target.done->copier != nullptr; }

void Completions::deliver(OpRun& run, Status status) {
  const bool told = run.sink != SinkKind::none;
  const bool late = std::exchange(run.late_end, false);
  if (told && !has_own_info(run.op->verb)) run.info = info_of(*run.op, !late);
  // release: a test with acquire sees the received bytes and run.info
  run.status.store(status, std::memory_order_release);
  if (told) {
    tell(run, status);
  } else if (run.detached) {
    runs_->free(run);
  }
}

/// The run's status is stored.
void Completions::tell(OpRun& run, Status status) {
  if (run.sink == SinkKind::callback || on_device(run)) return call_later(run);
  if (run.sink == SinkKind::queue) {
    end_expected(run.sink, run.sink_target);
    return run.sink_target.queue->ended.push_back(&run);
  }
  tell_now(run, status);
}

[[gnu::noinline]] void Completions::tell_now(OpRun& run, Status status) {
  const Completion named{nullptr, std::exchange(run.sink, SinkKind::none), run.sink_target, run.arg, run.sink_value};
  impl::tell(engine_, named, *run.op, run.info, status);
  end_expected(named.kind, named.sink_target);
  if (run.detached) runs_->free(run);
}

[[gnu::noinline]] bool& Completions::calling_back() {
  thread_local bool calling = false;
  return calling;
}

/// The next run whose callback is due; other sinks are notified in here, where no thread releases its request meanwhile.
/// called: the one before it, whose callback has returned.
inline OpRun* Completions::next_called(RunList& ready, unsigned* events, OpRun* called) {
  const Engine::Guard guard(engine_);
  if (called != nullptr) runs_->free(*called);
  while (OpRun* const run = ready.pop_front()) {
    ++*events;
    if (run->sink == SinkKind::callback) return run;
    tell_now(*run, run->status.load(std::memory_order_relaxed));
  }
  return nullptr;
}

unsigned Completions::run_callbacks() {
  unsigned events = 0;
  RunList ready;
  bool outermost = false;
  {
    const Engine::Guard guard(engine_);
    const std::thread::id self = std::this_thread::get_id();
    if (caller_ != std::thread::id{} && caller_ != self) return 0;  // its next progress calls them, in their order
    outermost = caller_ != self;
    caller_ = self;
    std::swap(ready, callbacks_);
  }
  bool& calling = calling_back();
  const bool nested = std::exchange(calling, true);
  OpRun* run = nullptr;
  while ((run = next_called(ready, &events, run)) != nullptr) {
    const trace::Span span(trace::What::callback);
    call(*runs_, *run);
  }
  calling = nested;
  if (outermost) {
    const Engine::Guard guard(engine_);
    caller_ = {};
  }
  return events;
}

Status Completions::tell_of(tw_request request, const Completion& completion) {
  const Engine::Guard guard(engine_);
  OpRun* run = runs_->find(request);
  if (run == nullptr) return fail(TW_ERR_HANDLE, "this request is not alive: it was released");
  if (run->has_sink || run->detached)
    return fail(TW_ERR_INVALID,
                "the end of this request is told already: by a callback, or as its options or an earlier call say");
  name_sink(*run, completion);
  const Status status = run->status.load(std::memory_order_relaxed);
  if (status == TW_IN_PROGRESS) return TW_OK;
  if (!has_own_info(run->op->verb)) run->info = info_of(*run->op, false);
  tell(*run, status);
  return TW_OK;
}

/// Of a queue; it is no operation of its own in the timeline.
static OpRun* entry_for(Engine& engine, const OpDesc& op, const Completion& completion) {
  OpRun* const entry = engine.acquire(op);
  if (entry != nullptr) name_sink(*entry, completion);
  return entry;
}

Status Completions::tell_ended(const Completion& completion) {
  const Engine::Guard guard(engine_);
  const OpDesc nothing;
  if (completion.kind != SinkKind::queue) {
    impl::tell(engine_, completion, nothing, {}, TW_OK);
    return TW_OK;
  }
  OpRun* const entry = entry_for(engine_, nothing, completion);
  if (entry == nullptr) return TW_ERR_LIMIT;
  entry->stage = kEndedBefore;
  engine_.complete(*entry, TW_OK);
  return TW_OK;
}

Status Completions::start(const OpDesc& op, const Completion& completion) {
  OpRun* entry = nullptr;  // there is room for it, whatever happens
  if (completion.kind == SinkKind::queue) {
    OpDesc brief;
    brief.verb = op.verb;
    brief.peer = op.peer;
    brief.tag = op.tag;
    brief.immediate = op.immediate;
    brief.length = op.length;
    entry = entry_for(engine_, brief, completion);
    if (entry == nullptr) return TW_ERR_LIMIT;
  }
  const Status status = kStarters[static_cast<size_t>(op.verb)](engine_, op, completion);
  if (status == TW_OK && by_calls(op)) finish_calls(*op.layout);  // before any notification
  if (entry != nullptr && status == TW_OK) {
    if (completion.request != nullptr) *completion.request = runs_->number(*entry);
    engine_.complete(*entry, TW_OK);
    return TW_IN_PROGRESS;
  }
  if (entry != nullptr) engine_.discard(*entry);
  if (status == TW_OK) impl::tell(engine_, completion, op, info_of(op, true), status);
  return status;
}

namespace {

tw_completion entry_of(const OpRun& run) {
  tw_completion entry{};
  fill(&entry, *run.op, run.info, run.arg, run.status.load(std::memory_order_relaxed));
  if (run.stage == kEndedBefore) entry.kind = TW_COMPLETION_ENDED;
  return entry;
}

tw_completion entry_of(const tw_notification& notification) {
  tw_completion entry{};
  entry.status = TW_OK;
  entry.kind = TW_COMPLETION_NOTIFICATION;
  entry.info = {notification.endpoint, 0, 0, notification.length};
  if (notification.length == sizeof entry.info.immediate)
    std::memcpy(&entry.info.immediate, notification.data, sizeof entry.info.immediate);
  entry.data = notification.data;
  return entry;
}

}  // namespace

size_t Completions::take_entries(tw_completion_queue& queue, tw_completion* entries, size_t count) {
  const Engine::Guard guard(engine_);
  queue.texts.clear();
  queue.notified.clear();
  size_t taken = 0;
  for (; taken < count && !queue.ended.empty(); ++taken) {
    OpRun& run = *queue.ended.pop_front();
    entries[taken] = entry_of(run);
    if (run.text != nullptr) {
      queue.texts.emplace_back(std::exchange(run.text, nullptr));
      entries[taken].message = queue.texts.back()->c_str();
    }
    runs_->free(run);
  }
  while (queue.notifications && taken < count) {
    auto notification = std::make_unique<tw_notification>();
    if (next_notification(engine_, notification.get()) != TW_OK) break;
    queue.notified.push_back(std::move(notification));
    entries[taken++] = entry_of(*queue.notified.back());
  }
  return taken;
}

}  // namespace thalweg::impl
