// SPDX-License-Identifier: Apache-2.0
// Active messages and streams.
#include <sys/mman.h>

#include <algorithm>
#include <deque>

#include "world.hpp"

using namespace ucp_test;

// A test asks for more than there is.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

struct Arrived {
  std::string header;
  std::vector<unsigned char> data;
  ucp_ep_h reply = nullptr;
  bool announced = false;
};

struct Receiver {
  explicit Receiver(World* in) : world(in) {}
  World* world;
  std::deque<Arrived> messages;
  std::vector<unsigned char> into;  // where announced data goes
  void* kept = nullptr;             // data that stays
  bool keep = false;
  int fetched = 0;

  static ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                             const ucp_am_recv_param_t* param) {
    auto& self = *static_cast<Receiver*>(arg);
    Arrived one;
    if (header_length != 0) one.header.assign(static_cast<const char*>(header), header_length);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) one.reply = param->reply_ep;
    one.announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (one.announced) {
      self.into.assign(length, 0);
      self.kept = self.keep ? data : nullptr;
      if (!self.keep) self.fetch(data);
      self.messages.push_back(std::move(one));
      return UCS_INPROGRESS;
    }
    const auto* const bytes = static_cast<const unsigned char*>(data);
    one.data.assign(bytes, bytes + length);
    self.messages.push_back(std::move(one));
    if (!self.keep) return UCS_OK;
    EXPECT_NE(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA, 0u);
    self.kept = data;
    return UCS_INPROGRESS;
  }
  void fetch(void* data) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = this;
    param.cb.recv_am = [](void* request, ucs_status_t status, size_t length, void* arg) {
      auto& self = *static_cast<Receiver*>(arg);
      EXPECT_EQ(status, UCS_OK);
      EXPECT_EQ(length, self.into.size());
      ++self.fetched;
      ucp_request_free(request);
    };
    EXPECT_TRUE(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(world->b.worker, data, into.data(), into.size(), &param)));
  }
  void set(unsigned id, uint32_t flags = 0) { EXPECT_EQ(set_am_handler(world->b.worker, id, handle, this, flags), UCS_OK); }
};

TEST(Am, HeadersAndDataOfEveryLength) {
  World w;
  w.connect();
  Receiver r(&w);
  const unsigned ids[] = {0, 5, 2039, 2040, 65535};
  for (const unsigned id : ids) r.set(id);
  int i = 0;
  for (const size_t header_length : {size_t{0}, size_t{1}, size_t{200}, size_t{300}, size_t{8192}, size_t{60000}}) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{3000}, size_t{60000}, size_t{3000001}}) {
      const unsigned id = ids[i++ % 5];
      const auto header = random_bytes(header_length), data = random_bytes(n);
      const ucp_request_param_t param = flags(0);
      r.fetched = 0;
      ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, id, header.data(), header_length, data.data(), n, &param);
      ASSERT_TRUE(w.until([&] { return !r.messages.empty(); })) << id;
      const Arrived one = r.messages.front();
      r.messages.pop_front();
      if (one.announced) {
        EXPECT_TRUE(w.until([&] { return r.fetched == 1; }));
      }
      EXPECT_EQ(w.end(send), UCS_OK);
      EXPECT_EQ(one.header, std::string(header.begin(), header.end()));
      EXPECT_EQ(one.announced ? r.into : one.data, data) << n;
      EXPECT_EQ(one.reply, nullptr);
    }
  }
}

