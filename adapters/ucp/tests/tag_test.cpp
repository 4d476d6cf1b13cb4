// SPDX-License-Identifier: Apache-2.0
// Tagged messages, requests and datatypes.
#include <poll.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr ucp_tag_t kAll = ~ucp_tag_t{0};
const size_t kLengths[] = {0, 1, 8, 100, 4095, 8192, 65537, 1000003, 9000001};

TEST(Tag, EveryLengthArrivesWhoeverIsFirst) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  for (const size_t n : kLengths) {
    for (const bool receive_first : {true, false}) {
      const auto out = random_bytes(n);
      std::vector<unsigned char> in(n + 16, 0xEE);
      ucs_status_ptr_t recv = nullptr, send = nullptr;
      if (receive_first) recv = ucp_tag_recv_nbx(w.b.worker, in.data(), n, 7, kAll, &none);
      send = ucp_tag_send_nbx(w.a.ep, out.data(), n, 7, &none);
      for (int i = 0; i < 20; ++i) w.progress();
      if (!receive_first) recv = ucp_tag_recv_nbx(w.b.worker, in.data(), n, 7, kAll, &none);
      EXPECT_EQ(w.end(send), UCS_OK);
      EXPECT_EQ(w.end(recv), UCS_OK);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin())) << n;
      for (size_t g = n; g < in.size(); ++g) EXPECT_EQ(in[g], 0xEE);
    }
  }
}

/// What a callback was told.
struct Told {
  unsigned times = 0;
  ucs_status_t status = UCS_INPROGRESS;
  ucp_tag_recv_info_t info{};
};

ucp_request_param_t telling(Told* told) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data) {
    auto& told = *static_cast<Told*>(user_data);
    told = {told.times + 1, status, *info};
    EXPECT_EQ(ucp_request_check_status(request), status);
    ucp_request_free(request);
  };
  param.user_data = told;
  return param;
}

/// One message, whose receive was posted before; or behind it, unexpected.
void tell_one(World& w, Side& from, Side& to, size_t length, size_t room, bool unexpected) {
  const auto out = random_bytes(length);
  std::vector<unsigned char> in(room + 16, 0xEE);
  Told told;
  const ucp_request_param_t none = nothing(), param = telling(&told);
  ucs_status_ptr_t send = nullptr;
  if (unexpected) send = ucp_tag_send_nbx(from.ep, out.data(), length, length + 1, &none);
  for (int i = 0; unexpected && i < 4; ++i) w.progress();
  const ucs_status_ptr_t recv = ucp_tag_recv_nbx(to.worker, in.data(), room, length + 1, kAll, &param);
  ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
  EXPECT_EQ(told.times, 0u) << "within the call";
  if (!unexpected) send = ucp_tag_send_nbx(from.ep, out.data(), length, length + 1, &none);
  EXPECT_EQ(w.end(send), UCS_OK);
  ASSERT_TRUE(w.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, room < length ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
  EXPECT_EQ(told.info.sender_tag, length + 1);
  if (room >= length) {
    EXPECT_EQ(told.info.length, length);
  }
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(std::min(room, length)), in.begin())) << length;
  for (size_t g = std::min(room, length); g < in.size(); ++g) ASSERT_EQ(in[g], 0xEE) << length;
  w.progress();
  EXPECT_EQ(told.times, 1u);
}

/// Short ones in turns, as a message and its answer go: the way of a lone receive with a callback, and what leaves it.
TEST(Tag, ShortAnswersOfEveryLengthAreTold) {
  World w;
  w.connect();
  for (const bool unexpected : {false, true}) {
    for (size_t length = 0; length <= 120; ++length) {
      for (const size_t room : {length, length + 9, length - (length != 0 ? 1 : 0)}) {
        tell_one(w, w.a, w.b, length, room, unexpected);
        tell_one(w, w.b, w.a, length, room, unexpected);
      }
    }
  }
}

