// SPDX-License-Identifier: Apache-2.0
// TW_OP_REMOTE: what has to be at the target when an operation completes, and who is told of one that fails there.
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/one_sided.hpp"
#include "unit/protocols/support.hpp"

namespace thalweg::test {
namespace {

/// Memory and a signal of the right side, which the left one reaches by frames alone.
class RemoteCompletion : public testing::Test {
 protected:
  void SetUp() override {
    world.connect();
    world.settle();
    ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
    ASSERT_EQ(pool.export_signal(signal, &signal_key), TW_OK);
    ASSERT_EQ(import_region(world.a, signal_key, &signal_region), TW_OK);
    lend(to, &key, &region);
  }
  void TearDown() override {
    for (RemoteRegion* one : {region, signal_region, other}) release_region(one);
    pool.destroy(signal);
  }
  void lend(uint64_t& word, KeyBody* made, RemoteRegion** out) {
    tw_memory* memory = nullptr;
    ASSERT_EQ(world.registry_b.register_memory(&word, sizeof word, 0, &memory), TW_OK);
    ASSERT_EQ(world.registry_b.export_range(memory, 0, sizeof word, 0, made), TW_OK);
    ASSERT_EQ(import_region(world.a, *made, out), TW_OK);
  }
  OpDesc put(uint32_t flags) {
    OpDesc op;
    op.verb = Verb::put;
    op.peer = &world.a;
    op.address = reinterpret_cast<std::byte*>(&from);
    op.length = sizeof from;
    op.remote = region;
    op.flags = flags;
    return op;
  }
  OpDesc with_signal(OpDesc op) {
    op.signal = signal_region;
    op.signal_op = TW_SIGNAL_ADD;
    op.signal_value = 1;
    return op;
  }
  static OpDesc with_notice(OpDesc op) {
    op.flags |= kOpNotify;
    op.tag = kNotifyQueue;
    op.immediate = 5;
    return op;
  }
  tw_request start(const OpDesc& op) {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(world.left->start(op, {&request}), TW_IN_PROGRESS);
    return request;
  }
  /// Its frames go, and the target takes the first one; then its answers come.
  void take_one_frame() {
    world.left->progress();
    world.pb->progress(1);
    for (int i = 0; i < 5; ++i) world.left->progress();
  }
  Status end(tw_request request) {
    world.settle();
    const Status status = Engine::test(request);
    Engine::release(request);
    return status;
  }
  Status flush() {
    OpDesc op;
    op.verb = Verb::flush;
    op.peer = &world.a;
    tw_request request = TW_REQUEST_NONE;
    const Status status = world.left->start(op, {&request});
    if (status != TW_IN_PROGRESS) return status;
    world.finish(request);
    const Status ended = Engine::test(request);
    Engine::release(request);
    return ended;
  }

