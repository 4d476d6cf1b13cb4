// SPDX-License-Identifier: Apache-2.0
// What the rounds of an order carry. Of an order to verify each round has a payload of its own, which is looked at behind that round: one
// that comes late, early or not at all would look right behind another one of the same bytes. Timed orders move one payload again and
// again, which is looked at behind the last.
#pragma once
#include <functional>
#include <utility>

#include "buffers.hpp"
#include "tests.hpp"

namespace perf {

class Rounds {
 public:
  /// Has arrived what fill() writes by this seed?
  using Right = std::function<bool(uint64_t seed)>;

  /// out: what this rank sends from, null: nothing. right: of what it receives, empty: nothing.
  Rounds(const Order& order, int rank, Buffers* out, Right right)
      : each_(order.verify != 0),
        mine_(order.seed + static_cast<uint64_t>(rank)),
        theirs_(order.seed + static_cast<uint64_t>(!rank)),
        out_(out),
        right_(std::move(right)) {
    if (out_ != nullptr) out_->fill(mine_);
  }
  /// Before a round's messages leave this rank.
  void before_send() {
    if (each_ && out_ != nullptr) out_->fill(mine_ + 2 * sent_++);
  }
  /// Behind a round's messages to this rank, and before the other one may send the next round's.
  void behind_receive() {
    if (each_ && right_) ok_ = right_(theirs_ + 2 * received_++) && ok_;
  }
  /// At the end.
  bool verified() const { return !right_ || (each_ ? ok_ && received_ != 0 : right_(theirs_)); }

 private:
  const bool each_;
  const uint64_t mine_, theirs_;  // a rank's rounds are two apart: none has the other rank's bytes
  Buffers* const out_;
  const Right right_;
  uint64_t sent_ = 0, received_ = 0;
  bool ok_ = true;
};

/// The first `count` buffers hold it.
inline Rounds::Right all_right(Buffers& in, size_t count) {
  return [&in, count](uint64_t seed) {
    bool right = true;
    for (size_t i = 0; i < count; ++i) right = in.check(i, seed) && right;
    return right;
  };
}

/// Rank 0 sends `count` buffers, rank 1 receives as many.
inline Rounds one_way(const Order& order, int rank, Buffers& buffers, size_t count) {
  return {order, rank, rank == 0 ? &buffers : nullptr, rank == 0 ? Rounds::Right() : all_right(buffers, count)};
}

/// time_windows() of what rank 0 moves to rank 1 without its help. Of an order to verify both ranks stop behind each window.
template <class Window>
double time_one_sided(Pair& p, const Order& order, Rounds& rounds, Window window) {
  if (p.rank == 1 && order.verify == 0) return 0;
  return time_windows(order, [&] {
    if (p.rank == 0) window();
    if (order.verify == 0) return;
    p.sync();
    rounds.behind_receive();
    p.sync();
  });
}

}  // namespace perf
