// SPDX-License-Identifier: Apache-2.0
// Device memory of a peer over shm: named, imported, used by queues, taken back. Descriptors work within one process;
// handles need another one, which is forked before anything of the library exists.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "unit/devices/emulated_tools.hpp"
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

using emulated::EmulatedDevice;

constexpr size_t kLength = 10'007;

/// Names [address, address + length) for peers.
Status name(Side& side, uint64_t address, uint64_t length, uint64_t* segment, uint64_t* offset) {
  BufferInfo info;
  const Status s = find_device(address, &info);
  return s == TW_OK ? side.registry.name_device_memory(info, address, length, segment, offset) : s;
}

Status import(Side& side, Link* link, uint64_t segment, Device& device, Mapping** mapping) {
  Status s = TW_IN_PROGRESS;
  EXPECT_TRUE(progress_until({side.port.get()}, [&] {
    s = side.port->import_device(*link, segment, device, mapping);
    return s != TW_IN_PROGRESS;
  }));
  return s;
}

/// Owner b with device 0, importer a with device 1, in one process.
struct Pair {
  std::unique_ptr<EmulatedDevice> mine, theirs;  // outlive the ports
  Side a, b;
  Link *la = nullptr, *lb = nullptr;
  uint64_t address = 0, segment = 0, offset = 0;
  explicit Pair(uint64_t piece = 4096, const emulated::Options& importer = {}, uint64_t limit_ns = 0)
      : mine(emulated::open_device(1, importer)), b(true, limit_ns) {
    emulated::Options options;
    options.vmm_piece = piece;
    theirs = emulated::open_device(0, options);
    connect_sides(a, b, &la, &lb);
    address = emulated::allocate(*theirs, kLength, MemoryKind::vmm);
    EXPECT_EQ(name(b, address, kLength, &segment, &offset), TW_OK) << last_error();
  }
  ~Pair() {
    if (a.port) a.port->progress(1);  // what was found last is not used any more
  }
  Status import(Mapping** mapping) { return test::import(a, la, segment, *mine, mapping); }
  tw_memory* take() {
    BufferInfo info;
    tw_memory* memory = nullptr;
    EXPECT_EQ(find_device(address, &info), TW_OK);
    void* const start = reinterpret_cast<void*>(address);
    EXPECT_EQ(b.registry.register_memory(start, kLength, 0, &memory, origin_of(info)), TW_OK) << last_error();
    return memory;
  }
};

TEST(ShmDevices, ImportedPiecesAreTheOwnersMemory) {
  Pair p;
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK) << last_error();
  EXPECT_EQ(mapping->device, p.mine.get());
  EXPECT_EQ(mapping->address, nullptr);
  ASSERT_EQ(p.offset, 0u);
  ASSERT_GE(mapping->length, kLength);
  // Through the importer's queue into the owner's memory, with guards on both sides, and back.
  const auto before = emulated::fill(*p.theirs, p.address, kLength);
  EXPECT_TRUE(emulated::holds(*p.mine, mapping->device_address, before));
  auto expected = before;
  const auto written = emulated::fill(*p.mine, mapping->device_address + 4001, 5003);  // over a border of pieces
  std::copy(written.begin(), written.end(), expected.begin() + 4001);
  EXPECT_TRUE(emulated::holds(*p.theirs, p.address, expected));
  Mapping* again = nullptr;
  EXPECT_EQ(p.a.port->import_device(*p.la, p.segment, *p.mine, &again), TW_OK);
  EXPECT_EQ(again, mapping);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.sink.imports == 1; }));
}

TEST(ShmDevices, ALongRowOfPiecesTravelsInParts) {
  Pair p(1 << 16);
  const size_t length = 70 * (size_t{1} << 16) + 13;  // nine messages
  const uint64_t address = emulated::allocate(*p.theirs, length, MemoryKind::vmm);
  ASSERT_EQ(name(p.b, address + 3, length - 3, &p.segment, &p.offset), TW_OK) << last_error();
  EXPECT_EQ(p.offset, 3u);
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK) << last_error();
  EXPECT_TRUE(emulated::holds(*p.mine, mapping->device_address, emulated::fill(*p.theirs, address, length)));
  const uint64_t more = emulated::allocate(*p.theirs, 257 * (size_t{1} << 16), MemoryKind::vmm);
  EXPECT_EQ(name(p.b, more, 257 * (size_t{1} << 16), &p.segment, &p.offset), TW_ERR_UNSUPPORTED);
}