  World world{FakeOptions{}, seed()};
  SignalPool pool{world.registry_b};
  tw_signal* signal = nullptr;
  KeyBody key, signal_key;
  RemoteRegion *region = nullptr, *signal_region = nullptr, *other = nullptr;
  uint64_t from = seed(), to = 0, beside = 0;
};

TEST_F(RemoteCompletion, CoversThePutsSignal) {
  const tw_request request = start(with_signal(put(TW_OP_REMOTE)));
  take_one_frame();
  EXPECT_EQ(to, from);
  EXPECT_EQ(signal_read(*signal), 0u);
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  EXPECT_EQ(end(request), TW_OK);
  EXPECT_EQ(signal_read(*signal), 1u);
}

TEST_F(RemoteCompletion, CoversThePutsNotification) {
  const tw_request request = start(with_notice(put(TW_OP_REMOTE)));
  take_one_frame();
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  EXPECT_EQ(end(request), TW_OK);
  tw_notification notice{};
  EXPECT_EQ(next_notification(*world.right, &notice), TW_OK);
  EXPECT_EQ(to, from);
}

/// Of data that fails, too, which the answer alone reports: the next flush has nothing to tell.
TEST_F(RemoteCompletion, FailsWithTheSignalAndWithTheData) {
  ASSERT_EQ(world.registry_b.revoke(signal_key.rkey), TW_OK);
  EXPECT_EQ(end(start(with_signal(put(TW_OP_REMOTE)))), TW_ERR_STALE);
  EXPECT_EQ(flush(), TW_OK);
  ASSERT_EQ(world.registry_b.revoke(key.rkey), TW_OK);
  EXPECT_EQ(end(start(with_notice(put(TW_OP_REMOTE)))), TW_ERR_STALE);
  EXPECT_EQ(flush(), TW_OK);
}

/// Nobody holds it and nothing calls: the next flush tells, with TW_OP_REMOTE and without.
TEST_F(RemoteCompletion, AFailureThatNobodyHoldsIsToldByTheNextFlush) {
  ASSERT_EQ(world.registry_b.revoke(key.rkey), TW_OK);
  for (const uint32_t flags : {0u, uint32_t{TW_OP_REMOTE}}) {
    (void)world.left->start(put(flags), {});
    world.settle();
    EXPECT_EQ(flush(), TW_ERR_STALE) << flags;
    EXPECT_EQ(flush(), TW_OK) << flags;
    OpDesc add = put(flags);
    add.verb = Verb::atomic;
    add.word = 8;
    add.atomic_op = TW_ATOMIC_ADD;
    add.operand = 1;
    (void)world.left->start(add, {});
    world.settle();
    EXPECT_EQ(flush(), TW_ERR_STALE) << flags;
  }
}

/// A put of no bytes whose signal waits for room: a part of another operation, which steps ahead, neither fails it nor lets it pass.
TEST_F(RemoteCompletion, NoPartComesBetweenAPutOfNoBytesAndItsSignal) {
  KeyBody other_key;
  lend(beside, &other_key, &other);
  for (const bool fails : {false, true}) {
    const uint64_t before = signal_read(*signal);
    ASSERT_EQ(world.registry_b.revoke(fails ? key.rkey : other_key.rkey), TW_OK);
    OpDesc empty = with_signal(put(0));
    empty.length = 0;
    world.pa->allowed = 1;
    const tw_request request = start(empty);
    world.pa->allowed = SIZE_MAX;
    OpDesc part = put(kOpPart);
    part.remote = other;
    (void)launch_one_sided(*world.left, part, {}, kPutFrames);
    (void)end(request);
    EXPECT_EQ(signal_read(*signal) - before, fails ? 0u : 1u);
  }
}

}  // namespace

/// Mapped memory whose import is under way when the put is posted: the notification goes by a frame all the same.
TEST(RemoteCompletionOfMapped, CoversANotificationBehindAnImport) {
  FakeOptions options;
  options.features = kLinkMaps;
  options.import_slow = true;
  World world(options, seed());
  world.connect();
  tw_memory* memory = nullptr;
  ASSERT_EQ(world.registry_b.allocate(4096, 0, false, &memory), TW_OK);
  world.pa->segments[memory->segment_id].address = memory->address;
  world.pa->segments[memory->segment_id].length = memory->length;
  KeyBody key;
  ASSERT_EQ(world.registry_b.export_range(memory, 0, 4096, 0, &key), TW_OK);
  RemoteRegion* region = nullptr;
  ASSERT_EQ(import_region(world.a, key, &region), TW_OK);
  for (int round = 0; round < 2; ++round) {
    uint64_t value = seed();
    OpDesc op;
    op.verb = Verb::put;
    op.peer = &world.a;
    op.address = reinterpret_cast<std::byte*>(&value);
    op.length = sizeof value;
    op.remote = region;
    op.flags = TW_OP_REMOTE | kOpNotify;
    op.tag = kNotifyQueue;
    op.immediate = 1;
    tw_request request = TW_REQUEST_NONE;
    ASSERT_EQ(world.left->start(op, {&request}), TW_IN_PROGRESS);
    for (int i = 0; i < 20; ++i) world.left->progress();
    EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS) << "the target has seen no frame, round " << round;
    world.settle();
    EXPECT_EQ(Engine::test(request), TW_OK);
    Engine::release(request);
    tw_notification notice{};
    EXPECT_EQ(next_notification(*world.right, &notice), TW_OK);
  }
  release_region(region);
}

}  // namespace thalweg::test
