// SPDX-License-Identifier: Apache-2.0
// Receives into device memory that are offered to the peer before it sends: the side that posts second starts the copy in
// its call, order is kept, and whatever ends a receive ends its offer. Devices go on when a test steps them, so nothing here
// depends on time.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "memory/local_copy.hpp"
#include "memory/placement.hpp"
#include "protocols/active.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/local_device.hpp"
#include "protocols/match.hpp"
#include "protocols/offers.hpp"
#include "support.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::test {
namespace {

using emulated::EmulatedDevice;

/// Of this program, until it exits: engines keep queues of them.
EmulatedDevice& device(unsigned which) {
  static EmulatedDevice* const devices[] = {
      [] {
        emulated::Options options;
        options.stepped = true;
        return emulated::open_device(10, options).release();
      }(),
      [] {
        emulated::Options options;
        options.stepped = true;
        return emulated::open_device(11, options).release();
      }(),
  };
  return *devices[which];
}

/// Everything that devices can do now.
void step_devices() {
  for (bool more = true; more;) {
    more = false;
    for (unsigned which = 0; which < 2; ++which) {
      for (unsigned queue = 0; queue < 8; ++queue) more |= device(which).step(queue);
    }
  }
}

constexpr size_t kSmall = 5003, kLarge = kHiddenFrom + 7, kGuard = 64;

/// Left sends from device 0, right receives into device 1.
class Offered : public ::testing::Test {
 protected:
  void SetUp() override { connect(); }
  void connect(bool multi = false) {
    FakeOptions options;
    options.features = kLinkMaps;
    options.offers = true;
    options.import_slow = import_slow;
    world = std::make_unique<World>(options, seed(), 64u << 20, multi);
    world->connect();
    world->pa->lender = &world->registry_b;
    world->pb->lender = &world->registry_a;
  }
  void TearDown() override {
    step_devices();
    world->pa->release_imports();
    world->pb->release_imports();
    for (Piece& piece : pieces) {
      EXPECT_EQ(piece.registry->release(piece.memory), TW_OK);
    }
    world.reset();
  }

  /// Device memory with guards, and what is to be in it.
  struct Piece {
    Registry* registry;
    unsigned on;
    tw_memory* memory = nullptr;
    std::vector<std::byte> bytes;
    uint64_t address() const { return reinterpret_cast<uint64_t>(memory->address); }
  };
  Piece& piece(bool sends, size_t length) {
    Piece& one = pieces.emplace_back();
    one.registry = sends ? &world->registry_a : &world->registry_b;
    one.on = sends ? 0 : 1;
    const size_t all = length + 2 * kGuard;
    EXPECT_EQ(allocate_at(*one.registry, {MemoryKind::vmm, &device(one.on)}, all, 0, false, &one.memory), TW_OK)
        << last_error();
    one.bytes.resize(all);
    for (std::byte& b : one.bytes) b = static_cast<std::byte>(world->random());
    std::byte* view = device(one.on).translate(one.address(), all);
    std::copy(one.bytes.begin(), one.bytes.end(), view);
    return one;
  }
  /// The receive's memory holds this payload, and nothing else of it has changed.
  static bool got(const Piece& to, const Piece& from, size_t length) {
    std::vector<std::byte> expected = to.bytes;
    std::copy_n(from.bytes.begin() + kGuard, length, expected.begin() + kGuard);
    return emulated::holds(device(to.on), to.address(), expected);
  }
  static bool untouched(const Piece& to) { return emulated::holds(device(to.on), to.address(), to.bytes); }

