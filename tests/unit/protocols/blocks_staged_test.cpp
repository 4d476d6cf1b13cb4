// SPDX-License-Identifier: Apache-2.0
// Block transfers of device memory that no device reaches from the other side: gathered and scattered through pinned memory, over
// frames, copies and windows; with hosts and devices at either side.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "memory/local_copy.hpp"
#include "memory/placement.hpp"
#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/local_device.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

using emulated::EmulatedDevice;
using emulated::Operation;

/// Of this program, until it exits.
EmulatedDevice& device_of_tests(unsigned index) {
  static const auto devices = [] {
    std::vector<std::unique_ptr<EmulatedDevice>> all;
    for (unsigned i = 0; i < 2; ++i) all.push_back(emulated::open_device(i));
    return new auto(std::move(all));
  }();
  return *(*devices)[index];
}

enum class Place { plain, library, pinned, device, pool, managed };

struct Case {
  const char* name;
  uint32_t features;
  Place mine, theirs[2];
};
constexpr Case kCases[] = {
    {"frames_device_plain", 0, Place::device, {Place::plain, Place::plain}},
    {"frames_plain_device", 0, Place::plain, {Place::device, Place::device}},
    {"frames_pinned_pool", 0, Place::pinned, {Place::pool, Place::pool}},
    {"frames_device_device", 0, Place::device, {Place::device, Place::device}},
    {"frames_device_mixture", 0, Place::device, {Place::device, Place::library}},
    {"frames_plain_mixture", 0, Place::plain, {Place::managed, Place::plain}},
    {"frames_managed_pool", 0, Place::managed, {Place::pool, Place::managed}},
    {"kernel_device_plain", kLinkSingleCopy, Place::device, {Place::plain, Place::plain}},
    {"kernel_device_device", kLinkSingleCopy, Place::pool, {Place::device, Place::device}},
    {"mapped_device_library", kLinkMaps, Place::device, {Place::library, Place::library}},
    {"mapped_device_plain", kLinkMaps, Place::device, {Place::library, Place::plain}},
    {"mapped_device_device", kLinkMaps, Place::device, {Place::device, Place::device}},
    {"process_device_plain", kLinkSameProcess, Place::device, {Place::plain, Place::library}},
    {"process_plain_device", kLinkSameProcess, Place::plain, {Place::device, Place::device}},
    {"process_device_device", kLinkSameProcess, Place::device, {Place::pool, Place::device}},
};

/// A memory at a place, and what the test thinks of its contents.
struct Area {
  Area(Registry& registry, Place place, size_t size, EmulatedDevice& device, std::mt19937_64& random) : registry(registry) {
    image.resize(size);
    for (size_t i = 0; i < size; i += 8) {
      const uint64_t word = random();
      std::memcpy(&image[i], &word, std::min<size_t>(8, size - i));
    }
    MemoryPlace at{MemoryKind::host, &device};
    if (place == Place::pinned) at.kind = MemoryKind::pinned;
    if (place == Place::device) at.kind = MemoryKind::emulated;
    if (place == Place::pool) at.kind = MemoryKind::pool;
    if (place == Place::managed) at.kind = MemoryKind::managed;
    plain.resize(place == Place::plain ? size : 0);
    if (place == Place::plain) {
      EXPECT_EQ(registry.register_memory(plain.data(), size, 0, &memory), TW_OK);
    } else {
      EXPECT_EQ(allocate_at(registry, at, size, 0, false, &memory), TW_OK) << last_error();
    }
    EXPECT_EQ(copier.copy(address(), reinterpret_cast<uint64_t>(image.data()), size), TW_OK) << last_error();
  }
  ~Area() { EXPECT_EQ(registry.release(memory), TW_OK); }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory->address); }
  void expect(const char* when) {
    std::vector<std::byte> now(image.size());
    ASSERT_EQ(copier.copy(reinterpret_cast<uint64_t>(now.data()), address(), now.size()), TW_OK) << last_error();
    EXPECT_TRUE(now == image) << when;
  }
  Registry& registry;
  tw_memory* memory = nullptr;
  std::vector<std::byte> image, plain;
  LocalCopier copier;
};

