// SPDX-License-Identifier: Apache-2.0
// What programs have done: verb by way by event, and verb by kind of memory.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "devices/memory_kind.hpp"
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
  /// Of an operation that ended well: where its buffer was.
  void note_kind(What what, impl::MemoryKind kind) { ++kinds_[static_cast<size_t>(what)][static_cast<size_t>(kind)]; }
  /// Bytes that went as names of bounce buffers.
  void note_named(uint64_t bytes) { named_ += bytes; }
  void add(const Coverage& other);
  std::string table() const;
  /// Cells that should not be empty and are, one in a line. many: programs, so that what is seldom should be there, too.
  std::string holes(bool many) const;

 private:
  using Row = std::array<uint64_t, static_cast<size_t>(Happening::count_)>;
  std::array<std::array<Row, static_cast<size_t>(Way::count_)>, static_cast<size_t>(What::count_)> cells_{};
  using Kinds = std::array<uint64_t, static_cast<size_t>(impl::MemoryKind::count_)>;
  std::array<Kinds, static_cast<size_t>(What::count_)> kinds_{};
  uint64_t named_ = 0;
};

}  // namespace thalweg::model
