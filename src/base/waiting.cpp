// SPDX-License-Identifier: Apache-2.0
// Waiting: the part that is not a spin.
#include "base/waiting.hpp"

#include <sched.h>

namespace thalweg::impl {

uint64_t timed_yield() {
  const uint64_t before = monotonic_ns();
  sched_yield();
  return monotonic_ns() - before;
}

Waiting::Next Waiting::give_way() {
  turns_ = spins_;  // no further spin, however long it takes
  if (asleep_) return Next::sleep;
  if (crowd_.costs_slice()) {
    crowd_.spared();
    asleep_ = true;
    return Next::sleep;
  }
  const uint64_t took = yield_();
  crowd_.yielded(took);
  yielded_ns_ += took;
  asleep_ = took >= Crowd::kLateNs || yielded_ns_ >= (crowd_.there() ? kCrowdedYieldNs : kYieldNs);
  return Next::look;  // poll once more: the event may have happened meanwhile
}

}  // namespace thalweg::impl