class Staged : public ::testing::TestWithParam<std::tuple<Case, bool>> {
 protected:
  Staged() : Staged(std::get<0>(GetParam()), std::get<1>(GetParam())) {}
  Staged(const Case& given, bool refusing)
      : how(given), world(options_of(given, refusing), seed()), registry(local() ? world.registry_a : world.registry_b) {}
  static FakeOptions options_of(const Case& how, bool refusing) {
    FakeOptions options;
    options.features = how.features;
    options.refuse = refusing ? 0.3 : 0;
    options.copy_max = 8192;
    return options;
  }
  bool local() const { return (how.features & kLinkSameProcess) != 0; }
  void SetUp() override {
    if (local()) world.la->peer.incarnation = world.lb->peer.incarnation = 11;
    world.connect();
  }
  void forget() {
    there.reset();
    here.reset();
    mine.reset();
    theirs.clear();
  }
  void TearDown() override {
    forget();
    EXPECT_EQ(world.left->devices().chunks_out(), 0u);
    EXPECT_EQ(world.right->devices().chunks_out(), 0u);
  }

  /// `blocks` of `length` bytes here, in two ranges of one memory, and as many in two memories there.
  void prepare(uint64_t length, uint64_t blocks, EmulatedDevice& left = device_of_tests(0),
               EmulatedDevice& right = device_of_tests(1)) {
    forget();
    auto space = std::make_shared<BlockSpace>();
    there = std::make_shared<RemoteBlocks>();
    space->length = there->space.length = length;
    const uint64_t stride = length + world.random() % 40;
    mine = std::make_unique<Area>(world.registry_a, how.mine, blocks * stride + 64, left, world.random);
    space->device = how.mine >= Place::device ? static_cast<Device*>(&left) : nullptr;
    space->pinned = how.mine == Place::pinned;
    const uint64_t first = (blocks + 1) / 2;
    add_range(*space, mine->address(), 31, stride, first, mine->image.size());
    if (blocks > first) add_range(*space, mine->address(), 31 + first * stride, stride, blocks - first, mine->image.size());
    here = space;
    for (const Place place : how.theirs) add_remote(place, length, blocks, right);
  }
  static void add_range(BlockSpace& space, uint64_t begin, uint64_t offset, uint64_t stride, uint64_t count, uint64_t limit) {
    BlockRange range;
    range.begin = begin;
    range.stride = stride;
    range.count = count;
    ASSERT_EQ(space.add(range, offset, limit), TW_OK);
  }
  void add_remote(Place place, uint64_t length, uint64_t blocks, EmulatedDevice& device) {
    const uint64_t gap = length + world.random() % 40;
    theirs.push_back(std::make_unique<Area>(registry, place, blocks * gap + 100, device, world.random));
    tw_memory* memory = theirs.back()->memory;
    if (how.features == kLinkMaps && place == Place::library) {
      Mapping& mapping = world.pa->segments[memory->segment_id];
      mapping.address = memory->address;
      mapping.length = memory->length;
    }
    KeyBody key;
    ASSERT_EQ(registry.export_range(memory, 0, memory->length, 0, &key), TW_OK);
    RemoteRegion* region = nullptr;
    ASSERT_EQ(import_region(world.a, key, &region), TW_OK);
    BlockRange range;
    range.stride = gap;
    range.count = blocks;
    range.region = static_cast<uint32_t>(there->regions.size());
    there->regions.push_back(region);
    ASSERT_EQ(there->space.add(range, 50, memory->length), TW_OK);
  }
  /// n pairs whose destinations differ; the images are what they are to become.
  void choose(size_t n, bool put) {
    std::vector<uint32_t> destinations((put ? there->space : *here).count);
    std::iota(destinations.begin(), destinations.end(), 0u);
    std::shuffle(destinations.begin(), destinations.end(), world.random);
    pairs.resize(n);
    const Image before = image_of();
    for (size_t i = 0; i < n; ++i) {
      const auto any = static_cast<uint32_t>(world.random() % (put ? *here : there->space).count);
      pairs[i] = put ? BlockChoice{any, destinations[i]} : BlockChoice{destinations[i], any};
      std::byte* const to = put ? remote(pairs[i].there) : own(pairs[i].here);
      if (put) std::copy_n(own(pairs[i].here), here->length, to);
      if (!put) std::copy_n(remote(pairs[i].there), here->length, to);
    }
    unchanged = before;
  }
  using Image = std::vector<std::vector<std::byte>>;
  Image image_of() {
    Image all{mine->image};
    for (auto& area : theirs) all.push_back(area->image);
    return all;
  }
  std::byte* own(uint32_t number) {
    const BlockRange* hint = nullptr;
    return mine->image.data() + (BlockSpace::place(here->range_of(number, hint), number) - mine->address());
  }
  std::byte* remote(uint32_t number) {
    const BlockRange* hint = nullptr;
    const BlockRange& range = there->space.range_of(number, hint);
    return theirs[range.region]->image.data() + BlockSpace::place(range, number);
  }
  void expect_all(const char* when) {
    mine->expect(when);
    for (auto& area : theirs) area->expect(when);
  }
  /// What the last choose() expected is not to happen.
  void take_back() {
    mine->image = unchanged[0];
    for (size_t i = 0; i < theirs.size(); ++i) theirs[i]->image = unchanged[i + 1];
  }

