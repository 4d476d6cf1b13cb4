// SPDX-License-Identifier: Apache-2.0
// tw_plan: operations that are prepared once. A step of the user's becomes one or two steps of the executor (types.hpp):
//
//   send     mapped: send;            receive  mapped: post, take
//   put, get, copy: copy              signal, wait, atomic, reduce: the same
//   what the executor does not reach: ring (with its buffer and value), await; the engine runs it in between
//   (proxied.hpp)
//
// prepare() resolves all of it (plan_prepare.cpp), build() orders the steps (plan_build.cpp), plan_run.cpp starts runs.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "devices/deferred_release.hpp"
#include "devices/program.hpp"
#include "devices/program/host.hpp"
#include "plans/channel.hpp"
#include "plans/proxied.hpp"
#include "plans/waits_ahead.hpp"
#include "routes/moved.hpp"

namespace thalweg::impl {

/// Of a local buffer. *length 0 becomes what the layout moves.
Status check_layout(const Layout* layout, uint64_t* length);

/// Of a reduction: memory of this process, or a peer's. The region is counted.
struct ReduceSource {
  uint64_t address = 0;  // region null; else offset in it
  RemoteRegion* region = nullptr;
};

/// One operation of a plan: the record that immediate operations have, and what only lists of operations need. Layouts and regions are
/// counted. `op.tag` of a send or receive is the number of its channel.
struct PlanStep {
  OpDesc op;  // without a peer: it is reached by `endpoint`, or carried by the proxy's
  tw_endpoint* endpoint = nullptr;
  tw_signal* waited = nullptr;  // wait
  uint64_t start = 0;           // added to the user's address already: the begin of a contiguous layout
  uint64_t increment = 0;       // of the signal's value, with every run after the first
  std::vector<ReduceSource> sources;
  std::vector<uint32_t> after;

  uint64_t address() const { return reinterpret_cast<uint64_t>(op.address); }
  uint64_t there() const {  // the other local buffer
    return op.verb == Verb::copy || op.verb == Verb::reduce ? op.remote_offset : 0;
  }
  bool moves_to_peer() const { return op.verb == Verb::send || op.verb == Verb::put; }
  bool moves_here() const { return op.verb == Verb::recv || op.verb == Verb::get; }
};

/// A channel of a plan, once, however many steps name it.
struct ChannelUse {
  Channel* channel = nullptr;
  size_t step = 0;     // the first that names it
  uint32_t epoch = 0;  // of the channel: what the plan was built on
  uint32_t told = 0;   // receiver: the epoch in which the round was sent
  bool taken = false;  // sender: the round was taken
  uint32_t found = 0;  // the epoch that was open, and carried by the host, before this plan came; 0: none
};

/// How prepare() resolved it.
struct Resolved {
  bool proxied = false;
  std::string why;  // proxied
  Channel* channel = nullptr;
  ProxyPeer* peer = nullptr;
  uint64_t peer_id = 0;  // of its worker: the proxy's thread, which may name it, does not read users' endpoints
  int recv_buffer = -1;
  uint64_t number = 0;  // of the channel, proxied: tag of the messages
  Reached remote, signal;
  Reaching local, target;        // the step's buffer, or the waited word; of a copy or a reduction the buffer that it writes to
  std::vector<Reached> sources;  // of a reduction
  uint64_t source_table = 0;     // ... their addresses, in the executor's memory
  bool aligned = false;          // ... and all of them, and the destination, to 16 bytes
  device::Side from{}, to{};
  std::vector<std::pair<uint64_t, size_t>> tables;  // in executor.own()
  uint32_t first = 0;                               // of its steps in the program
  std::unique_ptr<Proxied> step;
  tw_remote_memory* proxy_remote = nullptr;  // proxied: imported at the proxy's endpoint
  tw_remote_signal* proxy_signal = nullptr;
};

/// The proxied steps of a plan that the host runs.
struct Carried final : Carrier {
  explicit Carried(Proxy& of) : proxy(of) {}
  bool drive() override { return proxy.drive(steps); }
  Proxy& proxy;
  std::vector<Proxied*> steps;
};

/// Runs of a prepared plan that were begun, or that queues were given.
using RunCount = std::shared_ptr<std::atomic<uint64_t>>;
inline RunCount new_run_count() { return std::make_shared<std::atomic<uint64_t>>(0); }

/// A prepared plan between two updates. Graphs that were captured from it share it, and may outlive the plan.
struct Version {
  explicit Version(RunCount of) : runs(std::move(of)) {}
  const RunCount runs;                // of all versions
  std::atomic<bool> for_good{false};  // captured by a graph that is not ours to see ending
};

/// What an earlier version names, and no later one; given back when none of its graphs is left.
struct Outdated {
  std::shared_ptr<Version> version;
  std::pair<uint64_t, size_t> placed{}, table{};  // in executor.own()
  Channel* channel = nullptr;                     // of the receive buffer
  uint16_t recv_buffer = 0;
};

}  // namespace thalweg::impl

