// SPDX-License-Identifier: Apache-2.0
// A window over the two sides' buffers.
#pragma once
#include <thalweg/windows.h>
#include <thalweg/device/types.hpp>

#include "buffers.hpp"

namespace perf {

class SharedWindow {
 public:
  SharedWindow(Pair& pair, const Buffers& buffers) : SharedWindow(pair, buffers.memory()) {}
  SharedWindow(Pair& pair, tw_memory* memory);  // both ranks
  ~SharedWindow() { (void)tw_window_destroy(window_); }
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  tw_window* get() const { return window_; }
  /// As device code at a place gets it: "host", or a device.
  thalweg::device::Window bind(const std::string& place) const;
  /// Ends the process with a text where device code has failed.
  void check() const { must(tw_window_check(window_), "device code"); }

 private:
  tw_window* window_ = nullptr;
};

}  // namespace perf
