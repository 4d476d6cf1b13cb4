// SPDX-License-Identifier: Apache-2.0
// Waits of plans' runs that a queue does ahead of the kernel, as a row of its own stores and waits (Queue::words), so that no
// multiprocessor is held meanwhile. docs/decisions/0015-waits-ahead-of-kernels.md.
//
// A row: the queue stores that it has begun; gives the credits of the run's receives; waits for the credits of its sends and
// the flags of its receives, and then for a bar, which is up; stores that it has ended. The kernel after it is the same as
// without a row, and polls everything again. So a row may pass too early, but must never wait for more than the kernel.
//
// Only the proxy's thread limits such a wait. At the limit, or when a channel has failed,
//   1. it lowers the bar, then reads the words: one that has not arrived now had not before, so the queue has not passed and
//      cannot pass. If all have arrived, the bar is raised, and the run continues.
//   2. Otherwise the plan's channels fail, at both ends. All programs that use them are closed; none of them runs now: an
//      end is one queue's, and that waits here. Then the words are stored to, and the bar is raised. The kernel finds its
//      program closed and does nothing; those words are not read again.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "devices/queue.hpp"
#include "plans/executor.hpp"

namespace thalweg::impl {

class PlanList;
class PlanRuns;
class Proxy;
class ResolvedSteps;

/// Of a plan's run: numbers of its steps.
struct WaitsAhead {
  static constexpr size_t kMostSteps = 48;  // of the plan
  std::vector<uint32_t> posts;              // receives whose credit goes out ahead
  std::vector<uint32_t> looks;              // sends and receives that are waited for ahead; empty: there are none
};
/// What all of a prepared plan's doings wait for, whatever else each of them waits for.
WaitsAhead waits_ahead(const PlanList& list, const ResolvedSteps& resolved, const Executor& executor);

/// By TW_WAITS_AUTO, where a kernel's blocks could hold more than this part of the multiprocessors: programs have so many only
/// when they move megabytes (devices/program.cpp), which hides what a row costs.
inline constexpr unsigned kHeldPart = 4;

/// The rows of one queue. Any thread.
class WaitRows {
 public:
  WaitRows(Proxy& proxy, Executor& executor, Queue& queue) : proxy_(proxy), executor_(executor), queue_(queue) {}
  ~WaitRows();
  /// Ahead of a run that the caller enqueues next; it holds the queue's `order`.
  Status enqueue(PlanRuns& plan);
  /// Forgets rows that the queue is through with. True: there are others.
  bool pending();
  /// By the proxy's thread, under its mutex.
  unsigned watch();

 private:
  struct Look {
    uint32_t step;
    uint64_t word, wanted;
  };
  struct Row {
    PlanRuns* plan;
    uint64_t number;
    std::vector<Look> looks;
    uint64_t limit = 0;  // when it is over, monotonic ns; 0: not begun
    uint64_t next_look = 0;
  };
  Status open();
  void forget_ended();
  Status ask(const Row& row);
  void answer(Row& row, uint64_t now);
  Status let_go(const Row& row, size_t missing);
  void fail_channels(const Row& row, size_t missing);
  Status close_programs(const PlanRuns& plan);
  static bool ended_badly(const PlanRuns& plan);
  Status set_bar(uint64_t* from);
  bool missing(const Row& row, size_t look) const;

  Proxy& proxy_;
  Executor& executor_;
  Queue& queue_;
  uint64_t bar_ = 0;           // the executor's memory
  uint64_t* words_ = nullptr;  // pinned
  uint64_t last_ = 0;          // under the queue's order
  uint64_t asked_ = 0;         // proxy's: the row for which the bar is down, and what its words hold is on its way
  unsigned queues_ = 0;        // proxy's: Executor::queues() when the bar was last known to be as it should be
  std::mutex mutex_;
  std::deque<Row> rows_;
};

}  // namespace thalweg::impl
