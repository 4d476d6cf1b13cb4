// SPDX-License-Identifier: Apache-2.0
// Within one process a device of one worker works on memory of another one: taking that memory back, by a release or because
// its operation ends, waits for the device but not for progress. The test steps the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "devices/registry.hpp"
#include "memory/placement.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/local_device.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

using emulated::EmulatedDevice;

/// Of this program, until it exits: engines keep queues of it.
EmulatedDevice& stepped() {
  static EmulatedDevice* const device = [] {
    emulated::Options options;
    options.stepped = true;
    return emulated::open_device(9, options).release();
  }();
  return *device;
}

FakeOptions one_process() {
  FakeOptions options;
  options.features = kLinkSameProcess;
  return options;
}

class DeviceUsersOf : public ::testing::Test {
 protected:
  static constexpr uint64_t kSize = 5000;

  DeviceUsersOf() : world(one_process(), seed()), registry(world.registry_a) {
    world.la->peer.incarnation = world.lb->peer.incarnation = 11;
    world.connect();
    registry.set_patience(0);
  }
  void TearDown() override {
    run_device();
    for (RemoteRegion* region : regions) release_region(region);
    for (tw_memory* memory : memories) EXPECT_EQ(registry.release(memory), TW_OK);
  }
  /// Device memory, all bytes alike.
  tw_memory* allocate(unsigned value) {
    tw_memory* memory = nullptr;
    EXPECT_EQ(allocate_at(registry, {MemoryKind::emulated, &stepped()}, kSize, 0, false, &memory), TW_OK) << last_error();
    memories.push_back(memory);
    std::memset(bytes(memory), static_cast<int>(value), kSize);
    return memory;
  }
  static std::byte* bytes(const tw_memory* memory) {
    return stepped().translate(reinterpret_cast<uint64_t>(memory->address), kSize);
  }
  static bool holds(const tw_memory* memory, unsigned value) {
    const std::byte* at = bytes(memory);
    return std::all_of(at, at + kSize, [value](std::byte b) { return b == std::byte(value); });
  }
  RemoteRegion* import(tw_memory* memory) {
    KeyBody key;
    EXPECT_EQ(registry.export_range(memory, 0, memory->length, 0, &key), TW_OK);
    RemoteRegion* region = nullptr;
    EXPECT_EQ(import_region(world.a, key, &region), TW_OK);
    regions.push_back(region);
    return region;
  }
  Status release(tw_memory* memory) {
    const Status status = registry.release(memory);
    if (status == TW_OK) std::erase(memories, memory);
    return status;
  }
  static void on_device(OpDesc& op, tw_memory* memory) {
    BufferInfo info;
    ASSERT_EQ(find_device(reinterpret_cast<uint64_t>(memory->address), &info), TW_OK);
    op.address = memory->address;
    op.length = kSize;
    set_device(op, info);
  }
  tw_request move(Verb verb, tw_memory* local, RemoteRegion* remote) {
    OpDesc op;
    op.verb = verb;
    op.peer = &world.a;
    op.remote = remote;
    on_device(op, local);
    return start(*world.left, op);
  }
  static tw_request start(Engine& engine, const OpDesc& op) {
    tw_request request = TW_REQUEST_NONE;
    const Completion completion{&request};
    EXPECT_EQ(op.verb == Verb::recv ? engine.post_receive(op, completion) : engine.start(op, completion), TW_IN_PROGRESS)
        << last_error();
    return request;
  }
  static void run_device() {
    while (stepped().step(0)) {
    }
  }
  Status end(tw_request request) {
    for (unsigned i = 0; i < 1000 && Engine::test(request) == TW_IN_PROGRESS; ++i) {
      run_device();
      world.turn();
    }
    const Status status = Engine::test(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }
  /// Two calls of left's queue are under way: what comes next is batched, and not submitted to the device.
  void occupy_left() {
    for (unsigned i = 0; i < 2; ++i) {
      before.push_back(move(Verb::put, allocate(1), import(allocate(2))));
      world.left->progress();
    }
  }
  void end_those_before() {
    for (const tw_request request : before) EXPECT_EQ(end(request), TW_OK);
  }

  /// In `told`.
  void tell(tw_request request) {
    Completion completion;
    completion.kind = SinkKind::record;
    completion.sink_target.record = &told;
    told.status = TW_IN_PROGRESS;
    told.info.endpoint = world.a.endpoint;
    ASSERT_EQ(world.left->completions().tell_of(request, completion), TW_OK) << last_error();
  }
  /// left's endpoint has ended, and a device is still to end what is told.
  void expect_late_end(tw_request request) {
    world.left->progress();
    EXPECT_EQ(told.status, TW_IN_PROGRESS);
    run_device();
    world.left->progress();
    EXPECT_EQ(told.status, TW_ERR_CLOSED);
    EXPECT_EQ(told.info.endpoint, nullptr);
    EXPECT_EQ(end(request), TW_ERR_CLOSED);
  }

  World world;
  Registry& registry;
  tw_completion told{};
  std::vector<tw_memory*> memories;
  std::vector<RemoteRegion*> regions;
  std::vector<tw_request> before;
};

// ------------------------------------------------------------------------------------------------ releases

TEST_F(DeviceUsersOf, ReleasedMemoryAreWaitedFor) {
  for (const Verb verb : {Verb::put, Verb::get, Verb::atomic}) {
    tw_memory* const target = allocate(0);
    tw_memory* const local = allocate(3);
    RemoteRegion* const remote = import(target);
    tw_request request = TW_REQUEST_NONE;
    if (verb == Verb::atomic) {
      OpDesc op;
      op.verb = verb;
      op.peer = &world.a;
      op.remote = remote;
      op.word = 8;
      op.length = 8;
      op.atomic_op = TW_ATOMIC_ADD;
      op.operand = 5;
      request = start(*world.left, op);
    } else {
      request = move(verb, local, remote);
    }
    world.left->progress();
    EXPECT_EQ(release(target), TW_ERR_BUSY);
    EXPECT_EQ(release(target), TW_ERR_BUSY);
    run_device();
    if (verb == Verb::put) {
      EXPECT_TRUE(holds(target, 3));
    }
    EXPECT_EQ(release(target), TW_OK) << "nobody has to progress";
    EXPECT_EQ(end(request), TW_OK);
    if (verb == Verb::get) {
      EXPECT_TRUE(holds(local, 0));
    }
  }
}

TEST_F(DeviceUsersOf, ReleasedMemoryAreTurnedAwayWhereTheyHaveNotBegun) {
  occupy_left();
  tw_memory* const gone = allocate(4);
  tw_memory* const stays = allocate(5);
  tw_memory* const local = allocate(6);
  const tw_request first = move(Verb::put, local, import(stays));
  const tw_request refused = move(Verb::put, local, import(gone));
  const tw_request last = move(Verb::put, local, import(stays));
  EXPECT_EQ(release(gone), TW_OK);
  EXPECT_EQ(end(first), TW_OK);
  EXPECT_EQ(end(refused), TW_ERR_STALE);
  EXPECT_EQ(end(last), TW_OK) << "what goes to the device together does not fail together";
  EXPECT_TRUE(holds(stays, 6));
  end_those_before();
}

/// Closed here while a device is at its buffer: it ends behind its endpoint, which it does not name any more.
TEST_F(DeviceUsersOf, WhatEndsBehindItsEndpointNamesNone) {
  const tw_request request = move(Verb::put, allocate(3), import(allocate(0)));
  world.left->progress();
  tell(request);
  world.left->remove(world.a);
  expect_late_end(request);
}

// ------------------------------------------------------------------------------------------------ messages whose peer is lost

/// A strided source is pushed by the sender's device.
class DeviceUsersOfMessages : public DeviceUsersOf {
 protected:
  void begin(bool strided) {
    source = allocate(7);
    target = allocate(8);
    OpDesc send = send_op(world.a, nullptr, 0, 1, 0), receive = receive_op(nullptr, 0, 1, ~0ull);
    on_device(send, source);
    on_device(receive, target);
    if (strided) {
      const uint64_t count = 10;
      const int64_t stride = 400;
      ASSERT_EQ(make_strided(1, 250, &count, &stride, &layout), TW_OK);
      send.layout = layout;
      send.length = 2500;
    }
    received = start(*world.right, receive);
    send.flags |= TW_OP_SYNC;
    sent = start(*world.left, send);
    world.settle(20);
    ASSERT_EQ(Engine::test(received), TW_IN_PROGRESS);
    ASSERT_EQ(Engine::test(sent), TW_IN_PROGRESS);
  }
  void TearDown() override {
    impl::release(layout);
    DeviceUsersOf::TearDown();
  }
  tw_memory *source = nullptr, *target = nullptr;
  Layout* layout = nullptr;
  tw_request received = TW_REQUEST_NONE, sent = TW_REQUEST_NONE;
};

TEST_F(DeviceUsersOfMessages, AReceiveEndsBehindTheSendersDevice) {
  begin(true);
  world.pb->lose(*world.lb);
  for (unsigned i = 0; i < 20; ++i) world.right->progress();
  EXPECT_EQ(Engine::test(received), TW_IN_PROGRESS) << "the sender's device is still to write to its buffer";
  EXPECT_EQ(world.right->arm(), TW_ERR_BUSY);
  run_device();
  EXPECT_FALSE(holds(target, 8));
  world.right->progress();
  EXPECT_EQ(Engine::test(received), TW_ERR_PEER_LOST) << "the sender has to progress for it";
  std::memset(bytes(target), 9, kSize);
  EXPECT_EQ(end(received), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(sent), TW_ERR_PEER_LOST);
  EXPECT_TRUE(holds(target, 9));
}

TEST_F(DeviceUsersOfMessages, AReceiveThatEndsTurnsAwayADeviceThatHasNotBegun) {
  occupy_left();
  begin(true);
  world.pb->lose(*world.lb);
  world.right->progress();
  EXPECT_EQ(Engine::test(received), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(received), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(sent), TW_ERR_PEER_LOST);
  EXPECT_TRUE(holds(target, 8));
  for (const tw_request request : before) EXPECT_TRUE(is_error(end(request)));
}

TEST_F(DeviceUsersOfMessages, ASendEndsBehindTheReceiversDevice) {
  begin(false);
  world.pa->lose(*world.la);
  for (unsigned i = 0; i < 20; ++i) world.left->progress();
  EXPECT_EQ(Engine::test(sent), TW_IN_PROGRESS) << "the receiver's device is still to read its buffer";
  run_device();
  world.left->progress();
  EXPECT_EQ(Engine::test(sent), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(sent), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(received), TW_ERR_PEER_LOST);
}

/// Its buffer is lent to the receiver's device.
TEST_F(DeviceUsersOfMessages, ASendThatEndsBehindItsEndpointNamesNone) {
  begin(false);
  tell(sent);
  world.left->remove(world.a);
  expect_late_end(sent);
  world.right->remove(world.b);
  EXPECT_TRUE(is_error(end(received)));
}

TEST_F(DeviceUsersOfMessages, AWorkerThatIsDestroyedWaitsForTheSendersDevice) {
  begin(true);
  world.pb->lose(*world.lb);
  world.right->progress();
  EXPECT_EQ(Engine::test(received), TW_IN_PROGRESS);
  run_device();  // without progress
  world.right.reset();
  EXPECT_EQ(Engine::test(received), TW_ERR_HANDLE);
  world.right = std::make_unique<Engine>(EngineOptions{});
}

/// And the next one does not find the loan of the one before.
TEST_F(DeviceUsersOfMessages, AMessageThatArrivesGivesTheBuffersBack) {
  for (const bool strided : {true, false, true}) {
    begin(strided);
    EXPECT_EQ(end(sent), TW_OK);
    EXPECT_EQ(end(received), TW_OK);
    EXPECT_FALSE(holds(target, 8));
    impl::release(std::exchange(layout, nullptr));
  }
}

}  // namespace
}  // namespace thalweg::test
