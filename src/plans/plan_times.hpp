// SPDX-License-Identifier: Apache-2.0
// When a plan's programs did their steps, or a collective's kernel ran (devices/program/step_times.hpp), for the timeline: rings that their runs write, and that the
// timeline's thread reads every few milliseconds. Captured graphs keep writing there, so the rings stay as long as the plan does.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "devices/program.hpp"
#include "plans/executor.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {

class PlanProgram;

class PlanTimes {
 public:
  PlanTimes();
  ~PlanTimes();
  PlanTimes(const PlanTimes&) = delete;
  PlanTimes& operator=(const PlanTimes&) = delete;

  /// At prepare, before the first run, and again where an update has changed the programs. Makes rings where a timeline is recorded and there is memory for them,
  /// else none.
  void begin(Executor& executor, const PlanProgram& program, bool before_first);
  /// What the runs of a part write, if there are rings.
  void put_into(ProgramRun* run, size_t part) const;
  /// No run is under way. What has been written goes to the timeline.
  void release();

 private:
  struct Ring;
  void describe(const PlanProgram& program, size_t part, Ring* out);
  std::unique_ptr<Ring> make_ring(const PlanProgram& program, size_t part, bool before_first);
  bool same_steps(const PlanProgram& program) const;
  static void find_first(Ring& ring);
  static void take(Ring& ring, const trace::Keep& keep);
  void take_all(const trace::Keep& keep);

  Executor* executor_ = nullptr;
  std::mutex mutex_;  // of the rings' vector: the timeline's thread goes through it
  std::vector<std::unique_ptr<Ring>> rings_;
  size_t first_ = 0;  // of the newest programs
  uint64_t source_ = 0, track_ = 0;
};

}  // namespace thalweg::impl