TEST(Tag, ACanceledShortReceiveIsToldAndTheNextTakesItsMessage) {
  World w;
  w.connect();
  for (int round = 0; round < 40; ++round) {
    uint64_t in = 0;
    Told told;
    const ucp_request_param_t param = telling(&told);
    const ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 9, kAll, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
    ucp_request_cancel(w.b.worker, recv);
    ASSERT_TRUE(w.until([&] { return told.times != 0; }));
    EXPECT_EQ(told.status, UCS_ERR_CANCELED);
    tell_one(w, w.a, w.b, 8, 8, round % 2 != 0);
    tell_one(w, w.b, w.a, 8, 8, false);
    EXPECT_EQ(told.times, 1u);
    EXPECT_EQ(in, 0u);
  }
}

TEST(Tag, APeerThatMadeNoEndpointReceives) {
  World w;
  w.a.connect(w.b);
  uint64_t out = 42, in = 0;
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 42u);
}

TEST(Tag, MasksSelectAndTheInfoSaysWhat) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &tag, sizeof tag, (uint64_t{0xABCD} << 48) | tag, &none)), UCS_OK);
  }
  for (const uint64_t tag : {3u, 1u, 2u}) {
    uint64_t in[4] = {};
    ucp_tag_recv_info_t info{};
    ucp_request_param_t told{};
    told.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO;
    told.recv_info.tag_info = &info;  // for what is complete at once
    ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, in, sizeof in, tag, 0xFFFF, &told);
    if (UCS_PTR_IS_PTR(recv)) {
      EXPECT_TRUE(w.until([&] { return ucp_tag_recv_request_test(recv, &info) != UCS_INPROGRESS; }));
      ucp_request_free(recv);
    } else {
      EXPECT_EQ(recv, nullptr);
    }
    EXPECT_EQ(info.sender_tag, (uint64_t{0xABCD} << 48) | tag);
    EXPECT_EQ(info.length, 8u);
    EXPECT_EQ(in[0], tag);
  }
}

TEST(Tag, ManyReceivesEndWhateverTheirOrder) {
  World w;
  w.connect();
  constexpr size_t kMany = 50;
  std::vector<uint64_t> in(kMany, 0);
  std::vector<ucs_status_ptr_t> receives;
  const ucp_request_param_t none = nothing();
  for (size_t i = 0; i < kMany; ++i) receives.push_back(ucp_tag_recv_nbx(w.b.worker, &in[i], 8, i, kAll, &none));
  ucp_request_cancel(w.b.worker, receives[3]);
  for (size_t i = kMany; i-- > 0;) {
    const uint64_t out = i + 100;
    if (i == 3) continue;
    EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, 8, i, &none)), UCS_OK);
  }
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(w.end(receives[i]), i == 3 ? UCS_ERR_CANCELED : UCS_OK);
    EXPECT_EQ(in[i], i == 3 ? 0 : i + 100);
  }
}

TEST(Tag, TruncationIsAnErrorOfTheReceive) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  for (const size_t n : {size_t{100}, size_t{300000}}) {
    const auto out = random_bytes(n);
    std::vector<unsigned char> in(n, 0xEE);
    ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, in.data(), n / 2, 1, kAll, &none);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), n, 1, &none);
    EXPECT_EQ(w.end(recv), UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(w.end(send), UCS_OK);
    for (size_t i = n / 2; i < n; ++i) ASSERT_EQ(in[i], 0xEE);
  }
}

TEST(Tag, ASynchronousSendWaitsForItsReceive) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  char out = 5, in = 0;
  ucs_status_ptr_t send = ucp_tag_send_sync_nbx(w.a.ep, &out, 1, 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  for (int i = 0; i < 1000; ++i) w.progress();
  EXPECT_EQ(ucp_request_check_status(send), UCS_INPROGRESS);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, 1, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 5);
}

TEST(Tag, ProbesSeeAndTakeMessages) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  for (const size_t n : {size_t{10}, size_t{500000}}) {
    const auto out = random_bytes(n);
    std::vector<unsigned char> in(n);
    ucp_tag_recv_info_t info{};
    EXPECT_EQ(ucp_tag_probe_nb(w.b.worker, 9, kAll, 1, &info), nullptr);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), n, 9, &none);
    EXPECT_TRUE(w.until([&] { return ucp_tag_probe_nb(w.b.worker, 9, kAll, 0, &info) != nullptr; }));
    EXPECT_EQ(info.length, n);
    ucp_tag_message_h message = ucp_tag_probe_nb(w.b.worker, 9, kAll, 1, &info);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(ucp_tag_probe_nb(w.b.worker, 9, kAll, 0, &info), nullptr);
    EXPECT_EQ(w.end(ucp_tag_msg_recv_nbx(w.b.worker, in.data(), n, message, &none)), UCS_OK);
    EXPECT_EQ(w.end(send), UCS_OK);
    EXPECT_EQ(in, out);
  }
}

