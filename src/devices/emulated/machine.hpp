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
};

class Machine {
 public:
  static constexpr bool whole_runs = true;
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

  u64 load(const u64* word) const {
    return on(word, [](u64* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); });
  }
  u64 acquire(const u64* word) const {
    return on(word, [](u64* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); });
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
    on(word, [&](u64* at) { return __atomic_fetch_add(at, value, __ATOMIC_RELEASE); });
  }
  void fence() const { memory_->stores.fence(); }
  u32 arrive(u32* counter) const {
    fence();
    return on(counter, [](u32* at) { return __atomic_fetch_add(at, 1u, __ATOMIC_ACQ_REL); });
  }

  template <class T>
  T fetch_add(T* word, T operand) const {
    return on(word, [=](T* at) { return __atomic_fetch_add(at, operand, __ATOMIC_RELAXED); });
  }
  template <class T>
  T fetch_and(T* word, T operand) const {
    return on(word, [=](T* at) { return __atomic_fetch_and(at, operand, __ATOMIC_RELAXED); });
  }
  template <class T>
  T fetch_or(T* word, T operand) const {
    return on(word, [=](T* at) { return __atomic_fetch_or(at, operand, __ATOMIC_RELAXED); });
  }
  template <class T>
  T fetch_xor(T* word, T operand) const {
    return on(word, [=](T* at) { return __atomic_fetch_xor(at, operand, __ATOMIC_RELAXED); });
  }
  template <class T>
  T swap(T* word, T operand) const {
    return on(word, [=](T* at) { return __atomic_exchange_n(at, operand, __ATOMIC_RELAXED); });
  }
  template <class T>
  T compare_swap(T* word, T expected, T desired) const {
    return on(word, [=](T* at) mutable {
      __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
      return expected;
    });
  }
  u64 nanoseconds() const { return device::DirectMachine().nanoseconds(); }

 private:
  /// work(where the word is); 0 where there is none.
  template <class T, class Work>
  T on(const T* word, Work work) const {
    std::byte* const at = memory_->find(word, sizeof(T));
    return at == nullptr ? T{0} : work(reinterpret_cast<T*>(at));
  }
  BlockMemory* memory_;
};

}  // namespace thalweg::impl::emulated
