// SPDX-License-Identifier: Apache-2.0
// Listeners: accept and reject with private data, IPv4, IPv6 and unix addresses, the upgrade to shared memory, forced
// transports, callbacks, TLS.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "process.hpp"

using namespace thalweg::test;

namespace {

/// Listens at the address it is told, accepts (private data "yes") what does not say "no thanks", echoes until told to stop.
int listen_role(Pipe& pipe, const SideOptions& options) {
  Side side(options);
  const std::string where = pipe.receive();
  tw_listener* listener = nullptr;
  if (tw_listen(side.worker, where.c_str(), nullptr, &listener) != TW_OK) {
    pipe.send(std::string("error ") + tw_last_error());
    return 1;
  }
  pipe.send(std::to_string(tw_listener_port(listener)));
  for (;;) {
    tw_connection_request* request = nullptr;
    if (!progress_until(side.worker, [&] { return tw_listener_next(listener, &request) == TW_OK; })) return 2;
    size_t length = 0;
    const char* data = static_cast<const char*>(tw_connection_request_data(request, &length));
    const std::string said(data, length);
    if (std::string(tw_connection_request_peer(request)).empty()) return 3;
    if (said == "no thanks") {
      if (tw_reject(request, "because", 7) != TW_OK) return 4;
      continue;
    }
    tw_endpoint_options accept = TW_ENDPOINT_OPTIONS_INIT;
    const std::string answer = "yes, " + said;
    accept.private_data = answer.data();
    accept.private_length = answer.size();
    tw_endpoint* endpoint = nullptr;
    if (tw_accept(request, &accept, &endpoint) != TW_OK) return 5;
    tw_endpoint* last = serve_echo(side.worker);
    if (last != endpoint) return 6;
    (void)tw_endpoint_close(last, TW_CLOSE_GRACEFUL, nullptr);
    tw_listener_close(listener);
    return 0;
  }
}
const Role kListen("listen", [](Pipe& pipe) { return listen_role(pipe, {}); });
const Role kListenTcp("listen-tcp", [](Pipe& pipe) {
  SideOptions options;
  options.transports = "self,tcp";
  return listen_role(pipe, options);
});
const Role kListenTls("listen-tls", [](Pipe& pipe) {
  SideOptions options;
  options.transports = "self,tcp";
  options.tls = 1;
  return listen_role(pipe, options);
});
const Role kListenShm("listen-shm", [](Pipe& pipe) {
  SideOptions options;
  options.transports = "self,shm";
  return listen_role(pipe, options);
});

tw_endpoint* connect_to(Side& side, const std::string& address, const std::string& data, const char* transport = nullptr,
                        uint32_t tls = 0) {
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.private_data = data.data();
  options.private_length = data.size();
  options.transport = transport;
  options.tls = tls;
  tw_endpoint* endpoint = nullptr;
  EXPECT_EQ(tw_connect_to(side.worker, address.c_str(), &options, &endpoint), TW_OK) << tw_last_error();
  return endpoint;
}

std::string data_of(tw_endpoint* endpoint) {
  size_t length = 0;
  const void* data = tw_endpoint_data(endpoint, &length);
  return std::string(static_cast<const char*>(data), length);
}

void talk(Side& side, tw_endpoint* endpoint, const char* transport) {
  ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK) << tw_last_error();
  EXPECT_STREQ(tw_endpoint_transport(endpoint), transport);
  EXPECT_EQ(data_of(endpoint), "yes, hello");
  EXPECT_TRUE(echo(side.worker, endpoint, 12345, 1));
  EXPECT_TRUE(echo(side.worker, endpoint, 500'001, 2));
  EXPECT_EQ(tw_send_blocking(endpoint, "", 0, kStop), TW_OK);
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
}

struct Case {
  const char* name;
  const char* role;
  const char* listen;
  const char* connect;  // port appended when it ends in ':'
  const char* forced;
  const char* expected;
  uint32_t tls = 0;
};
class Listener : public testing::TestWithParam<Case> {};

TEST_P(Listener, AcceptsWithPrivateData) {
  const Case& c = GetParam();
  Child child(c.role);
  const std::string path = "/tmp/tw-listener-" + std::to_string(getpid());
  const bool is_unix = std::string(c.listen) == "unix:";
  child.send(is_unix ? "unix:" + path : std::string(c.listen));
  const std::string port = child.receive();
  ASSERT_NE(port.rfind("error", 0), 0u) << port;
  Side side;
  tw_endpoint* endpoint = connect_to(side, is_unix ? "unix:" + path : c.connect + port, "hello", c.forced, c.tls);
  ASSERT_NE(endpoint, nullptr);
  talk(side, endpoint, c.expected);
  EXPECT_EQ(child.join(), 0);
  if (is_unix) {
    EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket file is left behind";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Listener,
                         testing::Values(Case{"v4_becomes_shm", "listen", "127.0.0.1:0", "127.0.0.1:", nullptr, "shm"},
                                         Case{"v6_becomes_shm", "listen", "[::1]:0", "[::1]:", nullptr, "shm"},
                                         Case{"wildcard", "listen", ":0", "127.0.0.1:", nullptr, "shm"},
                                         Case{"by_name", "listen", ":0", "localhost:", nullptr, "shm"},
                                         Case{"v4_forced_tcp", "listen", "127.0.0.1:0", "127.0.0.1:", "tcp", "tcp"},
                                         Case{"v6_forced_tcp", "listen", "[::1]:0", "[::1]:", "tcp", "tcp"},
                                         Case{"server_without_shm", "listen-tcp", "127.0.0.1:0", "127.0.0.1:", nullptr, "tcp"},
                                         Case{"server_without_tcp", "listen-shm", "127.0.0.1:0", "127.0.0.1:", nullptr, "shm"},
                                         Case{"tls", "listen-tls", "127.0.0.1:0", "127.0.0.1:", nullptr, "tcp", 1},
                                         Case{"unix_shm", "listen", "unix:", "", nullptr, "shm"},
                                         Case{"unix_forced_tcp", "listen", "unix:", "", "tcp", "tcp"}),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(ListenerRefusals, RejectGivesStatusAndData) {
  Child child("listen");
  child.send("127.0.0.1:0");
  const std::string at = "127.0.0.1:" + child.receive();
  Side side;
  tw_endpoint* endpoint = connect_to(side, at, "no thanks");
  tw_request receive = TW_REQUEST_NONE;
  char byte;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.source = endpoint;
  ASSERT_EQ(tw_recv(side.worker, &byte, 1, 0, 0, &options, &receive), TW_IN_PROGRESS);
  EXPECT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_ERR_REJECTED);
  EXPECT_EQ(data_of(endpoint), "because");
  EXPECT_EQ(tw_request_finish(receive), TW_ERR_REJECTED);
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  talk(side, connect_to(side, at, "hello"), "shm");
  EXPECT_EQ(child.join(), 0);
}

TEST(ListenerRefusals, NobodyListens) {
  Side side;
  tw_endpoint* endpoint = connect_to(side, "127.0.0.1:1", "");
  EXPECT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_ERR_UNREACHABLE) << tw_last_error();
  endpoint = connect_to(side, "unix:/tmp/no-such-socket-of-thalweg", "");
  EXPECT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_ERR_UNREACHABLE) << tw_last_error();
}

TEST(ListenerRefusals, TimesOutWhenNobodyAnswers) {
  Side server, client;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(server.worker, "127.0.0.1:0", nullptr, &listener), TW_OK);
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.timeout_ns = 200'000'000;
  tw_endpoint* endpoint = nullptr;
  const std::string at = "127.0.0.1:" + std::to_string(tw_listener_port(listener));
  ASSERT_EQ(tw_connect_to(client.worker, at.c_str(), &options, &endpoint), TW_OK);
  EXPECT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_ERR_TIMED_OUT) << tw_last_error();
  tw_listener_close(listener);
}