TEST(Am, DataMayBeKeptAndReleasedOrFetchedLater) {
  World w;
  w.connect();
  Receiver r(&w);
  r.keep = true;
  r.set(1, UCP_AM_FLAG_PERSISTENT_DATA);
  for (const uint32_t how : {uint32_t{UCP_AM_SEND_FLAG_EAGER}, uint32_t{UCP_AM_SEND_FLAG_RNDV}}) {
    for (const bool fetch : {true, false}) {
      const auto data = random_bytes(5000);
      const ucp_request_param_t param = flags(how);
      ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, 1, "h", 1, data.data(), data.size(), &param);
      ASSERT_TRUE(w.until([&] { return !r.messages.empty(); }));
      EXPECT_EQ(r.messages.front().announced, how == UCP_AM_SEND_FLAG_RNDV);
      r.messages.pop_front();
      if (how == UCP_AM_SEND_FLAG_EAGER) {
        EXPECT_EQ(std::memcmp(r.kept, data.data(), data.size()), 0);
      }
      r.fetched = 0;
      if (fetch) {
        r.into.assign(data.size(), 0);
        r.fetch(r.kept);
        EXPECT_TRUE(w.until([&] { return r.fetched == 1; }));
        EXPECT_EQ(r.into, data);
      } else {
        ucp_am_data_release(w.b.worker, r.kept);
      }
      EXPECT_EQ(w.end(send), UCS_OK);
    }
  }
}

TEST(Am, AReplyReachesASenderThatTheReceiverNeverConnectedTo) {
  World w;
  w.a.connect(w.b);  // one side only
  Receiver r(&w);
  r.set(3);
  int replies = 0;
  ucp_am_handler_param_t back{};
  back.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  back.id = 4;
  back.arg = &replies;
  back.cb = [](void* arg, const void*, size_t, void* data, size_t length, const ucp_am_recv_param_t*) {
    EXPECT_EQ(length, 8u);
    *static_cast<int*>(arg) += *static_cast<uint64_t*>(data) == 11;
    return UCS_OK;
  };
  ASSERT_EQ(ucp_worker_set_am_recv_handler(w.a.worker, &back), UCS_OK);
  const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_REPLY), none = flags(0);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 3, nullptr, 0, nullptr, 0, &param)), UCS_OK);
    ASSERT_TRUE(w.until([&] { return !r.messages.empty(); }));
    ucp_ep_h reply = r.messages.front().reply;
    r.messages.pop_front();
    ASSERT_NE(reply, nullptr);
    const uint64_t answer = 11;
    EXPECT_EQ(w.end(ucp_am_send_nbx(reply, 4, nullptr, 0, &answer, sizeof answer, &none)), UCS_OK);
    EXPECT_TRUE(w.until([&] { return replies == i; }));
  }
  // an endpoint to it that is made later is the same
  w.b.connect(w.a);
  EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 3, nullptr, 0, nullptr, 0, &param)), UCS_OK);
  ASSERT_TRUE(w.until([&] { return !r.messages.empty(); }));
  EXPECT_EQ(r.messages.front().reply, w.b.ep);
}

TEST(Am, OlderHandlersGetWholeMessagesThatMayBeKept) {
  World w;
  w.connect();
  struct Old {
    std::vector<unsigned char> got;
    void* kept = nullptr;
    int calls = 0;
  } old;
  ASSERT_EQ(ucp_worker_set_am_handler(
                w.b.worker, 9,
                [](void* arg, void* data, size_t length, ucp_ep_h, unsigned flags) {
                  auto& self = *static_cast<Old*>(arg);
                  EXPECT_NE(flags & UCP_CB_PARAM_FLAG_DATA, 0u);
                  self.got.assign(static_cast<unsigned char*>(data), static_cast<unsigned char*>(data) + length);
                  self.kept = data;
                  ++self.calls;
                  return UCS_INPROGRESS;
                },
                &old, UCP_AM_FLAG_WHOLE_MSG),
            UCS_OK);
  int calls = 0;
  for (const size_t n : {size_t{10}, size_t{70000}, size_t{2000000}}) {
    const auto data = random_bytes(n);
    ucs_status_ptr_t send = ucp_am_send_nb(w.a.ep, 9, data.data(), n, ucp_dt_make_contig(1), [](void*, ucs_status_t) {}, 0);
    ASSERT_TRUE(w.until([&] { return old.calls == calls + 1; }));
    calls = old.calls;
    EXPECT_EQ(w.end(send), UCS_OK);
    EXPECT_EQ(old.got, data);
    EXPECT_EQ(std::memcmp(old.kept, data.data(), n), 0);
    ucp_am_data_release(w.b.worker, old.kept);
  }
}

