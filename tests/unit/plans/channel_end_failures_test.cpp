// SPDX-License-Identifier: Apache-2.0
// Ends of channels that kernels run: what fails, what is refused, and how both sides go on.
#include <atomic>

#include "channel_ends.hpp"
#include "copying_peer.hpp"
#include "core/context.hpp"
#include "plans/channel.hpp"
#include "plans/proxy.hpp"

namespace thalweg::tests {
namespace {

class ChannelEndFailures : public ChannelEnds {
 protected:
  /// A plan of b's that receives 8 bytes through channel 9 from an end of a's. limit_ns: of its runs' waits.
  tw_plan* prepare_recv(unsigned char* to, Bound* send, uint64_t limit_ns = 0) {
    tw_plan* made = nullptr;
    tw_plan_options how = TW_PLAN_OPTIONS_INIT;
    how.place = GetParam().place;
    how.timeout_ns = limit_ns;
    EXPECT_EQ(tw_plan_create(b.context, &how, &made), TW_OK);
    EXPECT_EQ(tw_plan_recv(made, b.endpoint, to, 8, 9, nullptr, nullptr), TW_OK);
    both([&] { EXPECT_EQ(bind_send(9, send), TW_OK) << tw_last_error(); },
         [&] { EXPECT_EQ(tw_plan_prepare(made, kLong), TW_OK) << tw_last_error(); });
    return made;
  }
  impl::Proxy* proxy_of_b() {
    impl::Proxy* proxy = nullptr;
    EXPECT_EQ(impl::Proxy::of(*b.context, &proxy), TW_OK);
    return proxy;
  }
  /// As the flag of an end's first message, in place of the message.
  void forge_flag(const Bound& send, uint64_t info) {
    const Running sender(GetParam().place, [&send, info](auto machine) {
      device::u64* const flags = device::read_pointer(machine, &send.send_end()->flags);
      device::write_slot<device::Publish::released>(machine, flags, 0, info);
    });
  }
  /// a's proxy says that the end of channel 9 has failed, whichever its epoch is.
  void forge_failure(tw_status status, const char* why) {
    impl::Proxy* proxy = nullptr;
    impl::Proxy::Route route;
    ASSERT_EQ(impl::Proxy::of(*a.context, &proxy), TW_OK);
    ASSERT_EQ(proxy->route(*a.endpoint, &route), TW_OK) << tw_last_error();
    impl::ControlMessage message;
    message.type = impl::Control::failed;
    message.name = {route.mine, route.theirs, 9, 0};
    message.from_sender = true;
    message.status = status;
    message.text = why;
    const std::lock_guard lock(proxy->mutex());
    for (message.epoch = 1; message.epoch < 10; ++message.epoch) proxy->send(*route.peer, message);
  }
};
INSTANTIATE_TEST_SUITE_P(Mapped, ChannelEndFailures, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelEndFailures, TooLongAMessageFailsAtBothEnds) {
  const RecvBuffers recv_buffers = make_recv_buffers(1, 100);
  Traffic traffic = make_traffic({100, 101, 1});
  Bound send, recv;
  bind_both(1, recv_buffers.given, &send, &recv);
  {
    const Running receiver = start_recv(recv, recv_buffers, traffic, 1);
    const Running sender = start_send(send, traffic);
  }
  EXPECT_EQ(traffic.sent, 1u);
  EXPECT_EQ(traffic.received, 1u);
  EXPECT_TRUE(b.load(recv_buffers.at[0], 100) == Bytes(traffic.data.begin(), traffic.data.begin() + 100));
  expect_guards(recv_buffers);
  for (const Bound& end : {send, recv}) {
    EXPECT_EQ(failure_of(end), TW_ERR_TRUNCATED);
    expect_text({"channel 1", "longer"});
  }
  both([&] { EXPECT_EQ(send.release(), TW_OK) << tw_last_error(); },
       [&] { EXPECT_EQ(recv.release(), TW_OK) << tw_last_error(); });
  expect_passage(1);
}

TEST_P(ChannelEndFailures, AnExpiredWaitEndsThePeersWait) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Bound send, recv;
  bind_both(2, recv_buffers.given, &send, &recv);
  send.guard.limit_ns = 20'000'000;
  unsigned char* const from = memory(a, 8);
  bool sent = true, taken = true;
  {
    const Running receiver(GetParam().place, [&](auto machine) {  // takes what it did not post
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      taken = in.take(device::Block(), 77);
    });
    Running sender(GetParam().place, [&](auto machine) {
      device::Sender<decltype(machine)> out(send.send_end(), send.guard, machine);
      sent = out.send(device::Block(), from, 8, 55);
    });
    sender.wait();
    EXPECT_FALSE(sent);
    EXPECT_EQ(tw_channel_end_check(send.handle), TW_ERR_TIMED_OUT);
    expect_text({"channel 2", "operation 55", "waited for 1", "found 0"});
  }
  EXPECT_FALSE(taken);
  EXPECT_EQ(tw_channel_end_check(recv.handle), TW_ERR_TIMED_OUT);
  expect_text({"channel 2", "operation 55"});
  both([&] { EXPECT_EQ(send.release(), TW_OK) << tw_last_error(); },
       [&] { EXPECT_EQ(recv.release(), TW_OK) << tw_last_error(); });
  expect_passage(2);
}

TEST_P(ChannelEndFailures, ALatePartnerIsWaitedForAndAMissingOneNamed) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Bound send, recv;
  EXPECT_EQ(bind_recv(3, recv_buffers.given, &recv, 50'000'000), TW_ERR_TIMED_OUT);
  expect_text({"peer"});
  EXPECT_EQ(recv.handle, nullptr);
  EXPECT_EQ(bind_send(3, &send, 50'000'000), TW_ERR_TIMED_OUT);
  Traffic traffic = make_traffic(random_sizes(20));
  both([&] { ASSERT_EQ(bind_send(3, &send), TW_OK) << tw_last_error(); },
       [&] {
         for (int i = 0; i < 200; ++i) tw_worker_progress(b.worker);
         ASSERT_EQ(bind_recv(3, recv_buffers.given, &recv), TW_OK) << tw_last_error();
       });
  {
    const Running sender = start_send(send, traffic);  // its first credit comes when the other kernel is there
    const Running receiver = start_recv(recv, recv_buffers, traffic, 1);
  }
  expect_all(traffic);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
}

