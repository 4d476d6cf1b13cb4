// SPDX-License-Identifier: Apache-2.0
// One piece of emulated device memory: a memfd, mapped where the device may reach it. Its device address is elsewhere, in a
// range that nobody may touch. Queued work holds a reference, so that a free does not pull memory from under a queue.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl::emulated {

struct Allocation {
  UniqueFd fd;
  std::byte* view = nullptr;  // the device's own mapping
  size_t mapped = 0;          // bytes, whole pages
  uint64_t address = 0;       // device address
  uint64_t length = 0;        // asked for
  uint64_t buffer_id = 0;
  bool imported = false;

  Allocation() = default;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();
  /// New zeroed memory: sealed and preallocated.
  Status create(uint64_t bytes);
  /// Another process's memory, after its size and seals were checked.
  Status adopt(UniqueFd from, uint64_t bytes);

 private:
  Status map();
};

}  // namespace thalweg::impl::emulated
