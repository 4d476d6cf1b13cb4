// SPDX-License-Identifier: Apache-2.0
// How device code (include/thalweg/device) reaches memory on an emulated device: through the device's view of each address, with
// stores that become visible in the worst order, one buffer of them for each block. What device::DirectMachine promises holds.
#pragma once
#include "devices/emulated/place.hpp"
#include "devices/emulated/store_buffer.hpp"
#include "thalweg/device/order.hpp"

namespace thalweg::impl::emulated {

/// One block's. The first illegal address is kept in `failed`; nothing is loaded or stored there.
struct BlockMemory {
  BlockMemory(const EmulatedDevice* by, bool skip_fences) : device(by), stores(skip_fences) {}
  std::byte* find(const void* address, size_t length);
  const EmulatedDevice* const device;
  StoreBuffer stores;
  std::vector<std::shared_ptr<Allocation>> held;  // what `stores` refers to
  Status failed = TW_OK;
  uint64_t nanoseconds() const;  // by the device's clock
};

class Machine {
 public:
  static constexpr bool whole_runs = true;
  static constexpr uint32_t lanes = 1;
  using u64 = device::u64;
  using u32 = device::u32;
  explicit Machine(BlockMemory& memory) : memory_(&memory) {}

  template <class T>
  T read(const T* from) const {
    T value{};
    if (const std::byte* at = memory_->find(from, sizeof(T)); at != nullptr)
      memory_->stores.load(at, reinterpret_cast<std::byte*>(&value), sizeof(T));
    return value;
  }
  template <class T>
  void write(T* to, T value) const {
    if (std::byte* at = memory_->find(to, sizeof(T)); at != nullptr)
      memory_->stores.store(at, reinterpret_cast<const std::byte*>(&value), sizeof(T));
  }
  void copy(u64 to, u64 from, u64 bytes) const;
  template <class T>
  const T* view(const T* from, u64 count, T* held) const {
    if (const std::byte* at = memory_->find(from, count * sizeof(T)); at != nullptr)
      memory_->stores.load(at, reinterpret_cast<std::byte*>(held), count * sizeof(T));
    return held;
  }
  template <class T>
  T* room(T*, T* held) const {
    return held;
  }
  template <class T>
  void put(T* to, const T* from, u64 count) const {
    if (std::byte* at = memory_->find(to, count * sizeof(T)); at != nullptr)
      memory_->stores.store(at, reinterpret_cast<const std::byte*>(from), count * sizeof(T));
    bound();
  }

  u64 load(const u64* word) const {
    return on(word, [](u64* at) { return direct().load(at); });
  }
  u64 acquire(const u64* word) const {
    return on(word, [](u64* at) { return direct().acquire(at); });
  }
  void store(u64* word, u64 value) const {
    on(word, [&](u64* at) { return memory_->stores.store_word(reinterpret_cast<uint64_t*>(at), value, false), u64{0}; });
  }
  void release(u64* word, u64 value) const {
    fence();
    store(word, value);
  }
  void add_release(u64* word, u64 value) const {
    fence();
    on(word, [=](u64* at) { return direct().add_release(at, value), u64{0}; });
  }
  void fence() const { memory_->stores.fence(); }
  void fence_near() const { fence(); }
  u32 arrive(u32* counter) const {
    fence();
    return on(counter, [](u32* at) { return direct().arrive(at); });
  }
  bool last_of(u32* counter, u32 count) const {
    return on(counter, [=](u32* at) -> u32 {
             if (__atomic_fetch_add(at, 1u, __ATOMIC_ACQ_REL) != count - 1) return 0;
             __atomic_store_n(at, 0u, __ATOMIC_RELEASE);
             return 1;
           }) != 0;
  }

  template <class T>
  T fetch_add(T* word, T operand) const {
    return on(word, [=](T* at) { return direct().fetch_add(at, operand); });
  }
  template <class T>
  T fetch_and(T* word, T operand) const {
    return on(word, [=](T* at) { return direct().fetch_and(at, operand); });
  }
  template <class T>
  T fetch_or(T* word, T operand) const {
    return on(word, [=](T* at) { return direct().fetch_or(at, operand); });
  }
  template <class T>
  T fetch_xor(T* word, T operand) const {
    return on(word, [=](T* at) { return direct().fetch_xor(at, operand); });
  }
  template <class T>
  T swap(T* word, T operand) const {
    return on(word, [=](T* at) { return direct().swap(at, operand); });
  }
  template <class T>
  T compare_swap(T* word, T expected, T desired) const {
    return on(word, [=](T* at) { return direct().compare_swap(at, expected, desired); });
  }
  device::Word16 load16(const device::Word16* from) const {
    const std::byte* const at = memory_->find(from, sizeof *from);
    return at == nullptr ? device::Word16{} : direct().load16(reinterpret_cast<const device::Word16*>(at));
  }
  device::Word16 acquire16(const device::Word16* from) const { return load16(from); }
  /// What was stored last shows first: the lower half.
  void store16(device::Word16* to, device::Word16 value) const {
    auto* const words = reinterpret_cast<u64*>(to);
    store(words + 1, value.high);
    store(words, value.low);
    bound();
  }
  u64 nanoseconds() const { return memory_->nanoseconds(); }

 private:
  static constexpr size_t kMostPending = 64;
  /// Of what is stored in many pieces: to look through more of them takes too long.
  void bound() const {
    if (memory_->stores.count() > kMostPending) memory_->stores.settle();
  }
  /// For what is not delayed: loads and atomic operations.
  static device::DirectMachine direct() { return {}; }
  /// work(where the word is); 0 where there is none.
  template <class T, class Work>
  T on(const T* word, Work work) const {
    std::byte* const at = memory_->find(word, sizeof(T));
    return at == nullptr ? T{0} : work(reinterpret_cast<T*>(at));
  }
  BlockMemory* memory_;
};

}  // namespace thalweg::impl::emulated
