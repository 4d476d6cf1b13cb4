// SPDX-License-Identifier: Apache-2.0
// How a run of a plan fails. A block of pinned memory has the records that the executor fills in, one of each program, the abort
// word that ends its waits, and the word by which a run tells its end; beside it are the texts of what failed on the host's side.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plans/executor.hpp"
#include "plans/plan_list.hpp"
#include "plans/plan_resolve.hpp"

namespace thalweg::impl {

class PlanProgram;

class PlanFailure {
 public:
  /// Ends the channels that the plan uses for their other users, by a failure of the plan's.
  using EndChannels = std::function<void(Status status, const std::string& why)>;
  /// TW_OK: no run of the plan is under way, or enqueued.
  using RunsOver = std::function<Status()>;
  PlanFailure(const PlanList& list, const ResolvedSteps& resolved, const PlanProgram& program, EndChannels end_channels,
              RunsOver runs_over)
      : list_(list),
        resolved_(resolved),
        program_(program),
        end_channels_(std::move(end_channels)),
        runs_over_(std::move(runs_over)) {}
  PlanFailure(const PlanFailure&) = delete;
  PlanFailure& operator=(const PlanFailure&) = delete;

  Status allocate(Executor& executor);
  void release();
  device::Failure* record(size_t part) const { return records_ + part; }
  uint64_t* abort_word() const { return abort_word_; }
  /// device::Program::over of runs that the host starts.
  uint64_t* over_word() const { return abort_word_ + 1; }

  /// TW_OK, or how a run failed, which then ends the channels for their other users, and the collectives of the groups whose kernels the
  /// plan has. An idle plan that has failed with a channel leaves its groups as they are: their kernels keep step.
  Status now();
  /// The same, once.
  Status check();
  bool told() const { return told_; }
  /// The same for the channels alone: the thread's error text stays.
  void tell();
  /// Has a run failed? Of a plan that is prepared.
  bool any() const { return recorded() || __atomic_load_n(abort_word_, __ATOMIC_ACQUIRE) != 0; }
  /// What the kernels of groups store into; of each group once.
  const std::vector<ExchangeArea*>& areas() const { return areas_; }
  /// TW_OK, or why the ranks of a group's kernel no longer run it together: another plan of theirs failed.
  Status check_ranks() const;
  /// From now on the loss of a rank ends what a kernel of a group's waits for, until release().
  void watch_ranks();
  /// By a step's own record.
  bool recorded() const { return recorded_part() < parts_; }

  void fail_channel(Status status, const std::string& why);
  void fail_step(uint32_t index, Status status, const char* why);

 private:
  std::string why(Status code, size_t part);
  bool of_a_run(size_t part);
  size_t recorded_part() const;  // parts_: none
  Status code_of(size_t part) const;
  bool is_of_flag(size_t part) const;
  /// Why a step of the executor failed.
  std::string text_of(size_t part) const;

  const PlanList& list_;
  const ResolvedSteps& resolved_;
  const PlanProgram& program_;
  const EndChannels end_channels_;
  const RunsOver runs_over_;
  Executor* executor_ = nullptr;
  uint64_t pinned_ = 0;
  size_t pinned_length_ = 0;
  device::Failure* records_ = nullptr;
  size_t parts_ = 0;  // for which there are records
  std::vector<ExchangeArea*> areas_;
  std::vector<std::weak_ptr<char>> windows_;  // that kernels of groups use
  uint64_t* abort_word_ = nullptr;
  std::mutex mutex_;
  bool told_ = false;        // the failure was reported
  std::string proxy_why_;    // of a proxied step that failed
  std::string channel_why_;  // of a channel that did
  Status said_code_ = TW_OK;
  std::string said_;  // why, for that code
};

}  // namespace thalweg::impl
