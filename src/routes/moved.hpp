// SPDX-License-Identifier: Apache-2.0
// How many operations' payloads each way has moved, and how many bytes: `moved` of tw_context_counters, against which
// explain is checked. Counted once per operation: rendezvous messages by their receiver, eager ones and all else where
// they were posted; steps of plans when a run of them is started, those that the host carries when it posts their
// operations.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "routes/ways.hpp"

namespace thalweg::impl {

/// Of one engine, or of one plan. Written by one thread at a time, read by any.
class Moved {
 public:
  struct Count {
    uint64_t operations = 0, bytes = 0;
  };
  void count(Way way, uint64_t bytes, uint64_t operations = 1) {
    Word& word = words_[static_cast<size_t>(way)];
    // No atomic additions: they cost ten times as much, and there is one writer.
    word.operations.store(word.operations.load(std::memory_order_relaxed) + operations, std::memory_order_relaxed);
    word.bytes.store(word.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  /// Bytes of staged payloads that were named to their receiver in a bounce buffer, instead of sent.
  void count_named(uint64_t bytes) { named_.store(named() + bytes, std::memory_order_relaxed); }
  uint64_t named() const { return named_.load(std::memory_order_relaxed); }
  Count of(Way way) const {
    const Word& word = words_[static_cast<size_t>(way)];
    return {word.operations.load(std::memory_order_relaxed), word.bytes.load(std::memory_order_relaxed)};
  }

 private:
  struct Word {
    std::atomic<uint64_t> operations{0}, bytes{0};
  };
  std::array<Word, kWays> words_;
  std::atomic<uint64_t> named_{0};
};

/// Of all engines of a context, also of those that have ended. Thread-safe.
class Traffic {
 public:
  /// `of` must be removed before its end.
  void add(const Moved& of);
  void remove(const Moved& of);
  std::array<Moved::Count, kWays> sum() const;
  /// {"eager": {"operations": 1, "bytes": 8}, ...}
  std::string json() const;
  uint64_t named() const;  // bytes

 private:
  mutable std::mutex mutex_;
  std::vector<const Moved*> alive_;
  std::array<Moved::Count, kWays> ended_{};
  uint64_t ended_named_ = 0;
};

}  // namespace thalweg::impl
