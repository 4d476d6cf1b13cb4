// SPDX-License-Identifier: Apache-2.0
// Block transfers over every kind of link: by frames, by the kernel, mapped, in one process.
#include "protocols/blocks.hpp"

#include <algorithm>
#include <numeric>

#include "protocols/active.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

enum class Way { frames, kernel, mapped, process };

FakeOptions options_of(Way way, double refuse) {
  FakeOptions options;
  options.refuse = refuse;
  options.copy_max = 8192;
  if (way == Way::kernel) options.features = kLinkSingleCopy;
  if (way == Way::mapped) options.features = kLinkMaps;
  if (way == Way::process) options.features = kLinkSameProcess;
  return options;
}

/// Right exports blocks of three memories (library-allocated where the way maps), left has some in three ranges of a buffer.
class Blocks : public ::testing::TestWithParam<std::tuple<Way, bool>> {
 protected:
  Blocks()
      : way(std::get<0>(GetParam())),
        world(options_of(way, std::get<1>(GetParam()) ? 0.3 : 0), seed()),
        registry(way == Way::process ? world.registry_a : world.registry_b) {}
  void SetUp() override {
    if (way == Way::process) world.la->peer.incarnation = world.lb->peer.incarnation = 11;
    world.connect();
  }
  void TearDown() override {
    there.reset();
    for (tw_memory* memory : memories) EXPECT_EQ(registry.release(memory), TW_OK);
  }

