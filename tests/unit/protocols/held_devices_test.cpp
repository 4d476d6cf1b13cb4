// SPDX-License-Identifier: Apache-2.0
// A worker applies a frame to device memory and waits for the device, which the test holds: other threads of the context go on,
// and who takes that memory back waits for the device or is told that it is busy.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "memory/local_copy.hpp"
#include "memory/placement.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

using emulated::EmulatedDevice;

constexpr uint64_t kSize = 3001, kOffset = 40;  // of what moves; where it is in the memory
constexpr uint64_t kBlock = 100, kBlocks = 20, kStride = 130;
constexpr uint64_t kSegment = 77, kPiece = 96;  // of the peer's host memory, and where in it a piece is named

/// Of this program, until it exits: engines keep queues of it.
EmulatedDevice& device() {
  static EmulatedDevice* const device = emulated::open_device(40).release();
  return *device;
}

template <class Body>
void append(std::vector<std::byte>& to, const Body& body) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&body);
  to.insert(to.end(), bytes, bytes + sizeof body);
}

/// Of other threads. A guard: nothing here is a matter of time.
template <class Condition>
bool eventually(const Condition& condition) {
  const Deadline limit(20 * kSecond);
  while (!condition()) {
    if (limit.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

class AtHeldDevice : public ::testing::Test {
 protected:
  static constexpr size_t kLength = 4096;

  AtHeldDevice() : peers(kLength), elsewhere(5000), world({.features = kLinkMaps}, seed()), registry(world.registry_b) {}
  void SetUp() override {
    for (std::byte& b : peers) b = static_cast<std::byte>(world.random());
    world.connect();
    world.pb->segments[kSegment].address = peers.data();
    world.pb->segments[kSegment].length = peers.size();
    address = emulated::allocate(device(), kLength);
    image = emulated::fill(device(), address, kLength);
    void* const at = reinterpret_cast<void*>(address);
    ASSERT_EQ(register_anywhere(registry, at, kLength, 0, &memory), TW_OK) << last_error();
    ASSERT_EQ(registry.export_range(memory, 0, 0, 0, &key), TW_OK) << last_error();
  }
  void TearDown() override {
    if (worker.joinable()) let_go();
    EXPECT_FALSE(world.b.doomed);
    EXPECT_EQ(world.b.one_sided.failed, TW_OK);
    if (memory != nullptr) {
      EXPECT_EQ(registry.release(memory), TW_OK) << last_error();
    }
    EXPECT_EQ(device().free(address), TW_OK);
  }

  /// A thread of right's worker takes the frame; it waits for the device when this returns.
  void take(const FrameHeader& header, std::vector<std::byte> body) {
    device().hold(true);
    worker = std::thread([this, header, body = std::move(body)] {
      world.right->on_frame(*world.lb, header, body.data());
      applied = true;
    });
    ASSERT_TRUE(eventually([] { return device().held_back() != 0; }));
    ASSERT_FALSE(applied);
  }
  void let_go() {
    free_again = true;
    device().hold(false);
    worker.join();
    EXPECT_TRUE(applied);
  }
  bool stale(uint64_t rkey, uint32_t access) {
    const Registry::Reading reading(registry);
    Target target;
    return registry.resolve(reading, rkey, 0, 0, access, &target) == TW_ERR_STALE;
  }
  /// On another thread, while the device is held; lets go of it then.
  template <class Body>
  void expect_to_end_meanwhile(const Body& body) {
    std::atomic<bool> done{false};
    std::thread other([&] {
      body();
      done = true;
    });
    EXPECT_TRUE(eventually([&] { return done.load(); }));
    EXPECT_FALSE(applied) << "the device is held";
    let_go();
    other.join();
  }
  void expect_image() { EXPECT_TRUE(emulated::holds(device(), address, image)); }

  std::vector<std::byte> peers, elsewhere;
  World world;
  Registry& registry;
  uint64_t address = 0;
  tw_memory* memory = nullptr;
  KeyBody key;
  std::vector<std::byte> image;  // of the memory, with what the frame does to it
  std::thread worker;
  std::atomic<bool> applied{false}, free_again{false};
};

// ------------------------------------------------------------------------------------------------ puts, gets, atomics, blocks

struct Kind {
  const char* name;
  Frame frame;
};

class HeldDevices : public AtHeldDevice, public ::testing::WithParamInterface<Kind> {
 protected:
  std::vector<std::byte> payload(size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(world.random());
    return bytes;
  }
  void note(const std::vector<std::byte>& bytes, uint64_t from, uint64_t count, uint64_t to) {
    std::memcpy(image.data() + to, bytes.data() + from, count);
  }
  void take_put() {
    const std::vector<std::byte> bytes = payload(kSize);
    note(bytes, 0, kSize, kOffset);
    take(make_header(Frame::put, kSize, key.rkey, kOffset, kFrameFirst), bytes);
  }
  void take_layout() {
    const std::vector<std::byte> bytes = payload(kBlocks * kBlock);
    for (uint64_t i = 0; i < kBlocks; ++i) note(bytes, i * kBlock, kBlock, kOffset + i * kStride);
    Layout* layout = nullptr;
    const uint64_t count = kBlocks;
    const int64_t stride = kStride;
    ASSERT_EQ(make_strided(1, kBlock, &count, &stride, &layout), TW_OK);
    std::vector<std::byte> body(kWireLayout);
    body.resize(encode(*layout, body.data(), body.size()));
    const PutLayoutBody fields{0};
    body.insert(body.begin(), reinterpret_cast<const std::byte*>(&fields), reinterpret_cast<const std::byte*>(&fields + 1));
    body.insert(body.end(), bytes.begin(), bytes.end());
    release(layout);
    take(make_header(Frame::put_layout, body.size(), key.rkey, kOffset, kFrameFirst), body);
  }
  void take_named() {
    std::vector<std::byte> told, body;
    append(told, BounceBody{0, kLength, {}, 0, {}});
    world.right->on_frame(*world.lb, make_header(Frame::bounce, told.size(), kSegment, 0), told.data());
    append(body, PieceBody{kSegment, kPiece, kSize, 5});
    note(peers, kPiece, kSize, kOffset);
    take(make_header(Frame::put_at, body.size(), key.rkey, kOffset), body);
  }
  void take_get() {
    std::vector<std::byte> body;
    append(body, GetBody{5, kSize, 0, 0});
    take(make_header(Frame::get, body.size(), key.rkey, kOffset), body);
  }
  void take_atomic() {
    uint64_t word = 0;
    std::memcpy(&word, image.data() + kOffset, sizeof word);
    word += 12345;
    std::memcpy(image.data() + kOffset, &word, sizeof word);
    std::vector<std::byte> body;
    append(body, AtomicBody{5, 12345, 0, TW_ATOMIC_ADD, sizeof word, 0, {}});
    take(make_header(Frame::atomic, body.size(), key.rkey, kOffset), body);
  }
  void take_blocks() {
    std::vector<std::byte> body;
    const std::vector<std::byte> bytes = payload(kBlocks * kBlock);
    for (uint64_t i = 0; i < kBlocks; ++i) {
      append(body, BlockName{key.rkey, kOffset + i * kStride, kBlock});
      note(bytes, i * kBlock, kBlock, kOffset + i * kStride);
    }
    body.insert(body.end(), bytes.begin(), bytes.end());
    take(make_header(Frame::put_blocks, body.size(), kBlocks, 0, kFrameFirst), body);
  }
  void take_wanted_blocks() {
    std::vector<std::byte> body;
    for (uint64_t i = 0; i < kBlocks; ++i) append(body, BlockName{key.rkey, kOffset + i * kStride, kBlock});
    take(make_header(Frame::get_blocks, body.size(), 5, 0), body);
  }
  void take_frame() {
    switch (GetParam().frame) {
      case Frame::put:
        return take_put();
      case Frame::put_layout:
        return take_layout();
      case Frame::put_at:
        return take_named();
      case Frame::get:
        return take_get();
      case Frame::atomic:
        return take_atomic();
      case Frame::put_blocks:
        return take_blocks();
      default:
        return take_wanted_blocks();
    }
  }
  /// Gets are answered with what was read, and not with an error.
  void expect_answered() {
    const bool get = GetParam().frame == Frame::get, blocks = GetParam().frame == Frame::get_blocks;
    EXPECT_EQ(world.pb->frames(Frame::data), get ? 1u : 0u);
    EXPECT_EQ(world.pb->frames(Frame::blocks), blocks ? 1u : 0u);
    EXPECT_EQ(world.pb->frames(Frame::fin), GetParam().frame == Frame::put_at ? 1u : 0u);
  }
};

TEST_P(HeldDevices, HoldUpNoOtherThread) {
  ASSERT_NO_FATAL_FAILURE(take_frame());
  expect_to_end_meanwhile([&] {
    tw_memory* unrelated = nullptr;
    KeyBody exported;
    EXPECT_EQ(registry.register_memory(elsewhere.data(), elsewhere.size(), 0, &unrelated), TW_OK);
    EXPECT_EQ(registry.export_range(unrelated, 0, 0, 0, &exported), TW_OK);
    EXPECT_FALSE(stale(exported.rkey, TW_MEMORY_READ));
    EXPECT_EQ(registry.revoke(exported.rkey), TW_OK);
    EXPECT_EQ(registry.release(unrelated), TW_OK);
  });
  expect_image();
  expect_answered();
}

TEST_P(HeldDevices, LeaveTheirMemoryBusy) {
  registry.set_patience(0);
  ASSERT_NO_FATAL_FAILURE(take_frame());
  expect_to_end_meanwhile([&] {
    EXPECT_EQ(registry.release(memory), TW_ERR_BUSY);
    EXPECT_EQ(registry.try_release(memory), TW_ERR_BUSY);
  });
  EXPECT_EQ(registry.release(std::exchange(memory, nullptr)), TW_OK) << last_error();
  expect_image();
  expect_answered();
}

TEST_P(HeldDevices, AreWaitedForByARelease) {
  registry.set_patience(60 * kSecond);
  ASSERT_NO_FATAL_FAILURE(take_frame());
  std::atomic<bool> done{false};
  std::thread owner([&] {
    EXPECT_EQ(registry.release(std::exchange(memory, nullptr)), TW_OK) << last_error();
    EXPECT_TRUE(free_again);
    expect_image();
    done = true;
  });
  EXPECT_TRUE(eventually([&] { return stale(key.rkey, TW_MEMORY_READ); }));
  EXPECT_FALSE(done);
  let_go();
  owner.join();
  expect_answered();
}

INSTANTIATE_TEST_SUITE_P(Frames, HeldDevices,
                         ::testing::Values(Kind{"put", Frame::put}, Kind{"put_layout", Frame::put_layout},
                                           Kind{"put_at", Frame::put_at}, Kind{"get", Frame::get},
                                           Kind{"atomic", Frame::atomic}, Kind{"put_blocks", Frame::put_blocks},
                                           Kind{"get_blocks", Frame::get_blocks}),
                         [](const auto& info) { return std::string(info.param.name); });

// ------------------------------------------------------------------------------------------------ signals

class HeldSignals : public AtHeldDevice {
 protected:
  void SetUp() override {
    AtHeldDevice::SetUp();
    ASSERT_EQ(pool.create_in(*memory, kOffset, copier, TW_SIGNAL_ADD, 40, &signal), TW_OK) << last_error();
    ASSERT_EQ(pool.export_signal(signal, &word), TW_OK) << last_error();
    const uint64_t value = 47;
    std::memcpy(image.data() + kOffset, &value, sizeof value);
    ASSERT_NO_FATAL_FAILURE(take(make_header(Frame::signal, 0, word.rkey, 7, 0, TW_SIGNAL_ADD), {}));
  }
  void TearDown() override {
    if (worker.joinable()) let_go();
    if (signal != nullptr) {
      EXPECT_EQ(pool.destroy(signal), TW_OK);
    }
    AtHeldDevice::TearDown();
  }
  LocalCopier copier;
  SignalPool pool{registry};
  tw_signal* signal = nullptr;
  KeyBody word;
};

TEST_F(HeldSignals, HoldUpNoOtherThread) {
  expect_to_end_meanwhile([&] {
    tw_memory* unrelated = nullptr;
    EXPECT_EQ(registry.register_memory(elsewhere.data(), elsewhere.size(), 0, &unrelated), TW_OK);
    EXPECT_EQ(registry.release(unrelated), TW_OK);
  });
  expect_image();
}

/// The word is the user's again.
TEST_F(HeldSignals, AreWaitedForByTheirEnd) {
  std::atomic<bool> done{false};
  std::thread owner([&] {
    EXPECT_EQ(pool.destroy(std::exchange(signal, nullptr)), TW_OK);
    EXPECT_TRUE(free_again);
    expect_image();
    done = true;
  });
  EXPECT_TRUE(eventually([&] { return stale(word.rkey, kAccessSignal); }));
  EXPECT_FALSE(done);
  let_go();
  owner.join();
}

}  // namespace
}  // namespace thalweg::test
