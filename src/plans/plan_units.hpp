// SPDX-License-Identifier: Apache-2.0
// What a plan's program is made of, in its order: steps, and pieces of those that are cut (plan_pieces.hpp).
//
// Pieces of a chain alternate: the first piece of all its steps, then the second one of all. An executor that does what it finds ready
// in the order of its program then reads a piece again while a cache has it, and has begun the last step when the first one is at its
// second piece. On a device the first step's pieces come one after the other for the same reason, as all blocks would do them
// at once otherwise.
#pragma once
#include <cstdint>
#include <vector>

#include "plans/plan_pieces.hpp"

namespace thalweg::impl {

struct Unit {
  static constexpr uint32_t kNone = ~0u;
  struct After {
    uint32_t unit;
    bool own;  // a block of threads needs to wait for nothing but its own share of it
  };
  uint32_t step = 0, piece = 0;
  bool signals = false;     // of a step that is cut and runs by the executor: the signal behind all of its pieces
  uint32_t shares = kNone;  // the earlier unit whose bytes its own come from: each block moves the same ones of both
  std::vector<After> after;
};

std::vector<Unit> units_of(const PlanList& list, const ResolvedSteps& resolved, const PlanPieces& pieces);

}  // namespace thalweg::impl
