// SPDX-License-Identifier: Apache-2.0
// What a peer with the job key says of its end of a channel while runs here may be reading it, and how much of that is kept.
#include <chrono>
#include <functional>
#include <utility>

#include "core/context.hpp"
#include "pair.hpp"
#include "plans/channel.hpp"
#include "plans/control_wire.hpp"
#include "plans/proxy.hpp"

namespace thalweg::tests {
namespace {

namespace device = ::thalweg::device;
using impl::Control;
using impl::ControlMessage;

class ChannelForged : public Pair {
 protected:
  static constexpr uint64_t kTag = 9;
  static constexpr size_t kSize = 1203;

  static impl::Proxy& proxy(Side& side) {
    impl::Proxy* found = nullptr;
    EXPECT_EQ(impl::Proxy::of(*side.context, &found), TW_OK) << tw_last_error();
    return *found;
  }
  static impl::Executor& executor(Side& side) {
    impl::Executor* found = nullptr;
    EXPECT_EQ(proxy(side).executor_at(GetParam().place, &found), TW_OK) << tw_last_error();
    return *found;
  }
  /// Where the side's endpoint leads to.
  static impl::Proxy::Route route(Side& side) {
    impl::Proxy::Route made;
    EXPECT_EQ(proxy(side).await_route(*side.endpoint, impl::Deadline(kLong), &made), TW_OK) << tw_last_error();
    return made;
  }
  static impl::Channel& channel(Side& side, bool sends) {
    const impl::Proxy::Route to = route(side);
    impl::Executor& by = executor(side);
    impl::Channel* found = nullptr;
    const std::lock_guard lock(proxy(side).mutex());
    EXPECT_EQ(proxy(side).channel(to, sends, kTag, 0, by, &found), TW_OK) << tw_last_error();
    return *found;
  }
  /// As the side's end of the channel would.
  static void say(Side& side, bool sends, ControlMessage message) {
    const impl::Proxy::Route to = route(side);
    message.name = sends ? impl::ChannelName{to.mine, to.theirs, kTag, 0} : impl::ChannelName{to.theirs, to.mine, kTag, 0};
    message.from_sender = sends;
    const std::lock_guard lock(proxy(side).mutex());
    proxy(side).send(*to.peer, message);
  }
  static ControlMessage of_type(Control type, uint32_t epoch, uint32_t partner) {
    ControlMessage made;
    made.type = type;
    made.epoch = epoch;
    made.partner = partner;
    return made;
  }
  static bool until(const std::function<bool()>& done) {
    const impl::Deadline deadline(kLong);
    while (!done()) {
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }
  /// A buffer as a's runs find it.
  device::RecvBuffer entry(size_t index = 0) {
    device::SendEnd end{};
    device::RecvBuffer found{};
    EXPECT_EQ(executor(a).load(&end, channel(a, true).words(), sizeof end), TW_OK) << tw_last_error();
    EXPECT_EQ(executor(a).load(&found, reinterpret_cast<uint64_t>(end.recv_buffers + index), sizeof found), TW_OK)
        << tw_last_error();
    return found;
  }
  /// What b says of 64 bytes or more of its memory, of this layout; null: 16 contiguous bytes.
  ControlMessage to_memory(const tw_layout* layout) {
    ControlMessage told = of_type(Control::recv_buffer, channel(b, false).epoch(), channel(a, true).epoch());
    told.capacity = layout != nullptr ? layout->bytes : 16;
    if (layout != nullptr) {
      told.layout.resize(impl::encode(*layout, nullptr, 0));
      impl::encode(*layout, told.layout.data(), told.layout.size());
    }
    tw_memory* target = nullptr;
    memory(b, layout != nullptr ? static_cast<size_t>(layout->last) : 64, &target);
    unsigned char key[kKeyRoom];
    size_t length = sizeof key;
    EXPECT_EQ(tw_memory_export(target, key, &length), TW_OK) << tw_last_error();
    told.key.assign(reinterpret_cast<std::byte*>(key), reinterpret_cast<std::byte*>(key) + length);
    return told;
  }
  /// A run of a's plan that waits for its receive.
  void start(tw_plan* sends, tw_plan* receives, const tw_op_options* how, tw_queue* on) {
    from_ = memory(a, kSize), to_ = memory(b, 2 * kSize);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from_, kSize, kTag, nullptr, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to_, how != nullptr ? 0 : kSize, kTag, how, nullptr), TW_OK)
        << tw_last_error();
    prepare_both(sends, receives);
    a.store(from_, random_bytes(kSize));
    b.store(to_, guard_);
    ASSERT_EQ(tw_plan_trigger(sends, on), TW_OK) << tw_last_error();
  }
  const Bytes guard_ = Bytes(2 * kSize, 0xee);
  unsigned char *from_ = nullptr, *to_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Mapped, ChannelForged, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelForged, ABufferInUseIsNotDescribedAgain) {
  tw_plan *sends = plan(a), *receives = plan(b);
  tw_queue* on = queue(a);
  start(sends, receives, nullptr, on);
  const device::RecvBuffer before = entry();
  EXPECT_EQ(before.capacity, kSize);
  ControlMessage again = of_type(Control::recv_buffer, channel(b, false).epoch(), channel(a, true).epoch());
  again.capacity = 1 << 20;
  say(b, false, again);
  EXPECT_TRUE(until([&] { return tw_plan_test(sends) != TW_OK; }));
  EXPECT_EQ(tw_plan_test(sends), TW_ERR_PROTOCOL);
  EXPECT_NE(std::strstr(tw_last_error(), "described buffer 0"), nullptr) << tw_last_error();
  device::RecvBuffer after = entry();
  EXPECT_EQ(after.capacity, 0u) << "the channel has failed: a run that begins finds no room";
  after.capacity = before.capacity;
  EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
  EXPECT_EQ(tw_queue_synchronize(on), TW_ERR_PROTOCOL);
  EXPECT_TRUE(b.load(to_, guard_.size()) == guard_);
}

/// The run may be reading the table by which it finds the buffer's pieces.
TEST_P(ChannelForged, ATableStaysWhileARunIsUnderWay) {
  const tw_piece pieces[] = {{0, 400}, {1000, 403}, {1500, 400}};
  tw_layout* list = nullptr;
  ASSERT_EQ(tw_layout_pieces(pieces, 3, &list), TW_OK) << tw_last_error();
  tw_op_options how = TW_OP_OPTIONS_INIT;
  how.layout = list;
  tw_plan *sends = plan(a), *receives = plan(b);
  tw_queue* on = queue(a);
  start(sends, receives, &how, on);
  tw_layout_destroy(list);
  const device::RecvBuffer before = entry();
  ASSERT_NE(before.to.pieces, nullptr);
  const auto table = reinterpret_cast<uint64_t>(before.to.pieces);
  const size_t length = before.to.piece_count * sizeof(device::Piece);
  say(b, false, of_type(Control::drop, channel(b, false).epoch(), 0));
  ASSERT_TRUE(until([&] { return entry().capacity == 0; }));
  std::vector<uint64_t> taken;
  const auto take = [&] {
    uint64_t one = 0;
    EXPECT_EQ(executor(a).own().allocate(length, &one), TW_OK) << tw_last_error();
    taken.push_back(one);
    return one;
  };
  for (int i = 0; i < 100; ++i) EXPECT_NE(take(), table);
  ASSERT_EQ(tw_plan_trigger(receives, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_ERR_TRUNCATED);  // the buffer was taken back
  EXPECT_EQ(tw_plan_finish(receives, kLong), TW_ERR_TRUNCATED);
  EXPECT_TRUE(b.load(to_, guard_.size()) == guard_);
  EXPECT_TRUE(until([&] { return take() == table; }));
  for (const uint64_t one : taken) executor(a).own().free(one, length);
}

/// A run may have read the room of a buffer that was taken back, and wait before it reads where that is: what comes in its place is
/// found by later runs only.
TEST_P(ChannelForged, ANumberIsNotFilledAnewUnderARun) {
  tw_plan *sends = plan(a), *receives = plan(b);
  tw_queue* on = queue(a);
  start(sends, receives, nullptr, on);
  ControlMessage told = to_memory(nullptr);
  constexpr uint16_t kLast = 255;
  const auto say_all = [&](ControlMessage message) {
    for (message.index = 1; message.index <= kLast; ++message.index) say(b, false, message);
  };
  say_all(told);
  ASSERT_TRUE(until([&] { return entry(kLast).capacity != 0; }));
  const device::RecvBuffer before = entry(1);
  say_all(of_type(Control::drop, told.epoch, 0));
  ASSERT_TRUE(until([&] { return entry(kLast).capacity == 0; }));
  told.capacity = 32;
  say_all(told);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (size_t i = 1; i <= kLast; ++i) EXPECT_EQ(entry(i).capacity, 0u) << i;
  EXPECT_EQ(entry(1).to.base, before.to.base);
  ASSERT_EQ(tw_plan_trigger(receives, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_finish(receives, kLong), TW_OK) << tw_last_error();
  EXPECT_TRUE(until([&] { return entry(kLast).capacity == 32; }));
}

/// What is taken back while a run is under way stays here, so there is an end to it.
TEST_P(ChannelForged, BuffersAreNotTakenBackOnAndOn) {
  tw_plan *sends = plan(a), *receives = plan(b);
  tw_queue* on = queue(a);
  start(sends, receives, nullptr, on);
  const uint64_t count[] = {16, 16, 16, 15};
  const int64_t stride[] = {2, 33, 530, 8500};
  tw_layout* list = nullptr;
  ASSERT_EQ(tw_layout_strided(4, 1, count, stride, &list), TW_OK) << tw_last_error();  // 61,440 pieces: a table of 960 KiB
  ControlMessage told = to_memory(list);
  tw_layout_destroy(list);
  const auto failed = [&] { return tw_plan_test(sends) != TW_OK; };
  for (told.index = 1; told.index < 40 && !failed(); ++told.index) {
    say(b, false, told);
    ASSERT_TRUE(until([&] { return entry(told.index).capacity != 0 || failed(); })) << told.index;
    ControlMessage drop = of_type(Control::drop, told.epoch, 0);
    drop.index = told.index;
    say(b, false, drop);
    ASSERT_TRUE(until([&] { return entry(told.index).capacity == 0 || failed(); })) << told.index;
  }
  EXPECT_GT(told.index, 10);
  EXPECT_EQ(tw_plan_test(sends), TW_ERR_LIMIT);
  EXPECT_NE(std::strstr(tw_last_error(), "took too many buffers back"), nullptr) << tw_last_error();
  EXPECT_EQ(tw_queue_synchronize(on), TW_ERR_LIMIT);
}

/// A peer says how it failed, by an error that there is.
TEST_P(ChannelForged, WhatFailedThereIsAnError) {
  tw_plan *sends = plan(a), *receives = plan(b);
  tw_queue* on = queue(a);
  start(sends, receives, nullptr, on);
  ControlMessage end = of_type(Control::failed, channel(b, false).epoch(), 0);
  end.status = -9999;
  say(b, false, end);
  EXPECT_TRUE(until([&] { return tw_plan_test(sends) != TW_OK; }));
  EXPECT_EQ(tw_plan_test(sends), TW_ERR_PROTOCOL);
  EXPECT_EQ(tw_queue_synchronize(on), TW_ERR_PROTOCOL);
}

/// An end that is opened and left makes another epoch here each time; what the first was found by serves all, and there is an end to it.
TEST_P(ChannelForged, ManyOpensTakeLittle) {
  if (std::strcmp(GetParam().place, "host") != 0) return;
  tw_plan* receives = plan(b);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, memory(b, kSize), kSize, kTag, nullptr, nullptr), TW_OK) << tw_last_error();
  tw_memory* words = nullptr;
  memory(a, 4096, &words);
  ControlMessage open = of_type(Control::open, 0, 0);
  unsigned char key[kKeyRoom];
  size_t length = sizeof key;
  ASSERT_EQ(tw_memory_export(words, key, &length), TW_OK) << tw_last_error();
  open.key.assign(reinterpret_cast<std::byte*>(key), reinterpret_cast<std::byte*>(key) + length);
  both([&] { static_cast<void>(route(a)); }, [&] { static_cast<void>(route(b)); });  // each says hello
  tw_status status = TW_OK;
  std::string why;
  uint32_t epochs = 0;
  uint64_t end = 0;
  const auto state = [&](impl::Channel& of, uint32_t* epoch) {
    const std::lock_guard lock(proxy(b).mutex());
    *epoch = of.epoch();
    return of.state();
  };
  both(
      [&] {
        using State = impl::Channel::State;
        impl::Channel& there = channel(b, false);
        uint32_t epoch = 0;
        State now = State::closed;
        for (; epochs < 2000; ++epochs) {
          ASSERT_TRUE(until([&] { return (now = state(there, &epoch)) == State::opening || now == State::failed; }));
          if (now == State::failed) break;
          open.epoch = 1000 + epochs;
          say(a, true, open);
          say(a, true, of_type(Control::result, open.epoch, epoch));
          ASSERT_TRUE(until([&] { return (now = state(there, &epoch)) == State::mapped || now == State::failed; }));
          if (end == 0) end = there.words();
          EXPECT_EQ(there.words(), end);
          ++open.epoch;
          say(a, true, open);
          ASSERT_TRUE(until([&, was = epoch] { return state(there, &epoch) == State::failed || epoch != was; }));
        }
      },
      [&] {
        status = tw_plan_prepare(receives, kLong);
        why = tw_last_error();
      });
  EXPECT_EQ(status, TW_ERR_PROTOCOL) << why;
  EXPECT_NE(why.find("again and again"), std::string::npos) << why;
  EXPECT_LT(epochs, 2000u);
}

/// A peer that comes again and again leaves nothing here.
TEST(ProxyKeeps, NothingOfPeersThatAreGone) {
  constexpr uint64_t kLong = 20'000'000'000;
  constexpr size_t kSize = 203;
  Side stays;
  stays.open("shm");
  impl::Proxy* proxy = nullptr;
  ASSERT_EQ(impl::Proxy::of(*stays.context, &proxy), TW_OK) << tw_last_error();
  for (int turn = 0; turn < 40; ++turn) {
    Side comes;
    comes.open("shm");
    comes.connect(stays);
    stays.connect(comes);
    tw_plan *sends = nullptr, *receives = nullptr;
    const Bytes data = random_bytes(kSize);
    unsigned char *from = comes.memory("host", kSize), *to = stays.memory("host", kSize);
    comes.store(from, data);
    ASSERT_EQ(tw_plan_create(comes.context, nullptr, &sends), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_create(stays.context, nullptr, &receives), TW_OK) << tw_last_error();
    std::thread other([&] {
      EXPECT_EQ(tw_plan_send(sends, comes.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error();
    });
    EXPECT_EQ(tw_plan_recv(receives, stays.endpoint, to, kSize, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error();
    other.join();
    EXPECT_TRUE(stays.load(to, kSize) == data);
    EXPECT_EQ(tw_plan_destroy(sends), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
    comes.close();
    (void)tw_endpoint_close(stays.endpoint, TW_CLOSE_FORCE, nullptr);
    stays.endpoint = nullptr;
    const impl::Deadline deadline(kLong);
    while (proxy->kept() != 0 && !deadline.passed()) std::this_thread::yield();
    ASSERT_EQ(proxy->kept(), 0u);
  }
  stays.close();
}

/// Nor do endpoints that have ended, of a peer that stays.
TEST(ProxyKeeps, NothingOfEndpointsThatAreGone) {
  constexpr uint64_t kLong = 20'000'000'000;
  constexpr size_t kSize = 203;
  Side one, other;
  for (Side* side : {&one, &other}) side->open("shm");
  impl::Proxy* proxies[2] = {};
  ASSERT_EQ(impl::Proxy::of(*one.context, &proxies[0]), TW_OK) << tw_last_error();
  ASSERT_EQ(impl::Proxy::of(*other.context, &proxies[1]), TW_OK) << tw_last_error();
  unsigned char *from = one.memory("host", kSize), *to = other.memory("host", kSize);
  for (int turn = 0; turn < 40; ++turn) {
    one.connect(other);
    other.connect(one);
    tw_plan *sends = nullptr, *receives = nullptr;
    const Bytes data = random_bytes(kSize);
    one.store(from, data);
    ASSERT_EQ(tw_plan_create(one.context, nullptr, &sends), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_create(other.context, nullptr, &receives), TW_OK) << tw_last_error();
    std::thread there([&] {
      EXPECT_EQ(tw_plan_send(sends, one.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error();
    });
    EXPECT_EQ(tw_plan_recv(receives, other.endpoint, to, kSize, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error();
    there.join();
    EXPECT_TRUE(other.load(to, kSize) == data);
    EXPECT_EQ(tw_plan_destroy(sends), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
    for (Side* side : {&one, &other}) {
      (void)tw_endpoint_close(std::exchange(side->endpoint, nullptr), TW_CLOSE_FORCE, nullptr);
    }
    const impl::Deadline deadline(kLong);
    for (impl::Proxy* proxy : proxies) {
      while (proxy->kept() != 0 && !deadline.passed()) {
        tw_worker_progress(one.worker);
        tw_worker_progress(other.worker);
      }
      ASSERT_EQ(proxy->kept(), 0u) << turn;
    }
  }
  one.close();
  other.close();
}

}  // namespace
}  // namespace thalweg::tests
