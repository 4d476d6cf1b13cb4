// SPDX-License-Identifier: Apache-2.0
// The life of a run. Its steps are in run_steps.cpp.
#include "collectives/run.hpp"

#include <algorithm>
#include <utility>

#include "collectives/collectives.hpp"

namespace thalweg::impl {

void CollectiveRun::start(CollectiveTask task, OpRun* handle) {
  task_ = std::move(task);
  const std::vector<CollectiveStep>& steps = task_.schedule->steps();
  handle_ = handle;
  number_ = task_.number ? *task_.number : owner_.group().started++;
  status_ = TW_OK;
  why_.clear();
  over_.store(false, std::memory_order_relaxed);
  left_ = static_cast<uint32_t>(steps.size());
  under_way_ = 0;
  states_.resize(steps.size());
  waits_.resize(steps.size());
  ready_.clear();
  for (uint32_t i = 0; i < states_.size(); ++i) states_[i] = {this, i, false, TW_REQUEST_NONE};
  for (uint32_t i = 0; i < steps.size(); ++i) waits_[i] = steps[i].after;
  owner_.begin(*this);
  for (uint32_t i = static_cast<uint32_t>(steps.size()); i-- > 0;) {  // the first one first
    if (waits_[i] == 0) ready_.push_back(i);
  }
  advance();
}

/// Starts what is ready, until nothing is. Steps that are over at once free others without recursion.
void CollectiveRun::advance() {
  if (advancing_) return;
  advancing_ = true;
  while (!ready_.empty() && !is_error(status_)) {
    const uint32_t step = ready_.back();
    ready_.pop_back();
    const Status status = start_step(step);
    if (is_error(status)) {
      step_failed(states_[step], status, last_error());
    } else if (status == TW_OK) {
      step_ended(step);
    }
  }
  advancing_ = false;
  if (under_way_ == 0 && (left_ == 0 || is_error(status_))) finish();
}

void CollectiveRun::step_ended(uint32_t step) {
  --left_;
  for (const uint32_t next : task_.schedule->next_of(step)) {
    if (--waits_[next] == 0) ready_.push_back(next);
  }
}

void CollectiveRun::step_failed(const StepRun& state, Status status, const std::string& why) {
  if (owner_.failed()) {  // that has ended what was under way then, and ends nothing more
    const Status failed = owner_.failure();
    return give_up(failed, last_error());
  }
  const std::vector<CollectiveStep>& steps = task_.schedule->steps();
  const bool message = steps[state.step].verb == StepVerb::send || steps[state.step].verb == StepVerb::recv;
  if (!message) return owner_.fail(status, owner_.group().rank, why);
  const uint32_t peer = steps[state.step].peer;
  const std::string named = "rank " + std::to_string(peer) + ": ";
  owner_.fail(status, peer, why.starts_with(named) ? why : named + why);
}

void CollectiveRun::give_up(Status status, const std::string& why) {
  if (is_error(status_) || over()) return;
  status_ = status;
  why_ = why;
  for (StepRun& state : states_) {
    if (state.under_way && state.request != TW_REQUEST_NONE) (void)owner_.engine().cancel(state.request);
  }
  advance();
}

std::string CollectiveRun::missing(uint32_t* rank) const {
  std::vector<uint32_t> ranks;
  const std::vector<CollectiveStep>& steps = task_.schedule->steps();
  for (const StepRun& state : states_) {
    if (!state.under_way || state.request == TW_REQUEST_NONE) continue;
    ranks.push_back(steps[state.step].peer);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  *rank = ranks.size() == 1 ? ranks.front() : kNoRank;
  std::string text;
  for (const uint32_t one : ranks) text += (text.empty() ? "rank " : ", rank ") + std::to_string(one);
  return text.empty() ? "a device" : text;
}

void CollectiveRun::close_peers(const std::string& why) {
  const std::vector<CollectiveStep>& steps = task_.schedule->steps();
  for (const StepRun& state : states_) {
    if (!state.under_way || state.request == TW_REQUEST_NONE) continue;
    tw_endpoint* endpoint = nullptr;
    if (is_error(owner_.group().endpoint(steps[state.step].peer, &endpoint)) || endpoint == nullptr) continue;
    owner_.engine().doom(*endpoint->peer, TW_ERR_TIMED_OUT, why);
  }
}

void CollectiveRun::finish() {
  if (!is_error(status_) && task_.scaled_count != 0)
    scale_host(task_.operation, task_.bound.output.address, task_.scaled_count, owner_.group().size);
  task_ = CollectiveTask{};
  if (handle_ == nullptr) return over_.store(true, std::memory_order_release);
  OpRun& handle = *std::exchange(handle_, nullptr);
  const Status status = status_;
  const std::string why = std::exchange(why_, {});
  Engine& engine = owner_.engine();
  owner_.end(*this);
  is_error(status) ? engine.complete(handle, status, why) : engine.complete(handle, TW_OK);
}

Status CollectiveRun::take_result() {
  const Status status = status_;
  if (is_error(status)) set_last_error(std::exchange(why_, {}));
  owner_.end(*this);
  return status;
}

}  // namespace thalweg::impl
