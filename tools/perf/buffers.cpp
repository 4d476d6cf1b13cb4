// SPDX-License-Identifier: Apache-2.0
#include "buffers.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace perf {
namespace {

constexpr size_t kGuard = 64;
constexpr unsigned char kPoison = 0xA5;

unsigned char pattern(uint64_t seed, size_t message, size_t position) {
  uint64_t x = (seed ^ (message * 0x9E3779B97F4A7C15ull)) + position * 0xBF58476D1CE4E5B9ull;
  return static_cast<unsigned char>((x ^ (x >> 29)) * 0x94D049BB133111EBull >> 56);
}

}  // namespace

Buffers::Buffers(tw_context* context, const Order& order, size_t count)
    : context_(context), shape_(order.layout), size_(order.size), span_(order.size), count_(count) {
  if (shape_) {
    shape_.count = std::max<uint64_t>(1, order.size / shape_.block);
    span_ = (shape_.count - 1) * shape_.stride + shape_.block;
    int64_t stride = static_cast<int64_t>(shape_.stride);
    must(tw_layout_strided(1, shape_.block, &shape_.count, &stride, &layout_), "tw_layout_strided");
  }
  pitch_ = (span_ + kGuard + 4095) / 4096 * 4096;
  size_t total = pitch_ * count_, alignment = order.huge_pages ? 2u << 20 : 4096;
  if (order.plain_memory) {
    if (posix_memalign(&plain_, alignment, total) != 0) die("allocating buffers", TW_ERR_NO_MEMORY);
    if (order.huge_pages) madvise(plain_, total, MADV_HUGEPAGE);
    data_ = static_cast<unsigned char*>(plain_);
    must(tw_memory_register(context_, data_, total, nullptr, &memory_), "tw_memory_register");
  } else {
    must(tw_memory_allocate(context_, total, nullptr, &memory_), "tw_memory_allocate");
    data_ = static_cast<unsigned char*>(tw_memory_address(memory_));
  }
  poison();
}

Buffers::~Buffers() {
  tw_memory_release(memory_);
  if (layout_) tw_layout_destroy(layout_);
  std::free(plain_);
}

bool Buffers::payload_byte(size_t position, size_t* packed) const {
  if (!shape_) {
    *packed = position;
    return position < size_;
  }
  *packed = position / shape_.stride * shape_.block + position % shape_.stride;
  return position < span_ && position % shape_.stride < shape_.block;
}

void Buffers::fill(uint64_t seed) {
  for (size_t i = 0; i < count_; ++i) {
    for (size_t p = 0, packed = 0; p < span_; ++p) {
      if (payload_byte(p, &packed)) at(i)[p] = pattern(seed, i, packed);
    }
  }
}

void Buffers::poison() { std::memset(data_, kPoison, pitch_ * count_); }

bool Buffers::check(size_t i, uint64_t seed) const {
  for (size_t p = 0, packed = 0; p < span_ + kGuard; ++p) {
    unsigned char wanted = payload_byte(p, &packed) ? pattern(seed, i, packed) : kPoison;
    if (at(i)[p] != wanted) return false;
  }
  return true;
}

}  // namespace perf
