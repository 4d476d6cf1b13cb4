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

/// y = x between two memories that the device reaches, 16-byte aligned.
struct Move {
  u64 to, from;  // addresses
  u64 count;     // doubles
};

/// A flag there and back between two executors, or, from `rounds` = 0, one store as the kernel starts.
struct Flags {
  u64* mine;     // where this side waits, for 1, 2, ... `rounds`
  u64* theirs;   // what it stores the same numbers into
  u64 limit_ns;  // of each wait; the kernel ends behind it
  u64* done;     // rounds that are over
  u64* took;     // ns of all of them
  u32 rounds;
  bool leads;  // stores first
};

/// Atomic adds of 1 to one word by each thread.
struct Adds {
  u64* word;
  u64 each;  // by a thread
};

/// The first word of each page: read, and one more stored.
struct Touches {
  u64* first;
  u64 pages, words;  // of 8 bytes, from page to page
};

/// What host and device do together (collaborate.hpp).
enum class Pattern : u32 { histogram_input, histogram_output, padding, compaction, tasks, search };
constexpr u32 kBins = 256, kTaskWords = 256;
constexpr u32 kUnreached = ~0u;  // a node of a search
/// One side's part. Elements are words, rows (padding), tasks, or nodes of the frontier (search).
struct Collaboration {
  Pattern pattern;
  u32 first_bin, last_bin;  // histograms
  u32 level;                // search: of what is found
  u64 first, last, tile;    // elements; of those that are claimed at once
  u64* next;                // claimed tiles
  u64* tiles;               // that this side did
  u64* found;               // compaction, search: elements written
  const u32* in;            // search: where each node's edges begin, and the end
  const u32* edges;
  const u32* frontier;
  u32* next_frontier;
  u32* out;      // search: the level of each node
  u64 capacity;  // compaction: words of out; beyond it nothing is written, whatever a link without atomics makes of the counters
  u64 width, padded;
};

}  // namespace perf
