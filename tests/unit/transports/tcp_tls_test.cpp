// SPDX-License-Identifier: Apache-2.0
// The tcp port inside TLS 1.3, with the SSL objects of the handshake.
#include <unistd.h>

#include "security/tls.hpp"
#include "unit/transports/tcp_pair.hpp"

namespace thalweg::impl::tcp {
namespace {

class TcpTls : public ::testing::Test {
 protected:
  void SetUp() override {
    const char secret[] = "a secret of this test only 0123456789";
    ASSERT_EQ(JobKey::load(secret, sizeof(secret), nullptr, &key), TW_OK);
    const auto [a, b] = connected(Wire::v4);
    for (const int fd : {a, b}) ASSERT_EQ(::fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    SSL *client = make_tls(Role::client, key, a), *server = make_tls(Role::server, key, b);
    ASSERT_NE(client, nullptr) << last_error();
    ASSERT_NE(server, nullptr) << last_error();
    const char* reason = "";
    TlsStep left_step{}, right_step{};
    const Deadline deadline(5 * kSecond);
    do {
      left_step = step_tls(client, &reason);
      right_step = step_tls(server, &reason);
    } while ((left_step != TlsStep::done || right_step != TlsStep::done) && !deadline.passed());
    ASSERT_EQ(left_step, TlsStep::done) << reason;
    ASSERT_EQ(right_step, TlsStep::done) << reason;
    left_socket = a;
    left.add(a, client);
    right.add(b, server);
  }
  JobKey key;
  Side left, right;
  int left_socket = -1;
};

TEST_F(TcpTls, CarriesRandomFramesBothWaysAtOnce) {
  const uint64_t seed = std::random_device{}();
  RandomSender there(left, seed), back(right, seed + 1);
  exchange(left, there, right, back, 800, seed);
}

TEST_F(TcpTls, GracefulCloseDeliversWhatIsQueued) {
  RandomSender there(left, std::random_device{}());
  while (there.step()) {
  }
  left.port->close(*left.link, true);
  ASSERT_TRUE(progress_until({&left, &right}, [&] { return right.sink.lost > 0; }));
  EXPECT_EQ(right.sink.frames, there.accepted);
  EXPECT_EQ(right.sink.lost_status, TW_ERR_PEER_LOST);
}

TEST_F(TcpTls, ForgedBytesEndTheLink) {
  const char forged[] = "this is no TLS record at all, and it is long enough to look like one";
  ASSERT_GT(::send(left_socket, forged, sizeof(forged), MSG_NOSIGNAL), 0);
  ASSERT_TRUE(progress_until({&right}, [&] { return right.sink.lost > 0; }));
  EXPECT_EQ(right.sink.lost_status, TW_ERR_PROTOCOL);
  EXPECT_EQ(right.sink.frames, 0u);
}

}  // namespace
}  // namespace thalweg::impl::tcp
