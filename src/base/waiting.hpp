// SPDX-License-Identifier: Apache-2.0
// How a thread waits for what another thread or process does. It spins while the answer is usually microseconds away, then
// yields its core, then sleeps, if there is a way to be woken. Every loop of the library that waits uses this.
//
// On an oversubscribed machine, with more busy threads than cores, spinning delays the threads that are waited for. A yield
// that returns late has let another thread run: that is how a process detects it, and it costs nothing where waits are
// short. From then on its waits hardly spin, and sleep as soon as a yield is late again; yields that return at once end
// that. A yield that took a time slice gave the core to a thread that does not yield (a compiler, a computation). The next
// would cost a slice again, and two processes that wait for each other would hardly run together: for a while waits sleep
// without one, as the scheduler favours threads that have slept.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/platform/cpu.hpp"

namespace thalweg::impl {

/// Does this process share its cores with other busy threads? Any thread.
class Crowd {
 public:
  static constexpr uint64_t kLateNs = 20'000;  // a yield without another runnable thread takes less than 1 us
  static constexpr unsigned kMemory = 16;      // yields that return at once until a late one is forgotten
  static constexpr uint64_t kSliceNs = 1'000'000;
  static constexpr unsigned kSliceMemory = 256;  // waits without a yield until another is tried
  static inline Crowd& of_process();
  bool there() const { return level_.load(std::memory_order_relaxed) != 0; }
  /// Is a yield likely to cost a time slice?
  bool costs_slice() const { return slices_.load(std::memory_order_relaxed) != 0; }
  /// A yield has taken so long.
  void yielded(uint64_t ns) {
    if (ns >= kSliceNs) slices_.store(kSliceMemory, std::memory_order_relaxed);
    if (ns >= kLateNs) return level_.store(kMemory, std::memory_order_relaxed);
    lower(level_);
  }
  /// A wait did without a yield.
  void spared() { lower(slices_); }

 private:
  /// Threads may lower it at once: a hint, which then lasts one wait longer.
  static void lower(std::atomic<unsigned>& level) {
    if (const unsigned now = level.load(std::memory_order_relaxed); now != 0) level.store(now - 1, std::memory_order_relaxed);
  }
  std::atomic<unsigned> level_{0}, slices_{0};
};

inline constinit Crowd process_crowd;
inline Crowd& Crowd::of_process() { return process_crowd; }

/// Gives the core away; how long that took.
uint64_t timed_yield();

/// One wait. Poll; if nothing is there, call idle(); if it returns sleep, sleep (briefly, if nothing wakes it) and poll
/// again.
class Waiting {
 public:
  static constexpr unsigned kEager = 64;           // a pause delays the next poll by more than a poll takes
  static constexpr unsigned kSpins = 256;          // polls; with their pauses 50 to 200 us
  static constexpr unsigned kCrowdedSpins = 8;     // of a crowded process
  static constexpr uint64_t kYieldNs = 2'000'000;  // yields, all together
  static constexpr uint64_t kCrowdedYieldNs = 50'000;
  enum class Next { look, sleep };

  explicit Waiting(Crowd& crowd = Crowd::of_process(), uint64_t (*yield)() = timed_yield) : crowd_(crowd), yield_(yield) {
    restart();
  }
  /// Something has happened: the next answer is likely to be near again.
  void restart() {
    turns_ = 0;
    yielded_ns_ = 0;
    asleep_ = false;
    spins_ = !crowd_.there() ? kSpins : crowd_.costs_slice() ? kEager : kCrowdedSpins;
  }
  bool spinning() const { return turns_ < spins_; }
  Next idle() {
    if (++turns_ < spins_) [[likely]] {
      if (turns_ > kEager) cpu_pause();
      return Next::look;
    }
    return give_way();
  }

 private:
  Next give_way();

  Crowd& crowd_;
  uint64_t (*yield_)();
  unsigned turns_ = 0, spins_ = kSpins;
  uint64_t yielded_ns_ = 0;
  bool asleep_ = false;
};

}  // namespace thalweg::impl
