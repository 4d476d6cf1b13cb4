// SPDX-License-Identifier: Apache-2.0
// What a plan consists of: the user's steps, as they were added.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "memory/layout.hpp"
#include "plans/exchange_step.hpp"
#include "protocols/operation.hpp"

namespace thalweg::impl {

/// Of a local buffer. *length 0 becomes what the layout moves.
Status check_layout(const Layout* layout, uint64_t* length);

/// Can there be so many bytes?
Status check_length(uint64_t length);

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
  uint64_t group = 0;           // send, recv: of a collective's channel (ChannelName)
  std::string of;               // of a collective: "tw_allreduce, rank 3"; empty: the user's own
  std::vector<ReduceSource> sources;
  std::vector<uint32_t> after;
  std::shared_ptr<const ExchangeStep> exchange;  // collective

  uint64_t address() const { return reinterpret_cast<uint64_t>(op.address); }
  uint64_t there() const {  // the other local buffer
    return op.verb == Verb::copy || op.verb == Verb::reduce ? op.remote_offset : 0;
  }
  /// Of a collective's messages both sides know the length.
  bool exact() const { return group != 0; }
  bool moves_to_peer() const { return op.verb == Verb::send || op.verb == Verb::put; }
  bool moves_here() const { return op.verb == Verb::recv || op.verb == Verb::get; }
};

/// A plan's steps; layouts and regions that they name are counted until clear().
class PlanList {
 public:
  PlanList() = default;
  ~PlanList() { clear(); }
  PlanList(const PlanList&) = delete;
  PlanList& operator=(const PlanList&) = delete;

  /// Checks the step and its options. *number, if not null, is the step's.
  Status add(PlanStep&& step, const tw_op_options& options, uint32_t* number);
  /// What comes after step `number` comes after all of `last`, too: they end what has several steps.
  void end_with(uint32_t number, std::vector<uint32_t> last) { ends_[number] = std::move(last); }
  /// Only the first ones stay.
  void truncate(size_t count);
  void clear() { truncate(0); }
  /// Regions that were imported through the user's endpoints: the steps name none any more.
  void leave_endpoints();

  size_t size() const { return steps_.size(); }
  bool empty() const { return steps_.empty(); }
  PlanStep& operator[](size_t index) { return steps_[index]; }
  const PlanStep& operator[](size_t index) const { return steps_[index]; }
  auto begin() const { return steps_.begin(); }
  auto end() const { return steps_.end(); }

 private:
  std::vector<PlanStep> steps_;
  std::map<uint32_t, std::vector<uint32_t>> ends_;
};

/// Of a send or receive: "channel 7", or of which collective.
std::string name_of_channel(const PlanStep& step);
/// "step 3 (recv of tw_allreduce, from rank 1)"
std::string name_of_step(size_t index, const PlanStep& step);
/// `status` with a text that names the step.
Status at_step(size_t index, const PlanStep& step, Status status);

}  // namespace thalweg::impl
