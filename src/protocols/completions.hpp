// SPDX-License-Identifier: Apache-2.0
// Where completions are delivered: to requests, and to what is notified of an operation's end beside them (sinks), as
// include/thalweg/completions.h and callbacks promise. Completions, a part of each engine, delivers all of them, whatever ended the
// operation: Engine::complete (deliver, or in few steps deliver_short), the frame of a sole receive (eager.cpp: deliver_in_progress),
// or the call that started it (start). Only a caller that waits for a receive on its own stack has no run, and is told by
// WaitedReceive::deliver.
//
// Everything here is under the engine's lock, but for the counter's numbers and a record's status, which any thread reads.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/platform/fork.hpp"
#include "base/status.hpp"
#include "protocols/operation.hpp"
#include "protocols/run_pool.hpp"

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

/// A receive on the stack of a caller that waits for it. While it is the only posted one, a whole message goes straight from
/// its frame to the buffer (the short form of a receive). As soon as anything else could match, it becomes an OpRun.
struct WaitedReceive {
  std::byte* address = nullptr;
  uint64_t length = 0, tag = 0, mask = 0;
  tw_recv_info info{};
  Status status = TW_IN_PROGRESS;
  OpRun* run = nullptr;
  bool done() const {
    // acquire: pairs with Completions::deliver; what was received is visible
    return (run == nullptr ? status : Status(run->status.load(std::memory_order_acquire))) != TW_IN_PROGRESS;
  }
  /// A message of so many bytes is in the buffer, or its beginning, and info is filled in.
  void deliver(uint64_t message) { status = message <= length ? TW_OK : TW_ERR_TRUNCATED; }
};

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
/// Who learns of the run's end: its sink, and the holder of its request, if it has one.
inline void name_completion(OpRun& run, const Completion& completion) {
  name_sink(run, completion);
  run.detached = !keeps_run(completion.kind) && completion.request == nullptr;
}
/// That operation was refused, or the sink was notified.
void end_expected(SinkKind kind, const SinkTarget& sink);
/// The call that would have started the operation returns this status. No sink is told, but a record does not stay in progress.
inline void note_refused(const Completion& completion, Status status) {
  if (completion.kind == SinkKind::record) [[unlikely]]
    __atomic_store_n(&completion.sink_target.record->status, status, __ATOMIC_RELEASE);
}

/// Delivers the completions of one engine. Of the engine it uses its lock, the runs (acquire, complete, discard), and the copier of a
/// signal in device memory; the engine calls it where a run ends, and at the end of progress.
class Completions {
 public:
  /// runs: of this engine; null where there are none.
  Completions(Engine& engine, RunPool* runs) : engine_(engine), runs_(runs) {}
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
  /// The run is over, and in no list: its status is stored, and its sink is told, or the run queued for run_callbacks(). Freed where
  /// nobody holds its request.
  void deliver(OpRun& run, Status status);
  /// The same where it has no sink (and a holder), or, called, a callback: in few steps. run.info is filled in.
  [[gnu::always_inline]] void deliver_short(OpRun& run, Status status, bool called) {
    run.status.store(status, std::memory_order_release);  // with the bytes and run.info
    if (called) call_later(run);
  }
  /// The same within progress, which ends with callbacks.
  [[gnu::always_inline]] void deliver_in_progress(OpRun& run, Status status) {
    run.status.store(status, std::memory_order_release);  // with the bytes and run.info
    if (run.sink == SinkKind::callback) due() ? callbacks_.push_back(&run) : callbacks_.push_only(&run);
  }
  /// The request has no holder any more: the run is freed, now or when its end was told.
  void let_go(OpRun& run) {
    if (run.status.load(std::memory_order_relaxed) == TW_IN_PROGRESS || run.list == &callbacks_) {
      run.detached = true;
    } else {
      runs_->free(run);
    }
  }
  bool due() const { return !callbacks_.empty(); }
  /// The same, unless another thread is calling one, and will call these. Under the lock.
  bool due_here() const { return due() && (caller_ == std::thread::id{} || caller_ == std::this_thread::get_id()); }
  /// At the end of progress, outside the lock.
  unsigned run_callbacks();
  /// The same where there is no lock, and something is due: of a single callback in few steps.
  [[gnu::always_inline]] unsigned run_callbacks_unlocked() {
    OpRun* const only = callbacks_.front();
    if (only == nullptr || only != callbacks_.back() || only->sink != SinkKind::callback) [[unlikely]]
      return run_callbacks();
    callbacks_.remove_only(only);
    RunPool& runs = *runs_;
    const pthread_t outer = runs.caller.load(std::memory_order_relaxed);
    runs.caller.store(pthread_self(), std::memory_order_relaxed);
    call(runs, *only);
    runs.caller.store(outer, std::memory_order_relaxed);
    runs.free(*only);
    return 1;
  }
  /// The peer is about to be freed.
  void forget(const Peer& peer);
  /// Queues and counters outlive the engine.
  void leave();

 private:
  void tell(OpRun& run, Status status);
  void tell_now(OpRun& run, Status status);
  inline void call_later(OpRun& run);
  static void call(const RunPool& runs, const OpRun& run) {
    run.sink_target.callback(run.arg, runs.number(run), run.status.load(std::memory_order_relaxed), &run.info);
  }
  OpRun* next_called(RunList& ready, unsigned* events, OpRun* called);

  std::thread::id caller_;  // the thread that calls callbacks, of several that progress
  RunList callbacks_;       // runs whose callback, or whose signal in device memory, is due
  Engine& engine_;
  RunPool* const runs_;
  std::vector<tw_completion_queue*> queues_;
  std::vector<tw_counter*> counters_;
  tw_completion_queue* notified_ = nullptr;  // takes notifications of peers
};

}  // namespace thalweg::impl
