// SPDX-License-Identifier: Apache-2.0
// One call of a collective: what the C functions fill in, how it is checked, and how it begins.
#pragma once
#include <thalweg/collectives.h>

#include <memory>
#include <vector>

#include "collectives/buffers.hpp"
#include "collectives/elements.hpp"
#include "collectives/schedule.hpp"
#include "groups/group.hpp"

namespace thalweg::impl {

/// A buffer of the call.
struct Side {
  const void* address = nullptr;
  bool used = false;           // by this rank
  bool may_be_placed = false;  // TW_IN_PLACE is allowed
  const char* name = "";
};

/// Counts of the v forms: elements and where they begin, by rank; empty: all the same.
struct Counts {
  std::vector<uint64_t> counts, offsets;
  bool given() const { return !counts.empty(); }
  /// Elements up to the end of the last one.
  uint64_t extent() const;
};

/// Bytes of both sides.
struct Extents {
  uint64_t sent = 0, received = 0;
};

struct Call {
  Call() : Call("", CollectiveKind::barrier, TW_TYPE_UINT8) {}
  Call(const char* name, CollectiveKind kind, uint32_t type) : name(name), type(type) { what.kind = kind; }
  const char* name;
  Collective what;  // kind, root, count; the rest is filled in by begin()
  uint32_t type;
  bool reduces = false;
  uint32_t op = TW_REDUCE_SUM;
  bool rooted = false;
  Side send{nullptr, false, false, "send"}, recv{nullptr, false, false, "recv"};
  uint64_t send_blocks = 1, recv_blocks = 1;  // of what.count elements
  Counts sent, received;
  Extents bytes;  // by bind_buffers()
  /// A v form: counts that ranks may not share.
  bool has_counts() const { return sent.given() || received.given() || what.counts_at_root; }
  /// ... of which each rank gives those of all ranks: they are alike, or a rank has called something else.
  bool knows_all_counts() const {
    const bool alike = what.kind == CollectiveKind::allgather || what.kind == CollectiveKind::reduce_scatter;
    return alike && received.given();
  }
};

/// Of the arrays that a user gave; offsets null: one behind the other. TW_ERR_INVALID: counts is null, or they are too many.
Status take_counts(const size_t* counts, const size_t* offsets, uint32_t size, const char* name, Counts* out);

/// Of numbers that all ranks have alike: ranks with others have another one, but for a chance.
uint64_t checksum(const std::vector<uint64_t>& numbers);

class Collectives;
class DeviceArea;
struct CollectiveTask;  // run.hpp
struct ExchangeStep;
/// What does not depend on the buffers.
Status check_call(const tw_group& group, const Call& call, const tw_collective_options& options);
/// The rest for a plan, whose steps are not many; and finds the schedule. Not the scratch memory. Under the engine's lock.
Status resolve_planned(Collectives& all, Call& call, const tw_collective_options& options, CollectiveTask* task);

/// Bytes of a chunk of long messages in a plan: at most 64 for all that a rank sends or receives, since a plan has a limited
/// number of steps.
uint64_t planned_chunk(const Collective& what);

/// Collective, under no lock: tw_window_register_on. (device_exchange.cpp)
Status register_window(tw_queue& queue, tw_window& window);
/// Where kernels of all ranks do it: what the step of a plan needs. *out stays null: resolve_planned() it. (device_exchange.cpp)
Status resolve_exchange(Collectives& all, Call& call, const tw_collective_options& options, std::shared_ptr<ExchangeStep>* out);
/// Then, under no lock: counts of several lengths go where the device reads them.
Status place_counts(ExchangeStep& step);
/// What depends on the buffers and the rank. Under the engine's lock.
Status prepare_task(Collectives& all, Call& call, const tw_collective_options& options, CollectiveTask* task);

/// What steps read and write, and call.what.in_place; refuses what makes no sense. (call_buffers.cpp)
Status bind_buffers(const tw_group& group, Call& call, Bound* out);
/// The same of a call that has its extents.
Status bind_sides(const tw_group& group, Call& call, Bound* out);
/// This rank may not progress for a while after a failure: others' operations must end, too. Returns the status, with its text. Under
/// no lock, in a call that occupies the group.
Status settle(Collectives& all, Status status);
/// Checks all and begins; a blocking one ends here, too. Under no lock.
Status run_call(tw_group& group, Call& call, const tw_collective_options& options, tw_request* request);

}  // namespace thalweg::impl
