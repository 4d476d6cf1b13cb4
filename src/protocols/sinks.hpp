// SPDX-License-Identifier: Apache-2.0
// Where it is told that an operation ended, beside its request: what include/thalweg/completions.h and callbacks promise.
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
  std::atomic<uint32_t> expects{0};  // operations under way that will be told here
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

/// Does it keep the run, and the request with it, until it has been told?
constexpr bool keeps_run(SinkKind kind) { return kind == SinkKind::callback || kind == SinkKind::queue; }

/// The run tells the sink of its end, if there is one: that waits for one more operation.
void name_sink(OpRun& run, const Completion& completion);
/// That one was refused, or has been told.
void end_expected(SinkKind kind, const SinkTarget& sink);

}  // namespace thalweg::impl
