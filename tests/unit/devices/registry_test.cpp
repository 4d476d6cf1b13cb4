// SPDX-License-Identifier: Apache-2.0
// Which device owns a pointer. Each test runs in a process of its own (a death test's child): back ends stay until exit.
#include "devices/registry.hpp"

#include <cstdlib>

#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl {
namespace {

void require(bool condition, int line) {
  if (condition) return;
  std::fprintf(stderr, "line %d failed\n", line);
  std::_Exit(1);
}

[[noreturn]] void without_devices() {
  BufferInfo info;
  int here = 0;
  unsetenv("THALWEG_EMULATED");
  open_backends();
  std::string why;
  require(find_device(reinterpret_cast<uintptr_t>(&here), &info) == TW_ERR_NO_MATCH, __LINE__);
  require(find_device(Uuid{}) == nullptr, __LINE__);
  for (const Device* device : list_devices(&why)) require(std::string(device->name()) != "emulated", __LINE__);
  std::_Exit(0);
}

[[noreturn]] void with_devices_of_the_environment() {
  setenv("THALWEG_EMULATED", "devices=2,peers=10/11", 1);
  open_backends();
  open_backends();  // once is enough
  require(backend_count.load() >= 1, __LINE__);
  std::vector<Device*> all;
  for (Device* device : list_devices(nullptr)) {
    if (std::string(device->name()) == "emulated") all.push_back(device);
  }
  require(all.size() == 2, __LINE__);
  require(!all[0]->peer(all[1]->uuid()).access && all[1]->peer(all[0]->uuid()).access, __LINE__);
  require(find_device(all[1]->uuid()) == all[1], __LINE__);
  uint64_t address = 0;
  BufferInfo info;
  require(all[1]->allocate(MemoryKind::pool, 100, &address) == TW_OK, __LINE__);
  require(find_device(address + 99, &info) == TW_OK, __LINE__);
  require(info.device == all[1] && info.kind == MemoryKind::pool && info.base == address && info.length == 100, __LINE__);
  require(find_device(address + 100, &info) == TW_ERR_NO_MATCH, __LINE__);
  std::_Exit(0);
}

TEST(DeviceRegistryDeathTest, NothingIsFoundWhereThereIsNothing) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(without_devices(), ::testing::ExitedWithCode(0), "");
}

TEST(DeviceRegistryDeathTest, TheEnvironmentOpensEmulatedDevices) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(with_devices_of_the_environment(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace thalweg::impl
