// SPDX-License-Identifier: Apache-2.0
// The processor's own block copy where it has one that pays between cores.
#pragma once
#include <cstddef>
#include <cstring>

namespace thalweg::impl {

/// From here on string_copy is at least as fast as memcpy.
inline constexpr size_t kStringCopyMin = 2048;

/// memcpy by `rep movsb` on x86-64; memcpy elsewhere.
inline void string_copy(void* to, const void* from, size_t n) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
#else
  std::memcpy(to, from, n);
#endif
}

}  // namespace thalweg::impl
