// SPDX-License-Identifier: Apache-2.0
// What a queue's work touches: looked up and checked when it is enqueued, held until it has run.
#pragma once
#include <memory>

#include "devices/emulated/allocation.hpp"
#include "devices/kernel.hpp"

namespace thalweg::impl::emulated {

class EmulatedDevice;

struct Place {
  std::byte* pointer = nullptr;
  std::shared_ptr<Allocation> holder;  // null: pageable host memory
  const EmulatedDevice* device = nullptr;
};

/// Which engine of `by` asks: copies reach every device, kernels and words only peers; words not managed memory.
enum class Use : uint8_t { copy, kernel, word };

/// [address + first, address + last), by `by` (null: the host). TW_ERR_OUT_OF_BOUNDS when it is a device's but not inside one
/// living allocation; TW_ERR_UNREACHABLE, TW_ERR_UNSUPPORTED as in queue.hpp.
Status locate(const EmulatedDevice* by, Use use, uint64_t address, int64_t first, int64_t last, Place* out);

/// Both sides of a rectangular copy; width 0 when there is nothing to copy.
struct PreparedCopy {
  Place to, from;
  Copy copy;
};
Status prepare(const EmulatedDevice* by, Use use, const Copy& copy, PreparedCopy* out);

}  // namespace thalweg::impl::emulated
