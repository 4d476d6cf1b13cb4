// SPDX-License-Identifier: Apache-2.0
// The ranges of device memory that are exported to peers, and their names. A name stands for pieces (one; several of mapped
// memory) that lie one behind the other, each identified by its buffer id, which a freed and re-used address does not keep.
//
// The registry guards it: const functions under a Reading, many at a time; the others under Writing.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "devices/device.hpp"

namespace thalweg::impl {

struct DeviceName {
  struct Piece {
    uint64_t base, length, buffer_id;
  };
  uint64_t segment = 0;
  Device* device = nullptr;
  std::vector<Piece> pieces;
  uint32_t holders = 0;                       // tw_memory
  mutable std::atomic<uint64_t> last_use{0};  // in the table's counting
  uint64_t base() const { return pieces.front().base; }
  uint64_t end() const { return pieces.back().base + pieces.back().length; }
};

class DeviceNames {
 public:
  static constexpr size_t kMaxNames = 1024;  // beside those with holders
  static constexpr size_t kMaxPieces = 256;  // of one name

  /// The pieces around [address, address + length), as the devices report them; `info` describes the one at address.
  static Status describe(const BufferInfo& info, uint64_t address, uint64_t length, DeviceName* out);
  /// Is the memory of `name` still what it was?
  static bool alive(const DeviceName& name);

  /// The name of a range that `info` describes at `address`; null: it has none. Hot.
  const DeviceName* find(const BufferInfo& info, uint64_t address, uint64_t length) const;
  DeviceName* find(uint64_t segment) const;

  void add(std::unique_ptr<DeviceName> name);
  void remove(const DeviceName& name);
  /// What must go because of a new name: names whose memory was freed, as the new one's pieces show, and the least recently
  /// used one over the limit. Removed from the table; their segments.
  std::vector<uint64_t> make_room(const DeviceName& newest);
  size_t size() const { return by_segment_.size(); }

 private:
  bool covers(const DeviceName& name, const BufferInfo& info, uint64_t address, uint64_t length) const;
  void touch(const DeviceName& name) const;

  std::unordered_map<uint64_t, std::unique_ptr<DeviceName>> by_segment_;
  std::unordered_multimap<uint64_t, DeviceName*> by_buffer_;  // every piece of every name
  mutable std::atomic<const DeviceName*> last_{nullptr};      // found
  mutable std::atomic<uint64_t> uses_{0};                     // a lost count does no harm
};

}  // namespace thalweg::impl