TEST(ListenerRefusals, AddressInUse) {
  Side side;
  tw_listener *first = nullptr, *second = nullptr;
  ASSERT_EQ(tw_listen(side.worker, "127.0.0.1:0", nullptr, &first), TW_OK);
  const std::string at = "127.0.0.1:" + std::to_string(tw_listener_port(first));
  EXPECT_EQ(tw_listen(side.worker, at.c_str(), nullptr, &second), TW_ERR_ADDRESS_IN_USE);
  tw_listener_close(first);
}

TEST(ListenerCallback, IsCalledFromProgressAndMayAccept) {
  Side server, client;
  static tw_endpoint* accepted = nullptr;
  tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
  options.on_request = [](void* arg, tw_connection_request* request) {
    ++*static_cast<int*>(arg);
    EXPECT_GE(tw_accept(request, nullptr, &accepted), 0);
  };
  int calls = 0;
  options.arg = &calls;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(server.worker, "127.0.0.1:0", &options, &listener), TW_OK);
  tw_endpoint* endpoint = connect_to(client, "127.0.0.1:" + std::to_string(tw_listener_port(listener)), "x");
  ASSERT_TRUE(progress_until(client.worker, [&] {
    tw_worker_progress(server.worker);
    return tw_endpoint_state(endpoint) == TW_OK && accepted != nullptr && tw_endpoint_state(accepted) == TW_OK;
  }));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(data_of(accepted), "x");
  // A second connection of the same two workers stays a second one.
  tw_endpoint* first = accepted;
  tw_endpoint* again = connect_to(client, "127.0.0.1:" + std::to_string(tw_listener_port(listener)), "y");
  ASSERT_TRUE(progress_until(client.worker, [&] {
    tw_worker_progress(server.worker);
    return tw_endpoint_state(again) == TW_OK && accepted != first && tw_endpoint_state(accepted) == TW_OK;
  }));
  EXPECT_NE(again, endpoint);
  tw_listener_close(listener);
}

