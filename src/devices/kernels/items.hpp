// SPDX-License-Identifier: Apache-2.0
// A warp's items of what a step moves: every block takes the same items whenever it comes to the step.
#pragma once
#include "devices/program/item_share.hpp"
#include "thalweg/device/copy.hpp"

namespace thalweg::impl::kernels {

namespace machine = device::machine;
using device::u32;
using device::u64;

/// As packed offsets.
struct Items {
  u64 first, stride, length, bytes;
};

/// The calling warp's share, of `blocks` blocks' warps, both powers of two.
THALWEG_DEVICE device::ItemShare warp_share(u32 block, u32 blocks, u32 item) {
  const u32 warps = machine::threads_x() / machine::kLanes;
  return {block * warps + machine::thread_x() / machine::kLanes, warps * blocks, item, warps};
}
THALWEG_DEVICE Items items_of_step(const device::Step& step, device::ItemShare share) {
  return {share.first(step), u64{share.all} * share.item, share.item, step.bytes};
}

THALWEG_DEVICE void copy_runs(Items items, u64 to, u64 from) {
  for (u64 at = items.first; at < items.bytes; at += items.stride) {
    const u64 left = items.bytes - at;
    device::copy_run(device::DirectMachine(), machine::thread_x() % machine::kLanes, machine::kLanes, to + at, from + at,
                     left < items.length ? left : items.length);
  }
}
/// `to` by value: the peer chooses when a receive buffer's entry changes, and all of a copy goes where it was when it began.
THALWEG_DEVICE void copy_items(Items items, device::Side to, const device::Side& from) {
  for (u64 at = items.first; at < items.bytes; at += items.stride) {
    const u64 end = items.bytes - at < items.length ? items.bytes : at + items.length;
    device::copy_sides(device::DirectMachine(), machine::thread_x() % machine::kLanes, machine::kLanes, to, from, items.bytes,
                       {at, end});
  }
}

THALWEG_DEVICE void move_items(Items items, const device::Side& to, const device::Side& from) {
  if (!device::contiguous(to) || !device::contiguous(from)) return copy_items(items, to, from);
  const u64 target = to.base, source = from.base, common = target | source | items.bytes;
  if (common % 16 == 0) {
    for (u64 at = items.first; at < items.bytes; at += items.stride) {
      const u64 left = items.bytes - at;
      device::copy_words<device::Word16>(device::DirectMachine(), machine::thread_x() % machine::kLanes, machine::kLanes,
                                         target + at, source + at, (left < items.length ? left : items.length) / 16);
    }
  } else if (common % 8 == 0 && items.bytes == 8) {  // the payload of what waits for every nanosecond
    if (machine::thread_x() % machine::kLanes == 0) *reinterpret_cast<u64*>(target) = *reinterpret_cast<const u64*>(source);
  } else {
    copy_runs(items, target, source);
  }
}

}  // namespace thalweg::impl::kernels
