// SPDX-License-Identifier: Apache-2.0
// Memory of tests: random contents, an alignment of choice, guard bytes on both sides that must stay as they are.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/device/shapes.hpp"

namespace thalweg::device::twins {

class Area {
 public:
  explicit Area(size_t length, size_t offset = 0) : length_(length), all_(kGuard + offset + length + kGuard + kAlign) {
    for (std::byte& b : all_) b = static_cast<std::byte>(random_source()());
    const auto address = reinterpret_cast<uintptr_t>(all_.data()) + kGuard;
    start_ = kGuard + (kAlign - address % kAlign) % kAlign + offset;
    image_ = all_;
  }
  std::byte* data() { return all_.data() + start_; }
  size_t size() const { return length_; }
  /// Remembers what is inside, as what should be there.
  void settle() { image_ = all_; }
  /// What should be at `at` from now on; may lie outside only by mistake of a test.
  void expect(size_t at, const void* bytes, size_t length) { std::memcpy(image_.data() + start_ + at, bytes, length); }
  /// Everything is as it should be, the guard bytes too.
  ::testing::AssertionResult check() const {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i] == image_[i]) continue;
      return ::testing::AssertionFailure() << "byte " << static_cast<long>(i) - static_cast<long>(start_) << " of " << length_;
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr size_t kGuard = 256, kAlign = 128;
  size_t length_, start_;
  std::vector<std::byte> all_, image_;
};

}  // namespace thalweg::device::twins
