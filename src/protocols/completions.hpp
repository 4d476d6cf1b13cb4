// SPDX-License-Identifier: Apache-2.0
// Completion sinks: what is notified of an operation's end, beside its request, as include/thalweg/completions.h and
// callbacks promise. Completions, a part of each engine, delivers all of them; a run without one never comes here.
//
// Everything here is under the engine's lock, but for the counter's numbers and a record's status, which any thread reads.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/platform/fork.hpp"
#include "base/status.hpp"
#include "protocols/operation.hpp"

namespace thalweg::impl {

/// Completion forms that a caller requests.
struct Completion {
  tw_request* request = nullptr;  // where the number goes; null: not wanted
  SinkKind kind = SinkKind::none;
  SinkTarget sink_target{};
  void* arg = nullptr;
  uint64_t value = 0;  // of SinkKind::done
};
inline Completion calls(tw_callback callback, void* arg) { return {nullptr, SinkKind::callback, {callback}, arg, 0}; }

/// Of one worker. Known to its engine, which takes itself out when it ends.
struct CompletionSink {
  BornHere born;
  Engine* engine = nullptr;          // null: gone
  std::atomic<uint32_t> expects{0};  // operations under way that will complete here
};

}  // namespace thalweg::impl

/// The entries are the runs themselves: no copy, no limit of its own.
struct tw_completion_queue : thalweg::impl::CompletionSink {
  thalweg::impl::RunList ended;
  bool notifications = false;
  // Of the entries that were taken last: what their pointers name.
  std::vector<std::unique_ptr<std::string>> texts;
  std::vector<std::unique_ptr<tw_notification>> notified;
};

struct tw_counter : thalweg::impl::CompletionSink {
  std::atomic<uint64_t> completed{0}, failed{0};
};

namespace thalweg::impl {

/// Does it need the run, and the request with it, until it has been notified?
constexpr bool keeps_run(SinkKind kind) { return kind == SinkKind::callback || kind == SinkKind::queue; }

/// Queue, counter, signal: expects one more operation.
void expect_one(SinkKind kind, const SinkTarget& sink);
/// The run will notify the sink, if there is one: that expects one more operation.
inline void name_sink(OpRun& run, const Completion& completion) {
  run.sink = completion.kind;
  run.has_sink = completion.kind != SinkKind::none;
  run.sink_target = completion.sink_target;
  run.sink_value = completion.value;
  run.arg = completion.arg;
  if (completion.kind > SinkKind::callback) [[unlikely]]
    expect_one(completion.kind, completion.sink_target);
}
/// That operation was refused, or the sink was notified.
void end_expected(SinkKind kind, const SinkTarget& sink);

/// Delivers the completions of one engine. Of the engine it uses its lock, the runs (acquire, complete, discard, find), and the
/// copier of a signal in device memory; the engine calls it where a run ends, and at the end of progress.
class Completions {
 public:
  explicit Completions(Engine& engine) : engine_(engine) {}
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  // --- for core: these take the lock
  Status add(tw_completion_queue& queue);
  void add(tw_counter& counter);
  /// TW_ERR_BUSY: operations under way will complete there. Entries not taken are dropped with it.
  Status remove(tw_completion_queue& queue);
  Status remove(tw_counter& counter);
  /// Operations under way that will complete there.
  uint32_t expected(const std::atomic<uint32_t>& expects);
  bool notifies_queue() const { return notified_ != nullptr; }
  /// tw_request_tell; of an operation that ended well and has no request.
  Status tell_of(tw_request request, const Completion& completion);
  Status tell_ended(const Completion& completion);
  /// What tw_completion_queue_poll takes without progress. Returns how many.
  size_t take_entries(tw_completion_queue& queue, tw_completion* entries, size_t count);
  /// Is this thread in a user's callback? Set around each call of one, but for those that RunPool::caller tells of.
  static bool& calling_back();

  // --- for the engine
  /// Starts an operation whose sink is told even when it is complete at once: any but a callback. As Engine::start.
  Status start(const OpDesc& op, const Completion& completion);
  /// Before its status is stored: fills in run.info. under_way: until now.
  static void prepare_to_tell(OpRun& run, bool under_way);
  /// The run has a sink, and its status is stored: tells it, or queues the run for run_callbacks().
  void tell(OpRun& run, Status status);
  /// The same of a callback.
  inline void call_later(OpRun& run);
  /// The same of a run that is in no list, within progress.
  void call_in_progress(OpRun& run) { due() ? callbacks_.push_back(&run) : callbacks_.push_only(&run); }
  bool due() const { return !callbacks_.empty(); }
  bool is_due(const OpRun& run) const { return run.list == &callbacks_; }
  /// At the end of progress, outside the lock.
  unsigned run_callbacks();
  /// The only callback that is due, out of the list; null: none is, or run_callbacks() must look.
  OpRun* take_only() {
    OpRun* const only = callbacks_.front();
    if (only == nullptr || only != callbacks_.back() || only->sink != SinkKind::callback) [[unlikely]]
      return nullptr;
    callbacks_.remove_only(only);
    return only;
  }
  /// The peer is about to be freed.
  void forget(const Peer& peer);
  /// Queues and counters outlive the engine.
  void leave();

 private:
  void tell_now(OpRun& run, Status status);
  void call(const OpRun& run);
  OpRun* next_called(RunList& ready, unsigned* events, OpRun* called);
  void release(OpRun& run);

  RunList callbacks_;  // runs whose callback, or whose signal in device memory, is due
  Engine& engine_;
  std::vector<tw_completion_queue*> queues_;
  std::vector<tw_counter*> counters_;
  tw_completion_queue* notified_ = nullptr;  // takes notifications of peers
};

}  // namespace thalweg::impl
