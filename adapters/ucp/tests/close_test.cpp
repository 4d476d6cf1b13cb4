// SPDX-License-Identifier: Apache-2.0
// What ends with an endpoint and its connection, and what does not.
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr ucp_tag_t kAll = ~ucp_tag_t{0};

/// b listens, a has called.
struct Called {
  World w;
  ucp_listener_h listener = nullptr;
  ucp_conn_request_h request = nullptr;
  ucp_ep_h client = nullptr;
  int losses = 0;

  Called() {
    sockaddr_storage address{};
    listener = listen(w.b, [](ucp_conn_request_h one, void* arg) { static_cast<Called*>(arg)->request = one; }, this, &address);
    client = call_listener(w.a, address);
    EXPECT_TRUE(w.until([&] { return request != nullptr; }));
  }
  ~Called() { ucp_listener_destroy(listener); }

  ucs_status_t accept(Side& side, ucp_ep_h* ep) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.conn_request = request;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.arg = this;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t) { ++static_cast<Called*>(arg)->losses; };
    return ucp_ep_create(side.worker, &params, ep);
  }
};

struct Messages {
  int count = 0;
  ucp_ep_h reply = nullptr;  // of the last one
};
/// Counts messages of id 1, which may come with a reply endpoint.
void count_messages(Side& side, Messages& messages) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = 1;
  handler.arg = &messages;
  handler.cb = [](void* arg, const void*, size_t, void*, size_t, const ucp_am_recv_param_t* param) {
    auto& into = *static_cast<Messages*>(arg);
    ++into.count;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) into.reply = param->reply_ep;
    return UCS_OK;
  };
  ASSERT_EQ(ucp_worker_set_am_recv_handler(side.worker, &handler), UCS_OK);
}

