// SPDX-License-Identifier: Apache-2.0
// A worker that arms has nothing to tell: what ended in a call of the user's wakes nobody.
#include <poll.h>

#include <atomic>
#include <thread>

#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr ucp_tag_t kAll = ~ucp_tag_t{0};

/// Both sides have spoken, and nothing is left to do.
void settle(World& w) {
  const ucp_request_param_t none = nothing();
  char byte = 0;
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &byte, 1, 9, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &byte, 1, 9, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
}

/// A message that waits for its receiver, and a worker that may sleep.
ucs_status_ptr_t wait_for_a_receiver(World& w, const std::vector<unsigned char>& out) {
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  EXPECT_TRUE(UCS_PTR_IS_PTR(send));
  EXPECT_TRUE(w.until([&] { return ucp_worker_arm(w.a.worker) == UCS_OK; }));
  EXPECT_EQ(ucp_request_check_status(send), UCS_INPROGRESS);
  return send;
}

/// By progress of this side alone, as one that sleeps and is woken does it.
ucs_status_t end_alone(Side& side, ucs_status_ptr_t request) {
  for (int i = 0; i < 1000 && ucp_request_check_status(request) == UCS_INPROGRESS; ++i) {
    if (ucp_worker_arm(side.worker) == UCS_OK) break;  // asleep
    ucp_worker_progress(side.worker);
  }
  return ucp_request_check_status(request);
}

TEST(Sleep, AForcedCloseTellsOfItsSendsBeforeTheWorkerSleeps) {
  World w;
  w.connect();
  settle(w);
  const auto out = random_bytes(5000000);
  ucs_status_ptr_t send = wait_for_a_receiver(w, out);
  (void)ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE);
  EXPECT_EQ(end_alone(w.a, send), UCS_ERR_CANCELED);
  ucp_request_free(send);
}

TEST(Sleep, ACanceledReceiveIsToldBeforeTheWorkerSleeps) {
  World w;
  w.connect();
  settle(w);
  const ucp_request_param_t none = nothing();
  char byte = 0;
  ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.a.worker, &byte, 1, 1, kAll, &none);
  ucp_request_cancel(w.a.worker, recv);
  EXPECT_EQ(ucp_request_check_status(recv), UCS_INPROGRESS) << "told in the call";
  EXPECT_EQ(end_alone(w.a, recv), UCS_ERR_CANCELED);
  ucp_request_free(recv);
}

TEST(Sleep, ACanceledSendIsToldBeforeTheWorkerSleeps) {
  World w;
  w.a.connect(w.b);  // not connected yet: the send can be canceled
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(5000000);
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  ucp_request_cancel(w.a.worker, send);
  EXPECT_EQ(end_alone(w.a, send), UCS_ERR_CANCELED);
  ucp_request_free(send);
}

/// The peer decides how long a close waits: meanwhile this side sleeps.
TEST(Sleep, WhileACloseWaitsForAReceiverTheWorkerSleeps) {
  World w;
  w.connect();
  settle(w);
  const auto out = random_bytes(5000000);
  std::vector<unsigned char> in(out.size());
  ucs_status_ptr_t send = wait_for_a_receiver(w, out);
  ucs_status_ptr_t close = ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FLUSH);
  ASSERT_TRUE(UCS_PTR_IS_PTR(close));
  EXPECT_TRUE(w.until([&] { return ucp_worker_arm(w.a.worker) == UCS_OK; }));
  EXPECT_EQ(ucp_request_check_status(close), UCS_INPROGRESS);
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, in.data(), in.size(), 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(close), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
}

/// Arming alone may learn that a send has ended: it ends once, though its user has freed it and the worker goes.
TEST(Sleep, WhatArmingLearnsEndsOnceWhenTheWorkerGoes) {
  Side b;
  std::vector<unsigned char> in(5000000);
  ucs_status_ptr_t recv = nullptr;
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(in.size());
  {
    World w;
    w.connect();
    settle(w);
    w.a.connect(b);
    ucs_status_ptr_t warm = ucp_tag_send_nbx(w.a.ep, out.data(), 1, 2, &none);
    char byte = 0;
    recv = ucp_tag_recv_nbx(b.worker, &byte, 1, 2, kAll, &none);
    while (ucp_request_check_status(recv) == UCS_INPROGRESS) {
      ucp_worker_progress(b.worker);
      ucp_worker_progress(w.a.worker);
    }
    ucp_request_free(recv);
    if (UCS_PTR_IS_PTR(warm)) ucp_request_free(warm);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(send));
    ucp_request_free(send);
    recv = ucp_tag_recv_nbx(b.worker, in.data(), in.size(), 1, kAll, &none);
    for (int i = 0; i < 20'000; ++i) {
      ucp_worker_progress(b.worker);
      (void)ucp_worker_arm(w.a.worker);
    }
  }
  ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
  EXPECT_EQ(ucp_request_check_status(recv), UCS_OK);
  ucp_request_free(recv);
  EXPECT_EQ(in, out);
}

/// One thread sleeps until its receive has ended, another one uses the worker meanwhile.
struct Sleeper {
  World w{UCS_THREAD_MODE_MULTI};
  uint64_t word = 0;
  ucs_status_ptr_t recv = nullptr;
  std::atomic<bool> sleeps{false};
  std::thread thread;

  Sleeper() {
    w.connect();
    settle(w);
    const ucp_request_param_t none = nothing();
    recv = ucp_tag_recv_nbx(w.a.worker, &word, sizeof word, 1, kAll, &none);
    thread = std::thread([this] { sleep(); });
    while (!sleeps) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void sleep() {
    pollfd one{-1, POLLIN, 0};
    EXPECT_EQ(ucp_worker_get_efd(w.a.worker, &one.fd), UCS_OK);
    while (ucp_request_check_status(recv) == UCS_INPROGRESS) {
      while (ucp_worker_progress(w.a.worker) != 0) {
      }
      if (ucp_request_check_status(recv) != UCS_INPROGRESS || ucp_worker_arm(w.a.worker) != UCS_OK) continue;
      sleeps = true;
      EXPECT_EQ(poll(&one, 1, 10'000), 1) << "nothing woke it";
    }
  }
};

TEST(Sleep, ACancelByAnotherThreadWakesTheSleeper) {
  Sleeper s;
  ucp_request_cancel(s.w.a.worker, s.recv);
  s.thread.join();
  EXPECT_EQ(ucp_request_check_status(s.recv), UCS_ERR_CANCELED);
  ucp_request_free(s.recv);
}

TEST(Sleep, ProgressByAnotherThreadDoesNotKeepMessagesFromTheSleeper) {
  Sleeper s;
  for (int i = 0; i < 1000; ++i) ucp_worker_progress(s.w.a.worker);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const uint64_t out = 7;
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_tag_send_nbx(s.w.b.ep, &out, sizeof out, 1, &none);
  if (UCS_PTR_IS_PTR(send)) {
    while (ucp_request_check_status(send) == UCS_INPROGRESS) ucp_worker_progress(s.w.b.worker);
    ucp_request_free(send);
  }
  s.thread.join();
  EXPECT_EQ(ucp_request_check_status(s.recv), UCS_OK);
  ucp_request_free(s.recv);
  EXPECT_EQ(s.word, out);
}

}  // namespace
