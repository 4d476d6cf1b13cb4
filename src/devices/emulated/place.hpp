// SPDX-License-Identifier: Apache-2.0
// What a queue's work touches: looked up and checked when it is enqueued, held until it has run.
#pragma once
#include <memory>

#include "devices/emulated/allocation.hpp"
#include "devices/queue.hpp"

namespace thalweg::impl::emulated {

class EmulatedDevice;

struct Place {
  std::byte* pointer = nullptr;
  std::shared_ptr<Allocation> holder;  // null: pageable host memory
  const EmulatedDevice* device = nullptr;
};

/// [address + first, address + last), by `by` (null: the host). TW_ERR_OUT_OF_BOUNDS when it is a device's but not inside one
/// living allocation; TW_ERR_UNREACHABLE, TW_ERR_UNSUPPORTED as of Queue::admit(); TW_ERR_INVALID where admit() was needed.
Status locate(const EmulatedDevice* by, Use use, uint64_t address, int64_t first, int64_t last, Place* out);
/// Queue::admit() for queues of `by`.
Status admit(const EmulatedDevice* by, Use use, uint64_t address, uint64_t length);

/// Both sides of a rectangular copy; width 0 when there is nothing to copy.
struct PreparedCopy {
  Place to, from;
  Copy copy;
};
Status prepare(const EmulatedDevice* by, Use use, const Copy& copy, PreparedCopy* out);

}  // namespace thalweg::impl::emulated
