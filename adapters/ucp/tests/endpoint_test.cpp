// SPDX-License-Identifier: Apache-2.0
// Listeners, closing, and the loss of a peer.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr ucp_tag_t kAll = ~ucp_tag_t{0};

struct Server {
  World& w;
  ucp_listener_h listener = nullptr;
  ucp_conn_request_h request = nullptr;
  sockaddr_storage address{};

  explicit Server(World& world) : w(world) {
    listener = listen(w.b, [](ucp_conn_request_h one, void* arg) { static_cast<Server*>(arg)->request = one; }, this, &address);
    EXPECT_NE(reinterpret_cast<sockaddr_in&>(address).sin_port, 0);
  }
  ~Server() {
    if (listener != nullptr) ucp_listener_destroy(listener);
  }
};

struct Errors {
  int calls = 0;
  ucs_status_t status = UCS_OK;
  ucs_status_ptr_t watched = nullptr;  // a request
  ucs_status_t then = UCS_OK;          // its status when the handler was called
  static void told(void* arg, ucp_ep_h, ucs_status_t status) {
    auto& self = *static_cast<Errors*>(arg);
    ++self.calls;
    self.status = status;
    if (self.watched != nullptr) self.then = ucp_request_check_status(self.watched);
  }
};

ucp_ep_h connect_to(World& w, Server& server, Errors& errors) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {reinterpret_cast<sockaddr*>(&server.address), sizeof(sockaddr_in)};
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {Errors::told, &errors};
  ucp_ep_h ep = nullptr;
  EXPECT_EQ(ucp_ep_create(w.a.worker, &params, &ep), UCS_OK);
  return ep;
}

/// The server's end of what asks for a connection.
ucp_ep_h accept(World& w, const Server& server) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = server.request;
  ucp_ep_h ep = nullptr;
  EXPECT_EQ(ucp_ep_create(w.b.worker, &params, &ep), UCS_OK);
  return ep;
}

TEST(Listener, AcceptsMovesDataBothWaysAndSaysWhenThePeerCloses) {
  World w;
  Server server(w);
  Errors errors;
  ucp_ep_h client = connect_to(w, server, errors);
  ASSERT_TRUE(w.until([&] { return server.request != nullptr; }));
  ucp_conn_request_attr_t attr{};
  attr.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
  EXPECT_EQ(ucp_conn_request_query(server.request, &attr), UCS_OK);
  EXPECT_EQ(attr.client_address.ss_family, AF_INET);
  ucp_ep_h accepted = accept(w, server);
  ASSERT_NE(accepted, nullptr);
  const ucp_request_param_t none = nothing();
  uint64_t out = 1, in = 0;
  ucs_status_ptr_t send = ucp_tag_send_nbx(client, &out, sizeof out, 1, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 1u);
  size_t length = 0;
  out = 2;
  send = ucp_stream_send_nbx(accepted, &out, sizeof out, &none);
  const ucp_request_param_t all = flags(UCP_STREAM_RECV_FLAG_WAITALL);
  EXPECT_EQ(w.end(ucp_stream_recv_nbx(client, &in, sizeof in, &length, &all)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 2u);
  EXPECT_EQ(w.end(ucp_ep_close_nbx(accepted, &none)), UCS_OK);
  EXPECT_TRUE(w.until([&] { return errors.calls == 1; }));
  EXPECT_EQ(errors.status, UCS_ERR_CONNECTION_RESET);
  EXPECT_EQ(w.end(ucp_ep_close_nb(client, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

TEST(Listener, ARejectedClientIsTold) {
  World w;
  Server server(w);
  Errors errors;
  ucp_ep_h client = connect_to(w, server, errors);
  ASSERT_TRUE(w.until([&] { return server.request != nullptr; }));
  EXPECT_EQ(ucp_listener_reject(server.listener, server.request), UCS_OK);
  EXPECT_TRUE(w.until([&] { return errors.calls == 1; }));
  EXPECT_EQ(errors.status, UCS_ERR_REJECTED);
  EXPECT_EQ(w.end(ucp_ep_close_nb(client, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

TEST(Worker, AClosedEndpointDoesNotTakeThePeersAway) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  uint64_t out = 1, in = 0;
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 1, &none)), UCS_OK);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  // b still has its own
  out = 5;
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.b.ep, &out, sizeof out, 2, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.a.worker, &in, sizeof in, 2, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 5u);
  // and a makes another one
  w.a.connect(w.b);
  send = ucp_tag_send_nbx(w.a.ep, &out, sizeof out, 3, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 3, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
}

TEST(Worker, ACloseWaitsForWhatWasSent) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(5000000);
  std::vector<unsigned char> in(out.size());
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  ucs_status_ptr_t close = ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FLUSH);
  ASSERT_TRUE(UCS_PTR_IS_PTR(close));
  for (int i = 0; i < 1000; ++i) w.progress();
  EXPECT_EQ(ucp_request_check_status(close), UCS_INPROGRESS);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, in.data(), in.size(), 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(close), UCS_OK);
  EXPECT_EQ(ucp_request_check_status(send), UCS_OK);
  ucp_request_free(send);
  EXPECT_EQ(in, out);
}

TEST(Worker, AForcedCloseEndsWhatIsPendingAsCanceled) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(5000000);
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_ERR_CANCELED);
}

