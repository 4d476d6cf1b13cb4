// SPDX-License-Identifier: Apache-2.0
// Payload buffers of one order: a window of distinct ones, plain, on huge pages or from the library's allocator, filled
// with and checked against a pattern that depends on seed, message and position.
#pragma once
#include <thalweg/thalweg.h>

#include "pair.hpp"

namespace perf {

class Buffers {
 public:
  Buffers(tw_context* context, const Order& order, size_t count);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  unsigned char* at(size_t i) const { return data_ + i * pitch_; }
  uint64_t offset(size_t i) const { return i * pitch_; }
  tw_memory* memory() const { return memory_; }
  const tw_layout* layout() const { return layout_; }
  void fill(uint64_t seed);
  void poison();
  /// Payload right, and what lies between strided blocks and behind the payload untouched since poison().
  bool check(size_t i, uint64_t seed) const;

 private:
  bool payload_byte(size_t position, size_t* packed) const;
  tw_context* context_;
  tw_memory* memory_ = nullptr;
  tw_layout* layout_ = nullptr;
  Layout shape_;
  unsigned char* data_ = nullptr;
  void* plain_ = nullptr;
  size_t size_, span_, pitch_, count_;
};

}  // namespace perf
