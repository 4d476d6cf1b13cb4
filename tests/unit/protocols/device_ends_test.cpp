// SPDX-License-Identifier: Apache-2.0
// Operations of device memory, or behind a user's stream: what order they keep with everything else of their endpoint, and what
// becomes of them when the peer is lost before the device or the stream is done.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "base/clock.hpp"
#include "memory/local_copy.hpp"
#include "memory/placement.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/local_device.hpp"
#include "protocols/one_sided.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

using emulated::EmulatedDevice;

/// Of this program, until it exits: engines keep queues of it. Every task takes a while, so that a host that does not wait is ahead.
EmulatedDevice& slow_device() {
  static EmulatedDevice* const device = [] {
    emulated::Options options;
    options.task_delay_ns = 2'000'000;
    return emulated::open_device(7, options).release();
  }();
  return *device;
}

class DeviceEnds : public ::testing::Test {
 protected:
  static constexpr size_t kChunk = DeviceQueues::kChunk;

  void connect(uint32_t features, uint32_t fragment = 8192) {
    FakeOptions options;
    options.features = features;
    options.copy_max = options.fragment = fragment;
    world = std::make_unique<World>(options, seed());
    if (local()) world->la->peer.incarnation = world->lb->peer.incarnation = 11;
    world->connect();
    stream = emulated::make_queue(slow_device());
    word = emulated::make_word(slow_device());
  }
  void TearDown() override {
    let_go();
    stream->synchronize();
    for (RemoteRegion* region : regions) release_region(region);
    for (auto& [registry, memory] : memories) EXPECT_EQ(registry->release(memory), TW_OK);
    world.reset();
    stream.reset();
    EXPECT_EQ(slow_device().free(word), TW_OK);
  }
  bool local() const { return (world->la->features & kLinkSameProcess) != 0; }
  Registry& theirs() { return local() ? world->registry_a : world->registry_b; }

  tw_memory* allocate(Registry& registry, MemoryKind kind, size_t size) {
    tw_memory* memory = nullptr;
    EXPECT_EQ(allocate_at(registry, {kind, &slow_device()}, size, 0, false, &memory), TW_OK) << last_error();
    memories.emplace_back(&registry, memory);
    return memory;
  }
  std::vector<std::byte> random_bytes(size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(world->random());
    return bytes;
  }
  void store(tw_memory* memory, const std::vector<std::byte>& bytes) {
    ASSERT_EQ(copier.copy(address(memory), reinterpret_cast<uint64_t>(bytes.data()), bytes.size()), TW_OK) << last_error();
  }
  std::vector<std::byte> load(tw_memory* memory, size_t size) {
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(copier.copy(reinterpret_cast<uint64_t>(bytes.data()), address(memory), size), TW_OK) << last_error();
    return bytes;
  }
  static uint64_t address(const tw_memory* memory) { return reinterpret_cast<uint64_t>(memory->address); }
  /// Of right's memory. Mapped here when the link maps and `mapped`, else reached by frames.
  RemoteRegion* import(tw_memory* memory, bool mapped) {
    if (mapped) {
      Mapping& mapping = world->pa->segments[memory->segment_id];
      mapping.address = memory->address;
      mapping.length = memory->length;
    }
    KeyBody key;
    EXPECT_EQ(theirs().export_range(memory, 0, memory->length, 0, &key), TW_OK);
    if (!mapped) key.segment = 0;
    RemoteRegion* region = nullptr;
    EXPECT_EQ(import_region(world->a, key, &region), TW_OK);
    regions.push_back(region);
    return region;
  }
  RemoteRegion* import(SignalPool& pool, tw_signal* signal) {
    KeyBody key;
    EXPECT_EQ(pool.export_signal(signal, &key), TW_OK);
    key.segment = 0;
    RemoteRegion* region = nullptr;
    EXPECT_EQ(import_region(world->a, key, &region), TW_OK);
    regions.push_back(region);
    return region;
  }

  /// The local side is memory of a device.
 public:
  static void on_device(OpDesc& op, tw_memory* memory, size_t length) {
    BufferInfo info;
    ASSERT_EQ(find_device(address(memory), &info), TW_OK);
    op.address = memory->address;
    op.length = length;
    set_device(op, info);
  }

