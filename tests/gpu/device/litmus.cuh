// SPDX-License-Identifier: Apache-2.0
// Message passing between two GPUs, over and over: whoever sees the flag must see all of the data. Many groups of blocks go on
// at once, each with a place of its own, both ways in turn; every word of every message is different and is compared.
#pragma once
#include "tests/gpu/device/pair.cuh"

namespace thalweg::device::gpu {

/// What a litmus test is run with.
struct Litmus {
  Window window;
  char* own;   // sources; as long as the window
  u64 rounds;  // messages of a group, both ways together
  u64 room;    // bytes of a group's part of the window: words at its beginning, then data
  u64 bytes;   // of a message, a multiple of 8
  u32 blocks;  // of a group
  u32 seed;
  u64* wrong;    // words that were not as expected
  u32* arrived;  // a word for each group
  SendEnd* const* send;
  RecvEnd* const* receive;
};

constexpr u64 kFlag = 0, kData = 128;

__device__ inline u64 expected_word(u32 seed, u64 round, u64 group, u64 index) {
  u64 x = (u64{seed} << 32 | static_cast<u32>(round)) * 0x9e3779b97f4a7c15u + group * 0xbf58476d1ce4e5b9u +
          index * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  return x ^ x >> 29;
}

/// Where a group is, and whose turn it is.
struct Group {
  const Litmus& test;
  u64 number, base;
  Blocks blocks;
  __device__ explicit Group(const Litmus& t)
      : test(t),
        number(blockIdx.x / t.blocks),
        base(number * t.room),
        blocks(t.arrived + number, blockIdx.x % t.blocks, t.blocks) {}
  __device__ bool sends(u64 round) const { return round % 2 == test.window.rank; }
  __device__ u64* source() const { return reinterpret_cast<u64*>(test.own + base); }
  /// By every block: each may copy any of it.
  template <class ThreadGroup>
  __device__ void fill(ThreadGroup callers, u64 round) const {
    for (u64 i = callers.rank(); i < test.bytes / 8; i += callers.size()) source()[i] = expected_word(test.seed, round, number, i);
    callers.sync();
  }
  /// All of the data is looked at by every block, whoever wrote it.
  template <class ThreadGroup>
  __device__ void verify(ThreadGroup callers, u64 round, const u64* data) const {
    u64 wrong = 0;
    for (u64 i = callers.rank(); i < test.bytes / 8; i += callers.size())
      wrong += data[i] != expected_word(test.seed, round, number, i);
    if (wrong != 0) atomicAdd(test.wrong, wrong);
    callers.sync();
  }
};

/// Plain stores, then the signal. ThreadGroup: of one group.
struct Direct {
  template <class ThreadGroup>
  static __device__ bool send(const Group& g, ThreadGroup callers, u64 round) {
    g.fill(callers, round);
    return put_signal(callers, g.test.window, 1 - g.test.window.rank, g.base + kData, g.source(), g.test.bytes / 8,
                      g.base + kFlag, round + 1);
  }
  template <class ThreadGroup>
  static __device__ bool receive(const Group& g, ThreadGroup callers, u64 round) {
    if (!wait(callers, g.test.window, g.base + kFlag, Compare::greater_equal, round + 1)) return false;
    g.verify(callers, round, reinterpret_cast<const u64*>(g.test.window.bases[g.test.window.rank] + g.base + kData));
    return true;
  }
};

/// Plain stores, quiet, then an atomic add by every block.
struct Added {
  template <class ThreadGroup>
  static __device__ bool send(const Group& g, ThreadGroup callers, u64 round) {
    g.fill(callers, round);
    if (!put(callers, g.test.window, 1 - g.test.window.rank, g.base + kData, g.source(), g.test.bytes / 8)) return false;
    quiet(callers);
    if (callers.rank() == 0) fetch_add(g.test.window, 1 - g.test.window.rank, g.base + kFlag, u64{1});
    return true;
  }
  template <class ThreadGroup>
  static __device__ bool receive(const Group& g, ThreadGroup callers, u64 round) {
    const u64 messages = round / 2 + 1;  // of this direction
    if (!wait(callers, g.test.window, g.base + kFlag, Compare::greater_equal, messages * g.test.blocks)) return false;
    g.verify(callers, round, reinterpret_cast<const u64*>(g.test.window.bases[g.test.window.rank] + g.base + kData));
    return true;
  }
};

/// The flag beside the data.
template <bool Lines>
struct Packed {
  template <class ThreadGroup>
  static __device__ bool send(const Group& g, ThreadGroup callers, u64 round) {
    g.fill(callers, round);
    const u32 to = 1 - g.test.window.rank;
    const u64 count = g.test.bytes / 8;
    if constexpr (Lines) return put_ll128(callers, g.test.window, to, g.base, g.source(), count, round + 1);
    return put_ll(callers, g.test.window, to, g.base, g.source(), count, static_cast<u32>(round + 1));
  }
  template <class ThreadGroup>
  static __device__ bool receive(const Group& g, ThreadGroup callers, u64 round) {
    const u64 count = g.test.bytes / 8;
    bool ok;
    if constexpr (Lines) {
      ok = take_ll128(callers, g.test.window, g.base, g.source(), count, round + 1);
    } else {
      ok = take_ll(callers, g.test.window, g.base, g.source(), count, static_cast<u32>(round + 1));
    }
    if (ok) g.verify(callers, round, g.source());
    return ok;
  }
};

template <class Form, class ThreadGroup>
__device__ void pass_messages(const Litmus& test, ThreadGroup callers, const Group& group) {
  for (u64 round = 0; round < test.rounds; ++round) {
    if (!(group.sends(round) ? Form::send(group, callers, round) : Form::receive(group, callers, round))) return;
  }
}

template <class Form>
__global__ void litmus_thread(const __grid_constant__ Litmus test) {
  const Group group(test);
  pass_messages<Form>(test, Thread(), group);
}
template <class Form>
__global__ void litmus_warp(const __grid_constant__ Litmus test) {
  const Group group(test);
  pass_messages<Form>(test, Warp(), group);
}
template <class Form>
__global__ void __launch_bounds__(256) litmus_block(const __grid_constant__ Litmus test) {
  const Group group(test);
  pass_messages<Form>(test, Block(), group);
}
template <class Form>
__global__ void __launch_bounds__(256) litmus_blocks(const __grid_constant__ Litmus test) {
  const Group group(test);
  pass_messages<Form>(test, group.blocks, group);
}

/// One channel a group and direction; both ends of it shared by the group's blocks.
__global__ void __launch_bounds__(256) litmus_channel(const __grid_constant__ Litmus test) {
  const Group group(test);
  Sender<> out(test.send[group.number], test.window.guard);
  Receiver<> in(test.receive[group.number], test.window.guard);
  const u64* const recv_buffer = reinterpret_cast<const u64*>(test.window.bases[test.window.rank] + group.base + kData);
  for (u64 round = 0; round < test.rounds; ++round) {
    if (group.sends(round)) {
      group.fill(group.blocks, round);
      if (!out.send(group.blocks, group.source(), test.bytes / 8, round)) return;
    } else {
      if (!in.post(group.blocks, 0, round) || !in.take(group.blocks, round)) return;
      group.verify(group.blocks, round, recv_buffer);
    }
  }
}

}  // namespace thalweg::device::gpu
