// SPDX-License-Identifier: Apache-2.0
// How the handles of exported device memory travel to a peer: in parts of a few handles, with their descriptors. Everything in it comes from a peer and goes to a driver, so it is checked here first.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "devices/device.hpp"
#include "security/handshake.hpp"

namespace thalweg::impl {

struct DeviceAnswer {  // before the handles
  uint64_t segment;
  int64_t status;  // not TW_OK: there are no handles
  uint32_t total;  // handles of the whole answer
  uint32_t first;  // handles of earlier parts
};
constexpr size_t kHandlesPerPart = SetupChannel::kMaxFds;

/// The part of an answer that starts with handle `first`. The descriptors stay the pieces'.
struct DevicePart {
  std::vector<std::byte> bytes;
  std::vector<int> fds;
};
DevicePart write_device_part(uint64_t segment, std::span<const ExportedMemory> pieces, size_t first);

/// Puts an answer together. TW_IN_PROGRESS: more parts must follow; TW_OK: `pieces` is complete, or `status` is an error and
/// there are none; TW_ERR_PROTOCOL: the peer breaks the rules.
struct DeviceAssembly {
  uint64_t segment = 0;
  Status status = TW_OK;
  std::vector<ExportedMemory> pieces;  // parts so far; empty between answers

  /// `incarnation`: of the peer's process, which must be the exporter. `without`: the descriptors of this part were lost for want
  /// of free ones here: the answer becomes TW_ERR_NO_DESCRIPTORS.
  Status add(std::span<const std::byte> bytes, std::vector<UniqueFd>&& fds, uint64_t incarnation, bool without = false);

 private:
  Status take(const DeviceAnswer& part, std::span<const std::byte> handles, std::vector<UniqueFd>&& fds, uint64_t incarnation);
  uint32_t total_ = 0;
  bool without_ = false;  // a part of this answer came without its descriptors
};

}  // namespace thalweg::impl