  static OpDesc on_device(OpDesc op, const Piece& piece, size_t length) {
    BufferInfo info;
    EXPECT_EQ(find_device(piece.address(), &info), TW_OK);
    op.address = reinterpret_cast<std::byte*>(piece.address()) + kGuard;
    op.length = length;
    set_device(op, info);
    return op;
  }
  tw_request receive(const Piece& to, size_t length, uint64_t tag, uint64_t mask = ~0ull, Peer* source = nullptr) {
    OpDesc op = on_device(receive_op(nullptr, 0, tag, mask), to, length);
    op.peer = source;
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(world->right->post_receive(op, {&request}), TW_IN_PROGRESS) << last_error();
    return request;
  }
  tw_request send(const Piece& from, size_t length, uint64_t tag, uint64_t immediate = 3) {
    tw_request request = TW_REQUEST_NONE;
    const OpDesc op = on_device(send_op(world->a, nullptr, 0, tag, immediate), from, length);
    EXPECT_EQ(world->left->start(op, {&request}), TW_IN_PROGRESS) << last_error();
    return request;
  }
  bool is_offered(tw_request request) { return world->right->runs().find(request)->offer != 0; }
  Status end(tw_request request) {
    for (unsigned i = 0; i < 20'000 && Engine::test(request) == TW_IN_PROGRESS; ++i) {
      world->turn();
      step_devices();
    }
    const Status status = Engine::test(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }
  void settle() {
    for (unsigned i = 0; i < 100; ++i) {
      world->turn();
      step_devices();
    }
  }
  uint64_t by(Way way) { return moved_by(*world->right, way).operations; }
  /// The sender's engine has imported that memory.
  void warm(const Piece& to, size_t length) {
    BufferInfo info;
    uint64_t segment = 0, offset = 0;
    Mapping* mapping = nullptr;
    ASSERT_EQ(find_device(to.address(), &info), TW_OK);
    ASSERT_EQ(world->registry_b.name_device_memory(info, to.address(), length, &segment, &offset), TW_OK);
    ASSERT_EQ(world->pa->import_device(*world->la, segment, device(0), &mapping), TW_OK) << last_error();
  }

  bool import_slow = false;
  std::unique_ptr<World> world;
  std::list<Piece> pieces;
};

// ------------------------------------------------------------------------------------------------ without progress

TEST_F(Offered, ASendFillsAReceiveThatWasPostedFirst) {
  for (const size_t length : {size_t{1}, kSmall, kLarge}) {
    const Piece &to = piece(false, length), &from = piece(true, length);
    const tw_request received = receive(to, length, 5);
    ASSERT_TRUE(is_offered(received));
    const tw_request sent = send(from, length, 5, length);
    step_devices();
    EXPECT_TRUE(got(to, from, length)) << length;
    EXPECT_EQ(Engine::test(received), TW_IN_PROGRESS);
    EXPECT_EQ(end(sent), TW_OK);
    settle();
    tw_recv_info info{};
    EXPECT_EQ(Engine::info(received, &info), TW_OK);
    EXPECT_EQ(info.length, length);
    EXPECT_EQ(info.tag, 5u);
    EXPECT_EQ(info.immediate, length);
    EXPECT_EQ(info.endpoint, world->b.endpoint);
    EXPECT_EQ(end(received), TW_OK);
    EXPECT_TRUE(got(to, from, length));
  }
  EXPECT_EQ(by(Way::push), 3u);
  EXPECT_EQ(world->pb->frames(Frame::cts), 0u) << "nobody was asked";
}

TEST_F(Offered, ALargeReceivePullsWhatWasAnnouncedBeforeIt) {
  const Piece &to = piece(false, kLarge), &from = piece(true, kLarge);
  const tw_request sent = send(from, kLarge, 5);
  const tw_request received = receive(to, kLarge, 5);
  step_devices();
  EXPECT_TRUE(got(to, from, kLarge));
  EXPECT_EQ(end(received), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_EQ(by(Way::pull), 1u);
  EXPECT_TRUE(got(to, from, kLarge));
}

/// The RTS was taken by progress, before its receive.
TEST_F(Offered, ALargeReceivePullsAnUnexpectedMessage) {
  const Piece &to = piece(false, kLarge), &from = piece(true, kLarge);
  const tw_request sent = send(from, kLarge, 5);
  settle();
  const tw_request received = receive(to, kLarge, 5);
  step_devices();
  EXPECT_TRUE(got(to, from, kLarge));
  EXPECT_EQ(end(received), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_EQ(by(Way::pull), 1u);
}

/// A handler of active messages runs in progress only, and what is behind its message waits with it.
TEST_F(Offered, APostRunsNoHandler) {
  static int ran;
  ran = 0;
  const auto handler = [](void*, const tw_am_message*) -> tw_status {
    ++ran;
    return TW_OK;
  };
  ASSERT_EQ(set_handler(*world->right, 4, handler, nullptr), TW_OK);
  const Piece &to = piece(false, kLarge), &from = piece(true, kLarge);
  OpDesc am;
  am.verb = Verb::am;
  am.peer = &world->a;
  am.tag = 4;
  EXPECT_EQ(world->left->start(am, {}), TW_OK) << last_error();
  const tw_request sent = send(from, kLarge, 5);
  const tw_request received = receive(to, kLarge, 5);
  step_devices();
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(untouched(to));
  EXPECT_EQ(end(received), TW_OK);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(to, from, kLarge));
}

/// Callbacks of what a post has found run in the next progress.
TEST_F(Offered, APostRunsNoCallback) {
  static int ran;
  ran = 0;
  Buffer host(world->random, 100), into(world->random, 100);
  OpDesc op = receive_op(into.data(), into.size(), 9, ~0ull);
  const auto callback = [](void*, tw_request, tw_status status, const tw_recv_info*) { ran += status == TW_OK ? 1 : 100; };
  ASSERT_EQ(world->right->post_receive(op, calls(callback, nullptr)), TW_IN_PROGRESS);
  ASSERT_EQ(world->left->try_send(world->a, host.data(), host.size(), 9, 0), TW_OK);
  const Piece& to = piece(false, kLarge);
  const tw_request received = receive(to, kLarge, 5);
  const OpRun* const posted = world->right->runs().find(received);
  EXPECT_TRUE(posted != nullptr && posted->posted) << "the short message was taken";
  EXPECT_EQ(ran, 0);
  world->right->progress();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(world->right->cancel(received), TW_OK);
  EXPECT_EQ(end(received), TW_ERR_CANCELED);
}

// ------------------------------------------------------------------------------------------------ order

TEST_F(Offered, ManyOfOneTagMeetInOrder) {
  constexpr size_t kMany = 12;  // more than a table holds
  std::vector<Piece*> to, from;
  std::vector<tw_request> requests;
  for (size_t i = 0; i < kMany; ++i) {
    to.push_back(&piece(false, kSmall));
    from.push_back(&piece(true, kSmall - i));
    requests.push_back(receive(*to.back(), kSmall, 5));
    EXPECT_EQ(is_offered(requests.back()), i < kOffers) << i;
  }
  for (size_t i = 0; i < kMany; ++i) requests.push_back(send(*from[i], kSmall - i, 5));
  step_devices();
  // One call of an idle device, and the others are gathered.
  for (size_t i = 0; i < kMany; ++i) EXPECT_EQ(got(*to[i], *from[i], kSmall - i), i < 1) << i;
  for (tw_request request : requests) EXPECT_EQ(end(request), TW_OK);
  for (size_t i = 0; i < kMany; ++i) EXPECT_TRUE(got(*to[i], *from[i], kSmall - i)) << i;
  EXPECT_EQ(by(Way::push), kMany);
  EXPECT_EQ(world->pb->frames(Frame::cts), kMany - kOffers) << "of those that were not offered";
}

/// The receive is not known to be free of what is still on its way: an eager message of the same tag comes first.
TEST_F(Offered, AMessageOnItsWayIsNotOvertaken) {
  Buffer host(world->random, 100);
  ASSERT_EQ(world->left->try_send(world->a, host.data(), host.size(), 5, 1), TW_OK);
  const Piece &to = piece(false, kSmall), &next = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request first = receive(to, kSmall, 5), second = receive(next, kSmall, 5);
  ASSERT_TRUE(is_offered(first));
  const tw_request sent = send(from, kSmall, 5, 2);
  step_devices();
  EXPECT_TRUE(untouched(to) && untouched(next));
  settle();
  tw_recv_info info{};
  EXPECT_EQ(Engine::info(first, &info), TW_OK);
  EXPECT_EQ(info.immediate, 1u);
  EXPECT_EQ(end(first), TW_OK);
  EXPECT_EQ(end(second), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(next, from, kSmall));
}

/// ... of another tag does not matter.
TEST_F(Offered, AMessageOfAnotherTagOnItsWayDoesNotMatter) {
  Buffer host(world->random, 100);
  ASSERT_EQ(world->left->try_send(world->a, host.data(), host.size(), 6, 1), TW_OK);
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request received = receive(to, kSmall, 5), sent = send(from, kSmall, 5);
  step_devices();
  EXPECT_TRUE(got(to, from, kSmall));
  EXPECT_EQ(end(received), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
}

/// An earlier receive of host memory takes the message, so what is behind it is not offered.
TEST_F(Offered, NothingIsOfferedBehindAReceiveThatIsNot) {
  Buffer host(world->random, kSmall);
  tw_request plain = TW_REQUEST_NONE;
  ASSERT_EQ(post_short(*world->right, host.data(), host.size(), 5, ~0xffull, &plain), TW_IN_PROGRESS);
  const Piece &to = piece(false, kSmall), &other = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request same = receive(to, kSmall, 7), apart = receive(other, kSmall, 0x107), wild = receive(other, kSmall, 0, 0);
  EXPECT_FALSE(is_offered(same)) << "the earlier one takes this tag, too";
  EXPECT_TRUE(is_offered(apart));
  EXPECT_FALSE(is_offered(wild));
  const tw_request sent = send(from, kSmall, 7);
  EXPECT_EQ(end(plain), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(std::equal(from.bytes.begin() + kGuard, from.bytes.begin() + kGuard + kSmall, host.data()));
  for (tw_request request : {same, apart, wild}) {
    EXPECT_EQ(world->right->cancel(request), TW_OK);
    EXPECT_EQ(end(request), TW_ERR_CANCELED);
  }
}

TEST_F(Offered, TheEarliestReceiveThatFitsIsClaimed) {
  const Piece &wide = piece(false, kSmall), &exact = piece(false, kSmall), &a = piece(true, kSmall), &b = piece(true, kSmall);
  const tw_request first = receive(wide, kSmall, 0, 0), second = receive(exact, kSmall, 5, ~0ull, &world->b);
  ASSERT_TRUE(is_offered(first) && is_offered(second));
  const tw_request one = send(a, kSmall, 5), two = send(b, kSmall, 5);
  step_devices();
  EXPECT_TRUE(got(wide, a, kSmall));
  for (tw_request request : {first, second, one, two}) EXPECT_EQ(end(request), TW_OK);
  EXPECT_TRUE(got(exact, b, kSmall));
}

TEST_F(Offered, AShorterReceiveIsNotClaimedButTruncated) {
  const Piece &to = piece(false, 999), &from = piece(true, kSmall);
  const tw_request received = receive(to, 999, 5), sent = send(from, kSmall, 5);
  step_devices();
  EXPECT_TRUE(untouched(to));
  EXPECT_EQ(end(received), TW_ERR_TRUNCATED);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(to, from, 999));
}

/// Messages of others than devices withdraw the offer.
TEST_F(Offered, AnEagerMessageTakesAReceiveThatIsOffered) {
  const Piece& to = piece(false, kSmall);
  const tw_request received = receive(to, kSmall, 5);
  ASSERT_TRUE(is_offered(received));
  Buffer host(world->random, 777);
  ASSERT_EQ(world->left->try_send(world->a, host.data(), host.size(), 5, 1), TW_OK);
  EXPECT_EQ(end(received), TW_OK);
  std::vector<std::byte> expected = to.bytes;
  std::copy_n(host.data(), 777, expected.begin() + kGuard);
  EXPECT_TRUE(emulated::holds(device(1), to.address(), expected));
  const Piece &again = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request next = receive(again, kSmall, 5), sent = send(from, kSmall, 5);
  EXPECT_EQ(end(next), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(again, from, kSmall));
}

/// A receive from anyone whose offer one peer has claimed is not another one's: the next receive is.
TEST_F(Offered, AMessageOfAnotherPeerSkipsWhatIsClaimed) {
  const Piece &to = piece(false, kSmall), &next = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request first = receive(to, kSmall, 5), second = receive(next, kSmall, 5);
  ASSERT_TRUE(is_offered(first));
  // A second connection between the two.
  Peer c, d;
  FakeLink *lc = nullptr, *ld = nullptr;
  world->left->add(c);
  world->right->add(d);
  FakePort::connect(*world->pa, *world->pb, &lc, &ld);
  lc->peer.incarnation = 22;
  ld->peer.incarnation = 11;
  world->left->attach(c, *lc);
  world->right->attach(d, *ld);
  Buffer host(world->random, 500);
  ASSERT_EQ(world->left->try_send(c, host.data(), host.size(), 5, 1), TW_OK);
  const tw_request sent = send(from, kSmall, 5);
  settle();
  EXPECT_EQ(end(first), TW_OK);
  EXPECT_EQ(end(second), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(to, from, kSmall));
  std::vector<std::byte> expected = next.bytes;
  std::copy_n(host.data(), 500, expected.begin() + kGuard);
  EXPECT_TRUE(emulated::holds(device(1), next.address(), expected));
  world->left->remove(c);
  world->right->remove(d);
}

// ------------------------------------------------------------------------------------------------ ends

TEST_F(Offered, ACancelWithdrawsTheOffer) {
  const Piece &to = piece(false, kSmall), &next = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request first = receive(to, kSmall, 5), second = receive(next, kSmall, 5);
  EXPECT_EQ(world->right->cancel(first), TW_OK);
  const tw_request sent = send(from, kSmall, 5);
  EXPECT_EQ(end(first), TW_ERR_CANCELED);
  step_devices();
  EXPECT_TRUE(untouched(to));
  EXPECT_TRUE(got(next, from, kSmall));
  EXPECT_EQ(end(second), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
}

TEST_F(Offered, WhatIsClaimedIsTooLateToCancel) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request received = receive(to, kSmall, 5), sent = send(from, kSmall, 5);
  EXPECT_EQ(world->right->cancel(received), TW_ERR_BUSY);
  EXPECT_EQ(world->right->cancel(received), TW_ERR_BUSY);
  EXPECT_EQ(end(received), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(to, from, kSmall));
}

TEST_F(Offered, AReceiveFromAnyoneStaysPostedWhenThePeerIsLost) {
  const Piece& to = piece(false, kSmall);
  const tw_request received = receive(to, kSmall, 5), bound = receive(to, kSmall, 5, ~0ull, &world->b);
  ASSERT_TRUE(is_offered(received) && is_offered(bound));
  OfferTable& table = *world->b.offers->tables.mine;
  world->pb->lose(*world->lb);
  settle();
  EXPECT_EQ(end(bound), TW_ERR_PEER_LOST);
  EXPECT_EQ(Engine::test(received), TW_IN_PROGRESS);
  EXPECT_FALSE(is_offered(received));
  for (uint64_t state : table.states) EXPECT_FALSE(impl::is_offered(state)) << "it could still be claimed";
  EXPECT_EQ(world->right->cancel(received), TW_OK);
  EXPECT_EQ(end(received), TW_ERR_CANCELED);
}

/// The RTS of the claim is lost with the peer.
TEST_F(Offered, WhatIsClaimedEndsWithThePeer) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request received = receive(to, kSmall, 5), sent = send(from, kSmall, 5);
  world->left->fail(world->a, TW_ERR_PEER_LOST, "by the test");
  world->pb->close(*world->lb, false);
  world->right->fail(world->b, TW_ERR_PEER_LOST, "by the test");
  EXPECT_EQ(end(received), TW_ERR_PEER_LOST);
  step_devices();
  EXPECT_EQ(end(sent), TW_ERR_PEER_LOST);
}

TEST_F(Offered, ACloseEndsOffers) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request received = receive(to, kSmall, 5, ~0ull, &world->b);
  OfferTable& table = *world->b.offers->tables.mine;
  world->right->close(world->b, true);
  EXPECT_EQ(end(received), TW_ERR_CLOSED);
  for (uint64_t state : table.states) EXPECT_FALSE(impl::is_offered(state));
  tw_request sent = TW_REQUEST_NONE;
  const OpDesc op = on_device(send_op(world->a, nullptr, 0, 5, 0), from, kSmall);
  const Status status = world->left->start(op, {&sent});
  if (status == TW_IN_PROGRESS) {
    EXPECT_TRUE(is_error(end(sent)));
  }
  step_devices();
  EXPECT_TRUE(untouched(to));
}

/// A device that breaks after the claim: the message takes another way.
TEST_F(Offered, AClaimWhoseCopyFailsIsServedOtherwise) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  warm(to, kSmall);
  const tw_request received = receive(to, kSmall, 5);
  device(0).faults().inject(emulated::Operation::copy, 1);
  const tw_request sent = send(from, kSmall, 5);
  step_devices();
  EXPECT_TRUE(untouched(to));
  EXPECT_EQ(end(received), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(to, from, kSmall));
  EXPECT_EQ(by(Way::push), 0u);
}

/// No room for the RTS: nothing is claimed before there is.
TEST_F(Offered, NothingIsClaimedWithoutRoomForTheRts) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request received = receive(to, kSmall, 5);
  world->pa->allowed = 0;
  const tw_request sent = send(from, kSmall, 5);
  EXPECT_EQ(world->right->cancel(received), TW_OK);
  EXPECT_EQ(end(received), TW_ERR_CANCELED);
  const tw_request next = receive(to, kSmall, 5);
  world->pa->allowed = SIZE_MAX;
  EXPECT_EQ(end(next), TW_OK);
  EXPECT_EQ(end(sent), TW_OK);
  EXPECT_TRUE(got(to, from, kSmall));
}

