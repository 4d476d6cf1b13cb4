// SPDX-License-Identifier: Apache-2.0
// Kernels' ends of channels whose messages the host carries: sizes around the bounce buffers', what is left when an end is released, and
// what fails.
#include <algorithm>

#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

using device::kSlots;

class CarriedEnds : public ChannelEnds {
 protected:
  tw_status bind_send_of(size_t message_bytes, uint64_t tag, Bound* out, const char* place = nullptr) {
    tw_channel_options how = options();
    how.message_bytes = message_bytes;
    if (place != nullptr) how.place = place;
    const tw_status status = tw_channel_bind_send(a.endpoint, tag, &how, &out->handle);
    if (status == TW_OK) out->look(0);
    return status;
  }
  void bind_both_of(size_t message_bytes, uint64_t tag, const RecvBuffers& recv_buffers, Bound* send, Bound* recv) {
    both([&] { ASSERT_EQ(bind_send_of(message_bytes, tag, send), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(bind_recv(tag, recv_buffers.given, recv), TW_OK) << tw_last_error(); });
  }
  static std::string explained(const Bound& end) {
    char text[2000];
    size_t size = sizeof text;
    EXPECT_EQ(tw_channel_end_explain(end.handle, text, &size), TW_OK) << tw_last_error();
    return text;
  }
  void release_both(Bound& send, Bound& recv, tw_status of_recv = TW_OK) {
    EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
    EXPECT_EQ(recv.release(), of_recv) << tw_last_error();
  }
};
INSTANTIATE_TEST_SUITE_P(ByTheHost, CarriedEnds, testing::Values(kWays[2], kWays[3]),
                         [](const auto& info) { return info.param.name; });

TEST_P(CarriedEnds, MessagesOfAnySizeUpToTheLongest) {
  const size_t longest[] = {1, 63, 64, 65, 4'097, (size_t{1} << 20) + 3, (size_t{5} << 20) + 1};
  uint64_t tag = 0;
  for (const size_t most : longest) {
    SCOPED_TRACE(most);
    const RecvBuffers recv_buffers = make_recv_buffers(3, most);
    std::vector<size_t> sizes(most < 1'000'000 ? 2 * kSlots + 3 : 5);
    std::mt19937 random(std::random_device{}());
    for (size_t& size : sizes) size = random() % (most + 1);
    sizes[0] = most;
    sizes[1] = 0;
    sizes[2] = most - 1;
    Traffic traffic = make_traffic(sizes);
    Bound send, recv;
    bind_both_of(most, ++tag, recv_buffers, &send, &recv);
    EXPECT_NE(explained(send).find("the sending end, of " + std::string(GetParam().place) + ": by the host, as "),
              std::string::npos);
    EXPECT_NE(explained(send).find("bounce buffers of " + std::to_string(most) + " bytes"), std::string::npos);
    EXPECT_NE(explained(recv).find("the receiving end, of "), std::string::npos);
    {
      const Running receiver = start_recv(recv, recv_buffers, traffic, 3);
      const Running sender = start_send(send, traffic);
    }
    expect_all(traffic);
    expect_guards(recv_buffers);
    release_both(send, recv);
  }
}

/// The kernel has ended before the peer takes anything: what it sent goes to whatever is at the other end next, in order.
TEST_P(CarriedEnds, WhatWasSentArrivesBehindTheRelease) {
  constexpr size_t kSize = 700, kMessages = 9;
  const RecvBuffers recv_buffers = make_recv_buffers(2);
  Traffic traffic = make_traffic(std::vector<size_t>(kMessages, kSize));
  Bound send, recv;
  bind_both(3, recv_buffers.given, &send, &recv);
  { const Running sender = start_send(send, traffic); }
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  tw_plan* sends = plan(a);  // the channel goes on behind them
  unsigned char* const from = memory(a, kSize);
  const Bytes last = random_bytes(kSize);
  a.store(from, last);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 3, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(sends, nullptr), TW_OK) << tw_last_error();
  {
    const Running receiver = start_recv(recv, recv_buffers, traffic, 2);
    for (int i = 0; i < 10; ++i) tw_worker_progress(a.worker);
  }
  expect_all(traffic);
  bool taken = false;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      taken = in.post(device::Block(), recv.recv_buffers[0]) && in.take(device::Block());
    });
    ASSERT_EQ(tw_plan_finish(sends, kLong), TW_OK) << tw_last_error();
  }
  EXPECT_TRUE(taken);
  EXPECT_TRUE(b.load(recv_buffers.at[0], kSize) == last);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

