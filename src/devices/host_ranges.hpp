// SPDX-License-Identifier: Apache-2.0
// Host memory that no device can own, told by its address alone. A driver that is asked of a pointer takes some 50 ns to answer, which is
// a fifth of a short message's way between processes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace thalweg::impl {

/// The program's static data, its heap by brk(), what is in use of the main thread's stack: the kernel gives these addresses to nothing
/// else while the program runs. And memory that the library has allocated, while it is. Everything else a driver must be asked of: what
/// was unmapped may have become a device's.
class HostRanges {
 public:
  /// Of this process. Before any back end is published, once.
  void find();
  bool contain(const void* address) const;
  /// Segments that the library allocated for users. More than there is room for are asked of like all else.
  void add(const void* address, size_t length);
  /// Before it is unmapped.
  void remove(const void* address, size_t length);

 private:
  static constexpr uintptr_t kMostStack =
      8u << 20;  // below the main thread's stack the kernel leaves as much free, whatever its limit
  static constexpr unsigned kSegments = 8, kPageBits = 12, kPlaceBits = 36;

  bool in_heap(uintptr_t at) const;
  bool in_segment(uintptr_t at) const;
  /// First page and number of pages in one word, so that no reader sees half a change. 0: it does not fit.
  static uint64_t word_of(const void* address, size_t length);

  uintptr_t heap_ = UINTPTR_MAX;
  uintptr_t data_ = 0, data_length_ = 0;
  uintptr_t stack_end_ = 0;
  std::atomic<unsigned> used_{0};
  std::atomic<uint64_t> segments_[kSegments]{};
};

extern HostRanges host_ranges;

/// Memory that the library allocated, in host_ranges until it ends: before it is unmapped.
class HostSegment {
 public:
  HostSegment() = default;
  HostSegment(const void* address, size_t length) : address_(address), length_(length) { host_ranges.add(address, length); }
  HostSegment(HostSegment&& other) noexcept : address_(std::exchange(other.address_, nullptr)), length_(other.length_) {}
  HostSegment& operator=(HostSegment&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~HostSegment() {
    if (address_ != nullptr) host_ranges.remove(address_, length_);
  }

 private:
  const void* address_ = nullptr;
  size_t length_ = 0;
};

}  // namespace thalweg::impl