ucs_status_ptr_t post_stream_receive(Side& side, uint64_t& word) {
  const ucp_request_param_t none = nothing();
  return ucp_stream_recv_nbx(side.ep, &word, sizeof word, nullptr, &none);
}

TEST(Worker, AForcedCloseCancelsStreamReceives) {
  World w;
  w.connect();
  uint64_t in = 0;
  ucs_status_ptr_t recv = post_stream_receive(w.a, in);
  ASSERT_TRUE(UCS_PTR_IS_PTR(recv));
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
}

TEST(Worker, AForcedCloseBesideAnotherEndpointCancelsItsStreamReceives) {
  World w;
  w.connect();
  uint64_t in = 0;
  const ucp_ep_h first = w.a.ep;
  ucs_status_ptr_t kept = post_stream_receive(w.a, in);
  w.a.connect(w.b);
  uint64_t other = 0;
  ucs_status_ptr_t recv = post_stream_receive(w.a, other);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
  EXPECT_EQ(ucp_request_check_status(kept), UCS_INPROGRESS);
  ucp_request_cancel(w.a.worker, kept);
  ucp_request_cancel(w.a.worker, kept);
  EXPECT_EQ(w.end(kept), UCS_ERR_CANCELED);
  w.a.ep = first;
}

TEST(Worker, AGracefulCloseCancelsStreamReceives) {
  World w;
  w.connect();
  uint64_t in = 0;
  ucs_status_ptr_t recv = post_stream_receive(w.a, in);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
  EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
  recv = post_stream_receive(w.b, in);
  ucp_ep_destroy(w.b.ep);
  EXPECT_EQ(w.end(recv), UCS_ERR_CANCELED);
}

void set_handler(Side& side, void* arg, ucp_am_recv_callback_t callback) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = 1;
  handler.cb = callback;
  handler.arg = arg;
  ASSERT_EQ(ucp_worker_set_am_recv_handler(side.worker, &handler), UCS_OK);
}

ucs_status_t count_call(void* arg, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
  ++*static_cast<int*>(arg);
  return UCS_OK;
}

void send_byte(Side& side) {
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_am_send_nbx(side.ep, 1, nullptr, 0, "x", 1, &none);
  if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
}

/// Both have spoken, so that messages go at once.
void warm(World& w, int& calls) {
  send_byte(w.b);
  ASSERT_TRUE(w.until([&] { return calls != 0; }));
  calls = 0;
}