TEST(ShmDevices, TheOwnersReleaseWaitsForWorkAndNotForProgress) {
  Pair p;
  tw_memory* memory = p.take();
  EXPECT_EQ(memory->segment_id, p.segment) << "one memory, one name";
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK) << last_error();
  ++mapping->users;
  p.a.port->progress(8);
  std::atomic<bool> ended{false};
  Status status = TW_IN_PROGRESS;
  std::thread releasing([&] {
    status = p.b.registry.release(memory);
    ended = true;
  });
  while (!mapping->revoked) sched_yield();  // no progress here
  for (int i = 0; i < 2000; ++i) sched_yield();
  EXPECT_FALSE(ended);
  EXPECT_TRUE(emulated::holds(*p.mine, mapping->device_address, emulated::fill(*p.theirs, p.address, kLength)));
  --mapping->users;
  releasing.join();
  EXPECT_EQ(status, TW_OK) << last_error();
  EXPECT_EQ(p.a.shm().device_imports(), 0u);
  EXPECT_EQ(p.import(&mapping), TW_ERR_STALE);
  EXPECT_EQ(p.theirs->free(p.address), TW_OK);
}

TEST(ShmDevices, AReleaseThatAPeerHoldsUpIsBusyAndCanBeRepeated) {
  Pair p(4096, {}, 20 * kMillisecond);
  tw_memory* memory = p.take();
  KeyBody key;
  ASSERT_EQ(p.b.registry.export_range(memory, 5, 100, 0, &key), TW_OK);
  EXPECT_EQ(key.segment, p.segment);
  EXPECT_EQ(key.segment_offset, p.offset + 5);
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK);
  ++mapping->users;
  p.a.port->progress(8);
  EXPECT_EQ(p.b.registry.release(memory), TW_ERR_BUSY);
  EXPECT_NE(std::string(last_error()).find("release it again"), std::string::npos);
  EXPECT_EQ(p.b.registry.release(memory), TW_ERR_BUSY);
  EXPECT_TRUE(mapping->revoked);
  --mapping->users;
  Status status = TW_ERR_BUSY;
  for (int i = 0; i < 500 && status == TW_ERR_BUSY; ++i) status = p.b.registry.release(memory);
  EXPECT_EQ(status, TW_OK);
  EXPECT_EQ(p.b.registry.release(memory), TW_ERR_HANDLE);
}

TEST(ShmDevices, BothSidesReleaseToEachOtherAtOnce) {
  Pair p;
  const uint64_t mine = emulated::allocate(*p.mine, kLength, MemoryKind::vmm);
  uint64_t segment = 0, offset = 0;
  BufferInfo info;
  ASSERT_EQ(find_device(mine, &info), TW_OK);
  tw_memory *ours = nullptr, *theirs = p.take();
  ASSERT_EQ(p.a.registry.register_memory(reinterpret_cast<void*>(mine), kLength, 0, &ours, origin_of(info)), TW_OK);
  ASSERT_EQ(name(p.a, mine, kLength, &segment, &offset), TW_OK);
  Mapping *there = nullptr, *here = nullptr;
  ASSERT_EQ(import(p.b, p.lb, segment, *p.theirs, &there), TW_OK) << last_error();
  ASSERT_EQ(p.import(&here), TW_OK) << last_error();
  p.a.port->progress(1);
  p.b.port->progress(1);
  std::thread other([&] { EXPECT_EQ(p.b.registry.release(theirs), TW_OK) << last_error(); });
  EXPECT_EQ(p.a.registry.release(ours), TW_OK) << last_error();
  other.join();
  EXPECT_EQ(p.a.shm().device_imports() + p.b.shm().device_imports(), 0u);
}

