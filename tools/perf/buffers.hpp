// SPDX-License-Identifier: Apache-2.0
// Payload buffers of one order: a window of distinct ones, plain, on huge pages or at a place of tw_memory_allocate, filled
// with and checked against a pattern that depends on seed, message and position.
#pragma once
#include <thalweg/thalweg.h>

#include <vector>

#include "pair.hpp"

namespace perf {

class Buffers {
 public:
  /// side: whose memory of the order's.
  Buffers(tw_context* context, const Order& order, size_t count, int side);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  unsigned char* at(size_t i) const { return data_ + i * pitch_; }
  uint64_t offset(size_t i) const { return i * pitch_; }
  tw_memory* memory() const { return memory_; }
  const tw_layout* layout() const { return layout_; }
  /// n bytes at the begin of buffer i, whatever memory it is.
  void write(size_t i, const void* from, size_t n);
  void read(size_t i, void* to, size_t n) const;
  static constexpr unsigned char kPoisoned = 0xA5;
  /// What fill() writes into buffer 0.
  static void pattern_into(unsigned char* to, size_t n, uint64_t seed);
  void fill(uint64_t seed);
  void poison();
  /// As a program writes its next message into buffer i: a store into each cache line (of what is there already, so that it
  /// stays right). Nothing if the order reuses buffers, or if the host cannot store.
  void renew(size_t i);
  bool renews() const { return renews_; }
  /// Payload right, and what lies between strided blocks and behind the payload untouched since poison().
  bool check(size_t i, uint64_t seed);

 private:
  void allocate(const std::string& memory, size_t total);
  bool payload_right(const unsigned char* seen, size_t i, uint64_t seed) const;
  unsigned char* host(size_t i) { return shadow_.empty() ? at(i) : shadow_.data() + i * pitch_; }
  tw_context* context_;
  tw_memory* memory_ = nullptr;
  tw_layout* layout_ = nullptr;
  Layout shape_;
  unsigned char* data_ = nullptr;
  void* plain_ = nullptr;
  bool renews_;
  std::vector<unsigned char> shadow_;  // of memory on a device: filled and checked here, copied from and to there
  size_t size_, span_, pitch_, count_;
};

}  // namespace perf
