// SPDX-License-Identifier: Apache-2.0
// Runs of a prepared plan, on queues and by the host; what the plan is to its channels.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "devices/program/host.hpp"
#include "devices/queue.hpp"
#include "plans/channel.hpp"
#include "plans/plan_channels.hpp"
#include "plans/plan_failure.hpp"
#include "plans/plan_program.hpp"
#include "plans/plan_proxied.hpp"
#include "plans/plan_times.hpp"
#include "plans/plan_version.hpp"
#include "routes/moved.hpp"

struct tw_queue;

namespace thalweg::impl {

class PlanRuns final : public ChannelUser {
 public:
  /// limit_ns: of every wait. kept: by a queue, for one operation.
  PlanRuns(Proxy& proxy, const PlanList& list, const ResolvedSteps& resolved, PlanProgram& program, PlanFailure& failure,
           CarriedSteps& carried, PlanChannels& channels, PlanVersions& versions, uint64_t limit_ns, bool kept)
      : proxy_(proxy),
        list_(list),
        resolved_(resolved),
        program_(program),
        failure_(failure),
        carried_(carried),
        channels_(channels),
        versions_(versions),
        limit_ns_(limit_ns),
        kept_(kept) {}
  PlanRuns(const PlanRuns&) = delete;
  PlanRuns& operator=(const PlanRuns&) = delete;

  /// The program is built.
  void begin(Executor& executor);
  /// Forgets its own queue and its run. No run is under way.
  void release();
  /// After an update: the host begins its next run with the new program.
  void use_program();

  Status start(tw_queue& on);
  Status start_by_host();
  Status test();
  Status at_rest();  // TW_ERR_BUSY: a run that this host knows of is not over
  /// The queue of the last start(), until it ends.
  const tw_queue* last_queue() const { return last_queue_; }
  void forget(const tw_queue& queue) {
    if (last_queue_ == &queue) last_queue_ = nullptr;
  }
  // --- of runs by a graph, which has counted them
  bool owns_channels(const Queue& on) const { return channels_.owned(&on); }
  Status take_channels(const Queue& on) { return channels_.take_over(&on); }
  /// They were enqueued.
  Status came_behind(Queue& on) { return executor_->device() != nullptr && versions_.unseen() ? mark(on) : Status{TW_OK}; }

  void on_channel_failed(const Channel& channel, Status status, const std::string& why) override;
  /// Before the plan leaves its channels and gives its program back: runs_over() reads no more of it.
  void forget_owner_words();
  Status runs_over() const override;
  /// The same; not under the proxy's mutex.
  Status runs_over_now() const;
  bool stays() const override { return kept_; }
  uint64_t runs_begun() const override { return versions_.runs()->load(); }
  bool past(uint64_t runs) const override;

  const Moved& moved() const { return moved_; }        // by runs that the host started
  bool waited_ahead() const { return waited_ahead_; }  // the last run

 private:
  ProgramRun run(size_t part) const;
  Status claim(const void* by);
  Status enqueue(tw_queue& on);
  Status test_device();
  /// A run: the kernel that waits ahead, if it is to, and the programs'. of: the queue is its.
  Status launch(Queue& on, tw_queue* of);
  Status order(Queue& on, const tw_queue* of);
  Status note(Queue& on, const tw_queue* of);
  Status give_up(Queue& on, Status status, bool begun, const char* why);
  Status part_counted(const OwnerWords& part, uint64_t runs) const;
  Status part_over(const OwnerWords& part) const;
  Status load_words(uint64_t* to, uint64_t from, size_t count) const;
  Status mark(Queue& on);
  void note_moves();                 // what each run moves by itself
  void count_run();                  // in moved_
  void trace_begin(uint64_t began);  // of a run by the host
  void trace_end(Status status);

  Proxy& proxy_;
  const PlanList& list_;
  const ResolvedSteps& resolved_;
  PlanProgram& program_;
  PlanFailure& failure_;
  CarriedSteps& carried_;
  PlanChannels& channels_;
  PlanVersions& versions_;
  const uint64_t limit_ns_;
  const bool kept_;
  Executor* executor_ = nullptr;
  std::unique_ptr<Queue> own_queue_;  // of runs by the host on a device; its waits block no other work
  tw_queue* last_queue_ = nullptr;
  std::unique_ptr<HostProgram> host_run_;
  PlanTimes times_;
  bool under_way_ = false;   // a run by the host
  uint64_t activity_ = 0;    // ... in the timeline; 0: not there
  bool tells_over_ = false;  // by PlanFailure::over_word()
  unsigned polls_ = 0;       // of that word
  // Under the proxy's mutex
  std::vector<OwnerWords> owner_words_;
  // Behind the last run on each queue, once graphs may run that nobody here sees launched: they count as runs, and hide those that
  // are still to come.
  std::map<const Queue*, std::unique_ptr<Event>> marks_;
  unsigned marking_ = 0;       // threads that record another one, of runs that the queue has
  bool waited_ahead_ = false;  // the last run
  struct Moves {
    Way way;
    Moved::Count each;
  };
  std::vector<Moves> moves_;  // of one run, by way
  Moved moved_;
};

}  // namespace thalweg::impl
