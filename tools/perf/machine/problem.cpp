// SPDX-License-Identifier: Apache-2.0
#include "machine/problem.hpp"

#include <algorithm>

#include "kernels/collaborate.hpp"
#include "machine/repeat.hpp"

namespace perf {
namespace {

constexpr uint64_t kWidth = 1000, kPadded = 1024, kDegree = 8;

/// Level of each node, from node 0.
std::vector<uint32_t> levels_of(const Problem& p) {
  std::vector<uint32_t> level(p.elements, kUnreached), queue = {0};
  level[0] = 0;
  for (size_t i = 0; i < queue.size(); ++i) {
    for (uint32_t e = p.in [queue[i]]; e < p.in[queue[i] + 1]; ++e) {
      const uint32_t there = p.edges[e];
      if (level[there] != kUnreached) continue;
      level[there] = level[queue[i]] + 1;
      queue.push_back(there);
    }
  }
  return level;
}

void fill_graph(Problem* p, uint64_t seed) {
  p->in.resize(p->elements + 1);
  for (uint64_t node = 0; node < p->elements; ++node)
    p->in[node + 1] = p->in[node] + static_cast<uint32_t>(random_at(seed, node) % (2 * kDegree));
  p->edges.resize(std::max<size_t>(1, p->in.back()));
  for (size_t e = 0; e < p->edges.size(); ++e)
    p->edges[e] = static_cast<uint32_t>((random_at(~seed, e) << 20 | random_at(seed + 1, e)) % p->elements);
}

std::vector<uint32_t> expected_of(const Problem& p) {
  std::vector<uint32_t> out;
  switch (p.pattern) {
    case Pattern::histogram_input:
    case Pattern::histogram_output:
      out.resize(kBins);
      for (const uint32_t value : p.in) ++out[bin_of(value)];
      break;
    case Pattern::padding:
      for (uint64_t row = 0; row < p.elements; ++row) {
        const auto begin = p.in.begin() + static_cast<ptrdiff_t>(row * p.width);
        out.insert(out.end(), begin, begin + static_cast<ptrdiff_t>(p.width));
        out.resize((row + 1) * p.padded);
      }
      break;
    case Pattern::compaction:
      std::copy_if(p.in.begin(), p.in.end(), std::back_inserter(out), kept);
      std::sort(out.begin(), out.end());  // in whatever order it is written
      break;
    case Pattern::tasks:
      for (size_t i = 0; i < p.in.size(); ++i) out.push_back(task_of(p.in[i], steps_of(p.in[i / kTaskWords * kTaskWords])));
      break;
    case Pattern::search:
      return levels_of(p);
  }
  return out;
}

}  // namespace

Problem make_problem(Pattern pattern, uint64_t bytes, uint64_t seed) {
  constexpr const char* kNames[] = {"histogram_input", "histogram_output", "padding", "compaction", "tasks", "search"};
  Problem p{};
  p.pattern = pattern;
  p.name = kNames[static_cast<size_t>(pattern)];
  p.in_each = pattern == Pattern::padding ? kWidth : pattern == Pattern::tasks ? kTaskWords : 1;
  p.out_each = pattern == Pattern::padding ? kPadded : pattern == Pattern::tasks ? kTaskWords : 0;
  p.tile = pattern == Pattern::padding ? 8 : pattern == Pattern::tasks ? 1 : pattern == Pattern::search ? 256 : 4096;
  p.width = kWidth;
  p.padded = kPadded;
  const uint64_t words = bytes / sizeof(uint32_t) / (pattern == Pattern::search ? 1 + kDegree : p.in_each);
  p.elements = std::clamp<uint64_t>(words, 2, uint64_t{1} << 28);
  if (pattern == Pattern::search) {
    fill_graph(&p, seed);
  } else {
    p.in.resize(p.elements * p.in_each);
    for (size_t i = 0; i < p.in.size(); ++i) p.in[i] = static_cast<uint32_t>(random_at(seed, i) * 4099u);
  }
  p.expected = expected_of(p);
  return p;
}

bool Problem::right(std::vector<uint32_t> out, uint64_t found) const {
  if (pattern != Pattern::compaction) return out == expected;
  if (found != expected.size() || found > out.size()) return false;
  out.resize(found);
  std::sort(out.begin(), out.end());
  return out == expected;
}

}  // namespace perf
