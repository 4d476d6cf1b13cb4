// SPDX-License-Identifier: Apache-2.0
// Inside the registry: its tables and their guard.
//
// One word guards it all, because look-ups are for every frame and changes are rare: readers count themselves in it, a
// writer (there is one at a time, by a mutex) sets the top bit, waits until the readers are gone and changes the tables.
// A reader that meets the bit steps back and waits. In a process with one thread that is two uncontended atomics a look-up.
#pragma once
#include <sched.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include "memory/device_names.hpp"
#include "memory/registry.hpp"

namespace thalweg::impl {

inline constexpr uint32_t kRegistryWriter = 1u << 31;

struct Export {
  std::byte* address;
  uint64_t length;
  uint32_t access;
  MemoryKind kind;
  Device* device;
  tw_memory* memory;
  uint64_t* check;
};

/// Words that hold an rkey while it is alive, for peers that reach memory by the kernel and bypass resolve(). They never
/// move and are given back only with the registry, so that looking at a dead key's word is always allowed.
class CheckWords {
 public:
  uint64_t* take(uint64_t rkey) {
    if (free_.empty()) {
      blocks_.push_back(std::make_unique<uint64_t[]>(kBlock));
      for (size_t i = 0; i < kBlock; ++i) free_.push_back(&blocks_.back()[i]);
    }
    uint64_t* word = free_.back();
    free_.pop_back();
    __atomic_store_n(word, rkey, __ATOMIC_RELEASE);
    return word;
  }
  void give_back(uint64_t* word) {
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
    free_.push_back(word);
  }

 private:
  static constexpr size_t kBlock = 512;
  std::vector<std::unique_ptr<uint64_t[]>> blocks_;
  std::vector<uint64_t*> free_;
};

struct SameBits {  // rkeys are random already
  size_t operator()(uint64_t v) const { return static_cast<size_t>(v); }
};

/// Non-zero and unguessable.
Status random_identifier(uint64_t* out);

struct Registry::State {
  mutable std::atomic<uint32_t> readers{0};
  std::mutex writers;
  std::unordered_map<uint64_t, Export, SameBits> exports;
  CheckWords checks;
  std::unordered_set<tw_memory*> memories;
  std::map<uintptr_t, tw_memory*> allocated;          // by start address
  std::unordered_map<uint64_t, tw_memory*> segments;  // by identifier
  std::atomic<size_t> segment_count{0};
  DeviceNames names;
  std::shared_mutex listening;  // calls to listeners share it
  std::vector<SegmentListener*> listeners;
  std::mutex leaving;  // of `left`
  std::vector<tw_memory*> left;
  std::atomic<size_t> left_count{0};
};

/// The tables may be changed while it lives. Earlier readers are done when the constructor returns.
class Registry::Writing {
 public:
  explicit Writing(State& state) : state_(state), lock_(state.writers) {
    state_.readers.fetch_or(kRegistryWriter, std::memory_order_acquire);
    while (state_.readers.load(std::memory_order_acquire) & ~kRegistryWriter) sched_yield();
  }
  ~Writing() { state_.readers.fetch_and(~kRegistryWriter, std::memory_order_release); }

 private:
  State& state_;
  std::lock_guard<std::mutex> lock_;
};

}  // namespace thalweg::impl