TEST_P(CarriedEnds, LongOnesAreOnTheirWayBehindTheRelease) {
  constexpr size_t kSize = (size_t{2} << 20) + 5;
  const RecvBuffers recv_buffers = make_recv_buffers(2, kSize);
  Traffic traffic = make_traffic({kSize, kSize - 9});
  Bound send, recv;
  bind_both_of(kSize, 4, recv_buffers, &send, &recv);
  { const Running sender = start_send(send, traffic); }
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  a.store(traffic.from, Bytes(traffic.data.size(), 0x3c));  // the kernel's buffer is the user's again
  { const Running receiver = start_recv(recv, recv_buffers, traffic, 2); }
  expect_all(traffic);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

TEST_P(CarriedEnds, AMessageLongerThanTheBounceBuffersFailsBothEnds) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Traffic traffic = make_traffic({100, 101, 1});
  Bound send, recv;
  bind_both_of(100, 1, recv_buffers, &send, &recv);
  {
    const Running receiver = start_recv(recv, recv_buffers, traffic, 1);
    const Running sender = start_send(send, traffic);
  }
  EXPECT_EQ(traffic.sent, 1u);
  EXPECT_LE(traffic.received, 1u);  // the failure may overtake it
  if (traffic.received == 1) EXPECT_TRUE(b.load(traffic.to, 100) == Bytes(&traffic.data[0], &traffic.data[100]));
  expect_guards(recv_buffers);
  for (const Bound& end : {send, recv}) {
    EXPECT_EQ(failure_of(end), TW_ERR_TRUNCATED);
    expect_text({"channel 1", "100 bytes", "message_bytes"});
  }
  release_both(send, recv);
  expect_passage(1);
}

TEST_P(CarriedEnds, AMessageLongerThanTheReceivesBufferFailsBothEnds) {
  const RecvBuffers recv_buffers = make_recv_buffers(1, 100);
  Traffic traffic = make_traffic({100, 101});
  Bound send, recv;
  bind_both(1, recv_buffers.given, &send, &recv);
  {
    const Running receiver = start_recv(recv, recv_buffers, traffic, 1);
    const Running sender = start_send(send, traffic);
  }
  EXPECT_EQ(traffic.received, 1u);
  expect_guards(recv_buffers);
  for (const Bound& end : {send, recv}) {
    EXPECT_EQ(failure_of(end), TW_ERR_TRUNCATED);
    expect_text({"channel 1"});
  }
  release_both(send, recv);
  expect_passage(1);
}

TEST_P(CarriedEnds, ABufferThatTheEndDoesNotHaveTakesNothing) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  for (const uint32_t number : {1u, 255u, 65'535u}) {
    SCOPED_TRACE(number);
    Bound send, recv;
    bind_both(10, recv_buffers.given, &send, &recv);
    if (recv.recv_buffers[0] == number) {
      release_both(send, recv);
      continue;
    }
    Traffic traffic = make_traffic({9});
    {
      const Running receiver(GetParam().place, [&](auto machine) {
        device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
        EXPECT_TRUE(in.post(device::Block(), number));
        EXPECT_FALSE(in.take(device::Block()));
      });
      const Running sender = start_send(send, traffic);
    }
    expect_guards(recv_buffers);
    for (const Bound& end : {send, recv}) EXPECT_EQ(failure_of(end), TW_ERR_TRUNCATED);
    release_both(send, recv);
  }
  expect_passage(10);
}

