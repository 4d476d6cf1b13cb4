// SPDX-License-Identifier: Apache-2.0
// Machines and thread groups for running device code on the host in ways that a GPU might.
#pragma once
#include <thalweg/device/channel.hpp>
#include <thalweg/device/ll128.hpp>

#include <barrier>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

namespace thalweg::device::twins {

/// As a GPU copies: word by word, by many threads, of which so many walk together.
template <u32 Lanes>
struct WordMachine : DirectMachine {
  static constexpr bool whole_runs = false;
  static constexpr u32 lanes = Lanes;
};

/// Stores that are not visible yet. One for each thread; what stands before a barrier is handed to the block.
class Pending {
 public:
  explicit Pending(unsigned seed) : random_(seed) {}
  void add(void* to, const void* from, size_t bytes) {
    settle(to, bytes);
    const auto* const first = static_cast<const std::byte*>(from);
    stores_.push_back({static_cast<std::byte*>(to), {first, first + bytes}});
    if (random_() % 16 == 0) show(random_() % stores_.size());
  }
  /// A thread sees its own stores.
  void settle(const void* at, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(at);
    for (size_t i = 0; i < stores_.size();) {
      const Store& store = stores_[i];
      if (store.to < begin + bytes && begin < store.to + store.bytes.size()) {
        show(i);
      } else {
        ++i;
      }
    }
  }
  void newest() {
    if (!stores_.empty()) show(stores_.size() - 1);
  }
  /// Some of the newest.
  void some() {
    for (size_t n = stores_.size() / 8 + 1; n > 0; --n) newest();
  }
  /// The newest first: the worst order there is.
  void drain() {
    while (!stores_.empty()) newest();
  }
  void hand_to(Pending& block) {
    block.stores_.insert(block.stores_.end(), stores_.begin(), stores_.end());
    stores_.clear();
  }

 private:
  struct Store {
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  static void publish(std::byte* to, const std::byte* from) {
    u64 word;
    std::memcpy(&word, from, sizeof word);
    __atomic_store_n(reinterpret_cast<u64*>(to), word, __ATOMIC_RELEASE);
  }
  /// Words and units at once; other data piece by piece.
  void show(size_t i) {
    const Store store = stores_[i];
    stores_.erase(stores_.begin() + static_cast<std::ptrdiff_t>(i));
    const bool aligned = reinterpret_cast<uintptr_t>(store.to) % 8 == 0;
    if (aligned && store.bytes.size() % 8 == 0) {
      for (size_t at = 0; at < store.bytes.size(); at += 8) publish(store.to + at, store.bytes.data() + at);
    } else {
      std::memcpy(store.to, store.bytes.data(), store.bytes.size());
    }
  }
  std::vector<Store> stores_;
  std::mt19937 random_;
};

/// A block of several host threads. What they stored before a barrier is covered by any of them that fences behind it.
struct TeamState {
  explicit TeamState(u32 threads) : barrier(threads), pending(std::random_device{}()) {}
  std::barrier<> barrier;
  std::mutex mutex;
  Pending pending;
  u64 said = 0;
  std::atomic<bool> failed{false};
};

/// The worst order that the memory model allows: plain stores and flags become visible late and newest first.
struct LateMachine : DirectMachine {
  static constexpr bool whole_runs = false;
  static constexpr u32 lanes = 32;
  Pending* pending = nullptr;
  TeamState* team = nullptr;  // null: a thread alone

  template <class T>
  T read(const T* from) const {
    pending->settle(from, sizeof(T));
    return DirectMachine::read(from);
  }
  template <class T>
  void write(T* to, T value) const {
    pending->add(to, &value, sizeof(T));
  }
  u64 load(const u64* word) const {
    pending->settle(word, sizeof *word);
    return DirectMachine::load(word);
  }
  u64 acquire(const u64* word) const {
    pending->settle(word, sizeof *word);
    return DirectMachine::acquire(word);
  }
  void store(u64* word, u64 value) const { pending->add(word, &value, sizeof value); }
  void fence() const {
    pending->drain();
    if (team == nullptr) return;
    const std::lock_guard lock(team->mutex);
    team->pending.drain();
  }
  void release(u64* word, u64 value) const {
    fence();
    store(word, value);
  }
  void add_release(u64* word, u64 value) const {
    fence();
    DirectMachine::add_release(word, value);
  }
  u32 arrive(u32* counter) const {
    fence();
    return DirectMachine::arrive(counter);
  }
  template <class T>
  T fetch_add(T* word, T operand) const {
    pending->settle(word, sizeof(T));
    return DirectMachine::fetch_add(word, operand);
  }
  template <class T>
  T compare_swap(T* word, T expected, T desired) const {
    pending->settle(word, sizeof(T));
    return DirectMachine::compare_swap(word, expected, desired);
  }
  Word16 load16(const Word16* from) const {
    pending->settle(from, sizeof *from);
    return DirectMachine::load16(from);
  }
  void store16(Word16* to, Word16 value) const { pending->add(to, &value, sizeof value); }
  /// Stores do become visible some time.
  void pause(u32 polls) const {
    pending->some();
    if (team != nullptr) {
      const std::lock_guard lock(team->mutex);
      team->pending.some();
    }
    DirectMachine::pause(polls + 300);
  }
};

/// Thread `index` of a block of `threads` host threads.
struct Team {
  static constexpr bool whole_warps = true;
  TeamState* state;
  Pending* mine;
  u32 index, threads;

  u32 rank() const { return index; }
  u32 size() const { return threads; }
  bool leads() const { return index == 0; }
  void sync() const {
    {
      const std::lock_guard lock(state->mutex);
      mine->hand_to(state->pending);
    }
    state->barrier.arrive_and_wait();
  }
  bool all(bool ok) const {
    if (!ok) state->failed = true;
    sync();
    ok = !state->failed;
    sync();
    state->failed = false;
    sync();
    return ok;
  }
  u64 broadcast(u64 value) const {
    if (index == 0) state->said = value;
    sync();
    value = state->said;
    sync();
    return value;
  }
  u32 crew_rank() const { return index; }
  u32 crew_size() const { return threads; }
  template <class M>
  bool last(M) const {
    sync();
    return index == 0;
  }
  template <class M>
  bool passed(M m) const {
    return last(m);
  }
  bool shared() const { return false; }
  Team counting(u32*) const { return *this; }
};

}  // namespace thalweg::device::twins
