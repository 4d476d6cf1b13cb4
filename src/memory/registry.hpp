// SPDX-License-Identifier: Apache-2.0
// Registered regions and exported keys of this process. One per context; thread-safe; looked up by rkey for every frame
// that addresses memory here, and by address to learn whether a buffer is library-allocated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "memory/remote.hpp"
#include "memory/segment.hpp"

struct tw_memory;

namespace thalweg::impl {

/// Checked access for a frame from a peer: the range [offset, offset+length) of rkey with `access`.
struct Target {
  std::byte* address = nullptr;
  MemoryKind kind = MemoryKind::host;
};

class Registry {
 public:
  explicit Registry(uint64_t incarnation);
  ~Registry();
  Status register_memory(void* address, size_t length, uint32_t access, tw_memory** out);
  Status allocate(size_t length, uint32_t access, bool huge, tw_memory** out);
  Status release(tw_memory* memory);           // revokes its keys first
  Status release_address(void* address);       // tw_free
  Status export_range(tw_memory* memory, size_t offset, size_t length, uint32_t access, KeyBody* out);
  /// TW_ERR_STALE (unknown or revoked), TW_ERR_OUT_OF_BOUNDS, TW_ERR_PERMISSION, or TW_OK. Hot: one hash look-up.
  Status resolve(uint64_t rkey, uint64_t offset, uint64_t length, uint32_t access, Target* out) const;
  /// The segment that holds [address, address+length), or false. Hot: an empty registry answers at once.
  bool find_segment(const void* address, size_t length, uint64_t* segment, uint64_t* offset) const;
  /// A new descriptor for a live segment, to be passed to a peer (service thread).
  Status segment_fd(uint64_t segment, int* fd, size_t* length) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Status parse_key(const void* bytes, size_t length, KeyBody* out);  // fuzzed
Status write_key(const KeyBody& key, void* bytes, size_t* length);

}  // namespace thalweg::impl