// ------------------------------------------------------------------------------------------------ streams

TEST(Stream, BytesArriveInOrderHoweverCut) {
  World w;
  w.connect();
  const size_t kTotal = 3000000;
  const auto out = random_bytes(kTotal);
  std::vector<unsigned char> in(kTotal, 0);
  const ucp_request_param_t none = nothing();
  std::vector<ucs_status_ptr_t> sends;
  size_t sent = 0, got = 0, step = 1;
  while (got < kTotal) {
    if (sent < kTotal) {
      step = step * 3 % 250007 + 1;
      const size_t n = std::min(step, kTotal - sent);
      sends.push_back(ucp_stream_send_nbx(w.a.ep, out.data() + sent, n, &none));
      sent += n;
    }
    size_t length = 0;
    const size_t room = std::min<size_t>(got % 77777 + 1, kTotal - got);
    ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.b.ep, in.data() + got, room, &length, &none);
    if (UCS_PTR_IS_PTR(recv)) {
      ASSERT_TRUE(w.until([&] { return ucp_stream_recv_request_test(recv, &length) != UCS_INPROGRESS; }));
      ucp_request_free(recv);
    } else {
      ASSERT_EQ(recv, nullptr);
    }
    ASSERT_GT(length, 0u);
    ASSERT_LE(length, room);
    got += length;
  }
  for (ucs_status_ptr_t send : sends) EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, out);
}

TEST(Stream, WaitsForAllWhereAskedAndCanBeCanceled) {
  World w;
  w.connect();
  const ucp_request_param_t all = flags(UCP_STREAM_RECV_FLAG_WAITALL);
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(100000);
  std::vector<unsigned char> in(out.size());
  size_t length = 0;
  ucs_status_ptr_t canceled = ucp_stream_recv_nbx(w.b.ep, in.data(), 10, &length, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(canceled));
  ucp_request_cancel(w.b.worker, canceled);
  EXPECT_EQ(w.end(canceled), UCS_ERR_CANCELED);
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.b.ep, in.data(), in.size(), &length, &all);
  for (size_t at = 0; at < out.size(); at += 1000)
    EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, out.data() + at, 1000, &none)), UCS_OK);
  EXPECT_EQ(w.end(recv), UCS_OK);
  EXPECT_EQ(in, out);
}

TEST(Stream, HandsOutDataWhereItLiesAndSaysWhoHasSome) {
  World w;
  w.connect();
  ucp_stream_poll_ep_t ready[4];
  EXPECT_EQ(ucp_stream_worker_poll(w.b.worker, ready, 4, 0), 0);
  const ucp_request_param_t none = nothing();
  for (const size_t n : {size_t{100}, size_t{700000}}) {
    const auto out = random_bytes(n);
    ucs_status_ptr_t send = ucp_stream_send_nbx(w.a.ep, out.data(), n, &none);
    EXPECT_TRUE(w.until([&] { return ucp_stream_worker_poll(w.b.worker, ready, 4, 0) == 1; }));
    EXPECT_EQ(ready[0].ep, w.b.ep);
    std::vector<unsigned char> in;
    EXPECT_TRUE(w.until([&] {
      size_t length = 0;
      void* const data = ucp_stream_recv_data_nb(w.b.ep, &length);
      if (data != nullptr) {
        in.insert(in.end(), static_cast<unsigned char*>(data), static_cast<unsigned char*>(data) + length);
        ucp_stream_data_release(w.b.ep, data);
      }
      return in.size() == n;
    }));
    EXPECT_EQ(w.end(send), UCS_OK);
    EXPECT_EQ(in, out);
  }
}

/// What the error handler of an endpoint was told.
struct Told {
  int calls = 0;
  ucs_status_t status = UCS_OK;
  void watch(ucp_ep_params_t& params) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_USER_DATA;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.user_data = this;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
      ++static_cast<Told*>(arg)->calls;
      static_cast<Told*>(arg)->status = status;
    };
  }
};

