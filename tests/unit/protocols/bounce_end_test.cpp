// SPDX-License-Identifier: Apache-2.0
// The end of a peer that keeps this process's bounce buffer imported: nothing waits for it, and nothing is lost with it.
#include "base/clock.hpp"
#include "protocols/bounce.hpp"
#include "unit/devices/emulated_tools.hpp"
#include "unit/transports/shm_pair.hpp"

namespace thalweg::impl::test {
namespace {

using emulated::EmulatedDevice;

EngineOptions options_with(Registry& registry) {
  EngineOptions options;
  options.registry = &registry;
  options.bounces.device = 64u << 10;
  return options;
}

/// An engine with a shm port, and a device.
struct Owner {
  std::unique_ptr<EmulatedDevice> device = emulated::open_device(13);
  EventLoop loop;
  Registry registry{random_id()};
  Engine engine{options_with(registry)};
  Port* port = nullptr;

  Owner() {
    EXPECT_EQ(loop.start(), TW_OK);
    PortOptions options;
    options.sink = &engine;
    options.service = &loop;
    options.registry = &registry;
    options.worker = random_id();
    options.incarnation = registry.incarnation();
    std::unique_ptr<Port> made;
    EXPECT_EQ(shm::ShmPort::open(options, &made), TW_OK) << last_error();
    port = made.get();
    engine.add_port(std::move(made));
  }
};

/// A peer of it that is only the other end of the control channel.
struct RawPeer {
  Owner& owner;
  Peer peer;
  std::unique_ptr<SetupChannel> channel;

  explicit RawPeer(Owner& of) : owner(of) {
    Side helper(false);
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    LinkInit init;
    init.initiator = true;
    init.socket = UniqueFd(fds[0]);
    init.peer.incarnation = random_id();
    Link* link = nullptr;
    EXPECT_EQ(of.port->offer(init.peer, init.mine), TW_OK) << last_error();
    EXPECT_EQ(helper.port->answer(init.peer, init.mine, init.theirs), TW_OK) << last_error();
    EXPECT_EQ(of.port->establish(std::move(init), &link), TW_OK) << last_error();
    channel = std::make_unique<SetupChannel>(UniqueFd(fds[1]), nullptr, Session{});
    of.engine.attach(peer, *link);
  }
  ~RawPeer() { owner.engine.remove(peer); }
  /// It gets a bounce buffer of the device, and imports it.
  void import_bounce() {
    make_bounce(owner.engine, peer, owner.device.get(), true);
    ASSERT_NE(peer.bounces, nullptr);
    ASSERT_EQ(peer.bounces->ours.size(), 1u);
    ASSERT_NE(peer.bounces->ours[0].bounce, nullptr) << last_error();
    const uint64_t segment = peer.bounces->ours[0].bounce->segment();
    ASSERT_EQ(channel->queue(shm::kImportDevice, &segment, sizeof segment, nullptr, 0), TW_OK);
    ASSERT_EQ(channel->flush(), TW_OK);
    SetupChannel::Message message;
    Status s;
    const Deadline limit(10 * kSecond);
    while ((s = channel->receive(&message)) == TW_IN_PROGRESS && !limit.passed()) cpu_pause();
    ASSERT_EQ(s, TW_OK);
    ASSERT_EQ(message.type, shm::kDevicePieces);
  }
};

TEST(BounceEnd, WaitsForNoPeerAndLosesNoMemory) {
  Owner owner;
  const size_t before = owner.device->holdings();
  RawPeer one(owner), next(owner);
  one.import_bounce();
  owner.engine.violation(one.peer, "a test");
  const uint64_t start = monotonic_ns();
  owner.engine.progress();
  EXPECT_LT(monotonic_ns() - start, 500 * kMillisecond) << "all links of the worker have waited";
  ASSERT_EQ(one.peer.state, TW_ERR_PROTOCOL);
  EXPECT_EQ(owner.registry.left(), 1u) << "the peer has it imported";
  EXPECT_GT(owner.device->holdings(), before);
  one.channel.reset();
  // It goes when the next one is made, once the service thread knows of the peer's end.
  const Deadline limit(20 * kSecond);
  while (owner.registry.left() != 0 && !limit.passed()) {
    next.peer.bounces.reset();
    make_bounce(owner.engine, next.peer, nullptr, false);
  }
  EXPECT_EQ(owner.registry.left(), 0u);
  EXPECT_EQ(owner.device->holdings(), before);
}

}  // namespace
}  // namespace thalweg::impl::test
