// SPDX-License-Identifier: Apache-2.0
// What one link has accepted and the kernel has not taken yet: coalesced frames in one bounded chunk, and bodies in the
// caller's memory at marked places between them. Order of acceptance is order of sending.
#pragma once
#include <sys/uio.h>

#include <memory>
#include <vector>

#include "transports/tcp/frame.hpp"
#include "transports/tcp/tuning.hpp"

namespace thalweg::impl::tcp {

/// Chunks shared by the queues of a port: a queue owns one only while it has something buffered.
class ChunkPool {
 public:
  // Below kQueued bytes one more frame of any size, and the heads of bodies by reference, are accepted.
  static constexpr size_t kChunk = kQueued + kCopyMax + 4 * kFrameHead;
  std::unique_ptr<std::byte[]> take();  // null: no memory
  void give(std::unique_ptr<std::byte[]> chunk);

 private:
  static constexpr size_t kSpare = 4;
  std::vector<std::unique_ptr<std::byte[]>> spare_;
};

class OutputQueue {
 public:
  explicit OutputQueue(ChunkPool& pool) : pool_(pool) {}
  ~OutputQueue() { release(); }
  OutputQueue(const OutputQueue&) = delete;

  size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  bool full() const { return tail_ - head_ >= kQueued; }
  bool takes_reference() const { return references_ + done_count_ < kMaxReferences && !full(); }

  bool has_reference() const { return references_ > 0; }

  /// Contiguous room behind everything queued for n <= kFrameHead + kCopyMax bytes. Requires !full(). null: no memory.
  std::byte* room(size_t n);
  /// n bytes of the room just asked for were filled.
  void added(size_t n);
  /// A body in the caller's memory, without its first `skip` bytes: total - skip > 0. Requires takes_reference() and that
  /// its head (or the rest of it) was added.
  void add_reference(const iovec* pieces, size_t count, size_t skip, size_t total, void* token);

  /// The first bytes to send, as at most max (>= 2) pieces.
  size_t gather(iovec* out, size_t max) const;
  /// The kernel took the first n bytes. Tokens of bodies that are all gone can be taken afterwards.
  void sent(size_t n);
  /// The token of the oldest finished body. Requires has_finished().
  void* finished();
  bool has_finished() const { return done_count_ > 0; }
  /// Takes back the token of the last finished body if it is this one: its caller gets it directly.
  bool retract(void* token);
  /// Drops everything; the tokens of unfinished bodies, oldest first, are appended.
  void abandon(std::vector<void*>* tokens);

 private:
  struct Reference {
    uint64_t at = 0;    // position in the buffered stream where the body belongs
    size_t left = 0;    // bytes not taken yet
    size_t piece = 0;   // first piece with such bytes
    size_t within = 0;  // bytes of that piece already taken
    void* token = nullptr;
    std::vector<iovec> pieces;
  };
  static void advance(Reference& reference, size_t n);
  void finish_first();
  void release();

  ChunkPool& pool_;
  std::unique_ptr<std::byte[]> chunk_;
  size_t head_ = 0, tail_ = 0;  // buffered bytes in the chunk
  uint64_t taken_ = 0;          // buffered bytes that the kernel took since the link began: position of head_
  size_t bytes_ = 0;            // buffered and referenced
  unsigned references_ = 0, first_ = 0;
  Reference reference_[kMaxReferences];
  unsigned done_count_ = 0;  // finished, not reported; they count as queued until then
  void* done_[kMaxReferences] = {};
};

}  // namespace thalweg::impl::tcp