TEST(Stream, BytesThatNoMemoryHoldsEndTheConnection) {
  World w;
  w.a.connect(w.b);
  Told told;
  w.b.connect(w.a, [&](ucp_ep_params_t& params) { told.watch(params); });
  const ucp_request_param_t none = nothing();
  char out = 7, in[8] = {};
  ASSERT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, &out, 1, &none)), UCS_OK);
  size_t length = 0;
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.b.ep, in, 1, &length, &none);
  ASSERT_EQ(w.end(recv), UCS_OK);
  // Pages that read as zeros and cost nothing: more than a receiver can have.
  constexpr size_t kHuge = size_t{1} << 46;
  void* const huge = mmap(nullptr, kHuge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (huge == MAP_FAILED) GTEST_SKIP() << "no address space for it";
  ucs_status_ptr_t send = ucp_stream_send_nbx(w.a.ep, huge, kHuge, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  recv = ucp_stream_recv_nbx(w.b.ep, in, sizeof in, &length, &none);
  EXPECT_EQ(w.end(recv), UCS_ERR_NO_MEMORY);
  EXPECT_TRUE(w.until([&] { return told.calls == 1; }));
  EXPECT_EQ(told.status, UCS_ERR_NO_MEMORY);
  EXPECT_LT(w.end(send), 0);
  munmap(huge, kHuge);
  EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_stream_recv_nbx(w.b.ep, in, sizeof in, &length, &none)));
  EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_stream_send_nbx(w.b.ep, &out, 1, &none)));
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

TEST(Stream, AReceiveIsCanceledOnce) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  char in[8];
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.b.ep, in, sizeof in, nullptr, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
  ucp_request_cancel(w.b.worker, recv);
  ucp_request_cancel(w.b.worker, recv);  // ends in the next progress: nothing is left to cancel
  EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
}

TEST(Stream, ASendIsNotCanceled) {
  World w;
  w.connect();
  const ucp_request_param_t all = flags(UCP_STREAM_RECV_FLAG_WAITALL), none = nothing();
  const auto out = random_bytes(3001);
  std::vector<unsigned char> in(out.size());
  // The connection is not there yet, so nothing has gone.
  ucs_status_ptr_t first = ucp_stream_send_nbx(w.a.ep, out.data(), 1001, &none);
  ucs_status_ptr_t second = ucp_stream_send_nbx(w.a.ep, out.data() + 1001, 2000, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(first));
  ucp_request_cancel(w.a.worker, first);
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.b.ep, in.data(), in.size(), nullptr, &all);
  EXPECT_EQ(w.end(first), UCS_OK) << "bytes of a stream are missing";
  EXPECT_EQ(w.end(second), UCS_OK);
  EXPECT_EQ(w.end(recv), UCS_OK);
  EXPECT_EQ(in, out);
}

TEST(Stream, AClosedEndpointsReceivesEndAsCanceled) {
  for (const uint32_t mode : {uint32_t{UCP_EP_CLOSE_MODE_FORCE}, uint32_t{UCP_EP_CLOSE_MODE_FLUSH}}) {
    for (const bool others : {false, true}) {  // of the same connection
      World w;
      w.connect();
      ucp_ep_h const ep = w.a.ep;
      if (others) w.a.connect(w.b);
      const ucp_request_param_t none = nothing();
      char in[8], out = 0;
      ucs_status_ptr_t first = ucp_stream_recv_nbx(ep, in, sizeof in, nullptr, &none);
      ucs_status_ptr_t second = ucp_stream_recv_nbx(ep, in, sizeof in, nullptr, &none);
      ASSERT_TRUE(UCS_PTR_IS_PTR(first) && UCS_PTR_IS_PTR(second));
      EXPECT_EQ(w.end(ucp_ep_close_nb(ep, mode)), UCS_OK);
      EXPECT_EQ(w.end(first), UCS_ERR_CANCELED);
      EXPECT_EQ(w.end(second), UCS_ERR_CANCELED);
      if (!others) continue;
      first = ucp_stream_recv_nbx(w.a.ep, in, 1, nullptr, &none);
      EXPECT_EQ(w.end(ucp_stream_send_nbx(w.b.ep, &out, 1, &none)), UCS_OK);
      EXPECT_EQ(w.end(first), UCS_OK);
    }
  }
}

