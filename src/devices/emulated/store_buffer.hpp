// SPDX-License-Identifier: Apache-2.0
// The stores of a kernel's host-side twin, as others see them: unless a fence stands between, the newest becomes visible
// first, piece by piece, so a flag overtakes its payload. Stores to one place keep their order. One thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace thalweg::impl::emulated {

class StoreBuffer {
 public:
  explicit StoreBuffer(bool skip_fences = false) : skip_fences_(skip_fences) {}
  ~StoreBuffer() { drain(); }
  StoreBuffer(const StoreBuffer&) = delete;
  StoreBuffer& operator=(const StoreBuffer&) = delete;
  void store(std::byte* to, const std::byte* from, size_t length);
  /// What this thread sees: memory, with its own stores.
  void load(const std::byte* from, std::byte* to, size_t length) const;
  void store_word(uint64_t* to, uint64_t value, bool add);
  /// System scope: what was stored before is visible before anything that is stored later.
  void fence() {
    if (!skip_fences_) drain();
  }
  /// Time passes: what was stored shows, though in no better order.
  void settle() { drain(); }
  size_t count() const { return pending_.size(); }
  /// Called each time that one more store has become visible.
  void watch(std::function<void()> watcher) { watcher_ = std::move(watcher); }

 private:
  struct Pending {
    std::byte* to;
    std::vector<std::byte> bytes;  // empty: a word
    uint64_t value;
    bool add;
  };
  static void show(const Pending& one);
  /// What is older at [to, to + length) shows now; all, where many wait.
  void overtake(const std::byte* to, size_t length);
  void drain();
  const bool skip_fences_;
  std::vector<Pending> pending_;
  const std::byte *first_ = nullptr, *last_ = nullptr;  // all that is pending lies between
  std::function<void()> watcher_;
};

}  // namespace thalweg::impl::emulated
