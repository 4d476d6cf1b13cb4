// SPDX-License-Identifier: Apache-2.0
// Names of device memory: found by buffer id, bounded, never stale, exported as asked.
#include <algorithm>
#include <set>

#include "memory/placement.hpp"
#include "memory/registry_state.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::impl {
namespace {

using emulated::allocate;
using emulated::EmulatedDevice;
using emulated::open_device;

constexpr uint64_t kIncarnation = 0x3141592653589793;
constexpr uint64_t kPiece = 4096;

struct Listener final : SegmentListener {
  std::vector<uint64_t> released, awaited;
  void on_segment_released(uint64_t segment) override { released.push_back(segment); }
  bool on_keys_revoked(bool waits) override {
    waited |= waits;
    return true;
  }
  bool await_dropped(uint64_t segment, bool waits) override {
    awaited.push_back(segment);
    waited |= waits;
    return quiet;
  }
  bool quiet = true, waited = false;
};

struct Names : ::testing::Test {
  Names() {
    emulated::Options options;
    options.vmm_piece = kPiece;
    device = open_device(0, options);
    registry.add_listener(&listener);
  }
  ~Names() override { registry.remove_listener(&listener); }
  Status name(uint64_t address, uint64_t length) {
    BufferInfo info;
    const Status s = find_device(address, &info);
    return s == TW_OK ? registry.name_device_memory(info, address, length, &segment, &offset) : s;
  }
  tw_memory* allocated(uint64_t length) {
    tw_memory* memory = nullptr;
    const MemoryPlace place{MemoryKind::emulated, device.get()};
    EXPECT_EQ(allocate_at(registry, place, length, 0, false, &memory), TW_OK) << last_error();
    return memory;
  }
  /// Has it not been freed yet?
  static bool is_there(uint64_t address) {
    BufferInfo info;
    return find_device(address, &info) == TW_OK;
  }
  static KeyBody key_of(tw_memory& memory) {
    KeyBody key{};
    EXPECT_EQ(memory.registry->export_range(&memory, 0, 0, 0, &key), TW_OK) << last_error();
    return key;
  }
  tw_memory* take(uint64_t address, uint64_t length) {
    BufferInfo info;
    tw_memory* memory = nullptr;
    EXPECT_EQ(find_device(address, &info), TW_OK);
    EXPECT_EQ(registry.register_memory(reinterpret_cast<void*>(address), length, 0, &memory, origin_of(info)), TW_OK);
    return memory;
  }
  std::unique_ptr<EmulatedDevice> device;
  Registry registry{kIncarnation};
  Listener listener;
  uint64_t segment = 0, offset = 0;
};

TEST_F(Names, AnAllocationHasOneNameAndOffsetsInIt) {
  const uint64_t a = allocate(*device, 10'000), b = allocate(*device, 100);
  ASSERT_EQ(name(a + 17, 1000), TW_OK) << last_error();
  const uint64_t first = segment;
  EXPECT_NE(first, 0u);
  EXPECT_EQ(offset, 17u);
  ASSERT_EQ(name(a + 9'999, 1), TW_OK);
  EXPECT_EQ(segment, first);
  EXPECT_EQ(offset, 9'999u);
  ASSERT_EQ(name(b, 100), TW_OK);
  EXPECT_NE(segment, first);
  EXPECT_EQ(name(a + 9'999, 2), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(name(a, 0), TW_OK) << "an empty range of known memory";
  std::vector<ExportedMemory> out;
  ASSERT_EQ(registry.export_device_segment(first, &out), TW_OK) << last_error();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].handle.base, a);
  EXPECT_EQ(out[0].handle.length, 10'000u);
  EXPECT_EQ(out[0].handle.incarnation, kIncarnation);
  EXPECT_EQ(out[0].handle.form, ExportForm::ipc_handle);
  EXPECT_EQ(registry.export_device_segment(first ^ 1, &out), TW_ERR_STALE);
  EXPECT_TRUE(listener.released.empty());
}

TEST_F(Names, ARecycledAddressGetsAnotherName) {
  const uint64_t a = allocate(*device, 5000);
  ASSERT_EQ(name(a, 5000), TW_OK);
  const uint64_t old = segment;
  ASSERT_EQ(name(a, 5000), TW_OK);  // it is the last one found now
  EXPECT_EQ(segment, old);
  ASSERT_EQ(device->free(a), TW_OK);
  ASSERT_EQ(allocate(*device, 5000), a) << "the test needs the same address";
  std::vector<ExportedMemory> out;
  ASSERT_EQ(name(a, 5000), TW_OK);
  EXPECT_NE(segment, old);
  EXPECT_EQ(listener.released, std::vector<uint64_t>{old});
  EXPECT_TRUE(listener.awaited.empty()) << "a message does not wait for peers";
  EXPECT_EQ(registry.export_device_segment(old, &out), TW_ERR_STALE);
  EXPECT_EQ(registry.export_device_segment(segment, &out), TW_OK);
}

TEST_F(Names, FreedMemoryIsNotExportedAndLosesItsName) {
  const uint64_t a = allocate(*device, 5000);
  ASSERT_EQ(name(a, 5000), TW_OK);
  ASSERT_EQ(device->free(a), TW_OK);
  allocate(*device, 5000);  // the same address: exporting by it alone would give a stranger's memory away
  std::vector<ExportedMemory> out;
  EXPECT_EQ(registry.export_device_segment(segment, &out), TW_ERR_STALE);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(listener.released, std::vector<uint64_t>{segment});
}

TEST_F(Names, MappedPiecesAreNamedAsOneRange) {
  const uint64_t a = allocate(*device, 10 * kPiece, MemoryKind::vmm);
  ASSERT_EQ(name(a + 2 * kPiece + 5, 3 * kPiece), TW_OK) << last_error();
  const uint64_t range = segment;
  EXPECT_EQ(offset, 5u) << "in the first piece that is touched";
  ASSERT_EQ(name(a + 4 * kPiece - 1, kPiece), TW_OK);
  EXPECT_EQ(segment, range) << "inside of what is named already";
  EXPECT_EQ(offset, 2 * kPiece - 1);
  ASSERT_EQ(name(a + kPiece, 2 * kPiece), TW_OK);
  EXPECT_NE(segment, range) << "begins before it";
  std::vector<ExportedMemory> out;
  ASSERT_EQ(registry.export_device_segment(range, &out), TW_OK);
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[0].handle.base, a + 2 * kPiece);
  for (const ExportedMemory& piece : out) EXPECT_TRUE(piece.fd);
  // All pieces freed and mapped anew at the same addresses: the names of the old ones are gone.
  const uint64_t other = segment;
  ASSERT_EQ(device->free(a), TW_OK);
  ASSERT_EQ(allocate(*device, 10 * kPiece, MemoryKind::vmm), a);
  ASSERT_EQ(name(a + 4 * kPiece, 8), TW_OK);
  EXPECT_NE(segment, range);
  EXPECT_EQ(listener.released, std::vector<uint64_t>{range}) << "the other one does not overlap";
  EXPECT_EQ(registry.export_device_segment(other, &out), TW_ERR_STALE);
  EXPECT_EQ(name(a + 9 * kPiece, 2 * kPiece), TW_ERR_OUT_OF_BOUNDS);
}

TEST_F(Names, TheLeastRecentlyUsedNameGoesAndThoseHeldStay) {
  std::vector<uint64_t> addresses, segments;
  tw_memory* held = nullptr;
  for (size_t i = 0; i <= DeviceNames::kMaxNames; ++i) {
    addresses.push_back(allocate(*device, 64));
    if (i == 0) held = take(addresses[0], 64);
    ASSERT_EQ(name(addresses.back(), 64), TW_OK);
    segments.push_back(segment);
    ASSERT_EQ(name(addresses[std::min<size_t>(i, 1)], 64), TW_OK);  // the second one is always in use
  }
  EXPECT_TRUE(listener.released.empty());
  ASSERT_EQ(name(allocate(*device, 64), 64), TW_OK);
  EXPECT_EQ(listener.released, std::vector<uint64_t>{segments[2]});
  ASSERT_EQ(name(addresses[2], 64), TW_OK);
  EXPECT_NE(segment, segments[2]) << "an evicted name never comes back";
  EXPECT_EQ(listener.released, (std::vector<uint64_t>{segments[2], segments[3]}));
  ASSERT_EQ(name(addresses[0], 64), TW_OK);
  EXPECT_EQ(segment, segments[0]);
  ASSERT_EQ(registry.release(held), TW_OK);
  EXPECT_EQ(listener.awaited, std::vector<uint64_t>{segments[0]});
}

TEST_F(Names, TheLastRegistrationTakesTheNameAndWaitsForPeers) {
  const uint64_t a = allocate(*device, 1000);
  tw_memory *one = take(a, 1000), *two = take(a + 10, 100);
  EXPECT_EQ(one->segment_id, two->segment_id);
  EXPECT_EQ(two->segment_offset, 10u);
  KeyBody key;
  ASSERT_EQ(registry.export_range(two, 5, 50, 0, &key), TW_OK);
  EXPECT_EQ(key.segment, one->segment_id);
  EXPECT_EQ(key.segment_offset, 15u);
  EXPECT_EQ(key.kind, static_cast<uint8_t>(MemoryKind::emulated));
  Target target;
  {
    const Registry::Reading reading(registry);
    ASSERT_EQ(registry.resolve(reading, key.rkey, 1, 8, TW_MEMORY_READ, &target), TW_OK);
  }
  EXPECT_EQ(target.device, device.get());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(target.address), a + 16);
  const uint64_t shared = one->segment_id;
  ASSERT_EQ(registry.release(one), TW_OK);
  EXPECT_TRUE(listener.released.empty());
  ASSERT_EQ(registry.release(two), TW_OK);
  EXPECT_EQ(listener.released, std::vector<uint64_t>{shared});
  EXPECT_EQ(listener.awaited, std::vector<uint64_t>{shared});
}

TEST_F(Names, WhatPeersHoldIsLeftBehindWithoutAWait) {
  tw_memory *const one = allocated(1000), *const two = allocated(3000);
  const uint64_t addresses[] = {reinterpret_cast<uint64_t>(one->address), reinterpret_cast<uint64_t>(two->address)};
  const KeyBody key = key_of(*one);
  listener.quiet = false;
  set_last_error("what failed before");
  registry.release_or_leave(one);
  registry.release_or_leave(two);
  EXPECT_STREQ(last_error(), "what failed before");
  EXPECT_EQ(registry.left(), 2u);
  EXPECT_TRUE(is_there(addresses[0]) && is_there(addresses[1])) << "a peer may still store there";
  {
    const Registry::Reading reading(registry);
    Target target;
    EXPECT_EQ(registry.resolve(reading, key.rkey, 0, 8, TW_MEMORY_READ, &target), TW_ERR_STALE);
  }
  registry.release_left();
  EXPECT_EQ(registry.left(), 2u);
  EXPECT_EQ(listener.released.size(), 2u) << "peers are told once";
  listener.quiet = true;
  registry.release_left();
  EXPECT_EQ(registry.left(), 0u);
  EXPECT_FALSE(is_there(addresses[0]) || is_there(addresses[1]));
  EXPECT_FALSE(listener.waited);
}

TEST_F(Names, WhatIsLeftBehindEndsWithTheRegistry) {
  uint64_t address = 0;
  Listener holds;
  holds.quiet = false;
  {
    Registry other(kIncarnation);
    other.add_listener(&holds);
    tw_memory* memory = nullptr;
    ASSERT_EQ(allocate_at(other, {MemoryKind::emulated, device.get()}, 1000, 0, false, &memory), TW_OK) << last_error();
    address = reinterpret_cast<uint64_t>(memory->address);
    other.release_or_leave(memory);
    EXPECT_TRUE(is_there(address));
    other.remove_listener(&holds);  // as ports do, when they have waited
  }
  EXPECT_FALSE(is_there(address));
}

TEST_F(Names, WhatOthersOfTheProcessHoldOutlivesItsReleaseAndRegistry) {
  std::shared_ptr<void> held, again, none;
  uint64_t addresses[2] = {};
  KeyBody key{};
  {
    Registry other(kIncarnation);
    for (uint64_t& address : addresses) {
      tw_memory* memory = nullptr;
      ASSERT_EQ(allocate_at(other, {MemoryKind::emulated, device.get()}, 1000, 0, false, &memory), TW_OK) << last_error();
      address = reinterpret_cast<uint64_t>(memory->address);
      key = key_of(*memory);
      std::shared_ptr<void>& holds = held == nullptr ? held : again;
      ASSERT_EQ(Registry::hold_in_process(key.rkey, &holds), TW_OK) << last_error();
      ASSERT_NE(holds, nullptr);
      if (&holds == &held) EXPECT_EQ(other.release(memory), TW_OK) << "nobody waits for them";
    }
    EXPECT_TRUE(is_there(addresses[0]));
  }
  EXPECT_TRUE(is_there(addresses[0]) && is_there(addresses[1]));
  EXPECT_EQ(Registry::hold_in_process(key.rkey, &none), TW_ERR_STALE);
  EXPECT_EQ(none, nullptr);
  held.reset();
  EXPECT_FALSE(is_there(addresses[0]));
  EXPECT_TRUE(is_there(addresses[1]));
  again.reset();
  EXPECT_FALSE(is_there(addresses[1]));
}

TEST_F(Names, WhatTheLibraryDoesNotOwnIsNotHeld) {
  const uint64_t a = allocate(*device, 1000);
  std::shared_ptr<void> held;
  tw_memory* const users = take(a, 1000);
  EXPECT_EQ(Registry::hold_in_process(key_of(*users).rkey, &held), TW_OK) << last_error();
  EXPECT_EQ(held, nullptr);
  tw_memory* pinned = nullptr;
  ASSERT_EQ(allocate_at(registry, {MemoryKind::pinned, device.get()}, 1000, 0, false, &pinned), TW_OK) << last_error();
  EXPECT_EQ(Registry::hold_in_process(key_of(*pinned).rkey, &held), TW_OK) << last_error();
  EXPECT_EQ(held, nullptr) << "its pages go with the segment";
  EXPECT_EQ(registry.release(pinned), TW_OK);
  EXPECT_EQ(registry.release(users), TW_OK);
}

TEST_F(Names, WhatCannotBeExportedIsRegisteredWithoutAName) {
  for (MemoryKind kind : {MemoryKind::pool, MemoryKind::managed}) {
    const uint64_t a = allocate(*device, 100, kind);
    EXPECT_EQ(name(a, 100), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(last_error()).find("staging"), std::string::npos) << last_error();
    tw_memory* memory = take(a, 100);
    EXPECT_EQ(memory->segment_id, 0u);
    EXPECT_EQ(memory->origin.buffer.device, device.get());
    EXPECT_EQ(registry.release(memory), TW_OK);
  }
  EXPECT_TRUE(listener.awaited.empty());
  const uint64_t many = allocate(*device, (DeviceNames::kMaxPieces + 1) * kPiece, MemoryKind::vmm);
  EXPECT_EQ(name(many, DeviceNames::kMaxPieces * kPiece), TW_OK);
  EXPECT_EQ(name(many, DeviceNames::kMaxPieces * kPiece + 1), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(origin_of(BufferInfo{}).buffer.device, nullptr);
}

}  // namespace
}  // namespace thalweg::impl
