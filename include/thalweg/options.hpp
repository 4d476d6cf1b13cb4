// SPDX-License-Identifier: Apache-2.0
// options.hpp: the C++ view of options.h. Part of thalweg.hpp, whose conventions hold.
#pragma once
#include <thalweg/options.h>
#include <thalweg/core.hpp>

#include <initializer_list>

namespace thalweg {

/// Options of one operation: of a call, of a plan's step, of an operation on a queue. Converts to tw_op_options:
///   endpoint.put(data, memory, 0, request, OpOptions().signal(ready, 1).flags(TW_OP_REMOTE));
///   plan.recv(peer, data, channel, OpOptions().layout(face).after({copied}));
/// A call fails with TW_ERR_INVALID on options that it does not take. The caller owns layouts, signals and targets.
class OpOptions {
 public:
  OpOptions() = default;
  OpOptions(const OpOptions& other) : options_(other.options_), after_(other.after_) { point(); }
  OpOptions& operator=(const OpOptions& other) {
    options_ = other.options_;
    after_ = other.after_;
    point();
    return *this;
  }
  ~OpOptions() = default;
  /// TW_OP_*.
  OpOptions& flags(uint32_t flags) {
    options_.flags = flags;
    return *this;
  }
  /// Of the local buffer; of `from` of a copy.
  OpOptions& layout(const Layout& layout) {
    options_.layout = layout.get();
    return *this;
  }
  /// Of the remote side of a put or get; of `to` of a copy.
  OpOptions& remote_layout(const Layout& layout) {
    options_.remote_layout = layout.get();
    return *this;
  }
  /// Travels with a send.
  OpOptions& immediate(uint64_t immediate) {
    options_.immediate = immediate;
    return *this;
  }
  /// Of a put: touched when its data is there.
  OpOptions& signal(const RemoteSignal& signal, uint64_t value, uint32_t op = TW_SIGNAL_SET) {
    options_.signal = signal.get();
    options_.signal_value = value;
    options_.signal_op = op;
    return *this;
  }
  /// Of a receive: only from this endpoint.
  OpOptions& source(tw_endpoint* endpoint) {
    options_.source = endpoint;
    return *this;
  }
  /// Of a put or a signal's post: the peer's worker is notified when the data is there.
  OpOptions& notify(uint64_t immediate) {
    options_.notify = TW_NOTIFY_QUEUE;
    options_.immediate = immediate;
    return *this;
  }
  /// The same by the peer's handler of active messages.
  OpOptions& notify(uint64_t immediate, uint16_t handler) {
    options_.notify = TW_NOTIFY_HANDLER;
    options_.immediate = immediate;
    options_.handler = handler;
    return *this;
  }
  /// Where completion is reported: at most one of the five.
  OpOptions& callback(tw_callback function, void* arg) {
    options_.callback = function;
    options_.arg = arg;
    return *this;
  }
  OpOptions& queue(const CompletionQueue& queue, void* arg = nullptr) {
    options_.queue = queue.get();
    options_.arg = arg;
    return *this;
  }
  OpOptions& counter(const Counter& counter) {
    options_.counter = counter.get();
    return *this;
  }
  OpOptions& record(tw_completion* record, void* arg = nullptr) {
    options_.record = record;
    options_.arg = arg;
    return *this;
  }
  OpOptions& done(const Signal& signal, uint64_t value) {
    options_.done = signal.get();
    options_.done_value = value;
    return *this;
  }
  /// The buffer is not touched before what is on the stream now (CUstream, cudaStream_t; null: the default stream), or the event, is done.
  OpOptions& after_stream(const void* stream) {
    options_.after = stream;
    options_.after_kind = TW_AFTER_STREAM;
    return *this;
  }
  OpOptions& after_event(const void* event) {
    options_.after = event;
    options_.after_kind = TW_AFTER_EVENT;
    return *this;
  }
  /// Of a plan's step: these end before it begins.
  OpOptions& after(std::initializer_list<uint32_t> steps) {
    after_ = steps;
    point();
    return *this;
  }
  OpOptions& after(std::span<const uint32_t> steps) {
    after_.assign(steps.begin(), steps.end());
    point();
    return *this;
  }
  /// Of the value of a plan's signal or wait, with every trigger after the first.
  OpOptions& increment(uint64_t by) {
    options_.increment = by;
    return *this;
  }
  /// As C takes it; valid until this changes or ends.
  operator const tw_op_options*() const noexcept { return &options_; }
  const tw_op_options* get() const noexcept { return &options_; }

 private:
  void point() {
    options_.after_steps = after_.empty() ? nullptr : after_.data();
    options_.after_count = after_.size();
  }
  tw_op_options options_ = TW_OP_OPTIONS_INIT;
  std::vector<uint32_t> after_;
};

}  // namespace thalweg
