// SPDX-License-Identifier: Apache-2.0
// Who comes next to a channel that plans have used at both ends, and left: an operation of a queue, or a kernel's end, in place of a plan.
#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

class ChannelNext : public ChannelEnds {
 protected:
  static constexpr size_t kLength = 901;
  uint64_t tag = 5;

  tw_plan* make_plan(Side& side, bool sends, unsigned char* buffer, const char* place) {
    tw_plan_options how = TW_PLAN_OPTIONS_INIT;
    how.place = place;
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(side.context, &how, &made), TW_OK) << tw_last_error();
    const tw_status added = sends ? tw_plan_send(made, side.endpoint, buffer, kLength, tag, nullptr, nullptr)
                                  : tw_plan_recv(made, side.endpoint, buffer, kLength, tag, nullptr, nullptr);
    EXPECT_EQ(added, TW_OK) << tw_last_error();
    return made;
  }
  tw_plan* make_plan(Side& side, bool sends, unsigned char* buffer) { return make_plan(side, sends, buffer, GetParam().place); }
  static void destroy(tw_plan* plan) { ASSERT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error(); }
  /// Plans of both ends exchange a message, by the executor of a place, and are destroyed.
  void use(unsigned char* from, unsigned char* to, const char* place) {
    tw_plan *const sends = make_plan(a, true, from, place), *const receives = make_plan(b, false, to, place);
    prepare_both(sends, receives);
    run_both(sends, receives);
    destroy(sends);
    destroy(receives);
  }
  void use() { use(memory(a, kLength), memory(b, kLength), GetParam().place); }
  static void run_both(tw_plan* sends, tw_plan* receives) {
    both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
  }
  static std::string explained(const Bound& end) {
    char text[2000];
    size_t size = sizeof text;
    EXPECT_EQ(tw_channel_end_explain(end.handle, text, &size), TW_OK) << tw_last_error();
    return text;
  }
  /// Until what the other side asks has come.
  static void come_late() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }
};
INSTANTIATE_TEST_SUITE_P(Ways, ChannelNext, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(ChannelNext, AQueuesReceiveAnswersAPlanThatAsked) {
  use();
  const Bytes data = random_bytes(kLength);
  unsigned char *const from = memory(a, kLength), *const to = memory(b, kLength);
  a.store(from, data);
  tw_plan* const sends = make_plan(a, true, from);
  tw_queue* const on = queue(b);
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] {
         come_late();
         ASSERT_EQ(tw_recv_on(on, b.endpoint, to, kLength, tag, nullptr), TW_OK) << tw_last_error();
       });
  ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(to, kLength) == data);
  destroy(sends);
}

TEST_P(ChannelNext, AQueuesSendAnswersAPlanThatAsked) {
  use();
  const Bytes data = random_bytes(kLength);
  unsigned char *const from = memory(a, kLength), *const to = memory(b, kLength);
  a.store(from, data);
  tw_plan* const receives = make_plan(b, false, to);
  tw_queue* const on = queue(a);
  both(
      [&] {
        come_late();
        ASSERT_EQ(tw_send_on(on, a.endpoint, from, kLength, tag, nullptr), TW_OK) << tw_last_error();
      },
      [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
  EXPECT_TRUE(b.load(to, kLength) == data);
  destroy(receives);
}

TEST_P(ChannelNext, AKernelsEndAnswersAPlanThatAsked) {
  use();
  const Bytes data = random_bytes(kLength);
  unsigned char *const from = memory(a, kLength), *const to = memory(b, kLength);
  a.store(from, data);
  tw_plan* const sends = make_plan(a, true, from);
  Bound recv;
  both([&] { ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] {
         come_late();
         ASSERT_EQ(bind_recv(tag, {{to, kLength, nullptr}}, &recv), TW_OK) << tw_last_error();
       });
  bool taken = false;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      taken = in.post(device::Block(), recv.recv_buffers[0]) && in.take(device::Block());
    });
    ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error();
  }
  EXPECT_TRUE(taken);
  EXPECT_TRUE(b.load(to, kLength) == data);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  destroy(sends);
}

