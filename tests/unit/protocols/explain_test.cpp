// SPDX-License-Identifier: Apache-2.0
// What explain says of operations of one side, held against what then moves them: within a process without peer access, into memory that
// others have pinned, behind fences, in a build without kernels.
#include <gtest/gtest.h>

#include "devices/registry.hpp"
#include "memory/placement.hpp"
#include "protocols/flow.hpp"
#include "protocols/local_device.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

using emulated::EmulatedDevice;

/// Of this program, until it exits: engines keep queues of it. Its kernels reach its own memory only.
EmulatedDevice& lonely_device(unsigned index, bool kernels = true) {
  static auto* const all = new std::map<unsigned, std::unique_ptr<EmulatedDevice>>;
  std::unique_ptr<EmulatedDevice>& device = (*all)[index];
  emulated::Options options;
  options.peers = uint64_t{1} << index;
  options.kernels = kernels;
  if (device == nullptr) device = emulated::open_device(index, options);
  return *device;
}
EmulatedDevice& near_device() { return lonely_device(20); }
EmulatedDevice& far_device() { return lonely_device(21); }
EmulatedDevice& bare_device() { return lonely_device(22, false); }

class Explain : public ::testing::Test {
 protected:
  static constexpr size_t kLength = 5001;

  void connect(uint32_t features, unsigned persistent_blocks = 0) {
    FakeOptions options;
    options.features = features;
    world = std::make_unique<World>(options, seed(), 64u << 20, false, PersistentOptions{persistent_blocks, 1'000'000});
    if (local()) world->la->peer.incarnation = world->lb->peer.incarnation = 11;
    world->connect();
  }
  void TearDown() override {
    for (RemoteRegion* region : regions) release_region(region);
    world->pa->segments.clear();  // and what pins them
    for (auto& [registry, memory] : memories) EXPECT_EQ(registry->release(memory), TW_OK);
    world.reset();
  }
  bool local() const { return (world->la->features & kLinkSameProcess) != 0; }

  tw_memory* allocate(Registry& registry, MemoryKind kind, Device& device) {
    tw_memory* memory = nullptr;
    EXPECT_EQ(allocate_at(registry, {kind, &device}, kLength, 0, false, &memory), TW_OK) << last_error();
    memories.emplace_back(&registry, memory);
    return memory;
  }
  /// Memory of the right side, imported. mapped: as a link maps it.
  RemoteRegion* remote(MemoryKind kind, Device& device, bool mapped) {
    Registry& theirs = local() ? world->registry_a : world->registry_b;
    tw_memory* const memory = allocate(theirs, kind, device);
    KeyBody key;
    EXPECT_EQ(theirs.export_range(memory, 0, memory->length, 0, &key), TW_OK);
    if (!mapped) key.segment = 0;
    if (mapped) {
      Mapping& mapping = world->pa->segments[memory->segment_id];
      mapping.address = memory->address;
      mapping.length = memory->length;
    }
    RemoteRegion* region = nullptr;
    EXPECT_EQ(import_region(world->a, key, &region), TW_OK);
    regions.push_back(region);
    return region;
  }
  OpDesc one_sided(Verb verb, RemoteRegion* region) {
    OpDesc op;
    op.verb = verb;
    op.peer = &world->a;
    op.address = plain.data();
    op.length = verb == Verb::atomic ? 8 : kLength;
    op.remote = region;
    return op;
  }
  OpDesc one_sided(Verb verb, RemoteRegion* region, MemoryKind kind, Device& device) {
    OpDesc op = one_sided(verb, region);
    tw_memory* const memory = allocate(world->registry_a, kind, device);
    BufferInfo info;
    EXPECT_EQ(find_device(reinterpret_cast<uint64_t>(memory->address), &info), TW_OK);
    op.address = memory->address;
    if (!by_cpu(info.kind)) set_device(op, info);
    return op;
  }
  static bool says(const OpDesc& op, const std::string& words) {
    const std::string text = explain(op);
    EXPECT_NE(text.find(words + "\n"), std::string::npos) << text;
    return text.find(words + "\n") != std::string::npos;
  }
  void end(tw_request request) {
    if (request == TW_REQUEST_NONE) return;
    EXPECT_TRUE(world->finish(request, 50'000'000));
    EXPECT_EQ(Engine::test(request), TW_OK);
    EXPECT_EQ(Engine::release(request), TW_OK);
  }
  tw_request start(const OpDesc& op) {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_GE(world->left->start(op, {&request}), TW_OK) << last_error();
    return request;
  }
  std::array<uint64_t, kWays> counted() const {
    std::array<uint64_t, kWays> counts{};
    for (size_t i = 0; i < kWays; ++i) counts[i] = moved_by(*world->left, static_cast<Way>(i)).operations;
    return counts;
  }
  /// The only way that has moved anything since then.
  Way moved_since(const std::array<uint64_t, kWays>& before) const {
    Way way = Way::any;
    const std::array<uint64_t, kWays> now = counted();
    for (size_t i = 0; i < kWays; ++i) {
      if (now[i] == before[i]) continue;
      EXPECT_EQ(way, Way::any);
      way = static_cast<Way>(i);
    }
    return way;
  }
  Way run(const OpDesc& op) {
    const auto before = counted();
    end(start(op));
    return moved_since(before);
  }

