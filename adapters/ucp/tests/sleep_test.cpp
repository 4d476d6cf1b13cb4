// SPDX-License-Identifier: Apache-2.0
// A worker that arms has nothing to tell: what ended in a call of the user's wakes nobody.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
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
  World w;
  uint64_t word = 0;
  ucs_status_ptr_t recv = nullptr;
  std::atomic<bool> sleeps{false};
  std::thread thread;

  /// before: what the peer is to do until then.
  explicit Sleeper(ucs_thread_mode_t mode = UCS_THREAD_MODE_MULTI, const std::function<void(World&)>& before = {}) : w(mode) {
    w.connect();
    settle(w);
    if (before) before(w);
    const ucp_request_param_t none = nothing();
    recv = ucp_tag_recv_nbx(w.a.worker, &word, sizeof word, 1, kAll, &none);
    thread = std::thread([this] { sleep(); });
    while (!sleeps) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ~Sleeper() {
    if (!thread.joinable()) return;
    ucp_request_cancel(w.a.worker, recv);
    EXPECT_EQ(ucp_worker_signal(w.a.worker), UCS_OK);
    thread.join();
    ucp_request_free(recv);
  }
  /// Progress of the peer alone; fails after 5 s.
  template <class Done>
  bool peer_until(const Done& done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!done() && std::chrono::steady_clock::now() < limit) ucp_worker_progress(w.b.worker);
    return done();
  }
  /// Where the thread modes leave that to the user: the sleeper's calls and this thread's do not overlap here, because it sleeps.
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

/// A message that waits for its receiver, in a's worker.
void leave_unexpected(World& w, const uint64_t& out) {
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.b.ep, &out, sizeof out, 5, &none)), UCS_OK);
  ucp_tag_recv_info_t info;
  EXPECT_TRUE(w.until([&] { return ucp_tag_probe_nb(w.a.worker, 5, kAll, 0, &info) != nullptr; }));
}

/// The one who posts does not progress: the one who sleeps has to.
void receive_what_waits(ucs_thread_mode_t mode) {
  const uint64_t out = 11;
  Sleeper s(mode, [&](World& w) { leave_unexpected(w, out); });
  const ucp_request_param_t none = nothing();
  uint64_t in = 0;
  ucs_status_ptr_t recv = ucp_tag_recv_nbx(s.w.a.worker, &in, sizeof in, 5, kAll, &none);
  EXPECT_TRUE(s.peer_until([&] { return !UCS_PTR_IS_PTR(recv) || ucp_request_is_completed(recv) != 0; }))
      << "nobody progresses";
  EXPECT_EQ(in, out);
  if (UCS_PTR_IS_PTR(recv)) ucp_request_free(recv);
}

TEST(Sleep, AReceiveOfWhatHasArrivedWakesTheSleeper) { receive_what_waits(UCS_THREAD_MODE_MULTI); }
TEST(Sleep, ItDoesSoWhereTheUserKeepsThreadsApart) { receive_what_waits(UCS_THREAD_MODE_SERIALIZED); }

TEST(Sleep, ManySmallSendsByAnotherThreadArrive) {
  Sleeper s;
  constexpr uint64_t kMessages = 10;
  uint64_t in[kMessages] = {};
  const ucp_request_param_t none = nothing();
  std::vector<ucs_status_ptr_t> receives, sends;
  for (uint64_t i = 0; i < kMessages; ++i)
    receives.push_back(ucp_tag_recv_nbx(s.w.b.worker, &in[i], sizeof in[i], 100 + i, kAll, &none));
  std::vector<uint64_t> out(kMessages);
  for (uint64_t i = 0; i < kMessages; ++i) {
    out[i] = i + 1;
    sends.push_back(ucp_tag_send_nbx(s.w.a.ep, &out[i], sizeof out[i], 100 + i, &none));
  }
  for (uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(s.peer_until([&] { return ucp_request_is_completed(receives[i]) != 0; })) << i << " of them have come";
    ucp_request_free(receives[i]);
    EXPECT_EQ(in[i], out[i]);
  }
  for (ucs_status_ptr_t send : sends) {
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
  }
}

