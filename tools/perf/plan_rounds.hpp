// SPDX-License-Identifier: Apache-2.0
// Round trips of two plans: pieces go to the other side, a signal follows all of them, and the other side's plan, which waited for
// it, answers with the same.
#pragma once
#include "exposed.hpp"
#include "rounds.hpp"
#include "starter.hpp"
#include "tests.hpp"

namespace perf {

/// One put of a round trip. The layouts may be null.
struct Piece {
  uint64_t from = 0, to = 0, length = 0;  // bytes from the begin of the source buffer and of the target
  const tw_layout* layout = nullptr;
  const tw_layout* remote_layout = nullptr;
};

/// Runs the order's round trips and gives what each took one way, in microseconds, a sample a batch (rank 0). No piece: only signals.
/// right: have the pieces arrived? *verified turns false where they have not.
std::vector<double> plan_rounds(Exposed& x, const Order& order, const std::vector<Piece>& pieces, Rounds::Right right,
                                bool* verified, std::string* ways = nullptr);

}  // namespace perf
