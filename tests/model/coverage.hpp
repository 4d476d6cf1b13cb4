// SPDX-License-Identifier: Apache-2.0
// What programs have done: verb by way by event.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "model/program.hpp"

namespace thalweg::model {

/// What happened to an operation between its post and its end, or how it ended.
enum class Happening : uint8_t {
  at_once,
  later,
  before_connect,
  refused,
  lost,
  closed,
  canceled,
  stale,
  truncated,
  behind_fence,
  count_
};
const char* name_of(Happening happening);

class Coverage {
 public:
  void note(What what, Way way, Happening happening) {
    ++cells_[static_cast<size_t>(what)][static_cast<size_t>(way)][static_cast<size_t>(happening)];
  }
  void add(const Coverage& other);
  std::string table() const;
  /// Cells that should not be empty and are, one in a line.
  std::string holes() const;

 private:
  using Row = std::array<uint64_t, static_cast<size_t>(Happening::count_)>;
  std::array<std::array<Row, static_cast<size_t>(Way::count_)>, static_cast<size_t>(What::count_)> cells_{};
};

}  // namespace thalweg::model
