// SPDX-License-Identifier: Apache-2.0
// Buffers that notice what happens to them, and short forms of operations.
#pragma once
#include <gtest/gtest.h>

#include "fake_port.hpp"

namespace thalweg::test {

/// A fresh seed per process, printed by gtest when a test fails in it.
inline uint64_t seed() {
  static uint64_t base = [] {
    uint64_t s = std::random_device{}();
    ::testing::Test::RecordProperty("seed", std::to_string(s));
    return s;
  }();
  return ++base;
}

/// Random bytes at an odd alignment between guards.
class Buffer {
 public:
  Buffer(std::mt19937_64& random, size_t size) : size_(size), offset_(kGuard + random() % 16) {
    bytes_.assign(offset_ + size + kGuard, std::byte{0xa5});
    for (size_t i = 0; i < size; i += 8) {
      uint64_t word = random();
      std::memcpy(data() + i, &word, std::min<size_t>(8, size - i));
    }
  }
  std::byte* data() { return bytes_.data() + offset_; }
  size_t size() const { return size_; }
  bool holds(const std::byte* expected, size_t n) { return n == 0 || std::memcmp(data(), expected, n) == 0; }
  bool guarded() const {
    for (size_t i = 0; i < offset_; ++i) {
      if (bytes_[i] != std::byte{0xa5}) return false;
    }
    for (size_t i = offset_ + size_; i < bytes_.size(); ++i) {
      if (bytes_[i] != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t size_, offset_;
  std::vector<std::byte> bytes_;
};

/// `count` blocks with gaps between them.
class Strided {
 public:
  Strided(std::mt19937_64& random, uint64_t block, uint64_t count) : block_(block), count_(count) {
    stride_ = block + 1 + random() % 50;
    bytes_.resize(stride_ * count);
    for (std::byte& b : bytes_) b = static_cast<std::byte>(random());
    before_ = bytes_;
    int64_t stride = static_cast<int64_t>(stride_);
    EXPECT_EQ(make_strided(1, block, &count_, &stride, &layout), TW_OK);
  }
  ~Strided() { release(layout); }
  Strided(const Strided&) = delete;
  Strided& operator=(const Strided&) = delete;
  std::byte* base() { return bytes_.data(); }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> out;
    for (uint64_t i = 0; i < count_; ++i) {
      out.insert(out.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(i * stride_),
                 bytes_.begin() + static_cast<std::ptrdiff_t>(i * stride_ + block_));
    }
    return out;
  }
  bool gaps_untouched() const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (i % stride_ >= block_ && bytes_[i] != before_[i]) return false;
    }
    return true;
  }
  Layout* layout = nullptr;

 private:
  uint64_t block_, count_, stride_;
  std::vector<std::byte> bytes_, before_;
};

inline OpDesc send_op(Peer& peer, std::byte* address, size_t length, uint64_t tag, uint64_t immediate) {
  OpDesc op;
  op.verb = Verb::send;
  op.peer = &peer;
  op.address = address;
  op.length = length;
  op.tag = tag;
  op.immediate = immediate;
  return op;
}
inline OpDesc send_op(Peer& peer, Buffer& from, uint64_t tag, uint64_t immediate) {
  return send_op(peer, from.data(), from.size(), tag, immediate);
}
inline OpDesc receive_op(std::byte* address, size_t length, uint64_t tag, uint64_t mask) {
  OpDesc op;
  op.verb = Verb::recv;
  op.address = address;
  op.length = length;
  op.tag = tag;
  op.mask = mask;
  return op;
}
/// What this engine's endpoints have moved by this way.
inline Moved::Count moved_by(const Engine& engine, Way way) {
  Moved::Count sum;
  for (const Peer* peer : engine.peers()) sum += peer->tally.moved.of(way);
  return sum;
}
/// A request's name on the wire.
inline uint64_t wire_op(Engine& engine, tw_request request) { return engine.runs().wire_op(*engine.runs().find(request)); }
inline Status post(World& world, Buffer& to, uint64_t tag, uint64_t mask, tw_request* request) {
  if (world.random() % 2 == 0) return post_short(*world.right, to.data(), to.size(), tag, mask, request);
  return world.right->post_receive(receive_op(to.data(), to.size(), tag, mask), {request});
}

}  // namespace thalweg::test
