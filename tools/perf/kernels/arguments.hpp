// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels of this tool, by value. Plain data for both compilers.
#pragma once
#include <thalweg/device/types.hpp>

namespace perf {

using thalweg::device::u32;
using thalweg::device::u64;

/// Threads of a block, at most.
constexpr u32 kThreads = 512;

/// Ping-pong of puts. The side that leads sends first and takes the time.
struct Rounds {
  thalweg::device::Window data;           // where puts, and LL messages, go
  thalweg::device::Window flags;          // where signals go: the same, or one over host memory where a CPU answers
  u64 from;                               // address of what is sent
  u64 bytes;                              // of a put; 0: only signals
  u64 to;                                 // offset in the peer's part of `data`; packed: of the room in everybody's part
  u64 flag;                               // offset in everybody's part of `flags`
  u64 recv_buffer;                        // packed: address of where a message is unpacked
  u64 width, from_pitch, to_pitch, rows;  // strided: in doubles; 0 rows: contiguous
  u64 before;                             // rounds of earlier launches: a signal's value, and a LL message's generation
  u32 warm, rounds;                       // not timed, timed
  bool leads;
  u32* arrived;  // this device's, for Blocks
  u64* took;     // this device's: ns of the timed rounds; stays 0 when a wait failed
};

/// Ping-pong over two channels.
struct ChannelRounds {
  thalweg::device::SendEnd* send;
  thalweg::device::RecvEnd* receive;
  thalweg::device::Guard send_guard, receive_guard;
  u64 from, bytes;
  u32 recv_buffer;  // the number of the only buffer
  u32 warm, rounds;
  bool leads;
  u32* arrived;
  u64* took;
};

/// `count` puts, buffer after buffer, then one signal behind all of them.
struct Burst {
  thalweg::device::Window data;
  u64 from;  // address
  u64 bytes, pitch, count;
  u64 flag, value;
  u32* arrived;
};

/// y += a * x, or y = x, where x is in the part of rank `of`, and y is memory of any device or pinned.
struct Stream {
  thalweg::device::Window data;
  u32 of;
  u64 y;      // address
  u64 count;  // doubles
  double a;
};

}  // namespace perf
