// SPDX-License-Identifier: Apache-2.0
// Completion sinks: what is notified of an operation's end, beside its request, as include/thalweg/completions.h and
// callbacks promise.
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

struct Completion;  // protocols/engine.hpp

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

/// The run will notify the sink, if there is one: that expects one more operation.
void name_sink(OpRun& run, const Completion& completion);
/// That operation was refused, or the sink was notified.
void end_expected(SinkKind kind, const SinkTarget& sink);

}  // namespace thalweg::impl
