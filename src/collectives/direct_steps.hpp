// SPDX-License-Identifier: Apache-2.0
// The loop of all kinds: fill the own part of a step, publish it, and drain the step before.
#pragma once
#include "collectives/direct_run.hpp"

namespace thalweg::impl {

/// fill(k, to): the k-th piece into the own part. drain(k, step): what has been published for it.
template <class Fill, class Drain>
Status DirectRun::steps(uint64_t count, uint32_t of, Room room, Fill fill, Drain drain) {
  const uint64_t first = area_.next();
  for (uint64_t k = 0; k <= count; ++k) {
    if (Status s = area_.look_around(k, count); is_error(s)) return s;
    if (k < count) {
      if (Status s = area_.reserve(room); is_error(s)) return s;
      if (Status s = fill(k, area_.part(what_.rank, area_.next(), room)); is_error(s)) return s;
      area_.publish();
    }
    if (k == 0 || of == kNoRank) continue;
    const uint64_t step = first + k - 1;
    if (Status s = of == kAll ? area_.await_all(step) : area_.await(of, step); is_error(s)) return s;
    if (Status s = drain(k - 1, step); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace thalweg::impl
