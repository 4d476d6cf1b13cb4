// SPDX-License-Identifier: Apache-2.0
// tw_plan: operations that are prepared once. Its parts, in the order in which prepare() fills them in:
//
//   the list       plan_list.hpp      the user's steps
//   the executor   plan_resolve.hpp   what runs them, and how it reaches their memory
//                  plan_channels.hpp  the channels that they use
//                  plan_pieces.hpp    which of them are cut into pieces
//                  plan_proxied.hpp   those that the host carries
//                  plan_program.hpp   the program, and its memory
//                  plan_run.hpp       its runs, and how they fail: plan_failure.hpp
//   the version    plan_version.hpp   what captured graphs name of it
//
// One thread at a time; check() any thread.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "devices/deferred_release.hpp"
#include "plans/plan_channels.hpp"
#include "plans/plan_failure.hpp"
#include "plans/plan_list.hpp"
#include "plans/plan_pieces.hpp"
#include "plans/plan_program.hpp"
#include "plans/plan_proxied.hpp"
#include "plans/plan_resolve.hpp"
#include "plans/plan_run.hpp"
#include "plans/plan_version.hpp"

namespace thalweg::impl {

struct PlanOptions {
  std::string place;  // of the executor; empty: chosen
  uint64_t timeout_ns = 30 * kSecond;
  uint32_t blocks = 0;
  uint64_t chunk_bytes = 0;
  bool kept = false;  // by a queue, for one operation (queue.cpp)
};

}  // namespace thalweg::impl

struct tw_queue;
struct tw_plan final {
  using Status = thalweg::impl::Status;
  tw_plan(thalweg::impl::Proxy& of, const thalweg::impl::PlanOptions& options);
  ~tw_plan();
  tw_plan(const tw_plan&) = delete;
  tw_plan& operator=(const tw_plan&) = delete;

  Status add(thalweg::impl::PlanStep&& step, const tw_op_options& options, uint32_t* number);
  // --- of what adds several steps (src/collectives)
  uint32_t step_count() const { return static_cast<uint32_t>(list_.size()); }
  /// TW_ERR_INVALID: it is prepared.
  Status check_open() const;
  /// What would run it: at the place that was asked for, or where the steps' memory lies, or on `device` (null: the host).
  Status executor_for(thalweg::impl::Device* device, thalweg::impl::Executor** out);
  /// Memory near that executor, aligned to 64 bytes, which peers reach; the plan's, as long as it exists.
  Status take_scratch(thalweg::impl::Executor& near, size_t length, uint64_t* address);
  /// Steps that were added last are not to be.
  void drop_steps(uint32_t from) { list_.truncate(from); }
  /// As PlanList::end_with.
  void end_with(uint32_t number, std::vector<uint32_t> last) { list_.end_with(number, std::move(last)); }

  Status prepare(uint64_t timeout_ns);
  bool prepared() const { return prepared_; }
  Status release();                 // gives back what prepare() took
  Status trigger(tw_queue* queue);  // plan_run.cpp
  Status test() { return runs_.test(); }
  Status at_rest() { return runs_.at_rest(); }
  /// It runs no more, and is released when the user's endpoints may have gone.
  void leave_endpoints() {
    resolved_.leave_endpoints();
    list_.leave_endpoints();
  }
  bool is_carried() const { return carried_.under_way(); }  // now, by the host
  Status check() { return failure_.check(); }               // the failure of a run, once
  bool failure_told() const { return failure_.told(); }
  bool has_failed() const { return failure_.any(); }  // prepared
  /// Receives of one channel, at most.
  uint32_t receives_of_channel() const {
    std::map<std::pair<const tw_endpoint*, uint64_t>, uint32_t> by_channel;
    uint32_t most = 0;
    for (const thalweg::impl::PlanStep& step : list_) {
      if (step.op.verb == thalweg::impl::Verb::recv) most = std::max(most, ++by_channel[{step.endpoint, step.op.tag}]);
    }
    return most;
  }
  bool captured() const { return versions_.captured(); }  // by a graph
  /// It can run no more, because its group or a window that it uses has gone, and no graph has captured it.
  bool has_ended() const { return prepared_ && !captured() && failure_.check_ranks() != TW_OK; }
  bool has_kernels() const { return !failure_.areas().empty(); }             // of collectives; prepared
  Status update(uint32_t step, const void* address, const uint64_t* value);  // plan_update.cpp
  void set_value(uint32_t step, uint64_t value) { program_.set_value(step, value); }
  /// The signal of a wait, which has the same word.
  void set_waited(uint32_t step, tw_signal* signal) { list_[step].waited = signal; }
  /// Buffers that peers have been asked to give back, and have not.
  /// It is released next, and not prepared again.
  void end_for_good() { channels_.end_for_good(); }
  const thalweg::impl::Proxy::Offered& owed() const { return channels_.owed(); }
  /// The queue ends.
  void forget(const tw_queue& queue) { runs_.forget(queue); }
  thalweg::impl::Executor* executor() const { return executor_; }
  std::string explain() const;  // plan_explain.cpp

  const thalweg::impl::BornHere born;
  thalweg::impl::Proxy& proxy;

 private:
  Status prepare_parts(const thalweg::impl::Deadline& deadline);
  Status divide();
  Status move_step(uint32_t step, uint64_t address, thalweg::impl::Outdated* left);
  Status move_recv_buffer(uint32_t step, thalweg::impl::Outdated* left);
  void give_back(const thalweg::impl::Outdated& left);
  Status given_back() const;

  const std::string place_;
  thalweg::impl::Executor* executor_ = nullptr;
  std::optional<thalweg::impl::KernelsWait> kernels_wait_;  // a device's
  bool prepared_ = false;
  thalweg::impl::PlanList list_;
  thalweg::impl::ResolvedSteps resolved_;
  thalweg::impl::PlanPieces pieces_;
  thalweg::impl::PlanProgram program_;
  thalweg::impl::PlanVersions versions_;
  thalweg::impl::PlanFailure failure_;
  thalweg::impl::CarriedSteps carried_;
  thalweg::impl::PlanChannels channels_;
  thalweg::impl::PlanRuns runs_;
  struct Scratch {
    thalweg::impl::Executor* near;
    uint64_t address;
    size_t length;
  };
  std::vector<Scratch> scratch_;
};
