// SPDX-License-Identifier: Apache-2.0
// What the thread sanitizer cannot see by itself. Nothing in other builds.
//
// It knows memory by address. Two threads of one process that are connected by shared memory have a mapping each: what one
// releases at its address the other acquires at another, and every hand-over would look like a race. A mapping begins on a
// page, so a word's place in its page is the same in both: that is the name under which the two meet here. Words of other
// connections may have the same name; like the sanitizer's own model of sockets this can hide a race, never invent one.
#pragma once
#include <cstdint>

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* name);
extern "C" void __tsan_release(void* name);
#endif

namespace thalweg::impl {

#ifdef __SANITIZE_THREAD__
inline void* tsan_name(const void* word) {
  static uint64_t names[512];
  return &names[reinterpret_cast<uintptr_t>(word) / 8 % 512];
}
/// After the load that sees the other's release.
inline void tsan_acquired(const void* word) { __tsan_acquire(tsan_name(word)); }
/// Before the store.
inline void tsan_releasing(const void* word) { __tsan_release(tsan_name(word)); }
#else
inline void tsan_acquired(const void*) {}
inline void tsan_releasing(const void*) {}
#endif

}  // namespace thalweg::impl
