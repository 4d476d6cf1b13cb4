// SPDX-License-Identifier: Apache-2.0
// The users of one end of a channel. See channel_users.hpp.
#include "plans/channel_users.hpp"

#include <algorithm>
#include <utility>

namespace thalweg::impl {

Status ChannelUsers::add(ChannelUser* user, bool alone, uint64_t tag) {
  if (alone_) {
    return fail(TW_ERR_BUSY,
                "this end of channel %llu is bound to a kernel: release it (tw_channel_end_release), or use "
                "another channel",
                static_cast<unsigned long long>(tag));
  }
  if (alone && !users_.empty()) {
    return fail(TW_ERR_BUSY,
                "this end of channel %llu is used by a plan, or by operations on a queue: destroy that first, or "
                "use another channel",
                static_cast<unsigned long long>(tag));
  }
  alone_ = alone;
  users_.push_back({user, ++numbers_});
  return TW_OK;
}

void ChannelUsers::start(const ChannelUser* user) {
  for (Use& one : users_) one.started = one.started || one.user == user;
}

void ChannelUsers::rely(const ChannelUser* user, uint32_t epoch) {
  for (Use& one : users_) {
    if (one.user == user) one.relies = epoch;
  }
}

bool ChannelUsers::remove(const ChannelUser* user) {
  std::erase_if(users_, [user](const Use& one) { return one.user == user; });
  return std::exchange(alone_, false);
}

std::vector<ChannelUser*> ChannelUsers::of(uint32_t epoch) const {
  std::vector<ChannelUser*> those;
  for (const Use& one : users_) {
    if (one.relies == epoch) those.push_back(one.user);
  }
  return those;
}

bool ChannelUsers::wait() const {
  return std::any_of(users_.begin(), users_.end(), [](const Use& one) { return one.started && one.relies == 0; });
}

bool ChannelUsers::have_past_runs(uint32_t open, bool failed) const {
  if (alone_) return failed;
  return std::any_of(users_.begin(), users_.end(), [open](const Use& one) {
    return one.relies != 0 && one.relies != open && one.user->runs_over() != TW_OK;
  });
}

Status ChannelUsers::runs_over(uint32_t epoch) const {
  for (const Use& one : users_) {
    if (one.relies != epoch) continue;
    if (const Status s = one.user->runs_over(); s != TW_OK) return s;
  }
  return TW_OK;
}

RunsThen ChannelUsers::runs_now(uint32_t epoch) const {
  RunsThen now;
  for (const Use& one : users_) {
    if (one.relies == epoch && one.user->runs_over() != TW_OK) now.emplace_back(one.number, one.user->runs_begun());
  }
  return now;
}

bool ChannelUsers::over(const RunsThen& then) const {
  return std::all_of(then.begin(), then.end(), [this](const auto& runs) {
    const auto one = std::find_if(users_.begin(), users_.end(), [&runs](const Use& use) { return use.number == runs.first; });
    return one == users_.end() || one->user->past(runs.second);
  });
}

bool ChannelUsers::have_runs() const {
  return alone_ || std::any_of(users_.begin(), users_.end(),
                               [](const Use& one) { return one.relies != 0 && one.user->runs_over() != TW_OK; });
}

}  // namespace thalweg::impl