TEST(Tag, AMessageWhoseReceiveIsRefusedStays) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  for (const size_t n : {size_t{10}, size_t{500000}}) {
    const auto out = random_bytes(n);
    std::vector<unsigned char> in(n);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), n, 9, &none);
    ucp_tag_recv_info_t info{};
    ucp_tag_message_h message = nullptr;
    ASSERT_TRUE(w.until([&] { return (message = ucp_tag_probe_nb(w.b.worker, 9, kAll, 1, &info)) != nullptr; }));
    ucp_request_param_t bad = nothing();
    bad.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    bad.datatype = 5;  // of no class that there is
    EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_msg_recv_nbx(w.b.worker, in.data(), n, message, &bad)));
    bad.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_msg_recv_nbx(w.b.worker, in.data(), n, message, &bad)));
    ucp_dt_iov_t over[2] = {{in.data(), n}, {in.data(), n}};  // bytes that would be written twice
    bad.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    bad.datatype = UCP_DATATYPE_IOV;
    EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_msg_recv_nbx(w.b.worker, over, 2, message, &bad)));
    EXPECT_EQ(w.end(ucp_tag_msg_recv_nbx(w.b.worker, in.data(), n, message, &none)), UCS_OK);
    EXPECT_EQ(w.end(send), UCS_OK);
    EXPECT_EQ(in, out);
  }
}

TEST(Tag, ACanceledReceiveEndsAndTakesNothing) {
  World w;
  w.connect();
  uint64_t in = 1, out = 2;
  struct Told {
    int calls = 0;
    ucs_status_t status = UCS_OK;
  } told;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &told;
  param.cb.recv = [](void*, ucs_status_t status, const ucp_tag_recv_info_t*, void* arg) {
    ++static_cast<Told*>(arg)->calls;
    static_cast<Told*>(arg)->status = status;
  };
  ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &param);
  ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
  ucp_request_cancel(w.b.worker, recv);
  EXPECT_TRUE(w.until([&] { return told.calls != 0; }));
  EXPECT_EQ(told.status, UCS_ERR_CANCELED);
  ucp_request_free(recv);
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(in, 2u);
  EXPECT_EQ(told.calls, 1);
}

// ------------------------------------------------------------------------------------------------ requests

TEST(Request, LivesInTheCallersMemoryBeforeThePointer) {
  World w;
  w.connect();
  ucp_context_attr_t attr{};
  attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
  ASSERT_EQ(ucp_context_query(w.a.context, &attr), UCS_OK);
  std::vector<unsigned char> memory(attr.request_size + 64, 0xAB);
  void* const request = memory.data() + attr.request_size;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST;
  param.request = request;
  uint64_t in = 0, out = 77;
  EXPECT_EQ(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &param), request);
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return ucp_request_check_status(request) == UCS_OK; }));
  EXPECT_EQ(in, 77u);
  for (size_t i = attr.request_size; i < memory.size(); ++i) EXPECT_EQ(memory[i], 0xAB);
  // a message that is here already: the caller may ask its request, whatever was returned
  out = 80;
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 2, &none)), UCS_OK);
  for (int i = 0; i < 50; ++i) w.progress();
  std::fill(memory.begin(), memory.begin() + static_cast<long>(attr.request_size), 0xAB);
  (void)ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 2, kAll, &param);
  ucp_tag_recv_info_t info{};
  EXPECT_TRUE(w.until([&] { return ucp_tag_recv_request_test(request, &info) == UCS_OK; }));
  EXPECT_TRUE(in == 80 && info.sender_tag == 2 && info.length == 8);
  // the older form
  EXPECT_EQ(ucp_tag_recv_nbr(w.b.worker, &in, sizeof in, ucp_dt_make_contig(1), 1, kAll, request), UCS_OK);
  out = 78;
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return ucp_request_check_status(request) == UCS_OK; }));
  EXPECT_EQ(in, 78u);
}

