// SPDX-License-Identifier: Apache-2.0
// The emulated device of the model. It has no threads: its queues go on when the schedule says so.
#pragma once
#include "devices/emulated/emulated.hpp"
#include "model/program.hpp"

namespace thalweg::model {

using namespace thalweg::impl;

/// Of this process, until it exits.
emulated::EmulatedDevice& device();
constexpr MemoryKind kKinds[] = {MemoryKind::host,   MemoryKind::emulated, MemoryKind::vmm,
                                 MemoryKind::pinned, MemoryKind::managed,  MemoryKind::pool};

/// Memory of the device for local buffers.
class DevicePool {
 public:
  /// Null: used up. *address: what operations are told; what is returned the host may touch.
  std::byte* room(MemoryKind kind, size_t length, uint64_t* address, BufferInfo* info);
  void rewind() {
    for (Part& part : parts_) part.used = 0;
  }

 private:
  static constexpr size_t kLength = 1u << 20;
  struct Part {
    uint64_t base = 0;
    std::byte* pointer = nullptr;
    BufferInfo info;
    size_t used = 0;
  };
  Part parts_[static_cast<size_t>(MemoryKind::count_)];
};

/// A user's stream that a word holds up until the schedule lets it go on.
class HeldStream {
 public:
  HeldStream();
  ~HeldStream();
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  /// What is enqueued from here on waits.
  void close();
  void open() { __atomic_store_n(reinterpret_cast<uint64_t*>(word_), closed_, __ATOMIC_RELEASE); }
  bool is_open() const { return __atomic_load_n(reinterpret_cast<const uint64_t*>(word_), __ATOMIC_ACQUIRE) == closed_; }
  void* stream() { return stream_->native(); }

 private:
  std::unique_ptr<Queue> stream_;
  uint64_t word_ = 0, closed_ = 0;
};

/// A user's stream that writes a number behind what it waits for.
class Marks {
 public:
  Marks();
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;
  /// What the stream writes when it gets here.
  uint64_t mark();
  /// The last one that was written.
  uint64_t passed() const { return __atomic_load_n(reinterpret_cast<const uint64_t*>(word_), __ATOMIC_ACQUIRE); }
  void* stream() { return stream_->native(); }

 private:
  std::unique_ptr<Queue> stream_;
  uint64_t word_ = 0, last_ = 0;
};

}  // namespace thalweg::model
