// SPDX-License-Identifier: Apache-2.0
// Handlers and callbacks run in progress, never in a call that waits: ucp_rkey_ptr, for the owner's answer.

#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr size_t kLengths[] = {0, 8, 3000, 300000};
constexpr uint32_t kWays[] = {0, UCP_AM_SEND_FLAG_REPLY, UCP_AM_SEND_FLAG_RNDV, UCP_AM_SEND_FLAG_EAGER};
constexpr ucp_tag_t kAll = ~ucp_tag_t{0};
constexpr unsigned kOlder = 7;  // id of an older handler

/// What arrives at a, whose calls are in_call.
struct Arrivals {
  Side& a;
  bool in_call = false;
  int in_calls = 0;
  std::vector<unsigned> order{};  // numbers of messages that came with their data
  int handled = 0, fetched = 0, older = 0, streams = 0, requests = 0;
  std::vector<std::vector<unsigned char>> payloads{};
  ucp_conn_request_h request = nullptr;

  void note() { in_calls += in_call ? 1 : 0; }
  static ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                             const ucp_am_recv_param_t* param) {
    auto& self = *static_cast<Arrivals*>(arg);
    self.note();
    ++self.handled;
    unsigned number = 0;
    EXPECT_EQ(header_length, sizeof number);
    std::memcpy(&number, header, sizeof number);
    const bool replies = kWays[number % 4] == UCP_AM_SEND_FLAG_REPLY;
    EXPECT_EQ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0, replies);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      self.order.push_back(number);
      for (size_t i = 0; i < length; ++i) EXPECT_EQ(static_cast<unsigned char*>(data)[i], static_cast<unsigned char>(number));
      return UCS_OK;
    }
    auto& into = self.payloads.emplace_back(length);
    ucp_request_param_t receive{};
    receive.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    receive.user_data = arg;
    receive.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* arg) {
      auto& self = *static_cast<Arrivals*>(arg);
      self.note();
      EXPECT_EQ(status, UCS_OK);
      ++self.fetched;
      ucp_request_free(request);
    };
    EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(self.a.worker, data, into.data(), into.size(), &receive)));
    return number % 2 == 0 ? UCS_OK : UCS_INPROGRESS;
  }
  static ucs_status_t handle_older(void* arg, void*, size_t, ucp_ep_h, unsigned) {
    auto& self = *static_cast<Arrivals*>(arg);
    self.note();
    ++self.older;
    return UCS_OK;
  }
  static void ask(ucp_conn_request_h request, void* arg) {
    auto& self = *static_cast<Arrivals*>(arg);
    self.note();
    ++self.requests;
    self.request = request;
  }
};

void set_handlers(Arrivals& arrivals) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.cb = Arrivals::handle;
  param.arg = &arrivals;
  for (const unsigned id : {1u, 5000u}) {
    param.id = id;
    ASSERT_EQ(ucp_worker_set_am_recv_handler(arrivals.a.worker, &param), UCS_OK);
  }
  ASSERT_EQ(ucp_worker_set_am_handler(arrivals.a.worker, kOlder, Arrivals::handle_older, &arrivals, 0), UCS_OK);
}

/// Of every way and length, numbered; and bytes of a stream. They go when both are connected.
std::vector<ucs_status_ptr_t> send_all(Side& b, const std::vector<std::vector<unsigned char>>& payloads) {
  std::vector<ucs_status_ptr_t> sends;
  for (unsigned number = 0; number < payloads.size(); ++number) {
    const ucp_request_param_t param = flags(kWays[number % 4]);
    const unsigned id = number % 3 == 0 ? 5000 : 1;
    const auto& out = payloads[number];
    sends.push_back(ucp_am_send_nbx(b.ep, id, &number, sizeof number, out.data(), out.size(), &param));
  }
  const auto& big = payloads.back();
  sends.push_back(ucp_am_send_nb(b.ep, kOlder, big.data(), big.size(), ucp_dt_make_contig(1), [](void*, ucs_status_t) {}, 0));
  const ucp_request_param_t none = nothing();
  sends.push_back(ucp_stream_send_nbx(b.ep, big.data(), big.size(), &none));
  return sends;
}

ucs_status_ptr_t receive_stream(Arrivals& arrivals, std::vector<unsigned char>& into) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_STREAM_RECV_FLAG_WAITALL;
  param.user_data = &arrivals;
  param.cb.recv_stream = [](void*, ucs_status_t, size_t, void* arg) {
    auto& self = *static_cast<Arrivals*>(arg);
    self.note();
    ++self.streams;
  };
  return ucp_stream_recv_nbx(arrivals.a.ep, into.data(), into.size(), nullptr, &param);
}

/// Maps a new region of b's, again and again, while b progresses.
void map_many(Side& a, Side& b, Arrivals& arrivals, int times) {
  for (int i = 0; i < times; ++i) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = 4096;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(ucp_mem_map(b.context, &params, &memory), UCS_OK);
    ucp_mem_attr_t attr{};
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    ASSERT_EQ(ucp_mem_query(memory, &attr), UCS_OK);
    void* packed = nullptr;
    size_t size = 0;
    ASSERT_EQ(ucp_rkey_pack(b.context, memory, &packed, &size), UCS_OK);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(a.ep, packed, &key), UCS_OK);
    void* there = nullptr;
    arrivals.in_call = true;
    const ucs_status_t status = ucp_rkey_ptr(key, reinterpret_cast<uint64_t>(attr.address), &there);
    arrivals.in_call = false;
    const char* const tls = std::getenv("UCX_TLS");
    EXPECT_EQ(status, tls != nullptr && std::string(tls) == "tcp" ? UCS_ERR_UNREACHABLE : UCS_OK);
    ucp_rkey_destroy(key);
    ucp_rkey_buffer_release(packed);
    EXPECT_EQ(ucp_mem_unmap(b.context, memory), UCS_OK);
  }
}

