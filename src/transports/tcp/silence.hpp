// SPDX-License-Identifier: Apache-2.0
// When a silent network makes a peer lost.
//
// An idle connection: TCP keep-alive, answered by the peer's kernel. Unacknowledged data: a check of TCP_INFO about
// five times per time-out. TCP_USER_TIMEOUT is not used: since Linux 5.11 it also ends connections whose peer acknowledges
// everything but does not read (zero window), and a peer that computes for a minute, or is stopped, is not dead.
#pragma once
#include <cstdint>

namespace thalweg::impl::tcp {

/// Options of a data socket: TCP_NODELAY, keep-alive within timeout_ns (whole seconds, at least 2), a bounded retransmission
/// interval where the kernel has it, and on one machine a congestion control that does not pace. Best effort: a unix socket
/// has none of these, and the answer is false.
bool tune_socket(int fd, uint64_t timeout_ns);

enum class Silence { acknowledged, waiting, lost };
/// Is data on its way, and has nothing come from the peer's kernel for too long?
Silence listen_for(int fd, uint64_t timeout_ns);

/// How often to ask.
constexpr uint64_t watch_period(uint64_t timeout_ns) { return timeout_ns / 5; }

}  // namespace thalweg::impl::tcp
