// SPDX-License-Identifier: Apache-2.0
// Who uses one end of a channel: plans, or one kernel; on which epoch each relies, and whether runs of theirs are under way.
//
// Under Proxy::mutex().
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

class Channel;

/// Notified when an epoch fails: plans, and ends of kernels.
struct ChannelUser {
  virtual ~ChannelUser() = default;
  virtual void on_channel_failed(const Channel& channel, Status status, const std::string& why) = 0;
  virtual Status runs_over() const { return TW_OK; }  // TW_IN_PROGRESS: queues have more of its runs before them
  virtual bool stays() const { return true; }         // no other plan will come in its place
  virtual uint64_t runs_begun() const { return 0; }   // or that queues were given, since it was prepared
  virtual bool past(uint64_t runs) const {            // the first ones of those are over
    static_cast<void>(runs);
    return true;
  }
};

/// Runs that were under way at one moment: of which user, and how many it had begun by then.
using RunsThen = std::vector<std::pair<uint64_t, uint64_t>>;

class ChannelUsers {
 public:
  /// alone: a kernel, which cannot be notified: TW_ERR_BUSY while there is another user, and for others while it is there. tag: the
  /// channel's, for the text.
  Status add(ChannelUser* user, bool alone, uint64_t tag);
  /// What the user needs is known: an epoch may begin for it.
  void start(const ChannelUser* user);
  void rely(const ChannelUser* user, uint32_t epoch);
  /// True: it was alone.
  bool remove(const ChannelUser* user);

  bool empty() const { return users_.empty(); }
  bool alone() const { return alone_; }
  /// Those that rely on the epoch.
  std::vector<ChannelUser*> of(uint32_t epoch) const;
  bool rely_on(uint32_t epoch) const { return !of(epoch).empty(); }
  /// A user waits until an epoch is open.
  bool wait() const;
  /// Runs of epochs that are over are under way. They end soon, but nothing ends them at once. open: the epoch that is open now; 0:
  /// none. failed: the newest one, which was mapped; what a kernel does is seen by that alone.
  bool have_past_runs(uint32_t open, bool failed) const;
  /// Runs of any epoch are.
  bool have_runs() const;
  /// Those of the epoch that are under way now; a kernel's are not known. Are they over by now? One that leaves has none.
  RunsThen runs_now(uint32_t epoch) const;
  bool over(const RunsThen& then) const;
  /// TW_OK, TW_IN_PROGRESS or an error: of those that rely on the epoch.
  Status runs_over(uint32_t epoch) const;

 private:
  struct Use {
    ChannelUser* user;
    uint64_t number;       // no other's, unlike its address
    uint32_t relies = 0;   // on which epoch; 0: none
    bool started = false;  // an epoch may begin for it
  };
  std::vector<Use> users_;
  uint64_t numbers_ = 0;
  bool alone_ = false;  // the user is a kernel's end
};

}  // namespace thalweg::impl
