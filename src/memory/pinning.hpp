// SPDX-License-Identifier: Apache-2.0
// Host memory that several users want pinned, each for a time of its own: counted, and unpinned with the last.
#pragma once
#include <cstddef>
#include <cstdint>

#include "devices/device.hpp"

namespace thalweg::impl {

/// One user's share. Thread-safe; the memory must stay mapped while it lives.
class Pinning {
 public:
  Pinning() = default;
  Pinning(Pinning&& other) noexcept;
  Pinning& operator=(Pinning&& other) noexcept;
  ~Pinning() { reset(); }
  /// [address, address + length) is pinned for devices of this sort when it returns, and stays so while *out lives; what somebody
  /// else has pinned stays so for as long as he wants. TW_ERR_BUSY: a part of it is pinned; TW_ERR_INVALID: not host memory.
  static Status make(Device& device, uint64_t address, size_t length, Pinning* out);

 private:
  void reset();
  uint64_t range_ = 0;  // start of the counted range; 0: none
};

}  // namespace thalweg::impl
