// SPDX-License-Identifier: Apache-2.0
// Reaching a peer's memory over shm: imported segments, single copy by the kernel.
#include <atomic>
#include <future>
#include <thread>

#include "devices/deferred_release.hpp"
#include "memory/pinning.hpp"
#include "transports/shm/imports.hpp"
#include "transports/shm/shm.hpp"
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

struct Pair {
  Side a, b;
  Link *la = nullptr, *lb = nullptr;
  Pair() { connect_sides(a, b, &la, &lb); }
  Status import(uint64_t segment, Mapping** mapping) {
    Status s = TW_IN_PROGRESS;
    EXPECT_TRUE(progress_until(
        {a.port.get(), b.port.get()},
        [&] {
          s = a.port->import(*la, segment, mapping);
          return s != TW_IN_PROGRESS;
        },
        5 * kSecond));
    return s;
  }
};

TEST(ShmMemory, ImportedSegmentIsTheOwnersMemory) {
  Pair p;
  ASSERT_TRUE(p.la->features & kLinkMaps);
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.allocate(100'000, TW_MEMORY_ALL, false, &memory), TW_OK) << last_error();
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(memory->segment_id, &mapping), TW_OK) << last_error();
  ASSERT_GE(mapping->length, 100'000u);
  EXPECT_NE(mapping->address, memory->address);
  fill(mapping->address, 100'000, 11);
  EXPECT_TRUE(filled(memory->address, 100'000, 11));
  fill(memory->address, 100'000, 12);
  EXPECT_TRUE(filled(mapping->address, 100'000, 12));
  EXPECT_EQ(p.a.sink.imports, 1);
  Mapping* again = nullptr;
  EXPECT_EQ(p.a.port->import(*p.la, memory->segment_id, &again), TW_OK);
  EXPECT_EQ(again, mapping);
  // The owner's release drops the import; a user keeps the bytes mapped until it lets go.
  const uint64_t segment = memory->segment_id;
  mapping->users = 1;
  ASSERT_EQ(p.b.registry.release(memory), TW_OK);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return mapping->revoked.load(); }, 5 * kSecond));
  EXPECT_TRUE(filled(mapping->address, 100'000, 12));
  mapping->users = 0;
  EXPECT_EQ(p.import(segment, &again), TW_ERR_STALE);
  EXPECT_EQ(p.import(segment ^ 1, &again), TW_ERR_STALE);
}

TEST(ShmMemory, AnImportEndsWithItsLink) {
  Pair p;
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Mapping* mapping = nullptr;
  ASSERT_EQ(p.import(memory->segment_id, &mapping), TW_OK);
  mapping->users = 1;
  p.b.port->close(*p.lb, true);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.sink.lost == 1; }, 5 * kSecond));
  EXPECT_TRUE(mapping->revoked);
  mapping->users = 0;
  EXPECT_EQ(p.a.port->import(*p.la, memory->segment_id, &mapping), TW_ERR_CLOSED);
  EXPECT_EQ(p.b.registry.release(memory), TW_OK);
}

TEST(ShmMemory, AClaimedIncarnationReachesNoImportOfAnotherLink) {
  Pair p;
  tw_memory* memory = nullptr;
  ASSERT_EQ(p.b.registry.allocate(4096, TW_MEMORY_ALL, false, &memory), TW_OK);
  Mapping *mapping = nullptr, *other = nullptr;
  ASSERT_EQ(p.import(memory->segment_id, &mapping), TW_OK);
  Side liar;
  liar.incarnation = p.b.incarnation;
  Link *to_liar = nullptr, *from_liar = nullptr;
  connect_sides(p.a, liar, &to_liar, &from_liar);
  ASSERT_EQ(to_liar->peer.incarnation, p.la->peer.incarnation);
  EXPECT_EQ(p.a.port->import(*to_liar, memory->segment_id, &other), TW_IN_PROGRESS);  // it is asked, and has no such memory
  EXPECT_TRUE(progress_until(
      {p.a.port.get(), liar.port.get()}, [&] { return p.a.port->import(*to_liar, memory->segment_id, &other) == TW_ERR_STALE; },
      5 * kSecond));
  // Its end takes nothing of another's away.
  liar.port->close(*from_liar, true);
  EXPECT_TRUE(progress_until({p.a.port.get()}, [&] { return p.a.sink.lost == 1; }, 5 * kSecond));
  EXPECT_FALSE(mapping->revoked);
  EXPECT_EQ(p.b.registry.release(memory), TW_OK);
}

TEST(ShmMemory, CacheIsBoundedAndSparesTheUsed) {
  shm::ImportCache cache;
  std::vector<Mapping*> used;
  for (uint64_t i = 1; i <= shm::ImportCache::kMaxCount + 100; ++i) {
    Segment segment;
    ASSERT_EQ(Segment::create("import", 4096, true, false, &segment), TW_OK);
    Mapping* mapping = cache.insert(7, i, std::make_shared<shm::Import>(std::move(segment)));
    if (i <= 10) {
      mapping->users = 1;
      used.push_back(mapping);
    }
    cache.trim();
    ASSERT_LE(cache.count(), shm::ImportCache::kMaxCount);
  }
  for (uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(cache.find(7, i), used[i - 1]);
  EXPECT_EQ(cache.find(7, 11), nullptr);
  EXPECT_EQ(cache.find(8, 1), nullptr);
  cache.revoke_all(7, TW_ERR_STALE);
  EXPECT_EQ(cache.find(7, 1), nullptr);
  EXPECT_TRUE(used[0]->revoked);
  EXPECT_EQ(cache.count(), 0u);
}

/// Unpinning may wait for devices, whose work may wait for this thread.
TEST(ShmMemory, WhatIsPinnedEndsOnAThreadOfItsOwn) {
  struct Pin {
    std::promise<std::thread::id>* ended;
    std::shared_future<void> may;
    ~Pin() {
      may.wait();
      ended->set_value(std::this_thread::get_id());
    }
  };
  std::promise<std::thread::id> ended;
  std::promise<void> kernels;
  shm::ImportCache cache;
  Mapping* mappings[2];
  for (uint64_t i = 0; i < 2; ++i) {
    Segment segment;
    ASSERT_EQ(Segment::create("import", 4096, true, false, &segment), TW_OK);
    mappings[i] = cache.insert(7, i + 1, std::make_shared<shm::Import>(std::move(segment)));
  }
  mappings[1]->pinned =
      std::shared_ptr<void>(new Pin{&ended, kernels.get_future().share()}, [](void* pin) { delete static_cast<Pin*>(pin); });
  mappings[1]->users = 1;
  cache.revoke_all(7, TW_ERR_STALE);
  cache.trim();
  EXPECT_TRUE(cache.wants_trim()) << "it is used";
  mappings[1]->users = 0;
  cache.trim();  // returns while the kernels run
  EXPECT_FALSE(cache.wants_trim());
  await_releases(1'000'000);
  kernels.set_value();
  EXPECT_NE(ended.get_future().get(), std::this_thread::get_id());
  await_releases(60'000'000'000);
}

TEST(ShmMemory, SingleCopyBetweenProcesses) {
  constexpr size_t kBytes = 1'000'003;
  const uint64_t seed = random_id();
  Child child([&](int socket) {
    Side side;
    Link* link = connect_over(side, socket, true);
    std::vector<std::byte> buffer(kBytes + 2, std::byte(0x77));
    fill(buffer.data() + 1, kBytes, seed);
    const uint64_t address = reinterpret_cast<uintptr_t>(buffer.data());
    if (side.port->send(*link, FrameHeader{0, 1, 0, 0, address, 0}, nullptr) != TW_OK) return 1;
    EXPECT_TRUE(progress_until({side.port.get()}, [&] { return side.sink.frames == 1; }));
    EXPECT_TRUE(filled(buffer.data() + 1, kBytes, seed + 1));
    EXPECT_EQ(buffer[0], std::byte(0x77));
    EXPECT_EQ(buffer[kBytes + 1], std::byte(0x77));
    side.port->close(*link, true);
    return 0;
  });
  Side side;
  Link* link = connect_over(side, child.socket(), false);
  if (!(link->features & kLinkSingleCopy)) GTEST_SKIP() << "process_vm_readv is forbidden here";
  uint64_t address = 0;
  side.sink.frame = [&](Link&, const FrameHeader& h, const std::byte*) { address = h.a; };
  ASSERT_TRUE(progress_until({side.port.get()}, [&] { return address != 0; }));
  auto* theirs = reinterpret_cast<std::byte*>(address) + 1;
  std::vector<std::byte> local(kBytes);
  // 200 odd pieces here, 3 there.
  std::vector<iovec> pieces;
  size_t at = 0;
  for (int i = 0; i < 199; ++i, at += 4001) pieces.push_back({local.data() + at, 4001});
  pieces.push_back({local.data() + at, kBytes - at});
  const iovec remote[] = {{theirs, 10}, {theirs + 10, 500'000}, {theirs + 500'010, kBytes - 500'010}};
  EXPECT_EQ(side.port->read_peer(*link, pieces.data(), pieces.size(), remote, 3), int64_t(kBytes)) << last_error();
  EXPECT_TRUE(filled(local.data(), kBytes, seed));
  fill(local.data(), kBytes, seed + 1);
  EXPECT_EQ(side.port->write_peer(*link, pieces.data(), pieces.size(), remote, 3), int64_t(kBytes)) << last_error();
  const iovec nowhere{reinterpret_cast<void*>(64), 8};
  const iovec eight{local.data(), 8};
  EXPECT_EQ(side.port->read_peer(*link, &eight, 1, &nowhere, 1), TW_ERR_INVALID);
  ASSERT_EQ(side.port->send(*link, FrameHeader{0, 1, 0, 0, 0, 0}, nullptr), TW_OK);
  EXPECT_EQ(child.wait(), 0);
  const Status s = Status(side.port->read_peer(*link, &eight, 1, remote, 1));
  EXPECT_EQ(s, TW_ERR_PEER_LOST);
}

/// Yields long enough for a thread that should be waiting to go on if it does not.
void let_others_run() {
  for (int i = 0; i < 2000; ++i) sched_yield();
}

TEST(ShmMemory, ACopyUnderWayHoldsTheReleaseAndTheEndOfItsTarget) {
  Pair p;
  std::vector<std::byte> bytes(4096);
  tw_memory* memory = nullptr;
  KeyBody key;
  ASSERT_EQ(p.b.registry.register_memory(bytes.data(), bytes.size(), 0, &memory), TW_OK);
  ASSERT_EQ(p.b.registry.export_range(memory, 0, 0, 0, &key), TW_OK);
  const auto revoked = [&] {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(key.check), __ATOMIC_ACQUIRE) != key.rkey;
  };
  ASSERT_TRUE(p.a.port->enter_peer(*p.la));
  ASSERT_FALSE(revoked());
  std::atomic<bool> ended{false};
  Status status = TW_IN_PROGRESS;
  std::thread releasing([&] {
    status = p.b.registry.release(memory);
    ended = true;
  });
  while (!revoked()) sched_yield();
  let_others_run();
  EXPECT_FALSE(ended);
  p.a.port->leave_peer(*p.la);
  releasing.join();
  EXPECT_EQ(status, TW_OK);

  ended = false;
  ASSERT_TRUE(p.a.port->enter_peer(*p.la));
  std::thread closing([&] {
    p.b.port->close(*p.lb, false);
    ended = true;
  });
  let_others_run();
  EXPECT_FALSE(ended);
  p.a.port->leave_peer(*p.la);
  closing.join();
  EXPECT_FALSE(p.a.port->enter_peer(*p.la)) << "the other side has taken its memory back";
}

TEST(ShmMemory, TransportIsUsableHere) {
  auto transport = make_shm_transport();
  EXPECT_STREQ(transport->name(), "shm");
  EXPECT_EQ(transport->unavailable(), "");
  for (const std::string& remark : transport->remarks()) EXPECT_NE(remark.find("Remedy"), std::string::npos) << remark;
}

}  // namespace
}  // namespace thalweg::impl::test