void one_round(bool progresses) {
  World w;
  Arrivals arrivals{w.a};
  set_handlers(arrivals);
  sockaddr_storage address{};
  ucp_listener_h listener = listen(arrivals.a, Arrivals::ask, &arrivals, &address);
  w.connect();
  std::vector<std::vector<unsigned char>> payloads;
  for (unsigned number = 0; number < 16; ++number)
    payloads.emplace_back(kLengths[number / 4], static_cast<unsigned char>(number));
  std::vector<unsigned char> in(payloads.back().size());
  ucs_status_ptr_t recv = receive_stream(arrivals, in);
  std::atomic<bool> stop{false};
  std::vector<ucs_status_ptr_t> sends;
  std::thread other([&] {
    (void)call_listener(w.b, address);
    sends = send_all(w.b, payloads);
    while (!stop) ucp_worker_progress(w.b.worker);
  });
  map_many(w.a, w.b, arrivals, 20);
  const auto all = [&] {
    ucp_worker_progress(w.a.worker);
    return arrivals.handled == 16 && arrivals.older == 1 && arrivals.streams == 1 && arrivals.requests == 1;
  };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (progresses && !all() && std::chrono::steady_clock::now() < limit) {
  }
  while (progresses && arrivals.handled - static_cast<int>(arrivals.order.size()) != arrivals.fetched &&
         std::chrono::steady_clock::now() < limit) {
    ucp_worker_progress(w.a.worker);
  }
  stop = true;
  other.join();
  EXPECT_EQ(arrivals.in_calls, 0);
  if (progresses) {
    EXPECT_EQ(arrivals.handled, 16);
    EXPECT_EQ(arrivals.older + arrivals.streams + arrivals.requests, 3);
    EXPECT_EQ(arrivals.handled - static_cast<int>(arrivals.order.size()), arrivals.fetched);
    EXPECT_EQ(in, payloads.back());
  }
  for (ucs_status_ptr_t send : sends) EXPECT_FALSE(UCS_PTR_IS_ERR(send));
  if (UCS_PTR_IS_PTR(recv)) ucp_request_free(recv);
  if (arrivals.request != nullptr) (void)ucp_listener_reject(listener, arrivals.request);
  ucp_listener_destroy(listener);
}

TEST(Call, WaitingForAKeysAddressCallsNoHandler) {
  for (int round = 0; round < 20; ++round) one_round(true);
}

TEST(Call, WhatArrivedInACallEndsWithItsWorker) {
  for (int round = 0; round < 20; ++round) one_round(false);
}

/// Sends values in the user's memory of a request, each from the callback of the one before, which has seen it complete at once.
struct Chain {
  ucp_ep_h ep;
  void* memory;
  std::vector<uint64_t> values;
  size_t posts = 0, calls = 0;

  void post() {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.request = memory;
    param.user_data = this;
    param.cb.send = [](void*, ucs_status_t status, void* arg) {
      auto& self = *static_cast<Chain*>(arg);
      EXPECT_EQ(status, UCS_OK);
      if (++self.calls < self.values.size()) self.post();
    };
    uint64_t& value = values[posts++];
    EXPECT_EQ(ucp_tag_send_nbx(ep, &value, sizeof value, posts, &param), memory);
  }
};

/// With several threads a request is complete behind its callback, and under way where that has posted it anew.
void post_anew(ucs_thread_mode_t mode) {
  World w(mode);
  w.connect();
  ucp_context_attr_t attr{};
  attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
  ASSERT_EQ(ucp_context_query(w.a.context, &attr), UCS_OK);
  std::vector<unsigned char> memory(attr.request_size + 64, 0xAB);
  std::random_device random;
  Chain chain{w.a.ep, memory.data() + attr.request_size, {}};
  for (int i = 0; i < 20; ++i) chain.values.push_back(random());
  const ucp_request_param_t none = nothing();
  uint64_t first = random(), there = 0;
  ASSERT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &first, sizeof first, 99, &none)), UCS_OK);  // it is connected
  ASSERT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &there, sizeof there, 99, kAll, &none)), UCS_OK);
  EXPECT_EQ(there, first);
  chain.post();
  EXPECT_TRUE(w.until([&] {
    const bool complete = ucp_request_check_status(chain.memory) != UCS_INPROGRESS;
    EXPECT_EQ(complete, chain.calls == chain.values.size());
    return complete;
  }));
  for (int i = 0; i < 50; ++i) w.progress();
  EXPECT_EQ(chain.calls, chain.values.size());
  EXPECT_EQ(chain.posts, chain.values.size());
  EXPECT_EQ(ucp_request_check_status(chain.memory), UCS_OK);
  for (size_t i = 0; i < chain.values.size(); ++i) {
    uint64_t in = 0;
    EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, i + 1, kAll, &none)), UCS_OK);
    EXPECT_EQ(in, chain.values[i]);
  }
}

TEST(Call, ARequestThatItsCallbackPostsAnewIsUnderWay) {
  post_anew(UCS_THREAD_MODE_SINGLE);
  post_anew(UCS_THREAD_MODE_MULTI);
}

}  // namespace
