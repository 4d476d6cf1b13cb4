// SPDX-License-Identifier: Apache-2.0
// What the kernels of a group's queues store into (devices/program/exchange.hpp): a window over the group, in the memory of each
// rank's device. Made by the first collective that the group's ranks call on queues, where all of those are queues of devices that
// reach each other's memory; from then on the group's collectives on queues are of these devices.
//
// Life: the group's; plans that queues keep hold it, too, and fail once the group has ended.
#pragma once
#include <thalweg/device/ll128.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/estimate.hpp"
#include "collectives/schedule.hpp"
#include "plans/exchange_step.hpp"
#include "plans/executor.hpp"
#include "plans/window.hpp"

struct tw_group;
struct tw_queue;

namespace thalweg::impl {

class ExchangeCall;
struct ExchangeEnd;

/// What of kernels is measured: LL, Simple, and in windows.
enum class AreaLine : uint8_t {
  ll,          // an allreduce
  lines,       // LL128: an allgather
  two_lines,   // LL128: an allreduce
  two_phases,  // an allreduce
  one_phase,   // an allgather
  symmetric,   // an allreduce
  slots,       // the same, operands by slots
  loads,       // a reduction
  stores,      // an allgather
  count_
};
inline constexpr size_t kAreaLines = static_cast<size_t>(AreaLine::count_);

/// What a rank's run of a line does.
void measured_by(AreaLine line, uint32_t rank, uint32_t size, uint64_t bytes, device::Exchange* out);

/// Nanoseconds of runs of three lengths; 0: not measured.
struct AreaCosts {
  static constexpr size_t kLengths = 3;
  double ns[kAreaLines][kLengths] = {};
  double* operator[](AreaLine line) { return ns[static_cast<size_t>(line)]; }
  const double* operator[](AreaLine line) const { return ns[static_cast<size_t>(line)]; }
};

/// The thread that calls a group's collectives on queues, or enqueues its kernels.
class EnqueueOrder {
 public:
  /// The same thread may enter again; unlock() as often.
  [[nodiscard]] Status enter() {
    if (turn_.try_lock()) return TW_OK;
    return fail(
        TW_ERR_THREAD,
        "another thread enqueues a collective of this group: all ranks call them in one order, so one call returns before "
        "the next one begins; or duplicate the group");
  }
  void unlock() { turn_.unlock(); }

 private:
  std::recursive_mutex turn_;
};

class DeviceArea final : public ExchangeArea, public std::enable_shared_from_this<DeviceArea> {
 public:
  /// Collective, under no lock. *out stays null where not all ranks can, and *why_not says why.
  /// `measures`: this rank wants how long runs take; they are measured where all do.
  /// `end`: of each exchange. After an error, other ranks may be further than this one, or behind.
  static Status agree(tw_group& group, Executor& by, std::shared_ptr<EnqueueOrder> order, bool measures, ExchangeEnd& end,
                      std::shared_ptr<DeviceArea>* out, std::string* why_not);
  DeviceArea(tw_group& group, Executor& by, std::shared_ptr<EnqueueOrder> order);
  ~DeviceArea() override;
  DeviceArea(const DeviceArea&) = delete;
  DeviceArea& operator=(const DeviceArea&) = delete;

  Device& device() const override { return *executor_.device(); }
  Executor& executor() const { return executor_; }
  void watch(uint64_t* word) override;
  void unwatch(uint64_t* word) override;
  Status check() override;
  void fail(Status status, const std::string& why) override;
  Status enter() override { return order_->enter(); }
  void leave() override { order_->unlock(); }
  Status order(Queue& queue, const tw_queue* of) override;
  Status note(Queue& queue, const tw_queue* of) override;

  /// Bytes of a block that LL takes at once.
  uint64_t room() const {
    return uint64_t{std::min(blocks_, device::kUnitBlocks)} * device::kUnitsOfBlock * device::kUnitBytes;
  }
  /// The same of LL128 in one phase; 0: not all lines arrive whole.
  uint64_t line_room() const { return lines_ ? uint64_t{blocks_} * 2 * device::kLinesOfPhase * device::kLineData : 0; }
  /// Into the costs by which all ranks choose.
  void set_costs(CollectiveCosts* costs) const;
  /// What all ranks' kernels agree on: areas, and how many blocks of threads.
  void fill(bool rooted, ExchangeStep* out) const;
  /// The same where no rank knows how many: all blocks.
  void fill_counted(ExchangeStep* out) const;
  /// The group ends: nothing of it is under way.
  void end();

 private:
  void set_areas(device::Exchange* what) const;
  void fill_lines(uint64_t bytes, ExchangeStep* out) const;
  Status make(const std::shared_ptr<ExchangeCall>& call, uint32_t blocks);
  Status allocate();
  /// How long runs take here. All ranks take part in all of it, whatever fails on one of them.
  Status measure(ExchangeCall& call, AreaCosts* out);
  struct Measuring;
  /// Bytes of each length; 0: it is not measured.
  uint64_t length_of(AreaLine line, size_t length) const;
  KernelLine line_of(AreaLine line) const;
  Status open(Measuring* out);
  Status measure(AreaLine line, size_t length, Measuring& on, AreaCosts* out);
  Status add_runs(AreaLine line, uint64_t bytes, uint64_t room, tw_plan* plan);

  tw_group* const group_;  // until end()
  const uint32_t rank_, size_;
  Executor& executor_;
  uint32_t blocks_ = 1;         // for which there is room
  bool lines_ = false;          // LL128: all devices' lines arrive whole at all others
  bool shares_device_ = false;  // kernels of several ranks run there, and wait for each other
  uint64_t piece_ = 0;
  tw_memory* memory_ = nullptr;
  std::unique_ptr<tw_window> window_;
  tw_device_window view_{};
  AreaCosts costs_;
  // Behind what the next run comes, under order_: what a queue has, which may have ended, or an event
  enum class Last : uint8_t { nothing, queue, event };
  Last last_ = Last::nothing;
  uint64_t last_queue_ = 0;  // its number
  std::unique_ptr<Event> event_;
  const std::shared_ptr<EnqueueOrder> order_;
  std::mutex mutex_;
  Status failed_ = TW_OK;
  std::string why_;
};

}  // namespace thalweg::impl