 protected:
  OpDesc one_sided(Verb verb, RemoteRegion* remote, uint64_t offset, std::byte* local, size_t length) {
    OpDesc op;
    op.verb = verb;
    op.peer = &world->a;
    op.address = local;
    op.length = length;
    op.remote = remote;
    op.remote_offset = offset;
    return op;
  }
  static void with_signal(OpDesc& op, RemoteRegion* signal, uint64_t value) {
    op.signal = signal;
    op.signal_op = TW_SIGNAL_ADD;
    op.signal_value = value;
  }
  /// The operation waits for the stream, which waits for let_go().
  void behind_stream(OpDesc& op) {
    ASSERT_EQ(stream->wait_geq(word, 1), TW_OK);
    ASSERT_EQ(make_ordering(slow_device(), stream->native(), TW_AFTER_STREAM, &op.after), TW_OK);
    ASSERT_NE(op.after, nullptr);
    op.flags |= kOpLate;
  }
  void let_go() { __atomic_store_n(reinterpret_cast<uint64_t*>(word), 1, __ATOMIC_RELEASE); }
  tw_request start(Engine& engine, const OpDesc& op) {
    tw_request request = TW_REQUEST_NONE;
    const Status status = op.verb == Verb::recv ? engine.post_receive(op, {&request}) : engine.start(op, {&request});
    EXPECT_EQ(status, TW_IN_PROGRESS) << last_error();
    if ((op.flags & kOpLate) != 0) release(op.after);
    return request;
  }
  tw_request start_silently(const OpDesc& op) {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(world->left->start(op, {&request}), TW_OK) << last_error();
    return request;
  }
  tw_request flush() {
    OpDesc op;
    op.verb = Verb::flush;
    op.peer = &world->a;
    return start(*world->left, op);
  }
  Status end(tw_request request) {
    EXPECT_TRUE(world->finish(request, kTurns));
    const Status status = Engine::test(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }
  /// Turns until it is so; false: it never is.
  template <class Condition>
  bool turn_until(const Condition& condition) {
    for (unsigned i = 0; i < kTurns; ++i) {
      world->left->progress();
      if (condition()) return true;
      world->right->progress();
      if (condition()) return true;
    }
    return false;
  }

  static constexpr unsigned kTurns = 50'000'000;  // a device's threads may have to wait for the machine
  std::unique_ptr<World> world;
  std::unique_ptr<Queue> stream;
  uint64_t word = 0;
  LocalCopier copier;
  std::vector<std::pair<Registry*, tw_memory*>> memories;
  std::vector<RemoteRegion*> regions;
};

// ------------------------------------------------------------------------------------------------ loss

TEST_F(DeviceEnds, AReceiveBehindAStreamEndsWithItsPeer) {
  connect(kLinkMaps);
  std::vector<std::byte> bytes(50'000);
  std::vector<std::byte> from(50'000);
  OpDesc receive = receive_op(bytes.data(), bytes.size(), 7, ~0ull), send = send_op(world->a, from.data(), from.size(), 7, 0);
  send.flags = TW_OP_SYNC;
  behind_stream(receive);
  const tw_request received = start(*world->right, receive), sent = start(*world->left, send);
  world->settle();
  ASSERT_EQ(Engine::test(received), TW_IN_PROGRESS);
  world->pb->lose(*world->lb);
  let_go();
  ASSERT_EQ(stream->synchronize(), TW_OK);
  EXPECT_EQ(end(received), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(sent), TW_ERR_PEER_LOST);
}

/// Both ends have device memory, so going on means to ask the link for an import.
TEST_F(DeviceEnds, ASendBehindAStreamEndsWithItsPeer) {
  connect(kLinkMaps);
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, 50'000);
  tw_memory* const target = allocate(world->registry_b, MemoryKind::emulated, 50'000);
  OpDesc receive = receive_op(nullptr, 0, 7, ~0ull), send = send_op(world->a, nullptr, 0, 7, 0);
  on_device(receive, target, 50'000);
  on_device(send, source, 50'000);
  behind_stream(send);
  const tw_request received = start(*world->right, receive), sent = start(*world->left, send);
  world->settle();
  ASSERT_EQ(Engine::test(sent), TW_IN_PROGRESS);
  world->pa->lose(*world->la);
  let_go();
  ASSERT_EQ(stream->synchronize(), TW_OK);
  EXPECT_EQ(end(sent), TW_ERR_PEER_LOST);
  EXPECT_EQ(end(received), TW_ERR_PEER_LOST);
}

/// The link is lost by what the first of them sends: the second must not look at it.
TEST_F(DeviceEnds, AReceiveBehindAStreamEndsWhenAnotherOneNoticesTheLoss) {
  connect(kLinkMaps);
  std::vector<std::byte> from(100'000), to(100'000);
  std::vector<tw_request> requests;
  OpDesc both = receive_op(to.data(), 50'000, 7, ~0ull);
  behind_stream(both);
  for (size_t i = 0; i < 2; ++i) {
    OpDesc receive = both, send = send_op(world->a, from.data() + i * 50'000, 50'000, 7, 0);
    receive.address += i * 50'000;
    send.flags = TW_OP_SYNC;
    retain(both.after);
    requests.push_back(start(*world->right, receive));
    requests.push_back(start(*world->left, send));
  }
  release(both.after);
  world->settle();
  for (tw_request request : requests) ASSERT_EQ(Engine::test(request), TW_IN_PROGRESS);
  world->pb->lose_at_send = true;
  let_go();
  ASSERT_EQ(stream->synchronize(), TW_OK);
  for (tw_request request : requests) EXPECT_EQ(end(request), TW_ERR_PEER_LOST);
}

/// All of its message is here, and its sender, which knows, has closed.
struct Message {
  const char* name;
  size_t length;
  uint32_t fragment;
  bool from_device;
};
class ArrivedMessages : public DeviceEnds, public ::testing::WithParamInterface<Message> {
 protected:
  void SetUp() override {
    connect(0, GetParam().fragment);
    bytes = random_bytes(GetParam().length);
  }
  /// Sent, all of it, and closed behind it; the receiver has seen no more of it than it must.
  void send_and_close() {
    OpDesc send = send_op(world->a, bytes.data(), bytes.size(), 7, 0);
    if (GetParam().from_device) {
      tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, bytes.size());
      store(source, bytes);
      on_device(send, source, bytes.size());
    }
    tw_request sent = TW_REQUEST_NONE;
    ASSERT_GE(world->left->start(send, {&sent}), TW_OK) << last_error();
    const Deadline limit(20 * kSecond);
    while (sent != TW_REQUEST_NONE && Engine::test(sent) == TW_IN_PROGRESS && !limit.passed()) {
      world->left->progress();
      if (world->pb->frames(Frame::cts) == 0) world->right->progress();
    }
    if (sent != TW_REQUEST_NONE) {
      EXPECT_EQ(Engine::test(sent), TW_OK);
      EXPECT_EQ(Engine::release(sent), TW_OK);
    }
    world->left->close(world->a, true);
  }
  Status received_alone(tw_request request) {
    const Deadline limit(20 * kSecond);
    while (Engine::test(request) == TW_IN_PROGRESS && !limit.passed()) world->right->progress();
    return Engine::test(request);
  }
  OpDesc receive(tw_memory* target) {
    OpDesc op = receive_op(nullptr, 0, 7, ~0ull);
    on_device(op, target, bytes.size());
    op.peer = &world->b;
    return op;
  }
  std::vector<std::byte> bytes;
};

TEST_P(ArrivedMessages, EndWellThoughTheirSenderCloses) {
  tw_memory* const target = allocate(world->registry_b, MemoryKind::emulated, bytes.size());
  const tw_request received = start(*world->right, receive(target));
  send_and_close();
  EXPECT_EQ(received_alone(received), TW_OK) << Engine::message(received);
  EXPECT_EQ(world->b.state, TW_ERR_CLOSED) << "the sender's end came before the device's";
  tw_recv_info info{};
  EXPECT_EQ(Engine::info(received, &info), TW_OK);
  EXPECT_EQ(info.endpoint, world->b.endpoint);
  EXPECT_EQ(info.length, bytes.size());
  EXPECT_EQ(Engine::release(received), TW_OK);
  EXPECT_TRUE(load(target, bytes.size()) == bytes);
  EXPECT_EQ(world->b.tally.received.get(), 1u);
  EXPECT_TRUE(world->b.waiting.empty());
}

TEST_P(ArrivedMessages, EndWellThoughTheirEndpointIsGone) {
  tw_memory* const target = allocate(world->registry_b, MemoryKind::emulated, bytes.size());
  const tw_request received = start(*world->right, receive(target));
  send_and_close();
  for (int i = 0; i < 1000 && world->b.state == TW_OK; ++i) world->right->progress();
  ASSERT_EQ(world->b.state, TW_ERR_CLOSED);
  ASSERT_EQ(Engine::test(received), TW_IN_PROGRESS) << "the device is slow";
  world->right->remove(world->b);
  EXPECT_EQ(received_alone(received), TW_OK) << Engine::message(received);
  tw_recv_info info{};
  EXPECT_EQ(Engine::info(received, &info), TW_OK);
  EXPECT_EQ(info.endpoint, nullptr);
  EXPECT_EQ(Engine::release(received), TW_OK);
  EXPECT_TRUE(load(target, bytes.size()) == bytes);
}

/// Eager ones: what is announced comes when the stream has come so far.
class ArrivedUnasked : public ArrivedMessages {};

TEST_P(ArrivedUnasked, WaitForAStreamThoughTheirSenderCloses) {
  std::vector<std::byte> to(bytes.size());
  OpDesc receive = receive_op(to.data(), to.size(), 7, ~0ull);
  receive.peer = &world->b;
  behind_stream(receive);
  const tw_request received = start(*world->right, receive);
  send_and_close();
  for (int i = 0; i < 1000; ++i) world->right->progress();
  EXPECT_EQ(world->b.state, TW_ERR_CLOSED);
  EXPECT_EQ(Engine::test(received), TW_IN_PROGRESS);
  let_go();
  EXPECT_EQ(received_alone(received), TW_OK) << Engine::message(received);
  EXPECT_EQ(Engine::release(received), TW_OK);
  EXPECT_TRUE(to == bytes);
}

/// What this side closes itself it gives up.
TEST_P(ArrivedUnasked, EndWithTheirOwnEndpoint) {
  std::vector<std::byte> to(bytes.size());
  OpDesc receive = receive_op(to.data(), to.size(), 7, ~0ull);
  receive.peer = &world->b;
  behind_stream(receive);
  const tw_request received = start(*world->right, receive);
  tw_request sent = TW_REQUEST_NONE;
  ASSERT_GE(world->left->start(send_op(world->a, bytes.data(), bytes.size(), 7, 0), {&sent}), TW_OK);
  world->settle();
  if (sent != TW_REQUEST_NONE) Engine::release(sent);
  world->right->close(world->b, false);
  EXPECT_EQ(Engine::test(received), TW_ERR_CLOSED);
  EXPECT_EQ(Engine::release(received), TW_OK);
}

constexpr Message kWord{"a_word", 8, 8192, false}, kFrames{"several_frames", 32'768, 8192, false},
    kAnnounced{"an_announced_one", 8u << 20, 1u << 20, false}, kFromDevice{"a_device", 8u << 20, 1u << 20, true};
std::string name_of(const ::testing::TestParamInfo<Message>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, ArrivedMessages, ::testing::Values(kWord, kFrames, kAnnounced, kFromDevice), name_of);
INSTANTIATE_TEST_SUITE_P(Of, ArrivedUnasked, ::testing::Values(kWord, kFrames), name_of);

// ------------------------------------------------------------------------------------------------ signals

/// Of the put alone, or of all before it.
class DeviceSignals : public DeviceEnds, public ::testing::WithParamInterface<uint32_t> {};

/// Moved by a device of this process.
TEST_P(DeviceSignals, OfADirectPutIsGivenBeforeWhatIsBehindAFence) {
  connect(kLinkSameProcess);
  SignalPool pool(theirs());
  tw_signal* signal = nullptr;
  ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, 5000);
  tw_memory* const target = allocate(theirs(), MemoryKind::emulated, 5000);
  tw_memory* const plain = allocate(theirs(), MemoryKind::host, 4096);
  std::memset(plain->address, 0, 4096);
  RemoteRegion* const to = import(target, false);
  RemoteRegion* const behind = import(plain, false);
  OpDesc put = one_sided(Verb::put, to, 0, nullptr, 0);
  on_device(put, source, 5000);
  put.flags |= GetParam();
  with_signal(put, import(pool, signal), 1);
  std::vector<tw_request> requests{start(*world->left, put)};
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  std::byte one{1};
  for (size_t i = 0; i < 20; ++i) {  // more than go in one turn
    requests.push_back(start(*world->left, one_sided(Verb::put, behind, i, &one, 1)));
  }
  ASSERT_TRUE(turn_until([&] { return plain->address[0] != std::byte{0}; }));
  EXPECT_EQ(signal_read(*signal), 1u) << "what is behind the fence is there, the signal before it is not";
  for (tw_request request : requests) EXPECT_EQ(end(request), TW_OK);
  EXPECT_EQ(signal_read(*signal), 1u);
  pool.destroy(signal);
}

/// A relay whose signal's word is out of reach, so that it goes by a frame.
TEST_P(DeviceSignals, OfARelayedPutIsGivenBeforeWhatIsBehindAFence) {
  connect(kLinkMaps);
  SignalPool pool(theirs());
  tw_signal* signal = nullptr;
  ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, 5000);
  tw_memory* const target = allocate(theirs(), MemoryKind::host, 8192);
  std::memset(target->address, 0, 8192);
  RemoteRegion* const to = import(target, true);
  OpDesc put = one_sided(Verb::put, to, 0, nullptr, 0);
  on_device(put, source, 5000);
  put.flags |= GetParam();
  with_signal(put, import(pool, signal), 1);
  const tw_request first = start(*world->left, put);
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  std::byte one{1};
  const tw_request second = start(*world->left, one_sided(Verb::put, to, 8000, &one, 1));
  ASSERT_TRUE(turn_until([&] {
    world->pa->allowed = 1;  // a frame a turn
    return target->address[8000] != std::byte{0};
  }));
  world->pa->allowed = SIZE_MAX;
  EXPECT_EQ(signal_read(*signal), 1u) << "what is behind the fence is there, the signal before it is not";
  for (tw_request request : {first, second, flush()}) EXPECT_EQ(end(request), TW_OK);
  EXPECT_EQ(signal_read(*signal), 1u);
  pool.destroy(signal);
}

INSTANTIATE_TEST_SUITE_P(Of, DeviceSignals, ::testing::Values(0u, uint32_t{TW_OP_AFTER_ALL}),
                         [](const auto& info) { return std::string(info.param == 0 ? "the_put" : "all_before"); });

// ------------------------------------------------------------------------------------------------ fences

/// Three parts by frames, each of them acknowledged.
TEST_F(DeviceEnds, PartsOfARelayedPutConfirmNoFence) {
  connect(kLinkMaps);
  constexpr size_t kLength = 3 * kChunk + 11;
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, kLength);
  tw_memory* const target = allocate(theirs(), MemoryKind::host, kLength + 64);
  const std::vector<std::byte> bytes = random_bytes(kLength);
  store(source, bytes);
  RemoteRegion* const frames = import(target, false);
  RemoteRegion* const mapped = import(target, true);
  OpDesc put = one_sided(Verb::put, frames, 0, nullptr, 0);
  on_device(put, source, kLength);
  put.flags |= TW_OP_REMOTE;
  const tw_request request = start(*world->left, put);
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  const uint64_t value = 1;
  ASSERT_TRUE(turn_until([&] { return try_put_mapped(&value, sizeof value, *mapped, kLength + 5); }));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), target->address)) << "a later store is there, all of the put is not";
  EXPECT_EQ(end(request), TW_OK);
}

TEST_F(DeviceEnds, APutBetweenHostMemoriesThatWaitsForAStreamGoesAsOneThatDoesNot) {
  connect(kLinkMaps);
  constexpr size_t kLength = 4111;
  tw_memory* const target = allocate(theirs(), MemoryKind::host, kLength);
  std::vector<std::byte> bytes = random_bytes(kLength);
  for (const bool maps : {true, false}) {
    RemoteRegion* const region = import(target, maps);
    OpDesc put = one_sided(Verb::put, region, 0, bytes.data(), kLength);
    put.flags |= TW_OP_REMOTE;
    const std::string at_once = explain(put);
    const Way way = maps ? Way::mapped : Way::frames;
    EXPECT_NE(at_once.find(std::string("way: ") + name_of(way)), std::string::npos) << at_once;
    behind_stream(put);
    EXPECT_EQ(explain(put), at_once);
    const uint64_t before = moved_by(*world->left, way).operations;
    const tw_request request = start(*world->left, put);
    let_go();
    EXPECT_EQ(end(request), TW_OK);
    EXPECT_EQ(moved_by(*world->left, way).operations, before + 1);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), target->address));
    __atomic_store_n(reinterpret_cast<uint64_t*>(word), 0, __ATOMIC_RELEASE);
    bytes = random_bytes(kLength);
  }
}