TEST(Stream, DestroyingAnEndpointDoesNotWaitForItsReceives) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  char in[8];
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.a.ep, in, sizeof in, nullptr, &none);
  ucp_ep_destroy(w.a.ep);
  EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
}

// ------------------------------------------------------------------------------------------------ ends of data

/// A handler for `id` that does what `act` says with its data.
struct Act {
  std::function<ucs_status_t(void* data, size_t length, const ucp_am_recv_param_t& param)> act;
  int calls = 0;
  void set(ucp_worker_h worker, unsigned id, uint32_t flags) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    param.id = id;
    param.arg = this;
    param.flags = flags;
    param.cb = [](void* arg, const void*, size_t, void* data, size_t length, const ucp_am_recv_param_t* param) {
      auto& self = *static_cast<Act*>(arg);
      ++self.calls;
      return self.act(data, length, *param);
    };
    EXPECT_EQ(ucp_worker_set_am_recv_handler(worker, &param), UCS_OK);
  }
};

const uint32_t kWays[] = {UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV};

TEST(Am, DataMayEndInItsHandlerWhateverThatReturns) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  for (const uint32_t how : kWays) {
    for (const ucs_status_t returned : {UCS_OK, UCS_INPROGRESS}) {
      for (const bool fetch : {true, false}) {
        const auto out = random_bytes(5000);
        std::vector<unsigned char> in(out.size());
        ucs_status_ptr_t recv = nullptr;
        Act handler;
        handler.act = [&](void* data, size_t length, const ucp_am_recv_param_t&) {
          if (fetch) {
            recv = ucp_am_recv_data_nbx(w.b.worker, data, in.data(), length, &none);
          } else {
            ucp_am_data_release(w.b.worker, data);
          }
          return returned;
        };
        handler.set(w.b.worker, 1, UCP_AM_FLAG_PERSISTENT_DATA);
        const ucp_request_param_t param = flags(how);
        ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, out.data(), out.size(), &param);
        EXPECT_TRUE(w.until([&] { return handler.calls == 1; }));
        EXPECT_EQ(w.end(recv), UCS_OK);
        EXPECT_EQ(w.end(send), UCS_OK);
        if (fetch) {
          EXPECT_EQ(in, out);
        }
      }
    }
  }
}

TEST(Am, ARefusedReceiveEndsTheDataAndItsSender) {
  World w;
  w.connect();
  for (const uint32_t how : kWays) {
    for (const int why : {0, 1, 2}) {
      const auto out = random_bytes(50000);
      std::vector<unsigned char> in(out.size());
      void* kept = nullptr;
      Act handler;
      handler.act = [&](void* data, size_t, const ucp_am_recv_param_t&) {
        kept = data;
        return UCS_INPROGRESS;
      };
      handler.set(w.b.worker, 1, UCP_AM_FLAG_PERSISTENT_DATA);
      const ucp_request_param_t param = flags(how);
      ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, out.data(), out.size(), &param);
      ASSERT_TRUE(w.until([&] { return kept != nullptr; }));
      ucp_dt_iov_t iov[2] = {{in.data(), in.size() / 2}, {in.data() + 100, in.size() / 2 - 1}};  // overlaps, and is too short
      ucp_request_param_t refused{};
      refused.op_attr_mask = why == 0   ? UCP_OP_ATTR_FIELD_DATATYPE
                             : why == 1 ? UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL
                                        : UCP_OP_ATTR_FIELD_FLAGS;
      refused.datatype = ucp_dt_make_iov();
      refused.flags = 1u << 29;
      EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_am_recv_data_nbx(w.b.worker, kept, iov, 2, &refused)));
      EXPECT_EQ(w.end(send), UCS_OK);
    }
  }
}

