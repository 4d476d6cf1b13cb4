// SPDX-License-Identifier: Apache-2.0
// The users' memory: every operation gets a piece of its own, between guards. What an operation has given back is
// overwritten and poisoned, and stays so: a later access is found by the address sanitizer at once, or by its bytes at the
// end.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "memory/layout.hpp"
#include "model/devices.hpp"
#include "model/host.hpp"
#include "model/order.hpp"

namespace thalweg::model {

/// Where the bytes of an operation lie around an address.
struct Shape {
  struct Piece {
    uint64_t offset, length;
  };
  std::vector<Piece> pieces;  // in packed order
  uint64_t bytes = 0, span = 0;
  const Layout* layout = nullptr;  // null: contiguous; owned
  Shape() = default;
  Shape(uint64_t length, bool with_gaps);
  ~Shape() { release(layout); }
  Shape(Shape&& other) noexcept { *this = std::move(other); }
  Shape& operator=(Shape&& other) noexcept {
    std::swap(pieces, other.pieces);
    std::swap(bytes, other.bytes);
    std::swap(span, other.span);
    std::swap(layout, other.layout);
    return *this;
  }
};

void fill_pattern(std::byte* to, uint32_t id, uint64_t position, uint64_t length);
bool shows_pattern(const std::byte* bytes, uint32_t id, uint64_t position, uint64_t length);

class Buffer {
 public:
  Shape shape;
  std::byte* data() const { return base_; }        // for the host
  std::byte* address() const { return address_; }  // for operations
  BufferInfo info;                                 // of a device's memory: device is not null
  uint64_t length() const { return shape.bytes; }
  void fill(uint32_t id);
  /// The first `length` packed bytes are those of `id` from `position` on.
  bool shows(uint32_t id, uint64_t position, uint64_t length) const;
  void pack(std::vector<std::byte>& out) const;
  /// Nothing but the first `length` packed bytes was touched since prepare().
  bool untouched_but(uint64_t length) const;

 private:
  friend class Buffers;
  static constexpr uint64_t kGuard = 32;
  static constexpr std::byte kFresh{0xa5}, kRetired{0xdb};
  std::byte *base_ = nullptr, *address_ = nullptr;
  bool retired_ = false;
};

class Buffers {
 public:
  ~Buffers();
  /// library: of this host's library-allocated memory; else of this kind.
  Buffer& take(Host* library, Shape shape, MemoryKind kind = MemoryKind::host);
  /// It is the user's again.
  void retire(Buffer& buffer);
  /// The first one that was touched after it was retired, or around it; null: none.
  const Buffer* touched() const;
  void rewind();

 private:
  static constexpr size_t kChunk = 4u << 20;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_ = 0, used_ = 0;
  std::deque<Buffer> all_;
  DevicePool pool_;
};

}  // namespace thalweg::model
