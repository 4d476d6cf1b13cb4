// SPDX-License-Identifier: Apache-2.0
// Operations and messages in the timeline (trace/trace.hpp). Everything here is out of the way: it is called only where trace::on().
#pragma once
#include "protocols/operation.hpp"
#include "trace/trace.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

/// The run is an activity of the timeline until it ends. It is one with extras from here on, so no short form completes it.
[[gnu::cold]] void trace_begin(const Engine& engine, OpRun& run);
/// It ends so. Only of a run that is traced.
[[gnu::cold]] void trace_end(const Engine& engine, const OpRun& run, Status status);
/// The frame that a message begins with has just gone over the peer's link: an arrow begins. at: trace::moment() of before, as the peer may
/// have handled it by now.
[[gnu::cold]] void trace_sent(const Peer& peer, trace::What what, uint64_t tag, uint64_t bytes, uint64_t at);
/// ... or is being handled: the arrow ends.
[[gnu::cold]] void trace_arrived(const Peer& peer, bool matched, uint64_t tag, uint64_t bytes);

}  // namespace thalweg::impl
