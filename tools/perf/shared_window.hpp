// SPDX-License-Identifier: Apache-2.0
// A window over the two sides' buffers.
#pragma once
#include <thalweg/windows.h>

#include "buffers.hpp"

namespace perf {

class SharedWindow {
 public:
  SharedWindow(Pair& pair, const Buffers& buffers);  // both ranks
  ~SharedWindow() { (void)tw_window_destroy(window_); }
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  tw_window* get() const { return window_; }

 private:
  tw_window* window_ = nullptr;
};

}  // namespace perf
