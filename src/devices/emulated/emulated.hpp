// SPDX-License-Identifier: Apache-2.0
// A device made of host memory and threads, so that device protocols, imports and triggers are tested without a GPU.
//
//   memory   has addresses in a reserved range without access: a stray load or store of the host faults, as it would on a
//            device. Queues and kernel twins reach it through a second mapping (translate()).
//   queues   are threads that run behind the host, in order, each task after an adjustable delay.
//   export   is a descriptor; an import gets an address of its own, another process's memory behind it.
// Thread-safe. A device is destroyed after its queues. Not for use across fork().
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "devices/device.hpp"
#include "devices/emulated/allocation.hpp"

namespace thalweg::impl::emulated {

struct Options {
  uint64_t task_delay_ns = 0;               // before every task of a queue
  uint64_t wait_limit_ns = 30'000'000'000;  // of wait_geq, after which the queue is poisoned
};

class EmulatedDevice final : public Device {
 public:
  /// Device number `index` of this machine; the same number has the same UUID in every process.
  static Status open(unsigned index, const Options& options, std::unique_ptr<EmulatedDevice>* out);
  ~EmulatedDevice() override;
  const char* name() const override { return "emulated"; }
  const uint8_t* uuid() const override { return uuid_; }
  Status allocate(size_t length, uint64_t* address) override;
  Status free(uint64_t address) override;
  Status identify(uint64_t address, BufferInfo* info) const override;
  Status export_memory(uint64_t address, ExportedMemory* out) override;
  Status import_memory(ExportedMemory&& from, uint64_t* address) override;
  Status release_import(uint64_t address) override;
  Status make_queue(std::unique_ptr<Queue>* out) override;
  std::byte* translate(uint64_t address, size_t length) override;

  /// The living memory around [address, address + length) of this device; null: not (all) of it.
  std::shared_ptr<Allocation> find(uint64_t address, uint64_t length) const;
  bool owns(uint64_t address) const { return address >= base_ && address < base_ + kRange; }

 private:
  static constexpr uint64_t kRange = uint64_t{64} << 30;  // of addresses, not of memory
  EmulatedDevice() = default;
  Status place(std::shared_ptr<Allocation> allocation, uint64_t* address);
  Status remove(uint64_t address, bool imported);
  unsigned index_ = 0;
  Options options_;
  uint8_t uuid_[16] = {};
  uint64_t base_ = 0;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Allocation>> allocations_;  // by device address
};

/// What a queue task touches: a host pointer, or a part of an allocation of any device of this process, kept alive.
struct Place {
  std::byte* pointer = nullptr;
  std::shared_ptr<Allocation> holder;
};
/// TW_ERR_OUT_OF_BOUNDS when the address is a device's but the range is not inside one living allocation. Ranges with
/// negative reach: [address + first, address + last) is checked.
Status locate(uint64_t address, int64_t first, int64_t last, Place* out);

}  // namespace thalweg::impl::emulated