int inits, cleanups;

TEST(Request, UsersPartIsInitialisedOnceForEachPlace) {
  inits = cleanups = 0;
  {
    World w(UCS_THREAD_MODE_SINGLE, [](ucp_params_t& params) {
      params.field_mask |= UCP_PARAM_FIELD_REQUEST_SIZE | UCP_PARAM_FIELD_REQUEST_INIT | UCP_PARAM_FIELD_REQUEST_CLEANUP;
      params.request_size = 24;
      params.request_init = [](void* request) {
        ++inits;
        std::memset(request, 0x5A, 24);
      };
      params.request_cleanup = [](void*) { ++cleanups; };
    });
    w.connect();
    uint64_t in = 0;
    for (int i = 0; i < 500; ++i) {
      ucs_status_ptr_t recv = ucp_tag_recv_nb(w.b.worker, &in, sizeof in, ucp_dt_make_contig(1), 1, kAll,
                                              [](void*, ucs_status_t, ucp_tag_recv_info_t*) {});
      ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
      for (int at = 0; at < 24; ++at) ASSERT_EQ(static_cast<unsigned char*>(recv)[at], 0x5A);
      ucp_request_cancel(w.b.worker, recv);
      ucp_request_release(recv);
      w.progress();
    }
    EXPECT_GT(inits, 0);
    EXPECT_LE(inits, 200);
  }
  EXPECT_EQ(inits, cleanups);
}

TEST(Request, ACallbackRunsInProgressAndNotInTheCall) {
  World w;
  w.connect();
  int calls = 0;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = &calls;
  param.cb.send = [](void*, ucs_status_t status, void* arg) { *static_cast<int*>(arg) += status == UCS_OK; };
  EXPECT_TRUE(w.until([&] { return ucp_worker_progress(w.a.worker) == 0; }));
  for (int i = 0; i < 50; ++i) w.progress();  // connected: small sends are complete at once
  uint64_t out = 3, in;
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &param);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send)) << "NO_IMM_CMPL wants a request";
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(w.until([&] { return calls == 1; }));
  EXPECT_EQ(ucp_request_check_status(send), UCS_OK);
  ucp_request_free(send);
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
}

TEST(Request, WhatIsFreedBeforeItsEndTellsNobody) {
  World w;
  w.connect();
  int calls = 0;
  uint64_t in = 0, out = 9;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &calls;
  param.cb.recv = [](void*, ucs_status_t, const ucp_tag_recv_info_t*, void* arg) { ++*static_cast<int*>(arg); };
  ucp_request_free(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &param));
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return in == 9; }));
  for (int i = 0; i < 10; ++i) w.progress();
  EXPECT_EQ(calls, 0);
}

TEST(Request, FieldsThatAreNotSupportedAreRefused) {
  World w;
  w.connect();
  char byte = 0;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_tag_send_nbx(w.a.ep, &byte, 1, 1, &param)), UCS_ERR_UNSUPPORTED);
  param.op_attr_mask = 1u << 30;
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_tag_recv_nbx(w.a.worker, &byte, 1, 1, kAll, &param)), UCS_ERR_UNSUPPORTED);
}

// ------------------------------------------------------------------------------------------------ datatypes