TEST_F(DeviceEnds, PartsOfARelayedGetConfirmNoFence) {
  connect(kLinkMaps);
  constexpr size_t kLength = 3 * kChunk + 11;
  tw_memory* const here = allocate(world->registry_a, MemoryKind::emulated, kLength);
  tw_memory* const target = allocate(theirs(), MemoryKind::host, kLength);
  const std::vector<std::byte> bytes = random_bytes(kLength);
  std::copy(bytes.begin(), bytes.end(), target->address);
  RemoteRegion* const frames = import(target, false);
  RemoteRegion* const mapped = import(target, true);
  OpDesc get = one_sided(Verb::get, frames, 0, nullptr, 0);
  on_device(get, here, kLength);
  const tw_request request = start(*world->left, get);
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + kLength - 8, sizeof value);
  value = ~value;
  ASSERT_TRUE(turn_until([&] { return try_put_mapped(&value, sizeof value, *mapped, kLength - 8); }));
  EXPECT_EQ(end(request), TW_OK);
  EXPECT_TRUE(load(here, kLength) == bytes) << "it brought what was stored behind the fence";
}

/// Of two puts the first one's signal goes last, when the second one is answered: nothing says that it is applied.
TEST_F(DeviceEnds, ALaterAnswerDoesNotSettleWhatIsSentAfterIt) {
  connect(kLinkMaps);
  SignalPool pool(theirs());
  tw_signal* signal = nullptr;
  ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, 5000);
  tw_memory* const target = allocate(theirs(), MemoryKind::host, 8192);
  RemoteRegion* const frames = import(target, false);
  RemoteRegion* const mapped = import(target, true);
  OpDesc first = one_sided(Verb::put, mapped, 0, nullptr, 0);
  on_device(first, source, 5000);
  with_signal(first, import(pool, signal), 1);
  first.flags |= TW_OP_AFTER_ALL;  // the put gives it itself
  std::byte one{1};
  OpDesc second = one_sided(Verb::put, frames, 8000, &one, 1);
  second.flags = TW_OP_REMOTE;
  const tw_request relayed = start(*world->left, first);
  world->pa->allowed = 1;  // the second one's frame
  const tw_request answered = start(*world->left, second);
  const auto& queue = world->a.one_sided.queue;
  ASSERT_TRUE(turn_until([&] { return Engine::test(answered) == TW_OK && !queue.empty(); })) << "the signal waits for room";
  world->pa->allowed = SIZE_MAX;
  while (Engine::test(relayed) == TW_IN_PROGRESS) world->left->progress();
  ASSERT_EQ(world->pa->frames(Frame::signal), 1u);
  ASSERT_EQ(signal_read(*signal), 0u);
  EXPECT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  const uint64_t value = 1;
  EXPECT_FALSE(try_put_mapped(&value, sizeof value, *mapped, 8008)) << "the signal before the fence is not there";
  for (tw_request request : {relayed, answered}) EXPECT_EQ(end(request), TW_OK);
  EXPECT_TRUE(turn_until([&] { return try_put_mapped(&value, sizeof value, *mapped, 8008); }));
  EXPECT_EQ(signal_read(*signal), 1u);
  pool.destroy(signal);
}

