// SPDX-License-Identifier: Apache-2.0
// How each step of a plan is carried out: by its executor's own loads and stores, and where these go, or by the host.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "plans/channel.hpp"
#include "plans/plan_list.hpp"
#include "plans/proxied.hpp"

namespace thalweg::impl {

/// How prepare() resolved it.
struct Resolved {
  bool proxied = false;
  std::string why;  // proxied
  Channel* channel = nullptr;
  std::shared_ptr<ProxyPeer> peer;
  uint64_t peer_id = 0;  // of its worker: the proxy's thread, which may name it, does not read users' endpoints
  int recv_buffer = -1;
  uint64_t number = 0;  // of the channel, proxied: tag of the messages
  Reached remote, signal;
  Reaching local, target;        // the step's buffer, or the waited word; of a copy or a reduction the buffer that it writes to
  std::vector<Reached> sources;  // of a reduction
  uint64_t source_table = 0;     // ... their addresses, in the executor's memory, of one piece after the other
  bool aligned = false;          // ... and all of them, and the destination, to 16 bytes
  device::Side from{}, to{};
  std::vector<std::pair<uint64_t, size_t>> tables;  // in executor.own()
  uint32_t first = 0;                               // of its steps in the program
  std::vector<std::unique_ptr<Proxied>> steps;      // proxied: of each piece
  uint64_t bounce = 0;    // proxied, of a device: as many bytes of pinned memory, in *peer->bounces; 0: none
  uint64_t received = 0;  // ... of a receive: how many bytes came, in the executor's memory; 0: all of them come
  bool bounced = false;   // the program copies to it, or out of it: `from` and `to`
  tw_remote_memory* proxy_remote = nullptr;  // proxied: imported at the proxy's endpoint
  tw_remote_signal* proxy_signal = nullptr;
};

/// The executor at `place`; without one, that of the first device whose memory the steps name.
Status choose_executor(const PlanList& list, const std::string& place, Proxy& proxy, Executor** out);

/// Of a plan's steps, by their numbers. resolve() fills in what it needs no peer for, the channels (plan_channels.hpp), the
/// carried steps (plan_proxied.hpp) and the program (plan_program.hpp) theirs.
class ResolvedSteps {
 public:
  explicit ResolvedSteps(const PlanList& list) : list_(list) {}
  ResolvedSteps(const ResolvedSteps&) = delete;
  ResolvedSteps& operator=(const ResolvedSteps&) = delete;

  /// Peers have until the deadline to map what is theirs.
  Status resolve(Executor& executor, const Deadline& deadline);
  void name_peers();
  /// A reduction is cut at these bytes: its sources' addresses for each piece.
  Status cut_sources(size_t index, const std::vector<uint64_t>& offsets);
  /// Do the step's bytes lie where the executor's device copies them to a bounce buffer?
  bool may_bounce(size_t index);
  /// The host carries the step through a bounce buffer at `address`.
  Status bounce(size_t index, uint64_t address);
  /// The same of one whose buffer has moved, as move_side().
  Status move_bounced(uint32_t index, std::pair<uint64_t, size_t>* left);
  /// The step's buffer has moved. *left: its last table, to be given back.
  Status move_side(uint32_t index, std::pair<uint64_t, size_t>* left);
  /// Gives back tables and imports.
  void release();
  /// What they reach through the user's endpoints. No run is under way.
  void leave_endpoints() {
    for (Resolved& one : resolved_) {
      one.remote.reset();
      one.signal.reset();
      one.sources.clear();
    }
  }

  size_t size() const { return resolved_.size(); }
  Resolved& operator[](size_t index) { return resolved_[index]; }
  const Resolved& operator[](size_t index) const { return resolved_[index]; }
  auto begin() { return resolved_.begin(); }
  auto end() { return resolved_.end(); }
  auto begin() const { return resolved_.begin(); }
  auto end() const { return resolved_.end(); }

 private:
  Status resolve_step(size_t index, const Deadline& deadline);
  Status resolve_remote(const PlanStep& step, const Deadline& deadline, Resolved& out);
  Status admit_buffer(const PlanStep& step, Resolved& out);
  Status admit_bounced(const PlanStep& step, Reaching* how);
  static std::pair<uint64_t, size_t> take_table(Resolved& how, const device::Side& side);
  Status resolve_wait(const PlanStep& step, Resolved& out);
  Status resolve_exchange(const PlanStep& step, Resolved& out);
  Status resolve_reduce(size_t index, const Deadline& deadline);
  Status reach_now(RemoteRegion& region, bool changes, const Deadline& deadline, Reached* out);
  Status make_side(Resolved& out, uint64_t address, const Layout* layout, uint64_t length, device::Side* side);

  const PlanList& list_;
  Executor* executor_ = nullptr;
  std::vector<Resolved> resolved_;
};

}  // namespace thalweg::impl
