// SPDX-License-Identifier: Apache-2.0
// From what the executor and the host recorded of a failed run to its status and text.
#include "plans/plan_failure.hpp"

#include <algorithm>

#include "plans/plan_program.hpp"

using namespace thalweg::impl;
namespace device = thalweg::device;

namespace {

/// Of blocks of several lengths: which one did not fit.
std::string text_of_counts(const ExchangeStep& step, const device::Failure& failure) {
  const std::string rank = "rank " + std::to_string(static_cast<uint32_t>(failure.found));
  const std::string rows = std::to_string(failure.expected) + " rows";
  switch (static_cast<device::CountedFault>(failure.found >> 32)) {
    case device::CountedFault::sends:
      return rows + " to " + rank + " end behind send_capacity, " + std::to_string(step.counts.send_capacity) +
             " rows. Nothing was sent. Make another group";
    case device::CountedFault::receives:
      return rows + " from " + rank + " end behind recv_capacity, " + std::to_string(step.counts.recv_capacity) +
             " rows. Nothing was stored. Make another group";
    case device::CountedFault::unexpected:
      return rank + " sends " + std::to_string(failure.expected) +
             " elements, and this rank receives another number from there. " + "Nothing was stored. Make another group";
    default:
      return rank + " gave up, because counts did not fit, as its own error says. Make another group";
  }
}

/// Of a collective's message whose other side has another length. of_flag: the sender says so.
std::string text_of_length(const PlanStep& step, bool of_flag) {
  return std::string("the peer ") + (of_flag ? "sends" : "expects") + " another number of bytes than the " +
         std::to_string(step.op.length) + " of this step: its counts are others than this rank's";
}

/// Why a kernel of a collective failed, or that it was not run because an earlier one had.
std::string text_of_exchange(const ExchangeStep& step, Status code, const device::Failure& failure) {
  const bool earlier = (failure.found & device::kEarlierRun) != 0;
  const std::string rank = "rank " + std::to_string(static_cast<uint32_t>(failure.found));
  std::string text = earlier ? "an earlier one of the group has failed: " : "";
  switch (code) {
    case TW_ERR_BUSY:
      return "another one of the group was still running on another queue: order them, or duplicate the group";
    case TW_ERR_TIMED_OUT:
      return text + rank + " did not come in time (run " + std::to_string(failure.expected) + "). Make another group";
    case TW_ERR_INVALID:
      return text + "the buffers of " + rank +
             " lie in other windows of the group than those here, or do not fit into them. Make another group";
    case TW_ERR_TRUNCATED:
      if (earlier) return text + "its counts did not fit, as its own error says. Make another group";
      if (step.counted()) return text_of_counts(step, failure);
      return rank + " has blocks of other lengths than this rank: all ranks give the same counts. Nothing was stored. Make " +
             "another group";
    default:
      break;
  }
  return text + status_name(code) + (earlier ? ". Make another group" : "");
}

}  // namespace

Status PlanFailure::allocate(Executor& executor) {
  executor_ = &executor;
  parts_ = 1;
  for (const PlanStep& step : list_) {
    if (step.exchange == nullptr) continue;
    parts_ += 2;  // it, and what comes behind it
    windows_.insert(windows_.end(), step.exchange->windows.begin(), step.exchange->windows.end());
    ExchangeArea* const area = step.exchange->area.get();
    if (std::find(areas_.begin(), areas_.end(), area) == areas_.end()) areas_.push_back(area);
  }
  pinned_length_ = parts_ * sizeof(device::Failure) + 2 * sizeof(uint64_t);
  const Status status = executor.pinned().allocate(pinned_length_, &pinned_);
  records_ = reinterpret_cast<device::Failure*>(pinned_);
  abort_word_ = reinterpret_cast<uint64_t*>(pinned_ + parts_ * sizeof(device::Failure));
  return status;
}

void PlanFailure::watch_ranks() {
  for (ExchangeArea* const ranks : areas_) ranks->watch(abort_word_);
}

Status PlanFailure::check_ranks() const {
  for (const std::weak_ptr<char>& window : windows_) {
    if (window.expired())
      return fail(TW_ERR_STALE, "a window that the plan's collective uses has been destroyed: make the plan anew");
  }
  for (ExchangeArea* const ranks : areas_) {
    if (Status s = ranks->check(); is_error(s)) return s;
  }
  return TW_OK;
}

void PlanFailure::release() {
  for (ExchangeArea* const ranks : areas_) ranks->unwatch(abort_word_);
  areas_.clear();
  windows_.clear();
  if (executor_ != nullptr) executor_->pinned().free(pinned_, pinned_length_);
  pinned_ = 0;
  parts_ = 0;
  records_ = nullptr;
  abort_word_ = nullptr;
  told_ = false;
  said_code_ = TW_OK;
  proxy_why_.clear();
  channel_why_.clear();
}

size_t PlanFailure::recorded_part() const {
  size_t part = 0;
  while (part < parts_ && __atomic_load_n(&records_[part].code, __ATOMIC_ACQUIRE) == 0) ++part;
  return part;
}

/// Of a receive whose message's flag is there, and says that the message is not. A wait that ended without its flag has found less than
/// it expected.
bool PlanFailure::is_of_flag(size_t part) const {
  const device::Failure& failure = records_[part];
  if (part >= program_.parts() || failure.what >= program_.owner(part).size()) return false;
  return list_[program_.owner(part)[failure.what]].op.verb == Verb::recv && failure.expected < device::kSlots &&
         failure.found == static_cast<uint64_t>(-failure.code);
}

