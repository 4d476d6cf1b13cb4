// SPDX-License-Identifier: Apache-2.0
// Layouts of callbacks on either side of every operation that takes one: each byte packed and unpacked once, in order,
// whatever the link; packs that write less, functions that fail at any stage, cancellation and loss; one finish for every
// start.
#include <deque>
#include <functional>

#include "fixtures/called_pieces.hpp"
#include "protocols/active.hpp"
#include "protocols/match.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"
#include "support.hpp"

namespace thalweg::test {
namespace {

struct Case {
  const char* name;
  FakeOptions options;
};

FakeOptions with(uint32_t features, double refuse, uint32_t fragment = 4096) {
  FakeOptions options;
  options.features = features;
  options.refuse = refuse;
  options.copy_max = options.fragment = fragment;
  return options;
}

std::vector<Case> cases() {
  std::vector<Case> list = {{"plain", with(0, 0)},
                            {"refusing", with(0, 0.4)},
                            {"small_frames", with(0, 0.1, 512)},
                            {"reference", with(kLinkByReference, 0.1, 65536)},
                            {"single_copy", with(kLinkSingleCopy, 0.1)},
                            {"same_process", with(kLinkSameProcess, 0.1)},
                            {"maps", with(kLinkMaps | kLinkSingleCopy, 0.1)},
                            {"maps_slowly", with(kLinkMaps, 0.1)}};
  list[1].options.capacity = 4;
  list.back().options.import_slow = true;
  return list;
}

std::vector<size_t> sizes(const FakeOptions& o, std::mt19937_64& random) {
  std::vector<size_t> list = {0, 1, 7, 8, 63, 65, 8191, 65535, 65536, 65537, 262'144, 262'145, (1u << 20) + 13};
  for (size_t near : {o.copy_max - 17, o.copy_max - 16, o.copy_max - 8, o.copy_max - 1, o.copy_max, o.copy_max + 1}) {
    list.push_back(near);
  }
  for (int i = 0; i < 4; ++i) list.push_back(random() % 600'000);
  return list;
}

class CallbackLayouts : public ::testing::TestWithParam<Case> {
 protected:
  CallbackLayouts() : world(GetParam().options, seed()) {
    EXPECT_EQ(make_callbacks(CalledPieces::options(seen), &layout), TW_OK);
    begin();
  }
  void TearDown() override {
    world.settle(50);
    EXPECT_EQ(world.left->runs().alive(), 0u);
    EXPECT_EQ(world.right->runs().alive(), 0u);
    EXPECT_EQ(seen.starts, seen.finishes);
    EXPECT_FALSE(seen.wrong);
    release(layout);
    EXPECT_EQ(seen.destroyed, 1);
  }
  void begin() {
    world.connect();
    if ((GetParam().options.features & kLinkMaps) == 0) {
      world.a.limits.kernel_from = world.b.limits.kernel_from =
          (GetParam().options.features & kLinkSingleCopy) != 0 ? 0 : kNever;
    }
  }
  /// op with the layout, as set_local() makes it: post() releases its share.
  void take(OpDesc& op, CalledPieces& pieces) {
    const bool unpacks = op.verb == Verb::recv || op.verb == Verb::am_recv || op.verb == Verb::get;
    Layout* started = nullptr;
    ASSERT_EQ(start_calls(*layout, &pieces, 0, unpacks, &started), TW_OK);
    op.address = reinterpret_cast<std::byte*>(&pieces);
    op.layout = started;
    op.length = started->bytes;
  }
  Status send(const OpDesc& given, CalledPieces* pieces, tw_request* request) {
    OpDesc op = given;
    if (pieces != nullptr) take(op, *pieces);
    const Status status = world.left->start(op, {request});
    if (pieces != nullptr) release(op.layout);
    return status;
  }
  Status receive(const OpDesc& given, CalledPieces* pieces, tw_request* request) {
    OpDesc op = given;
    if (pieces != nullptr) take(op, *pieces);
    const Status status = world.right->post_receive(op, {request});
    if (pieces != nullptr) release(op.layout);
    return status;
  }
  /// How an operation that was started so ends; with its text.
  Status outcome(Status started, const tw_request& request, std::string* text = nullptr) {
    if (text != nullptr) *text = is_error(started) ? last_error() : "";
    if (started != TW_IN_PROGRESS) return started;
    EXPECT_TRUE(world.finish(request));
    const Status status = Engine::test(request);
    if (text != nullptr) *text = Engine::message(request);
    EXPECT_EQ(Engine::release(request), TW_OK);
    return status;
  }
  /// Ordinary messages of several sizes still arrive.
  void expect_alive() {
    for (size_t size : {3, 20'000, 400'000}) {
      Buffer from(world.random, size), to(world.random, size);
      tw_request sent = 0, received = 0;
      const Status status = world.left->start(send_op(world.a, from, 77, 0), {&sent});
      ASSERT_EQ(world.right->post_receive(receive_op(to.data(), size, 77, ~0ull), {&received}), TW_IN_PROGRESS);
      EXPECT_EQ(outcome(TW_IN_PROGRESS, received), TW_OK);
      EXPECT_EQ(outcome(status, sent), TW_OK);
      EXPECT_TRUE(to.holds(from.data(), size));
    }
    EXPECT_EQ(world.a.state, TW_OK) << world.a.why;
    EXPECT_EQ(world.b.state, TW_OK) << world.b.why;
  }

  World world;
  Seen seen;
  Layout* layout = nullptr;
};

enum class Posted { before, behind, taken, cut };  // taken: by a probe. cut: while the message arrives

TEST_P(CallbackLayouts, EverySizeArrivesOnceAndInOrder) {
  uint64_t tag = 100;
  for (size_t size : sizes(GetParam().options, world.random)) {
    for (int sides = 1; sides <= 3; ++sides) {
      const Posted posted = static_cast<Posted>(world.random() % 4);
      const unsigned copies = world.pb->kernel_copies;
      CalledPieces from(world.random, size), to(world.random, size + world.random() % 3);
      from.writes_less = world.random() % 2 == 0;
      Buffer flat(world.random, size), into(world.random, to.bytes());
      const std::vector<std::byte> before = to.packed(),
                                   packed = (sides & 1) != 0 ? from.packed() : std::vector(flat.data(), flat.data() + size);
      tw_request sent = 0, received = 0;
      OpDesc out = send_op(world.a, flat, ++tag, 5), in = receive_op(into.data(), into.size(), tag, ~0ull);
      if (world.random() % 4 == 0) out.flags |= TW_OP_SYNC;
      if (posted == Posted::before) {
        ASSERT_EQ(receive(in, (sides & 2) != 0 ? &to : nullptr, &received), TW_IN_PROGRESS);
      }
      const Status status = send(out, (sides & 1) != 0 ? &from : nullptr, &sent);
      if (posted == Posted::cut) world.turn();
      if (posted == Posted::behind) world.settle(5);
      if (posted == Posted::taken) {
        tw_message* message = nullptr;
        for (int i = 0; i < 1000 && message == nullptr; ++i) {
          world.turn();
          (void)probe(*world.right, tag, ~0ull, nullptr, nullptr, &message);
        }
        ASSERT_NE(message, nullptr);
        if ((sides & 2) != 0) take(in, to);
        ASSERT_EQ(receive_message(message, in, {&received}), TW_IN_PROGRESS);
        if ((sides & 2) != 0) release(in.layout);
      } else if (posted != Posted::before) {
        ASSERT_EQ(receive(in, (sides & 2) != 0 ? &to : nullptr, &received), TW_IN_PROGRESS);
      }
      std::string text;
      ASSERT_EQ(outcome(TW_IN_PROGRESS, received, &text), TW_OK) << size << text;
      ASSERT_EQ(outcome(status, sent, &text), TW_OK) << size << text;
      EXPECT_TRUE((sides & 2) != 0 ? to.holds(packed.data(), size) : into.holds(packed.data(), size)) << size;
      EXPECT_TRUE(to.unchanged(before, (sides & 2) != 0 ? size : 0));
      EXPECT_EQ(world.pb->kernel_copies, copies) << "the kernel was asked to call functions";
      EXPECT_TRUE(into.guarded());
    }
  }
  EXPECT_FALSE(seen.wrong);
  EXPECT_EQ(seen.starts, seen.finishes);
}

TEST_P(CallbackLayouts, OfATooLongMessageOnlyWhatFitsIsUnpacked) {
  for (size_t size : {100, 5000, 50'000, 700'000}) {
    CalledPieces from(world.random, size), to(world.random, size - 1 - world.random() % (size / 2));
    tw_request sent = 0, received = 0;
    ASSERT_EQ(receive(receive_op(nullptr, 0, 1, ~0ull), &to, &received), TW_IN_PROGRESS);
    const Status status = send(send_op(world.a, nullptr, 0, 1, 0), &from, &sent);
    EXPECT_EQ(outcome(TW_IN_PROGRESS, received), TW_ERR_TRUNCATED);
    EXPECT_EQ(outcome(status, sent), TW_OK);
    EXPECT_TRUE(to.holds(from.packed().data(), to.bytes())) << size;
  }
  expect_alive();
}

TEST_P(CallbackLayouts, AnErrorOfUnpackEndsThatReceiveOnly) {
  for (size_t size : {1, 100, 4000, 5000, 50'000, 700'000}) {
    for (bool early : {true, false}) {
      CalledPieces from(world.random, size), to(world.random, size + world.random() % 2);
      to.fails_at = world.random() % size;
      tw_request sent = 0, received = 0;
      if (early) {
        ASSERT_EQ(receive(receive_op(nullptr, 0, 1, ~0ull), &to, &received), TW_IN_PROGRESS);
      }
      const Status status = send(send_op(world.a, nullptr, 0, 1, 0), &from, &sent);
      if (!early) {
        world.settle(3);
        ASSERT_EQ(receive(receive_op(nullptr, 0, 1, ~0ull), &to, &received), TW_IN_PROGRESS);
      }
      std::string text;
      EXPECT_EQ(outcome(TW_IN_PROGRESS, received, &text), TW_ERR_IO) << size;
      EXPECT_NE(text.find("unpack of the layout refused bytes"), std::string::npos) << text;
      EXPECT_EQ(outcome(status, sent), TW_OK) << size;
    }
  }
  expect_alive();
}

TEST_P(CallbackLayouts, AnErrorOfPackEndsBothRequestsAndNothingElse) {
  for (size_t size : {1, 100, 4000, 5000, 50'000, 700'000}) {
    for (uint64_t at : {uint64_t{0}, world.random() % size, uint64_t{size - 1}}) {
      for (Posted posted : {Posted::before, Posted::behind, Posted::taken}) {
        CalledPieces from(world.random, size), to(world.random, size);
        from.fails_at = at;
        from.writes_less = world.random() % 2 == 0;
        tw_request sent = 0, received = 0;
        OpDesc in = receive_op(nullptr, 0, 1, ~0ull);
        in.peer = &world.b;
        if (posted == Posted::before) {
          ASSERT_EQ(receive(in, &to, &received), TW_IN_PROGRESS);
        }
        const Status status = send(send_op(world.a, nullptr, 0, 1, 0), &from, &sent);
        world.settle(30);
        tw_message* message = nullptr;
        const bool begun =
            probe(*world.right, 1, ~0ull, nullptr, nullptr, posted == Posted::taken ? &message : nullptr) == TW_OK;
        if (message != nullptr) {
          world.settle(3);
          take(in, to);
          ASSERT_EQ(receive_message(message, in, {&received}), TW_IN_PROGRESS);
          release(in.layout);
        } else if (begun) {
          ASSERT_EQ(receive(in, &to, &received), TW_IN_PROGRESS);
        }
        std::string text;
        EXPECT_EQ(outcome(status, sent, &text), TW_ERR_IO) << size;
        EXPECT_NE(text.find("pack of the layout failed at byte"), std::string::npos) << text;
        if (received == 0) continue;  // nothing of it has come
        world.settle(30);
        if (Engine::test(received) == TW_IN_PROGRESS) {  // the same, but for the receive that was there
          EXPECT_EQ(world.right->cancel(received), TW_OK);
          EXPECT_EQ(outcome(TW_IN_PROGRESS, received), TW_ERR_CANCELED);
          continue;
        }
        EXPECT_EQ(outcome(TW_IN_PROGRESS, received, &text), TW_ERR_IO) << size;
        EXPECT_NE(text.find("the sender could not deliver the message"), std::string::npos) << text;
      }
    }
  }
  expect_alive();
  EXPECT_EQ(world.b.held_bytes, 0u);
  EXPECT_EQ(world.b.held_messages, 0u);
}

TEST_P(CallbackLayouts, PacksThatSayNonsenseAreErrors) {
  for (size_t size : {100, 50'000, 700'000}) {
    for (tw_status nonsense : {0, 1 << 30, -7777, int{TW_ERR_HANDLE}, int{TW_ERR_THREAD}, int{TW_ERR_TIMED_OUT}}) {
      CalledPieces from(world.random, size);
      from.fails_at = 0;
      from.failure = nonsense;
      tw_request sent = 0, received = 0;
      Buffer to(world.random, size);
      OpDesc in = receive_op(to.data(), size, 1, ~0ull);
      ASSERT_EQ(world.right->post_receive(in, {&received}), TW_IN_PROGRESS);
      EXPECT_EQ(outcome(send(send_op(world.a, nullptr, 0, 1, 0), &from, &sent), sent), TW_ERR_INVALID) << size;
      world.settle(30);
      if (Engine::test(received) == TW_IN_PROGRESS) {
        EXPECT_EQ(world.right->cancel(received), TW_OK);
      }
      EXPECT_TRUE(is_error(outcome(TW_IN_PROGRESS, received)));
      EXPECT_TRUE(to.guarded());
    }
  }
  expect_alive();
}

TEST_P(CallbackLayouts, LossAndCancelFinishOnce) {
  for (unsigned stage = 0; stage < 10; ++stage) {
    std::deque<CalledPieces> pieces;
    std::vector<tw_request> requests;
    for (size_t size : {8, 5000, 100'000, 1'000'000}) {
      for (int matched = 0; matched < 2; ++matched) {
        requests.push_back(0);
        (void)send(send_op(world.a, nullptr, 0, size + matched, 0), &pieces.emplace_back(world.random, size), &requests.back());
        requests.push_back(0);
        OpDesc in = receive_op(nullptr, 0, size + 17 * (1 - matched) + matched, ~0ull);
        in.peer = &world.b;
        (void)receive(in, &pieces.emplace_back(world.random, size), &requests.back());
      }
    }
    tw_request canceled = 0;
    ASSERT_EQ(receive(receive_op(nullptr, 0, 1, ~0ull), &pieces.emplace_back(world.random, 8), &canceled), TW_IN_PROGRESS);
    for (unsigned i = 0; i < stage; ++i) world.turn();
    EXPECT_EQ(world.right->cancel(canceled), TW_OK);
    EXPECT_EQ(outcome(TW_IN_PROGRESS, canceled), TW_ERR_CANCELED);
    world.pa->lose(*world.la);
    world.settle(2000);
    EXPECT_EQ(seen.starts, seen.finishes) << "before anybody asks";
    for (tw_request request : requests) {
      if (request == TW_REQUEST_NONE) continue;
      const Status status = outcome(TW_IN_PROGRESS, request);
      EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << status;
    }
    EXPECT_EQ(seen.starts, seen.finishes);
    CalledPieces one(world.random, 1);
    tw_request request = 0;
    EXPECT_EQ(send(send_op(world.a, nullptr, 0, 1, 0), &one, &request), TW_ERR_PEER_LOST);
    EXPECT_EQ(seen.starts, seen.finishes);
    world.begin_again();
    begin();
  }
}

struct Handled {
  int calls = 0;
  std::vector<std::byte> data;
  tw_am_data* kept = nullptr;
};

tw_status handle(void* arg, const tw_am_message* message) {
  Handled& handled = *static_cast<Handled*>(arg);
  ++handled.calls;
  const std::byte* data = static_cast<const std::byte*>(message->data);
  handled.data.clear();
  if (data != nullptr) handled.data.assign(data, data + message->length);
  handled.kept = message->descriptor;
  return TW_IN_PROGRESS;
}

OpDesc am_op(Peer& peer, uint32_t flags, const std::string& header) {
  OpDesc op = send_op(peer, nullptr, 0, 9, 0);
  op.verb = Verb::am;
  op.flags = flags;
  op.header = reinterpret_cast<const std::byte*>(header.data());
  op.header_length = static_cast<uint32_t>(header.size());
  return op;
}

TEST_P(CallbackLayouts, ActiveMessagesOnBothSides) {
  Handled handled;
  ASSERT_EQ(set_handler(*world.right, 9, handle, &handled), TW_OK);
  const std::string header = "a header";
  for (size_t size : {1, 300, 4088, 4096, 5000, 60'000, 300'000, 1'100'000}) {
    for (uint32_t flags : {0u, static_cast<uint32_t>(TW_OP_EAGER), static_cast<uint32_t>(TW_OP_RENDEZVOUS)}) {
      if (flags == TW_OP_EAGER && size > 60'000) continue;
      CalledPieces from(world.random, size), to(world.random, size);
      from.writes_less = world.random() % 2 == 0;
      tw_request sent = 0, received = 0;
      const int before = handled.calls;
      const Status status = send(am_op(world.a, flags, header), &from, &sent);
      for (int i = 0; i < 100'000 && handled.calls == before; ++i) world.turn();
      ASSERT_EQ(handled.calls, before + 1) << size;
      OpDesc in = receive_op(nullptr, 0, 0, 0);
      in.verb = Verb::am_recv;
      take(in, to);
      ASSERT_EQ(active_receive(handled.kept, in, {&received}), TW_IN_PROGRESS);
      release(in.layout);
      EXPECT_EQ(outcome(TW_IN_PROGRESS, received), TW_OK) << size;
      EXPECT_EQ(outcome(status, sent), TW_OK) << size;
      EXPECT_TRUE(to.holds(from.packed().data(), size)) << size;
    }
  }
  EXPECT_EQ(world.b.held_bytes, 0u);
  EXPECT_EQ(world.b.held_messages, 0u);
}

TEST_P(CallbackLayouts, AnActiveMessageThatCannotBePackedRunsNoHandler) {
  Handled handled;
  ASSERT_EQ(set_handler(*world.right, 9, handle, &handled), TW_OK);
  const int64_t credit = world.a.eager_credit;
  for (int round = 0; round < 80; ++round) {                   // more than there is credit for
    const std::string header(round % 4 < 2 ? 8 : 5'000, 'h');  // a long one comes first, and is given back
    CalledPieces from(world.random, 60'000);
    from.fails_at = round % 2 == 0 ? 59'999 : world.random() % 60'000;
    tw_request sent = 0;
    EXPECT_EQ(outcome(send(am_op(world.a, TW_OP_EAGER, header), &from, &sent), sent), TW_ERR_IO);
  }
  world.settle(100);
  EXPECT_EQ(handled.calls, 0);
  EXPECT_EQ(world.b.held_bytes, 0u);
  EXPECT_GE(world.a.eager_credit, credit / 2);
  expect_alive();
}

/// Of a rendezvous message: what the peer may not ask for.
TEST_P(CallbackLayouts, ACtsForMoreThanItsFramesClosesTheLink) {
  for (int what = 0; what < 5; ++what) {
    CalledPieces from(world.random, 900'000);
    tw_request sent = 0;
    ASSERT_EQ(send(send_op(world.a, nullptr, 0, 1, 0), &from, &sent), TW_IN_PROGRESS);
    world.settle(3);
    CtsBody cts{1, 0, 1000, 0, 0, 0};
    if (what == 0) cts.offset = 10;
    if (what == 1) cts.address = reinterpret_cast<uint64_t>(&cts);
    if (what == 2) cts.segment = 5;
    const uint8_t flags = what == 3 ? 0 : what == 4 ? kFrameLast | kFrameDevice : kFrameLast;
    const auto* body = reinterpret_cast<const std::byte*>(&cts);
    world.pa->inject(*world.la, make_header(Frame::cts, sizeof cts, wire_op(*world.left, sent), 0, flags),
                     {body, body + sizeof cts});
    world.settle(5);
    EXPECT_EQ(world.a.state, TW_ERR_PROTOCOL) << what;
    EXPECT_EQ(outcome(TW_IN_PROGRESS, sent), TW_ERR_PROTOCOL);
    world.begin_again();
    begin();
  }
  EXPECT_EQ(seen.packs, 0);
}

TEST_P(CallbackLayouts, AnEndOfNothingClosesTheLink) {
  world.pa->inject(*world.la, make_header(Frame::fin, 0, 7, static_cast<uint64_t>(int64_t{TW_ERR_IO}), kFrameLast | kFrameMore),
                   {});
  world.settle(5);
  EXPECT_EQ(world.a.state, TW_ERR_PROTOCOL);
}

TEST_P(CallbackLayouts, ADirectCopyThatBreaksOffGoesOnBehindWhatIsUnpacked) {
  if ((GetParam().options.features & kLinkMaps) == 0) return;
  constexpr size_t kSize = 2'000'003;
  tw_memory* memory = nullptr;
  ASSERT_EQ(world.registry_a.allocate(kSize, 0, false, &memory), TW_OK);
  for (size_t i = 0; i < kSize; ++i) memory->address[i] = static_cast<std::byte>(world.random());
  Mapping& mapping = world.pb->segments[memory->segment_id];
  mapping.address = memory->address;
  mapping.length = memory->length;
  for (int turns = 0; turns < 8; ++turns) {
    CalledPieces to(world.random, kSize);
    tw_request sent = 0, received = 0;
    mapping.revoked = false;
    ASSERT_EQ(receive(receive_op(nullptr, 0, 1, ~0ull), &to, &received), TW_IN_PROGRESS);
    const Status status = world.left->start(send_op(world.a, memory->address, kSize, 1, 0), {&sent});
    for (int i = 0; i < turns; ++i) world.turn();
    mapping.why = TW_ERR_STALE;
    mapping.revoked = true;
    EXPECT_EQ(outcome(TW_IN_PROGRESS, received), TW_OK);
    EXPECT_EQ(outcome(status, sent), TW_OK);
    EXPECT_TRUE(to.holds(memory->address, kSize));
  }
}

/// Memory of the right engine, imported at the left one; library-allocated and mapped where the link maps.
struct Exported {
  explicit Exported(World& world, const FakeOptions& options)
      : registry((options.features & kLinkSameProcess) != 0 ? world.registry_a : world.registry_b) {
    if ((options.features & kLinkMaps) != 0) {
      EXPECT_EQ(registry.allocate(kSize, 0, false, &memory), TW_OK);
      Mapping& mapping = world.pa->segments[memory->segment_id];
      mapping.address = memory->address;
      mapping.length = memory->length;
    } else {
      plain.resize(kSize);
      EXPECT_EQ(registry.register_memory(plain.data(), plain.size(), 0, &memory), TW_OK);
    }
    KeyBody key;
    EXPECT_EQ(registry.export_range(memory, 0, kSize, 0, &key), TW_OK);
    world.la->peer.incarnation = key.incarnation;
    world.a.identity.incarnation = key.incarnation;
    EXPECT_EQ(import_region(world.a, key, &remote), TW_OK);
  }
  ~Exported() { release_region(remote); }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;
  static constexpr size_t kSize = 400'000;
  Registry& registry;
  std::vector<std::byte> plain;
  tw_memory* memory = nullptr;
  RemoteRegion* remote = nullptr;
};

TEST_P(CallbackLayouts, PutsAndGetsTakeThemLocally) {
  Exported target(world, GetParam().options);
  for (size_t size : {0, 1, 8, 4000, 5000, 100'001, 300'007}) {
    CalledPieces from(world.random, size), to(world.random, size);
    from.writes_less = world.random() % 2 == 0;
    OpDesc op;
    op.peer = &world.a;
    op.remote = target.remote;
    op.remote_offset = 13;
    op.flags = TW_OP_REMOTE;
    tw_request request = 0;
    op.verb = Verb::put;
    std::string text;
    ASSERT_EQ(outcome(send(op, &from, &request), request, &text), TW_OK) << size << text;
    const std::vector<std::byte> packed = from.packed();
    EXPECT_TRUE(size == 0 || std::memcmp(target.memory->address + 13, packed.data(), size) == 0) << size;
    op.verb = Verb::get;
    op.flags = 0;
    ASSERT_EQ(outcome(send(op, &to, &request), request, &text), TW_OK) << size << text;
    EXPECT_TRUE(to.holds(packed.data(), size)) << size;
    if (size == 0) continue;
    for (tw_status failure : {TW_ERR_IO, TW_ERR_STALE}) {
      from.fails_at = to.fails_at = world.random() % size;
      from.failure = to.failure = failure;
      EXPECT_EQ(outcome(send(op, &to, &request), request, &text), failure) << size;
      EXPECT_NE(text.find("unpack of the layout"), std::string::npos) << text;
      op.verb = Verb::put;
      EXPECT_EQ(outcome(send(op, &from, &request), request, &text), failure) << size;
      EXPECT_NE(text.find("pack of the layout"), std::string::npos) << text;
      op.verb = Verb::get;
    }
  }
  EXPECT_EQ(world.pa->kernel_copies, 0u);
  expect_alive();
}

TEST_P(CallbackLayouts, ExplainSaysWhyOtherWaysAreImpossible) {
  CalledPieces from(world.random, 900'000);
  OpDesc op = send_op(world.a, nullptr, 0, 1, 0);
  take(op, from);
  const std::string text = explain(op);
  EXPECT_NE(text.find("chosen: rendezvous, data frames"), std::string::npos) << text;
  EXPECT_NE(text.find("packed into the frames by the user's functions"), std::string::npos) << text;
  const uint32_t features = GetParam().options.features;
  if ((features & (kLinkMaps | kLinkSameProcess)) != 0 || features == kLinkSingleCopy) {
    EXPECT_NE(text.find("impossible: the message is packed by the user's functions"), std::string::npos) << text;
  }
  release(op.layout);
}

INSTANTIATE_TEST_SUITE_P(Links, CallbackLayouts, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace thalweg::test
