// SPDX-License-Identifier: Apache-2.0
// Device memory over shm with peers that break the rules or die, and the bound of the import cache.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "transports/device_memory/imports.hpp"
#include "unit/devices/emulated_tools.hpp"
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

using emulated::EmulatedDevice;

/// A port, and a peer that is only the other end of the control channel.
struct RawPeer {
  std::unique_ptr<EmulatedDevice> device = emulated::open_device(0);
  Side side;
  Link* link = nullptr;
  uint64_t incarnation = random_id();
  std::unique_ptr<SetupChannel> channel;
  Mapping* mapping = nullptr;

  explicit RawPeer(uint64_t silent_timeout_ns = 0) : side(true, silent_timeout_ns) {
    Side helper(false);
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    LinkInit init;
    init.initiator = true;
    init.socket = UniqueFd(fds[0]);
    init.peer.incarnation = incarnation;
    EXPECT_EQ(side.port->offer(init.peer, init.mine), TW_OK) << last_error();
    EXPECT_EQ(helper.port->answer(init.peer, init.mine, init.theirs), TW_OK) << last_error();
    EXPECT_EQ(side.port->establish(std::move(init), &link), TW_OK) << last_error();
    channel = std::make_unique<SetupChannel>(UniqueFd(fds[1]), nullptr, Session{});
  }
  void say(uint16_t type, const void* bytes, size_t length, std::vector<int> fds = {}) {
    ASSERT_EQ(channel->queue(type, bytes, length, fds.data(), fds.size()), TW_OK);
    ASSERT_EQ(channel->flush(), TW_OK);
  }
  void say(uint16_t type, uint64_t segment) { say(type, &segment, sizeof segment); }
  void say(const DevicePart& part) { say(shm::kDevicePieces, part.bytes.data(), part.bytes.size(), part.fds); }
  /// The type of the next message for the peer, which names `segment`.
  uint16_t hears(uint64_t segment) {
    SetupChannel::Message message;
    Status s;
    const Deadline deadline(10 * kSecond);
    while ((s = channel->receive(&message)) == TW_IN_PROGRESS && !deadline.passed()) cpu_pause();
    EXPECT_EQ(s, TW_OK);
    uint64_t named = 0;
    if (message.bytes.size() >= sizeof named) std::memcpy(&named, message.bytes.data(), sizeof named);
    EXPECT_EQ(named, segment);
    return message.type;
  }
  void ask(uint64_t segment) {
    EXPECT_EQ(side.port->import_device(*link, segment, *device, &mapping), TW_IN_PROGRESS);
    EXPECT_EQ(hears(segment), shm::kImportDevice);
  }
  bool is_lost() {
    return progress_until(
               {side.port.get()}, [&] { return side.sink.lost == 1; }, 10 * kSecond) &&
           side.sink.lost_status == TW_ERR_PROTOCOL;
  }
  /// Memory of device 1, as the peer would export it.
  std::vector<ExportedMemory> exported(EmulatedDevice& theirs, size_t length) {
    std::vector<ExportedMemory> out;
    const uint64_t address = emulated::allocate(theirs, length, MemoryKind::vmm);
    EXPECT_EQ(theirs.export_memory(address, length, incarnation, &out), TW_OK);
    return out;
  }
};

TEST(ShmDevicePeers, WhatWasNotAskedForEndsTheLink) {
  auto theirs = emulated::open_device(1);
  RawPeer p;
  p.say(write_device_part(5, p.exported(*theirs, 4096), 0));
  EXPECT_TRUE(p.is_lost()) << p.side.sink.lost_why;
  EXPECT_EQ(p.side.shm().device_imports(), 0u);
}

TEST(ShmDevicePeers, AnAnswerToAnotherQuestionEndsTheLink) {
  auto theirs = emulated::open_device(1);
  RawPeer p;
  p.ask(6);
  p.say(write_device_part(5, p.exported(*theirs, 4096), 0));
  EXPECT_TRUE(p.is_lost()) << p.side.sink.lost_why;
}

TEST(ShmDevicePeers, AMalformedAnswerEndsTheLink) {
  auto theirs = emulated::open_device(1);
  RawPeer p;
  p.ask(6);
  auto pieces = p.exported(*theirs, 4096);
  pieces[0].handle.incarnation ^= 1;
  p.say(write_device_part(6, pieces, 0));
  EXPECT_TRUE(p.is_lost());
  EXPECT_NE(p.side.sink.lost_why.find("makes no sense"), std::string::npos) << p.side.sink.lost_why;
  EXPECT_EQ(p.side.port->import_device(*p.link, 6, *p.device, &p.mapping), TW_ERR_PROTOCOL);
}

TEST(ShmDevicePeers, ADescriptorOfSomethingElseIsRefusedAndGivenBack) {
  RawPeer p;
  auto theirs = emulated::open_device(1);
  for (int round = 0; round < 2; ++round) {
    p.ask(6);
    auto pieces = p.exported(*theirs, 4096);
    if (round == 0) pieces[0].fd = UniqueFd(memfd_create("not sealed", MFD_CLOEXEC));
    p.say(write_device_part(6, pieces, 0));
    Status s = TW_IN_PROGRESS;
    EXPECT_TRUE(progress_until({p.side.port.get()}, [&] {
      s = p.side.port->import_device(*p.link, 6, *p.device, &p.mapping);
      return s != TW_IN_PROGRESS;
    }));
    EXPECT_EQ(s, round == 0 ? TW_ERR_PROTOCOL : TW_OK);
    if (round == 0) {
      EXPECT_EQ(p.hears(6), shm::kDropped) << "the owner must not wait for what was not imported";
    }
  }
  p.side.port->progress(1);
  p.say(shm::kReleased, 6);
  EXPECT_EQ(p.hears(6), shm::kDropped);
  EXPECT_EQ(p.side.sink.lost, 0);
}