TEST(Worker, FlushesAndClosesCallNoHandler) {
  World w;
  w.connect();
  int calls = 0;
  set_handler(w.a, &calls, count_call);
  warm(w, calls);
  const ucp_request_param_t none = nothing();
  uint64_t word = 0;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = &word;
  params.length = sizeof word;
  ucp_mem_h memory = nullptr;
  ASSERT_EQ(ucp_mem_map(w.b.context, &params, &memory), UCS_OK);
  void* packed = nullptr;
  size_t size = 0;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, memory, &packed, &size), UCS_OK);
  ucp_rkey_h key = nullptr;
  ASSERT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
  ucp_rkey_buffer_release(packed);
  const uint64_t one = 1;
  send_byte(w.b);
  for (int i = 0; i < 1000; ++i) ucp_worker_progress(w.b.worker);
  EXPECT_EQ(ucp_ep_flush_nbx(w.a.ep, &none), nullptr) << "nothing was written";
  EXPECT_EQ(calls, 0);
  ASSERT_GE(ucp_put_nbi(w.a.ep, &one, sizeof one, reinterpret_cast<uint64_t>(&word), key), 0);
  ucs_status_ptr_t of_endpoint = ucp_ep_flush_nbx(w.a.ep, &none);
  ucs_status_ptr_t of_worker = ucp_worker_flush_nbx(w.a.worker, &none);
  EXPECT_EQ(ucp_worker_arm(w.a.worker), UCS_ERR_BUSY) << "flushes wait for progress";
  ucs_status_ptr_t close = ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FLUSH);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(w.end(of_endpoint), UCS_OK);
  EXPECT_EQ(w.end(of_worker), UCS_OK);
  EXPECT_EQ(w.end(close), UCS_OK);
  EXPECT_TRUE(w.until([&] { return calls == 1; }));
  EXPECT_EQ(word, 1u);
  ucp_rkey_destroy(key);
  EXPECT_EQ(ucp_mem_unmap(w.b.context, memory), UCS_OK);
}

struct Closer {
  World& w;
  std::vector<ucp_ep_h> left{};
  std::vector<ucs_status_ptr_t> closes{};
  void close_one() {
    if (left.empty()) return;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    closes.push_back(ucp_ep_close_nbx(left.back(), &param));
    left.pop_back();
  }
};

TEST(Worker, HandlersMayCloseWhileClosesAreStepped) {
  World w;
  w.connect();
  Closer closer{w};
  int calls = 0;
  set_handler(w.a, &calls, count_call);
  warm(w, calls);
  set_handler(w.a, &closer, [](void* arg, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
    auto& closer = *static_cast<Closer*>(arg);
    closer.close_one();
    if (!closer.left.empty()) {  // the next ones arrive during this progress
      send_byte(closer.w.b);
      send_byte(closer.w.b);
      ucp_worker_progress(closer.w.b.worker);
    }
    return UCS_OK;
  });
  for (int i = 0; i < 400; ++i) {
    w.a.connect(w.b);
    closer.left.push_back(w.a.ep);
  }
  while (!closer.left.empty()) {
    for (int i = 0; i < 20; ++i) send_byte(w.b);
    for (int i = 0; i < 50; ++i) ucp_worker_progress(w.b.worker);
    closer.close_one();
    for (int i = 0; i < 3; ++i) ucp_worker_progress(w.a.worker);
  }
  EXPECT_EQ(closer.closes.size(), 400u);
  for (ucs_status_ptr_t close : closer.closes) EXPECT_EQ(w.end(close), UCS_OK);
}

