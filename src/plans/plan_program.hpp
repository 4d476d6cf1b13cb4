// SPDX-License-Identifier: Apache-2.0
// The program of a prepared plan. A step of the user's becomes one or two steps of the executor (types.hpp):
//
//   send     mapped: send;            receive  mapped: post, take
//   put, get, copy: copy              signal, wait, atomic, reduce: the same
//   what the executor does not reach: ring (with its buffer and value), await; the engine runs it in between
//   (proxied.hpp)
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "devices/program.hpp"
#include "plans/channel.hpp"
#include "plans/plan_list.hpp"
#include "plans/plan_resolve.hpp"
#include "plans/waits_ahead.hpp"

namespace thalweg::impl {

/// Words of a program's blocks (devices/program/ownership.hpp).
struct OwnerWords {
  uint64_t words = 0;
  uint32_t count = 0;
};

class PlanProgram {
 public:
  /// blocks: thread blocks of a device; 0: chosen.
  PlanProgram(PlanList& list, ResolvedSteps& resolved, uint32_t blocks) : list_(list), resolved_(resolved), blocks_(blocks) {}
  PlanProgram(const PlanProgram&) = delete;
  PlanProgram& operator=(const PlanProgram&) = delete;

  /// From what is resolved; its state and, where it is long, the executor's copy.
  Status build(Executor& executor);
  /// The same in two parts, after an update: the state stays.
  Status compose();
  Status place();
  /// The executor's copy stays for graphs of an earlier version.
  std::pair<uint64_t, size_t> leave_placed() { return {std::exchange(placed_, 0), placed_length_}; }
  void release();
  /// Of a plan of one step, in what goes along with every launch.
  void set_value(uint32_t index, uint64_t value);

  /// Without guard and carrier.
  ProgramRun run() const;
  uint64_t state() const { return state_; }
  OwnerWords owner_words() const;
  /// Of each step: the user's.
  const std::vector<uint32_t>& owner() const { return owner_; }

  // --- waits_ahead.cpp
  /// Does a run wait ahead of its kernel, on a queue of these TW_WAITS_*?
  bool has_wait_ahead(uint32_t waits) const {
    return !ahead_.waits.empty() && (waits == TW_WAITS_AHEAD || (waits == TW_WAITS_AUTO && holds_many()));
  }
  Status wait_ahead(Queue& on, const device::Guard& guard) const;
  std::string explain_waits(bool last_run_waited) const;

 private:
  bool holds_many() const;
  void compose_step(uint32_t i, std::vector<uint32_t>& last);

  PlanList& list_;
  ResolvedSteps& resolved_;
  const uint32_t blocks_;
  Executor* executor_ = nullptr;
  std::vector<device::Step> steps_;
  std::vector<uint32_t> after_, owner_;
  ProgramShape shape_;
  WaitsAhead ahead_;
  uint64_t state_ = 0, placed_ = 0;
  size_t state_length_ = 0, placed_length_ = 0;
};

}  // namespace thalweg::impl
