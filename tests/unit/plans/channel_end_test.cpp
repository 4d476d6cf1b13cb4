// SPDX-License-Identifier: Apache-2.0
// Ends of channels that kernels run, against every kind of other end: a kernel, a plan, operations on a queue; mapped, and carried by the
// host.
#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

INSTANTIATE_TEST_SUITE_P(Ways, ChannelEnds, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });
using device::kSlots;

TEST_P(ChannelEnds, BothAreKernels) {
  uint64_t tag = 0;
  for (const size_t ahead : {size_t{1}, size_t{kSlots - 1}, size_t{kSlots}}) {
    for (const size_t buffers : {size_t{kSlots}, size_t{kSlots + 3}}) {
      SCOPED_TRACE(std::to_string(ahead) + " ahead, buffers: " + std::to_string(buffers));
      const RecvBuffers recv_buffers = make_recv_buffers(buffers);
      Bound send, recv;
      bind_both(++tag, recv_buffers.given, &send, &recv);
      for (int run = 0; run < 2; ++run) {  // the second kernel goes on where the first one ended
        Traffic traffic = make_traffic(random_sizes(3 * kSlots + 5));
        {
          const Running receiver = start_recv(recv, recv_buffers, traffic, ahead);
          const Running sender = start_send(send, traffic);
        }
        expect_all(traffic);
      }
      expect_guards(recv_buffers);
      EXPECT_EQ(tw_channel_end_check(send.handle), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_channel_end_check(recv.handle), TW_OK) << tw_last_error();
      EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
      EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
    }
  }
}

TEST_P(ChannelEnds, ReceiveBuffersOfAnyLayout) {
  constexpr size_t kRows = 7, kRow = 24, kPitch = 40;
  tw_layout* rows = nullptr;
  const uint64_t count = kRows;
  const int64_t stride = kPitch;
  ASSERT_EQ(tw_layout_strided(1, kRow, &count, &stride, &rows), TW_OK) << tw_last_error();
  const size_t whole = kRows * kPitch;
  const Bytes before = random_bytes(whole), data = random_bytes(kRows * kRow);
  unsigned char *to = memory(b, whole), *from = memory(a, data.size());
  a.store(from, data);
  b.store(to, before);
  Bound send, recv;
  bind_both(5, {{to, 0, rows}}, &send, &recv);
  tw_layout_destroy(rows);
  bool sent = false, taken = false;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      taken = in.post(device::Block(), recv.recv_buffers[0]) && in.take(device::Block());
    });
    const Running sender(GetParam().place, [&](auto machine) {
      device::Sender<decltype(machine)> out(send.send_end(), send.guard, machine);
      sent = out.send(device::Block(), from, data.size());
    });
  }
  EXPECT_TRUE(sent && taken);
  Bytes wanted = before;
  for (size_t i = 0; i < kRows; ++i) std::copy_n(&data[i * kRow], kRow, &wanted[i * kPitch]);
  EXPECT_TRUE(b.load(to, whole) == wanted);
  EXPECT_EQ(recv.release(), TW_OK);
  EXPECT_EQ(send.release(), TW_OK);
}

