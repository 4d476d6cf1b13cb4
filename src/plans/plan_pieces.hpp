// SPDX-License-Identifier: Apache-2.0
// Steps in pieces: a copy, put, get or reduction that comes after another one whose destination it reads begins with the first piece that
// is there. Both are cut at the same places, and each piece of the later one comes after the same piece of the earlier one alone.
//
// Steps that follow each other in this way are a *chain*. A byte of a step has a coordinate, which is that of the byte of the earlier
// step that it reads; the chain's first step begins at 0. All of a chain is cut at multiples of its chunk. A step follows an earlier one
// by pieces only where that can be no race: wherever the two, or the later one and what the earlier one follows itself, touch the
// same byte and one writes it, the byte has the same coordinate in both.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plans/plan_list.hpp"
#include "plans/plan_resolve.hpp"

namespace thalweg::impl {

class PlanPieces {
 public:
  /// chunk_bytes: of a piece; 0: chosen.
  PlanPieces(const PlanList& list, const ResolvedSteps& resolved, uint64_t chunk_bytes)
      : list_(list), resolved_(resolved), chunk_bytes_(chunk_bytes) {}
  PlanPieces(const PlanPieces&) = delete;
  PlanPieces& operator=(const PlanPieces&) = delete;

  /// When it is known how each step is carried out.
  void divide(const Executor& by);
  /// An address has changed: what was cut stays so, and may have to come after all of an earlier step.
  void check_again();
  void release() { steps_.clear(); }

  /// In the order of their bytes; 1 of a step that is not cut.
  uint32_t count(size_t step) const { return steps_.empty() ? 1 : steps_[step].count; }
  bool cut(size_t step) const { return count(step) > 1; }
  bool in_chain(size_t step) const { return !steps_.empty() && steps_[step].chunk != 0; }
  struct Range {
    uint64_t offset, length;  // in the step
  };
  Range range(size_t step, uint32_t piece) const;
  /// Earlier steps that it follows by pieces.
  bool follows_any(size_t step) const { return !steps_.empty() && !steps_[step].follows.empty(); }
  bool follows(size_t step, uint32_t earlier) const;
  /// The piece of `earlier` that has the bytes of a piece of a step that follows it.
  uint32_t match(size_t step, uint32_t piece, uint32_t earlier) const {
    return static_cast<uint32_t>(first_cut(step) + piece - first_cut(earlier));
  }
  /// The end of a step that follows does not imply the end of those of whose bytes it reads only a part.
  bool ends(size_t step, uint32_t earlier) const { return steps_[step].length == steps_[earlier].length; }
  /// What has equal keys begins at the same byte of one chain: the chain's first step, and the coordinate.
  struct Key {
    uint32_t head;
    uint64_t chunk, begin;
  };
  Key key(size_t step, uint32_t piece) const;
  /// Of a step, for tw_plan_explain; empty: it is whole, and comes after whole ones.
  std::string explain(size_t step) const;

 private:
  struct InChain {
    uint32_t head = 0, count = 1;
    uint64_t begin = 0, length = 0, chunk = 0;  // chunk 0: not of a chain
    std::vector<uint32_t> follows;
  };
  uint64_t first_cut(size_t step) const { return steps_[step].chunk == 0 ? 0 : steps_[step].begin / steps_[step].chunk; }
  bool divisible(size_t step) const;
  bool displacement(size_t step, uint32_t earlier, uint64_t* out) const;
  bool races(size_t step, uint32_t earlier) const;
  bool races_with_any(size_t step, uint32_t earlier) const;
  bool locate(size_t step, uint32_t earlier);
  void join(size_t step);
  void cut_chain(uint32_t head, const Executor& by, uint64_t most);
  uint64_t chosen(const std::vector<uint32_t>& steps, const Executor& by, uint64_t bytes) const;

  const PlanList& list_;
  const ResolvedSteps& resolved_;
  const uint64_t chunk_bytes_;
  std::vector<InChain> steps_;
};

}  // namespace thalweg::impl
