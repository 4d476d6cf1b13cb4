// SPDX-License-Identifier: Apache-2.0
// One-sided operations that come before the endpoint is connected or the target's memory is imported: they wait in order, and
// then need nothing of the target, not even a turn of its progress.
#include "protocols/one_sided.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

/// Right's library memory, signal and the keys of both, importable at left by the next progress after it was asked for.
class Deferred : public ::testing::TestWithParam<bool> {
 protected:
  static FakeOptions options() {
    FakeOptions options;
    options.features = kLinkMaps;
    options.import_slow = true;
    return options;
  }
  Deferred() : world(options(), seed()), pool(world.registry_b) {}
  void SetUp() override {
    ASSERT_EQ(world.registry_b.allocate(kSize, 0, false, &memory), TW_OK);
    ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 100, &signal), TW_OK);
    for (tw_memory* shared : {memory, signal->memory}) {
      world.pa->segments[shared->segment_id].address = shared->address;
      world.pa->segments[shared->segment_id].length = shared->length;
    }
    for (size_t i = 0; i < kSize; ++i) memory->address[i] = static_cast<std::byte>(world.random());
    image.assign(memory->address, memory->address + kSize);
    if (connected_first()) world.connect();
    KeyBody signal_key;
    ASSERT_EQ(world.registry_b.export_range(memory, 0, kSize, 0, &key), TW_OK);
    ASSERT_EQ(pool.export_signal(signal, &signal_key), TW_OK);
    ASSERT_EQ(import_region(world.a, key, &remote), TW_OK);
    ASSERT_EQ(import_region(world.a, signal_key, &word), TW_OK);
  }
  void TearDown() override {
    release_region(remote);
    release_region(word);
    pool.destroy(signal);
  }
  bool connected_first() const { return GetParam(); }
  OpDesc op(Verb verb, Buffer& buffer, uint64_t offset) {
    OpDesc desc;
    desc.verb = verb;
    desc.peer = &world.a;
    desc.address = buffer.data();
    desc.length = buffer.size();
    desc.remote = remote;
    desc.remote_offset = offset;
    return desc;
  }
  tw_request start(const OpDesc& desc) {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(world.left->start(desc, {&request}), TW_IN_PROGRESS);
    return request;
  }
  tw_request flush() {
    OpDesc desc;
    desc.verb = Verb::flush;
    desc.peer = &world.a;
    return start(desc);
  }
  /// Only left progresses: how the request ended.
  Status alone(tw_request request) {
    for (int i = 0; i < 20 && Engine::test(request) == TW_IN_PROGRESS; ++i) world.left->progress();
    const Status status = Engine::test(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }

  static constexpr size_t kSize = 20'000;
  World world;
  SignalPool pool;
  std::vector<std::byte> image;
  KeyBody key;
  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  RemoteRegion *remote = nullptr, *word = nullptr;
};

TEST_P(Deferred, EverythingWaitsInOrderAndNeedsNoTarget) {
  Buffer first(world.random, 5001), second(world.random, 5001), back(world.random, 5001);
  OpDesc put = op(Verb::put, first, 7);
  put.flags = TW_OP_NO_WAIT;
  EXPECT_EQ(world.left->start(put, {}), TW_AGAIN);
  put.flags = 0;
  const tw_request early = start(put);
  ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
  OpDesc over = op(Verb::put, second, 7);
  over.signal = word;
  over.signal_op = TW_SIGNAL_ADD;
  over.signal_value = 3;
  over.flags = TW_OP_AFTER_ALL;
  const tw_request late = start(over);
  ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
  OpDesc atomic = op(Verb::atomic, second, 16'000);
  uint64_t old = 0, before = 0;
  std::memcpy(&before, memory->address + 16'000, 8);
  atomic.word = 8;
  atomic.atomic_op = TW_ATOMIC_ADD;
  atomic.operand = world.random();
  atomic.result = &old;
  const tw_request add = start(atomic), get = start(op(Verb::get, back, 7));
  OpDesc post;
  post.verb = Verb::signal;
  post.peer = &world.a;
  post.signal = word;
  post.signal_op = TW_SIGNAL_ADD;
  post.signal_value = 4;
  post.flags = TW_OP_AFTER_ALL;
  const tw_request told = start(post), flushed = flush();
  if (!connected_first()) world.connect();
  for (tw_request request : {early, late, add, get, told, flushed}) ASSERT_EQ(alone(request), TW_OK);
  std::copy_n(second.data(), second.size(), image.begin() + 7);
  const uint64_t after = before + atomic.operand;
  std::memcpy(image.data() + 16'000, &after, 8);
  EXPECT_EQ(std::memcmp(memory->address, image.data(), kSize), 0);
  EXPECT_EQ(old, before);
  EXPECT_TRUE(back.holds(second.data(), second.size()));
  EXPECT_TRUE(back.guarded());
  EXPECT_EQ(signal_read(*signal), 107u);
  EXPECT_FALSE(unconfirmed(world.a));
  EXPECT_EQ(world.pa->frames(Frame::put) + world.pa->frames(Frame::get) + world.pa->frames(Frame::flush), 0u);
}

TEST_P(Deferred, ARegionMayBeReleasedBehindItsPut) {
  Buffer source(world.random, 3000);
  const tw_request put = start(op(Verb::put, source, 11)), flushed = flush();
  release_region(std::exchange(remote, nullptr));
  if (!connected_first()) world.connect();
  ASSERT_EQ(alone(put), TW_OK);
  ASSERT_EQ(alone(flushed), TW_OK);
  std::copy_n(source.data(), source.size(), image.begin() + 11);
  EXPECT_EQ(std::memcmp(memory->address, image.data(), kSize), 0);
  EXPECT_EQ(world.pa->segments[memory->segment_id].users, 0u) << "the mapping is still counted as used";
}

TEST_P(Deferred, AFailureOfWhatNobodyHoldsIsToldByTheNextFlush) {
  Buffer source(world.random, 3000);
  ASSERT_EQ(world.left->start(op(Verb::put, source, 11), {}), TW_IN_PROGRESS);
  const tw_request first = flush(), second = flush();
  world.pa->segments[memory->segment_id].revoke(TW_ERR_STALE);  // what a port does when it is told
  remote->revoked = true;
  if (!connected_first()) world.connect();
  EXPECT_EQ(alone(first), TW_ERR_STALE);
  EXPECT_EQ(alone(second), TW_OK);
  EXPECT_EQ(std::memcmp(memory->address, image.data(), kSize), 0);
}

TEST_P(Deferred, ALossEndsWhatWaits) {
  Buffer source(world.random, 3000), back(world.random, 3000);
  const std::vector<tw_request> requests{start(op(Verb::put, source, 0)), start(op(Verb::get, back, 0)), flush()};
  world.left->fail(world.a, TW_ERR_PEER_LOST, "the test ends it");
  for (tw_request request : requests) EXPECT_EQ(alone(request), TW_ERR_PEER_LOST);
  EXPECT_EQ(remote->references.load(), 1u);
  EXPECT_EQ(std::memcmp(memory->address, image.data(), kSize), 0);
  EXPECT_TRUE(back.guarded());
}

INSTANTIATE_TEST_SUITE_P(When, Deferred, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "connected" : "not_connected_yet"; });

}  // namespace
}  // namespace thalweg::test
