// SPDX-License-Identifier: Apache-2.0
// What explain says before an operation, held against what the counters of both ranks say has moved it.
#pragma once
#include <array>
#include <string>

#include "side.hpp"

namespace conformance {

/// One of each rank, made before the row's first operation. Rank 0's explains; both call check() in step.
class Routes {
 public:
  enum class Kind : uint8_t { messages, one_sided, plans, channels };
  Routes(Side& side, const Row& row, Kind kind);
  /// Rank 0, right before it posts the operation. An operation of no bytes moves nothing.
  void expect(const char* verb, const void* address, size_t length, tw_remote_memory* remote, const tw_op_options* options);
  /// Rank 0, of a plan: what tw_plan_explain says of its steps, in so many runs; `started`: by the host, not by a graph's
  /// replay.
  void expect_runs(const std::string& text, unsigned runs, bool started);
  /// Both ranks, when all operations are over. Throws Failure.
  void check();

 private:
  static constexpr size_t kWays = 7;
  using Counts = std::array<uint64_t, kWays>;
  static const char* const kNames[kWays];
  static size_t index_of(const std::string& name, const std::string& text);
  void take_alternatives(const std::string& line, size_t base, const std::string& text);
  Counts counted() const;
  std::string key() const;
  bool known() const;

  Side& side_;
  const Row& row_;
  const Kind kind_;
  Counts before_{}, expected_{};
  std::array<bool, kWays> either_{};  // explain names each of them, by which side posts first
  uint64_t carried_ = 0;              // steps that the host carries, by the way of the operation that it takes
  std::string said_;
};

}  // namespace conformance
