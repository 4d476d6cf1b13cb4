// SPDX-License-Identifier: Apache-2.0
// A progress bar on a terminal's standard error; elsewhere nothing.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace apps {

class Bar {
 public:
  /// Shown only where `here` (rank 0) and standard error is a terminal.
  Bar(bool here, std::string what) : shown_(here && ::isatty(STDERR_FILENO) != 0), what_(std::move(what)) {}
  ~Bar() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  Bar(const Bar&) = delete;
  void at(double part) const {
    if (!shown_) return;
    const int filled = std::clamp(static_cast<int>(part * kWidth), 0, kWidth);
    std::fprintf(stderr, "\r%-24s [%s%s] %3.0f %%", what_.c_str(), std::string(static_cast<size_t>(filled), '#').c_str(),
                 std::string(static_cast<size_t>(kWidth - filled), ' ').c_str(), part * 100);
  }

 private:
  static constexpr int kWidth = 40;
  const bool shown_;
  const std::string what_;
};

}  // namespace apps