/// All answers of the target wait for room, and the first place is for a flush's: it is not to say that the get has read.
/// Goes on when the test says so.
EmulatedDevice& stepped_device() {
  static EmulatedDevice* const device = [] {
    emulated::Options options;
    options.stepped = true;
    return emulated::open_device(8, options).release();
  }();
  return *device;
}

TEST_F(DeviceEnds, ACopyBeforeACutEndsWithoutThoseBehindIt) {
  connect(0);
  tw_memory *source = nullptr, *target = nullptr;
  for (tw_memory** memory : {&source, &target}) {
    ASSERT_EQ(allocate_at(world->registry_a, {MemoryKind::emulated, &stepped_device()}, 256, 0, false, memory), TW_OK);
    memories.emplace_back(&world->registry_a, *memory);
  }
  DeviceQueues& queues = world->left->devices();
  unsigned over = 0;
  const DeviceQueues::Done done = [](Engine&, void* token, Status status) {
    EXPECT_EQ(status, TW_OK);
    ++*static_cast<unsigned*>(token);
  };
  for (uint64_t at : {0u, 64u, 128u}) {
    Copy copy;
    copy.to = address(target) + at;
    copy.from = address(source) + at;
    copy.width = 61;
    ASSERT_EQ(queues.submit(stepped_device(), {&copy, 1}, done, &over), TW_OK);
    if (at == 0) queues.cut(stepped_device());
  }
  queues.poll();  // tells the device: one copy and its ticket, then two and theirs
  std::vector<unsigned> seen;
  do {
    queues.poll();
    if (seen.empty() || seen.back() != over) seen.push_back(over);
  } while (stepped_device().step(0));
  queues.poll();
  EXPECT_EQ(seen, (std::vector<unsigned>{0, 1, 3}));
}