TEST(ShmDevicePeers, AnImporterThatDiesIsNotWaitedFor) {
  RawPeer p;
  const uint64_t address = emulated::allocate(*p.device, 5000);
  BufferInfo info;
  tw_memory* memory = nullptr;
  ASSERT_EQ(find_device(address, &info), TW_OK);
  ASSERT_EQ(p.side.registry.register_memory(reinterpret_cast<void*>(address), 5000, 0, &memory, origin_of(info)), TW_OK);
  const uint64_t segment = memory->segment_id;
  p.say(shm::kImportDevice, segment);
  EXPECT_EQ(p.hears(segment), shm::kDevicePieces);
  p.say(shm::kImportDevice, segment ^ 1);
  EXPECT_EQ(p.hears(segment ^ 1), shm::kDevicePieces);  // says that it is stale
  std::thread dying([&] {
    EXPECT_EQ(p.hears(segment), shm::kReleased);
    p.channel.reset();
  });
  EXPECT_EQ(p.side.registry.release(memory), TW_OK) << last_error();
  dying.join();
}

/// Its link has ended here, but it may still have imported memory of ours.
TEST(ShmDevicePeers, AFloodThatNeverEndsDoesNotKeepTheLoopFromItsEnd) {
  auto p = std::make_unique<RawPeer>(200 * kMillisecond);
  const uint64_t address = emulated::allocate(*p->device, 5000);
  BufferInfo info;
  tw_memory* memory = nullptr;
  ASSERT_EQ(find_device(address, &info), TW_OK);
  ASSERT_EQ(p->side.registry.register_memory(reinterpret_cast<void*>(address), 5000, 0, &memory, origin_of(info)), TW_OK);
  const uint64_t segment = memory->segment_id;
  p->say(shm::kImportDevice, segment);
  EXPECT_EQ(p->hears(segment), shm::kDevicePieces);
  std::atomic<bool> floods{true};
  std::atomic<uint64_t> sent{0};
  std::thread flood([&] {
    const uint64_t other = segment ^ 1;
    while (floods && p->channel->queue(shm::kDropped, &other, sizeof other) == TW_OK) {
      Status s;
      while ((s = p->channel->flush()) == TW_IN_PROGRESS && floods) {
      }
      if (s != TW_OK) break;
      ++sent;
    }
  });
  while (sent < 1000) sched_yield();
  p->side.port->close(*p->link, false);
  std::atomic<bool> stopped{false};
  std::thread stops([&] {
    p->side.loop.stop();
    stopped = true;
  });
  const Deadline deadline(10 * kSecond);
  while (!stopped && !deadline.passed()) sched_yield();
  EXPECT_TRUE(stopped);
  floods = false;
  flood.join();
  p->channel.reset();  // so that it ends in any case
  stops.join();
  EXPECT_EQ(p->side.registry.release(memory), TW_ERR_BUSY);  // no loop is left that could hear that it was dropped
}

struct Told final : DeviceSource {
  void import_gone(uint64_t) override { ++gone; }
  size_t gone = 0;
};

TEST(ShmDevicePeers, TheCacheIsBoundedAndSparesTheUsed) {
  constexpr size_t kMore = 20;
  emulated::Options options;
  options.vmm_piece = 4096;
  auto owner = emulated::open_device(1, options), device = emulated::open_device(0);
  const uint64_t base = emulated::allocate(*owner, 4096 * (DeviceImports::kMaxCount + kMore), MemoryKind::vmm);
  DeviceImports imports;
  const auto link = std::make_shared<Told>();
  std::vector<uint64_t> addresses;
  Mapping *used = nullptr, *pinned = nullptr;
  for (uint64_t i = 0; i < DeviceImports::kMaxCount + kMore; ++i) {
    std::vector<ExportedMemory> piece;
    ASSERT_EQ(owner->export_memory(base + i * 4096, 4096, 7, &piece), TW_OK);
    uint64_t address = 0;
    ASSERT_EQ(device->import_memory(piece, &address), TW_OK);
    addresses.push_back(address);
    imports.insert({link, i + 1}, 7, *device, address, 4096);
    if (i == 0) {
      used = imports.find(7, 1, *device);
      ++used->users;
    }
    if (i == 1) pinned = imports.find(7, 2, *device);
    imports.release_unused();
    ASSERT_LE(imports.count(), DeviceImports::kMaxCount);
  }
  EXPECT_FALSE(used->revoked) << "evicted is not revoked";
  EXPECT_EQ(imports.find(7, 1, *device), used);
  EXPECT_EQ(imports.find(7, 2, *device), pinned);
  EXPECT_EQ(imports.find(7, 3, *device), nullptr);
  EXPECT_EQ(std::count(addresses.begin(), addresses.end(), addresses[2]), 2) << "the device has used its address again";
  EXPECT_EQ(imports.find(8, 1, *device), nullptr);
  EXPECT_EQ(imports.find(7, 1, *owner), nullptr);
  imports.abandon();
  for (uint64_t i = 0; i < DeviceImports::kMaxCount + kMore; ++i) imports.close({link, i + 1});
  imports.release_unused();
  EXPECT_EQ(imports.count(), 0u);
  EXPECT_EQ(link->gone, DeviceImports::kMaxCount + kMore) << "each segment is told once";
}

}  // namespace
}  // namespace thalweg::impl::test