  std::unique_ptr<World> world;
  std::vector<std::byte> plain = std::vector<std::byte>(kLength);
  std::vector<std::pair<Registry*, tw_memory*>> memories;
  std::vector<RemoteRegion*> regions;
};

TEST_F(Explain, EnginesNeedNoPeerAccessWithinAProcess) {
  connect(kLinkSameProcess);
  for (const MemoryKind kind : {MemoryKind::emulated, MemoryKind::managed}) {
    RemoteRegion* const target = remote(kind, far_device(), false);
    for (const Verb verb : {Verb::put, Verb::get}) {
      const Way way = verb == Verb::put ? Way::push : Way::pull;
      const OpDesc op = one_sided(verb, target, MemoryKind::emulated, near_device());
      EXPECT_TRUE(says(op, "chosen: direct"));
      EXPECT_TRUE(says(op, std::string("way: ") + name_of(way)));
      EXPECT_EQ(run(op), way);
    }
  }
}

TEST_F(Explain, ThePersistentKernelNeedsPeerAccessWithinAProcess) {
  connect(kLinkSameProcess, 2);
  const auto put_to = [&](MemoryKind kind, Device& device) {
    OpDesc op = one_sided(Verb::put, remote(kind, device, false), MemoryKind::emulated, near_device());
    op.length = 8;
    return op;
  };
  EXPECT_TRUE(says(put_to(MemoryKind::emulated, near_device()), "chosen: direct, by the persistent kernel while it runs"));
  EXPECT_TRUE(says(put_to(MemoryKind::managed, far_device()), "chosen: direct, by the persistent kernel while it runs"));
  EXPECT_TRUE(says(put_to(MemoryKind::emulated, far_device()), "chosen: direct"));
}

/// As plans and windows do, long before as many bytes as it has were relayed.
TEST_F(Explain, HostMemoryThatOthersHavePinnedIsReached) {
  connect(kLinkMaps);
  RemoteRegion* const target = remote(MemoryKind::host, near_device(), true);
  const OpDesc put = one_sided(Verb::put, target, MemoryKind::emulated, near_device());
  EXPECT_TRUE(says(put, "chosen: relay"));
  EXPECT_EQ(run(put), Way::staging);
  target->mapping->staged = 0;
  ASSERT_TRUE(pin_mapping(near_device(), *target->mapping));
  EXPECT_TRUE(says(put, "chosen: direct"));
  EXPECT_EQ(run(put), Way::push);
}

/// Over a link that maps, or whose kernel copies.
class BehindAFence : public Explain, public ::testing::WithParamInterface<bool> {};