/// They take longer than a queue may stand still.
TEST_F(DeviceEnds, QueuesMoveBehindManyCopiesThatArePending) {
  connect(0);
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, 64);
  tw_memory* const target = allocate(world->registry_a, MemoryKind::emulated, 64);
  DeviceQueues& queues = world->left->devices();
  constexpr unsigned kCopies = 100;
  unsigned over = 0;
  const DeviceQueues::Done done = [](Engine&, void* token, Status status) {
    EXPECT_EQ(status, TW_OK);
    ++*static_cast<unsigned*>(token);
  };
  const Copy copy{address(target), address(source), 64};
  for (unsigned i = 0; i < kCopies; ++i) {
    ASSERT_EQ(queues.submit(slow_device(), {&copy, 1}, done, &over), TW_OK);
    queues.cut(slow_device());
  }
  queues.poll();
  const uint64_t began = monotonic_ns();
  EXPECT_EQ(queues.check_moving(slow_device()), TW_OK);
  EXPECT_GT(monotonic_ns() - began, 200 * kMillisecond);
  while (queues.poll() != 0) continue;
  EXPECT_EQ(over, kCopies);
}

TEST_F(DeviceEnds, AWorkerMaySleepWhileThePartOfARelayWaits) {
  connect(0);
  std::vector<std::byte> target(64);
  tw_memory *source = nullptr, *memory = nullptr;
  ASSERT_EQ(allocate_at(world->registry_a, {MemoryKind::emulated, &stepped_device()}, 64, 0, false, &source), TW_OK);
  ASSERT_EQ(theirs().register_memory(target.data(), target.size(), 0, &memory), TW_OK);
  memories.emplace_back(&world->registry_a, source);
  memories.emplace_back(&theirs(), memory);
  OpDesc op = one_sided(Verb::put, import(memory, false), 0, nullptr, 0);
  on_device(op, source, 64);
  world->settle();
  world->pa->allowed = 0;
  const tw_request put = start(*world->left, op);
  for (int i = 0; i < 20; ++i) {
    world->left->progress();
    stepped_device().step(0);
  }
  EXPECT_EQ(world->left->arm(), TW_OK);
  EXPECT_EQ(Engine::test(put), TW_IN_PROGRESS);
  world->pa->allowed = SIZE_MAX;
  EXPECT_EQ(end(put), TW_OK);
}

