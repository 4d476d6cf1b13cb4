// SPDX-License-Identifier: Apache-2.0
// Signal words at the waiter. One pool per context hands out 64-byte slots of library-allocated memory, so that a peer on
// this machine maps the word and touches it by one store or one atomic add.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/platform/tsan.hpp"
#include "memory/local_copy.hpp"
#include "memory/registry.hpp"

struct tw_signal;

namespace thalweg::impl {
class SignalPool;

/// The signals of a worker that were polled since they last changed: polled once more before it sleeps, so that a change
/// between poll and sleep is not missed. Any thread.
class AwaitedSignals {
 public:
  void add(const tw_signal& signal);
  void remove(const tw_signal& signal);
  /// Has one of them changed? Each change is reported once.
  bool changed();
  std::atomic<tw_worker*> worker{nullptr};  // whose progress a wait drives; null: it was destroyed

 private:
  std::mutex mutex_;
  std::vector<const tw_signal*> signals_;
};
}  // namespace thalweg::impl

/// C handle of a signal. Owned by its creator; the word belongs to the pool.
struct tw_signal {
  thalweg::impl::BornHere born;
  thalweg::impl::SignalPool* pool = nullptr;
  uint64_t* word = nullptr;
  tw_memory* memory = nullptr;  // the pool's block that holds the word
  size_t offset = 0;
  bool users = false;                                      // the word is in a user's memory
  thalweg::impl::LocalCopier* copier = nullptr;            // the word is in device memory, where this fetches it
  uint32_t kind = 0;                                       // TW_SIGNAL_*
  std::vector<uint64_t> rkeys;                             // exported, to be revoked
  std::shared_ptr<thalweg::impl::AwaitedSignals> awaited;  // of the worker, which it may outlive
  mutable std::atomic<uint64_t> seen{0};                   // the value polled last
  mutable std::atomic<bool> listed{false};                 // in awaited
  std::atomic<uint32_t> expects{0};                        // operations under way whose end touches the word
};

namespace thalweg::impl {

class SignalPool {
 public:
  explicit SignalPool(Registry& registry) : registry_(registry) {}
  ~SignalPool();  // after its signals and before the registry
  Status create(uint32_t kind, uint64_t initial, tw_signal** out);
  /// The word is in memory of the user's.
  Status create_in(tw_memory& memory, uint64_t offset, LocalCopier& copier, uint32_t kind, uint64_t initial, tw_signal** out);
  /// Revokes what was exported. The slot is used again last of all, because a late mapped store cannot be stopped.
  Status destroy(tw_signal* signal);
  /// A key that allows signalling and nothing else. KeyBody.device is the kind.
  Status export_signal(tw_signal* signal, KeyBody* out);

 private:
  struct Slot {
    tw_memory* memory;
    size_t offset;
  };
  Status grow();
  Registry& registry_;
  std::mutex mutex_;
  std::vector<tw_memory*> blocks_;
  std::vector<Slot> free_;  // ring: taken from the front
  size_t front_ = 0;
};

/// The worker whose progress a wait for the signal drives; null: it was destroyed.
inline tw_worker* worker_of(const tw_signal& signal) {
  return signal.awaited == nullptr ? nullptr : signal.awaited->worker.load(std::memory_order_acquire);
}

Status signal_fetch(const tw_signal& signal, uint64_t* value);  // of a word in device memory; *value stays where that fails
Status signal_store(const tw_signal& signal, uint64_t value);   // the same
/// Acquire: what the signal covers is visible. An error: the word is in device memory, which could not be read.
inline Status signal_get(const tw_signal& signal, uint64_t* value) {
  if (signal.copier != nullptr) [[unlikely]]
    return signal_fetch(signal, value);
  const uint64_t seen = __atomic_load_n(signal.word, __ATOMIC_ACQUIRE);
  tsan_acquired(signal.word);
  if (signal.seen.load(std::memory_order_relaxed) != seen) signal.seen.store(seen, std::memory_order_relaxed);
  if (!signal.listed.load(std::memory_order_relaxed) && signal.awaited != nullptr) [[unlikely]]
    signal.awaited->add(signal);
  *value = seen;
  return TW_OK;
}
/// The same for who can do nothing about an error: 0 then.
inline uint64_t signal_read(const tw_signal& signal) {
  uint64_t value = 0;
  (void)signal_get(signal, &value);
  return value;
}
inline Status signal_reset(tw_signal& signal, uint64_t value) {
  if (signal.copier != nullptr) return signal_store(signal, value);
  __atomic_store_n(signal.word, value, __ATOMIC_RELEASE);
  return TW_OK;
}
/// TW_OK, TW_IN_PROGRESS, TW_ERR_INVALID for an unknown comparison, or signal_get()'s error. GE is cyclic.
inline Status signal_test(const tw_signal& signal, uint32_t compare, uint64_t value) {
  uint64_t word = 0;
  if (const Status s = signal_get(signal, &word); is_error(s)) [[unlikely]]
    return s;
  switch (compare) {
    case TW_COMPARE_GE:
      return static_cast<int64_t>(word - value) >= 0 ? TW_OK : TW_IN_PROGRESS;
    case TW_COMPARE_EQ:
      return word == value ? TW_OK : TW_IN_PROGRESS;
    case TW_COMPARE_NE:
      return word != value ? TW_OK : TW_IN_PROGRESS;
    default:
      return fail(TW_ERR_INVALID, "comparison %u is not one of TW_COMPARE_GE, _EQ, _NE", compare);
  }
}
/// What a writer does to a mapped word, after the data it covers.
inline void touch_signal(uint64_t* word, uint32_t op, uint64_t value) {
  tsan_releasing(word);
  if (op == TW_SIGNAL_ADD) {
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
}

}  // namespace thalweg::impl
