// SPDX-License-Identifier: Apache-2.0
// Connecting: by worker address and by listener, over every transport, with private data, twice, from both sides at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

const Role kEcho("echo", [](Pipe& pipe) {
  const std::string transports = pipe.receive();
  SideOptions options;
  if (transports != "all") options.transports = transports.c_str();
  Side side(options);
  pipe.send(side.address());
  tw_endpoint* last = serve_echo(side.worker);
  (void)tw_endpoint_close(last, TW_CLOSE_GRACEFUL, nullptr);
  return 0;
});

class ByAddress : public testing::TestWithParam<const char*> {};

TEST_P(ByAddress, EchoesEverySize) {
  Child child("echo");
  child.send("all");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  ASSERT_NE(endpoint, nullptr);
  ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK) << tw_last_error();
  EXPECT_STREQ(tw_endpoint_transport(endpoint), GetParam());
  for (size_t length :
       {size_t{0}, size_t{1}, size_t{8}, size_t{63}, size_t{1000}, size_t{8193}, size_t{65537}, size_t{1000003}}) {
    EXPECT_TRUE(echo(side.worker, endpoint, length, 7 + length)) << length;
  }
  EXPECT_EQ(tw_send_blocking(endpoint, "", 0, kStop), TW_OK);
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  EXPECT_EQ(child.join(), 0);
}
INSTANTIATE_TEST_SUITE_P(Transports, ByAddress, testing::Values("shm", "tcp"),
                         [](const auto& i) { return std::string(i.param); });

TEST(Connect, OperationsMayBePostedAtOnce) {
  Child child("echo");
  child.send("all");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive());
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_IN_PROGRESS);
  EXPECT_TRUE(echo(side.worker, endpoint, 333, 1));
  EXPECT_STREQ(tw_endpoint_transport(endpoint), "shm");
}

TEST(Connect, TwiceGivesOneConnection) {
  Child child("echo");
  child.send("all");
  Side side;
  const std::string address = child.receive();
  tw_endpoint* first = side.connect(address);
  tw_endpoint* second = side.connect(address);
  EXPECT_TRUE(echo(side.worker, first, 100, 1));
  EXPECT_TRUE(echo(side.worker, second, 100, 2));
  EXPECT_EQ(tw_endpoint_close(first, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  EXPECT_TRUE(echo(side.worker, second, 100, 3));
}

TEST(Connect, ToOneself) {
  Side side;
  tw_endpoint* endpoint = side.connect(side.address());
  ASSERT_EQ(tw_endpoint_wait(endpoint, 1'000'000'000), TW_OK) << tw_last_error();
  EXPECT_STREQ(tw_endpoint_transport(endpoint), "self");
  for (size_t length : {0, 8, 5000, 300001}) {
    const std::string out = random_bytes(length);
    std::string in(length, '\0');
    tw_request receive = TW_REQUEST_NONE, send = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(side.worker, in.data(), length, 5, UINT64_MAX, nullptr, &receive), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(endpoint, out.data(), length, 5, nullptr, &send), 0);
    EXPECT_EQ(tw_request_finish(send), TW_OK);
    EXPECT_EQ(tw_request_finish(receive), TW_OK);
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
}

TEST(Connect, BetweenWorkersOfOneProcess) {
  Side a, b;
  tw_endpoint* to_b = a.connect(b.address());
  const std::string out = random_bytes(100'001);
  std::string in(out.size(), '\0');
  tw_request send = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(b.worker, in.data(), in.size(), 9, UINT64_MAX, nullptr, &receive), TW_IN_PROGRESS);
  ASSERT_GE(tw_send(to_b, out.data(), out.size(), 9, nullptr, &send), 0);
  ASSERT_TRUE(progress_until(a.worker, [&] {
    tw_worker_progress(b.worker);
    return tw_request_test(receive) != TW_IN_PROGRESS && tw_request_test(send) != TW_IN_PROGRESS;
  }));
  EXPECT_EQ(tw_request_finish(receive), TW_OK);
  EXPECT_EQ(in, out);
}

TEST(Connect, WithoutACommonSocketDirectoryIsTcpAndSaysSo) {
  char directory[] = "/tmp/tw-sockets-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  {
    Child child("echo", {std::string("THALWEG_SOCKET_DIR=") + directory});
    child.send("all");
    Side side;
    tw_endpoint* endpoint = side.connect(child.receive());
    EXPECT_TRUE(echo(side.worker, endpoint, 4711, 1));
    EXPECT_STREQ(tw_endpoint_transport(endpoint), "tcp");
    char text[8192];
    size_t length = sizeof text;
    ASSERT_EQ(tw_endpoint_explain(endpoint, "send", 8, text, &length), TW_OK);
    EXPECT_NE(std::string(text).find("TCP inside one host"), std::string::npos) << text;
    EXPECT_EQ(tw_send_blocking(endpoint, "", 0, kStop), TW_OK);
    EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
    EXPECT_EQ(child.join(), 0);
  }
  rmdir((std::string(directory) + "/thalweg-" + std::to_string(geteuid())).c_str());
  EXPECT_EQ(rmdir(directory), 0) << "something is left in the socket directory";
}

TEST(Connect, StaleAddressIsRefused) {
  Side a;
  std::string gone;
  {
    Side b;
    gone = b.address();
  }
  tw_endpoint* endpoint = a.connect(gone);
  const tw_status status = tw_endpoint_wait(endpoint, 10'000'000'000);
  EXPECT_TRUE(status == TW_ERR_STALE || status == TW_ERR_UNREACHABLE) << tw_status_name(status);
  (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);

  // The process is alive, the worker is not: known for sure.
  Side b;
  tw_worker* other = nullptr;
  ASSERT_EQ(tw_worker_create(b.context, nullptr, &other), TW_OK);
  char bytes[kAddressRoom];
  size_t length = sizeof bytes;
  ASSERT_EQ(tw_worker_address(other, bytes, &length), TW_OK);
  tw_worker_destroy(other);
  endpoint = a.connect(std::string(bytes, length));
  EXPECT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_ERR_STALE) << tw_last_error();
}

}  // namespace
