// SPDX-License-Identifier: Apache-2.0
// The persistent copy kernel. In each block the first warp runs the common text (devices/persistent/block.hpp), all lanes in
// step; the other warps wait at a barrier for the copies that are worth them.
#pragma once
#include "devices/persistent/block.hpp"
#include "thalweg/device/copy.hpp"

namespace thalweg::impl::kernels {

namespace machine = device::machine;
using device::u32;
using device::u64;

/// What the first warp has for the others.
struct PersistentShared {
  u64 to, from;
  u32 length;
  bool over;
};

template <u32 Threads>
class WarpIo {
 public:
  explicit THALWEG_DEVICE WarpIo(PersistentShared& shared) : shared_(shared), lane_(machine::thread_x() % machine::kLanes) {}

  /// All words at once, in one round trip. The last lane polls `leaving`, which block 0 writes itself.
  THALWEG_DEVICE bool fetch(const persistent::Slot* slot, u32 tag, const u64* leaving, persistent::Command* out,
                            u64* left) const {
    constexpr u32 kLast = persistent::kWords, kOfLane = kLast / machine::kLanes + 1;
    u64 words[kOfLane] = {};
    bool mine = true;
    THALWEG_UNROLL
    for (u32 k = 0; k < kOfLane; ++k) {
      const u32 i = k * machine::kLanes + lane_;
      if (i < kLast) {
        words[k] = machine::acquire(&slot->words[i]);
        mine = mine && static_cast<u32>(words[k]) == tag;
      } else if (i == kLast && machine::block_x() != 0) {
        words[k] = machine::acquire(leaving);
      }
    }
    machine::sync_lanes();  // what one lane acquired is visible to all
    const bool whole = machine::all_lanes(mine);
    *left = machine::from_lane(words[kLast / machine::kLanes], kLast % machine::kLanes);
    if (!whole) return false;
    u32 parts[kLast];
    THALWEG_UNROLL
    for (u32 i = 0; i < kLast; ++i)
      parts[i] = machine::from_lane(static_cast<u32>(words[i / machine::kLanes] >> 32), i % machine::kLanes);
    *out = persistent::command_of(parts);
    return true;
  }
  THALWEG_DEVICE void copy(u64 to, u64 from, u32 bytes) const {
    constexpr u32 kAlone = machine::kLanes * sizeof(device::Word16);  // what one load of each lane covers
    if (bytes <= kAlone || Threads == machine::kLanes) {
      device::copy_run(device::DirectMachine(), lane_, machine::kLanes, to, from, bytes);
      return;
    }
    if (lane_ == 0) shared_ = {to, from, bytes, false};
    machine::meet_block();
    device::copy_run(device::DirectMachine(), machine::thread_x(), Threads, to, from, bytes);
    machine::meet_block();
  }
  /// Behind a barrier one thread's release stands for what all of them did.
  THALWEG_DEVICE void say(u64* word, u64 value) const {
    machine::sync_lanes();
    if (lane_ == 0) machine::release(word, value);
    machine::sync_lanes();
  }
  THALWEG_DEVICE u64 nanoseconds() const { return machine::from_lane(machine::nanoseconds(), 0); }

 private:
  PersistentShared& shared_;
  const u32 lane_;
};

/// All threads of a block; Threads of them.
template <u32 Threads>
THALWEG_DEVICE void stay(const persistent::Arguments& arguments, PersistentShared& shared) {
  if (machine::thread_x() < machine::kLanes) {
    persistent::Block<WarpIo<Threads>> block(WarpIo<Threads>(shared), arguments, machine::block_x());
    block.begin();
    while (block.turn() != persistent::Turn::over) {
    }
    if (machine::thread_x() == 0) shared.over = true;
    machine::meet_block();
    return;
  }
  for (;;) {
    machine::meet_block();
    if (shared.over) return;
    device::copy_run(device::DirectMachine(), machine::thread_x(), Threads, shared.to, shared.from, shared.length);
    machine::meet_block();
  }
}

}  // namespace thalweg::impl::kernels
