// SPDX-License-Identifier: Apache-2.0
#include "buffers.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace perf {
namespace {

constexpr size_t kGuard = 64;

/// Eight bytes at a time, so that windows of gigabytes are filled and checked in reasonable time.
uint64_t pattern_word(uint64_t seed, size_t message, size_t word) {
  uint64_t x = word * 0x9E3779B97F4A7C15u + seed * 0xBF58476D1CE4E5B9u + message * 0x94D049BB133111EBu;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 29);
}

unsigned char pattern(uint64_t seed, size_t message, size_t position) {
  return static_cast<unsigned char>(pattern_word(seed, message, position / 8) >> position % 8 * 8);
}

constexpr size_t whole_words(size_t length) { return length / 8 * 8; }

}  // namespace

Buffers::Buffers(tw_context* context, const Order& order, size_t count, int side)
    : context_(context),
      shape_(order.layout),
      renews_(order.reuse == 0 && !on_device(order.memory[side])),
      size_(order.size),
      span_(order.size),
      count_(count) {
  if (shape_) {
    span_ = (shape_.count - 1) * shape_.stride + shape_.block;
    int64_t stride = static_cast<int64_t>(shape_.stride);
    must(tw_layout_strided(1, shape_.block, &shape_.count, &stride, &layout_), "tw_layout_strided");
  }
  pitch_ = (span_ + kGuard + 4095) / 4096 * 4096;
  allocate(order.memory[side], pitch_ * count_);
  if (on_device(order.memory[side])) shadow_.resize(pitch_ * count_);
  poison();
}

namespace {

[[noreturn]] void end_without_room(const std::string& memory, size_t total) {
  end_with("there is no room for " + std::to_string(total) + " bytes of " + memory +
           " memory, the buffers of one side: take a smaller --size or --window, or free memory");
}

bool lacks_room(tw_status status) {
  return status == TW_ERR_NO_MEMORY || status == TW_ERR_NO_SHARED_MEMORY || status == TW_ERR_LIMIT;
}

}  // namespace

void Buffers::allocate(const std::string& memory, size_t total) {
  const bool huge = memory == "huge";
  if (huge || memory == "plain") {
    if (posix_memalign(&plain_, huge ? 2u << 20 : 4096, total) != 0) end_without_room(memory, total);
    if (huge) madvise(plain_, total, MADV_HUGEPAGE);
    data_ = static_cast<unsigned char*>(plain_);
    must(tw_memory_register(context_, data_, total, nullptr, &memory_), "tw_memory_register");
    return;
  }
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = memory.c_str();
  const tw_status status = tw_memory_allocate(context_, total, &options, &memory_);
  if (lacks_room(status)) end_without_room(memory, total);
  must(status, "tw_memory_allocate");
  data_ = static_cast<unsigned char*>(tw_memory_address(memory_));
}

Buffers::~Buffers() {
  (void)tw_memory_release(memory_);
  if (layout_) tw_layout_destroy(layout_);
  std::free(plain_);
}

void Buffers::pattern_into(unsigned char* to, size_t n, uint64_t seed) {
  for (size_t i = 0; i < n; ++i) to[i] = pattern(seed, 0, i);
}

void Buffers::fill(uint64_t seed) {
  for (size_t i = 0; i < count_; ++i) {
    unsigned char* const to = host(i);
    if (!shape_) {
      for (size_t p = 0; p < whole_words(size_); p += 8) {
        const uint64_t word = pattern_word(seed, i, p / 8);
        std::memcpy(to + p, &word, sizeof word);
      }
      for (size_t p = whole_words(size_); p < size_; ++p) to[p] = pattern(seed, i, p);
      continue;
    }
    for (size_t k = 0, packed = 0; k < shape_.count; ++k) {
      for (size_t b = 0; b < shape_.block; ++b) to[k * shape_.stride + b] = pattern(seed, i, packed++);
    }
  }
  if (!shadow_.empty()) write(0, shadow_.data(), shadow_.size());
}

void Buffers::poison() {
  std::memset(host(0), kPoisoned, pitch_ * count_);
  if (!shadow_.empty()) write(0, shadow_.data(), shadow_.size());
}

void Buffers::renew(size_t i) {
  if (!renews_) return;
  constexpr size_t kLine = 64;
  for (size_t p = 0; p < span_; p += kLine) {
    volatile unsigned char* const line = at(i) + p;
    *line = *line;
  }
}

void Buffers::write(size_t i, const void* from, size_t n) { must(tw_memory_copy(context_, at(i), from, n), "tw_memory_copy"); }
void Buffers::read(size_t i, void* to, size_t n) const { must(tw_memory_copy(context_, to, at(i), n), "tw_memory_copy"); }

bool Buffers::check(size_t i, uint64_t seed) {
  if (!shadow_.empty()) read(i, host(i), pitch_);
  return payload_right(host(i), i, seed);
}

bool Buffers::payload_right(const unsigned char* seen, size_t i, uint64_t seed) const {
  uint64_t wrong = 0, word = 0;
  if (!shape_) {
    for (size_t p = 0; p < whole_words(size_); p += 8) {
      std::memcpy(&word, seen + p, sizeof word);
      wrong |= word ^ pattern_word(seed, i, p / 8);
    }
    for (size_t p = whole_words(size_); p < size_; ++p) wrong |= static_cast<unsigned char>(seen[p] ^ pattern(seed, i, p));
    for (size_t p = size_; p < size_ + kGuard; ++p) wrong |= static_cast<unsigned char>(seen[p] ^ kPoisoned);
    return wrong == 0;
  }
  for (size_t k = 0, packed = 0; k < shape_.count; ++k, seen += shape_.stride) {
    const size_t end = k + 1 < shape_.count ? shape_.stride : shape_.block + kGuard;
    for (size_t b = 0; b < shape_.block; ++b) wrong |= static_cast<unsigned char>(seen[b] ^ pattern(seed, i, packed++));
    for (size_t b = shape_.block; b < end; ++b) wrong |= static_cast<unsigned char>(seen[b] ^ kPoisoned);
  }
  return wrong == 0;
}

}  // namespace perf