  /// Prepares both sides with blocks of `length` bytes; all bytes are random.
  void prepare(uint64_t length, uint64_t blocks) {
    auto mine = std::make_shared<BlockSpace>();
    there = std::make_shared<RemoteBlocks>();
    mine->length = there->space.length = length;
    stride = length + world.random() % 40;
    image.clear();
    here_bytes.resize(3 * blocks * stride + 64);
    for (std::byte& b : here_bytes) b = static_cast<std::byte>(world.random());
    for (uint64_t range = 0; range < 3; ++range) {
      BlockRange local;
      local.begin = reinterpret_cast<uintptr_t>(here_bytes.data());
      local.stride = stride;
      local.count = blocks;
      ASSERT_EQ(mine->add(local, 31 + range * blocks * stride, here_bytes.size()), TW_OK);
      add_remote(range, length, blocks);
    }
    here = mine;
  }
  void add_remote(uint64_t range, uint64_t length, uint64_t blocks) {
    const uint64_t gap = length + world.random() % 40, size = blocks * gap + 100;
    tw_memory* memory = nullptr;
    if (way == Way::mapped) {
      ASSERT_EQ(registry.allocate(size, 0, false, &memory), TW_OK);
      Mapping& mapping = world.pa->segments[memory->segment_id];
      mapping.address = memory->address;
      mapping.length = memory->length;
    } else {
      plain[range].resize(size);
      ASSERT_EQ(registry.register_memory(plain[range].data(), size, 0, &memory), TW_OK);
    }
    memories.push_back(memory);
    for (size_t i = 0; i < memory->length; ++i) memory->address[i] = static_cast<std::byte>(world.random());
    image.emplace_back(memory->address, memory->address + memory->length);
    KeyBody key;
    ASSERT_EQ(registry.export_range(memory, 0, memory->length, 0, &key), TW_OK);
    RemoteRegion* region = nullptr;
    ASSERT_EQ(import_region(world.a, key, &region), TW_OK);
    BlockRange remote;
    remote.stride = gap;
    remote.count = blocks;
    remote.region = static_cast<uint32_t>(there->regions.size());
    there->regions.push_back(region);
    ASSERT_EQ(there->space.add(remote, 50, memory->length), TW_OK);
  }
  /// n pairs; the destinations differ from each other.
  void choose(size_t n, bool put) {
    std::vector<uint32_t> destinations((put ? there->space : *here).count);
    std::iota(destinations.begin(), destinations.end(), 0u);
    std::shuffle(destinations.begin(), destinations.end(), world.random);
    pairs.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const auto any = static_cast<uint32_t>(world.random() % (put ? *here : there->space).count);
      pairs[i] = put ? BlockChoice{any, destinations[i]} : BlockChoice{destinations[i], any};
    }
  }
  std::byte* mine(uint32_t number) {
    const BlockRange* hint = nullptr;
    return reinterpret_cast<std::byte*>(BlockSpace::place(here->range_of(number, hint), number));
  }
  /// Of the expected contents of the other side.
  std::byte* theirs(uint32_t number) {
    const BlockRange* hint = nullptr;
    const BlockRange& range = there->space.range_of(number, hint);
    return image[range.region].data() + BlockSpace::place(range, number);
  }
  void expect_remote(const char* when) {
    for (size_t i = 0; i < memories.size(); ++i) {
      EXPECT_EQ(std::memcmp(memories[i]->address, image[i].data(), image[i].size()), 0) << when << ", memory " << i;
    }
  }

  BlockTransfer* transfer() {
    auto* made = new BlockTransfer;
    made->here = here;
    made->there = there;
    made->pairs.reset(new BlockChoice[pairs.size()]);
    std::copy(pairs.begin(), pairs.end(), made->pairs.get());
    return made;
  }
  static void notify(BlockTransfer* made, const std::string& text, int handler = -1) {
    made->notify = handler < 0 ? TW_NOTIFY_QUEUE : TW_NOTIFY_HANDLER;
    made->handler = static_cast<uint16_t>(handler);
    made->notification_length = static_cast<uint8_t>(text.size());
    std::memcpy(made->notification, text.data(), text.size());
  }
  OpDesc op(Verb verb, BlockTransfer* made) {
    OpDesc desc;
    desc.verb = verb;
    desc.peer = &world.a;
    desc.length = pairs.size() * here->length;
    desc.blocks = made;
    return desc;
  }
  Status start(const OpDesc& desc, tw_request* request) {
    const Status status = world.left->start(desc, Completion{request});
    release(desc.blocks);
    return status;
  }
  Status end(Status status, tw_request request) {
    if (status != TW_IN_PROGRESS) return status;
    EXPECT_TRUE(world.finish(request));
    status = Engine::test(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }
  Status run(const OpDesc& desc) {
    tw_request request = TW_REQUEST_NONE;
    const Status status = start(desc, &request);
    return end(status, request);
  }
  Status flush() {
    OpDesc desc;
    desc.verb = Verb::flush;
    desc.peer = &world.a;
    tw_request request = TW_REQUEST_NONE;
    const Status status = world.left->start(desc, Completion{&request});
    return end(status, request);
  }
  /// What the next notification says, or "none"; turns until one is there.
  std::string notification(unsigned turns = 100000) {
    Engine& target = *world.right;
    tw_notification next{};
    for (; turns > 0; --turns) {
      if (next_notification(target, &next) == TW_OK) {
        EXPECT_EQ(next.endpoint, world.b.endpoint);
        return {reinterpret_cast<char*>(next.data), next.length};
      }
      world.turn();
    }
    return "none";
  }
  void expect_put() {
    for (const BlockChoice& pair : pairs) std::copy_n(mine(pair.here), here->length, theirs(pair.there));
  }

  Way way;
  World world;
  Registry& registry;
  std::vector<std::byte> here_bytes, plain[3];
  std::vector<std::vector<std::byte>> image;
  std::vector<tw_memory*> memories;
  std::shared_ptr<const BlockSpace> here;
  std::shared_ptr<RemoteBlocks> there;
  std::vector<BlockChoice> pairs;
  uint64_t stride = 0;
};

