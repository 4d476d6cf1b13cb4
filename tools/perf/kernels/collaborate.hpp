// SPDX-License-Identifier: Apache-2.0
// What host threads and blocks of a GPU do together, one representative of each way of collaborating that the CHAI benchmarks have: the
// same text for both. A group of threads claims tiles of the work from a counter, which host and device share or have for
// themselves, until none is left: nobody waits for anybody, so that no wait needs a limit.
#pragma once
#include <thalweg/device/thread_group.hpp>

#include "arguments.hpp"

namespace perf {

/// Of a group's threads, counted near them: on a GPU in shared memory. kBins words.
template <class ThreadGroup>
class Near {
 public:
  THALWEG_DEVICE Near(ThreadGroup group, u32* words) : group_(group), words_(words) {}
  THALWEG_DEVICE void clear() const {
    group_.sync();
    for (u32 i = group_.rank(); i < kBins; i += group_.size()) words_[i] = 0;
    group_.sync();
  }
  /// What was there.
  THALWEG_DEVICE u32 add(u32 word) const {
    if (group_.size() == 1) return words_[word]++;
    return thalweg::device::DirectMachine().fetch_add(words_ + word, 1u);
  }
  THALWEG_DEVICE u32 operator[](u32 word) const { return words_[word]; }

 private:
  ThreadGroup group_;
  u32* words_;
};

/// To all threads of the group: what was in a word before one of them added to it.
template <class ThreadGroup>
THALWEG_DEVICE u64 claim(ThreadGroup group, u64* word, u64 amount) {
  u64 before = 0;
  if (group.leads()) before = thalweg::device::DirectMachine().fetch_add(word, amount);
  return group.broadcast(before);
}

/// `body(begin, end)` for each tile that this group claims.
template <class ThreadGroup, class Body>
THALWEG_DEVICE void each_tile(const Collaboration& c, ThreadGroup group, Body body) {
  u64 tiles = 0;
  for (;; ++tiles) {
    const u64 begin = c.first + claim(group, c.next, 1) * c.tile;
    if (begin >= c.last) break;
    body(begin, begin + c.tile < c.last ? begin + c.tile : c.last);
  }
  if (group.leads()) thalweg::device::DirectMachine().fetch_add(c.tiles, tiles);
}

THALWEG_DEVICE u32 bin_of(u32 value) { return value % kBins; }

/// Counts values of its tiles in bins [first_bin, last_bin), and adds what it counted at the end.
template <class ThreadGroup>
THALWEG_DEVICE void histogram(const Collaboration& c, ThreadGroup group, u32* words) {
  const Near<ThreadGroup> near(group, words);
  near.clear();
  each_tile(c, group, [&](u64 begin, u64 end) {
    for (u64 i = begin + group.rank(); i < end; i += group.size()) {
      const u32 bin = bin_of(c.in[i]);
      if (bin >= c.first_bin && bin < c.last_bin) near.add(bin);
    }
  });
  group.sync();
  for (u32 bin = group.rank(); bin < kBins; bin += group.size()) {
    if (near[bin] != 0) thalweg::device::DirectMachine().fetch_add(c.out + bin, near[bin]);
  }
}

/// Rows of `width` words become rows of `padded` ones.
template <class ThreadGroup>
THALWEG_DEVICE void pad(const Collaboration& c, ThreadGroup group) {
  each_tile(c, group, [&](u64 begin, u64 end) {
    for (u64 row = begin; row < end; ++row) {
      for (u64 i = group.rank(); i < c.padded; i += group.size())
        c.out[row * c.padded + i] = i < c.width ? c.in[row * c.width + i] : 0;
    }
  });
}

THALWEG_DEVICE bool kept(u32 value) { return value % 2 != 0; }

/// Values that are kept, without gaps, in any order.
template <class ThreadGroup>
THALWEG_DEVICE void compact(const Collaboration& c, ThreadGroup group, u32* words) {
  const Near<ThreadGroup> near(group, words);
  each_tile(c, group, [&](u64 begin, u64 end) {
    near.clear();
    for (u64 i = begin + group.rank(); i < end; i += group.size()) {
      if (kept(c.in[i])) near.add(0);
    }
    group.sync();
    const u64 room = claim(group, c.found, near[0]);
    for (u64 i = begin + group.rank(); i < end; i += group.size()) {
      if (!kept(c.in[i])) continue;
      const u64 at = room + near.add(1);
      if (at < c.capacity) c.out[at] = c.in[i];
    }
  });
}

/// A task's words, each through as many steps as its first one says: tasks differ.
THALWEG_DEVICE u32 steps_of(u32 first) { return 1 + first % 64; }
THALWEG_DEVICE u32 task_of(u32 word, u32 steps) {
  for (u32 i = 0; i < steps; ++i) word = (word * 1664525u + 1013904223u) ^ (word >> 16);
  return word;
}
template <class ThreadGroup>
THALWEG_DEVICE void do_tasks(const Collaboration& c, ThreadGroup group) {
  each_tile(c, group, [&](u64 begin, u64 end) {
    for (u64 task = begin; task < end; ++task) {
      const u64 at = task * kTaskWords;
      const u32 steps = steps_of(c.in[at]);
      for (u64 i = at + group.rank(); i < at + kTaskWords; i += group.size()) c.out[i] = task_of(c.in[i], steps);
    }
  });
}

/// Nodes of the frontier [first, last): their neighbours that nobody has reached get the next level, and are the next frontier.
template <class ThreadGroup>
THALWEG_DEVICE void search(const Collaboration& c, ThreadGroup group) {
  const thalweg::device::DirectMachine m;
  each_tile(c, group, [&](u64 begin, u64 end) {
    for (u64 i = begin + group.rank(); i < end; i += group.size()) {
      const u32 node = c.frontier[i];
      for (u32 e = c.in[node]; e < c.in[node + 1]; ++e) {
        const u32 there = c.edges[e];
        if (c.out[there] != kUnreached || m.compare_swap(c.out + there, kUnreached, c.level) != kUnreached) continue;
        c.next_frontier[m.fetch_add(c.found, u64{1})] = there;
      }
    }
  });
}

/// words: kBins of the group's.
template <class ThreadGroup>
THALWEG_DEVICE void collaborate(const Collaboration& c, ThreadGroup group, u32* words) {
  switch (c.pattern) {
    case Pattern::histogram_input:
    case Pattern::histogram_output:
      return histogram(c, group, words);
    case Pattern::padding:
      return pad(c, group);
    case Pattern::compaction:
      return compact(c, group, words);
    case Pattern::tasks:
      return do_tasks(c, group);
    case Pattern::search:
      return search(c, group);
  }
}

}  // namespace perf
