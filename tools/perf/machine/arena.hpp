// SPDX-License-Identifier: Apache-2.0
// One side's memory of a problem of `collaborate`, or both sides': counters, input, output.
#pragma once
#include <thalweg/thalweg.h>

#include "machine/problem.hpp"
#include "pair.hpp"

namespace perf {

/// A part of an arena: bytes from its begin.
struct Extent {
  uint64_t offset, length;
};

class Arena {
 public:
  enum Counter : unsigned { next_host, next_device, tiles_host, tiles_device, found, counters };
  Arena(tw_context* context, const std::string& place, const Problem& problem);
  ~Arena() { release(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void release();
  /// Copies all of the problem's input there; zeroes counters; outputs get what no result is, or zeros where one adds to them.
  void fill(const Problem& problem);
  void zero(Counter counter);
  void zero_all();
  uint64_t read(Counter counter) const;
  /// As kernels and threads get it; all elements, claimed by the host's counter.
  Collaboration view(const Problem& problem) const;
  /// The same part of another arena, which has the same shape.
  void take(const Arena& from, Extent part);
  std::vector<uint32_t> output() const;
  u32* frontier(unsigned which) const { return words_at(frontiers_[which].offset); }
  u32* out() const { return words_at(out_.offset); }
  /// Of elements [from, to), or of all of an input.
  Extent in_part(const Problem& p, uint64_t from, uint64_t to) const;
  Extent out_words(uint64_t from, uint64_t to) const;
  Extent frontier_part(unsigned which, uint64_t count) const { return {frontiers_[which].offset, count * sizeof(u32)}; }
  Extent everything_in() const { return {in_.offset, edges_.offset + edges_.length - in_.offset}; }
  void write(Extent part, const void* from);
  void read(Extent part, void* to) const;

 private:
  u32* words_at(uint64_t offset) const { return reinterpret_cast<u32*>(base_ + offset); }
  u64* counter_at(Counter counter) const { return reinterpret_cast<u64*>(base_ + uint64_t{kLine} * counter); }
  static constexpr unsigned kLine = 64;
  tw_context* context_;
  tw_memory* memory_ = nullptr;
  unsigned char* base_ = nullptr;
  Extent in_{}, edges_{}, out_{}, frontiers_[2]{};
};

}  // namespace perf
