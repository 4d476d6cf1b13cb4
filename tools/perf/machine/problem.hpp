// SPDX-License-Identifier: Apache-2.0
// The problems of `collaborate`: random input, and what a sequential program makes of it.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/arguments.hpp"

namespace perf {

struct Problem {
  Pattern pattern;
  const char* name;
  uint64_t elements = 0;           // that are shared out: words, rows, tasks; search: nodes
  uint64_t in_each = 1;            // words of input of an element
  uint64_t out_each = 0;           // words of output of an element; 0: the output is not by elements
  uint64_t tile = 1;               // elements that are claimed at once
  uint64_t width = 0, padded = 0;  // words of a row
  std::vector<uint32_t> in, edges;
  std::vector<uint32_t> expected;  // the output; a compaction's in ascending order
  /// Is this the output? `found`: how many of it were written, by a compaction.
  bool right(std::vector<uint32_t> out, uint64_t found) const;
};
inline constexpr Pattern kPatterns[] = {Pattern::histogram_input, Pattern::histogram_output,
                                        Pattern::padding,         Pattern::compaction,
                                        Pattern::tasks,           Pattern::search};
/// Of about this many bytes of input.
Problem make_problem(Pattern pattern, uint64_t bytes, uint64_t seed);

}  // namespace perf
