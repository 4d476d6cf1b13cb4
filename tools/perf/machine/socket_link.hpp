// SPDX-License-Identifier: Apache-2.0
// A stream socket between this process and one that it forked, without the library.
#pragma once
#include <netinet/in.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace perf {

/// Shared by the two, 0 at first: the port of rank 0, once it listens (~0: it cannot), then above it that of rank 1, before it connects.
using SharedPort = std::atomic<uint64_t>;

/// Loopback TCP: rank 0 listens, rank 1 connects. -1, with errno: there is none here.
int tcp_link(int rank, SharedPort* port);
/// All n bytes, polling; false: the other end is gone.
bool move_polled(int fd, unsigned char* p, size_t n, bool out);
/// The same, asleep in the kernel meanwhile.
bool move_asleep(int fd, unsigned char* p, size_t n, bool out);

}  // namespace perf
