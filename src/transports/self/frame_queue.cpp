// SPDX-License-Identifier: Apache-2.0
// The queue of the self transport.
#include "transports/self/frame_queue.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace thalweg::impl::self {

std::byte* FrameQueue::room(size_t n) {
  const size_t need = space(n);
  if (chunks_.empty() || kChunk - chunks_.back()->end < need) {
    if (chunks_.size() >= kMaxChunks) return nullptr;
    std::unique_ptr<Chunk> chunk = spare_ ? std::move(spare_) : std::unique_ptr<Chunk>(new (std::nothrow) Chunk);
    if (!chunk) return nullptr;
    chunk->begin = chunk->end = 0;
    chunks_.push_back(std::move(chunk));
  }
  return chunks_.back()->data + chunks_.back()->end + space(0);
}

void FrameQueue::push(const FrameHeader& header) {
  Chunk& chunk = *chunks_.back();
  std::memcpy(chunk.data + chunk.end, &header, sizeof header);
  chunk.end += space(header.length);
  ++frames_;
  ++pushed_;
  bytes_ += header.length;
}

const FrameHeader& FrameQueue::front(const std::byte** body) const {
  const Chunk& chunk = *chunks_.front();
  *body = chunk.data + chunk.begin + space(0);
  return *reinterpret_cast<const FrameHeader*>(chunk.data + chunk.begin);
}

void FrameQueue::pop() {
  Chunk& chunk = *chunks_.front();
  const size_t length = reinterpret_cast<const FrameHeader*>(chunk.data + chunk.begin)->length;
  chunk.begin += space(length);
  --frames_;
  bytes_ -= length;
  if (chunk.begin != chunk.end) return;
  if (chunks_.size() == 1) {
    chunk.begin = chunk.end = 0;  // also the place of a room() that was not pushed yet
    return;
  }
  spare_ = std::move(chunks_.front());
  chunks_.pop_front();
}

void FrameQueue::clear() {
  chunks_.clear();
  spare_.reset();
  frames_ = bytes_ = 0;
}

}  // namespace thalweg::impl::self
