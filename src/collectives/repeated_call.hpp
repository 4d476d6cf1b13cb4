// SPDX-License-Identifier: Apache-2.0
// A blocking call over memory that all ranks map (direct_area.hpp), kept for the next one of its kind: one that differs in nothing but
// where its buffers lie is neither described nor chosen again, which takes longer than a short collective does.
#pragma once
#include "collectives/call.hpp"
#include "collectives/run.hpp"

namespace thalweg::impl {

/// What a call is, but for its buffers. Of calls with no other option than a time limit, and with one count for all ranks.
struct CallShape {
  uint64_t count = 0;
  uint32_t root = 0, type = 0, op = 0;
  bool send_placed = false, recv_placed = false;  // TW_IN_PLACE
  bool operator==(const CallShape&) const = default;
};

/// Read under the engine's lock; written under it in a collective that the area has begun, which is one at a time.
struct RepeatedCall {
  CallShape shape;
  Collective what;
  Extents bytes;
  CollectiveTask task;
};

/// Runs it as the one before it of its kind, if it is like that: *repeated. Under no lock.
Status repeat_call(tw_group& group, Call& call, const tw_collective_options& options, bool* repeated);
/// In the area's collective, which has run: the next one like it is as this one.
void remember_call(Collectives& all, const Call& call, const tw_collective_options& options, CollectiveTask& task);
/// The area's collective, which has begun, is over here with this status. A failure is the group's. (call.cpp)
Status end_directly(Collectives& all, Status status);

}  // namespace thalweg::impl
