// SPDX-License-Identifier: Apache-2.0
// Large transfers are cut, and every small message goes between two of their fragments: counted in bytes that the port
// accepted, in its order, which is the order of arrival.

#include "protocols/one_sided.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

constexpr size_t kLarge = 3u << 20;
constexpr uint64_t kSmallTag = 77;

enum class Large { rendezvous, put };

struct Case {
  const char* name;
  uint32_t features;
  Large large;
};

class Overtaking : public ::testing::TestWithParam<Case> {
 protected:
  static FakeOptions options() {
    FakeOptions options;
    options.features = GetParam().features;
    options.capacity = 3;  // the port is full most of the time, as a connection under load is
    options.land = (options.features & kLinkByReference) != 0;
    return options;
  }
  Overtaking() : world(options(), seed()), out(world.random, kLarge), in(world.random, kLarge) { world.connect(); }

  void start_large() {
    if (GetParam().large == Large::rendezvous) {
      ASSERT_EQ(world.right->post_receive(receive_op(in.data(), kLarge, 1, UINT64_MAX), {&arrived}), TW_IN_PROGRESS);
      ASSERT_EQ(world.left->start(send_op(world.a, out, 1, 0), {&sent}), TW_IN_PROGRESS);
      return;
    }
    tw_memory* memory = nullptr;
    KeyBody key;
    ASSERT_EQ(world.registry_b.register_memory(in.data(), kLarge, 0, &memory), TW_OK);
    ASSERT_EQ(world.registry_b.export_range(memory, 0, 0, 0, &key), TW_OK);
    ASSERT_EQ(import_region(world.a, key, &remote), TW_OK);
    OpDesc put;
    put.verb = Verb::put;
    put.peer = &world.a;
    put.address = out.data();
    put.length = kLarge;
    put.remote = remote;
    put.flags = TW_OP_REMOTE;
    ASSERT_EQ(world.left->start(put, {&sent}), TW_IN_PROGRESS);
  }
  static Frame large_frame() { return GetParam().large == Large::put ? Frame::put : Frame::data; }
  /// Bytes of the large transfer that the port has accepted.
  size_t large_bytes() const { return world.pa->payload(large_frame()); }

  World world;
  Buffer out, in;
  tw_request arrived = TW_REQUEST_NONE, sent = TW_REQUEST_NONE;
  RemoteRegion* remote = nullptr;
};

TEST_P(Overtaking, ASmallMessageWaitsForAtMostOneFragment) {
  start_large();
  const size_t fragment = std::max(world.a.limits.fragment, world.a.limits.reference_fragment);
  ASSERT_GT(kLarge / fragment, 2u);
  unsigned overtaken = 0;
  while (Engine::test(sent) == TW_IN_PROGRESS) {
    world.turn();
    if (large_bytes() == 0 || large_bytes() == kLarge) continue;
    Buffer small(world.random, 1 + world.random() % 32), to(world.random, small.size());
    tw_request receive = TW_REQUEST_NONE, send = TW_REQUEST_NONE;
    ASSERT_EQ(post(world, to, kSmallTag, UINT64_MAX, &receive), TW_IN_PROGRESS);
    const size_t before = large_bytes(), messages = world.pa->frames(Frame::tagged);
    if (world.left->try_send(world.a, small.data(), small.size(), kSmallTag, 0) != TW_OK) {
      ASSERT_GE(world.left->start(send_op(world.a, small, kSmallTag, 0), {&send}), TW_OK);
    }
    while (world.pa->frames(Frame::tagged) == messages) {
      world.turn();
      ASSERT_EQ(world.a.state, TW_OK);
    }
    EXPECT_LE(world.pa->payload_before_last(Frame::tagged, large_frame()) - before, fragment);
    ++overtaken;
    ASSERT_TRUE(world.finish(receive));
    EXPECT_TRUE(to.holds(small.data(), small.size()));
    EXPECT_EQ(Engine::release(receive), TW_OK);
    if (send != TW_REQUEST_NONE) {
      ASSERT_TRUE(world.finish(send));
      EXPECT_EQ(Engine::release(send), TW_OK);
    }
  }
  EXPECT_GT(overtaken, 1u);
  EXPECT_EQ(Engine::test(sent), TW_OK);
  EXPECT_EQ(Engine::release(sent), TW_OK);
  if (arrived != TW_REQUEST_NONE) {
    ASSERT_TRUE(world.finish(arrived));
    EXPECT_EQ(Engine::release(arrived), TW_OK);
  }
  EXPECT_TRUE(in.holds(out.data(), kLarge));
  EXPECT_TRUE(in.guarded());
  release_region(remote);
}

INSTANTIATE_TEST_SUITE_P(Links, Overtaking,
                         ::testing::Values(Case{"rendezvous_copied", 0, Large::rendezvous},
                                           Case{"rendezvous_referenced", kLinkByReference, Large::rendezvous},
                                           Case{"put_copied", 0, Large::put},
                                           Case{"put_referenced", kLinkByReference, Large::put}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace thalweg::test