TEST_P(CarriedEnds, ReceivesThatNobodyTakesFailTheChannelAndLeaveTheirBuffers) {
  const RecvBuffers recv_buffers = make_recv_buffers(2);
  Bound send, recv;
  bind_both(6, recv_buffers.given, &send, &recv);
  const Bytes before = b.load(recv_buffers.at[0], kMost);
  bool posted = false;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      posted = in.post(device::Block(), recv.recv_buffers[0]) && in.post(device::Block(), recv.recv_buffers[1]);
    });
  }
  EXPECT_TRUE(posted);
  EXPECT_EQ(recv.release(), TW_ERR_CANCELED);
  expect_text({"channel 6", "2 receives"});
  EXPECT_EQ(failure_of(send), TW_ERR_CANCELED);
  Traffic late = make_traffic({90});
  { const Running sender = start_send(send, late); }
  EXPECT_EQ(send.release(), TW_OK);
  EXPECT_TRUE(b.load(recv_buffers.at[0], kMost) == before);
  b.store(recv_buffers.at[0], before);  // it is the user's again
  expect_passage(6);
  EXPECT_TRUE(b.load(recv_buffers.at[0], kMost) == before);
}

TEST_P(CarriedEnds, AnExpiredWaitEndsThePeersWait) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Bound send, recv;
  bind_both(2, recv_buffers.given, &send, &recv);
  recv.guard.limit_ns = 20'000'000;
  bool taken = true;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      taken = in.post(device::Block(), recv.recv_buffers[0]) && in.take(device::Block(), 77);
    });
  }
  EXPECT_FALSE(taken);
  EXPECT_EQ(tw_channel_end_check(recv.handle), TW_ERR_TIMED_OUT);
  expect_text({"channel 2", "operation 77"});
  EXPECT_EQ(failure_of(send), TW_ERR_TIMED_OUT);
  expect_text({"channel 2", "operation 77"});
  release_both(send, recv);
  expect_passage(2);
}

TEST_P(CarriedEnds, BounceBuffersOfAPeerHaveALimit) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Bound send, recv;
  for (const size_t most : {size_t{65} << 20, ~size_t{0} - 63, ~size_t{0} - 62, ~size_t{0}}) {
    SCOPED_TRACE(most);
    recv.handle = nullptr;
    both(
        [&] {
          EXPECT_EQ(bind_send_of(most, 1, &send), TW_ERR_LIMIT);
          expect_text({"message_bytes", "67108864"});
        },
        [&] {
          const tw_status status = bind_recv(1, recv_buffers.given, &recv);  // the sender may have failed before or after it
          if (status == TW_OK) EXPECT_EQ(failure_of(recv), TW_ERR_LIMIT);
          if (status != TW_OK) EXPECT_EQ(status, TW_ERR_LIMIT);
        });
    if (recv.handle != nullptr) (void)recv.release();
  }
  expect_passage(1);
  for (int i = 0; i < 40; ++i) {  // they are given back
    SCOPED_TRACE(i);
    both([&] { ASSERT_EQ(bind_send_of(size_t{10} << 20, 1, &send), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(bind_recv(1, recv_buffers.given, &recv), TW_OK) << tw_last_error(); });
    release_both(send, recv);
  }
}

/// On one machine, too.
class CarriedPlaces : public CarriedEnds {};
INSTANTIATE_TEST_SUITE_P(Shm, CarriedPlaces, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(CarriedPlaces, ADeviceAndTheHost) {
  const bool host = std::strcmp(GetParam().place, "host") == 0;
  const std::string other = host ? "emulated:0" : "host";
  const RecvBuffers recv_buffers = make_recv_buffers(3);
  for (int turn = 0; turn < 2; ++turn) {
    Bound send, recv;
    both([&] { ASSERT_EQ(bind_send_of(kMost, 1, &send, other.c_str()), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(bind_recv(1, recv_buffers.given, &recv), TW_OK) << tw_last_error(); });
    Traffic traffic = make_traffic(random_sizes(2 * kSlots + 3));
    traffic.from = a.memory(other.c_str(), traffic.data.size() + 1) + 1;
    a.store(traffic.from, traffic.data);
    {
      const Running receiver = start_recv(recv, recv_buffers, traffic, 3);
      const Running sender(other,
                           [&](auto machine) { send_messages(machine, send, traffic.from, traffic.sizes, &traffic.sent); });
    }
    expect_all(traffic);
    expect_guards(recv_buffers);
    release_both(send, recv);
  }
}

}  // namespace
}  // namespace thalweg::tests