constexpr struct {
  uint64_t length, blocks;
  size_t n;
} kSizes[] = {{1, 700, 2000}, {7, 3, 0}, {7, 3, 1}, {64, 500, 1400}, {4096, 20, 55}, {8191, 9, 27}, {30'001, 4, 11}};

TEST_P(Blocks, APutMovesWhatWasChosenAndNoOtherByte) {
  for (const auto& size : kSizes) {
    TearDown();
    memories.clear();
    prepare(size.length, size.blocks);
    choose(size.n, true);
    ASSERT_EQ(run(op(Verb::put_blocks, transfer())), TW_OK);
    ASSERT_EQ(flush(), TW_OK);
    expect_put();
    expect_remote("flushed");
  }
}

TEST_P(Blocks, AGetBringsWhatWasChosenAndNoOtherByte) {
  for (const auto& size : kSizes) {
    TearDown();
    memories.clear();
    prepare(size.length, size.blocks);
    choose(size.n, false);
    std::vector<std::byte> expected = here_bytes;
    for (const BlockChoice& pair : pairs) {
      std::copy_n(theirs(pair.there), size.length, expected.data() + (mine(pair.here) - here_bytes.data()));
    }
    ASSERT_EQ(run(op(Verb::get_blocks, transfer())), TW_OK);
    EXPECT_EQ(here_bytes, expected) << size.length;
    expect_remote("only read");
  }
}

TEST_P(Blocks, NeighboursOnBothSidesAreOnePiece) {
  prepare(64, 500);
  const bool dense = stride == 64;
  pairs.clear();
  for (uint32_t i = 0; i < 400; ++i) pairs.push_back({i, i});
  BlockTransfer* made = transfer();
  BlockPiece pieces[512];
  uint64_t bytes = 0;
  const size_t count = gather_pieces(*made, 10, 400 * 64, true, pieces, 512, &bytes);
  EXPECT_EQ(bytes, 400u * 64 - 10);
  EXPECT_EQ(count == 1, dense && there->space.ranges[0].stride == 64);
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += pieces[i].length;
  EXPECT_EQ(sum, bytes);
  release(made);
}

TEST_P(Blocks, RemoteCompletionMeansVisible) {
  prepare(1000, 60);
  choose(170, true);
  OpDesc put = op(Verb::put_blocks, transfer());
  put.flags = TW_OP_REMOTE;
  ASSERT_EQ(run(put), TW_OK);
  expect_put();
  expect_remote("remote completion");
}

TEST_P(Blocks, ANotificationComesBehindAllBlocks) {
  prepare(3001, 40);
  for (size_t n : {0u, 1u, 117u}) {
    choose(n, true);
    const std::string text = "blocks " + std::to_string(world.random());
    BlockTransfer* made = transfer();
    notify(made, text);
    tw_request request = TW_REQUEST_NONE;
    const Status status = start(op(Verb::put_blocks, made), &request);
    ASSERT_EQ(notification(), text);
    expect_put();
    expect_remote("notified");
    ASSERT_EQ(end(status, request), TW_OK);
  }
  choose(117, false);
  BlockTransfer* made = transfer();
  notify(made, std::string(TW_NOTIFICATION_MAX, 'x'));
  tw_request request = TW_REQUEST_NONE;
  const Status status = start(op(Verb::get_blocks, made), &request);
  ASSERT_EQ(notification(), std::string(TW_NOTIFICATION_MAX, 'x'));
  ASSERT_EQ(end(status, request), TW_OK);
  EXPECT_EQ(notification(50), "none");
}

/// Gets wait for the target's answers, puts do not; a get's first request goes when it is posted.
TEST_P(Blocks, NotificationsComeInTheOrderOfTheOperations) {
  prepare(3001, 40);
  constexpr Verb kVerbs[] = {Verb::get_blocks, Verb::put_blocks, Verb::get_blocks, Verb::get_blocks, Verb::put_blocks};
  std::vector<std::pair<Status, tw_request>> started;
  for (unsigned i = 0; i < 40; ++i) {
    const Verb verb = kVerbs[i % 5];
    choose(i % 7 == 0 ? 100 : i % 3, verb == Verb::put_blocks);
    BlockTransfer* made = transfer();
    notify(made, std::to_string(i));
    tw_request request = TW_REQUEST_NONE;
    const Status status = start(op(verb, made), &request);
    started.emplace_back(status, request);
    for (unsigned turns = i % 4; turns > 0; --turns) world.turn();
  }
  for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(notification(), std::to_string(i));
  for (const auto& [status, request] : started) EXPECT_EQ(end(status, request), TW_OK);
  EXPECT_EQ(world.a.one_sided.notices.first, nullptr);
  EXPECT_EQ(world.a.one_sided.gets, 0u);
}

/// One that fails has no notification, and delays no other's.
TEST_P(Blocks, ANotificationDoesNotWaitForOneThatFailed) {
  prepare(3001, 40);
  KeyBody gone = there->regions[0]->key;
  choose(60, false);
  BlockTransfer* made = transfer();
  notify(made, "never");
  tw_request failing = TW_REQUEST_NONE, request = TW_REQUEST_NONE;
  const Status began = start(op(Verb::get_blocks, made), &failing);
  const bool fails = began == TW_IN_PROGRESS && way == Way::frames;
  if (fails) {
    ASSERT_EQ(registry.revoke(gone.rkey), TW_OK);
  }
  pairs.assign(1, BlockChoice{0, 79});  // of the second memory
  made = transfer();
  notify(made, "second");
  const Status status = start(op(Verb::put_blocks, made), &request);
  if (fails) {
    EXPECT_EQ(notification(), "second");
    EXPECT_EQ(end(began, failing), TW_ERR_STALE);
  } else {
    EXPECT_EQ(notification(), "never");
    EXPECT_EQ(notification(), "second");
    EXPECT_EQ(end(began, failing), TW_OK);
  }
  EXPECT_EQ(end(status, request), TW_OK);
}

TEST_P(Blocks, AHandlerGetsItAsAnActiveMessage) {
  prepare(500, 40);
  choose(100, true);
  std::string seen;
  set_handler(
      *world.right, 9,
      [](void* arg, const tw_am_message* message) -> tw_status {
        EXPECT_EQ(message->length, 0u);
        *static_cast<std::string*>(arg) = {static_cast<const char*>(message->header), message->header_length};
        return TW_OK;
      },
      &seen);
  BlockTransfer* made = transfer();
  notify(made, "for nine", 9);
  ASSERT_EQ(run(op(Verb::put_blocks, made)), TW_OK);
  for (int i = 0; i < 100000 && seen.empty(); ++i) world.turn();
  EXPECT_EQ(seen, "for nine");
  expect_put();
  expect_remote("handled");
}

TEST_P(Blocks, NotificationsNobodyTakesAreBoundedAndNoneIsLost) {
  prepare(8, 4);
  constexpr int kMany = 9000;
  std::vector<tw_request> requests(kMany, TW_REQUEST_NONE);
  for (int i = 0; i < kMany; ++i) {
    choose(1, true);
    BlockTransfer* made = transfer();
    notify(made, std::to_string(i));
    ASSERT_GE(start(op(Verb::put_blocks, made), &requests[static_cast<size_t>(i)]), TW_OK);
  }
  world.settle(20000);
  EXPECT_LT(world.right->active().notifications.size(), size_t{kMany});
  EXPECT_LE(world.b.held_bytes, world.b.granted_bytes);
  for (int i = 0; i < kMany; ++i) ASSERT_EQ(notification(), std::to_string(i));
  for (tw_request request : requests) {
    if (request == TW_REQUEST_NONE) continue;
    ASSERT_TRUE(world.finish(request));
    EXPECT_EQ(Engine::release(request), TW_OK);
  }
  EXPECT_EQ(world.b.held_bytes, 0u);
}

TEST_P(Blocks, ARevokedKeyIsStaleAndTellsNobody) {
  prepare(5000, 10);
  choose(25, true);
  for (RemoteRegion* region : there->regions) {
    if (way == Way::mapped) world.pa->segments[region->key.segment].revoke(TW_ERR_STALE);  // what a port does when it is told
    ASSERT_EQ(registry.revoke(region->key.rkey), TW_OK);
  }
  BlockTransfer* made = transfer();
  notify(made, "never");
  OpDesc put = op(Verb::put_blocks, made);
  put.flags = TW_OP_REMOTE;
  EXPECT_EQ(run(put), TW_ERR_STALE);
  EXPECT_EQ(notification(200), "none");
  EXPECT_EQ(world.b.held_bytes, 0u);
  expect_remote("stale");
  choose(25, false);
  const std::vector<std::byte> before = here_bytes;
  EXPECT_EQ(run(op(Verb::get_blocks, transfer())), TW_ERR_STALE);
  EXPECT_EQ(here_bytes, before);
  EXPECT_EQ(world.a.state, TW_OK);
}

TEST_P(Blocks, AnUnansweredFailureIsToldByTheNextFlush) {
  if (way != Way::frames) return;  // the other ways answer at once
  prepare(100, 10);
  choose(25, true);
  for (RemoteRegion* region : there->regions) ASSERT_EQ(registry.revoke(region->key.rkey), TW_OK);
  EXPECT_EQ(run(op(Verb::put_blocks, transfer())), TW_OK);
  EXPECT_EQ(flush(), TW_ERR_STALE);
  EXPECT_EQ(flush(), TW_OK);
}

TEST_P(Blocks, AfterAFenceNothingOvertakes) {
  prepare(2000, 50);
  for (int round = 0; round < 10; ++round) {
    choose(140, true);
    tw_request requests[2] = {};
    const Status first = start(op(Verb::put_blocks, transfer()), &requests[0]);
    expect_put();
    ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
    choose(1, true);
    BlockTransfer* made = transfer();
    notify(made, "second");
    const Status second = start(op(Verb::put_blocks, made), &requests[1]);
    expect_put();
    ASSERT_EQ(notification(), "second");
    expect_remote("behind the fence");
    ASSERT_EQ(end(first, requests[0]), TW_OK);
    ASSERT_EQ(end(second, requests[1]), TW_OK);
  }
}

TEST_P(Blocks, ALargeCallGoesInTurns) {
  prepare(4096, 4000);
  choose(10'000, true);  // 40 MB
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(start(op(Verb::put_blocks, transfer()), &request), TW_IN_PROGRESS);
  Buffer word(world.random, 8), to(world.random, 8);
  tw_request received = TW_REQUEST_NONE;
  ASSERT_EQ(post_short(*world.right, to.data(), 8, 5, ~0ull, &received), TW_IN_PROGRESS);
  const Status sent = world.left->try_send(world.a, word.data(), 8, 5, 0);
  if (sent == TW_AGAIN) {
    const Status status = world.left->start(send_op(world.a, word, 5, 0), Completion{nullptr});
    ASSERT_GE(status, TW_OK);
  }
  ASSERT_TRUE(world.finish(received));
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS) << "the message waited for all blocks";
  Engine::release(received);
  ASSERT_EQ(end(TW_IN_PROGRESS, request), TW_OK);
  ASSERT_EQ(flush(), TW_OK);
  expect_put();
  expect_remote("in turns");
}

TEST_P(Blocks, LossEndsItOnce) {
  prepare(4096, 4000);
  for (const Verb verb : {Verb::put_blocks, Verb::get_blocks}) {
    choose(10'000, verb == Verb::put_blocks);
    tw_request request = TW_REQUEST_NONE;
    BlockTransfer* made = transfer();
    notify(made, "late");
    if (verb == Verb::get_blocks && world.a.state != TW_OK) {
      EXPECT_EQ(start(op(verb, made), &request), TW_ERR_PEER_LOST);
      break;
    }
    ASSERT_EQ(start(op(verb, made), &request), TW_IN_PROGRESS);
    world.turn();
    world.pa->lose(*world.la);
    ASSERT_TRUE(world.finish(request));
    EXPECT_EQ(Engine::test(request), TW_ERR_PEER_LOST);
    EXPECT_EQ(there.use_count(), 1) << "the run still holds the blocks";
    EXPECT_EQ(Engine::release(request), TW_OK);
  }
}

TEST_P(Blocks, WhatIsReleasedBehindAnOperationLivesUntilItEnds) {
  prepare(4096, 600);
  choose(1500, true);
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(start(op(Verb::put_blocks, transfer()), &request), TW_IN_PROGRESS);
  expect_put();
  there.reset();
  here.reset();
  ASSERT_EQ(end(TW_IN_PROGRESS, request), TW_OK);
  ASSERT_EQ(flush(), TW_OK);
  expect_remote("released");
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Way, bool>>& info) {
  constexpr const char* kNames[] = {"frames", "kernel", "mapped", "process"};
  return std::string(kNames[static_cast<int>(std::get<0>(info.param))]) + (std::get<1>(info.param) ? "_refusing" : "");
}
INSTANTIATE_TEST_SUITE_P(Ways, Blocks,
                         ::testing::Combine(::testing::Values(Way::frames, Way::kernel, Way::mapped, Way::process),
                                            ::testing::Bool()),
                         name_of);

}  // namespace
}  // namespace thalweg::test