TEST(Am, DataThatIsHereGoesIntoEveryDatatype) {
  World w;
  w.connect();
  const auto out = random_bytes(3000);
  Act handler;
  void* kept = nullptr;
  handler.act = [&](void* data, size_t, const ucp_am_recv_param_t&) {
    kept = data;
    return UCS_INPROGRESS;
  };
  handler.set(w.b.worker, 1, UCP_AM_FLAG_PERSISTENT_DATA);
  const auto receive = [&](void* buffer, size_t count, ucp_datatype_t datatype) {
    kept = nullptr;
    const ucp_request_param_t eager = flags(UCP_AM_SEND_FLAG_EAGER);
    EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, out.data(), out.size(), &eager)), UCS_OK);
    EXPECT_TRUE(w.until([&] { return kept != nullptr; }));
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = datatype;
    return w.end(ucp_am_recv_data_nbx(w.b.worker, kept, buffer, count, &param));
  };
  std::vector<unsigned char> in(out.size()), front(1000), back(2500);
  ucp_dt_iov_t iov[3] = {{front.data(), front.size()}, {nullptr, 0}, {back.data(), back.size()}};
  EXPECT_EQ(receive(iov, 3, ucp_dt_make_iov()), UCS_OK);
  EXPECT_TRUE(std::equal(front.begin(), front.end(), out.begin()));
  EXPECT_TRUE(std::equal(out.begin() + 1000, out.end(), back.begin()));
  EXPECT_EQ(receive(iov, 2, ucp_dt_make_iov()), UCS_ERR_MESSAGE_TRUNCATED);
  EXPECT_EQ(receive(in.data(), 300, ucp_dt_make_contig(10)), UCS_OK);
  EXPECT_EQ(in, out);
  EXPECT_EQ(receive(in.data(), 299, ucp_dt_make_contig(10)), UCS_ERR_MESSAGE_TRUNCATED);
  ucp_generic_dt_ops_t ops{};
  ops.start_unpack = [](void*, void* buffer, size_t) { return buffer; };
  ops.packed_size = [](void*) { return size_t{3000}; };
  ops.unpack = [](void* state, size_t offset, const void* source, size_t length) {
    std::reverse_copy(static_cast<const unsigned char*>(source), static_cast<const unsigned char*>(source) + length,
                      static_cast<unsigned char*>(state) + offset);
    return UCS_OK;
  };
  ops.finish = [](void*) {};
  ops.start_pack = [](void*, const void* buffer, size_t) { return const_cast<void*>(buffer); };
  ops.pack = [](void*, size_t, void*, size_t) { return size_t{0}; };
  ucp_datatype_t generic;
  ASSERT_EQ(ucp_dt_create_generic(&ops, nullptr, &generic), UCS_OK);
  EXPECT_EQ(receive(in.data(), 1, generic), UCS_OK);
  EXPECT_TRUE(std::equal(in.begin(), in.end(), out.rbegin()));
  ucp_dt_destroy(generic);
}

TEST(Stream, APollNamesAnEndpointThatIsNotClosed) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  char out = 1;
  ucp_ep_h const first = w.b.ep;
  w.b.connect(w.a);
  EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, &out, 1, &none)), UCS_OK);
  ucp_stream_poll_ep_t ready[2];
  EXPECT_TRUE(w.until([&] { return ucp_stream_worker_poll(w.b.worker, ready, 2, 0) == 1; }));
  // The close of the first waits for a message that nobody receives yet.
  const auto big = random_bytes(3000000);
  std::vector<unsigned char> in(big.size());
  ucs_status_ptr_t send = ucp_tag_send_sync_nbx(first, big.data(), big.size(), 1, &none);
  ucs_status_ptr_t close = ucp_ep_close_nb(first, UCP_EP_CLOSE_MODE_FLUSH);
  ASSERT_TRUE(UCS_PTR_IS_PTR(close));
  ASSERT_EQ(ucp_stream_worker_poll(w.b.worker, ready, 2, 0), 1);
  EXPECT_EQ(ready[0].ep, w.b.ep);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.a.worker, in.data(), in.size(), 1, ~ucp_tag_t{0}, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(w.end(close), UCS_OK);
}

