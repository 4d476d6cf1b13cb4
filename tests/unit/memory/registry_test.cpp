// SPDX-License-Identifier: Apache-2.0
// Keys, checks, revocation, segments and signal words.
#include "memory/registry.hpp"
#include "../../fixtures/rooms.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "memory/device_users.hpp"
#include "memory/signal.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kIncarnation = 0x1234567890abcdef;

Status look_up(const Registry& registry, uint64_t rkey, uint64_t offset, uint64_t length, uint32_t access, Target* out) {
  const Registry::Reading reading(registry);
  return registry.resolve(reading, rkey, offset, length, access, out);
}

TEST(Registry, ResolvesWithinBoundsAndAccess) {
  Registry registry(kIncarnation);
  std::vector<std::byte> buffer(1001);
  tw_memory* memory = nullptr;
  ASSERT_EQ(registry.register_memory(buffer.data(), buffer.size(), TW_MEMORY_READ | TW_MEMORY_WRITE, &memory), TW_OK);
  KeyBody key;
  ASSERT_EQ(registry.export_range(memory, 13, 77, TW_MEMORY_WRITE, &key), TW_OK);
  EXPECT_EQ(key.incarnation, kIncarnation);
  Target target;
  EXPECT_EQ(look_up(registry, key.rkey, 5, 72, TW_MEMORY_WRITE, &target), TW_OK);
  EXPECT_EQ(target.address, buffer.data() + 18);
  EXPECT_EQ(look_up(registry, key.rkey, 77, 0, TW_MEMORY_WRITE, &target), TW_OK);
  EXPECT_EQ(look_up(registry, key.rkey, 5, 73, TW_MEMORY_WRITE, &target), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(look_up(registry, key.rkey, UINT64_MAX, 2, TW_MEMORY_WRITE, &target), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(look_up(registry, key.rkey, 2, UINT64_MAX, TW_MEMORY_WRITE, &target), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(look_up(registry, key.rkey, 0, 8, TW_MEMORY_READ, &target), TW_ERR_PERMISSION);
  EXPECT_EQ(look_up(registry, key.rkey + 1, 0, 8, TW_MEMORY_WRITE, &target), TW_ERR_STALE);
  EXPECT_EQ(registry.export_range(memory, 1000, 2, 0, &key), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(registry.export_range(memory, 0, 8, TW_MEMORY_ATOMIC, &key), TW_ERR_PERMISSION);
  ASSERT_EQ(registry.release(memory), TW_OK);
}

TEST(Registry, ReleaseRevokesEveryKeyAndRefusesASecondRelease) {
  Registry registry(kIncarnation);
  std::vector<std::byte> buffer(64);
  tw_memory* memory = nullptr;
  ASSERT_EQ(registry.register_memory(buffer.data(), buffer.size(), 0, &memory), TW_OK);
  KeyBody a, b;
  ASSERT_EQ(registry.export_range(memory, 0, 0, 0, &a), TW_OK);
  ASSERT_EQ(registry.export_range(memory, 8, 8, 0, &b), TW_OK);
  EXPECT_NE(a.rkey, b.rkey);
  ASSERT_EQ(registry.revoke(a.rkey), TW_OK);
  EXPECT_EQ(registry.revoke(a.rkey), TW_ERR_STALE);
  ASSERT_EQ(registry.release(memory), TW_OK);
  Target target;
  EXPECT_EQ(look_up(registry, a.rkey, 0, 1, TW_MEMORY_READ, &target), TW_ERR_STALE);
  EXPECT_EQ(look_up(registry, b.rkey, 0, 1, TW_MEMORY_READ, &target), TW_ERR_STALE);
  EXPECT_EQ(registry.release(memory), TW_ERR_HANDLE);
}

TEST(Registry, AnyOfTheProcessIsFoundByKey) {
  std::vector<std::byte> buffer(100);
  Target target;
  uint64_t rkey = 0;
  const Registry other(kIncarnation);
  {
    Registry registry(kIncarnation);
    tw_memory* memory = nullptr;
    ASSERT_EQ(registry.register_memory(buffer.data(), buffer.size(), TW_MEMORY_READ, &memory), TW_OK);
    KeyBody key;
    ASSERT_EQ(registry.export_range(memory, 10, 50, 0, &key), TW_OK);
    rkey = key.rkey;
    EXPECT_EQ(look_up(other, rkey, 0, 50, TW_MEMORY_READ, &target), TW_ERR_STALE);
    EXPECT_EQ(Registry::resolve_in_process(rkey, 1, 49, TW_MEMORY_READ, &target), TW_OK);
    EXPECT_EQ(target.address, buffer.data() + 11);
    EXPECT_EQ(Registry::resolve_in_process(rkey, 0, 51, TW_MEMORY_READ, &target), TW_ERR_OUT_OF_BOUNDS);
    EXPECT_EQ(Registry::resolve_in_process(rkey, 0, 50, TW_MEMORY_WRITE, &target), TW_ERR_PERMISSION);
  }
  EXPECT_EQ(Registry::resolve_in_process(rkey, 0, 1, TW_MEMORY_READ, &target), TW_ERR_STALE);
}

TEST(Registry, RefusesNonsense) {
  Registry registry(kIncarnation);
  tw_memory* memory = nullptr;
  char byte = 0;
  EXPECT_EQ(registry.register_memory(&byte, 0, 0, &memory), TW_ERR_INVALID);
  EXPECT_EQ(registry.register_memory(nullptr, 1, 0, &memory), TW_ERR_INVALID);
  EXPECT_EQ(registry.register_memory(&byte, SIZE_MAX, 0, &memory), TW_ERR_INVALID);
  EXPECT_EQ(registry.register_memory(&byte, 1, 64, &memory), TW_ERR_INVALID);
  EXPECT_EQ(registry.allocate(0, 0, false, &memory), TW_ERR_INVALID);
  EXPECT_EQ(registry.release_address(&byte), TW_ERR_HANDLE);
}

struct Listener final : SegmentListener {
  std::vector<uint64_t> released;
  void on_segment_released(uint64_t segment) override { released.push_back(segment); }
  bool on_keys_revoked(bool) override {
    ++asked;
    return quiet;
  }
  bool await_dropped(uint64_t segment, bool) override {
    awaited.push_back(segment);
    return quiet;
  }
  int asked = 0;
  bool quiet = true;
  std::vector<uint64_t> awaited;
};

TEST(Registry, MemoryThatAPeerIsInTheMiddleOfIsNotGivenBack) {
  Registry registry(kIncarnation);
  Listener listener;
  registry.add_listener(&listener);
  std::vector<std::byte> bytes(1000);
  tw_memory* memory = nullptr;
  ASSERT_EQ(registry.register_memory(bytes.data(), bytes.size(), 0, &memory), TW_OK);
  KeyBody key;
  ASSERT_EQ(registry.export_range(memory, 0, 0, 0, &key), TW_OK);
  listener.quiet = false;
  EXPECT_EQ(registry.release(memory), TW_ERR_BUSY);
  {
    const Registry::Reading reading(registry);
    Target target;
    EXPECT_EQ(registry.resolve(reading, key.rkey, 0, 8, TW_MEMORY_READ, &target), TW_ERR_STALE) << "the key is revoked already";
  }
  EXPECT_EQ(registry.release(memory), TW_ERR_BUSY) << "asked again";
  listener.quiet = true;
  EXPECT_EQ(registry.release(memory), TW_OK);
  EXPECT_EQ(listener.asked, 3);
  EXPECT_EQ(registry.release(memory), TW_ERR_HANDLE);
  ASSERT_EQ(registry.register_memory(bytes.data(), bytes.size(), 0, &memory), TW_OK);
  EXPECT_EQ(registry.release(memory), TW_OK);
  EXPECT_EQ(listener.asked, 3) << "nobody had a key of it";
  registry.remove_listener(&listener);
}

TEST(Registry, AllocatedMemoryIsASegmentThatPeersCanMap) {
  Registry registry(kIncarnation);
  Listener listener;
  registry.add_listener(&listener);
  uint64_t segment = 0, offset = 0;
  char local = 0;
  EXPECT_FALSE(registry.find_segment(&local, 1, &segment, &offset));
  tw_memory* memory = nullptr;
  ASSERT_EQ(registry.allocate(10000, 0, false, &memory), TW_OK);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->address) % 4096, 0u);
  ASSERT_TRUE(registry.find_segment(memory->address + 77, 100, &segment, &offset));
  EXPECT_EQ(segment, memory->segment_id);
  EXPECT_EQ(offset, 77u);
  EXPECT_FALSE(registry.find_segment(memory->address + 9990, 11, &segment, &offset));
  EXPECT_FALSE(registry.find_segment(memory->address - 1, 1, &segment, &offset));
  EXPECT_FALSE(registry.find_segment(&local, 1, &segment, &offset));
  KeyBody key;
  ASSERT_EQ(registry.export_range(memory, 100, 50, 0, &key), TW_OK);
  EXPECT_EQ(key.segment, memory->segment_id);
  EXPECT_EQ(key.segment_offset, 100u);

  int fd = -1;
  size_t length = 0;
  ASSERT_EQ(registry.segment_fd(key.segment, &fd, &length), TW_OK);
  void* view = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  std::random_device random;
  const std::byte value = static_cast<std::byte>(random());
  static_cast<std::byte*>(view)[key.segment_offset + 3] = value;
  EXPECT_EQ(memory->address[103], value);
  munmap(view, length);
  close(fd);

  const uint64_t identifier = memory->segment_id;
  ASSERT_EQ(registry.release_address(memory->address), TW_OK);
  EXPECT_EQ(listener.released, std::vector<uint64_t>{identifier});
  EXPECT_EQ(registry.segment_fd(identifier, &fd, &length), TW_ERR_STALE);
  registry.remove_listener(&listener);
}

TEST(Registry, ReleaseWaitsForAReaderOnAnotherThread) {
  Registry registry(kIncarnation);
  for (int round = 0; round < 50; ++round) {
    tw_memory* memory = nullptr;
    ASSERT_EQ(registry.allocate(4096, 0, false, &memory), TW_OK);
    KeyBody key;
    ASSERT_EQ(registry.export_range(memory, 0, 0, 0, &key), TW_OK);
    std::atomic<bool> started{false};
    std::thread reader([&] {
      for (;;) {
        const Registry::Reading reading(registry);
        Target target;
        if (registry.resolve(reading, key.rkey, 0, 4096, TW_MEMORY_WRITE, &target) != TW_OK) return;
        std::fill_n(target.address, 4096, std::byte{1});  // would fault if released under our hands
        started = true;
      }
    });
    while (!started) std::this_thread::yield();
    EXPECT_EQ(registry.release(memory), TW_OK);
    reader.join();
  }
}

TEST(Key, RoundTripsAndRefusesDamage) {
  Registry registry(kIncarnation);
  std::vector<std::byte> buffer(64);
  tw_memory* memory = nullptr;
  MemoryOrigin origin;
  origin.kind = MemoryKind::emulated;
  origin.device = 7;
  for (uint8_t& b : origin.device_uuid) b = 0xa5;
  ASSERT_EQ(registry.register_memory(buffer.data(), buffer.size(), 0, &memory, origin), TW_OK);
  KeyBody key, back;
  ASSERT_EQ(registry.export_range(memory, 16, 8, TW_MEMORY_READ, &key), TW_OK);
  key.worker = 99;
  std::byte wire[kKeyRoom];
  size_t length = 4;
  EXPECT_EQ(write_key(key, wire, &length), TW_ERR_TRUNCATED);
  ASSERT_LE(length, sizeof wire);
  ASSERT_EQ(write_key(key, wire, &length), TW_OK);
  ASSERT_EQ(parse_key(wire, length, &back), TW_OK);
  EXPECT_EQ(std::memcmp(&key, &back, sizeof key), 0);
  EXPECT_NE(parse_key(wire, length - 1, &back), TW_OK);
  wire[3] = std::byte{9};
  EXPECT_EQ(parse_key(wire, length, &back), TW_ERR_VERSION);
  wire[0] = std::byte{0};
  EXPECT_EQ(parse_key(wire, length, &back), TW_ERR_INVALID);
}

/// What imports a key tests the alignment of words by its address, and finds them by its segment.
TEST(Key, RefusesWordsAcrossBorders) {
  Registry registry(kIncarnation);
  tw_memory* memory = nullptr;
  ASSERT_EQ(registry.allocate(4096, 0, false, &memory), TW_OK);
  const auto parsed = [](const KeyBody& key) {
    std::byte wire[kKeyRoom];
    size_t length = sizeof wire;
    EXPECT_EQ(write_key(key, wire, &length), TW_OK);
    KeyBody back;
    return parse_key(wire, length, &back);
  };
  KeyBody key;
  for (const size_t offset : {0, 3, 4, 8}) {
    ASSERT_EQ(registry.export_range(memory, offset, 64, 0, &key), TW_OK);
    EXPECT_EQ(parsed(key), TW_OK) << offset;
    for (const uint64_t by : {1, 4, 7}) {
      KeyBody forged = key;
      forged.segment_offset += by;
      EXPECT_EQ(parsed(forged), TW_ERR_MISALIGNED) << offset;
      forged = key;
      forged.base += by;
      EXPECT_EQ(parsed(forged), TW_ERR_MISALIGNED) << offset;
      forged.access = TW_MEMORY_READ | TW_MEMORY_WRITE;
      EXPECT_EQ(parsed(forged), TW_OK) << "no operation on words";
      forged.access = kAccessSignal;
      forged.segment_offset += by;
      EXPECT_EQ(parsed(forged), (key.segment_offset + by) % 8 == 0 ? TW_OK : TW_ERR_MISALIGNED)
          << "a signal's word is its first";
    }
  }
  EXPECT_EQ(registry.release(memory), TW_OK);
}

/// What works on it may never end; its memory is not given back, and the rest is.
TEST(Registry, EndsWhereSomethingStillWorksOnItsMemory) {
  std::vector<std::byte> bytes(4096), others(4096);
  std::shared_ptr<DeviceUsers> users;
  uint64_t work = 0;
  {
    Registry registry(kIncarnation);
    registry.set_patience(1'000'000);
    tw_memory *memory = nullptr, *other = nullptr, *shared = nullptr;
    MemoryOrigin origin;
    origin.kind = MemoryKind::device;
    ASSERT_EQ(registry.register_memory(bytes.data(), bytes.size(), 0, &memory, origin), TW_OK) << last_error();
    ASSERT_EQ(registry.register_memory(others.data(), others.size(), 0, &other, origin), TW_OK) << last_error();
    ASSERT_EQ(registry.allocate(4096, 0, false, &shared), TW_OK);
    users = memory->users;
    ASSERT_NE(users, nullptr);
    work = users->enter();
    ASSERT_NE(work, 0u);
    EXPECT_EQ(registry.release(memory), TW_ERR_BUSY);
  }
  users->leave(work);
  EXPECT_TRUE(users->close());
}

TEST(Signal, WordsArePrivateLinesAndOnlySignalsMayTouchThem) {
  Registry registry(kIncarnation);
  SignalPool pool(registry);
  std::vector<tw_signal*> signals;
  for (int i = 0; i < 1500; ++i) {  // more than one block
    tw_signal* signal = nullptr;
    ASSERT_EQ(pool.create(i % 2 ? TW_SIGNAL_ADD : TW_SIGNAL_SET, static_cast<uint64_t>(i), &signal), TW_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(signal->word) % 64, 0u);
    signals.push_back(signal);
  }
  for (int i = 0; i < 1500; ++i) ASSERT_EQ(signal_read(*signals[i]), static_cast<uint64_t>(i));
  KeyBody key;
  ASSERT_EQ(pool.export_signal(signals[7], &key), TW_OK);
  EXPECT_EQ(key.device, uint32_t{TW_SIGNAL_ADD});
  EXPECT_NE(key.segment, 0u);
  Target target;
  EXPECT_EQ(look_up(registry, key.rkey, 0, 8, kAccessSignal, &target), TW_OK);
  EXPECT_EQ(target.address, reinterpret_cast<std::byte*>(signals[7]->word));
  EXPECT_EQ(look_up(registry, key.rkey, 0, 8, TW_MEMORY_WRITE, &target), TW_ERR_PERMISSION);
  EXPECT_EQ(look_up(registry, key.rkey, 0, 16, kAccessSignal, &target), TW_ERR_OUT_OF_BOUNDS);
  for (tw_signal* signal : signals) pool.destroy(signal);
  EXPECT_EQ(look_up(registry, key.rkey, 0, 8, kAccessSignal, &target), TW_ERR_STALE);
  tw_signal* bad = nullptr;
  EXPECT_EQ(pool.create(2, 0, &bad), TW_ERR_INVALID);
}

TEST(Signal, ComparisonIsCyclic) {
  Registry registry(kIncarnation);
  SignalPool pool(registry);
  tw_signal* signal = nullptr;
  ASSERT_EQ(pool.create(TW_SIGNAL_SET, UINT64_MAX, &signal), TW_OK);
  EXPECT_EQ(signal_test(*signal, TW_COMPARE_GE, 2), TW_IN_PROGRESS);
  EXPECT_EQ(signal_test(*signal, TW_COMPARE_GE, UINT64_MAX - 5), TW_OK);
  signal_reset(*signal, 3);  // wrapped around
  EXPECT_EQ(signal_test(*signal, TW_COMPARE_GE, UINT64_MAX), TW_OK);
  EXPECT_EQ(signal_test(*signal, TW_COMPARE_EQ, 3), TW_OK);
  EXPECT_EQ(signal_test(*signal, TW_COMPARE_NE, 3), TW_IN_PROGRESS);
  EXPECT_EQ(signal_test(*signal, 9, 3), TW_ERR_INVALID);
  pool.destroy(signal);
}

}  // namespace
}  // namespace thalweg::impl