/// Two connects of one worker to one listener are two connections: a message of one comes from that one's other end, and the
/// end of one leaves the other alone.
TEST(ListenerConnections, NeverMerge) {
  Side server, client;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(server.worker, "127.0.0.1:0", nullptr, &listener), TW_OK);
  const std::string at = "127.0.0.1:" + std::to_string(tw_listener_port(listener));
  tw_endpoint *ours[2] = {}, *theirs[2] = {};
  for (int i = 0; i < 2; ++i) ours[i] = connect_to(client, at, std::to_string(i));
  ASSERT_NE(ours[0], ours[1]);
  const auto both_progress = [&](const std::function<bool()>& done) {
    return progress_until(client.worker, [&] {
      tw_worker_progress(server.worker);
      return done();
    });
  };
  for (int accepted = 0; accepted < 2; ++accepted) {
    tw_connection_request* request = nullptr;
    ASSERT_TRUE(both_progress([&] { return tw_listener_next(listener, &request) == TW_OK; }));
    size_t length = 0;
    const int which = *static_cast<const char*>(tw_connection_request_data(request, &length)) - '0';
    ASSERT_EQ(tw_accept(request, nullptr, &theirs[which]), TW_OK) << tw_last_error();
  }
  ASSERT_NE(theirs[0], nullptr);
  ASSERT_NE(theirs[1], nullptr);
  ASSERT_NE(theirs[0], theirs[1]);
  const auto message = [&](tw_endpoint* from, tw_endpoint* to) {
    const std::string out = random_bytes(1000);
    std::string in(out.size(), '\x5a');
    tw_request receive = TW_REQUEST_NONE, send = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(server.worker, in.data(), in.size(), 0, 0, nullptr, &receive), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(from, out.data(), out.size(), 5, nullptr, &send), TW_OK);
    ASSERT_TRUE(both_progress([&] { return tw_request_test(receive) != TW_IN_PROGRESS; }));
    tw_recv_info info{};
    ASSERT_EQ(tw_request_info(receive, &info), TW_OK);
    EXPECT_EQ(info.endpoint, to);
    EXPECT_EQ(in, out);
    EXPECT_EQ(tw_request_finish(receive), TW_OK);
    EXPECT_EQ(tw_request_finish(send), TW_OK);
  };
  for (const int which : {1, 0, 1}) message(ours[which], theirs[which]);
  EXPECT_EQ(tw_endpoint_close(ours[0], TW_CLOSE_FORCE, nullptr), TW_OK);
  ASSERT_TRUE(both_progress([&] { return tw_endpoint_state(theirs[0]) < 0; }));
  message(ours[1], theirs[1]);
  tw_listener_close(listener);
}

}  // namespace
