// SPDX-License-Identifier: Apache-2.0
// How many operations' payloads each way has moved, and how many bytes: `moved` of tw_context_counters, against which
// explain is checked. Counted once per operation: rendezvous messages by their receiver, eager ones and all else where
// they were posted; steps of plans when a run of them is started, those that the host carries when it posts their
// operations.
#pragma once
#include <array>
#include <cstdint>

#include "base/tally.hpp"
#include "routes/ways.hpp"

namespace thalweg::impl {

/// Of one endpoint, or of one plan. Written by one thread at a time, read by any.
class Moved {
 public:
  struct Count {
    uint64_t operations = 0, bytes = 0;
    Count& operator+=(const Count& other) {
      operations += other.operations;
      bytes += other.bytes;
      return *this;
    }
  };
  using Counts = std::array<Count, kWays>;
  void count(Way way, uint64_t bytes, uint64_t operations = 1) {
    Word& word = words_[static_cast<size_t>(way)];
    word.operations.add(operations);
    word.bytes.add(bytes);
  }
  /// Bytes of staged payloads that were named to their receiver in a bounce buffer, instead of sent.
  void count_named(uint64_t bytes) { named_.add(bytes); }
  uint64_t named() const { return named_.get(); }
  Count of(Way way) const {
    const Word& word = words_[static_cast<size_t>(way)];
    return {word.operations.get(), word.bytes.get()};
  }
  void add_to(Counts& sum) const {
    for (size_t i = 0; i < kWays; ++i) sum[i] += of(static_cast<Way>(i));
  }

 private:
  struct Word {
    Tally operations, bytes;
  };
  std::array<Word, kWays> words_;
  Tally named_;
};

}  // namespace thalweg::impl
