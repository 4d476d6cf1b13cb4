// SPDX-License-Identifier: Apache-2.0
// Listeners, closing, and the loss of a peer.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

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
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {reinterpret_cast<sockaddr*>(&any), sizeof any};
    params.conn_handler.arg = this;
    params.conn_handler.cb = [](ucp_conn_request_h one, void* arg) { static_cast<Server*>(arg)->request = one; };
    EXPECT_EQ(ucp_listener_create(w.b.worker, &params, &listener), UCS_OK);
    ucp_listener_attr_t attr{};
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    EXPECT_EQ(ucp_listener_query(listener, &attr), UCS_OK);
    address = attr.sockaddr;
    EXPECT_NE(reinterpret_cast<sockaddr_in&>(address).sin_port, 0);
  }
  ~Server() { ucp_listener_destroy(listener); }
};

struct Errors {
  int calls = 0;
  ucs_status_t status = UCS_OK;
  static void told(void* arg, ucp_ep_h, ucs_status_t status) {
    auto& self = *static_cast<Errors*>(arg);
    ++self.calls;
    self.status = status;
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
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = server.request;
  ucp_ep_h accepted = nullptr;
  ASSERT_EQ(ucp_ep_create(w.b.worker, &params, &accepted), UCS_OK);
  const ucp_request_param_t none = nothing();
  uint64_t out = 1, in = 0;
  ucs_status_ptr_t send = ucp_tag_send_nbx(client, &out, sizeof out, 1, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &in, sizeof in, 1, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  EXPECT_EQ(in, 1u);
  size_t length = 0;
  out = 2;
  send = ucp_stream_send_nbx(accepted, &out, sizeof out, &none);
  ucp_request_param_t all{};
  all.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  all.flags = UCP_STREAM_RECV_FLAG_WAITALL;
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
  for (int i = 0; i < 100000; ++i) w.progress();
  EXPECT_EQ(errors.calls, 0);
  victim.kill_and_wait();
  EXPECT_TRUE(w.until([&] { return errors.calls == 1; }));
  EXPECT_EQ(errors.status, UCS_ERR_ENDPOINT_TIMEOUT);
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
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
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

}  // namespace