/// A flag is the peer's word. A sender stores one reason into it, TW_ERR_TRUNCATED; no other one becomes a status of ours, which
/// would say what happened here.
Status PlanFailure::code_of(size_t part) const {
  const auto code = static_cast<Status>(records_[part].code);
  // A send that began when its channel had failed has found no room there: that is not why.
  const auto ended = static_cast<Status>(static_cast<int64_t>(__atomic_load_n(abort_word_, __ATOMIC_ACQUIRE)));
  if (code == TW_ERR_TRUNCATED && !is_of_flag(part) && is_error(ended)) return ended;
  return code != TW_ERR_TRUNCATED && is_of_flag(part) ? Status{TW_ERR_PROTOCOL} : code;
}

std::string PlanFailure::text_of(size_t part) const {
  const device::Failure& failure = records_[part];
  const Status code = code_of(part);
  if (code == TW_ERR_CLOSED) return "a queue ended, or broke, before it had run what it was given. Prepare the plan again";
  if (part >= program_.parts() || failure.what >= program_.owner(part).size())
    return code == TW_ERR_BUSY ? "the plan was triggered while it was still running" : status_name(code);
  const uint32_t index = program_.owner(part)[failure.what];
  const PlanStep& step = list_[index];
  std::string text = "step " + std::to_string(index) + " (" + name_of(step.op.verb);
  if (resolved_[index].channel != nullptr) text += ", " + name_of_channel(step);
  text += ")";
  if (const uint64_t id = resolved_[index].peer_id; id != 0) {
    char peer[64];
    std::snprintf(peer, sizeof peer, ", peer %016llx", static_cast<unsigned long long>(id));
    text += peer;
  }
  if (step.exchange != nullptr) return text + " of " + step.of + ": " + text_of_exchange(*step.exchange, code, failure);
  if (code == TW_ERR_PROTOCOL && is_of_flag(part))
    return text + ": the peer stored " + std::to_string(failure.found) +
           " as the reason why there is no message, which no sender does. The plan does nothing more until both sides prepare "
           "again";
  if (code == TW_ERR_TRUNCATED && step.exact())
    return text + ": " + text_of_length(step, is_of_flag(part)) + ". The plan does nothing more until it is prepared again";
  const bool waited = code == TW_ERR_TIMED_OUT;
  text += waited ? ": nothing came in time" : std::string(": ") + status_name(code);
  return text + "; waited for " + std::to_string(failure.expected) + ", found " + std::to_string(failure.found) +
         ". The plan does nothing more until it is prepared again";
}

/// The same however often it is asked: to end the channels makes them say that they have failed, too.
std::string PlanFailure::why(Status code, size_t part) {
  const std::lock_guard lock(mutex_);
  if (said_code_ == code) return said_;
  said_code_ = code;
  const bool by_channel = static_cast<Status>(static_cast<int64_t>(__atomic_load_n(abort_word_, __ATOMIC_ACQUIRE))) == code;
  std::string because = by_channel ? channel_why_ : "";
  if (by_channel && is_error(check_ranks())) because = last_error();
  if (!proxy_why_.empty()) return said_ = proxy_why_;
  if (!because.empty() && (part == parts_ || code == TW_ERR_CLOSED)) return said_ = because;
  if (part == parts_) return said_ = status_name(code);
  return said_ = text_of(part) + (because.empty() ? "" : " (" + because + ")");
}

/// Did a run fail, or will one that is under way? A run that has ended by the word has recorded that.
bool PlanFailure::of_a_run(size_t part) {
  if (part < parts_) return true;
  {
    const std::lock_guard lock(mutex_);
    if (!proxy_why_.empty()) return true;
  }
  return runs_over_() != TW_OK || recorded_part() < parts_;  // it may have ended meanwhile
}

Status PlanFailure::now() {
  if (records_ == nullptr) return TW_OK;
  const size_t part = recorded_part();  // it was filled in before its code
  const Status code =
      part < parts_ ? code_of(part) : static_cast<Status>(static_cast<int64_t>(__atomic_load_n(abort_word_, __ATOMIC_ACQUIRE)));
  if (!is_error(code)) return TW_OK;
  const std::string text = why(code, part);
  if (!areas_.empty() && of_a_run(part)) {
    for (ExchangeArea* const ranks : areas_) ranks->fail(code, text);
  }
  if (code != TW_ERR_BUSY) end_channels_(code, "a plan at the peer failed: " + text);  // the peers' waits end too
  return fail(code, "%s", text.c_str());
}

Status PlanFailure::check() {
  {
    const std::lock_guard lock(mutex_);
    if (told_) return TW_OK;
  }
  const Status status = now();
  const std::lock_guard lock(mutex_);
  told_ = is_error(status);
  return status;
}

/// Who ends a failed plan may never have asked it: its channels' ends no longer agree on what has passed.
void PlanFailure::tell() {
  const std::string said = last_error();
  (void)now();
  set_last_error(said);
}

void PlanFailure::fail_channel(Status status, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (channel_why_.empty()) channel_why_ = why;
  }
  __atomic_store_n(abort_word_, static_cast<uint64_t>(int64_t{status}), __ATOMIC_RELEASE);
}

/// A proxied step failed: the executor's wait ends, and the record has why. Any thread.
void PlanFailure::fail_step(uint32_t index, Status status, const char* why) {
  {
    const std::lock_guard lock(mutex_);
    proxy_why_ = name_of_step(index, list_[index]) + ", carried by the host: " + why;
  }
  __atomic_store_n(abort_word_, static_cast<uint64_t>(int64_t{status}), __ATOMIC_RELEASE);
}