/// A close waits for a send, and meanwhile a message makes a reply endpoint, whose stream is read or not: the connection ends all the same.
void close_while_a_message_comes(bool force, bool reads) {
  Called called;
  World& w = called.w;
  ucp_ep_h server = nullptr;
  ASSERT_EQ(called.accept(w.b, &server), UCS_OK);
  Messages messages;
  count_messages(w.a, messages);
  const ucp_request_param_t none = nothing(), reply = flags(UCP_AM_SEND_FLAG_REPLY);
  const auto out = random_bytes(3000000);
  std::vector<unsigned char> in(out.size());
  ucs_status_ptr_t send = ucp_tag_send_nbx(called.client, out.data(), out.size(), 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  ucs_status_ptr_t close = ucp_ep_close_nb(called.client, UCP_EP_CLOSE_MODE_FLUSH);
  ASSERT_TRUE(UCS_PTR_IS_PTR(close));
  EXPECT_EQ(w.end(ucp_am_send_nbx(server, 1, nullptr, 0, nullptr, 0, &reply)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return messages.count == 1 && messages.reply != nullptr; }));
  uint64_t word = 0;
  ucs_status_ptr_t recv = reads ? ucp_stream_recv_nbx(messages.reply, &word, sizeof word, nullptr, &none) : nullptr;
  EXPECT_EQ(UCS_PTR_IS_PTR(recv), reads);
  if (force) {
    EXPECT_EQ(w.end(ucp_ep_close_nb(server, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
    EXPECT_LT(w.end(send), 0);
    EXPECT_EQ(w.end(close), UCS_OK);
    if (reads) EXPECT_LT(w.end(recv), 0);
    return;
  }
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, in.data(), in.size(), 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(w.end(close), UCS_OK);
  if (reads) {
    EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
  }
  EXPECT_TRUE(w.until([&] { return called.losses == 1; })) << "the connection has not ended";
  EXPECT_EQ(w.end(ucp_ep_close_nb(server, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

TEST(Close, AReplyEndpointDoesNotKeepTheConnectionOfASocketAddress) {
  for (const bool reads : {false, true}) {
    close_while_a_message_comes(false, reads);
    close_while_a_message_comes(true, reads);
  }
}

TEST(Close, AConnectionRequestIsAcceptedByItsListenersWorkerOnly) {
  Called called;
  Side other;
  ucp_ep_h ep = nullptr;
  EXPECT_EQ(called.accept(other, &ep), UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(called.accept(called.w.b, &ep), UCS_OK);
  const ucp_request_param_t none = nothing();
  char out = 1, in = 0;
  ucs_status_ptr_t send = ucp_tag_send_nbx(called.client, &out, 1, 1, &none);
  EXPECT_EQ(called.w.end(ucp_tag_recv_nbx(called.w.b.worker, &in, 1, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(called.w.end(send), UCS_OK);
  EXPECT_EQ(in, 1);
}

TEST(Close, AFlushOfWhatIsClosedByForceIsCanceled) {
  World w;
  constexpr size_t kLength = 32 << 20;
  std::vector<unsigned char> memory(kLength, 3), in(kLength);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = kLength;
  ucp_mem_h mapped = nullptr;
  ASSERT_EQ(ucp_mem_map(w.b.context, &params, &mapped), UCS_OK);
  void* packed = nullptr;
  size_t size = 0;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, mapped, &packed, &size), UCS_OK);
  for (const bool put : {true, false}) {
    w.a.connect(w.b);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
    const ucp_request_param_t none = nothing();
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    // b does not progress, so it is not connected yet, and neither ends.
    ucs_status_ptr_t moved = put ? ucp_put_nbx(w.a.ep, in.data(), kLength, address, key, &none)
                                 : ucp_get_nbx(w.a.ep, in.data(), kLength, address, key, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(moved));
    ucs_status_ptr_t flush = ucp_ep_flush_nbx(w.a.ep, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    ucp_worker_progress(w.a.worker);  // begins it
    ASSERT_EQ(ucp_request_check_status(flush), UCS_INPROGRESS);
    EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
    EXPECT_EQ(w.end(moved), UCS_ERR_CANCELED);
    EXPECT_EQ(w.end(flush), UCS_ERR_CANCELED) << (put ? "of a put" : "of a get");
    void* there = nullptr;
    EXPECT_EQ(ucp_rkey_ptr(key, address, &there), UCS_ERR_UNREACHABLE);
    ucp_rkey_destroy(key);
  }
  ucp_rkey_buffer_release(packed);
  EXPECT_EQ(ucp_mem_unmap(w.b.context, mapped), UCS_OK);
}

TEST(Close, UnreadBytesOfAStreamEndWithTheirConnection) {
  World w;
  const auto out = random_bytes(4000);
  const ucp_request_param_t none = nothing();
  const auto round = [&] {
    w.connect();
    ucp_stream_poll_ep_t ready[1];
    std::vector<ucs_status_ptr_t> sends;
    for (int i = 0; i < 20; ++i) sends.push_back(ucp_stream_send_nbx(w.a.ep, out.data(), out.size(), &none));
    EXPECT_TRUE(w.until([&] { return ucp_stream_worker_poll(w.b.worker, ready, 1, 0) == 1; }));
    for (int i = 0; i < 1000; ++i) w.progress();
    (void)w.end(ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FORCE));
    (void)w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE));
    for (ucs_status_ptr_t send : sends) (void)w.end(send);
  };
  for (int i = 0; i < 5; ++i) round();
  const size_t before = mallinfo2().uordblks;
  constexpr size_t kRounds = 20;
  for (size_t i = 0; i < kRounds; ++i) round();
  const size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + kRounds * out.size()) << "grows with each connection";
}

TEST(Close, BytesThatNobodyReadsDoNotHoldTheirSendersClose) {
  for (const bool before : {true, false}) {
    World w;
    w.connect();
    const auto out = random_bytes(3000000);
    const ucp_request_param_t none = nothing();
    if (before) {
      EXPECT_EQ(w.end(ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
    }
    ucs_status_ptr_t send = ucp_stream_send_nbx(w.a.ep, out.data(), out.size(), &none);
    ucs_status_ptr_t close = ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FLUSH);
    if (!before) {
      ucp_stream_poll_ep_t ready[1];
      EXPECT_TRUE(w.until([&] { return ucp_stream_worker_poll(w.b.worker, ready, 1, 0) == 1; }));
      EXPECT_EQ(w.end(ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
    }
    EXPECT_EQ(w.end(send), UCS_OK);
    EXPECT_EQ(w.end(close), UCS_OK);
    // Another endpoint reads what comes from then on.
    w.connect();
    unsigned char in = 0;
    size_t length = 0;
    EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, out.data(), 1, &none)), UCS_OK);
    EXPECT_EQ(w.end(ucp_stream_recv_nbx(w.b.ep, &in, 1, &length, &none)), UCS_OK);
    EXPECT_EQ(in, out[0]);
  }
}

/// b has closed its endpoint, and then has one for replies to a.
void reply_behind_a_close(World& w, Messages& messages) {
  count_messages(w.b, messages);
  const ucp_request_param_t none = nothing(), reply = flags(UCP_AM_SEND_FLAG_REPLY);
  EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, nullptr, 0, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return messages.count == 1; }));
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
  EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, nullptr, 0, &reply)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return messages.reply != nullptr; }));
}