/// The signal covers all that devices move, a relay among it, whose part waits for room in the same ordered queue.
TEST_F(DeviceEnds, ASignalThatWaitsForARelayLetsItsPartsPass) {
  connect(kLinkSameProcess);
  const auto on_stepped = [&](Registry& registry) {
    tw_memory* memory = nullptr;
    EXPECT_EQ(allocate_at(registry, {MemoryKind::emulated, &stepped_device()}, 64, 0, false, &memory), TW_OK);
    memories.emplace_back(&registry, memory);
    return memory;
  };
  tw_memory *const here = on_stepped(world->registry_a), *const back = on_stepped(world->registry_a);
  KeyBody key;  // of another context of this process, which is reached by frames
  ASSERT_EQ(world->registry_b.export_range(allocate(world->registry_b, MemoryKind::host, 64), 0, 64, 0, &key), TW_OK);
  key.incarnation = 11;
  key.segment = 0;
  RemoteRegion *const device = import(on_stepped(theirs()), false), *plain = nullptr;
  ASSERT_EQ(import_region(world->a, key, &plain), TW_OK);
  regions.push_back(plain);
  SignalPool pool(theirs());
  tw_signal* signal = nullptr;
  ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
  RemoteRegion* const word = import(pool, signal);
  OpDesc first = one_sided(Verb::put, device, 0, nullptr, 0), second = one_sided(Verb::get, plain, 0, nullptr, 0);
  on_device(first, here, 64);
  with_signal(first, word, 1);
  first.flags |= TW_OP_AFTER_ALL;
  on_device(second, back, 64);
  const tw_request put = start(*world->left, first);
  world->left->progress();  // the device has its work
  const tw_request get = start(*world->left, second);
  world->pa->allowed = 0;
  world->left->progress();  // the relay's part waits for room
  while (stepped_device().step(0)) {
  }
  world->left->progress();  // the signal comes to the front
  world->pa->allowed = SIZE_MAX;
  for (int i = 0; i < 200; ++i) {
    world->turn();
    stepped_device().step(0);
  }
  EXPECT_EQ(Engine::test(get), TW_OK);
  EXPECT_EQ(Engine::test(put), TW_OK);
  EXPECT_EQ(signal_read(*signal), 1u);
  for (tw_request request : {get, put}) Engine::release(request);
  pool.destroy(signal);
}

TEST_F(DeviceEnds, WhatComesBeforeAFenceDoesNotWaitForIt) {
  connect(0);
  std::vector<std::byte> target(64), bytes(8);
  tw_memory* memory = nullptr;
  ASSERT_EQ(theirs().register_memory(target.data(), target.size(), 0, &memory), TW_OK);
  memories.emplace_back(&theirs(), memory);
  RemoteRegion* const remote = import(memory, false);
  const tw_request first = start_silently(one_sided(Verb::put, remote, 0, bytes.data(), bytes.size()));
  EXPECT_EQ(first, TW_REQUEST_NONE) << "it goes at once, and nobody knows that it is applied";
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, bytes.size());
  OpDesc late = one_sided(Verb::put, remote, 8, bytes.data(), bytes.size());
  on_device(late, source, bytes.size());
  behind_stream(late);
  const tw_request put = start(*world->left, late);
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  let_go();
  EXPECT_EQ(end(put), TW_OK);
}