TEST(ShmDevices, WhoEndsALinkWaitsForTheImportsOfItsMemory) {
  Pair p;
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK);
  ++mapping->users;
  p.a.port->progress(8);
  p.b.port->close(*p.lb, true);
  std::atomic<bool> ended{false};
  std::thread ending([&] {
    p.b.port.reset();
    ended = true;
  });
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.sink.lost == 1; }));
  for (int i = 0; i < 2000; ++i) sched_yield();
  EXPECT_FALSE(ended);
  EXPECT_TRUE(mapping->revoked);
  EXPECT_TRUE(emulated::holds(*p.mine, mapping->device_address, emulated::fill(*p.theirs, p.address, kLength)));
  --mapping->users;
  ending.join();
  EXPECT_EQ(p.a.shm().device_imports(), 0u);
  EXPECT_EQ(p.import(&mapping), TW_ERR_CLOSED);
}

/// The service thread ends before it looks again at an import that was in use when its peer went away.
TEST(ShmDevices, APortThatEndsReleasesWhatWasInUseWhenItsPeerWentAway) {
  Pair p;
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK);
  ++mapping->users;
  p.a.port->progress(8);
  p.b.port->close(*p.lb, false);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.sink.lost == 1; }));
  std::atomic<bool> in_loop{false}, ended{false};
  p.a.loop.post([&] {
    in_loop = true;
    while (!ended) sched_yield();
    p.a.loop.stop();
  });
  while (!in_loop) sched_yield();
  --mapping->users;
  p.a.port.reset();
  ended = true;
  p.a.loop.stop();
  EXPECT_EQ(p.mine->holdings(), 0u);
}

TEST(ShmDevices, WhatIsFreedOrUnknownIsStale) {
  Pair p;
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.theirs->free(p.address), TW_OK);
  EXPECT_EQ(p.import(&mapping), TW_ERR_STALE);
  // The same address, another allocation: another name, and the old one stays dead.
  const uint64_t old = p.segment;
  ASSERT_EQ(emulated::allocate(*p.theirs, kLength, MemoryKind::vmm), p.address);
  ASSERT_EQ(name(p.b, p.address, kLength, &p.segment, &p.offset), TW_OK);
  EXPECT_NE(p.segment, old);
  EXPECT_EQ(test::import(p.a, p.la, old, *p.mine, &mapping), TW_ERR_STALE);
  EXPECT_EQ(test::import(p.a, p.la, p.segment ^ 1, *p.mine, &mapping), TW_ERR_STALE);
  ASSERT_EQ(p.import(&mapping), TW_OK);
  EXPECT_TRUE(emulated::holds(*p.mine, mapping->device_address, emulated::fill(*p.theirs, p.address, kLength)));
}

TEST(ShmDevices, ARecycledAddressTakesTheOldImportAway) {
  Pair p;
  Mapping *mapping = nullptr, *now = nullptr;
  ASSERT_EQ(p.import(&mapping), TW_OK);
  ++mapping->users;
  ASSERT_EQ(p.theirs->free(p.address), TW_OK);
  ASSERT_EQ(emulated::allocate(*p.theirs, kLength, MemoryKind::vmm), p.address);
  ASSERT_EQ(name(p.b, p.address, kLength, &p.segment, &p.offset), TW_OK);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return mapping->revoked.load(); }));
  --mapping->users;
  ASSERT_EQ(p.import(&now), TW_OK);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.shm().device_imports() == 1; }));
  EXPECT_TRUE(emulated::holds(*p.mine, now->device_address, emulated::fill(*p.theirs, p.address, kLength)));
}

TEST(ShmDevices, AFailedImportIsToldOnceWithItsReason) {
  emulated::Options options;
  options.peers = 0b10;  // not the memory's device
  Pair p(4096, options);
  Mapping* mapping = nullptr;
  EXPECT_EQ(p.import(&mapping), TW_ERR_UNREACHABLE);
  EXPECT_NE(std::string(last_error()).find("peer access"), std::string::npos);
  EXPECT_EQ(p.import(&mapping), TW_ERR_UNREACHABLE) << "asked again";
  EXPECT_EQ(p.a.sink.imports, 2);
  EXPECT_EQ(p.b.registry.release(p.take()), TW_OK) << "nobody has it";
}

