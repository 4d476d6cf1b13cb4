// SPDX-License-Identifier: Apache-2.0
// The processes of an application as one of them sees the others: the world, by the names that the applications use, and sums over it.
#pragma once
#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thalweg/thalweg.hpp>

namespace apps {

/// Every wait of the applications is bounded by this.
constexpr std::chrono::seconds kPatience{60};

inline void must(tw_status status) {
  if (status < 0) throw thalweg::Error(status);
}

class Ranks {
 public:
  const thalweg::Group group = thalweg::init();
  const thalweg::Context& context = group.context();
  const thalweg::Worker& worker = group.worker();

  int rank() const { return static_cast<int>(group.rank()); }
  int size() const { return static_cast<int>(group.size()); }
  /// The connection to another rank, or to this one itself; made when first asked for.
  tw_endpoint* peer(int rank) const { return group.endpoint(static_cast<uint32_t>(rank)); }
  /// --memory as a place of this rank: "cuda" is the GPU of the rank's number, and so are the other places of devices that
  /// name none; "host", "pinned" and "cuda:1" are what they are.
  std::string place(const std::string& memory) const {
    const bool complete = memory == "host" || memory == "pinned" || memory.find(':') != std::string::npos;
    return complete ? memory : memory + ":" + std::to_string(rank());
  }
  /// What follows is called by all ranks in the same order, and needs some microseconds.
  /// All leave it when the last one has come.
  void align() const { group.barrier(); }
  /// In the order of ranks: the same everywhere.
  double sum(double mine) const {
    const auto all = group.exchange(mine);
    return std::accumulate(all.begin(), all.end(), 0.0);
  }
  double most(double mine) const { return std::ranges::max(group.exchange(mine)); }
  /// Modulo 2^64.
  uint64_t sum_bits(uint64_t mine) const {
    const auto all = group.exchange(mine);
    return std::accumulate(all.begin(), all.end(), uint64_t{0});
  }
};

}  // namespace apps
