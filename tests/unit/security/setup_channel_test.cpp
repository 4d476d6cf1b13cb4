// SPDX-License-Identifier: Apache-2.0
// Set-up messages: sizes, descriptors, exact reads, and peers that break the rules.
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/mman.h>

#include <algorithm>

#include "security/handshake_wire.hpp"
#include "unit/security/pair.hpp"

namespace thalweg::impl {
namespace {

using namespace test;
using handshake_wire::SetupHeader;

Status receive(SetupChannel& channel, SetupChannel::Message* out) {
  for (int i = 0; i < 1000; ++i) {
    const Status status = channel.receive(out);
    if (status != TW_IN_PROGRESS) return status;
    pollfd one{channel.fd(), POLLIN, 0};
    poll(&one, 1, 10);
  }
  return TW_IN_PROGRESS;
}

size_t open_descriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

UniqueFd memory_with(const std::vector<std::byte>& bytes) {
  UniqueFd file(memfd_create("thalweg test", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(file.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
  return file;
}

class ChannelOver : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kind, ChannelOver, ::testing::Bool(), [](const auto& info) { return info.param ? "Tcp" : "Unix"; });

TEST_P(ChannelOver, MessagesOfManySizesArriveInOrder) {
  SocketPair pair(GetParam());
  SetupChannel a(std::move(pair.a), nullptr);
  SetupChannel b(std::move(pair.b), nullptr);
  std::vector<std::vector<std::byte>> sent;
  for (const size_t size : {size_t(0), size_t(1), size_t(7), size_t(511), size_t(4095), SetupChannel::kMax}) {
    sent.push_back(random_data(size));
    ASSERT_EQ(a.queue(uint16_t(size), sent.back().data(), size), TW_OK);
  }
  EXPECT_EQ(a.flush(), TW_OK);
  for (const auto& bytes : sent) {
    SetupChannel::Message message;
    ASSERT_EQ(receive(b, &message), TW_OK) << last_error();
    EXPECT_EQ(message.type, uint16_t(bytes.size()));
    EXPECT_EQ(message.bytes, bytes);
    EXPECT_TRUE(message.fds.empty());
  }
  SetupChannel::Message none;
  EXPECT_EQ(b.receive(&none), TW_IN_PROGRESS);
}

TEST_P(ChannelOver, ReadsNothingBehindAMessage) {
  SocketPair pair(GetParam());
  SetupChannel a(std::move(pair.a), nullptr);
  SetupChannel b(std::move(pair.b), nullptr);
  ASSERT_EQ(a.queue(9, "abc", 3), TW_OK);
  ASSERT_EQ(a.flush(), TW_OK);
  ASSERT_EQ(write(a.fd(), "data frame", 10), 10);
  SetupChannel::Message message;
  ASSERT_EQ(receive(b, &message), TW_OK);
  const UniqueFd socket = b.take_socket();
  char buffer[32];
  EXPECT_EQ(recv(socket.get(), buffer, sizeof buffer, 0), 10);
}

TEST_P(ChannelOver, FullSocketIsInProgressAndQueueIsBounded) {
  SocketPair pair(GetParam());
  SetupChannel a(std::move(pair.a), nullptr);
  SetupChannel b(std::move(pair.b), nullptr);
  std::vector<std::vector<std::byte>> sent;
  Status status = TW_OK;
  while (sent.size() < 100000 && status == TW_OK) {
    sent.push_back(random_data(4096));
    status = a.queue(uint16_t(sent.size()), sent.back().data(), 4096);
    const Status flushed = a.flush();
    ASSERT_TRUE(flushed == TW_OK || flushed == TW_IN_PROGRESS);
  }
  EXPECT_EQ(status, TW_ERR_LIMIT);
  sent.pop_back();
  for (size_t i = 0; i < sent.size(); ++i) {
    SetupChannel::Message message;
    ASSERT_FALSE(is_error(a.flush()));
    ASSERT_EQ(receive(b, &message), TW_OK);
    ASSERT_EQ(message.type, uint16_t(i + 1));
    ASSERT_EQ(message.bytes, sent[i]);
  }
  EXPECT_EQ(a.flush(), TW_OK);
}

TEST_P(ChannelOver, EndIsClosedAndEndWithinAMessageIsLost) {
  {
    SocketPair pair(GetParam());
    SetupChannel b(std::move(pair.b), nullptr);
    pair.a.reset();
    SetupChannel::Message message;
    EXPECT_EQ(receive(b, &message), TW_ERR_CLOSED);
  }
  SocketPair pair(GetParam());
  SetupChannel b(std::move(pair.b), nullptr);
  const SetupHeader header{100, 1, 0};
  ASSERT_EQ(write(pair.a.get(), &header, sizeof header), 8);
  ASSERT_EQ(write(pair.a.get(), "some", 4), 4);
  pair.a.reset();
  SetupChannel::Message message;
  EXPECT_EQ(receive(b, &message), TW_ERR_PEER_LOST);
}

TEST_P(ChannelOver, BadHeadersAreProtocolErrorsForEver) {
  for (const SetupHeader& header : {SetupHeader{SetupChannel::kMax + 1, 1, 0}, SetupHeader{UINT32_MAX, 1, 0},
                                    SetupHeader{0, 1, SetupChannel::kMaxFds + 1}, SetupHeader{0, 1, 1}}) {
    SocketPair pair(GetParam());
    SetupChannel b(std::move(pair.b), nullptr);
    ASSERT_EQ(write(pair.a.get(), &header, sizeof header), 8);
    SetupChannel::Message message;
    EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
    EXPECT_EQ(b.receive(&message), TW_ERR_PROTOCOL);
  }
}

TEST(SetupChannel, DescriptorsArriveWithTheirMessage) {
  const size_t before = open_descriptors();
  {
    SocketPair pair;
    SetupChannel a(std::move(pair.a), nullptr);
    SetupChannel b(std::move(pair.b), nullptr);
    std::vector<std::vector<std::byte>> contents;
    for (const size_t count : {size_t(1), size_t(0), SetupChannel::kMaxFds}) {
      std::vector<UniqueFd> files;
      std::vector<int> numbers;
      for (size_t i = 0; i < count; ++i) {
        contents.push_back(random_data(33 + i));
        files.push_back(memory_with(contents.back()));
        numbers.push_back(files.back().get());
      }
      const auto body = random_data(count * 10);
      ASSERT_EQ(a.queue(uint16_t(count), body.data(), body.size(), numbers.data(), count), TW_OK);
    }  // the sender's own are closed: duplicates travel
    ASSERT_EQ(a.flush(), TW_OK);
    size_t next = 0;
    for (const size_t count : {size_t(1), size_t(0), SetupChannel::kMaxFds}) {
      SetupChannel::Message message;
      ASSERT_EQ(receive(b, &message), TW_OK) << last_error();
      ASSERT_EQ(message.fds.size(), count);
      EXPECT_EQ(message.bytes.size(), count * 10);
      for (const UniqueFd& fd : message.fds) {
        std::vector<std::byte> got(contents[next].size() + 5);
        EXPECT_EQ(pread(fd.get(), got.data(), got.size(), 0), ssize_t(contents[next].size()));
        got.resize(contents[next].size());
        EXPECT_EQ(got, contents[next]);
        EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
        ++next;
      }
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

void send_raw(int socket, const void* bytes, size_t n, int fd, size_t copies) {
  std::vector<char> control(CMSG_SPACE(copies * sizeof(int)));
  iovec piece{const_cast<void*>(bytes), n};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(copies * sizeof(int));
  for (size_t i = 0; i < copies; ++i) std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
  ASSERT_EQ(sendmsg(socket, &header, 0), ssize_t(n));
}

TEST(SetupChannel, UnannouncedDescriptorsAreClosedAndRefused) {
  const size_t before = open_descriptors();
  for (const size_t copies : {size_t(1), size_t(8), size_t(9), size_t(200)}) {
    SocketPair pair;
    SetupChannel b(std::move(pair.b), nullptr);
    const SetupHeader header{0, 1, 0};
    send_raw(pair.a.get(), &header, sizeof header, pair.a.get(), copies);
    SetupChannel::Message message;
    EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
    EXPECT_TRUE(message.fds.empty());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SetupChannel, DescriptorsWithEveryByteDoNotPileUp) {
  const size_t before = open_descriptors();
  SocketPair pair;
  SetupChannel b(std::move(pair.b), nullptr);
  const SetupHeader header{4000, 1, 1};
  const auto body = random_data(100);
  send_raw(pair.a.get(), &header, sizeof header, pair.a.get(), 1);
  for (const std::byte& byte : body) send_raw(pair.a.get(), &byte, 1, pair.a.get(), 1);
  SetupChannel::Message message;
  EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
  EXPECT_LE(open_descriptors(), before + 2);  // the socket pair
}

TEST(SetupChannel, DescriptorsNeedAUnixSocketAndSizesALimit) {
  SocketPair pair(true);
  SetupChannel a(std::move(pair.a), nullptr);
  const int fd = 0;
  EXPECT_EQ(a.queue(1, nullptr, 0, &fd, 1), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(a.queue(1, nullptr, SetupChannel::kMax + 1), TW_ERR_LIMIT);
}

struct TlsPair {
  SocketPair sockets{true};
  SSL* client = nullptr;
  SSL* server = nullptr;
  TlsPair() {
    Handshake a(Role::client, key_of("sixteen bytes and then some"), 0, true);
    Handshake b(Role::server, key_of("sixteen bytes and then some"), 0, true);
    shake(a, sockets.a, b, sockets.b);
    EXPECT_EQ(b.status(), TW_OK);
    client = a.take_tls();
    server = b.take_tls();
  }
};

TEST(SetupChannel, InsideTls) {
  TlsPair pair;
  const UniqueFd watched(fcntl(pair.sockets.b.get(), F_DUPFD_CLOEXEC, 0));
  SetupChannel a(std::move(pair.sockets.a), pair.client);
  SetupChannel b(std::move(pair.sockets.b), pair.server);
  const auto body = random_data(3001);
  ASSERT_EQ(a.queue(5, body.data(), body.size()), TW_OK);
  ASSERT_EQ(a.flush(), TW_OK);
  std::vector<std::byte> seen(8000);
  pollfd one{watched.get(), POLLIN, 0};
  ASSERT_EQ(poll(&one, 1, 5000), 1);
  ASSERT_GT(recv(watched.get(), seen.data(), seen.size(), MSG_PEEK), 64);
  EXPECT_EQ(std::search(seen.begin(), seen.end(), body.begin(), body.begin() + 16), seen.end()) << "sent in the clear";
  SetupChannel::Message message;
  ASSERT_EQ(receive(b, &message), TW_OK) << last_error();
  EXPECT_EQ(message.bytes, body);
  SSL* tls = a.take_tls();
  EXPECT_NE(tls, nullptr);
  SSL_free(tls);
}

TEST(SetupChannel, TlsThatIsTamperedWithIsAProtocolError) {
  TlsPair pair;
  SSL_free(pair.client);
  SetupChannel b(std::move(pair.sockets.b), pair.server);
  std::byte record[5 + 40] = {std::byte{0x17}, std::byte{3}, std::byte{3}, std::byte{0}, std::byte{40}};
  ASSERT_EQ(write(pair.sockets.a.get(), record, sizeof record), ssize_t(sizeof record));
  SetupChannel::Message message;
  EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
}

Status write_until_error(SetupChannel& channel) {
  Status status = TW_OK;
  for (int i = 0; i < 1000 && !is_error(status); ++i) {
    EXPECT_EQ(channel.queue(1, "x", 1), TW_OK);
    status = channel.flush();
  }
  return status;
}

TEST(SetupChannel, WritingToAClosedPeerIsAnErrorAndNoSignal) {
  SocketPair plain(true);
  SetupChannel a(std::move(plain.a), nullptr);
  plain.b.reset();
  EXPECT_EQ(write_until_error(a), TW_ERR_PEER_LOST) << last_error();

  TlsPair pair;
  SSL_free(pair.server);
  SetupChannel b(std::move(pair.sockets.a), pair.client);
  pair.sockets.b.reset();
  EXPECT_EQ(write_until_error(b), TW_ERR_PEER_LOST) << last_error();
}

}  // namespace
}  // namespace thalweg::impl
