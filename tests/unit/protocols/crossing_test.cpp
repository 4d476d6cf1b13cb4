// SPDX-License-Identifier: Apache-2.0
// Both sides have something to wait for, and each needs an answer of the other one.
#include "protocols/one_sided.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

/// Each side exports memory that the other one reaches by frames.
class Crossing : public ::testing::Test {
 protected:
  static FakeOptions options() {
    FakeOptions options;
    options.copy_max = options.fragment = 4096;
    return options;
  }
  Crossing() : world(options(), seed()), of_right(world.random, kSize), of_left(world.random, kSize) {
    world.connect();
    from_right = import(world.registry_b, world.a, of_right);
    from_left = import(world.registry_a, world.b, of_left);
  }
  ~Crossing() override {
    release_region(from_right);
    release_region(from_left);
  }
  static RemoteRegion* import(Registry& registry, Peer& peer, Buffer& memory) {
    tw_memory* registered = nullptr;
    KeyBody key;
    RemoteRegion* region = nullptr;
    EXPECT_EQ(registry.register_memory(memory.data(), memory.size(), 0, &registered), TW_OK);
    EXPECT_EQ(registry.export_range(registered, 0, memory.size(), 0, &key), TW_OK);
    EXPECT_EQ(import_region(peer, key, &region), TW_OK);
    return region;
  }
  static tw_request get(Engine& engine, Peer& peer, RemoteRegion* from, Buffer& to) {
    OpDesc op;
    op.verb = Verb::get;
    op.peer = &peer;
    op.remote = from;
    op.address = to.data();
    op.length = to.size();
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(engine.start(op, {&request}), TW_IN_PROGRESS);
    return request;
  }
  void expect_ends(tw_request request) {
    ASSERT_TRUE(world.finish(request, 20'000));
    EXPECT_EQ(Engine::test(request), TW_OK);
    EXPECT_EQ(Engine::release(request), TW_OK);
  }

  static constexpr size_t kSize = 400'000;  // more fragments than a get asks for at a time
  World world;
  Buffer of_right, of_left;
  RemoteRegion *from_right = nullptr, *from_left = nullptr;
};

TEST_F(Crossing, GetsWithAFenceBehindThem) {
  Buffer left(world.random, 8), right(world.random, 8);
  const tw_request one = get(*world.left, world.a, from_right, left), other = get(*world.right, world.b, from_left, right);
  ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
  ASSERT_EQ(fence_one_sided(*world.right, world.b), TW_OK);
  expect_ends(one);
  expect_ends(other);
  EXPECT_TRUE(left.holds(of_right.data(), 8));
  EXPECT_TRUE(right.holds(of_left.data(), 8));
}

TEST_F(Crossing, GetsOfMoreThanTheirWindow) {
  Buffer left(world.random, kSize), right(world.random, kSize);
  const tw_request one = get(*world.left, world.a, from_right, left), other = get(*world.right, world.b, from_left, right);
  expect_ends(one);
  expect_ends(other);
  EXPECT_TRUE(left.holds(of_right.data(), kSize));
  EXPECT_TRUE(right.holds(of_left.data(), kSize));
}

}  // namespace
}  // namespace thalweg::test