class OfferedCold : public Offered {
  void SetUp() override {
    import_slow = true;
    connect();
  }
};

/// The sender has not imported the memory yet: the first message asks for that and takes the way with an answer, the second
/// claims.
TEST_F(OfferedCold, TheFirstMessageWarmsTheImport) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall), &more = piece(true, kSmall);
  const tw_request first = receive(to, kSmall, 5), one = send(from, kSmall, 5);
  step_devices();
  EXPECT_TRUE(untouched(to));
  EXPECT_EQ(end(first), TW_OK);
  EXPECT_EQ(end(one), TW_OK);
  EXPECT_TRUE(got(to, from, kSmall));
  const tw_request second = receive(to, kSmall, 5), two = send(more, kSmall, 5);
  step_devices();
  EXPECT_TRUE(got(to, more, kSmall));
  EXPECT_EQ(end(second), TW_OK);
  EXPECT_EQ(end(two), TW_OK);
}

// ------------------------------------------------------------------------------------------------ a peer that breaks the rules

class OfferedToAnEnemy : public Offered {
 protected:
  /// The enemy is left. It writes to the tables, and sends what it likes.
  OfferTable& offers() { return *world->b.offers->tables.mine; }
  void claim(unsigned entry) { offers().states[entry] = (offers().states[entry] & ~uint64_t{3}) | 2; }
  void announce(uint16_t id, uint64_t tag, uint64_t length) {
    RtsBody rts{12345, length, 0, 0, 0};
    DeviceBody on{};
    on.kind = static_cast<uint8_t>(MemoryKind::vmm);
    std::vector<std::byte> body(sizeof rts + sizeof on);
    std::memcpy(body.data(), &rts, sizeof rts);
    std::memcpy(body.data() + sizeof rts, &on, sizeof on);
    world->pb->inject(*world->lb, make_header(Frame::tagged_rts, body.size(), tag, 0, kFrameDevice, id), body);
  }
  void expect_ended(tw_request bound) {
    settle();
    EXPECT_EQ(world->b.state, TW_ERR_PROTOCOL) << world->b.why;
    EXPECT_EQ(end(bound), TW_ERR_PROTOCOL);
    EXPECT_EQ(world->right->receives().matcher().posted_count(), 0u);
  }
  tw_request bound(const Piece& to, uint64_t tag) {
    const tw_request request = receive(to, kSmall, tag, ~0ull, &world->b);
    EXPECT_TRUE(is_offered(request));
    return request;
  }
};