TEST(Am, UnknownFlagsAreRefused) {
  World w;
  w.connect();
  const ucp_request_param_t unknown = flags(1u << 29);
  const unsigned bit = 1u << 29;
  char byte = 0;
  size_t length = 0;
  const auto ignore = [](void*, ucs_status_t) {};
  const ucs_status_ptr_t refused = UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, &byte, 1, &unknown), refused);
  EXPECT_EQ(ucp_am_send_nb(w.a.ep, 1, &byte, 1, ucp_dt_make_contig(1), ignore, bit), refused);
  EXPECT_EQ(ucp_worker_set_am_handler(w.a.worker, 1, nullptr, nullptr, bit), UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(ucp_stream_send_nbx(w.a.ep, &byte, 1, &unknown), refused);
  EXPECT_EQ(ucp_stream_send_nb(w.a.ep, &byte, 1, ucp_dt_make_contig(1), ignore, bit), refused);
  EXPECT_EQ(ucp_stream_recv_nbx(w.a.ep, &byte, 1, &length, &unknown), refused);
  EXPECT_EQ(
      ucp_stream_recv_nb(w.a.ep, &byte, 1, ucp_dt_make_contig(1), [](void*, ucs_status_t, size_t) {}, &length, bit), refused);
  ucp_stream_poll_ep_t ready[1];
  EXPECT_EQ(ucp_stream_worker_poll(w.a.worker, ready, 1, bit), UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(ucp_tag_send_nbx(w.a.ep, &byte, 1, 1, &unknown), refused);
  EXPECT_EQ(ucp_tag_send_sync_nbx(w.a.ep, &byte, 1, 1, &unknown), refused);
  EXPECT_EQ(ucp_tag_recv_nbx(w.a.worker, &byte, 1, 1, 1, &unknown), refused);
  EXPECT_EQ(ucp_tag_msg_recv_nbx(w.a.worker, &byte, 1, nullptr, &unknown), refused);
}

TEST(Am, AnOlderHandlersReplyEndpointMayCloseWhileItsPayloadComes) {
  struct Old {
    int calls = 0;
    ucp_ep_h reply = nullptr;
    static void ignore(void*, ucs_status_t) {}
    static ucs_status_t handle(void* arg, void*, size_t, ucp_ep_h reply, unsigned) {
      auto& self = *static_cast<Old*>(arg);
      ++self.calls;
      self.reply = reply;
      if (reply == nullptr) return UCS_OK;
      const ucs_status_ptr_t answer = ucp_am_send_nb(reply, 9, &self.calls, 1, ucp_dt_make_contig(1), ignore, 0);
      EXPECT_FALSE(UCS_PTR_IS_ERR(answer));
      if (UCS_PTR_IS_PTR(answer)) ucp_request_free(answer);
      return UCS_OK;
    }
  };
  const auto out = random_bytes(30000000);
  for (const uint32_t mode : {uint32_t{UCP_EP_CLOSE_MODE_FLUSH}, uint32_t{UCP_EP_CLOSE_MODE_FORCE}}) {
    for (int steps = 1; steps < 500; steps *= 2) {  // of the payload's way
      World w;
      w.a.connect(w.b);
      Old old;
      Old answers;
      ASSERT_EQ(ucp_worker_set_am_handler(w.a.worker, 9, Old::handle, &answers, 0), UCS_OK);
      ASSERT_EQ(ucp_worker_set_am_handler(w.b.worker, 9, Old::handle, &old, 0), UCS_OK);
      const auto send = [&](size_t length) {
        return ucp_am_send_nb(w.a.ep, 9, out.data(), length, ucp_dt_make_contig(1), Old::ignore, UCP_AM_SEND_FLAG_REPLY);
      };
      EXPECT_EQ(w.end(send(1)), UCS_OK);
      ASSERT_TRUE(w.until([&] { return old.calls == 1; }));
      ASSERT_NE(old.reply, nullptr);
      ucs_status_ptr_t big = send(out.size());
      for (int i = 0; i < steps && old.calls == 1; ++i) w.progress();
      if (old.calls == 1) {
        EXPECT_EQ(w.end(ucp_ep_close_nb(old.reply, mode)), UCS_OK);
      }
      const ucs_status_t ended = w.end(big);
      if (mode == UCP_EP_CLOSE_MODE_FLUSH) {
        EXPECT_EQ(ended, UCS_OK);
        EXPECT_TRUE(w.until([&] { return old.calls == 2; }));
      }
    }
  }
}

/// Closes the endpoint in the callback of the first receive.
struct Closer {
  ucp_ep_h ep = nullptr;
  int calls = 0;
  ucs_status_ptr_t post(char* into) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = this;
    param.cb.recv_stream = [](void*, ucs_status_t, size_t, void* arg) {
      auto& self = *static_cast<Closer*>(arg);
      if (self.calls++ == 0) (void)ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FORCE);
    };
    return ucp_stream_recv_nbx(ep, into, 1, nullptr, &param);
  }
};

