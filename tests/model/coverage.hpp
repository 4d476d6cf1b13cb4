// SPDX-License-Identifier: Apache-2.0
// What programs have done: verb by way by event, and verb by kind of memory.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "devices/memory_kind.hpp"
#include "model/jobs.hpp"
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

/// How a rank's part in a collective ended, and what was special about it.
enum class CollectiveHappening : uint8_t {
  ended_well,
  lost_later,
  at_once_lost,  // the group had failed
  though_lost,   // it ended well, though ranks of the group have lost each other
  in_place,
  of_device,
  among_others,  // others of its group were under way at this rank
  repeatable,
  behind_wrap,  // of the numbers of collectives
  count_
};

/// How a collective of a program of ranks is called.
enum class CollectiveForm : uint8_t { request, callback, blocking, direct, planned, queued, count_ };
const char* name_of(CollectiveForm form);

class Coverage {
 public:
  void note(What what, Way way, Happening happening) {
    ++cells_[static_cast<size_t>(what)][static_cast<size_t>(way)][static_cast<size_t>(happening)];
  }
  /// Of an operation that ended well: where its buffer was.
  void note_kind(What what, impl::MemoryKind kind) { ++kinds_[static_cast<size_t>(what)][static_cast<size_t>(kind)]; }
  /// A rank's part in a collective of a group of `size`, that ended well.
  void note(Together verb, unsigned algorithm, TypeClass type, unsigned size) {
    ++together_[static_cast<size_t>(verb)][algorithm][static_cast<size_t>(type)];
    sizes_ |= 1u << size;
  }
  void note(Together verb, CollectiveForm form) { ++forms_[static_cast<size_t>(verb)][static_cast<size_t>(form)]; }
  void note(Together verb, CollectiveHappening happening) {
    ++together_how_[static_cast<size_t>(verb)][static_cast<size_t>(happening)];
  }
  /// Bytes that went as names of bounce buffers.
  void note_named(uint64_t bytes) { named_ += bytes; }
  void add(const Coverage& other);
  std::string table() const;
  /// Cells that should not be empty and are, one in a line. many: programs, so that what is seldom should be there, too.
  std::string holes(bool many) const;
  /// Of collectives alone.
  std::string holes_together() const;
  /// Of programs of ranks.
  std::string table_forms() const;
  std::string holes_forms(bool queued) const;

 private:
  std::string table_together() const;
  bool should_be(Together verb, unsigned algorithm, TypeClass type) const;
  static constexpr size_t kTogether = static_cast<size_t>(Together::count_);
  using Types = std::array<uint64_t, static_cast<size_t>(TypeClass::count_)>;
  using Hows = std::array<uint64_t, static_cast<size_t>(CollectiveHappening::count_)>;
  std::array<std::array<Types, kMostAlgorithms + 1>, kTogether> together_{};
  std::array<Hows, kTogether> together_how_{};
  std::array<std::array<uint64_t, static_cast<size_t>(CollectiveForm::count_)>, kTogether> forms_{};
  uint64_t sizes_ = 0;  // of groups
  using Row = std::array<uint64_t, static_cast<size_t>(Happening::count_)>;
  std::array<std::array<Row, static_cast<size_t>(Way::count_)>, static_cast<size_t>(What::count_)> cells_{};
  using Kinds = std::array<uint64_t, static_cast<size_t>(impl::MemoryKind::count_)>;
  std::array<Kinds, static_cast<size_t>(What::count_)> kinds_{};
  uint64_t named_ = 0;
};

}  // namespace thalweg::model
