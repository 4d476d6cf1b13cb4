// SPDX-License-Identifier: Apache-2.0
// Versions of a prepared plan: what graphs that were captured from it name, from one update to the next.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace thalweg::impl {

class Channel;
class PlanRuns;

/// Runs of a prepared plan that were begun, or that queues were given.
using RunCount = std::shared_ptr<std::atomic<uint64_t>>;
inline RunCount new_run_count() { return std::make_shared<std::atomic<uint64_t>>(0); }

/// A prepared plan between two updates. Graphs that were captured from it share it, and may outlive the plan.
struct Version {
  Version(RunCount of, PlanRuns* by) : runs(std::move(of)), plan(by) {}
  const RunCount runs;                // of all versions
  std::atomic<bool> for_good{false};  // captured by a graph that is not ours to see ending
  std::atomic<PlanRuns*> plan;        // null: it was destroyed, or prepared anew; what graphs name is not there any more
};

/// What an earlier version names, and no later one; given back when none of its graphs is left.
struct Outdated {
  std::shared_ptr<Version> version;
  std::pair<uint64_t, size_t> placed{}, table{};  // in executor.own()
  Channel* channel = nullptr;                     // of the receive buffer
  uint16_t recv_buffer = 0;
};

class PlanVersions {
 public:
  explicit PlanVersions(PlanRuns* of) : plan_(of) {}
  ~PlanVersions() { end(); }
  PlanVersions(const PlanVersions&) = delete;
  PlanVersions& operator=(const PlanVersions&) = delete;
  const RunCount& runs() const { return runs_; }  // of all
  const std::shared_ptr<Version>& newest() const { return newest_; }
  /// May graphs run that nobody here sees launched?
  bool unseen() const {
    return newest_->for_good ||
           std::any_of(outdated_.begin(), outdated_.end(), [](const Outdated& one) { return one.version->for_good.load(); });
  }
  /// Has a graph captured the newest?
  bool captured() const { return in_graphs(newest_); }
  /// Begins another one; `left` is what only earlier ones name.
  void supersede(Outdated left) {
    left.version = std::exchange(newest_, std::make_shared<Version>(runs_, plan_));
    outdated_.push_back(std::move(left));
  }
  const std::vector<Outdated>& outdated() const { return outdated_; }
  /// Gives back what no graph names any more.
  template <class GiveBack>
  void give_back_ended(const GiveBack& give_back) {
    std::erase_if(outdated_, [&](const Outdated& one) {
      if (in_graphs(one.version)) return false;
      give_back(one);
      return true;
    });
  }
  /// The plan is prepared anew.
  void release() {
    end();
    runs_ = new_run_count();
    newest_ = std::make_shared<Version>(runs_, plan_);
    outdated_.clear();
  }

 private:
  /// No graph runs any of them again.
  void end() {
    newest_->plan = nullptr;
    for (const Outdated& one : outdated_) one.version->plan = nullptr;
  }
  static bool in_graphs(const std::shared_ptr<Version>& one) { return one->for_good || one.use_count() > 1; }
  PlanRuns* const plan_;
  RunCount runs_ = new_run_count();
  std::shared_ptr<Version> newest_ = std::make_shared<Version>(runs_, plan_);
  std::vector<Outdated> outdated_;
};

}  // namespace thalweg::impl