TEST(Stream, ACallbackMayCloseTheEndpointWithReceivesPosted) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  Closer closer{w.b.ep};
  char in[2];
  // Large enough to come by a load, whose callback ends the receive.
  const auto out = random_bytes(300000);
  ucs_status_ptr_t first = closer.post(in), second = closer.post(in + 1);
  ASSERT_TRUE(UCS_PTR_IS_PTR(first) && UCS_PTR_IS_PTR(second));
  ucs_status_ptr_t send = ucp_stream_send_nbx(w.a.ep, out.data(), out.size(), &none);
  EXPECT_EQ(w.end(first), UCS_OK);
  // Canceled, unless its byte was here before the callback of the first ran.
  const ucs_status_t other = w.end(second);
  EXPECT_TRUE(other == UCS_ERR_CANCELED || (other == UCS_OK && std::memcmp(in + 1, out.data() + 1, 1) == 0)) << other;
  EXPECT_EQ(closer.calls, 2);
  (void)w.end(send);
}

TEST(Stream, ACallbackMayCloseTheEndpointThatIsLost) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  char byte = 0, in[2];
  size_t length = 0;
  EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, &byte, 1, &none)), UCS_OK);
  EXPECT_EQ(w.end(ucp_stream_recv_nbx(w.b.ep, in, 1, &length, &none)), UCS_OK);
  Closer closer{w.b.ep};
  ucs_status_ptr_t first = closer.post(in), second = closer.post(in + 1);
  ASSERT_TRUE(UCS_PTR_IS_PTR(first) && UCS_PTR_IS_PTR(second));
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  EXPECT_LT(w.end(first), 0);
  EXPECT_EQ(w.end(second), UCS_ERR_CANCELED);
}

TEST(Am, MessagesForNoHandlerLeaveOtherRefusalsTheirPlace) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  testing::internal::CaptureStderr();
  for (unsigned id = 5000; id < 5400; ++id)
    EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, id, nullptr, 0, nullptr, 0, &none)), UCS_OK);
  for (int i = 0; i < 20000; ++i) w.progress();
  const ucp_ep_params_t params{};
  EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_ep_modify_nb(w.a.ep, &params)));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("for id 5000"), std::string::npos);
  EXPECT_NE(told.find("ucp_ep_modify_nb"), std::string::npos) << "what a peer sends silences nothing else";
}

TEST(Stream, IsThereWhateverFeaturesWereAskedFor) {
  World w(UCS_THREAD_MODE_SINGLE, [](ucp_params_t& params) { params.features = UCP_FEATURE_TAG; });
  w.connect();
  const ucp_request_param_t none = nothing();
  char out = 7, in = 0;
  size_t length = 0;
  ucs_status_ptr_t receive = ucp_stream_recv_nbx(w.b.ep, &in, 1, &length, &none);
  EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, &out, 1, &none)), UCS_OK);
  EXPECT_EQ(w.end(receive), UCS_OK);
  EXPECT_EQ(in, 7);
}

}  // namespace