TEST_F(OfferedToAnEnemy, AClaimOfNoReceive) {
  const Piece& to = piece(false, kSmall);
  const tw_request request = bound(to, 5);
  announce(7, 5, kSmall);
  expect_ended(request);
}

TEST_F(OfferedToAnEnemy, AClaimOutsideOfTheTable) {
  const tw_request request = bound(piece(false, kSmall), 5);
  announce(kOffers + 1, 5, kSmall);
  expect_ended(request);
}

TEST_F(OfferedToAnEnemy, AClaimThatWasNotMade) {
  const tw_request request = bound(piece(false, kSmall), 5);
  announce(1, 5, kSmall);
  expect_ended(request);
}

TEST_F(OfferedToAnEnemy, AClaimOfAnotherTag) {
  const tw_request request = bound(piece(false, kSmall), 5);
  claim(0);
  announce(1, 6, kSmall);
  expect_ended(request);
}

TEST_F(OfferedToAnEnemy, AClaimOfMoreThanTheReceiveTakes) {
  const tw_request request = bound(piece(false, kSmall), 5);
  claim(0);
  announce(1, 5, kSmall + 1);
  expect_ended(request);
}

TEST_F(OfferedToAnEnemy, AClaimOfTheSecondReceiveBeforeTheFirst) {
  const tw_request first = bound(piece(false, kSmall), 5), second = bound(piece(false, kSmall), 5);
  claim(1);
  announce(2, 5, kSmall);
  settle();
  EXPECT_EQ(end(first), TW_ERR_PROTOCOL);
  EXPECT_EQ(end(second), TW_ERR_PROTOCOL);
}