/// A receive says that a reply endpoint is read from, whatever the user has closed before.
TEST(Close, AReplyEndpointsStreamIsReadAfterAllOthersWereClosed) {
  World w;
  w.connect();
  Messages messages;
  reply_behind_a_close(w, messages);
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(8);
  std::vector<unsigned char> in(8);
  const ucp_request_param_t all = flags(UCP_STREAM_RECV_FLAG_WAITALL);
  size_t length = 0;
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(messages.reply, in.data(), in.size(), &length, &all);
  EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, out.data(), out.size(), &none)), UCS_OK);
  EXPECT_EQ(w.end(recv), UCS_OK);
  EXPECT_EQ(in, out);
}

/// What comes between the message that brought the reply endpoint and the first look at its stream is kept.
TEST(Close, AReplyEndpointsStreamKeepsWhatCameBeforeItWasRead) {
  for (const bool by_data : {false, true}) {
    World w;
    w.connect();
    Messages messages;
    reply_behind_a_close(w, messages);
    const ucp_request_param_t none = nothing();
    const auto out = random_bytes(100);
    EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, out.data(), out.size(), &none)), UCS_OK);
    for (int i = 0; i < 10000; ++i) w.progress();
    std::vector<unsigned char> in(out.size());
    size_t length = 0;
    if (by_data) {
      void* data = nullptr;
      ASSERT_TRUE(w.until([&] {
        data = ucp_stream_recv_data_nb(messages.reply, &length);
        return data != nullptr;
      })) << "the bytes were dropped";
      ASSERT_TRUE(UCS_PTR_IS_PTR(data));
      ASSERT_EQ(length, out.size());
      std::memcpy(in.data(), data, length);
      ucp_stream_data_release(messages.reply, data);
    } else {
      const ucp_request_param_t all = flags(UCP_STREAM_RECV_FLAG_WAITALL);
      EXPECT_EQ(w.end(ucp_stream_recv_nbx(messages.reply, in.data(), in.size(), &length, &all)), UCS_OK);
    }
    EXPECT_EQ(in, out);
  }
}

/// A message whose payload is under way when the user closes its endpoint comes with another one, and the close does not wait for it.
TEST(Close, AMessageThatIsBeingFetchedComesThoughItsEndpointWasClosed) {
  World w;
  w.connect();
  Messages messages;
  count_messages(w.b, messages);
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, nullptr, 0, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return messages.count == 1; }));
  const auto out = random_bytes(1 << 20);
  const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY);
  ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, out.data(), out.size(), &param);
  ASSERT_FALSE(UCS_PTR_IS_ERR(send));  // a connection's socket may take all of it
  ucp_worker_progress(w.a.worker);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  auto limit = now() + std::chrono::milliseconds(200);
  while (messages.count == 1 && now() < limit) ucp_worker_progress(w.b.worker);  // begins the fetch
  const bool under_way = messages.count == 1;                                    // over shared memory it may need nobody
  ucs_status_ptr_t close = ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FLUSH);
  limit = now() + std::chrono::seconds(5);
  while (UCS_PTR_IS_PTR(close) && ucp_request_is_completed(close) == 0 && now() < limit) ucp_worker_progress(w.b.worker);
  EXPECT_EQ(w.end(close), UCS_OK);
  EXPECT_LT(now(), limit) << "the peer, which does not progress, holds up the close";
  const ucp_ep_h closed = w.b.ep;
  EXPECT_TRUE(w.until([&] { return messages.count == 2; })) << "the message was dropped";
  EXPECT_EQ(w.end(send), UCS_OK);
  for (int i = 0; i < 1000; ++i) w.progress();
  EXPECT_EQ(messages.count, 2);
  ASSERT_NE(messages.reply, nullptr);
  if (!under_way) return;
  EXPECT_NE(messages.reply, closed);
  messages.count = 0;
  count_messages(w.a, messages);
  EXPECT_EQ(w.end(ucp_am_send_nbx(messages.reply, 1, nullptr, 0, nullptr, 0, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return messages.count == 1; }));
}

