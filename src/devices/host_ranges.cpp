// SPDX-License-Identifier: Apache-2.0
#include "devices/host_ranges.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace thalweg::impl {
namespace {

void* no_heap = nullptr;
void* const* heap_end = &no_heap;  // the C library's word of it

struct Range {
  uintptr_t begin = 0, end = 0;
};

/// Writable static data of the program itself: the first object that is listed.
int take_program(dl_phdr_info* program, size_t, void* out) {
  Range& range = *static_cast<Range*>(out);
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = program->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    const uintptr_t begin = program->dlpi_addr + part.p_vaddr;
    if (range.end == 0) range.begin = begin;
    range.begin = std::min(range.begin, begin);
    range.end = std::max<uintptr_t>(range.end, begin + part.p_memsz);
  }
  return 1;  // no other
}

/// What the kernel calls [heap] and [stack], and where the heap ends at the latest: something else lies there.
void read_map(Range* heap, Range* stack, uintptr_t* beyond) {
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<FILE, Close> file(std::fopen("/proc/self/maps", "re"));
  if (file == nullptr) return;
  char line[512];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    Range* const range = std::strstr(line, " [heap]\n") != nullptr    ? heap
                         : std::strstr(line, " [stack]\n") != nullptr ? stack
                                                                      : nullptr;
    const bool behind_heap = range != heap && heap->end != 0 && *beyond == 0;
    Range found;
    if ((range == nullptr && !behind_heap) || std::sscanf(line, "%lx-%lx", &found.begin, &found.end) != 2) continue;
    if (behind_heap) *beyond = found.begin;
    if (range == nullptr) continue;
    if (range->end == 0) range->begin = found.begin;  // of several parts the first
    range->end = found.end;
  }
}

}  // namespace

HostRanges host_ranges;

void HostRanges::find() {
  Range data, heap, stack;
  uintptr_t beyond = 0;
  dl_iterate_phdr(take_program, &data);
  data_ = data.begin;
  data_length_ = data.end - data.begin;
  read_map(&heap, &stack, &beyond);
  stack_end_ = stack.end;
  // The word that sbrk(0) returns, which is a system call in some C libraries. Where the heap is not the kernel's (valgrind has its own),
  // the word lies elsewhere, and none is known. Other threads may move the heap's end meanwhile.
  void* const* const word = static_cast<void**>(dlsym(RTLD_DEFAULT, "__curbrk"));
  if (word == nullptr || heap.end == 0) return;
  const auto end = reinterpret_cast<uintptr_t>(__atomic_load_n(word, __ATOMIC_RELAXED));
  if (end <= heap.begin || end > beyond) return;
  heap_end = word;
  heap_ = heap.begin;
}

inline bool HostRanges::in_heap(uintptr_t at) const {
  return at >= heap_ && at < reinterpret_cast<uintptr_t>(__atomic_load_n(heap_end, __ATOMIC_RELAXED));
}

inline bool HostRanges::in_segment(uintptr_t at) const {
  const unsigned used = used_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < used; ++i) {
    const uint64_t word = segments_[i].load(std::memory_order_relaxed);
    if ((at >> kPageBits) - (word & ((uint64_t{1} << kPlaceBits) - 1)) < word >> kPlaceBits) return true;
  }
  return false;
}

bool HostRanges::contain(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto stack = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return in_segment(at) || in_heap(at) || at - data_ < data_length_ ||
         (at >= stack && at < stack_end_ && stack_end_ - stack < kMostStack);
}

uint64_t HostRanges::word_of(const void* address, size_t length) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const uint64_t first = at >> kPageBits, pages = (length + (1u << kPageBits) - 1) >> kPageBits;
  const bool fits = first >> kPlaceBits == 0 && pages >> (64 - kPlaceBits) == 0 && at % (1u << kPageBits) == 0;
  return fits && pages != 0 ? pages << kPlaceBits | first : 0;
}

void HostRanges::add(const void* address, size_t length) {
  const uint64_t word = word_of(address, length);
  if (word == 0) return;
  for (unsigned i = 0; i < kSegments; ++i) {
    uint64_t none = 0;
    if (!segments_[i].compare_exchange_strong(none, word)) continue;
    for (unsigned used = used_.load(); used <= i && !used_.compare_exchange_weak(used, i + 1);) {
    }
    return;
  }
}

void HostRanges::remove(const void* address, size_t length) {
  const uint64_t word = word_of(address, length);
  if (word == 0) return;
  for (std::atomic<uint64_t>& segment : segments_) {
    uint64_t mine = word;
    if (segment.compare_exchange_strong(mine, 0)) return;
  }
}

}  // namespace thalweg::impl
