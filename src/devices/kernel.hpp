// SPDX-License-Identifier: Apache-2.0
// The kernels that the library itself launches, as plain data. A back end runs them on its device; emulated/ by a host-side
// twin. All addresses are ones that the device may use: its own, an import, a reachable peer's, or pinned host memory.
//
// status, where given, is a 64-bit word in pinned host memory, 0 while all is well: a kernel that finds it set does nothing,
// not even its signal, so one expired wait stops what follows it. Lengths are bytes; overlap of source and target is an error
// of the caller that is not checked.
#pragma once
#include <cstdint>
#include <variant>

namespace thalweg::device {
struct WaitAhead;
}

namespace thalweg::impl {

/// A rectangular copy; dims of one collapse to a plain copy. Pitches may be negative.
struct Copy {
  uint64_t to, from;
  uint64_t width;  // bytes per row
  uint64_t rows = 1, slices = 1;
  int64_t to_row = 0, from_row = 0;  // row pitches, bytes
  int64_t to_slice = 0, from_slice = 0;
};

/// What a kernel does last, after all of its stores and a system-scope fence: a thread that acquires the word sees them.
struct SignalAfter {
  uint64_t address = 0;  // of a 64-bit word, aligned; 0: no signal
  uint64_t value = 0;
  bool add = false;  // atomically, in the word's domain
};

/// Put (or, with a remote source, get) of one rectangle: contiguous, or gather, scatter and strided by its pitches.
struct CopyKernel {
  Copy copy;
  SignalAfter signal;
  uint64_t status = 0;
  unsigned blocks = 0;  // thread blocks; 0: as many as saturate the link
};

struct BlockPair {
  uint64_t to, from;
};
/// Gather and scatter: `count` blocks of one length. `pairs` is an array of BlockPair in memory that the device reads while
/// the kernel runs: pinned or its own.
struct BlocksKernel {
  uint64_t pairs;
  uint64_t count;
  uint64_t length;
  SignalAfter signal;
  uint64_t status = 0;
  unsigned blocks = 0;
};

/// Spins, on one thread, until the word is cyclically >= value. Holds a multiprocessor's slot meanwhile. After limit_ns it
/// ends all the same, with TW_ERR_TIMED_OUT (sign-extended) in the status word, which it must have.
struct WaitKernel {
  uint64_t word;
  uint64_t value;
  uint64_t limit_ns;
  uint64_t status;
};

enum class AtomicOp : uint8_t { add, bit_and, bit_or, bit_xor, swap, compare_swap };

/// One atomic operation on one word whose domain is a device: run by that device or a peer with PeerAccess::atomics. What the
/// word's earlier changes published is visible to the queue's later work.
struct AtomicKernel {
  uint64_t word;  // aligned to `bytes`
  uint64_t operand;
  uint64_t compare = 0;  // compare_swap: the operand is stored only where the word holds this
  uint64_t old = 0;      // of a 64-bit word that gets what was there, filled up with zeros, before the signal; 0: not wanted
  AtomicOp op = AtomicOp::add;
  unsigned bytes = 8;  // 4 or 8
  SignalAfter signal = {};
  uint64_t status = 0;
};

/// Stays and copies what it finds in a ring of commands: devices/persistent.hpp, which alone launches it. On its own
/// queue.
struct PersistentKernel {
  uint64_t shared;  // persistent::Shared, in pinned host memory
  uint64_t generation, first;
  uint64_t idle_ns, life_ns;
  unsigned blocks;
};

/// One block that waits for what a program's run needs, ahead of the program's kernel: devices/program/wait_ahead.hpp.
struct WaitAheadKernel {
  const device::WaitAhead* waits;  // host memory, which the call reads and does not keep
};

using Kernel = std::variant<CopyKernel, BlocksKernel, WaitKernel, AtomicKernel, PersistentKernel, WaitAheadKernel>;

}  // namespace thalweg::impl