TEST(Close, AStreamsReceiveTellsItsLengthInTheParametersToo) {
  World w;
  w.connect();
  const auto out = random_bytes(5000);
  std::vector<unsigned char> in(out.size());
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, out.data(), out.size(), &none)), UCS_OK);
  size_t length = 0, received = 0;
  EXPECT_EQ(w.end(ucp_stream_recv_nbx(w.b.ep, in.data(), 1, &length, &none)), UCS_OK);  // the rest is here
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO;
  param.recv_info.length = &received;
  EXPECT_EQ(ucp_stream_recv_nbx(w.b.ep, in.data(), 100, &length, &param), nullptr);
  EXPECT_EQ(length, 100u);
  EXPECT_EQ(received, 100u);
}

/// What its sends have told to be over goes, also where a receive waits for what never comes.
TEST(Close, OfAWorkerSendsWhatIsOverBesideAReceiveThatNothingMatches) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  std::vector<unsigned char> one(1, 1), got(1), never(64);
  for (Side* to : {&w.b, &w.a}) {  // connected in both directions
    ucs_status_ptr_t const received = ucp_tag_recv_nbx(to->worker, got.data(), 1, 1, kAll, &none);
    EXPECT_EQ(w.end(ucp_tag_send_nbx((to == &w.b ? w.a : w.b).ep, one.data(), 1, 1, &none)), UCS_OK);
    EXPECT_EQ(w.end(received), UCS_OK);
  }
  ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(w.a.worker, never.data(), never.size(), 77, kAll, &none)));
  const auto out = random_bytes(4096);
  const char* const tls = std::getenv("UCX_TLS");
  const size_t most = tls != nullptr && std::string(tls) == "tcp" ? 300 : 10;  // a socket's queue has room for more
  size_t sent = 0;
  while (sent < most && ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 9, &none) == nullptr) ++sent;
  ASSERT_EQ(sent, most) << "each is over at once";
  std::thread ends([&] { ucp_worker_destroy(w.a.worker); });  // it waits for what is in its socket's queue
  std::vector<unsigned char> in(out.size());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  size_t arrived = 0;
  for (; arrived < sent; ++arrived) {
    std::fill(in.begin(), in.end(), 0);
    ucs_status_ptr_t const received = ucp_tag_recv_nbx(w.b.worker, in.data(), in.size(), 9, kAll, &none);
    while (ucp_request_check_status(received) == UCS_INPROGRESS && std::chrono::steady_clock::now() < limit)
      ucp_worker_progress(w.b.worker);
    const ucs_status_t status = ucp_request_check_status(received);
    if (status != UCS_OK || in != out) break;
    ucp_request_free(received);
  }
  ends.join();
  w.a.worker = nullptr;
  EXPECT_EQ(arrived, sent);
}

/// A worker's end ends what is under way, so the user's buffers may be gone by then: nothing that arrives reaches them.
TEST(Close, OfAWorkerWritesNothingIntoBuffersOfWhatIsUnderWay) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  std::vector<unsigned char> one(1, 1), got(1);
  for (Side* to : {&w.b, &w.a}) {  // connected in both directions
    ucs_status_ptr_t const received = ucp_tag_recv_nbx(to->worker, got.data(), 1, 1, kAll, &none);
    EXPECT_EQ(w.end(ucp_tag_send_nbx((to == &w.b ? w.a : w.b).ep, one.data(), 1, 1, &none)), UCS_OK);
    EXPECT_EQ(w.end(received), UCS_OK);
  }
  const std::vector<unsigned char> untouched(1000, 0xA5), large(4 << 20), sent(1000, 7);
  std::vector<unsigned char> into = untouched;
  ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(w.b.worker, into.data(), into.size(), 2, kAll, &none)));
  // A send that nobody takes: the worker's queue tells its end.
  ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(w.b.ep, large.data(), large.size(), 3, &none)));
  if (void* const request = ucp_tag_send_nbx(w.a.ep, sent.data(), sent.size(), 2, &none); UCS_PTR_IS_PTR(request))
    ucp_request_free(request);
  ucp_worker_destroy(w.b.worker);
  w.b.worker = nullptr;
  EXPECT_EQ(into, untouched);
}

}  // namespace
