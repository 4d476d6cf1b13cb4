// SPDX-License-Identifier: Apache-2.0
// A device made of host memory and threads, so that device protocols, imports and triggers are tested without a GPU.
//
//   memory   has addresses in a reserved range without access: a stray load or store of the host faults, as it would on a
//            device. Queues and kernel twins reach it through a second mapping (translate()). Pinned and managed memory the
//            host may touch. A freed address is used again at once, under a new buffer id.
//   queues   are threads that run tasks asynchronously, in order, each after an adjustable delay; kernels need a slot.
//   export   ordinary memory as plain data (for other processes only), vmm piece by piece with descriptors, pinned, pool and
//            managed not at all. An import gets an address of its own; it blocks while a kernel runs on the device.
//   peers    as in Options::peers; device i has the same UUID in every process of this machine.
// A device is destroyed after its queues, events and imports.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "base/platform/fork.hpp"
#include "devices/device.hpp"
#include "devices/emulated/allocation.hpp"
#include "devices/emulated/queue.hpp"

namespace thalweg::impl::emulated {

class EmulatedDevice final : public Device {
 public:
  /// Device number `index` of this machine, 0 to 63.
  static Status open(unsigned index, const Options& options, std::unique_ptr<EmulatedDevice>* out);
  ~EmulatedDevice() override;
  const char* name() const override { return "emulated"; }
  unsigned ordinal() const override { return index_; }
  const Uuid& uuid() const override { return uuid_; }
  std::string model() const override { return "emulated"; }
  bool clock(uint64_t* now) override { return *now = time_of(index_), true; }
  bool has_clock() override { return true; }
  /// Of device `index`, whether it is there or not: ahead of the host's by hours, and a little faster.
  static uint64_t time_of(unsigned index);
  unsigned multiprocessors() const override { return engine_->options.kernel_slots; }
  Status allocate(MemoryKind kind, size_t length, uint64_t* address) override;
  Status allocate_at(const Uuid& other, size_t length, uint64_t* address) override;
  Status free(uint64_t address) override;
  Status register_host(void* address, size_t length) override;
  Status unregister_host(void* address) override;
  Status export_memory(uint64_t address, uint64_t length, uint64_t incarnation, std::vector<ExportedMemory>* out) override;
  Status import_memory(std::span<ExportedMemory> pieces, uint64_t* address) override;
  Status release_import(uint64_t address) override;
  PeerAccess peer(const Uuid& other) const override;
  Status make_queue(std::unique_ptr<Queue>* out, QueueUse use = QueueUse::any) override;
  Status wrap_queue(void* native, std::unique_ptr<Queue>* out) override;
  Status make_event(std::unique_ptr<Event>* out) override;
  Status wrap_event(void* native, std::unique_ptr<Event>* out) override;
  Status load_kernels() override;
  bool has_kernels() const override { return engine_->options.kernels; }

  /// Where twins of kernels reach device memory; null: not one allocation of this device.
  std::byte* translate(uint64_t address, size_t length) const;
  /// The living memory around [address, address + length) of this device; null: not (all) of it.
  std::shared_ptr<Allocation> find(uint64_t address, uint64_t length) const;
  bool describe(uint64_t address, BufferInfo* info);
  bool owns(uint64_t address) const { return address >= base_ && address < base_ + kRange; }
  bool overlaps(uint64_t address, uint64_t length) const;
  void wait_for_kernels() const;
  /// Options::stepped: the next task of the n-th queue (modulo their number). False: no queue could go on.
  bool step(unsigned n);
  /// For tests: queues begin no task until it is let go; how many have one. Not of a stepped device.
  void hold(bool held) { engine_->held = held; }
  unsigned held_back() const { return engine_->held_back; }
  /// For tests: failures from now on, and what was not given back.
  Faults& faults() { return engine_->faults; }
  size_t holdings() const;  // allocations, imports and pinned ranges of the host

 private:
  static constexpr uint64_t kRange = uint64_t{64} << 30;  // of addresses, not of memory
  using Map = std::map<uint64_t, std::shared_ptr<Allocation>>;
  enum class Origin : uint8_t { allocated, registered, imported };
  EmulatedDevice(unsigned index, const Options& options);
  Status place(std::shared_ptr<Allocation> allocation, uint64_t* address);
  Status remove(uint64_t address, Origin origin);
  Status adopt(std::span<ExportedMemory> pieces, std::vector<Piece>* out) const;
  std::shared_ptr<EmulatedStream> new_stream(bool order_only);
  std::shared_ptr<EmulatedStream> find_stream(void* native);

  const unsigned index_;
  const std::shared_ptr<Engine> engine_;
  Uuid uuid_{};
  BornHere born_;
  uint64_t base_ = 0;
  mutable std::mutex mutex_;
  Map allocations_;                                     // by device address, within the range
  Map host_;                                            // pinned and managed, by host address
  uint64_t used_ = 0;                                   // bytes of what was allocated
  std::vector<std::weak_ptr<EmulatedStream>> streams_;  // that can be wrapped
  std::shared_ptr<EmulatedStream> default_stream_;
};

}  // namespace thalweg::impl::emulated
