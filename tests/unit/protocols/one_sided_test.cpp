// SPDX-License-Identifier: Apache-2.0
// Put, get, atomics, signals, flush and fence over every kind of link: by frames, by the kernel, mapped, in one process.
#include "protocols/one_sided.hpp"

#include <functional>

#include "support.hpp"

namespace thalweg::test {
namespace {

enum class Way { frames, references, kernel, mapped, process };

FakeOptions options_of(Way way, double refuse) {
  FakeOptions options;
  options.refuse = refuse;
  options.copy_max = 8192;
  if (way == Way::references) options.features = kLinkByReference;
  if (way == Way::kernel) options.features = kLinkSingleCopy;
  if (way == Way::mapped) options.features = kLinkMaps;
  if (way == Way::process) options.features = kLinkSameProcess;
  return options;
}

/// Right exports `memory` (library-allocated where the way maps), left imports it.
class OneSided : public ::testing::TestWithParam<std::tuple<Way, bool>> {
 protected:
  static constexpr size_t kSize = 300'000, kGuard = 512;
  OneSided()
      : way(std::get<0>(GetParam())),
        world(options_of(way, std::get<1>(GetParam()) ? 0.3 : 0), seed()),
        pool(right_registry()),
        registry(right_registry()) {}
  Registry& right_registry() {
    // In one process both engines look keys up in the same registry.
    return way == Way::process ? world.registry_a : world.registry_b;
  }
  void SetUp() override {
    if (way == Way::process) {
      world.la->peer.incarnation = 11;
      world.lb->peer.incarnation = 11;
    }
    world.connect();
    if (way == Way::mapped) {
      ASSERT_EQ(registry.allocate(kSize + 2 * kGuard, 0, false, &memory), TW_OK);
      share(memory);
    } else {
      plain.resize(kSize + 2 * kGuard);
      ASSERT_EQ(registry.register_memory(plain.data(), plain.size(), 0, &memory), TW_OK);
    }
    for (size_t i = 0; i < memory->length; ++i) memory->address[i] = static_cast<std::byte>(world.random());
    image.assign(memory->address, memory->address + memory->length);
    remote = import(memory, kGuard, kSize, 0);
    ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 100, &signal), TW_OK);
    if (way == Way::mapped) share(signal->memory);
    KeyBody key;
    ASSERT_EQ(pool.export_signal(signal, &key), TW_OK);
    ASSERT_EQ(import_region(world.a, key, &remote_signal), TW_OK);
  }
  void TearDown() override {
    for (RemoteRegion* region : regions) release_region(region);
    release_region(remote_signal);
    pool.destroy(signal);
  }
  void share(tw_memory* allocated) {
    Mapping& mapping = world.pa->segments[allocated->segment_id];
    mapping.address = allocated->address;
    mapping.length = allocated->length;
  }
  RemoteRegion* import(tw_memory* from, size_t offset, size_t length, uint32_t access) {
    KeyBody key;
    EXPECT_EQ(registry.export_range(from, offset, length, access, &key), TW_OK);
    RemoteRegion* region = nullptr;
    EXPECT_EQ(import_region(world.a, key, &region), TW_OK);
    regions.push_back(region);
    return region;
  }
  OpDesc op(Verb verb, std::byte* address, size_t length, uint64_t offset) {
    OpDesc desc;
    desc.verb = verb;
    desc.peer = &world.a;
    desc.address = address;
    desc.length = length;
    desc.remote = remote;
    desc.remote_offset = offset;
    return desc;
  }
  /// Starts and waits; how it ended.
  Status run(const OpDesc& desc) {
    tw_request request = TW_REQUEST_NONE;
    Status status = world.left->start(desc, Completion{&request});
    if (status != TW_IN_PROGRESS) return status;
    EXPECT_TRUE(world.finish(request));
    status = Engine::test(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }
  Status flush() {
    OpDesc desc;
    desc.verb = Verb::flush;
    desc.peer = &world.a;
    return run(desc);
  }
  std::byte* target(uint64_t offset) { return memory->address + kGuard + offset; }
  void expect_image() { EXPECT_EQ(std::memcmp(memory->address, image.data(), image.size()), 0); }

  Way way;
  World world;
  SignalPool pool;
  Registry& registry;
  std::vector<std::byte> plain, image;
  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  RemoteRegion *remote = nullptr, *remote_signal = nullptr;
  std::vector<RemoteRegion*> regions;
};

TEST_P(OneSided, PutThenFlushShowsEveryByteAndNoOther) {
  for (size_t length : {0u, 1u, 3u, 8u, 63u, 4095u, 8192u, 8193u, 50'001u, 299'999u}) {
    Buffer source(world.random, length);
    const uint64_t offset = world.random() % (kSize - length + 1);
    ASSERT_EQ(run(op(Verb::put, source.data(), length, offset)), TW_OK);
    ASSERT_EQ(flush(), TW_OK);
    std::copy_n(source.data(), length, image.data() + kGuard + offset);
    expect_image();
  }
}

TEST_P(OneSided, RemoteCompletionMeansVisible) {
  for (size_t length : {1u, 8u, 20'001u, 123'457u}) {
    Buffer source(world.random, length);
    OpDesc put = op(Verb::put, source.data(), length, 7);
    put.flags = TW_OP_REMOTE;
    ASSERT_EQ(run(put), TW_OK);
    std::copy_n(source.data(), length, image.data() + kGuard + 7);
    expect_image();
  }
}

TEST_P(OneSided, GetBringsEveryByteAndNoOther) {
  for (size_t length : {0u, 1u, 8u, 4097u, 8192u, 65'537u, 299'999u}) {
    Buffer to(world.random, length);
    const uint64_t offset = world.random() % (kSize - length + 1);
    ASSERT_EQ(run(op(Verb::get, to.data(), length, offset)), TW_OK);
    EXPECT_TRUE(to.holds(target(offset), length));
    EXPECT_TRUE(to.guarded());
  }
}

TEST_P(OneSided, ARegionMayBeReleasedBehindItsGet) {
  for (size_t length : {1u, 100u, 8192u, 50'001u}) {
    Buffer to(world.random, length);
    RemoteRegion* const mine = import(memory, kGuard, kSize, 0);
    std::erase(regions, mine);
    OpDesc get = op(Verb::get, to.data(), length, 5);
    get.remote = mine;
    tw_request request = TW_REQUEST_NONE;
    const Status started = world.left->start(get, {&request});
    release_region(mine);
    if (started == TW_IN_PROGRESS) {
      ASSERT_TRUE(world.finish(request));
      EXPECT_EQ(Engine::test(request), TW_OK);
      EXPECT_EQ(Engine::release(request), TW_OK);
    } else {
      EXPECT_EQ(started, TW_OK);
    }
    EXPECT_TRUE(to.holds(target(5), length));
    EXPECT_TRUE(to.guarded());
  }
}

TEST_P(OneSided, StridedOnEitherSide) {
  for (int round = 0; round < 40; ++round) {
    const uint64_t block = 1 + world.random() % 3000, count = 1 + world.random() % 30;
    Strided local(world.random, block, count);
    const uint64_t rows[] = {count};
    const int64_t gap[] = {static_cast<int64_t>(block + world.random() % 5000) * (round % 3 == 0 ? -1 : 1)};
    Layout* layout = nullptr;
    ASSERT_EQ(make_strided(1, block, rows, gap, &layout), TW_OK);
    const bool here = round % 2 == 0, there = round % 4 < 3;
    // What is flat there must fit behind the offset; what is strided reaches at most 30 * 8000 bytes to either side of it.
    const uint64_t offset = there ? static_cast<uint64_t>(std::max<int64_t>(0, -layout->first)) + world.random() % 100
                                  : world.random() % (kSize - block * count + 1);
    Buffer flat(world.random, block * count);
    OpDesc put = op(Verb::put, here ? local.base() : flat.data(), block * count, offset);
    put.layout = here ? local.layout : nullptr;
    put.remote_layout = there ? layout : nullptr;
    const std::vector<std::byte> packed =
        here ? local.packed() : std::vector<std::byte>(flat.data(), flat.data() + flat.size());
    ASSERT_EQ(run(put), TW_OK);
    ASSERT_EQ(flush(), TW_OK);
    LayoutCursor cursor(image.data() + kGuard + offset, put.remote_layout, packed.size());
    unpack(cursor, packed.data(), packed.size());
    expect_image();

    Strided back(world.random, block, count);
    OpDesc get = op(Verb::get, back.base(), block * count, offset);
    get.layout = back.layout;
    get.remote_layout = put.remote_layout;
    ASSERT_EQ(run(get), TW_OK);
    EXPECT_EQ(back.packed(), packed);
    EXPECT_TRUE(back.gaps_untouched());
    release(layout);
  }
}

TEST_P(OneSided, ListsOfManyPieces) {
  std::vector<tw_piece> pieces;
  uint64_t at = 5, total = 0;
  while (pieces.size() < 5000) {
    pieces.push_back({at, 1 + world.random() % 40});
    total += pieces.back().length;
    at += pieces.back().length + 1 + world.random() % 15;
  }
  std::shuffle(pieces.begin(), pieces.end(), world.random);
  Layout* list = nullptr;
  ASSERT_EQ(make_list(pieces.data(), pieces.size(), &list), TW_OK);
  Buffer source(world.random, total), back(world.random, total);
  OpDesc put = op(Verb::put, source.data(), total, 3), get = op(Verb::get, back.data(), total, 3);
  put.remote_layout = get.remote_layout = list;
  ASSERT_EQ(run(put), TW_OK);
  ASSERT_EQ(flush(), TW_OK);
  LayoutCursor cursor(image.data() + kGuard + 3, list, total);
  unpack(cursor, source.data(), total);
  expect_image();
  ASSERT_EQ(run(get), TW_OK);
  EXPECT_TRUE(back.holds(source.data(), total));
  EXPECT_TRUE(back.guarded());
  release(list);
}

TEST_P(OneSided, ASignalCoversItsPutAndAllEarlierOnesWhenAsked) {
  for (int round = 0; round < 30; ++round) {
    const bool all = round % 2 == 1;
    const size_t length = 1 + world.random() % 60'000;
    Buffer first(world.random, length), second(world.random, length);
    OpDesc early = op(Verb::put, first.data(), length, 11), late = op(Verb::put, second.data(), length, 11 + length);
    late.signal = remote_signal;
    late.signal_op = TW_SIGNAL_ADD;
    late.signal_value = 3;
    late.flags = all ? uint32_t{TW_OP_AFTER_ALL} : 0;
    tw_request requests[2] = {};
    const uint64_t before = signal_read(*signal);
    world.left->start(early, Completion{&requests[0]});
    world.left->start(late, Completion{&requests[1]});
    for (int turn = 0; turn < 100000 && signal_read(*signal) == before; ++turn) world.turn();
    ASSERT_EQ(signal_read(*signal), before + 3);
    EXPECT_EQ(std::memcmp(target(11 + length), second.data(), length), 0);
    if (all) {
      EXPECT_EQ(std::memcmp(target(11), first.data(), length), 0);
    }
    for (tw_request request : requests) {
      if (request == TW_REQUEST_NONE) continue;
      ASSERT_TRUE(world.finish(request));
      Engine::release(request);
    }
  }
}

TEST_P(OneSided, AtomicsReturnTheOldValue) {
  const uint64_t offset = (8 - reinterpret_cast<uintptr_t>(target(0)) % 8) % 8;
  for (unsigned word : {4u, 8u}) {
    uint64_t model = 0;
    std::memcpy(target(offset), &model, 8);
    for (int round = 0; round < 200; ++round) {
      const uint64_t operand = world.random();
      OpDesc atomic = op(Verb::atomic, nullptr, word, offset);
      atomic.word = static_cast<uint8_t>(word);
      atomic.atomic_op = static_cast<uint8_t>(round % 6);
      atomic.operand = operand;
      atomic.compare = round % 12 == 5 ? model : operand + 1;
      uint64_t old = 0;
      if (round % 4 != 3) atomic.result = &old;
      if (atomic.result == nullptr) atomic.flags = TW_OP_REMOTE;
      ASSERT_EQ(run(atomic), TW_OK);
      const uint64_t mask = word == 8 ? UINT64_MAX : UINT32_MAX;
      if (atomic.result != nullptr) {
        ASSERT_EQ(old, model);
      }
      switch (round % 6) {
        case TW_ATOMIC_ADD:
          model = (model + operand) & mask;
          break;
        case TW_ATOMIC_AND:
          model &= operand & mask;
          break;
        case TW_ATOMIC_OR:
          model |= operand & mask;
          break;
        case TW_ATOMIC_XOR:
          model ^= operand & mask;
          break;
        case TW_ATOMIC_SWAP:
          model = operand & mask;
          break;
        default:
          if (model == (atomic.compare & mask)) model = operand & mask;
      }
      uint64_t now = 0;
      std::memcpy(&now, target(offset), word);
      ASSERT_EQ(now, model);
    }
  }
  OpDesc crooked = op(Verb::atomic, nullptr, 8, offset + 4);
  crooked.word = 8;
  EXPECT_EQ(run(crooked), TW_ERR_MISALIGNED);
}

TEST_P(OneSided, RefusalsBeforeAnythingMoves) {
  Buffer source(world.random, 100);
  EXPECT_EQ(run(op(Verb::put, source.data(), 100, kSize - 99)), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(run(op(Verb::get, source.data(), 100, UINT64_MAX - 5)), TW_ERR_OUT_OF_BOUNDS);
  RemoteRegion* whole = remote;
  remote = import(memory, 0, 64, TW_MEMORY_READ);
  EXPECT_EQ(run(op(Verb::put, source.data(), 8, 0)), TW_ERR_PERMISSION);
  EXPECT_FALSE(try_put_mapped(source.data(), 8, *remote, 0));
  remote = whole;
  OpDesc put = op(Verb::put, source.data(), 8, 0);
  put.signal = remote;  // not a signal
  EXPECT_EQ(run(put), TW_ERR_PERMISSION);
  put.signal = remote_signal;
  put.signal_op = TW_SIGNAL_SET;  // of another kind
  EXPECT_EQ(run(put), TW_ERR_INVALID);
  KeyBody stale = remote->key;
  stale.incarnation ^= 1;
  RemoteRegion* region = nullptr;
  EXPECT_EQ(import_region(world.a, stale, &region), TW_ERR_STALE);
  expect_image();
}

TEST_P(OneSided, ARevokedKeyIsStaleForThatOperationOnly) {
  RemoteRegion* whole = remote;
  remote = import(memory, 16, 4096, 0);
  if (way == Way::mapped) world.pa->segments[memory->segment_id].revoke(TW_ERR_STALE);  // what a port does when it is told
  ASSERT_EQ(registry.revoke(remote->key.rkey), TW_OK);
  Buffer buffer(world.random, 777);
  OpDesc put = op(Verb::put, buffer.data(), 777, 0);
  put.flags = TW_OP_REMOTE;
  EXPECT_EQ(run(put), TW_ERR_STALE);
  EXPECT_EQ(run(op(Verb::get, buffer.data(), 777, 0)), TW_ERR_STALE);
  EXPECT_FALSE(try_put_mapped(buffer.data(), 8, *remote, 0));
  // Without an answer asked for, the next flush tells; a signal of that put is not given.
  put.flags = 0;
  put.signal = remote_signal;
  put.signal_op = TW_SIGNAL_ADD;
  put.signal_value = 1;
  const Status direct = run(put);
  if (direct == TW_OK) {
    EXPECT_EQ(flush(), TW_ERR_STALE);
    EXPECT_EQ(flush(), TW_OK);
  } else {
    EXPECT_EQ(direct, TW_ERR_STALE);
  }
  world.settle();
  EXPECT_EQ(signal_read(*signal), 100u);
  expect_image();
  EXPECT_EQ(world.a.state, TW_OK);
  if (way == Way::mapped) return;
  remote = whole;
  ASSERT_EQ(run(op(Verb::put, buffer.data(), 777, 0)), TW_OK);
  ASSERT_EQ(flush(), TW_OK);
}

/// It went another way meanwhile, and is mapped once there are descriptors again.
TEST_P(OneSided, AnImportThatLackedDescriptorsIsTriedAgain) {
  if (way != Way::mapped) return;
  world.pa->without_descriptors = true;
  remote = import(memory, kGuard, 4096, 0);
  Buffer buffer(world.random, 777);
  const auto put = [&] {
    ASSERT_EQ(run(op(Verb::put, buffer.data(), 777, 5)), TW_OK);
    ASSERT_EQ(flush(), TW_OK);
  };
  put();
  EXPECT_EQ(remote->mapped, nullptr);
  EXPECT_EQ(std::memcmp(memory->address + kGuard + 5, buffer.data(), 777), 0);
  world.pa->without_descriptors = false;
  const Deadline deadline(20 * kSecond);
  while (remote->mapped == nullptr && !deadline.passed()) put();
  EXPECT_NE(remote->mapped, nullptr);
}

TEST_P(OneSided, AfterAFenceNothingOvertakes) {
  // Frames go to memory of another kind of access; the fenced put may be a mapped one.
  std::vector<std::byte> other(100'000);
  tw_memory* ordinary = nullptr;
  ASSERT_EQ(registry.register_memory(other.data(), other.size(), 0, &ordinary), TW_OK);
  RemoteRegion* usual = remote;
  RemoteRegion* elsewhere = import(ordinary, 0, 0, 0);
  for (int round = 0; round < 20; ++round) {
    Buffer first(world.random, other.size()), second(world.random, 8);
    remote = elsewhere;
    tw_request requests[2] = {};
    world.left->start(op(Verb::put, first.data(), first.size(), 0), Completion{&requests[0]});
    ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
    remote = usual;
    world.left->start(op(Verb::put, second.data(), 8, 0), Completion{&requests[1]});
    for (int turn = 0; turn < 100000 && std::memcmp(target(0), second.data(), 8) != 0; ++turn) {
      world.left->progress();
      if (std::memcmp(target(0), second.data(), 8) == 0) break;
      world.right->progress();
    }
    ASSERT_EQ(std::memcmp(target(0), second.data(), 8), 0);
    ASSERT_EQ(std::memcmp(other.data(), first.data(), other.size()), 0);
    for (tw_request request : requests) {
      if (request == TW_REQUEST_NONE) continue;
      ASSERT_TRUE(world.finish(request));
      Engine::release(request);
    }
  }
}

TEST_P(OneSided, AFailureNobodyWasToldOfIsToldByTheNextFlush) {
  if (way != Way::frames && way != Way::references) return;  // the other ways answer at once
  RemoteRegion* whole = remote;
  RemoteRegion* dead = import(memory, 16, 4096, 0);
  ASSERT_EQ(registry.revoke(dead->key.rkey), TW_OK);
  Buffer buffer(world.random, 100);
  for (int round = 0; round < 6; ++round) {
    remote = dead;
    tw_request request = TW_REQUEST_NONE;
    if (world.left->start(op(Verb::put, buffer.data(), 100, 0), Completion{&request}) == TW_IN_PROGRESS) {
      ASSERT_TRUE(world.finish(request));
      Engine::release(request);
    }
    remote = whole;
    if (round % 3 == 1) {  // confirms the frames before it
      ASSERT_EQ(run(op(Verb::get, buffer.data(), 100, 0)), TW_OK);
    }
    if (round % 3 == 2) {  // its own flush hears of the failure first
      ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
      world.settle();
    }
    OpDesc worker;
    worker.verb = Verb::flush;
    EXPECT_EQ(round < 3 ? flush() : run(worker), TW_ERR_STALE) << round;
    EXPECT_EQ(flush(), TW_OK);
  }
}

TEST_P(OneSided, WorkerFlushWaitsForAll) {
  Buffer source(world.random, 40'000);
  for (int i = 0; i < 5; ++i) {
    world.left->start(op(Verb::put, source.data(), source.size(), static_cast<uint64_t>(i) * 40'000), Completion{});
  }
  OpDesc desc;
  desc.verb = Verb::flush;
  ASSERT_EQ(run(desc), TW_OK);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(std::memcmp(target(static_cast<uint64_t>(i) * 40'000), source.data(), 40'000), 0);
  EXPECT_EQ(run(desc), TW_OK);
}

/// Its part for that endpoint ends before the loss is reported.
TEST_P(OneSided, AWorkersFlushEndsWithALinkThatItFindsBroken) {
  Buffer source(world.random, 8);
  world.pa->lose_at_send = false;
  ASSERT_GE(world.left->start(op(Verb::put, source.data(), source.size(), 0), Completion{}), TW_OK);
  world.settle();
  OpDesc all;
  all.verb = Verb::flush;
  world.pa->lose_at_send = true;
  tw_request request = TW_REQUEST_NONE;
  if (world.left->start(all, Completion{&request}) != TW_IN_PROGRESS) return;  // a way without frames
  ASSERT_TRUE(world.finish(request, 2000));
  EXPECT_EQ(Engine::test(request), TW_ERR_PEER_LOST);
  EXPECT_EQ(Engine::release(request), TW_OK);
}

TEST_P(OneSided, LossEndsEverythingOnce) {
  Buffer source(world.random, 200'000), to(world.random, 200'000);
  std::vector<tw_request> requests;
  for (int i = 0; i < 20; ++i) {
    OpDesc desc = op(i % 2 ? Verb::get : Verb::put, i % 2 ? to.data() : source.data(), 200'000, 0);
    if (i % 2 == 0) desc.flags = TW_OP_REMOTE;
    tw_request request = TW_REQUEST_NONE;
    if (world.left->start(desc, Completion{&request}) == TW_IN_PROGRESS) requests.push_back(request);
  }
  OpDesc all;
  all.verb = Verb::flush;
  tw_request request = TW_REQUEST_NONE;
  if (world.left->start(all, Completion{&request}) == TW_IN_PROGRESS) requests.push_back(request);
  world.turn();
  world.pa->lose(*world.la);
  for (tw_request pending : requests) {
    ASSERT_TRUE(world.finish(pending));
    EXPECT_TRUE(Engine::test(pending) == TW_ERR_PEER_LOST || Engine::test(pending) == TW_OK);
    Engine::release(pending);
  }
  world.settle();
  EXPECT_EQ(run(op(Verb::put, source.data(), 8, 0)), TW_ERR_PEER_LOST);
  EXPECT_TRUE(to.guarded());
}

TEST_P(OneSided, HostileFramesHurtOnlyTheirConnection) {
  for (int round = 0; round < 400 && world.b.state == TW_OK; ++round) {
    FrameHeader header{};
    static constexpr Frame kFrames[] = {Frame::put,          Frame::put_layout, Frame::get,  Frame::atomic,
                                        Frame::atomic_reply, Frame::signal,     Frame::flush};
    std::vector<std::byte> body(world.random() % 200);
    for (std::byte& b : body) b = static_cast<std::byte>(world.random());
    header =
        make_header(kFrames[world.random() % std::size(kFrames)], body.size(),
                    world.random() % 2 ? remote->key.rkey : world.random(), world.random() % 3 ? world.random() : kSize - 4,
                    static_cast<uint8_t>(world.random()), static_cast<uint16_t>(world.random()));
    if (header.type == frame_type(Frame::put) && header.a == remote->key.rkey && header.b < kSize) continue;  // a good one
    world.pb->inject(*world.lb, header, body);
    world.turn();
  }
  world.settle();
  if (way == Way::process) return;  // random bytes may be a layout that fits: only memory outside the range matters below
  EXPECT_EQ(std::memcmp(memory->address, image.data(), kGuard), 0);
  EXPECT_EQ(std::memcmp(memory->address + kGuard + kSize, image.data() + kGuard + kSize, kGuard), 0);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Way, bool>>& info) {
  static const char* const names[] = {"frames", "references", "kernel", "mapped", "process"};
  return std::string(names[static_cast<int>(std::get<0>(info.param))]) + (std::get<1>(info.param) ? "_refusing" : "");
}
/// The target answers the data while there is no room for the signal's frame.
TEST(PutByFrames, GivesItsSignalThoughItsDataIsAnsweredBefore) {
  World world(FakeOptions{}, seed());
  world.connect();
  world.settle();
  uint64_t from = world.random(), to = 0;
  SignalPool pool(world.registry_b);
  tw_signal* signal = nullptr;
  tw_memory* memory = nullptr;
  KeyBody keys[2];
  RemoteRegion* regions[2] = {};
  ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
  ASSERT_EQ(world.registry_b.register_memory(&to, sizeof to, 0, &memory), TW_OK);
  ASSERT_EQ(world.registry_b.export_range(memory, 0, sizeof to, 0, &keys[0]), TW_OK);
  ASSERT_EQ(pool.export_signal(signal, &keys[1]), TW_OK);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(import_region(world.a, keys[i], &regions[i]), TW_OK);
  OpDesc put;
  put.verb = Verb::put;
  put.flags = TW_OP_REMOTE;
  put.peer = &world.a;
  put.address = reinterpret_cast<std::byte*>(&from);
  put.length = sizeof from;
  put.remote = regions[0];
  put.signal = regions[1];
  put.signal_op = TW_SIGNAL_ADD;
  put.signal_value = 1;
  tw_request request = TW_REQUEST_NONE;
  world.pa->allowed = 1;
  ASSERT_EQ(world.left->start(put, Completion{&request}), TW_IN_PROGRESS);
  world.settle();
  EXPECT_EQ(to, from);
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS) << "it ended without its signal";
  world.pa->allowed = SIZE_MAX;
  world.settle();
  EXPECT_EQ(Engine::test(request), TW_OK);
  EXPECT_EQ(signal_read(*signal), 1u);
  EXPECT_EQ(Engine::release(request), TW_OK);
  for (RemoteRegion* region : regions) release_region(region);
  pool.destroy(signal);
}

/// Nothing will come for it: what data frames are still to bring says how others' bytes are stored.
TEST(GetByFrames, ThatFindsItsLinkBrokenIsNotExpected) {
  World world(FakeOptions{}, seed());
  world.connect();
  world.settle();
  std::vector<std::byte> there(8u << 20), here(there.size());
  tw_memory* memory = nullptr;
  KeyBody key;
  RemoteRegion* region = nullptr;
  ASSERT_EQ(world.registry_b.register_memory(there.data(), there.size(), 0, &memory), TW_OK);
  ASSERT_EQ(world.registry_b.export_range(memory, 0, 0, 0, &key), TW_OK);
  ASSERT_EQ(import_region(world.a, key, &region), TW_OK);
  OpDesc get;
  get.verb = Verb::get;
  get.peer = &world.a;
  get.address = here.data();
  get.length = here.size();
  get.remote = region;
  tw_request request = TW_REQUEST_NONE;
  world.pa->lose_at_send = true;
  EXPECT_EQ(world.left->start(get, Completion{&request}), TW_ERR_PEER_LOST);
  EXPECT_EQ(request, TW_REQUEST_NONE);
  EXPECT_EQ(world.left->incoming.bytes(), 0u);
  world.settle();
  EXPECT_EQ(world.left->incoming.bytes(), 0u);
  EXPECT_EQ(world.left->runs().alive(), 0u);
  release_region(region);
}

/// Within one process a key's address may lie about where its word is: nothing is done to one that lies across the borders of words.
TEST(WordsInOneProcess, LieWhereTheOwnersRecordSays) {
  World world(options_of(Way::process, 0), seed());
  world.la->peer.incarnation = world.lb->peer.incarnation = 11;
  world.connect();
  world.settle();
  alignas(8) uint64_t words[4];
  for (uint64_t& word : words) word = world.random();
  const std::vector<uint64_t> before(words, words + 4);
  tw_memory* memory = nullptr;
  KeyBody key;
  ASSERT_EQ(world.registry_a.register_memory(words, sizeof words, TW_MEMORY_ALL | kAccessSignal, &memory), TW_OK);
  ASSERT_EQ(world.registry_a.export_range(memory, 4, 16, 0, &key), TW_OK);
  key.base += 4;
  key.device = TW_SIGNAL_ADD;
  RemoteRegion* region = nullptr;
  ASSERT_EQ(import_region(world.a, key, &region), TW_OK);
  OpDesc add;
  add.verb = Verb::atomic;
  add.peer = &world.a;
  add.remote = region;
  add.atomic_op = TW_ATOMIC_ADD;
  add.word = 8;
  add.operand = 1;
  EXPECT_EQ(world.left->start(add, {}), TW_ERR_MISALIGNED);
  OpDesc signal;
  signal.verb = Verb::signal;
  signal.peer = &world.a;
  signal.signal = region;
  signal.signal_op = TW_SIGNAL_ADD;
  signal.signal_value = 1;
  signal.flags = TW_OP_REMOTE;
  tw_request request = TW_REQUEST_NONE;
  Status status = world.left->start(signal, Completion{&request});
  if (status == TW_IN_PROGRESS) {
    ASSERT_TRUE(world.finish(request));
    status = Engine::test(request);
    Engine::release(request);
  }
  EXPECT_TRUE(is_error(status)) << "its owner does not know it as one of a signal's";
  EXPECT_TRUE(std::equal(before.begin(), before.end(), words));
  release_region(region);
}

INSTANTIATE_TEST_SUITE_P(Ways, OneSided,
                         ::testing::Combine(::testing::Values(Way::frames, Way::references, Way::kernel, Way::mapped,
                                                              Way::process),
                                            ::testing::Bool()),
                         name_of);

}  // namespace
}  // namespace thalweg::test
