// SPDX-License-Identifier: Apache-2.0
// Hands lines that this core has written to the cache that all cores share.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thalweg::impl {

/// The line was written for another core, which reads it next: it goes to the shared cache now, where that core finds it without
/// asking this one (CLDEMOTE; processors that lack it take it for a NOP). A hint: any address.
inline void demote(const void* line) {
#if defined(__x86_64__)
  asm volatile("cldemote %0" ::"m"(*static_cast<const char*>(line)));
#else
  (void)line;
#endif
}

/// The same of all lines of [from, from + length).
inline void demote(const void* from, std::size_t length) {
  constexpr std::uintptr_t kLine = 64;
  const auto first = reinterpret_cast<std::uintptr_t>(from) / kLine * kLine;
  for (auto at = first; at < reinterpret_cast<std::uintptr_t>(from) + length; at += kLine)
    demote(reinterpret_cast<const void*>(at));
}

}  // namespace thalweg::impl