TEST_P(ChannelEnds, PlansSendToAKernel) {
  const RecvBuffers recv_buffers = make_recv_buffers(4);
  Traffic traffic = make_traffic(std::vector<size_t>(2 * kSlots, 501));
  tw_plan* plans[2] = {plan(a), plan(a)};  // more than one: the kernel's end is there for all of them
  unsigned char* const source = memory(a, 501);
  Bound recv;
  for (tw_plan* one : plans) ASSERT_EQ(tw_plan_send(one, a.endpoint, source, 501, 9, nullptr, nullptr), TW_OK);
  both(
      [&] {
        for (tw_plan* one : plans) ASSERT_EQ(tw_plan_prepare(one, kLong), TW_OK) << tw_last_error();
      },
      [&] { ASSERT_EQ(bind_recv(9, recv_buffers.given, &recv), TW_OK) << tw_last_error(); });
  {
    const Running receiver = start_recv(recv, recv_buffers, traffic, 4);
    for (size_t i = 0; i < traffic.sizes.size(); ++i) {
      a.store(source, Bytes(&traffic.data[i * 501], &traffic.data[(i + 1) * 501]));
      ASSERT_EQ(tw_plan_trigger(plans[i % 2], nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_finish(plans[i % 2], kLong), TW_OK) << tw_last_error();
      ++traffic.sent;
    }
  }
  expect_all(traffic);
  expect_guards(recv_buffers);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

TEST_P(ChannelEnds, AKernelSendsToAPlan) {
  constexpr size_t kSize = 1203;
  Traffic traffic = make_traffic(std::vector<size_t>(2 * kSlots + 1, kSize));
  unsigned char* const to = memory(b, kSize);
  tw_plan* receives = plan(b);
  tw_queue* on = queue(b);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 9, nullptr, nullptr), TW_OK);
  Bound send;
  both([&] { ASSERT_EQ(bind_send(9, &send), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  {
    const Running sender = start_send(send, traffic);
    for (; traffic.received < traffic.sizes.size(); ++traffic.received) {
      b.store(to, Bytes(kSize, 0x11));
      ASSERT_EQ(tw_plan_trigger(receives, on), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
      b.store(traffic.to + traffic.received * kSize, b.load(to, kSize));
    }
  }
  expect_all(traffic);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
}

TEST_P(ChannelEnds, OperationsOnAQueueAreTheOtherEnd) {
  constexpr size_t kSize = 777, kMessages = 9;
  const RecvBuffers recv_buffers = make_recv_buffers(2);
  Traffic there = make_traffic(std::vector<size_t>(kMessages, kSize)), back = make_traffic(there.sizes);
  unsigned char *source = memory(a, kSize), *to = memory(b, kSize);
  tw_queue *qa = queue(a), *qb = queue(b);
  Bound send, recv;
  a.store(source, Bytes(&there.data[0], &there.data[kSize]));
  both(
      [&] {
        ASSERT_EQ(tw_send_on(qa, a.endpoint, source, kSize, 1, nullptr), TW_OK) << tw_last_error();
        ASSERT_EQ(bind_send(2, &send), TW_OK) << tw_last_error();
      },
      [&] {
        ASSERT_EQ(bind_recv(1, recv_buffers.given, &recv), TW_OK) << tw_last_error();
        ASSERT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, 2, nullptr), TW_OK) << tw_last_error();
      });
  {
    const Running receiver = start_recv(recv, recv_buffers, there, 2);
    const Running sender = start_send(send, back);
    for (size_t i = 0; i < kMessages; ++i) {
      if (i > 0) {
        a.store(source, Bytes(&there.data[i * kSize], &there.data[(i + 1) * kSize]));
        ASSERT_EQ(tw_send_on(qa, a.endpoint, source, kSize, 1, nullptr), TW_OK) << tw_last_error();
        ASSERT_EQ(tw_recv_on(qb, b.endpoint, to, kSize, 2, nullptr), TW_OK) << tw_last_error();
      }
      ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error();
      ++there.sent;
      ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error();
      b.store(back.to + i * kSize, b.load(to, kSize));
      ++back.received;
    }
  }
  expect_all(there);
  expect_all(back);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
}

/// What a kernel leaves goes on by plans, and the other way round: the same messages, the same counts.
TEST_P(ChannelEnds, PlansAndKernelsTakeTurns) {
  constexpr size_t kSize = 250;
  for (int turn = 0; turn < 3; ++turn) {
    const RecvBuffers recv_buffers = make_recv_buffers(3);
    Traffic traffic = make_traffic(std::vector<size_t>(kSlots + 1, kSize));
    Bound send, recv;
    bind_both(4, recv_buffers.given, &send, &recv);
    {
      const Running receiver = start_recv(recv, recv_buffers, traffic, 3);
      const Running sender = start_send(send, traffic);
    }
    expect_all(traffic);
    EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
    EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
    const Bytes data = random_bytes(kSize);
    unsigned char *from = memory(a, kSize), *to = memory(b, kSize);
    a.store(from, data);
    tw_plan *sends = nullptr, *receives = nullptr;
    tw_plan_options how = TW_PLAN_OPTIONS_INIT;
    how.place = GetParam().place;
    ASSERT_EQ(tw_plan_create(a.context, &how, &sends), TW_OK);
    ASSERT_EQ(tw_plan_create(b.context, &how, &receives), TW_OK);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 4, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, 4, nullptr, nullptr), TW_OK);
    const auto run = [](tw_plan* one) {
      ASSERT_EQ(tw_plan_prepare(one, kLong), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_trigger(one, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_finish(one, kLong), TW_OK) << tw_last_error();
    };
    both([&] { run(sends); }, [&] { run(receives); });
    EXPECT_TRUE(b.load(to, kSize) == data);
    EXPECT_EQ(tw_plan_destroy(sends), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
  }
}

}  // namespace
}  // namespace thalweg::tests