class GetsByFrames : public DeviceEnds, public ::testing::WithParamInterface<bool> {};
TEST_P(GetsByFrames, ReadBeforeWhatIsBehindAFence) {
  const bool by_frames = GetParam();
  connect(kLinkMaps, 1024);
  constexpr size_t kLength = 10'000;
  std::vector<std::byte> here(kLength);
  tw_memory* const target = allocate(theirs(), MemoryKind::host, kLength);
  const std::vector<std::byte> bytes = random_bytes(kLength);
  std::copy(bytes.begin(), bytes.end(), target->address);
  RemoteRegion* const frames = import(target, false);
  RemoteRegion* const mapped = import(target, true);
  world->settle();
  world->pb->allowed = 0;
  const tw_request get = start(*world->left, one_sided(Verb::get, frames, 0, here.data(), kLength));
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + kLength - 8, sizeof value);
  value = ~value;
  tw_request put = TW_REQUEST_NONE;
  if (by_frames) {
    auto* const local = reinterpret_cast<std::byte*>(&value);
    put = start(*world->left, one_sided(Verb::put, frames, kLength - 8, local, sizeof value));
  }
  world->settle();
  world->pb->allowed = 1;
  world->settle();
  bool stored = by_frames || try_put_mapped(&value, sizeof value, *mapped, kLength - 8);
  world->pb->allowed = SIZE_MAX;
  EXPECT_TRUE(turn_until([&] {
    stored = stored || try_put_mapped(&value, sizeof value, *mapped, kLength - 8);
    return stored && Engine::test(get) != TW_IN_PROGRESS;
  }));
  EXPECT_EQ(end(get), TW_OK);
  EXPECT_EQ(by_frames ? end(put) : TW_OK, TW_OK);
  EXPECT_TRUE(here == bytes) << "it brought what was stored behind the fence";
  world->settle();
  EXPECT_EQ(std::memcmp(target->address + kLength - 8, &value, sizeof value), 0);
}
INSTANTIATE_TEST_SUITE_P(Behind, GetsByFrames, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "frames" : "mapped"); });

/// A fence behind a relay holds back what comes later, not the relay's own parts: they go without the target's help.
TEST_F(DeviceEnds, AFenceDoesNotHoldBackThePartsOfWhatIsBeforeIt) {
  connect(kLinkMaps);
  constexpr size_t kLength = 3 * kChunk + 11;
  tw_memory* const source = allocate(world->registry_a, MemoryKind::emulated, kLength);
  tw_memory* const target = allocate(theirs(), MemoryKind::host, kLength);
  const std::vector<std::byte> bytes = random_bytes(kLength);
  store(source, bytes);
  RemoteRegion* const mapped = import(target, true);
  world->settle();
  OpDesc put = one_sided(Verb::put, mapped, 0, nullptr, 0);
  on_device(put, source, kLength);
  const tw_request request = start(*world->left, put);
  ASSERT_EQ(fence_one_sided(*world->left, world->a), TW_OK);
  const Deadline limit(20 * kSecond);
  while (fenced(world->a) && !limit.passed()) world->left->progress();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), target->address));
  EXPECT_EQ(world->pa->frames(Frame::put), 0u);
  EXPECT_EQ(end(request), TW_OK);
}

// ------------------------------------------------------------------------------------------------ waits

/// A frame's bytes wait for room in a device's staging: nothing else goes on in the middle of that.
TEST_F(DeviceEnds, WhileAFrameWaitsForADeviceNothingElseGoesOn) {
  connect(0, kChunk);
  constexpr size_t kLength = 10 * kChunk;
  tw_memory* const target = allocate(world->registry_b, MemoryKind::emulated, kLength);
  std::vector<std::byte> from = random_bytes(kLength), small(kChunk + 5000), other(kChunk + 5000);
  OpDesc large = receive_op(nullptr, 0, 1, ~0ull), late = receive_op(other.data(), other.size(), 2, ~0ull);
  on_device(large, target, kLength);
  behind_stream(late);
  OpDesc small_send = send_op(world->a, small.data(), small.size(), 2, 0);
  small_send.flags = TW_OP_SYNC;
  std::vector<tw_request> requests{start(*world->right, late), start(*world->left, small_send)};
  world->settle();
  requests.push_back(start(*world->right, large));
  requests.push_back(start(*world->left, send_op(world->a, from.data(), kLength, 1, 0)));
  for (int i = 0; i < 30; ++i) world->left->progress();
  world->right->progress();
  for (int i = 0; i < 30; ++i) world->left->progress();  // all of it is on its way
  let_go();
  ASSERT_EQ(stream->synchronize(), TW_OK);
  for (tw_request request : requests) EXPECT_EQ(end(request), TW_OK);
  EXPECT_TRUE(load(target, kLength) == from);
  EXPECT_EQ(world->pb->sent_while_delivering_data, 0u);
}

