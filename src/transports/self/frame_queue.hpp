// SPDX-License-Identifier: Apache-2.0
// Frames in order of arrival, in chunks that never move: a body stays where it is while its receiver sends further frames.
// Memory is taken with the first frame and bounded; one chunk stays allocated when the queue is empty.
#pragma once
#include <cstddef>
#include <deque>
#include <memory>

#include "transports/transport.hpp"

namespace thalweg::impl::self {

class FrameQueue {
 public:
  static constexpr size_t kChunk = 256 * 1024;
  static constexpr size_t kMaxChunks = 64;
  static constexpr size_t kAlign = 16;

  /// Room for a frame with a body of at most n bytes; nullptr: full. Nothing is queued until push().
  std::byte* room(size_t n);
  /// Queues the frame whose body is at the last room().
  void push(const FrameHeader& header);
  size_t frames() const { return frames_; }
  size_t bytes() const { return bytes_; }
  /// So many ever came, and went.
  uint64_t pushed() const { return pushed_; }
  uint64_t popped() const { return pushed_ - frames_; }
  /// The oldest frame. frames() > 0.
  const FrameHeader& front(const std::byte** body) const;
  void pop();
  void clear();

 private:
  struct Chunk {
    alignas(64) std::byte data[kChunk];
    size_t begin = 0, end = 0;
  };
  static size_t space(size_t n) {
    return (sizeof(FrameHeader) + kAlign - 1) / kAlign * kAlign + (n + kAlign - 1) / kAlign * kAlign;
  }
  std::byte* at(Chunk& chunk, size_t position) const { return chunk.data + position; }

  std::deque<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk> spare_;
  size_t frames_ = 0, bytes_ = 0;
  uint64_t pushed_ = 0;
};

}  // namespace thalweg::impl::self