TEST(Worker, OneProgressTellsAllEndsBeforeItMaySleep) {
  World w;
  w.connect();
  constexpr int kMessages = 40;
  constexpr size_t kLength = 1 << 20;
  const ucp_request_param_t none = nothing();
  std::vector<std::vector<char>> out(kMessages, std::vector<char>(kLength)), in = out;
  std::vector<ucs_status_ptr_t> sends, receives;
  for (int i = 0; i < kMessages; ++i) sends.push_back(ucp_tag_send_nbx(w.a.ep, out[i].data(), kLength, i, &none));
  for (int i = 0; i < kMessages; ++i) receives.push_back(ucp_tag_recv_nbx(w.b.worker, in[i].data(), kLength, i, kAll, &none));
  const auto done = [&] {
    return std::all_of(sends.begin(), sends.end(),
                       [](ucs_status_ptr_t one) { return !UCS_PTR_IS_PTR(one) || ucp_request_is_completed(one) != 0; });
  };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < limit) {
    ucp_worker_progress(w.a.worker);
    for (int i = 0; i < 1000; ++i) ucp_worker_progress(w.b.worker);
    if (done() || ucp_worker_arm(w.a.worker) != UCS_OK) continue;
    // Asleep: something is to come, by the descriptor.
    int fd = -1;
    ASSERT_EQ(ucp_worker_get_efd(w.a.worker, &fd), UCS_OK);
    pollfd one{fd, POLLIN, 0};
    for (int i = 0; i < 2000 && poll(&one, 1, 1) == 0; ++i) ucp_worker_progress(w.b.worker);
    ASSERT_NE(one.revents, 0) << "asleep with ends that nobody has read";
  }
  for (ucs_status_ptr_t one : sends) EXPECT_EQ(w.end(one), UCS_OK);
  for (ucs_status_ptr_t one : receives) EXPECT_EQ(w.end(one), UCS_OK);
}

TEST(Worker, ProgressCountsHandlersWhileASendIsUnderWay) {
  World w;
  w.connect();
  int calls = 0;
  set_handler(w.a, &calls, count_call);
  warm(w, calls);
  const auto out = random_bytes(5000000);
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  send_byte(w.b);
  for (int i = 0; calls == 0 && i < 10000000; ++i) {
    ucp_worker_progress(w.b.worker);
    const unsigned events = ucp_worker_progress(w.a.worker);
    if (calls != 0) {
      EXPECT_NE(events, 0u);
    }
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_ERR_CANCELED);
}

