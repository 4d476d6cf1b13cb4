// SPDX-License-Identifier: Apache-2.0
// From one clock's times to another's, by pairs of readings that were taken together.
#pragma once
#include <algorithm>
#include <cstdint>

namespace thalweg::impl::trace {

/// A straight line through two pairs of which the later is the last one, and the earlier as old as `span` to twice that, once there is one.
/// So the line changes little from one reading to the next. Times before and behind the pairs lie on the line, too.
class ClockMap {
 public:
  /// span: in units of the clock that is mapped from. rate: how many units of the other there are in one of these, until two pairs tell.
  explicit ClockMap(uint64_t span, double rate = 1.0) : span_(span), rate_(rate) {}
  void add(uint64_t from, uint64_t to) {
    const Pair now{from, to};
    if (pairs_ == 0) {
      first_ = middle_ = last_ = now;
      pairs_ = 1;
      return;
    }
    if (from <= last_.from) return;
    if (from - middle_.from >= span_) {
      first_ = middle_;
      middle_ = now;
    }
    last_ = now;
    pairs_ = 2;
  }
  bool known() const { return pairs_ != 0; }
  uint64_t map(uint64_t from) const {
    const double ahead = static_cast<double>(difference(from, last_.from));
    const double rate =
        pairs_ < 2 ? rate_
                   : static_cast<double>(difference(last_.to, first_.to)) / static_cast<double>(last_.from - first_.from);
    return static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(last_.to) + static_cast<int64_t>(ahead * rate)));
  }

 private:
  struct Pair {
    uint64_t from, to;
  };
  static int64_t difference(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b); }
  uint64_t span_;
  double rate_;
  Pair first_{}, middle_{}, last_{};
  int pairs_ = 0;
};

}  // namespace thalweg::impl::trace
