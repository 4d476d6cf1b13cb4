// SPDX-License-Identifier: Apache-2.0
// Where OpRuns live: slots in chunks that never move and are never freed, so that a request number may be tested from any
// thread at any time, even after its worker is gone.
//
// Number: pool index (12 bits) | slot (24 bits) | generation (28 bits). A generation is odd while the run is alive; numbers
// are therefore never 0. A pool outlives its engine: the next engine takes it over, and old numbers stay dead.
//
// A peer that answers a run gets another name: slot (20 bits) | 44 random bits, drawn for this one life. It cannot be
// guessed from numbers or from other names, and reveals nothing of how much this worker does.
//
// Threads: test() and info() any thread. Everything else under the engine's lock (or by its single thread).
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "base/platform/fork.hpp"
#include "protocols/operation.hpp"

namespace thalweg::impl {

class Engine;

class RunPool {
 public:
  static constexpr unsigned kPoolBits = 12, kSlotBits = 20, kGenerationBits = 32;  // a life takes two generations
  static constexpr uint32_t kChunk = 256, kChunks = 4096;  // at most 1,048,576 requests alive per worker

  /// A pool for `engine`: a free one, or a new one. Null when 4096 engines are alive.
  static RunPool* take(Engine* engine);
  /// The engine ends: every run must have been completed; requests still held become dead.
  void give_back();

  /// The generation of slots that are free, and of those to come.
  void start_at(uint32_t generation);

  /// A run in progress, or null at the limit (the error text is set).
  OpRun* acquire() {
    OpRun* run = free_;
    if (run == nullptr) [[unlikely]] {
      run = grow();
      if (run == nullptr) return nullptr;
    }
    free_ = run->link.next;
    run->link = {};
    run->generation.store(run->generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    // release: a look-up that finds this generation by its number sees a status of this life
    run->status.store(TW_IN_PROGRESS, std::memory_order_release);
    ++alive_;
    return run;
  }
  /// The slot goes back; its number is dead from here on.
  void free(OpRun& run) {
    if (run.extras) [[unlikely]]
      free_extras(run);
    // release: a reader that still sees the old generation also saw the old status
    run.generation.store(run.generation.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    run.link.next = free_;
    free_ = &run;
    --alive_;
  }
  uint32_t alive() const { return alive_; }
  /// f(run) of every living one, under the engine's lock. Looks no further than the last of them.
  template <class F>
  void each(const F& f) const {
    uint32_t left = alive_;
    for (uint32_t i = 0; left != 0 && i < chunk_count_ * kChunk; ++i) {
      OpRun* const run = slot(i);
      if ((run->generation.load(std::memory_order_relaxed) & 1) == 0) continue;
      f(*run);
      --left;
    }
  }

  /// Of an engine that one thread uses at a time: the thread that runs a callback of it now; 0: none. Not thread_local, because a
  /// library that may be loaded late pays a call for each access.
  std::atomic<pthread_t> caller{0};
  /// Does this thread run a callback of one of these engines?
  static bool calls_back();

  /// The request number; never on the wire.
  uint64_t number(const OpRun& run) const {
    return base_ | (uint64_t{run.slot} << kGenerationBits) | run.generation.load(std::memory_order_relaxed);
  }
  /// The living run with this number in this pool, or null.
  OpRun* find(uint64_t number) const {
    if ((number >> (kSlotBits + kGenerationBits)) != (base_ >> (kSlotBits + kGenerationBits))) return nullptr;
    return find_here(number);
  }
  /// The same for a number that is known to be of this pool.
  OpRun* find_here(uint64_t number) const {
    OpRun* run = slot(static_cast<uint32_t>(number >> kGenerationBits) & ((1u << kSlotBits) - 1));
    return run != nullptr && same_life(*run, number) ? run : nullptr;
  }
  /// The same, where it is still under way with this peer.
  OpRun* find(uint64_t number, const Peer& peer) const { return under_way(find(number), peer); }
  /// The run's name on the wire, drawn when a frame first carries it.
  uint64_t wire_op(OpRun& run) {
    const uint32_t generation = run.generation.load(std::memory_order_relaxed);
    if (run.wire_op == 0 || run.wire_generation != generation) {
      run.wire_op = (uint64_t{run.slot} << kSecretBits) | secret();
      run.wire_generation = generation;
    }
    return run.wire_op;
  }
  /// The living run that has this name, or null.
  OpRun* named(uint64_t op) const {
    OpRun* run = slot(static_cast<uint32_t>(op >> kSecretBits));
    const bool is = run != nullptr && run->wire_op == op && op != 0 &&
                    run->wire_generation == run->generation.load(std::memory_order_relaxed);
    return is ? run : nullptr;
  }
  /// The run that `peer` answers: null if this op was never sent to it, or the run has ended.
  OpRun* answered(uint64_t op, const Peer& peer) const { return under_way(named(op), peer); }
  /// The pool that a number names; null: there was never one.
  static RunPool* of(uint64_t number) {
    return pools_[number >> (kSlotBits + kGenerationBits)].load(std::memory_order_acquire);
  }
  /// The living run with this number in any pool, or null; *pool is its pool.
  static OpRun* find_any(uint64_t number, RunPool** pool);
  Engine* engine() const { return engine_.load(std::memory_order_acquire); }

  /// TW_IN_PROGRESS, how it ended, or TW_ERR_HANDLE. Any thread.
  static Status test(uint64_t number);

 private:
  static constexpr unsigned kPools = 1u << kPoolBits;
  static constexpr unsigned kSecretBits = 44, kSecrets = 32;
  static_assert(uint64_t{kChunk} * kChunks <= uint64_t{1} << (64 - kSecretBits));
  uint64_t secret() {
    if (secrets_left_ == 0) [[unlikely]]
      draw_secrets();
    return secrets_[--secrets_left_];
  }
  [[gnu::cold]] void draw_secrets();
  // Pools are never freed: a number of a worker that is gone must be found dead, not crash.
  static std::atomic<RunPool*> pools_[kPools];
  RunPool() = default;
  [[gnu::cold]] static void free_extras(OpRun& run);
  OpRun* grow();
  OpRun* slot(uint32_t index) const {
    if (index >= kChunk * kChunks) return nullptr;
    OpRun* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + index % kChunk;
  }
  static OpRun* under_way(OpRun* run, const Peer& peer) {
    const bool is = run != nullptr && run->peer == &peer && run->status.load(std::memory_order_relaxed) == TW_IN_PROGRESS;
    return is ? run : nullptr;
  }
  static bool same_life(const OpRun& run, uint64_t number) {
    uint32_t generation = static_cast<uint32_t>(number);
    return (generation & 1) != 0 && run.generation.load(std::memory_order_acquire) == generation;
  }

  uint64_t base_ = 0;  // pool index in place
  BornHere born_;
  OpRun* free_ = nullptr;
  uint32_t chunk_count_ = 0, alive_ = 0, first_generation_ = 0;
  unsigned secrets_left_ = 0;
  uint64_t secrets_[kSecrets] = {};  // random, not 0, less than 2^kSecretBits
  std::atomic<Engine*> engine_{nullptr};
  std::atomic<OpRun*> chunks_[kChunks] = {};
};

}  // namespace thalweg::impl