TEST_F(OfferedToAnEnemy, AMessageBetweenTheClaimAndItsRts) {
  const tw_request request = bound(piece(false, kSmall), 5);
  claim(0);
  world->pb->inject(*world->lb, make_header(Frame::tagged, 10, 5, 0), std::vector<std::byte>(10));
  expect_ended(request);
}

TEST_F(OfferedToAnEnemy, AStateThatNoOfferHas) {
  const tw_request request = bound(piece(false, kSmall), 5);
  offers().states[0] = 77;
  EXPECT_EQ(world->right->cancel(request), TW_ERR_BUSY);
  expect_ended(request);
}

/// Like a message that is never sent to its end: it ends with the peer, and until then everything else goes on.
TEST_F(OfferedToAnEnemy, AClaimThatIsNeverAnnouncedEndsWithThePeer) {
  const tw_request request = bound(piece(false, kSmall), 5);
  claim(0);
  EXPECT_EQ(world->right->cancel(request), TW_ERR_BUSY);
  settle();
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  world->pb->lose(*world->lb);
  EXPECT_EQ(end(request), TW_ERR_PEER_LOST);
}

/// What is claimed ends as a push does: with the sender's word.
TEST_F(OfferedToAnEnemy, TheEndOfAClaimThatWasAnnounced) {
  const tw_request request = bound(piece(false, kSmall), 5);
  claim(0);
  announce(1, 5, 100);
  settle();
  EXPECT_EQ(Engine::test(request), TW_IN_PROGRESS);
  EXPECT_EQ(world->right->cancel(request), TW_ERR_BUSY);
  const uint64_t op = wire_op(*world->right, request);
  world->pb->inject(*world->lb, make_header(Frame::fin, 0, op, 0), {});
  EXPECT_EQ(end(request), TW_OK);
}