struct tw_queue;
struct tw_plan final : thalweg::impl::Channel::User {
  using Status = thalweg::impl::Status;
  explicit tw_plan(thalweg::impl::Proxy& of) : proxy(of) {
    proxy.users_.fetch_add(1);
    proxy.context.traffic.add(moved_);
  }
  ~tw_plan() override;

  // --- building
  Status add(thalweg::impl::PlanStep&& step, const tw_op_options& options, uint32_t* number);

  // --- preparing (plan_prepare.cpp, plan_channels.cpp)
  Status prepare(uint64_t timeout_ns);
  Status choose_executor();
  Status resolve(size_t index);
  Status resolve_remote(thalweg::impl::PlanStep& step, thalweg::impl::Resolved& out);
  Status admit_buffer(const thalweg::impl::PlanStep& step, thalweg::impl::Resolved& out);
  Status resolve_wait(thalweg::impl::PlanStep& step, thalweg::impl::Resolved& out);
  Status resolve_reduce(thalweg::impl::PlanStep& step, thalweg::impl::Resolved& out);
  Status reach_now(thalweg::impl::RemoteRegion& region, bool changes, const thalweg::impl::Deadline& deadline,
                   thalweg::impl::Reached* out);
  Status open_channels(const thalweg::impl::Deadline& deadline);
  Status find_channel(size_t index, const thalweg::impl::Deadline& deadline);
  Status start_channels();
  Status await_channels(const thalweg::impl::Deadline& deadline);
  Status join_channels(size_t* waits_for, const char** what);
  Status settled(size_t index) const;
  Status await_recv_buffer(size_t index, const thalweg::impl::Deadline& deadline);
  std::string why_carried(const thalweg::impl::Channel& channel) const;
  void leave_channels();
  Status make_side(thalweg::impl::Resolved& out, uint64_t address, const thalweg::impl::Layout* layout, uint64_t length,
                   thalweg::device::Side* side);
  Status make_proxied(size_t index);  // plan_proxied.cpp
  Status post(size_t index, const thalweg::impl::Proxied& self, const thalweg::impl::Completion& completion);
  Status import_for_proxy(thalweg::impl::RemoteRegion& region, thalweg::impl::ProxyPeer& peer, bool signal, void** out);
  void progress_workers();
  void reopen_channels();
  Status release();  // gives back what prepare() took

  // --- plan_build.cpp
  Status compose();
  void compose_step(uint32_t i, std::vector<uint32_t>& last);
  Status place_program();
  Status build();

  // --- running (plan_run.cpp)
  Status trigger(tw_queue* queue);
  Status test();
  Status check();  // the failure of a run, once
  thalweg::impl::ProgramRun run_of() const;
  Status enqueue(tw_queue& on);
  Status trigger_by_host();
  Status failure_now();
  void tell_failure();
  Status claim_channels(thalweg::impl::Queue* queue);
  Status runs_over() const override;
  void note_moves();  // what each run moves by itself
  void count_run();   // in moved_
  bool holds_many() const;
  Status launch(thalweg::impl::Queue& on,
                uint32_t waits);  // a run: the kernel that waits ahead, if it is to, and the program's
  Status wait_ahead(thalweg::impl::Queue& on);
  uint64_t limit_ns() const { return timeout_ns != 0 ? timeout_ns : 30 * thalweg::impl::kSecond; }
  bool failed() const { return __atomic_load_n(&failure->code, __ATOMIC_ACQUIRE) != 0; }  // by a step's own record
  Status at_rest();  // TW_ERR_BUSY: a run that this host knows of is not over

