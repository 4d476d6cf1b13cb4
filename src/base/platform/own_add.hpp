// SPDX-License-Identifier: Apache-2.0
// An addition to a word that no other thread writes, and any may read.
#pragma once
#include <atomic>
#include <cstdint>

namespace thalweg::impl {

/// One writer: no other thread's addition can be lost, so nothing is locked.
inline void own_add(std::atomic<uint64_t>& word, uint64_t n) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  static_assert(sizeof word == 8 && std::atomic<uint64_t>::is_always_lock_free);
  // What a compiler may make of the load and the store below, and GCC does not: one instruction for three. Its store is of an aligned
  // word at once, as a reader needs it.
  asm("addq %1, %0" : "+m"(word) : "er"(n) : "cc");
#else
  word.store(word.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#endif
}

}  // namespace thalweg::impl