/// A process that lends ordinary memory of device 2 and tells its name and contents; then it waits to be ended.
int lend(int socket) {
  auto device = emulated::open_device(2);
  Side side;
  Link* link = connect_over(side, socket, true);
  const uint64_t address = emulated::allocate(*device, kLength);
  const auto bytes = emulated::fill(*device, address, kLength);
  uint64_t segment = 0, offset = 0;
  if (name(side, address + 100, 50, &segment, &offset) != TW_OK || offset != 100) return 1;
  const FrameHeader header{uint32_t(bytes.size()), 1, 0, 0, segment, address};
  if (side.port->send(*link, header, bytes.data()) != TW_OK) return 2;
  EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }, 60 * kSecond));
  return 0;
}

TEST(ShmDevices, AHandleOfAnotherProcessIsDroppedAfterItsSuddenEnd) {
  Child child(lend);
  auto device = emulated::open_device(1);
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  uint64_t segment = 0;
  std::vector<std::byte> bytes;
  side.sink.frame = [&](Link&, const FrameHeader& header, const std::byte* body) {
    segment = header.a;
    bytes.assign(body, body + header.length);
  };
  ASSERT_TRUE(progress_until({side.port.get()}, [&] { return segment != 0; }));
  Mapping* mapping = nullptr;
  ASSERT_EQ(import(side, link, segment, *device, &mapping), TW_OK) << last_error();
  ASSERT_EQ(mapping->length, kLength);
  EXPECT_TRUE(emulated::holds(*device, mapping->device_address, bytes));
  ++mapping->users;
  kill(child.pid(), SIGKILL);
  ASSERT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }));
  EXPECT_TRUE(mapping->revoked);
  EXPECT_TRUE(emulated::holds(*device, mapping->device_address, bytes)) << "work under way may end";
  EXPECT_EQ(side.shm().device_imports(), 1u);
  --mapping->users;
  EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.shm().device_imports() == 0; }));
  EXPECT_EQ(import(side, link, segment, *device, &mapping), TW_ERR_PEER_LOST);
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return size_t(std::distance(begin(all), end(all)));
}

TEST(ShmDevices, OwnersThatAreKilledLeaveNothingBehind) {
  size_t descriptors = 0, imported = 0;
  for (int round = 0; round < 12; ++round) {
    {
      Child child(lend);
      auto device = emulated::open_device(1);
      Side side;
      Link* link = connect_over(side, child.socket(), false);
      uint64_t segment = 0;
      side.sink.frame = [&](Link&, const FrameHeader& header, const std::byte*) { segment = header.a; };
      ASSERT_TRUE(progress_until({side.port.get()}, [&] { return segment != 0; }));
      Mapping* mapping = nullptr;
      Status s = side.port->import_device(*link, segment, *device, &mapping);
      EXPECT_EQ(s, TW_IN_PROGRESS);
      if (round % 2 == 0) {  // otherwise in the middle of it
        s = import(side, link, segment, *device, &mapping);
        EXPECT_EQ(s, TW_OK) << last_error();
        ++imported;
      }
      kill(child.pid(), SIGKILL);
      ASSERT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.lost == 1; }));
      EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.shm().device_imports() == 0; }));
      const uint64_t own = emulated::allocate(*device, kLength);  // the survivor goes on
      EXPECT_TRUE(emulated::holds(*device, own, emulated::fill(*device, own, kLength)));
    }
    if (round == 0) descriptors = open_descriptors();
    EXPECT_EQ(open_descriptors(), descriptors);
  }
  EXPECT_EQ(imported, 6u);
}

TEST(ShmDevices, MemoryOfThisProcessNeedsNoImport) {
  Pair p;
  p.la->features |= kLinkSameProcess;
  Mapping* mapping = nullptr;
  EXPECT_EQ(p.a.port->import_device(*p.la, p.segment, *p.mine, &mapping), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(last_error()).find("ours"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::impl::test