/// An offer that lies about memory, or about its size, is one that this side does not claim.
TEST_F(OfferedToAnEnemy, WhatTheyOfferIsCheckedBeforeItIsClaimed) {
  const Piece &to = piece(false, kSmall), &from = piece(true, kSmall);
  const tw_request received = receive(to, kSmall, 5);
  ReceiveOffer& offer = world->b.offers->tables.mine->offers[0];
  const uint64_t segment = offer.segment, offset = offer.segment_offset, taken = offer.taken;
  std::vector<tw_request> sends;
  const auto refused = [&] {
    sends.push_back(send(from, kSmall, 5));
    EXPECT_TRUE(impl::is_offered(world->b.offers->tables.mine->states[0]));
    step_devices();
    EXPECT_TRUE(untouched(to));
  };
  offer.segment_offset = uint64_t{1} << 60;
  refused();
  offer.segment_offset = offset;
  offer.segment = segment ^ 1;
  refused();
  offer.segment = segment;
  offer.taken = uint64_t{1} << 60;
  refused();
  offer.taken = taken;
  EXPECT_EQ(end(received), TW_OK);
  for (size_t i = 1; i < sends.size(); ++i) {
    const tw_request more = receive(to, kSmall, 5);
    EXPECT_EQ(end(more), TW_OK);
  }
  for (tw_request one : sends) EXPECT_EQ(end(one), TW_OK);
}

}  // namespace
}  // namespace thalweg::test