TEST_P(BehindAFence, AnAccessIsMovedWithoutFramesWhereAllIsAppliedAtItsTurn) {
  const bool maps = GetParam();
  connect(maps ? kLinkMaps : kLinkSingleCopy);
  const std::string way = name_of(maps ? Way::mapped : Way::kernel);
  RemoteRegion* const framed = remote(MemoryKind::host, near_device(), false);
  framed->key.check = 0;  // the kernel does not copy it
  OpDesc before = one_sided(Verb::put, framed), put = one_sided(Verb::put, remote(MemoryKind::host, near_device(), maps));
  before.length = 8;
  put.flags = TW_OP_REMOTE;
  OpDesc blocks = put;
  blocks.verb = Verb::put_blocks;
  for (const bool settles : {false, true}) {
    // With room for nothing they wait. A turn sends four of them: the fence as the last one, or what is behind it, too.
    world->pa->allowed = 0;
    std::vector<tw_request> requests;
    for (int i = 0; i < (settles ? 3 : 1); ++i) requests.push_back(start(before));
    ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
    for (const OpDesc& op : {put, blocks})
      EXPECT_TRUE(says(op, "way: frames, or where all before it is applied at its turn: " + way));
    requests.push_back(start(put));
    world->pa->allowed = SIZE_MAX;
    const auto counts = counted();
    for (const tw_request request : requests) end(request);
    const size_t direct = static_cast<size_t>(maps ? Way::mapped : Way::kernel);
    EXPECT_EQ(counted()[direct], counts[direct] + (settles ? 1 : 0));
    for (const OpDesc& op : {put, blocks}) EXPECT_TRUE(says(op, "way: " + way));
  }
}

INSTANTIATE_TEST_SUITE_P(Links, BehindAFence, ::testing::Bool());

TEST_F(Explain, ASignalThatCoversAllWaitsForWhatIsNotApplied) {
  connect(kLinkMaps);
  OpDesc signal;
  signal.verb = Verb::signal;
  signal.peer = &world->a;
  signal.flags = TW_OP_AFTER_ALL;
  EXPECT_TRUE(says(signal, "chosen: signal_mapped"));
  const tw_request put = start(one_sided(Verb::put, remote(MemoryKind::host, near_device(), false)));
  EXPECT_TRUE(says(signal, "chosen: signal_frames"));
  signal.flags = 0;
  EXPECT_TRUE(says(signal, "chosen: signal_mapped"));
  end(put);
}

TEST_F(Explain, ABuildWithoutKernelsPromisesNone) {
  connect(kLinkSameProcess, 2);
  RemoteRegion* const target = remote(MemoryKind::emulated, bare_device(), false);
  const OpDesc put = one_sided(Verb::put, target, MemoryKind::emulated, bare_device());
  EXPECT_TRUE(says(put, "chosen: direct")) << "by an engine";
  EXPECT_EQ(run(put), Way::push);
  EXPECT_TRUE(says(one_sided(Verb::atomic, target), "chosen: atomic_frames"));
  OpDesc blocks = put;
  blocks.verb = Verb::put_blocks;
  EXPECT_TRUE(says(blocks, "chosen: frames"));
  blocks = one_sided(Verb::put_blocks, target, MemoryKind::pinned, bare_device());
  EXPECT_TRUE(says(blocks, "chosen: frames"));
  blocks = one_sided(Verb::put_blocks, target);
  EXPECT_TRUE(says(blocks, "chosen: window")) << "engines copy out of pinned memory";
}

TEST_F(Explain, AnActiveMessageThatMustBeEagerAndCannotBeIsRefused) {
  connect(kLinkMaps);
  plain.resize(kFirstEager + 1);
  OpDesc am;
  am.verb = Verb::am;
  am.peer = &world->a;
  am.address = plain.data();
  const auto refused = [&] { return says(am, "chosen: refused"); };
  for (const size_t length : {kFirstEager - kMessageOverhead, kFirstEager - kMessageOverhead + 1}) {
    am.length = length;
    am.flags = 0;
    EXPECT_EQ(explain(am).find("refused"), std::string::npos);
    am.flags = TW_OP_EAGER;
    const bool fits = length == kFirstEager - kMessageOverhead;
    EXPECT_EQ(explain(am).find("refused") == std::string::npos, fits);
    tw_request request = TW_REQUEST_NONE;
    const Status status = world->left->start(am, {&request});
    EXPECT_EQ(status == TW_ERR_LIMIT, !fits);
    if (fits) end(request);
  }
  tw_memory* const memory = allocate(world->registry_a, MemoryKind::emulated, near_device());
  BufferInfo info;
  ASSERT_EQ(find_device(reinterpret_cast<uint64_t>(memory->address), &info), TW_OK);
  am.address = memory->address;
  am.length = 8;
  set_device(am, info);
  EXPECT_TRUE(refused());
  EXPECT_EQ(world->left->start(am, Completion{}), TW_ERR_UNSUPPORTED);
}

}  // namespace
}  // namespace thalweg::test
