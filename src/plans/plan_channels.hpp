// SPDX-License-Identifier: Apache-2.0
// The channels that a plan uses: opened by prepare(), with a receive buffer for every receive, and left when it is released.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "plans/channel.hpp"
#include "plans/plan_list.hpp"
#include "plans/plan_resolve.hpp"
#include "plans/proxy.hpp"

namespace thalweg::impl {

/// A channel of a plan, once, however many steps name it.
struct ChannelUse {
  Channel* channel = nullptr;
  size_t step = 0;             // the first that names it
  uint32_t epoch = 0;          // of the channel: what the plan was built on
  uint32_t told = 0;           // receiver: the epoch in which the round was sent
  bool taken = false;          // sender: the round was taken
  uint32_t found = 0;          // the epoch that was open, and carried by the host, before this plan came; 0: none
  const void* left = nullptr;  // the owner before take_over()
};

class PlanChannels {
 public:
  /// user: of the channels. kept: by a queue, for one operation.
  PlanChannels(Proxy& proxy, const PlanList& list, ResolvedSteps& resolved, ChannelUser& user, bool kept)
      : proxy_(proxy), list_(list), resolved_(resolved), user_(user), kept_(kept) {}
  PlanChannels(const PlanChannels&) = delete;
  PlanChannels& operator=(const PlanChannels&) = delete;

  Status open(Executor& executor, const Deadline& deadline);
  /// Until the sender knows a buffer that was offered after that.
  Status await_recv_buffer(size_t index, const Deadline& deadline);
  void leave(bool prepared);
  /// The plan is destroyed next: no other one has its group's numbers. Those of a queue's operations are used again.
  void end_for_good();
  /// Ends the epochs that the plan was built on, where they are alive.
  void fail_ends(Status status, const std::string& why);
  /// Do runs of this owner (Channel::owner) have all of them?
  bool owned(const void* by) const {
    return std::all_of(uses_.begin(), uses_.end(), [by](const ChannelUse& use) { return use.channel->owner == by; });
  }
  /// They have from now on, or TW_ERR_BUSY. Under Proxy::mutex().
  Status take_over(const void* by);

  const std::vector<ChannelUse>& uses() const { return uses_; }

  /// Buffers that peers have been asked to give back, and have not.
  const Proxy::Offered& owed() const { return owed_; }
  void owe(Channel* channel, uint16_t recv_buffer) { owed_.emplace_back(channel, recv_buffer); }
  void take_back() { proxy_.take_back(owed_); }
  void abandon() { proxy_.abandon(owed_); }

 private:
  Status find(size_t index, const Deadline& deadline);
  bool packs(const Channel& channel) const;
  Status start();
  Status await_open(const Deadline& deadline);
  Status join(size_t* waits_for, const char** what);
  Status settled(size_t index) const;
  std::string why_carried(const Channel& channel) const;
  void progress_workers();

  Proxy& proxy_;
  const PlanList& list_;
  ResolvedSteps& resolved_;
  ChannelUser& user_;
  const bool kept_;
  Executor* executor_ = nullptr;
  std::vector<ChannelUse> uses_;
  Proxy::Offered owed_;
};

}  // namespace thalweg::impl