TEST_P(ChannelNext, KernelsOfAnotherExecutorDecideItAnew) {
  const char* const other = std::strcmp(GetParam().place, "host") == 0 ? "emulated:0" : "host";
  use(a.memory(other, kLength), b.memory(other, kLength), other);
  expect_passage(tag);
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Bound send, recv;
  bind_both(tag, recv_buffers.given, &send, &recv);
  EXPECT_EQ(explained(send).find("by the host") == std::string::npos, GetParam().mapped) << explained(send);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

/// Pageable memory of a device's plans had the host carry it.
TEST_P(ChannelNext, KernelsOfBetterMemoryHaveItMapped) {
  if (!GetParam().mapped || std::strcmp(GetParam().place, "host") == 0) GTEST_SKIP() << "nothing is better";
  Bytes from(kLength), to(kLength);
  use(from.data(), to.data(), GetParam().place);
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Bound send, recv;
  bind_both(tag, recv_buffers.given, &send, &recv);
  EXPECT_EQ(explained(send).find("by the host"), std::string::npos) << explained(send);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

TEST_P(ChannelNext, BindingWaitsForThePeer) {
  if (!GetParam().mapped) GTEST_SKIP() << "no end waits where the host carries it in any case";
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  for (const bool sends : {true, false}) {
    SCOPED_TRACE(sends);
    ++tag;
    use();
    Bound alone;
    EXPECT_EQ(sends ? bind_send(tag, &alone, 50'000'000) : bind_recv(tag, recv_buffers.given, &alone, 50'000'000),
              TW_ERR_TIMED_OUT);
    expect_text({"peer"});
    expect_passage(tag);
  }
}

/// Memory that the receiving code does not reach is of no use to it, whichever way the channel had.
TEST_P(ChannelNext, MemoryThatTheCodeDoesNotReachIsRefusedAtBothEnds) {
  if (!GetParam().mapped) GTEST_SKIP() << "no end waits there";
  const bool by_host = std::strcmp(GetParam().place, "host") == 0;
  Bytes pageable(kLength), from(kLength), to(kLength);
  unsigned char* const unreached = by_host ? b.memory("emulated:0", kLength) : pageable.data();
  for (const bool mapped : {true, false}) {
    if (!mapped && by_host) continue;  // to a host's plans all of the host's memory is mapped
    SCOPED_TRACE(mapped ? "mapped" : "carried");
    ++tag;
    mapped ? use() : use(from.data(), to.data(), GetParam().place);
    Bound send, recv;
    both(
        [&] {
          EXPECT_EQ(bind_send(tag, &send), TW_ERR_UNSUPPORTED);
          expect_text({"does not reach it"});
        },
        [&] {
          EXPECT_EQ(bind_recv(tag, {{unreached, kLength, nullptr}}, &recv), TW_ERR_UNSUPPORTED);
          expect_text({"does not reach it"});
        });
    expect_passage(tag);
    // A kernel has had it: no end waits.
    ASSERT_EQ(bind_send(tag, &send), TW_OK) << tw_last_error();
    EXPECT_EQ(bind_recv(tag, {{unreached, kLength, nullptr}}, &recv), TW_ERR_UNSUPPORTED);
    expect_text({"does not reach it"});
    EXPECT_EQ(failure_of(send), TW_ERR_UNSUPPORTED);
    EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  }
}

/// It would wait for a kernel that does not come.
TEST_P(ChannelNext, MemoryThatTheCodeDoesNotReachEndsThePeersPlan) {
  if (!GetParam().mapped) GTEST_SKIP() << "as above";
  Bytes pageable(kLength);
  const bool by_host = std::strcmp(GetParam().place, "host") == 0;
  unsigned char* const unreached = by_host ? b.memory("emulated:0", kLength) : pageable.data();
  tw_plan *const sends = make_plan(a, true, memory(a, kLength)), *const receives = make_plan(b, false, memory(b, kLength));
  prepare_both(sends, receives);
  run_both(sends, receives);
  destroy(receives);
  Bound recv;
  EXPECT_EQ(bind_recv(tag, {{unreached, kLength, nullptr}}, &recv), TW_ERR_UNSUPPORTED);
  expect_text({"does not reach it"});
  EXPECT_EQ(tw_plan_run(sends, kLong), TW_ERR_UNSUPPORTED);
  expect_text({"does not reach it"});
  destroy(sends);
}

}  // namespace
}  // namespace thalweg::tests
