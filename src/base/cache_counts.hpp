// SPDX-License-Identifier: Apache-2.0
// How often what this process keeps was found again. Any thread; where a miss costs microseconds at least.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace thalweg::impl {

enum class Cache : uint8_t {
  imports,         // memory of peers that is mapped here
  device_imports,  // ... that devices here reach
  schedules,       // of collectives
  count_
};
inline constexpr const char* kCacheNames[] = {"imports", "device_imports", "schedules"};

/// Of all contexts.
class CacheCounts {
 public:
  struct Count {
    uint64_t hits = 0, misses = 0;
  };
  /// One look-up. Returns `found`.
  static bool looked(Cache cache, bool found) {
    Words& words = words_[static_cast<size_t>(cache)];
    (found ? words.hits : words.misses).fetch_add(1, std::memory_order_relaxed);
    return found;
  }
  static Count of(Cache cache) {
    const Words& words = words_[static_cast<size_t>(cache)];
    return {words.hits.load(std::memory_order_relaxed), words.misses.load(std::memory_order_relaxed)};
  }

 private:
  struct Words {
    std::atomic<uint64_t> hits, misses;  // 0, as C++20 makes them
  };
  inline static std::array<Words, static_cast<size_t>(Cache::count_)> words_;
};

}  // namespace thalweg::impl