TEST_P(ChannelEndFailures, ReceivesThatNobodyTakesFailTheChannel) {
  const RecvBuffers recv_buffers = make_recv_buffers(2);
  Traffic traffic = make_traffic({70, 80}), late = make_traffic({90});
  Bound send, recv;
  bind_both(6, recv_buffers.given, &send, &recv);
  bool posted = false;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      posted = in.post(device::Block(), recv.recv_buffers[0]) && in.post(device::Block(), recv.recv_buffers[1]);
    });
  }
  EXPECT_TRUE(posted);
  { const Running sender = start_send(send, traffic); }  // what begins after the failure finds no room
  EXPECT_EQ(traffic.sent, 2u);
  both(
      [&] {
        { const Running sender = start_send(send, late); }
        EXPECT_EQ(late.sent, 0u);
        EXPECT_EQ(failure_of(send), TW_ERR_CANCELED);
        EXPECT_EQ(send.release(), TW_OK);
      },
      [&] {
        EXPECT_EQ(recv.release(), TW_ERR_CANCELED);
        expect_text({"channel 6", "2 receives"});
      });
  expect_passage(6);
}

TEST_P(ChannelEndFailures, AnEndIsAPlansOrAKernels) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  unsigned char *from = memory(a, 8), *to = memory(b, 8);
  Bound send, recv, second;
  bind_both(7, recv_buffers.given, &send, &recv);
  EXPECT_EQ(bind_send(7, &second), TW_ERR_BUSY);
  expect_text({"channel 7", "tw_channel_end_release"});
  tw_plan *sends = plan(a), *receives = plan(b);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, 8, 7, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, 8, 7, nullptr, nullptr), TW_OK);
  EXPECT_EQ(tw_plan_prepare(sends, kLong), TW_ERR_BUSY);
  expect_text({"channel 7", "bound to a kernel"});
  EXPECT_EQ(tw_plan_prepare(receives, kLong), TW_ERR_BUSY);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  both([&] { EXPECT_EQ(tw_plan_prepare(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { EXPECT_EQ(tw_plan_prepare(receives, kLong), TW_OK) << tw_last_error(); });
  EXPECT_EQ(bind_recv(7, recv_buffers.given, &recv), TW_ERR_BUSY);
  expect_text({"channel 7", "plan"});
  EXPECT_EQ(bind_send(7, &send), TW_ERR_BUSY);
}

TEST_P(ChannelEndFailures, ArgumentsThatMakeNoSense) {
  Bound none;
  EXPECT_EQ(bind_recv(8, {}, &none), TW_ERR_INVALID);
  EXPECT_EQ(bind_recv(8, {{nullptr, 5, nullptr}}, &none), TW_ERR_INVALID);
  expect_text({"buffer 0"});
  EXPECT_EQ(tw_channel_bind_send(nullptr, 8, nullptr, &none.handle), TW_ERR_INVALID);
  EXPECT_EQ(tw_channel_bind_send(a.endpoint, 8, nullptr, nullptr), TW_ERR_INVALID);
  tw_channel_options nowhere = options();
  nowhere.place = "nowhere";
  EXPECT_NE(tw_channel_bind_send(a.endpoint, 8, &nowhere, &none.handle), TW_OK);
  EXPECT_EQ(tw_channel_end_check(nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_channel_end_release(nullptr), TW_OK);
  const RecvBuffers recv_buffers = make_recv_buffers(1, 8);
  Bound recv;
  EXPECT_EQ(bind_recv(8, std::vector(257, recv_buffers.given[0]), &recv), TW_ERR_LIMIT);
  expect_passage(8);
  Bound send;
  bind_both(9, recv_buffers.given, &send, &recv);
  uint32_t number = 0;
  EXPECT_EQ(tw_channel_end_recv_buffer(recv.handle, 1, &number), TW_ERR_INVALID);
  EXPECT_EQ(tw_channel_end_recv_buffer(send.handle, 0, &number), TW_ERR_INVALID);
  EXPECT_EQ(recv.release(), TW_OK);
  EXPECT_EQ(send.release(), TW_OK);
}

/// A number that names no buffer is a buffer of no bytes, whatever the sender's memory holds there.
TEST_P(ChannelEndFailures, AReceiveBufferThatIsNoneTakesNothing) {
  const RecvBuffers recv_buffers = make_recv_buffers(3);
  Bound send, recv;
  for (const uint32_t number : {2u, 200u, 60000u}) {
    bind_both(10, {recv_buffers.given[0]}, &send, &recv);
    if (number == 2u) {  // it was one
      EXPECT_EQ(send.release(), TW_OK);
      EXPECT_EQ(recv.release(), TW_OK);
      bind_both(10, recv_buffers.given, &send, &recv);
      EXPECT_EQ(send.release(), TW_OK);
      EXPECT_EQ(recv.release(), TW_OK);
      bind_both(10, {recv_buffers.given[0]}, &send, &recv);
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
    EXPECT_EQ(traffic.sent, 0u);
    expect_guards(recv_buffers);
    EXPECT_EQ(failure_of(send), TW_ERR_TRUNCATED);
    both([&] { EXPECT_EQ(send.release(), TW_OK); }, [&] { EXPECT_EQ(recv.release(), TW_OK); });
  }
}

/// Not even one of this library's: 108 is TW_ERR_BUSY's, 304 TW_ERR_TIMED_OUT's, 305 TW_ERR_CLOSED's.
TEST_P(ChannelEndFailures, AFlagChoosesNoStatusOfAPlan) {
  unsigned char* const to = memory(b, 8);
  for (const uint64_t info : {1u, 31u, 108u, 304u, 305u, 501u, 65535u}) {
    SCOPED_TRACE(info);
    const tw_status expected = info == 501 ? TW_ERR_TRUNCATED : TW_ERR_PROTOCOL;
    Bound send;
    tw_plan* const receives = prepare_recv(to, &send);
    forge_flag(send, info);
    EXPECT_EQ(tw_plan_run(receives, kLong), expected);
    if (expected == TW_ERR_PROTOCOL) expect_text({"channel 9", "the peer stored", std::to_string(info).c_str()});
    EXPECT_EQ(failure_of(send), expected);  // the channel has ended at both ends
    EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
  }
  expect_passage(9);
}

TEST_P(ChannelEndFailures, AFlagChoosesNoStatusOfAKernelsEnd) {
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  for (const uint64_t info : {31u, 108u, 304u, 501u}) {
    SCOPED_TRACE(info);
    const tw_status expected = info == 501 ? TW_ERR_TRUNCATED : TW_ERR_PROTOCOL;
    Bound send, recv;
    bind_both(9, recv_buffers.given, &send, &recv);
    forge_flag(send, info);
    {
      const Running receiver(GetParam().place, [&](auto machine) {
        device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
        EXPECT_FALSE(in.take(device::Block(), 77));
      });
    }
    EXPECT_EQ(tw_channel_end_check(recv.handle), expected);
    EXPECT_EQ(failure_of(send), expected);
    both([&] { EXPECT_EQ(send.release(), TW_OK); }, [&] { EXPECT_EQ(recv.release(), TW_OK); });
  }
}

/// It would be taken for a run that was refused here, after which the channels go on.
TEST_P(ChannelEndFailures, APeersEndIsNeverBusy) {
  unsigned char* const to = memory(b, 8);
  Bound send;
  tw_plan* const receives = prepare_recv(to, &send);
  forge_failure(TW_ERR_BUSY, "a forged reason");
  EXPECT_EQ(tw_plan_run(receives, kLong), TW_ERR_PROTOCOL);
  expect_text({"a forged reason"});
  EXPECT_EQ(failure_of(send), TW_ERR_PROTOCOL);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
}

class ChannelEndPlaces : public ChannelEnds {};
INSTANTIATE_TEST_SUITE_P(Shm, ChannelEndPlaces, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelEndPlaces, MemoryThatTheCodeDoesNotReachIsRefusedAtBothEndsAndBetterMemoryIsNot) {
  if (std::strcmp(GetParam().place, "host") == 0) {
    const tw_channel_buffer on_device{b.memory("emulated:0", 64), 64, nullptr};
    Bound send, recv;
    both([&] { EXPECT_EQ(bind_send(1, &send), TW_ERR_UNSUPPORTED); },
         [&] { EXPECT_EQ(bind_recv(1, {on_device}, &recv), TW_ERR_UNSUPPORTED); });
  } else {
    Bytes pageable(64);
    Bound send, recv;
    both(
        [&] {
          EXPECT_EQ(bind_send(1, &send), TW_ERR_UNSUPPORTED);
          expect_text({"pageable"});
        },
        [&] {
          EXPECT_EQ(bind_recv(1, {{pageable.data(), pageable.size(), nullptr}}, &recv), TW_ERR_UNSUPPORTED);
          expect_text({"pageable"});
        });
  }
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Traffic traffic = make_traffic(random_sizes(4));
  Bound send, recv;
  bind_both(1, recv_buffers.given, &send, &recv);
  {
    const Running receiver = start_recv(recv, recv_buffers, traffic, 1);
    const Running sender = start_send(send, traffic);
  }
  expect_all(traffic);
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
}

/// A kernel of the peer's may be in the middle of a copy into a buffer of a channel that has failed.
TEST_P(ChannelEndFailures, APlanIsNotDestroyedWhileThePeerHasItsBuffer) {
  unsigned char* const to = memory(b, 8);
  Bound send;
  tw_plan* const receives = prepare_recv(to, &send, 30'000'000);
  EXPECT_EQ(tw_plan_run(receives, kLong), TW_ERR_TIMED_OUT);
  EXPECT_EQ(failure_of(send), TW_ERR_TIMED_OUT);
  impl::Proxy* const proxy = proxy_of_b();
  proxy->patience = std::chrono::milliseconds(20);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tw_plan_destroy(receives), TW_ERR_BUSY);
    expect_text({"has not given back", "channel 9"});
  }
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  proxy->patience = std::chrono::seconds(20);
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
}

;

TEST_P(ChannelEndFailures, APlanIsNotDestroyedWhileAStoppedPeerMayStoreToItsBuffer) {
  unsigned char* const to = memory(b, 8);
  Bound send;
  tw_plan* const receives = prepare_recv(to, &send);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  impl::Proxy* const proxy = proxy_of_b();
  proxy->patience = std::chrono::seconds(1);  // until the peer has given it back
  CopyingPeer peer(*b.context->registry);
  EXPECT_EQ(tw_plan_destroy(receives), TW_ERR_BUSY);
  peer.stopped = false;
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
}

/// All peers of the context need the proxy, so nothing waits for one of them under its lock; the plan waits without it.
TEST_P(ChannelEndFailures, APeerInTheMiddleOfACopyHoldsUpNoOther) {
  unsigned char* const to = memory(b, 8);
  Bound send;
  tw_plan* const receives = prepare_recv(to, &send);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  impl::Proxy* const proxy = proxy_of_b();
  CopyingPeer peer(*b.context->registry);
  std::thread ends([&] { EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error(); });
  while (!peer.asked) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) const std::lock_guard lock(proxy->mutex());
  peer.stopped = false;
  ends.join();
  EXPECT_FALSE(peer.waited) << "under the proxy's lock";
}

TEST_P(ChannelEndFailures, AnUpdateSaysThatAStoppedPeerMayStoreToTheBufferBefore) {
  unsigned char *const before = memory(b, 8), *const after = memory(b, 8);
  Bound send;
  tw_plan* const receives = prepare_recv(before, &send);
  impl::Proxy* const proxy = proxy_of_b();
  proxy->patience = std::chrono::seconds(1);  // until the peer has given it back
  CopyingPeer peer(*b.context->registry);
  EXPECT_EQ(tw_plan_update(receives, 0, after, nullptr), TW_IN_PROGRESS) << tw_last_error();
  EXPECT_EQ(tw_plan_update(receives, 0, nullptr, nullptr), TW_IN_PROGRESS) << tw_last_error();
  peer.stopped = false;
  EXPECT_EQ(tw_plan_update(receives, 0, nullptr, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
}

}  // namespace
}  // namespace thalweg::tests