  // --- plan_update.cpp
  Status update(uint32_t step, const void* address, const uint64_t* value);
  void set_value(uint32_t step, uint64_t value);
  Status move_step(uint32_t step, uint64_t address, thalweg::impl::Outdated* left);
  Status move_side(uint32_t step, thalweg::impl::Outdated* left);
  Status move_recv_buffer(uint32_t step, thalweg::impl::Outdated* left);
  void give_back(const thalweg::impl::Outdated& left);
  Status given_back() const { return owed.empty() ? Status{TW_OK} : Status{TW_IN_PROGRESS}; }
  std::string explain() const;        // plan_explain.cpp
  std::string explain_waits() const;  // waits_ahead.cpp
  void on_channel_failed(Status status, const std::string& why) override;
  thalweg::impl::Channel::OwnerWords owner_words() const override { return owner_words_; }
  bool stays() const override { return kept; }
  void fail_run(uint32_t step, Status status, const char* why);

  thalweg::impl::BornHere born;
  thalweg::impl::Proxy& proxy;
  std::string place;
  bool kept = false;  // by a queue, for one operation (queue.cpp)
  uint64_t timeout_ns = 0;
  uint32_t blocks = 0;
  std::vector<thalweg::impl::PlanStep> steps;
  std::vector<thalweg::impl::Resolved> resolved;
  std::vector<thalweg::impl::ChannelUse> channels;
  thalweg::impl::Executor* executor = nullptr;
  std::optional<thalweg::impl::KernelsWait> kernels_wait;  // a device's
  bool prepared = false;

  // the program
  std::vector<thalweg::device::Step> program;
  std::vector<uint32_t> program_after;
  std::vector<uint32_t> owner;  // of each step: the user's
  thalweg::impl::ProgramShape shape;
  uint64_t state = 0, placed = 0;
  size_t state_length = 0, placed_length = 0;
  thalweg::device::Failure* failure = nullptr;  // pinned, then `abort`, then the words of proxied steps
  uint64_t* abort_word = nullptr;
  uint64_t pinned = 0;
  size_t pinned_length = 0;
  bool told = false;                                // the failure was reported
  std::string proxy_why;                            // of a proxied step that failed
  std::string channel_why;                          // of a channel that did
  std::unique_ptr<thalweg::impl::Queue> own_queue;  // of runs by the host on a device; its waits block no other work
  tw_queue* last_queue = nullptr;
  std::unique_ptr<thalweg::impl::HostProgram> host_run;
  bool under_way = false;                           // a run by the host
  std::shared_ptr<thalweg::impl::Carried> carried;  // the proxied steps; null: there are none
  thalweg::impl::Channel::OwnerWords owner_words_;  // under the proxy's mutex
  thalweg::impl::WaitsAhead ahead;
  bool waited_ahead = false;  // the last run
  thalweg::impl::RunCount runs_due = thalweg::impl::new_run_count();
  std::shared_ptr<thalweg::impl::Version> version = std::make_shared<thalweg::impl::Version>(runs_due);
  std::vector<thalweg::impl::Outdated> outdated;
  thalweg::impl::Proxy::Offered owed;  // buffers that peers have been asked to give back, and have not
  std::mutex mutex;                    // proxy_why, channel_why, told

 private:
  struct Moves {
    thalweg::impl::Way way;
    thalweg::impl::Moved::Count each;
  };
  std::vector<Moves> moves_;    // of one run, by way
  thalweg::impl::Moved moved_;  // of runs that the host started
};

namespace thalweg::impl {

/// Why a step of the executor failed, as text.
std::string text_of(const tw_plan& plan, const device::Failure& failure);

}  // namespace thalweg::impl
