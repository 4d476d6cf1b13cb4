// SPDX-License-Identifier: Apache-2.0
// The processes of a measurement among N: started here, or by a launcher; and how they agree.
#pragma once
#include <thalweg/collectives.h>
#include <thalweg/groups.h>

#include <string>
#include <vector>

#include "pair.hpp"

namespace perf {

class Ranks {
 public:
  /// Starts -n processes, this one among them, as rank 0; under a launcher (THALWEG_RANK, ...) takes its.
  Ranks(const Options& options, char** argv);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  /// Ends the group, and waits for what was started. The exit code.
  int end();

  /// Rank 0's number.
  double agree(double mine) const;
  double largest(double mine) const;
  /// Of each sample the slowest rank's.
  std::vector<double> slowest(const std::vector<double>& mine) const;
  bool all(bool mine) const;
  void barrier() const { must(tw_barrier(group, nullptr, nullptr), "tw_barrier"); }
  std::string transport() const;

  tw_group* group = nullptr;
  tw_context* context = nullptr;
  uint32_t rank = 0, size = 1;

 private:
  void start_others(unsigned count, char** argv);
};

}  // namespace perf
