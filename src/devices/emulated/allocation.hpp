// SPDX-License-Identifier: Apache-2.0
// A range of emulated device memory or of pinned or managed host memory. Queued work holds a reference, so that a free does
// not pull memory from under a queue.
//
//   device, pool, vmm   memfds (pieces), mapped contiguously where the device reaches them (view). The device
//                       address is elsewhere, in an inaccessible range.
//   pinned, managed     ordinary host memory: address and view are the same.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "devices/memory_kind.hpp"

namespace thalweg::impl::emulated {

struct Piece {
  UniqueFd fd;
  uint64_t offset = 0, length = 0;  // bytes within the allocation
  uint64_t buffer_id = 0;
};

struct Allocation {
  MemoryKind kind = MemoryKind::emulated;
  std::byte* view = nullptr;
  size_t mapped = 0;     // bytes, whole pages; of registered host memory: its length
  uint64_t address = 0;  // device address
  uint64_t length = 0;   // asked for
  std::vector<Piece> pieces;
  bool imported = false;
  bool registered = false;            // the user's own host pages
  std::atomic<uint64_t> admitted{0};  // bit i: kernels and words of device i, another one, may use it

  Allocation() = default;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();
  /// New zeroed memory: sealed and preallocated, or anonymous where the host may touch it.
  Status create(MemoryKind kind, uint64_t bytes, uint64_t piece_bytes);
  /// Another process's pieces, after their sizes and seals were checked.
  Status adopt(std::vector<Piece> pieces);
  void adopt_host(void* address, size_t bytes);
  bool host_access() const { return kind == MemoryKind::pinned || kind == MemoryKind::managed; }
  const Piece& piece_at(uint64_t offset) const;

 private:
  Status create_piece(uint64_t bytes);
  Status map();
};

/// Never the same twice in one process; another process has the same ones, as with a GPU.
uint64_t next_buffer_id();

}  // namespace thalweg::impl::emulated