  OpDesc op(Verb verb, const std::string& notification = "") {
    auto* made = new BlockTransfer;
    made->here = here;
    made->there = there;
    made->pairs.reset(new BlockChoice[pairs.size()]);
    std::copy(pairs.begin(), pairs.end(), made->pairs.get());
    made->notify = notification.empty() ? TW_NOTIFY_NONE : TW_NOTIFY_QUEUE;
    made->notification_length = static_cast<uint8_t>(notification.size());
    std::memcpy(made->notification, notification.data(), notification.size());
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
    EXPECT_TRUE(world.finish(request, kTurns));
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
  std::string notification(unsigned turns = kTurns) {
    tw_notification next{};
    for (; turns > 0; --turns) {
      if (next_notification(*world.right, &next) == TW_OK) return {reinterpret_cast<char*>(next.data), next.length};
      world.turn();
    }
    return "none";
  }

  static constexpr unsigned kTurns = 50'000'000;  // a device's threads may have to wait for the machine
  Case how;
  World world;
  Registry& registry;
  std::unique_ptr<Area> mine;
  std::vector<std::unique_ptr<Area>> theirs;
  Image unchanged;
  std::shared_ptr<const BlockSpace> here;
  std::shared_ptr<RemoteBlocks> there;
  std::vector<BlockChoice> pairs;
};

constexpr struct {
  uint64_t length, blocks;
  size_t n;
} kSizes[] = {{1, 300, 250}, {7, 3, 0}, {7, 3, 1}, {64, 500, 400}, {4099, 70, 65}, {30'001, 50, 45}, {1'100'001, 2, 2}};

TEST_P(Staged, APutMovesWhatWasChosenAndNoOtherByte) {
  for (const auto& size : kSizes) {
    prepare(size.length, size.blocks);
    choose(size.n, true);
    ASSERT_EQ(run(op(Verb::put_blocks)), TW_OK) << last_error();
    ASSERT_EQ(flush(), TW_OK);
    expect_all("put and flushed");
  }
}

TEST_P(Staged, AGetBringsWhatWasChosenAndNoOtherByte) {
  for (const auto& size : kSizes) {
    prepare(size.length, size.blocks);
    choose(size.n, false);
    ASSERT_EQ(run(op(Verb::get_blocks)), TW_OK) << last_error();
    expect_all("got");
  }
}

TEST_P(Staged, RemoteCompletionAndTheNotificationComeBehindTheDevice) {
  prepare(3001, 400);
  for (int round = 0; round < 2; ++round) {
    choose(390, true);
    OpDesc put = op(Verb::put_blocks);
    put.flags = TW_OP_REMOTE;
    ASSERT_EQ(run(put), TW_OK);
    expect_all("remote completion");
    choose(390, true);
    tw_request request = TW_REQUEST_NONE;
    const std::string text = "put " + std::to_string(world.random());
    const Status status = start(op(Verb::put_blocks, text), &request);
    ASSERT_EQ(notification(), text);
    expect_all("notified");
    ASSERT_EQ(end(status, request), TW_OK);
  }
  choose(390, false);
  ASSERT_EQ(run(op(Verb::get_blocks, "got")), TW_OK);
  expect_all("got and complete");
  ASSERT_EQ(notification(), "got");
}

class Passed : public Staged {
 protected:
  Passed() : Staged({"", kLinkMaps, Place::device, {Place::device, Place::device}}, true) {}
};

/// Devices move the first one's blocks while the second one's frames are going: it comes back to a ordered queue where the second one, whose
/// notification is to be behind its own, stands before it.
TEST_F(Passed, ANotificationOfFramesLetsAnEarlierOneOfADevicePass) {
  for (int round = 0; round < 40; ++round) {
    how.mine = how.theirs[0] = how.theirs[1] = Place::device;
    prepare(64, 8);
    choose(4, true);
    tw_request requests[2] = {};
    const Status first = start(op(Verb::put_blocks, "first"), &requests[0]);
    const auto device_mine = std::move(mine);
    const auto device_theirs = std::exchange(theirs, {});
    how.mine = how.theirs[0] = how.theirs[1] = Place::plain;
    prepare(1000, 2000);
    choose(3500, true);
    const Status second = start(op(Verb::put_blocks, "second"), &requests[1]);
    ASSERT_EQ(notification(1'000'000), "first") << round;
    ASSERT_EQ(notification(1'000'000), "second") << round;
    ASSERT_EQ(end(first, requests[0]), TW_OK);
    ASSERT_EQ(end(second, requests[1]), TW_OK);
    expect_all("notified");
    device_mine->expect("notified");
    for (const auto& area : device_theirs) area->expect("notified");
  }
}

TEST_P(Staged, AfterAFenceNothingOvertakes) {
  prepare(2000, 300);
  for (int round = 0; round < 2; ++round) {
    choose(290, true);
    tw_request requests[2] = {};
    const Status first = start(op(Verb::put_blocks), &requests[0]);
    ASSERT_EQ(fence_one_sided(*world.left, world.a), TW_OK);
    choose(1, true);
    const Status second = start(op(Verb::put_blocks, "second"), &requests[1]);
    ASSERT_EQ(notification(), "second");
    expect_all("behind the fence");
    ASSERT_EQ(end(first, requests[0]), TW_OK);
    ASSERT_EQ(end(second, requests[1]), TW_OK);
  }
}

TEST_P(Staged, ARevokedKeyIsStaleAndTellsNobody) {
  prepare(5000, 30);
  for (RemoteRegion* region : there->regions) {
    if (auto found = world.pa->segments.find(region->key.segment); found != world.pa->segments.end())
      found->second.revoke(TW_ERR_STALE);  // what a port does when it is told
    ASSERT_EQ(registry.revoke(region->key.rkey), TW_OK);
  }
  for (const Verb verb : {Verb::put_blocks, Verb::get_blocks}) {
    choose(25, verb == Verb::put_blocks);
    take_back();
    OpDesc desc = op(verb, "never");
    desc.flags = verb == Verb::put_blocks ? TW_OP_REMOTE : 0;
    EXPECT_EQ(run(desc), TW_ERR_STALE);
    EXPECT_EQ(notification(200), "none");
    expect_all("stale");
  }
  EXPECT_EQ(world.a.state, TW_OK);
}

TEST_P(Staged, ALossEndsItOnceAndGivesTheStagingBack) {
  const Verb verb = std::get<1>(GetParam()) ? Verb::get_blocks : Verb::put_blocks;  // one loss for each instance
  prepare(40'000, 600);
  choose(590, verb == Verb::put_blocks);  // 24 MB: more than the chunks of one operation can bring in these turns, however long
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(start(op(verb, "late"), &request), TW_IN_PROGRESS);
  for (int i = 0; i < 3; ++i) world.turn();
  EXPECT_LE(world.left->devices().chunks_out(), 5u) << "staging of one operation is bounded";
  world.pa->lose(*world.la);
  ASSERT_TRUE(world.finish(request, kTurns));
  EXPECT_EQ(Engine::test(request), TW_ERR_PEER_LOST);
  EXPECT_EQ(there.use_count(), 1) << "the run still holds the blocks";
  EXPECT_EQ(Engine::release(request), TW_OK);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, bool>>& info) {
  return std::string(std::get<0>(info.param).name) + (std::get<1>(info.param) ? "_refusing" : "");
}
INSTANTIATE_TEST_SUITE_P(Ways, Staged, ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Bool()), name_of);

/// Within a process: which way explain says, and which one moves them.
class StagedWithin : public Staged {
 protected:
  StagedWithin() : Staged({"", kLinkSameProcess, Place::device, {Place::device, Place::device}}, false) {}
  /// Of this program, until exit. Its kernels reach its own memory only.
  static EmulatedDevice& lonely(bool kernels) {
    static auto* const kept = new std::vector<std::unique_ptr<EmulatedDevice>>;
    const unsigned index = 30 + static_cast<unsigned>(kept->size());
    emulated::Options options;
    options.peers = uint64_t{1} << index;
    options.kernels = kernels;
    kept->push_back(emulated::open_device(index, options));
    return *kept->back();
  }
  void expect(Place from, Place to, EmulatedDevice& left, EmulatedDevice& right, Way way) {
    how.mine = from;
    how.theirs[0] = how.theirs[1] = to;
    prepare(64, 50, left, right);
    choose(40, true);
    OpDesc asked;
    asked.verb = Verb::put_blocks;
    asked.peer = &world.a;
    asked.length = 40 * 64;
    asked.address = mine->memory->address;
    asked.remote = there->regions[0];
    BufferInfo info;
    if (from >= Place::device) {
      ASSERT_EQ(find_device(mine->address(), &info), TW_OK);
      set_device(asked, info);
    }
    const std::string text = explain(asked);
    EXPECT_NE(text.find(std::string("way: ") + name_of(way) + "\n"), std::string::npos) << text;
    const uint64_t before = moved_by(*world.left, way).operations;
    ASSERT_EQ(run(op(Verb::put_blocks)), TW_OK) << last_error();
    EXPECT_EQ(moved_by(*world.left, way).operations, before + 1) << text;
    const bool framed = way == Way::staging;  // to an engine that does not know the memory of this one
    EXPECT_EQ(flush(), framed ? TW_ERR_STALE : TW_OK);
    if (framed) take_back();
    expect_all("put and flushed");
  }
};

TEST_F(StagedWithin, KernelsNeedPeerAccessButToManagedMemory) {
  EmulatedDevice &near = lonely(true), &far = lonely(true);
  expect(Place::device, Place::device, near, near, Way::push);
  expect(Place::device, Place::device, near, far, Way::staging);
  expect(Place::device, Place::managed, near, far, Way::push);
}

TEST_F(StagedWithin, WithoutKernelsOnlyEnginesMoveThem) {
  EmulatedDevice& bare = lonely(false);
  expect(Place::device, Place::device, bare, bare, Way::staging);
  expect(Place::pinned, Place::device, bare, bare, Way::staging);
  expect(Place::plain, Place::device, bare, bare, Way::push);
}

/// A device that fails here, or at the target, while other chunks are under way.
class StagedBroken : public Staged {
 protected:
  /// Faulty, until exit: engines keep queues of it.
  static EmulatedDevice& faulty(Operation operation, unsigned nth) {
    static auto* const kept = new std::vector<std::unique_ptr<EmulatedDevice>>;
    emulated::Options options;
    if (nth != 0) options.fail(operation, nth);
    kept->push_back(emulated::open_device(2 + static_cast<unsigned>(kept->size()), options));
    return *kept->back();
  }
  void expect_failure(Verb verb, unsigned nth_here, unsigned nth_there, Operation operation = Operation::launch) {
    prepare(4096, 1500, faulty(operation, nth_here), faulty(operation, nth_there));
    choose(1450, verb == Verb::put_blocks);
    OpDesc desc = op(verb, "never");
    desc.flags = verb == Verb::put_blocks ? TW_OP_REMOTE : 0;
    EXPECT_EQ(run(desc), TW_ERR_DEVICE) << last_error();
    EXPECT_EQ(notification(200), "none");
    EXPECT_EQ(world.a.state, TW_OK);
  }
};

TEST_P(StagedBroken, ALaunchThatFailsEndsThePut) { expect_failure(Verb::put_blocks, 3, 0); }
TEST_P(StagedBroken, ALaunchThatFailsEndsTheGet) { expect_failure(Verb::get_blocks, 3, 0); }
TEST_P(StagedBroken, AQueueThatBreaksEndsThePut) { expect_failure(Verb::put_blocks, 5, 0, Operation::run); }
TEST_P(StagedBroken, AQueueThatBreaksEndsTheGet) { expect_failure(Verb::get_blocks, 5, 0, Operation::run); }
TEST_P(StagedBroken, ATargetThatCannotScatterSaysSo) { expect_failure(Verb::put_blocks, 0, 40, Operation::copy); }
TEST_P(StagedBroken, ATargetThatCannotGatherSaysSo) { expect_failure(Verb::get_blocks, 0, 40, Operation::copy); }

INSTANTIATE_TEST_SUITE_P(Ways, StagedBroken, ::testing::Values(std::tuple{kCases[3], false}, std::tuple{kCases[3], true}),
                         name_of);

}  // namespace
}  // namespace thalweg::test
