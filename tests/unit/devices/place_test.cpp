// SPDX-License-Identifier: Apache-2.0
// Names of places, and ranges of device memory.
#include "devices/place.hpp"

#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl {
namespace {

using emulated::open_device;

TEST(Place, EveryNameIsReadAndToldAgain) {
  const auto zero = open_device(0), one = open_device(1);
  const struct {
    const char* name;
    MemoryKind kind;
  } cases[] = {{"emulated", MemoryKind::emulated},
               {"emulated-managed", MemoryKind::managed},
               {"emulated-vmm", MemoryKind::vmm},
               {"emulated-pool", MemoryKind::pool}};
  for (const auto& one_case : cases) {
    for (const char* number : {"", ":0", ":1"}) {
      const std::string text = std::string(one_case.name) + number;
      MemoryPlace place;
      ASSERT_EQ(parse_place(text.c_str(), &place), TW_OK) << text << ": " << last_error();
      EXPECT_EQ(place.kind, one_case.kind);
      ASSERT_EQ(place.device, std::string(number) == ":1" ? one.get() : zero.get());
      uint64_t address = 0;
      ASSERT_EQ(place.device->allocate(place.kind, 100, &address), TW_OK);
      BufferInfo info;
      ASSERT_EQ(find_device(address + 99, &info), TW_OK);
      EXPECT_EQ(place_name(info), std::string(number).empty() ? text + ":0" : text);
      EXPECT_EQ(place.device->free(address), TW_OK);
    }
  }
}

TEST(Place, HostAndPinned) {
  MemoryPlace place;
  EXPECT_EQ(parse_place(nullptr, &place), TW_OK);
  EXPECT_EQ(place.device, nullptr);
  EXPECT_EQ(parse_place("host", &place), TW_OK);
  EXPECT_EQ(place.kind, MemoryKind::host);
  EXPECT_EQ(place_name(BufferInfo()), "host");
  const auto device = open_device(0);
  ASSERT_EQ(parse_place("pinned", &place), TW_OK) << last_error();
  EXPECT_EQ(place.kind, MemoryKind::pinned);
  ASSERT_NE(place.device, nullptr);
}

TEST(Place, WhatIsNoPlaceIsNamedWithTheRemedy) {
  const auto device = open_device(0);
  MemoryPlace place;
  for (const char* text : {"", "hbm", "host:0", "pinned:0", "cuda:", "cuda:x", "emulated:1x", "emulated:-1", "emulated "}) {
    EXPECT_EQ(parse_place(text, &place), TW_ERR_INVALID) << text;
    EXPECT_NE(std::string(last_error()).find("cuda[:N]"), std::string::npos) << last_error();
  }
  EXPECT_EQ(parse_place("emulated:7", &place), TW_ERR_INVALID);
  EXPECT_NE(std::string(last_error()).find("sees 1"), std::string::npos) << last_error();
}

TEST(Place, AMachineWithoutDevicesSaysWhyAndWhatToDo) {
  std::string why;
  for (const Device* device : list_devices(&why)) {
    if (std::string(device->name()) == "cuda") GTEST_SKIP() << "this machine has a GPU";
  }
  MemoryPlace place;
  EXPECT_EQ(parse_place("cuda:0", &place), TW_ERR_DEVICE);
  EXPECT_NE(std::string(last_error()).find("\"cuda:0\" needs a device"), std::string::npos) << last_error();
  EXPECT_EQ(parse_place("emulated", &place), TW_ERR_DEVICE);
  EXPECT_NE(std::string(last_error()).find("THALWEG_EMULATED=devices=1"), std::string::npos) << last_error();
  EXPECT_EQ(parse_place("pinned", &place), TW_ERR_DEVICE);
}

TEST(FindRange, AnAllocationHoldsItOrItIsRefused) {
  emulated::Options options;
  options.vmm_piece = 4096;
  const auto device = open_device(0, options);
  const uint64_t plain = emulated::allocate(*device, 100), row = emulated::allocate(*device, 9000, MemoryKind::vmm);
  BufferInfo info;
  EXPECT_EQ(find_device(plain + 1, 99, &info), TW_OK);
  EXPECT_EQ(info.base, plain);
  EXPECT_EQ(find_device(plain + 1, 100, &info), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(find_device(row + 10, 8990, &info), TW_OK);  // over three pieces
  EXPECT_EQ(info.base, row);
  EXPECT_EQ(info.length, 4096u);
  EXPECT_EQ(find_device(row + 10, 8991, &info), TW_ERR_OUT_OF_BOUNDS);
  std::vector<std::byte> pages(100);
  ASSERT_EQ(device->register_host(pages.data() + 10, 50), TW_OK);
  const auto host = reinterpret_cast<uintptr_t>(pages.data());
  EXPECT_EQ(find_device(host + 10, 50, &info), TW_OK);
  EXPECT_EQ(find_device(host + 10, 51, &info), TW_ERR_NO_MATCH);  // pinned in part: ordinary memory
  EXPECT_EQ(device->unregister_host(pages.data() + 10), TW_OK);
}

}  // namespace
}  // namespace thalweg::impl