TEST(Datatype, IovOnBothSides) {
  World w;
  w.connect();
  for (const size_t n : {size_t{90}, size_t{900000}}) {
    const auto out = random_bytes(n);
    std::vector<unsigned char> in(n * 2, 0xEE);
    // the source in three pieces out of order, the destination in two with gaps
    ucp_dt_iov_t from[4] = {{const_cast<unsigned char*>(out.data()) + n / 3, n / 3},
                            {nullptr, 0},
                            {const_cast<unsigned char*>(out.data()), n / 3},
                            {const_cast<unsigned char*>(out.data()) + 2 * (n / 3), n - 2 * (n / 3)}};
    ucp_dt_iov_t to[2] = {{in.data() + n, n / 2}, {in.data() + 5, n - n / 2}};
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, to, 2, 1, kAll, &param);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, from, 4, 1, &param);
    EXPECT_EQ(w.end(send), UCS_OK);
    EXPECT_EQ(w.end(recv), UCS_OK);
    std::vector<unsigned char> sent, got;
    for (const auto& piece : from) {
      const auto* const at = static_cast<unsigned char*>(piece.buffer);
      sent.insert(sent.end(), at, at + piece.length);
    }
    for (const auto& piece : to) {
      const auto* const at = static_cast<unsigned char*>(piece.buffer);
      got.insert(got.end(), at, at + piece.length);
    }
    EXPECT_EQ(sent, got);
  }
}

/// Elements of 24 bytes in steps of 40, packed and unpacked in whole ones only, as MPICH does.
struct Strided {
  static constexpr size_t kElement = 24, kStep = 40;
  static inline int alive = 0;
  unsigned char* base;
  size_t count;
  static void* start(void*, const void* buffer, size_t count) {
    ++alive;
    return new Strided{static_cast<unsigned char*>(const_cast<void*>(buffer)), count};
  }
  static ucp_generic_dt_ops_t ops() {
    ucp_generic_dt_ops_t ops;
    ops.start_pack = start;
    ops.start_unpack = [](void* context, void* buffer, size_t count) { return start(context, buffer, count); };
    ops.packed_size = [](void* state) { return static_cast<Strided*>(state)->count * kElement; };
    ops.pack = [](void* state, size_t offset, void* dest, size_t max_length) {
      const size_t whole = std::min(max_length / kElement, static_cast<Strided*>(state)->count - offset / kElement);
      for (size_t i = 0; i < whole; ++i) {
        std::memcpy(static_cast<unsigned char*>(dest) + i * kElement,
                    static_cast<Strided*>(state)->base + (offset / kElement + i) * kStep, kElement);
      }
      return whole * kElement;
    };
    ops.unpack = [](void* state, size_t offset, const void* source, size_t length) {
      for (size_t i = 0; i < length / kElement; ++i) {
        std::memcpy(static_cast<Strided*>(state)->base + (offset / kElement + i) * kStep,
                    static_cast<const unsigned char*>(source) + i * kElement, kElement);
      }
      return length % kElement == 0 ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED;
    };
    ops.finish = [](void* state) {
      --alive;
      delete static_cast<Strided*>(state);
    };
    return ops;
  }
};

TEST(Datatype, GenericOnesPackAndUnpackWholeElementsOnly) {
  World w;
  w.connect();
  const ucp_generic_dt_ops_t ops = Strided::ops();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
  ASSERT_EQ(ucp_dt_create_generic(&ops, nullptr, &param.datatype), UCS_OK);
  const ucp_request_param_t none = nothing();
  for (const size_t count : {1u, 7u, 1000u, 70000u}) {
    const auto out = random_bytes(count * Strided::kStep);
    std::vector<unsigned char> in(out.size(), 0), packed(count * Strided::kElement);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), count, 1, &param);
    EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, in.data(), count, 1, kAll, &param)), UCS_OK);
    EXPECT_EQ(w.end(send), UCS_OK);
    // contiguous there, and contiguous here: pieces are cut anywhere
    send = ucp_tag_send_nbx(w.a.ep, out.data(), count, 2, &param);
    EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, packed.data(), packed.size(), 2, kAll, &none)), UCS_OK);
    EXPECT_EQ(w.end(send), UCS_OK);
    std::vector<unsigned char> back(out.size(), 0);
    send = ucp_tag_send_nbx(w.b.ep, packed.data(), packed.size(), 3, &none);
    EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.a.worker, back.data(), count, 3, kAll, &param)), UCS_OK);
    EXPECT_EQ(w.end(send), UCS_OK);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::memcmp(out.data() + i * Strided::kStep, in.data() + i * Strided::kStep, Strided::kElement), 0);
      ASSERT_EQ(std::memcmp(out.data() + i * Strided::kStep, packed.data() + i * Strided::kElement, Strided::kElement), 0);
      ASSERT_EQ(std::memcmp(out.data() + i * Strided::kStep, back.data() + i * Strided::kStep, Strided::kElement), 0);
    }
  }
  ucp_dt_destroy(param.datatype);
  EXPECT_EQ(Strided::alive, 0);
}

