// SPDX-License-Identifier: Apache-2.0
// What one-sided tests need on each side: source and target buffers, a signal, and the counterpart's keys imported.
#pragma once
#include "buffers.hpp"

namespace perf {

struct Exposed {
  Exposed(Pair& p, const Order& order, size_t count);
  ~Exposed();  // both ranks
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;
  void exchange(void* mine, void* theirs, size_t n);
  /// Both ranks: the own signal is 0 again, and is not touched before the other rank knows.
  void reset_signal();
  uint64_t signal_value() const;
  tw_op_options options() const;

  Pair& pair;
  Buffers target, source;
  tw_signal* signal = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* remote_signal = nullptr;
  bool map = false;  // the target is in this process's address space

 private:
  tw_memory* word_ = nullptr;  // the signal's, where a plan on a device waits for it
};

}  // namespace perf
