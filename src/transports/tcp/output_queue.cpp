// SPDX-License-Identifier: Apache-2.0
// The queue of a link: one chunk for what is copied, markers for what is not.
#include "transports/tcp/output_queue.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace thalweg::impl::tcp {

std::unique_ptr<std::byte[]> ChunkPool::take() {
  if (spare_.empty()) return std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[kChunk]);
  std::unique_ptr<std::byte[]> chunk = std::move(spare_.back());
  spare_.pop_back();
  return chunk;
}

void ChunkPool::give(std::unique_ptr<std::byte[]> chunk) {
  if (spare_.size() < kSpare) spare_.push_back(std::move(chunk));
}

void OutputQueue::release() {
  if (chunk_) pool_.give(std::move(chunk_));
  head_ = tail_ = 0;
}

std::byte* OutputQueue::room(size_t n) {
  if (!chunk_) {
    chunk_ = pool_.take();
    if (!chunk_) return nullptr;
    head_ = tail_ = 0;
  }
  if (tail_ + n > ChunkPool::kChunk) {
    std::memmove(chunk_.get(), chunk_.get() + head_, tail_ - head_);
    tail_ -= head_;
    head_ = 0;
  }
  return chunk_.get() + tail_;
}

void OutputQueue::added(size_t n) {
  tail_ += n;
  bytes_ += n;
}

void OutputQueue::add_reference(const iovec* pieces, size_t count, size_t skip, size_t total, void* token) {
  Reference& r = reference_[(first_ + references_) % kMaxReferences];
  ++references_;
  r.at = taken_ + (tail_ - head_);
  r.left = total;
  r.piece = r.within = 0;
  r.token = token;
  r.pieces.assign(pieces, pieces + count);
  advance(r, skip);
  bytes_ += r.left;
}

/// Passes over n bytes and the empty pieces behind them, so that `piece` is one with bytes to send, or the end.
void OutputQueue::advance(Reference& r, size_t n) {
  r.left -= n;
  r.within += n;
  while (r.piece < r.pieces.size() && r.within >= r.pieces[r.piece].iov_len) {
    r.within -= r.pieces[r.piece].iov_len;
    ++r.piece;
  }
}

size_t OutputQueue::gather(iovec* out, size_t max) const {
  size_t n = 0, head = head_;
  for (unsigned k = 0; k < references_ && n < max; ++k) {
    const Reference& r = reference_[(first_ + k) % kMaxReferences];
    const size_t marker = head_ + static_cast<size_t>(r.at - taken_);
    if (marker > head) out[n++] = {chunk_.get() + head, marker - head};
    head = marker;
    size_t within = r.within;
    for (size_t piece = r.piece; piece < r.pieces.size(); ++piece, within = 0) {
      if (n == max) return n;
      const iovec& v = r.pieces[piece];
      if (v.iov_len > within) out[n++] = {static_cast<std::byte*>(v.iov_base) + within, v.iov_len - within};
    }
  }
  if (n < max && tail_ > head) out[n++] = {chunk_.get() + head, tail_ - head};
  return n;
}

void OutputQueue::sent(size_t n) {
  bytes_ -= n;
  while (n > 0) {
    const size_t buffered = references_ > 0 ? static_cast<size_t>(reference_[first_].at - taken_) : tail_ - head_;
    const size_t copied = std::min(n, buffered);
    head_ += copied;
    taken_ += copied;
    n -= copied;
    if (references_ == 0 || n == 0) break;
    Reference& r = reference_[first_];
    const size_t referenced = std::min(n, r.left);
    advance(r, referenced);
    n -= referenced;
    if (r.left == 0) finish_first();
  }
  if (bytes_ == 0) release();
}

void OutputQueue::finish_first() {
  done_[done_count_++] = reference_[first_].token;
  reference_[first_].token = nullptr;
  first_ = (first_ + 1) % kMaxReferences;
  --references_;
}

void* OutputQueue::finished() {
  void* token = done_[0];
  for (unsigned i = 1; i < done_count_; ++i) done_[i - 1] = done_[i];
  --done_count_;
  return token;
}

bool OutputQueue::retract(void* token) {
  if (done_count_ == 0 || done_[done_count_ - 1] != token) return false;
  --done_count_;
  return true;
}

void OutputQueue::abandon(std::vector<void*>* tokens) {
  while (references_ > 0) {
    tokens->push_back(reference_[first_].token);
    first_ = (first_ + 1) % kMaxReferences;
    --references_;
  }
  bytes_ = 0;
  release();
}

}  // namespace thalweg::impl::tcp
