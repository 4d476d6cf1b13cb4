// SPDX-License-Identifier: Apache-2.0
// What moves the copies of an operation on a device: its engines, a kernel of their own, or the persistent kernel.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thalweg::impl {

/// An engine moves short rows one by one, at some ten nanoseconds each; a kernel's threads take many at once and pay its
/// launch. (Two H200: a face of 65,536 rows of 8 bytes takes 24 us by the engine and 4.2 by a kernel, one of 256 rows of 2
/// KiB 3.8.)
inline constexpr uint64_t kShortRow = 256, kManyRows = 512;

struct DeviceCopies {
  bool one = false;              // one rectangle
  bool kernels = false;          // kernels of the device reach both sides
  uint64_t row = 0;              // its bytes
  uint64_t rows = 0;             // in all slices
  bool against = false;          // an engine moves much between this device and another one in the other direction
  bool waited_for = false;       // kernels may wait for this process: they may hold all multiprocessors
  uint64_t persistent_most = 0;  // bytes that the persistent kernel copies in less time than an engine; 0: there is none
  bool persistent_free = true;   // it has room, and no engine is under way, whose order poll() keeps
  uint64_t bytes() const { return row * rows; }
};

enum class CopyBy : uint8_t { engine, kernel, persistent };

/// One process's copies to and from memory of another one share an engine, which a link
/// of two directions does not want (docs/decisions/0024): what goes against one that is under way goes by a kernel.
CopyBy copy_by(const DeviceCopies& copies, uint64_t much);

/// Blocks that are gathered or scattered, by one kernel as pairs of one length, or by an engine, one copy each.
struct DeviceGather {
  size_t parts = 0;
  uint64_t pairs = 0;  // of the length that all parts have in common
  bool room = true;    // for the list of pairs, where the kernel reads it
};
CopyBy gather_by(const DeviceGather& blocks);

}  // namespace thalweg::impl
