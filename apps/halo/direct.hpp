// SPDX-License-Identifier: Apache-2.0
// The kernel's trigger, one text for GPU and processor: the code that has the cells stores them into the peer's cube, signals, and waits
// for what comes. In exchange n (1, 2, ...) the receiver of a box says first that its halo may be written.
#pragma once
#include <thalweg/device/window.hpp>

namespace halo {

using thalweg::device::u32;
using thalweg::device::u64;

/// A box that goes out, and the one that comes in at the same place from the other neighbour. Plain data. Words are offsets in
/// the window.
struct Route {
  u32 to, from;                 // ranks
  thalweg::device::Side cells;  // here
  thalweg::device::Side halo;   // there; its base is an offset
  u64 bytes;
  u64 ready_word, data_word;  // the same on every rank: at the sender, at the receiver
};

/// All routes of one caller, group by group. False: the window's guard says why.
template <class ThreadGroup>
THALWEG_DEVICE bool exchange(ThreadGroup group, const thalweg::device::Window& window, const Route* routes, u32 count, u64 n) {
  namespace device = thalweg::device;
  bool ok = true;
  if (group.leads()) {
    for (u32 r = 0; r < count; ++r)
      ok = device::signal(device::Thread(), window, routes[r].from, routes[r].ready_word, n) && ok;
  }
  if (!group.all(ok)) return false;
  for (u32 r = 0; r < count; ++r) {
    const Route& route = routes[r];
    if (!device::wait(group, window, route.ready_word, device::Compare::greater_equal, n, route.to)) return false;
    device::Side halo = route.halo;
    halo.base = device::reach(window, route.to, halo.base, 0);
    if (halo.base == 0) return false;
    device::copy(group, halo, route.cells, route.bytes);
    if (!device::signal(group, window, route.to, route.data_word, n)) return false;
  }
  for (u32 r = 0; r < count; ++r)
    if (!device::wait(group, window, routes[r].data_word, device::Compare::greater_equal, n, routes[r].from)) return false;
  return true;
}

}  // namespace halo
