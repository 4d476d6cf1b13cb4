// SPDX-License-Identifier: Apache-2.0
// Shared memory made of sealed, preallocated memfds: rings, doorbells and what tw_allocate gives out.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/platform/fork.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

/// An owned mapping of a memfd. Created: sealed against shrinking and growing, preallocated (a full /dev/shm or cgroup is
/// TW_ERR_NO_SHARED_MEMORY here, never SIGBUS later), not inherited by forked children when `private_to_process`.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) noexcept;
  ~Segment();
  static Status create(const char* name, size_t length, bool private_to_process, bool huge, Segment* out);
  /// Maps a descriptor from a peer after checking its size and seals. Takes the descriptor.
  static Status open(UniqueFd fd, size_t expected_length, Segment* out);
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  bool huge() const { return huge_; }
  /// The mapping stays; the descriptor is not needed once it has been passed on.
  void close_fd() { fd_.reset(); }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool huge_ = false;
  UniqueFd fd_;
  BornHere born_;  // a forked child must not unmap: what it finds at that address is its own
};

}  // namespace thalweg::impl