TEST(Sleep, ALongPutByAnotherThreadEnds) {
  auto out = random_bytes(1 << 20), memory = random_bytes(1 << 20);
  Sleeper s;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h mapped = nullptr;
  ASSERT_EQ(ucp_mem_map(s.w.b.context, &params, &mapped), UCS_OK);
  void* packed = nullptr;
  size_t size = 0;
  ASSERT_EQ(ucp_rkey_pack(s.w.b.context, mapped, &packed, &size), UCS_OK);
  ucp_rkey_h key = nullptr;
  ASSERT_EQ(ucp_ep_rkey_unpack(s.w.a.ep, packed, &key), UCS_OK);
  ucp_rkey_buffer_release(packed);
  const ucp_request_param_t none = nothing();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // asleep again
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  ucs_status_ptr_t put = ucp_put_nbx(s.w.a.ep, out.data(), out.size(), address, key, &none);
  EXPECT_FALSE(UCS_PTR_IS_ERR(put));
  EXPECT_TRUE(s.peer_until([&] { return !UCS_PTR_IS_PTR(put) || ucp_request_is_completed(put) != 0; })) << "nobody progresses";
  EXPECT_TRUE(s.peer_until([&] { return memory == out; }));
  if (UCS_PTR_IS_PTR(put)) ucp_request_free(put);
  ucp_request_cancel(s.w.a.worker, s.recv);  // before the key and the memory go
  s.thread.join();
  ucp_request_free(s.recv);
  ucp_rkey_destroy(key);
  EXPECT_EQ(ucp_mem_unmap(s.w.b.context, mapped), UCS_OK);
}

/// Two armed it: the progress of the one does not leave the other asleep on a worker that is not armed.
TEST(Sleep, OfTwoSleepersTheOtherIsWokenWhenOneProgresses) {
  Sleeper s;
  ASSERT_EQ(ucp_worker_arm(s.w.a.worker), UCS_OK);
  ucp_worker_progress(s.w.a.worker);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const uint64_t out = 7;
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_tag_send_nbx(s.w.b.ep, &out, sizeof out, 1, &none);
  EXPECT_TRUE(s.peer_until([&] { return ucp_request_is_completed(s.recv) != 0; })) << "asleep on a worker that is not armed";
  if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
}

/// A callback is told before any thread sees that its request has ended.
struct Told {
  std::atomic<bool> flag{false};
  static void slowly(void*, ucs_status_t, const ucp_tag_recv_info_t*, void* arg) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    static_cast<Told*>(arg)->flag = true;
  }
};

TEST(Callback, RunsBeforeAnotherThreadSeesTheEnd) {
  for (const bool own_memory : {false, true}) {
    World w(UCS_THREAD_MODE_MULTI);
    w.connect();
    settle(w);
    Told told;
    uint64_t in = 0;
    const uint64_t out = 3;
    ucp_context_attr_t attr{};
    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
    ASSERT_EQ(ucp_context_query(w.b.context, &attr), UCS_OK);
    std::vector<std::max_align_t> memory(attr.request_size / sizeof(std::max_align_t) + 2);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.recv = Told::slowly;
    param.user_data = &told;
    if (own_memory) {
      param.op_attr_mask |= UCP_OP_ATTR_FIELD_REQUEST;
      param.request = reinterpret_cast<char*>(memory.data()) + (attr.request_size + 15) / 16 * 16;
    }
    ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
    const ucp_request_param_t none = nothing();
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) ucp_worker_progress(w.b.worker);
    });
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (ucp_request_check_status(recv) == UCS_INPROGRESS && std::chrono::steady_clock::now() < limit)
      ucp_worker_progress(w.a.worker);
    EXPECT_TRUE(told.flag) << "its end was seen before its callback had run";
    EXPECT_EQ(ucp_request_check_status(recv), UCS_OK);
    stop = true;
    other.join();
    if (!own_memory) ucp_request_free(recv);
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
    EXPECT_EQ(in, out);
  }
}

TEST(Callback, MayFreeItsRequestWithSeveralThreads) {
  World w(UCS_THREAD_MODE_MULTI);
  w.connect();
  settle(w);
  int calls = 0;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &calls;
  param.cb.recv = [](void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* arg) {
    ++*static_cast<int*>(arg);
    ucp_request_free(request);
  };
  const ucp_request_param_t none = nothing();
  std::vector<void*> places;
  for (int i = 1; i <= 200; ++i) {
    uint64_t in = 0;
    const uint64_t out = static_cast<uint64_t>(i);
    places.push_back(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &param));
    ASSERT_TRUE(UCS_PTR_IS_PTR(places.back()));
    EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);
    EXPECT_TRUE(w.until([&] { return calls == i; }));
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(std::count(places.begin(), places.end(), places.front()), 200) << "a request that was freed did not go back";
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
