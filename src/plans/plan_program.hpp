// SPDX-License-Identifier: Apache-2.0
// The program of a prepared plan. A step of the user's becomes one or two steps of the executor (types.hpp):
//
//   send     mapped: send;            receive  mapped: post, take
//   put, get, copy: copy              signal, wait, atomic, reduce: the same
//   what the executor does not reach: ring (with its buffer and value), await; the engine runs it in between
//   (proxied.hpp)
//
// Of a step that is cut each piece becomes that (plan_units.hpp).
//
// A collective by kernels is a program of its own, so that a plan with some is several, which a queue runs one after the other
// (plan_parts.hpp). They share the guard, but for the record of a failure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "devices/program.hpp"
#include "plans/channel.hpp"
#include "plans/plan_list.hpp"
#include "plans/plan_parts.hpp"
#include "plans/plan_pieces.hpp"
#include "plans/plan_resolve.hpp"
#include "plans/plan_units.hpp"
#include "plans/waits_ahead.hpp"

namespace thalweg::impl {

/// Words of a program's blocks (devices/program/ownership.hpp). An exchange's are in its area.
struct OwnerWords {
  uint64_t state = 0, words = 0;
  uint32_t blocks = 0, held = 0;  // that a run launches; that have a word here
};

class PlanProgram {
 public:
  /// blocks: thread blocks of a device; 0: chosen.
  PlanProgram(PlanList& list, ResolvedSteps& resolved, const PlanPieces& pieces, uint32_t blocks)
      : list_(list), resolved_(resolved), pieces_(pieces), blocks_(blocks) {}
  PlanProgram(const PlanProgram&) = delete;
  PlanProgram& operator=(const PlanProgram&) = delete;

  /// Which step is of which program; refuses what no order of them can run.
  Status part();
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

  size_t parts() const { return parts_.size(); }
  /// Without guard and carrier.
  ProgramRun run(size_t part) const;
  /// Of the first part: its abort flag is that of all.
  uint64_t state() const { return state_; }
  std::vector<OwnerWords> owner_words() const;
  /// The only step of a part that is a kernel of a collective; of others the first.
  const PlanStep& first_step(size_t part) const { return list_[parts_[part].owner.front()]; }
  /// Of each step of a part: the user's.
  const std::vector<uint32_t>& owner(size_t part) const { return parts_[part].owner; }

  // --- waits_ahead.cpp
  /// Does a run wait ahead of its kernel, on a queue of these TW_WAITS_*?
  bool has_wait_ahead(uint32_t waits) const {
    return !ahead_.waits.empty() && (waits == TW_WAITS_AHEAD || (waits == TW_WAITS_AUTO && holds_many()));
  }
  Status wait_ahead(Queue& on, const device::Guard& guard) const;
  std::string explain_waits(bool last_run_waited) const;

 private:
  struct Part {
    std::vector<device::Step> steps;
    std::vector<uint32_t> after, owner;
    ProgramShape shape;
    const ExchangeStep* exchange = nullptr;
    uint64_t state = 0, placed = 0;  // offsets
    bool fits() const { return fits_inline(steps.size(), after.size()); }
  };
  bool holds_many() const;
  bool peers_share_device() const;
  std::string explain_blocks() const;
  std::string explain_parts() const;
  std::string explain_ahead(bool last_run_waited) const;
  void compose_unit(const std::vector<Unit>& units, uint32_t number, std::vector<uint32_t>& last);

  PlanList& list_;
  ResolvedSteps& resolved_;
  const PlanPieces& pieces_;
  const uint32_t blocks_;
  Executor* executor_ = nullptr;
  bool shares_device_ = false;     // kernels of peers run on the executor's device, too
  uint32_t most_ = kMostBlocks;    // thread blocks of a program
  std::vector<uint32_t> part_of_;  // by step of the user's
  uint32_t part_count_ = 0;
  std::vector<Part> parts_;
  WaitsAhead ahead_;
  uint64_t state_ = 0, placed_ = 0;
  size_t state_length_ = 0, placed_length_ = 0;
};

}  // namespace thalweg::impl
