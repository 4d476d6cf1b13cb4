// SPDX-License-Identifier: Apache-2.0
// Memory of this process as a Place: ordinary, the library's, pinned, and of an emulated device.
#include "memory/place.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "memory/registry.hpp"

namespace thalweg::impl::test {
namespace {

TEST(Places, OfHostMemory) {
  Registry registry(1);
  std::vector<std::byte> plain(100);
  const Place ordinary = local_place(reinterpret_cast<uint64_t>(plain.data()), plain.size(), &registry);
  EXPECT_EQ(ordinary.reach, uint32_t{kByCpu});
  EXPECT_FALSE(ordinary.on_device());
  EXPECT_EQ(ordinary.exports, ExportForm::none);
  tw_memory* memory = nullptr;
  ASSERT_EQ(registry.allocate(5000, 0, false, &memory), TW_OK) << last_error();
  const auto base = reinterpret_cast<uint64_t>(memory->address);
  const Place library = local_place(base + 99, 300, &registry);
  EXPECT_EQ(library.reach, kByCpu | kPinnable);
  EXPECT_EQ(library.base, base);
  EXPECT_EQ(library.exports, ExportForm::descriptor);
  EXPECT_EQ(local_place(base + 99, 300).reach, uint32_t{kByCpu}) << "nobody was asked whose it is";
  EXPECT_EQ(registry.release(memory), TW_OK);
}

TEST(Places, OfWhatDevicesKnow) {
  BufferInfo info;
  info.device = nullptr;
  for (const bool host_access : {false, true}) {
    info.kind = MemoryKind::managed;
    info.host_access = host_access;
    EXPECT_EQ(place_of(info).reached(kByCpuBehind), host_access);
    EXPECT_FALSE(place_of(info).reached(kByCpu));
    EXPECT_EQ(place_of(info).atomics, AtomicDomain::device);
  }
  info.kind = MemoryKind::pinned;
  EXPECT_EQ(place_of(info).reach, kByCpu | kByEngine | kByKernel);
  EXPECT_EQ(place_of(info).atomics, AtomicDomain::cpu);
  info.kind = MemoryKind::vmm;
  info.host_access = false;
  info.buffer_id = 7;
  info.base = 4096;
  info.length = 8192;
  info.exportable = ExportForm::descriptor;
  const Place place = place_of(info);
  EXPECT_EQ(place.reach, kByEngine | kByKernel);
  EXPECT_EQ(place.buffer_id, 7u);
  EXPECT_EQ(place.base + place.length, 12288u);
  EXPECT_EQ(place.exports, ExportForm::descriptor);
  EXPECT_EQ(place.node, kNodeUnknown);
}

/// The constants that hot paths compare kinds with say the same as the bits.
TEST(Places, KindsAreJudgedByTheirReach) {
  for (uint8_t i = 0; i < static_cast<uint8_t>(MemoryKind::count_); ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    EXPECT_EQ(by_cpu(kind), (reach_of(kind) & kByCpu) != 0) << int{i};
    EXPECT_EQ(by_devices(kind), (reach_of(kind) & kByKernel) != 0) << int{i};
  }
}

}  // namespace
}  // namespace thalweg::impl::test