/// The target's progress waits for the copy of a put's frame, under its lock: nothing of the user's can hold that up.
TEST_F(DeviceEnds, AFrameForADeviceWaitsForNoStream) {
  connect(0);
  tw_memory* const target = allocate(theirs(), MemoryKind::emulated, 5000);
  std::vector<std::byte> bytes = random_bytes(5000), other(5000);
  OpDesc late = receive_op(other.data(), other.size(), 2, ~0ull);
  behind_stream(late);  // a stream of the same device is held up all the time
  const tw_request receive = start(*world->right, late);
  OpDesc put = one_sided(Verb::put, import(target, false), 0, bytes.data(), bytes.size());
  put.flags = TW_OP_REMOTE;
  EXPECT_EQ(end(start(*world->left, put)), TW_OK);
  EXPECT_TRUE(load(target, 5000) == bytes);
  EXPECT_EQ(Engine::test(receive), TW_IN_PROGRESS);
  EXPECT_EQ(world->right->cancel(receive), TW_OK);
  EXPECT_EQ(end(receive), TW_ERR_CANCELED);
}

/// Of memory of this process. Builds with assertions end where a section of readers begins inside another one; in others a thread that
/// registers memory in between and this one would wait for each other.
TEST_F(DeviceEnds, ASignalThatIsGoneIsLookedUpOutsideOtherLookUps) {
  connect(kLinkSameProcess);
  SignalPool pool(theirs());
  std::vector<std::byte> bytes = random_bytes(100);
  for (const MemoryKind kind : {MemoryKind::host, MemoryKind::emulated}) {
    tw_signal* signal = nullptr;
    ASSERT_EQ(pool.create(TW_SIGNAL_ADD, 0, &signal), TW_OK);
    RemoteRegion* const gone = import(pool, signal);
    pool.destroy(signal);
    tw_memory* const target = allocate(theirs(), kind, 100);
    OpDesc put = one_sided(Verb::put, import(target, false), 0, bytes.data(), bytes.size());
    with_signal(put, gone, 1);
    tw_request request = TW_REQUEST_NONE;
    const Status status = world->left->start(put, {&request});
    EXPECT_EQ(status == TW_IN_PROGRESS ? end(request) : status, TW_OK);
    EXPECT_TRUE(load(target, 100) == bytes);
    EXPECT_EQ(end(flush()), TW_ERR_STALE) << "the signal's frame was refused";
  }
}

/// A strided buffer, whose chunks are gathered by a kernel each: the device fails at any of them, while the link is to read others.
TEST(DeviceFailures, AChunkIsTheMessagesUntilTheLinkHasReadIt) {
  constexpr uint64_t kRow = 64, kRows = 6 * DeviceQueues::kChunk / kRow;
  unsigned failed = 0;
  for (unsigned nth = 1; nth <= 8; ++nth) {
    emulated::Options faults;
    faults.fail(emulated::Operation::run, nth);
    const std::unique_ptr<EmulatedDevice> device = emulated::open_device(6, faults);
    FakeOptions options;
    options.features = kLinkByReference;
    options.copied = 0;
    World world(options, seed());
    world.connect();
    world.settle(3);
    tw_memory* source = nullptr;
    const MemoryPlace place{MemoryKind::emulated, device.get()};
    ASSERT_EQ(allocate_at(world.registry_a, place, kRow * kRows * 2, 0, false, &source), TW_OK) << last_error();
    Layout* layout = nullptr;
    const int64_t stride = 2 * kRow;
    ASSERT_EQ(make_strided(1, kRow, &kRows, &stride, &layout), TW_OK);
    std::vector<std::byte> to(kRow * kRows);
    OpDesc send = send_op(world.a, nullptr, 0, 7, 0);
    DeviceEnds::on_device(send, source, kRow * kRows);
    send.layout = layout;
    tw_request sent = 0, received = 0;
    ASSERT_EQ(world.right->post_receive(receive_op(to.data(), to.size(), 7, ~0ull), {&received}), TW_IN_PROGRESS);
    ASSERT_EQ(world.left->start(send, {&sent}), TW_IN_PROGRESS);
    const Deadline limit(20 * kSecond);
    for (unsigned i = 1; Engine::test(sent) == TW_IN_PROGRESS && !limit.passed(); ++i) {
      world.left->progress();
      const size_t reading = Engine::test(sent) == TW_IN_PROGRESS ? 0 : world.pa->reading;
      EXPECT_EQ(reading, 0u) << nth;
      if (i % 1000 == 0 || world.pa->frames(Frame::data) == 0) world.right->progress();
    }
    failed += is_error(Engine::test(sent)) ? 1 : 0;
    EXPECT_TRUE(world.finish(received));
    EXPECT_EQ(Engine::test(received) == TW_OK, Engine::test(sent) == TW_OK);
    for (tw_request request : {sent, received}) EXPECT_EQ(Engine::release(request), TW_OK);
    release(layout);
    EXPECT_EQ(world.registry_a.release(source), TW_OK);
  }
  EXPECT_GT(failed, 0u);
}

TEST(OrderingPoint, IsCountedByManyThreads) {
  auto* point = new Ordering;
  std::vector<std::thread> threads;
  std::barrier together(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&together, point] {
      together.arrive_and_wait();
      for (int k = 0; k < 1'000'000; ++k) {
        retain(point);
        release(point);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(point->references, 1u);
  release(point);
}

}  // namespace
}  // namespace thalweg::test
