// SPDX-License-Identifier: Apache-2.0
// Memory of every kind through the C interface: allocated, described, copied, freed. On emulated devices.
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memory/registry.hpp"

namespace {

// Before the first context looks for devices.
[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2,vmm_piece=65536", 1);
constexpr char kKey[] = "a secret of more than sixteen bytes";
constexpr size_t kGuard = 64;
using Bytes = std::vector<std::byte>;

thalweg::ContextOptions test_options() {
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  return options;
}

Bytes random_bytes(size_t length) {
  std::mt19937_64 rng(std::random_device{}());
  Bytes bytes(length);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

class Places : public testing::Test {
 protected:
  std::byte* at(const thalweg::Memory& memory) { return static_cast<std::byte*>(memory.data()); }
  thalweg::Context context{test_options()};
};

constexpr const char* kPlaces[] = {"host",         "pinned",        "emulated:0",         "emulated:1",
                                   "emulated-vmm", "emulated-pool", "emulated-managed:1", "emulated-vmm:1"};

TEST_F(Places, EachIsDescribed) {
  const struct {
    const char* place;
    uint32_t kind, host_access, exportable;
    int device;
  } cases[] = {{"emulated:1", TW_MEMORY_EMULATED, 0, TW_SHARE_HANDLE, 1},
               {"emulated-vmm:0", TW_MEMORY_VMM, 0, TW_SHARE_DESCRIPTOR, 0},
               {"emulated-pool:0", TW_MEMORY_POOL, 0, TW_SHARE_NONE, 0},
               {"emulated-managed:1", TW_MEMORY_MANAGED, 1, TW_SHARE_NONE, 1},
               {"pinned", TW_MEMORY_PINNED, 1, TW_SHARE_NONE, 0}};
  for (const auto& expected : cases) {
    const thalweg::Memory memory = context.allocate(5000, expected.place);
    const thalweg::MemoryInfo info = thalweg::memory_query(at(memory) + 4999);
    EXPECT_STREQ(info.place, expected.place);
    EXPECT_EQ(info.kind, expected.kind) << tw_memory_kind_name(info.kind);
    EXPECT_EQ(info.host_access, expected.host_access);
    EXPECT_EQ(info.exportable, expected.exportable);
    EXPECT_EQ(info.device, expected.device);
    EXPECT_EQ(info.base, memory.data());
    EXPECT_GE(info.length, 5000u);
    EXPECT_NE(info.buffer_id, 0u);
    EXPECT_NE(std::string(reinterpret_cast<const char*>(info.device_uuid), 16), std::string(16, 0));
  }
}

TEST_F(Places, InfoNamesDevicesTheirMemoryAndWhomTheyReach) {
  const std::string info = context.info();
  for (const char* part : {"\"emulated:1\"", "\"emulated-vmm:1\", \"emulated-pool:1\"", "\"reaches\": [\"emulated:0 by ",
                           "\"cuda_kernels\": ", "\"name\": \"cuda"}) {
    EXPECT_NE(info.find(part), std::string::npos) << part << " in " << info;
  }
}

TEST_F(Places, HostMemoryHasNoDevice) {
  const thalweg::Memory memory = context.allocate(100);
  for (const void* address : {static_cast<const void*>(this), static_cast<const void*>(memory.data())}) {
    const thalweg::MemoryInfo info = thalweg::memory_query(address);
    EXPECT_EQ(info.kind, uint32_t{TW_MEMORY_HOST});
    EXPECT_STREQ(info.place, "host");
    EXPECT_EQ(info.device, -1);
    EXPECT_EQ(info.host_access, 1u);
    EXPECT_EQ(info.base, nullptr);
    EXPECT_EQ(info.buffer_id, 0u);
  }
  EXPECT_STREQ(tw_memory_kind_name(TW_MEMORY_POOL), "pool");
  EXPECT_STREQ(tw_memory_kind_name(77), "unknown");
}

TEST_F(Places, ASmallerInfoOfAnOlderCallerIsNotOverrun) {
  const thalweg::Memory memory = context.allocate(100, "emulated");
  thalweg::MemoryInfo info;
  info.size = offsetof(tw_memory_info, place);
  std::memset(info.place, 0x5a, sizeof info.place);
  ASSERT_EQ(tw_memory_query(memory.data(), &info), TW_OK);
  EXPECT_EQ(info.size, offsetof(tw_memory_info, place));
  EXPECT_EQ(info.kind, uint32_t{TW_MEMORY_EMULATED});
  EXPECT_EQ(info.place[0], 0x5a);
  EXPECT_EQ(info.buffer_id, 0u);
}

TEST_F(Places, ReleasedMemoryIsFreedAndItsAddressGetsAnotherIdentity) {
  for (const char* place : {"emulated", "emulated-vmm", "pinned"}) {
    thalweg::Memory memory = context.allocate(5000, place);
    void* const address = memory.data();
    const uint64_t first = thalweg::memory_query(address).buffer_id;
    memory = {};
    EXPECT_EQ(thalweg::memory_query(address).kind, uint32_t{TW_MEMORY_HOST}) << place;
    memory = context.allocate(5000, place);
    EXPECT_NE(thalweg::memory_query(memory.data()).buffer_id, first) << place;
  }
}

TEST_F(Places, PinnedMemoryIsASharedSegmentThatPeersMap) {
  const thalweg::Memory memory = context.allocate(70000, "pinned");
  EXPECT_NE(memory.get()->segment_id, 0u);
  EXPECT_EQ(memory.get()->origin.kind, thalweg::impl::MemoryKind::host);
  EXPECT_EQ(thalweg::memory_query(at(memory) + 69999).kind, uint32_t{TW_MEMORY_PINNED});
  for (const std::byte b : memory.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
}

TEST_F(Places, DeviceMemoryOfTheUserIsRegisteredAsWhatItIs) {
  const thalweg::Memory owner = context.allocate(5000, "emulated-vmm:1");
  const thalweg::Memory part = context.register_memory(thalweg::Bytes(at(owner) + 100, 4900));
  EXPECT_EQ(part.get()->origin.kind, thalweg::impl::MemoryKind::vmm);
  EXPECT_EQ(std::memcmp(part.get()->origin.device_uuid, thalweg::memory_query(owner.data()).device_uuid, 16), 0);
  tw_memory* made = nullptr;
  EXPECT_EQ(tw_memory_register(context.get(), at(owner) + 100, 4901, nullptr, &made), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_NE(std::string(tw_last_error()).find("emulated:1"), std::string::npos) << tw_last_error();
}

TEST_F(Places, OptionsOfOlderCallersHaveNoPlace) {
  tw_memory_options old = TW_MEMORY_OPTIONS_INIT;
  old.size = offsetof(tw_memory_options, place);
  old.place = "nonsense";  // behind the caller's size: not read
  tw_memory* made = nullptr;
  ASSERT_EQ(tw_memory_allocate(context.get(), 100, &old, &made), TW_OK);
  EXPECT_EQ(tw_memory_release(made), TW_OK);
  old.size = sizeof old;
  EXPECT_EQ(tw_memory_allocate(context.get(), 100, &old, &made), TW_ERR_INVALID);
  old.place = "emulated";
  old.huge_pages = 1;
  EXPECT_EQ(tw_memory_allocate(context.get(), 100, &old, &made), TW_ERR_INVALID);
}

TEST_F(Places, EveryPairIsCopied) {
  for (const size_t length : {size_t{1}, size_t{70001}}) {
    for (const char* from_place : kPlaces) {
      for (const char* to_place : kPlaces) {
        SCOPED_TRACE(std::string(from_place) + " to " + to_place + ", " + std::to_string(length) + " bytes");
        const thalweg::Memory from = context.allocate(length + 3, from_place);
        const thalweg::Memory to = context.allocate(length + 2 * kGuard, to_place);
        const Bytes payload = random_bytes(length), poison = random_bytes(to.size());
        context.copy(at(from) + 3, payload.data(), length);
        context.copy(to.data(), poison.data(), to.size());
        context.copy(at(to) + kGuard, at(from) + 3, length);
        Bytes expected = poison, seen(to.size());
        std::memcpy(expected.data() + kGuard, payload.data(), length);
        context.copy(seen.data(), to.data(), to.size());
        ASSERT_EQ(seen, expected);
      }
    }
  }
}

TEST_F(Places, PageableMemoryGoesInManyPieces) {
  const Bytes payload = random_bytes((size_t{9} << 20) + 13);
  const thalweg::Memory memory = context.allocate(payload.size(), "emulated:1");
  context.copy(memory.data(), payload.data(), payload.size());
  Bytes seen(payload.size());
  context.copy(seen.data(), memory.data(), seen.size());
  EXPECT_EQ(seen, payload);
}

TEST_F(Places, ManyThreadsCopy) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(6, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      const thalweg::Memory memory = context.allocate(30001, kPlaces[2 + i]);
      for (int round = 0; round < 20; ++round) {
        const Bytes payload = random_bytes(memory.size());
        Bytes seen(memory.size());
        context.copy(memory.data(), payload.data(), payload.size());
        context.copy(seen.data(), memory.data(), seen.size());
        wrong[i] += seen != payload;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
}

TEST_F(Places, BadCopiesAreRefused) {
  const thalweg::Memory memory = context.allocate(100, "emulated");
  Bytes host(200, std::byte{7});
  EXPECT_EQ(tw_memory_copy(nullptr, host.data(), memory.data(), 1), TW_ERR_INVALID);
  EXPECT_EQ(tw_memory_copy(context.get(), host.data(), nullptr, 1), TW_ERR_INVALID);
  EXPECT_EQ(tw_memory_copy(context.get(), host.data(), memory.data(), 101), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(tw_memory_copy(context.get(), at(memory) + 99, host.data(), 2), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(host, Bytes(200, std::byte{7}));
  EXPECT_EQ(tw_memory_copy(context.get(), host.data(), memory.data(), 0), TW_OK);
}

}  // namespace
