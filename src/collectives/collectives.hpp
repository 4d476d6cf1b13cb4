// SPDX-License-Identifier: Apache-2.0
// The collectives of one group at one rank: those under way, how they fail together, and what they share.
//
// A failure of one ends all: each rank that notices one tells all others (GiveUp), and from then on drops what still comes for this
// group, so that senders' operations end. Everything here is under the engine's lock.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collectives/buffers.hpp"
#include "collectives/device_area.hpp"
#include "collectives/device_reduce.hpp"
#include "collectives/direct_area.hpp"
#include "collectives/group_wire.hpp"
#include "collectives/schedule_cache.hpp"
#include "groups/group.hpp"

namespace thalweg::impl {

class CollectiveRun;
class GroupListener;
struct RepeatedCall;

class Collectives {
 public:
  /// The group's, made at the first use.
  static Status of(tw_group& group, Collectives** out);
  explicit Collectives(tw_group& group);
  ~Collectives();  // none is under way
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  tw_group& group() { return group_; }
  Engine& engine() { return *group_.worker.engine; }
  /// Is the group's worker in its end, which ends all that is under way? Nothing is begun any more, nor told.
  bool ends_with_worker() const { return group_.worker.engine == nullptr; }
  Scratch& scratch() { return scratch_; }
  ScheduleCache& schedules() { return schedules_; }
  DeviceReducer& reducer(Device& device);
  uint32_t ranks_per_host() const { return ranks_per_host_; }
  /// Collectives that were added to plans: all ranks add the same in the same order, which numbers their channels.
  uint64_t planned = 0;
  /// TW_OK, or how the group has failed: with the text, for every later collective.
  Status check() const;
  /// The same for the collectives that fail now: with the reason alone.
  Status failure() const;

  /// Blocking collectives may go over memory that all ranks map (direct_area.hpp). The first ones that may, find out, together: that
  /// is tried once. Each of them asks first whether it *finds: TW_ERR_BUSY, as long as another thread's does.
  Status begin_direct(const char* name, bool* finds);
  /// Under no lock.
  Status find_direct(uint64_t limit_ns);
  bool direct_tried() const { return direct_ != nullptr || !why_not_direct_.empty(); }
  /// The same of what they call on queues, in their order. An error fails the group, so that no other rank waits for this one.
  Status find_device(Executor& by);
  /// Its waits may call what calls the group.
  bool finding_device() const { return finding_device_; }
  bool device_tried() const { return device_ != nullptr || !why_no_device_.empty(); }
  const std::shared_ptr<DeviceArea>& device() const { return device_; }
  EnqueueOrder& enqueue_order() { return *enqueue_order_; }
  const std::string& why_no_device() const { return why_no_device_; }
  DirectArea* direct() { return direct_.get(); }
  const std::string& why_not_direct() const { return why_not_direct_; }
  /// The last call of that kind that went there (repeated_call.hpp). Null: none did.
  std::unique_ptr<RepeatedCall>& repeated(CollectiveKind kind) { return repeated_[static_cast<size_t>(kind)]; }

  /// A run that is not in use.
  CollectiveRun& take_run();
  void begin(CollectiveRun& run);
  /// It is over; it may be taken again.
  void end(CollectiveRun& run);
  /// All collectives under way end with this status, here and on all other ranks. rank: whose fault it is; kNoRank: not known.
  void fail(Status status, uint32_t rank, const std::string& why);
  /// The same: this rank's blocking call of that name was interrupted.
  void fail_interrupted(Status status, const char* name);

  /// Any thread.
  bool failed() const { return failing_.load(std::memory_order_acquire); }
  /// Of a group that has failed: has it told all others, as far as they are there, and has each of them given up, too? Then nobody
  /// waits for this rank's progress any more.
  bool settled() const { return *telling_ == 0 && open_ == 0; }

  /// From a listener. False: it came from no rank of the group, and says nothing.
  bool given_up(GiveUp message, size_t length, const tw_endpoint* from);
  /// Another rank has given up: which. kNoRank: none of the group, or its endpoint is gone already.
  uint32_t heard(const tw_endpoint* from);

 private:
  Status listen();
  void fail_here(Status status, const std::string& why);
  void tell_others(Status status, uint32_t rank, const std::string& why);

  tw_group& group_;
  Scratch scratch_;
  const uint32_t ranks_per_host_;
  ScheduleCache schedules_;
  std::vector<std::unique_ptr<DeviceReducer>> reducers_;
  std::vector<std::unique_ptr<CollectiveRun>> runs_;  // all
  std::vector<CollectiveRun*> idle_, under_way_;
  GroupListener* listener_ = nullptr;  // for GiveUp; ends itself
  GroupListener* drain_ = nullptr;     // for all the rest, once the group has failed
  const std::shared_ptr<EnqueueOrder> enqueue_order_ = std::make_shared<EnqueueOrder>();
  std::shared_ptr<DeviceArea> device_;
  std::string why_no_device_;    // empty: not tried yet
  bool finding_device_ = false;  // by the thread whose turn to enqueue it is
  std::unique_ptr<DirectArea> direct_;
  std::array<std::unique_ptr<RepeatedCall>, static_cast<size_t>(CollectiveKind::count_)> repeated_;
  std::string why_not_direct_;                                                                   // empty: not tried yet
  bool finding_direct_ = false;                                                                  // a call that began by finding
  std::shared_ptr<std::atomic<uint32_t>> telling_ = std::make_shared<std::atomic<uint32_t>>(0);  // messages under way
  enum class Answer : uint8_t { none, asked, given };
  std::vector<Answer> answers_;    // by rank: was it told, but for the one whose fault it is; has it given up
  std::atomic<uint32_t> open_{0};  // asked ones
  std::atomic<bool> failing_{false};
  Status failed_ = TW_OK;
  std::string why_;
};

}  // namespace thalweg::impl