TEST(Datatype, AnUnpackThatFailsFailsTheReceive) {
  World w;
  w.connect();
  ucp_generic_dt_ops_t ops = Strided::ops();
  ops.unpack = [](void*, size_t, const void*, size_t) { return UCS_ERR_OUT_OF_RANGE; };
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
  ASSERT_EQ(ucp_dt_create_generic(&ops, nullptr, &param.datatype), UCS_OK);
  const ucp_request_param_t none = nothing();
  for (const size_t count : {1u, 2u, 100u, 20000u}) {
    const auto out = random_bytes(count * Strided::kElement);
    std::vector<unsigned char> in(count * Strided::kStep);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
    EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, in.data(), count, 1, kAll, &param)), UCS_ERR_OUT_OF_RANGE) << count;
    EXPECT_EQ(w.end(send), UCS_OK) << count;
  }
  ucp_dt_destroy(param.datatype);
  EXPECT_EQ(Strided::alive, 0);
}

TEST(Datatype, AMessageThatEndsWithinAnElementFailsTheReceive) {
  World w;
  w.connect();
  const ucp_generic_dt_ops_t ops = Strided::ops();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
  ASSERT_EQ(ucp_dt_create_generic(&ops, nullptr, &param.datatype), UCS_OK);
  const ucp_request_param_t none = nothing();
  for (const size_t length : {size_t{10}, size_t{100}, size_t{24 * 20000 - 1}}) {
    const auto out = random_bytes(length);
    std::vector<unsigned char> in(20000 * Strided::kStep);
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
    EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, in.data(), 20000, 1, kAll, &param)), UCS_ERR_MESSAGE_TRUNCATED) << length;
    EXPECT_EQ(w.end(send), UCS_OK);
  }
  ucp_dt_destroy(param.datatype);
  EXPECT_EQ(Strided::alive, 0);
}

// ------------------------------------------------------------------------------------------------ threads, sleep

TEST(Worker, ManyThreadsPostToOne) {
  World w(UCS_THREAD_MODE_MULTI);
  w.connect();
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const ucp_request_param_t none = nothing();
      for (uint64_t i = 0; i < kEach; ++i) {
        ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &i, sizeof i, static_cast<ucp_tag_t>(t), &none);
        uint64_t in = 0;
        ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, static_cast<ucp_tag_t>(t), kAll, &none);
        ASSERT_EQ(w.end(recv), UCS_OK);
        ASSERT_EQ(w.end(send), UCS_OK);
        ASSERT_EQ(in, i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Worker, SleepsUntilAMessageOrASignal) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  uint64_t in = 0, out = 4;
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);  // connected
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  std::thread waker([&] { EXPECT_EQ(ucp_worker_signal(w.b.worker), UCS_OK); });
  EXPECT_EQ(ucp_worker_wait(w.b.worker), UCS_OK);
  waker.join();
  while (ucp_worker_progress(w.b.worker) != 0) {
  }
  ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none);
  pollfd one{-1, POLLIN, 0};
  EXPECT_EQ(ucp_worker_get_efd(w.b.worker, &one.fd), UCS_OK);
  EXPECT_TRUE(w.until([&] { return ucp_worker_arm(w.b.worker) == UCS_OK; }));
  EXPECT_EQ(poll(&one, 1, 50), 0) << "there is nothing to wake for";
  std::thread sender([&] {
    out = 5;
    ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none);
    while (UCS_PTR_IS_PTR(send) && ucp_request_check_status(send) == UCS_INPROGRESS) ucp_worker_progress(w.a.worker);
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
  });
  while (ucp_request_check_status(recv) == UCS_INPROGRESS) {
    ASSERT_EQ(ucp_worker_wait(w.b.worker), UCS_OK);
    while (ucp_worker_progress(w.b.worker) != 0) {
    }
  }
  sender.join();
  ucp_request_free(recv);
  EXPECT_EQ(in, 5u);
}

}  // namespace