TEST(Listener, AGracefulCloseEndsTheConnectionAlsoWhenMessagesArrive) {
  World w;
  Server server(w);
  Errors errors;
  ucp_ep_h client = connect_to(w, server, errors);
  ASSERT_TRUE(w.until([&] { return server.request != nullptr; }));
  w.b.ep = accept(w, server);
  ASSERT_NE(w.b.ep, nullptr);
  int calls = 0;
  set_handler(w.a, &calls, count_call);
  warm(w, calls);
  const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_REPLY);
  for (int i = 0; i < 20; ++i) {
    ucs_status_ptr_t send = ucp_am_send_nbx(w.b.ep, 1, nullptr, 0, "x", 1, &param);
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
  }
  EXPECT_EQ(w.end(ucp_ep_close_nb(client, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.b.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

TEST(Listener, ARequestMayBeRejectedAfterItsListener) {
  World w;
  Server server(w);
  Errors errors;
  ucp_ep_h client = connect_to(w, server, errors);
  ASSERT_TRUE(w.until([&] { return server.request != nullptr; }));
  ucp_listener_destroy(std::exchange(server.listener, nullptr));
  EXPECT_EQ(ucp_listener_reject(nullptr, server.request), UCS_OK);
  EXPECT_TRUE(w.until([&] { return errors.calls == 1; }));
  EXPECT_EQ(errors.status, UCS_ERR_REJECTED);
  EXPECT_EQ(w.end(ucp_ep_close_nb(client, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

std::string info_of(ucp_worker_h worker) {
  char* text = nullptr;
  size_t length = 0;
  FILE* const stream = open_memstream(&text, &length);
  ucp_worker_print_info(worker, stream);
  fclose(stream);
  const std::string info(text, length);
  free(text);
  return info;
}

TEST(Failure, PeersThatWereRepliedToTakeNoMemoryOnceTheyAreLost) {
  World w;
  int calls = 0;
  set_handler(w.b, &calls, count_call);
  for (int round = 1; round <= 5; ++round) {
    Side other;
    other.connect(w.b);
    const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_REPLY);
    ucs_status_ptr_t send = ucp_am_send_nbx(other.ep, 1, nullptr, 0, nullptr, 0, &param);
    EXPECT_TRUE(w.until([&] {
      ucp_worker_progress(other.worker);
      return calls == round;
    }));
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
  }
  EXPECT_TRUE(w.until([&] { return info_of(w.b.worker).find("endpoints: 0\n") != std::string::npos; }));
}

constexpr ucp_tag_t kFirst = 99;

/// A process that receives one byte, and is killed: its worker's address comes through a pipe.
struct Victim {
  pid_t pid = 0;
  std::vector<char> address;
  Victim() {
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    pid = fork();
    if (pid == 0) {
      Side side;
      ucp_address_t* own = nullptr;
      size_t length = 0;
      ucp_worker_get_address(side.worker, &own, &length);
      if (write(pipe_ends[1], own, length) < 0) _exit(1);
      close(pipe_ends[1]);
      char byte = 0;
      const ucp_request_param_t none = nothing();
      (void)ucp_tag_recv_nbx(side.worker, &byte, 1, kFirst, kAll, &none);
      for (;;) ucp_worker_progress(side.worker);
    }
    close(pipe_ends[1]);
    char buffer[1024];
    ssize_t n;
    while ((n = read(pipe_ends[0], buffer, sizeof buffer)) > 0) address.insert(address.end(), buffer, buffer + n);
    close(pipe_ends[0]);
  }
  void kill_and_wait() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

TEST(Failure, AKilledPeerEndsRequestsAndCallsTheHandler) {
  Victim victim;
  World w;
  Errors errors;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_USER_DATA;
  params.address = reinterpret_cast<ucp_address_t*>(victim.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = Errors::told;
  params.user_data = &errors;  // what the handler gets
  ASSERT_EQ(ucp_ep_create(w.a.worker, &params, &w.a.ep), UCS_OK);
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(1000000);
  uint64_t in = 0;
  EXPECT_EQ(w.end(ucp_tag_send_sync_nbx(w.a.ep, out.data(), 1, kFirst, &none)), UCS_OK);    // connected
  ucs_status_ptr_t send = ucp_tag_send_sync_nbx(w.a.ep, out.data(), out.size(), 1, &none);  // nobody receives it
  ucs_status_ptr_t recv = ucp_stream_recv_nbx(w.a.ep, &in, sizeof in, nullptr, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send) && UCS_PTR_IS_PTR(recv));
  // Without a callback; over TCP it may be complete at once.
  errors.watched = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 2, &none);
  ASSERT_FALSE(UCS_PTR_IS_ERR(errors.watched));
  for (int i = 0; i < 100000; ++i) w.progress();
  EXPECT_EQ(errors.calls, 0);
  victim.kill_and_wait();
  EXPECT_TRUE(w.until([&] { return errors.calls == 1; }));
  EXPECT_EQ(errors.status, UCS_ERR_ENDPOINT_TIMEOUT);
  if (errors.watched != nullptr) {
    EXPECT_EQ(errors.then, UCS_ERR_ENDPOINT_TIMEOUT) << "the handler was called before a send had ended";
    EXPECT_EQ(w.end(errors.watched), UCS_ERR_ENDPOINT_TIMEOUT);
  }
  EXPECT_EQ(w.end(send), UCS_ERR_ENDPOINT_TIMEOUT);
  EXPECT_EQ(w.end(recv), UCS_ERR_ENDPOINT_TIMEOUT);
  EXPECT_TRUE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(w.a.ep, &in, sizeof in, 1, &none)));
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  // the worker goes on
  w.connect();
  uint64_t word = 8;
  send = ucp_tag_send_nbx(w.a.ep, &word, sizeof word, 1, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 8u);
}

TEST(Failure, TheEndOfAReplyEndpointsPeerHurtsNobody) {
  World w;
  ucp_am_handler_param_t handler{};
  static ucp_ep_h reply;
  reply = nullptr;
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
  handler.id = 1;
  handler.cb = [](void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t* param) {
    reply = param->reply_ep;
    return UCS_OK;
  };
  ASSERT_EQ(ucp_worker_set_am_recv_handler(w.b.worker, &handler), UCS_OK);
  {
    Side other;
    other.connect(w.b);
    const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_REPLY);
    ucs_status_ptr_t send = ucp_am_send_nbx(other.ep, 1, nullptr, 0, nullptr, 0, &param);
    EXPECT_TRUE(w.until([&] {
      ucp_worker_progress(other.worker);
      return reply != nullptr;
    }));
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
  }
  const ucp_request_param_t none = nothing();
  EXPECT_TRUE(w.until([&] {
    char byte = 0;
    ucs_status_ptr_t send = ucp_am_send_nbx(reply, 1, nullptr, 0, &byte, 1, &none);
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
    return UCS_PTR_IS_ERR(send);
  }));
}

TEST(Worker, RefusesWhatItDoesNotKnow) {
  Side side;
  ucp_worker_h worker = nullptr;
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_FLAGS;
  params.flags = uint64_t{1} << 40 | UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;  // as Open MPI 4.1, which does not initialise them
  EXPECT_EQ(ucp_worker_create(side.context, &params, &worker), UCS_OK);
  ucp_worker_destroy(worker);
  params.field_mask = UCP_WORKER_PARAM_FIELD_EVENTS;
  params.events = 1u << 30;
  EXPECT_EQ(ucp_worker_create(side.context, &params, &worker), UCS_ERR_UNSUPPORTED);
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = static_cast<ucs_thread_mode_t>(77);
  EXPECT_EQ(ucp_worker_create(side.context, &params, &worker), UCS_ERR_INVALID_PARAM);
  ucp_worker_attr_t attr{};
  attr.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attr.address_flags = 1u << 20;
  EXPECT_EQ(ucp_worker_query(side.worker, &attr), UCS_ERR_UNSUPPORTED);
}

TEST(Worker, EndpointsHaveNames) {
  World w;
  w.connect();
  ucp_ep_attr_t attr{};
  attr.field_mask = UCP_EP_ATTR_FIELD_NAME;
  ASSERT_EQ(ucp_ep_query(w.a.ep, &attr), UCS_OK);
  EXPECT_STRNE(attr.name, "");
}

TEST(Worker, WhatWasSentArrivesAlsoWhenItsSenderEndsAtOnce) {
  constexpr int kMessages = 40;  // as many as there is room for without the receiver's progress
  Side b;
  char in[kMessages][8] = {};
  const ucp_request_param_t none = nothing();
  std::vector<ucs_status_ptr_t> receives;
  {
    Side a;
    a.connect(b);
    char first = 1, got = 0;
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(b.worker, &got, 1, kFirst, kAll, &none);
    ucs_status_ptr_t send = ucp_tag_send_sync_nbx(a.ep, &first, 1, kFirst, &none);
    const auto over = [](ucs_status_ptr_t one) {
      return !UCS_PTR_IS_PTR(one) || ucp_request_check_status(one) != UCS_INPROGRESS;
    };
    while (!over(receive) || !over(send)) {
      ucp_worker_progress(a.worker);
      ucp_worker_progress(b.worker);
    }
    ucp_request_free(receive);
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
    // Took a request, and gave it back complete.
    send = ucp_am_send_nbx(a.ep, 1, nullptr, 0, &first, 1, &none);
    ASSERT_FALSE(UCS_PTR_IS_ERR(send));
    if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
    for (uint64_t i = 0; i < kMessages; ++i) {
      send = ucp_tag_send_nbx(a.ep, &i, sizeof i, i, &none);
      ASSERT_FALSE(UCS_PTR_IS_ERR(send));
      if (UCS_PTR_IS_PTR(send)) ucp_request_free(send);
    }
    ucs_status_ptr_t close = ucp_ep_close_nb(a.ep, UCP_EP_CLOSE_MODE_FLUSH);
    while (!over(close)) ucp_worker_progress(a.worker);
    if (UCS_PTR_IS_PTR(close)) ucp_request_free(close);
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (uint64_t i = 0; i < kMessages; ++i) {
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(b.worker, in[i], sizeof in[i], i, kAll, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receive));
    while (ucp_request_check_status(receive) == UCS_INPROGRESS && std::chrono::steady_clock::now() < limit)
      ucp_worker_progress(b.worker);
    ASSERT_EQ(ucp_request_check_status(receive), UCS_OK) << i << " of " << kMessages << " have come";
    ucp_request_free(receive);
    EXPECT_EQ(std::memcmp(in[i], &i, sizeof i), 0);
  }
}

TEST(Failure, WhatItsOwnersEndLeavesMappedCanBeRead) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  constexpr uint64_t kWord = 0x1122334455667788;
  const pid_t pid = fork();
  if (pid == 0) {
    Side side;
    ucp_address_t* own = nullptr;
    size_t length = 0;
    ucp_worker_get_address(side.worker, &own, &length);
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = 4096;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    ucp_mem_h memory = nullptr;
    ucp_mem_map(side.context, &params, &memory);
    ucp_mem_attr_t attr{};
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    ucp_mem_query(memory, &attr);
    std::memcpy(attr.address, &kWord, sizeof kWord);
    void* key = nullptr;
    size_t key_length = 0;
    ucp_rkey_pack(side.context, memory, &key, &key_length);
    const auto at = reinterpret_cast<uint64_t>(attr.address);
    const bool told = write(pipe_ends[1], &length, sizeof length) > 0 && write(pipe_ends[1], own, length) > 0 &&
                      write(pipe_ends[1], &at, sizeof at) > 0 && write(pipe_ends[1], key, key_length) > 0;
    close(pipe_ends[1]);
    if (!told) _exit(1);
    for (;;) ucp_worker_progress(side.worker);
  }
  close(pipe_ends[1]);
  std::vector<char> text;
  char buffer[1024];
  ssize_t n;
  while ((n = read(pipe_ends[0], buffer, sizeof buffer)) > 0) text.insert(text.end(), buffer, buffer + n);
  close(pipe_ends[0]);
  size_t length = 0;
  uint64_t at = 0;
  ASSERT_GT(text.size(), sizeof length + sizeof at);
  std::memcpy(&length, text.data(), sizeof length);
  const char* const address = text.data() + sizeof length;
  std::memcpy(&at, address + length, sizeof at);
  Side a;
  Errors errors;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {Errors::told, &errors};
  EXPECT_EQ(ucp_ep_create(a.worker, &params, &a.ep), UCS_OK);
  ucp_rkey_h key = nullptr;
  EXPECT_EQ(ucp_ep_rkey_unpack(a.ep, address + length + sizeof at, &key), UCS_OK);
  void* here = nullptr;
  const ucs_status_t mapped = ucp_rkey_ptr(key, at, &here);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (errors.calls == 0 && std::chrono::steady_clock::now() < limit) ucp_worker_progress(a.worker);
  EXPECT_EQ(errors.calls, 1);
  for (int i = 0; i < 1000; ++i) ucp_worker_progress(a.worker);
  if (mapped == UCS_OK) {
    uint64_t word = 0;
    std::memcpy(&word, here, sizeof word);
    EXPECT_EQ(word, kWord);
    EXPECT_EQ(ucp_rkey_ptr(key, at, &here), UCS_ERR_UNREACHABLE) << "it is not mapped anew";
  }
  ucp_rkey_destroy(key);
  const char* const tls = std::getenv("UCX_TLS");
  EXPECT_EQ(mapped, tls != nullptr && std::string(tls) == "tcp" ? UCS_ERR_UNREACHABLE : UCS_OK);
}

}  // namespace
