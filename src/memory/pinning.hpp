// SPDX-License-Identifier: Apache-2.0
// Host memory that is pinned for several users at a time: reference counted, unpinned with the last.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/platform/fork.hpp"
#include "devices/device.hpp"
#include "memory/segment.hpp"

namespace thalweg::impl {

/// One user's share. Thread-safe; the memory must stay mapped while it lives.
class Pinning {
 public:
  Pinning() = default;
  Pinning(Pinning&& other) noexcept;
  Pinning& operator=(Pinning&& other) noexcept;
  ~Pinning() { reset(); }
  /// [address, address + length) is pinned for devices of this sort when it returns, and stays so while *out lives; what
  /// another owner has pinned stays so for as long as its owner wants. TW_ERR_BUSY: a part of it is pinned; TW_ERR_INVALID:
  /// not host memory.
  static Status make(Device& device, uint64_t address, size_t length, Pinning* out);

 private:
  void reset();
  uint64_t range_ = 0;  // start of the counted range; 0: none
};

/// A share that a thread of its own makes: that takes a millisecond for some MiB, and may wait for work of devices, and
/// a user of the share may have to go on for that work to end. Thread-safe. It is unpinned with its last holder,
/// and must be before the memory goes.
class PinningAhead {
 public:
  static std::shared_ptr<PinningAhead> start(Device& device, uint64_t address, size_t length);
  ~PinningAhead();  // waits until it is no more in progress
  /// TW_IN_PROGRESS: call again; TW_OK; or why not, with its text.
  Status status() const;
  /// Returns when it is no more in progress.
  void settle() const { done_.wait(false, std::memory_order_acquire); }

 private:
  void end(Status status, std::string why);
  Pinning share_;
  Status status_ = TW_IN_PROGRESS;
  std::string why_;
  std::atomic<bool> done_{false};  // the others do not change behind it
  BornHere born_;
  std::thread thread_;
};

/// Unpins the memory for either of these and then unmaps it, off the callers' path
/// (devices/deferred_release.hpp).
void release_pinned(Segment&& memory, std::shared_ptr<void> share, std::shared_ptr<PinningAhead> ahead);

}  // namespace thalweg::impl
