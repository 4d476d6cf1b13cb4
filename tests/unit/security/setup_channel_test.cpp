// SPDX-License-Identifier: Apache-2.0
// Set-up messages: sizes, descriptors, exact reads, and peers that break the rules.
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/passed_descriptors.hpp"
#include "security/handshake_wire.hpp"
#include "security/stream.hpp"
#include "security/tls.hpp"
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
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
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
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
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
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
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
    SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
    pair.a.reset();
    SetupChannel::Message message;
    EXPECT_EQ(receive(b, &message), TW_ERR_CLOSED);
  }
  SocketPair pair(GetParam());
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
  const SetupHeader header{100, 1, 0, 0};
  ASSERT_EQ(write(pair.a.get(), &header, sizeof header), ssize_t(sizeof header));
  ASSERT_EQ(write(pair.a.get(), "some", 4), 4);
  pair.a.reset();
  SetupChannel::Message message;
  EXPECT_EQ(receive(b, &message), TW_ERR_PEER_LOST);
}

TEST_P(ChannelOver, BadHeadersAreProtocolErrorsForEver) {
  for (const SetupHeader& header : {SetupHeader{SetupChannel::kMax + 1, 1, 0, 0}, SetupHeader{UINT32_MAX, 1, 0, 0},
                                    SetupHeader{0, 1, SetupChannel::kMaxFds + 1, 0}, SetupHeader{0, 1, 1, 0}}) {
    SocketPair pair(GetParam());
    SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
    Session session = session_of(Role::client);
    const auto bytes = signed_message(session, header);
    ASSERT_EQ(write(pair.a.get(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
    SetupChannel::Message message;
    EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
    EXPECT_EQ(b.receive(&message), TW_ERR_PROTOCOL);
  }
}

TEST(SetupChannel, DescriptorsArriveWithTheirMessage) {
  const size_t before = open_descriptors();
  {
    SocketPair pair;
    SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
    SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
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
    SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
    Session session = session_of(Role::client);
    const auto bytes = signed_message(session, {0, 1, 0, 0});
    send_raw(pair.a.get(), bytes.data(), bytes.size(), pair.a.get(), copies);
    SetupChannel::Message message;
    EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
    EXPECT_TRUE(message.fds.empty());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SetupChannel, DescriptorsWithEveryByteDoNotPileUp) {
  const size_t before = open_descriptors();
  SocketPair pair;
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
  const SetupHeader header{4000, 1, 1, 0};
  const auto body = random_data(100);
  send_raw(pair.a.get(), &header, sizeof header, pair.a.get(), 1);
  for (const std::byte& byte : body) send_raw(pair.a.get(), &byte, 1, pair.a.get(), 1);
  SetupChannel::Message message;
  EXPECT_EQ(receive(b, &message), TW_ERR_PROTOCOL);
  EXPECT_LE(open_descriptors(), before + 2);  // the socket pair
}

/// Out of descriptors: not the peer's fault, and the channel goes on.
// ---- what its sender makes slow to close

constexpr int kLingers = 10;  // seconds

/// Beside a byte; the other side then has the last one.
void pass(int socket, UniqueFd given) {
  char byte = 0x31;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof space;
  cmsghdr* const first = CMSG_FIRSTHDR(&header);
  *first = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  const int fd = given.get();
  std::memcpy(CMSG_DATA(first), &fd, sizeof fd);
  EXPECT_EQ(sendmsg(socket, &header, 0), 1);
}

/// A TCP socket whose last close waits: full, and its peer never reads.
struct Lingering {
  SocketPair tcp{true};
  Lingering() {
    std::vector<char> much(1 << 16);
    while (send(tcp.a.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger waits{1, kLingers};
    EXPECT_EQ(setsockopt(tcp.a.get(), SOL_SOCKET, SO_LINGER, &waits, sizeof waits), 0);
  }
  /// Beside a byte; the other side then has the last one.
  void pass(int socket) { impl::pass(socket, std::move(tcp.a)); }
};

TEST(PassedDescriptors, OneThatLingersEndsTheChannelAtOnce) {
  SocketPair pair;
  Lingering slow;
  slow.pass(pair.a.get());
  const uint64_t begin = monotonic_ns();
  {
    SetupChannel channel(std::move(pair.b), nullptr, session_of(Role::server));
    SetupChannel::Message message;
    EXPECT_EQ(channel.receive(&message), TW_ERR_PROTOCOL);
  }
  EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
}

TEST(PassedDescriptors, OneThatNobodyReadsDoesNotHoldUpTheEndOfAChannel) {
  SocketPair pair;
  Lingering slow;
  slow.pass(pair.a.get());
  const uint64_t begin = monotonic_ns();
  { const SetupChannel channel(std::move(pair.b), nullptr, session_of(Role::server)); }
  EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
}

TEST(PassedDescriptors, OneBesideAHandshakeDoesNotHoldItUp) {
  SocketPair pair;
  Lingering slow;
  slow.pass(pair.a.get());
  const uint64_t begin = monotonic_ns();
  char byte = 0;
  const IoResult result = stream_read(pair.b.get(), nullptr, &byte, 1);
  EXPECT_EQ(result.state, IoState::moved);
  EXPECT_EQ(byte, 0x31);
  EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
  // Nor the library's other closes, which a lock keeps apart from fork().
  UniqueFd(dup(pair.a.get())).reset();
  EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
}

/// A unix socket may hold others in its queue.
TEST(PassedDescriptors, OneInTheQueueOfAnotherDoesNotHoldItUp) {
  SocketPair pair, inner;
  Lingering slow;
  slow.pass(inner.a.get());
  SetupChannel sender(std::move(pair.a), nullptr, session_of(Role::client));
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(inner.b));
  ASSERT_EQ(sender.queue(1, "x", 1, std::move(fds)), TW_OK);
  ASSERT_EQ(sender.flush(), TW_OK);
  SetupChannel channel(std::move(pair.b), nullptr, session_of(Role::server));
  const uint64_t begin = monotonic_ns();
  {
    SetupChannel::Message message;
    EXPECT_EQ(channel.receive(&message), TW_OK) << last_error();
    EXPECT_EQ(message.fds.size(), 1u);
  }
  EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
}

/// However deep they lie in each other: a thread's stack bears it.
TEST(PassedDescriptors, OnesInTheQueuesOfOthersCostNoStack) {
  constexpr int kDeep = 300;
  SocketPair outer;
  UniqueFd inside;
  for (int i = 0; i < kDeep; ++i) {
    SocketPair around;
    if (i != 0) pass(around.a.get(), std::move(inside));
    inside = std::move(around.b);
  }
  pass(outer.a.get(), std::move(inside));
  const auto read_one = [](void* socket) -> void* {
    char byte = 0;
    EXPECT_EQ(stream_read(*static_cast<int*>(socket), nullptr, &byte, 1).state, IoState::moved);
    return nullptr;
  };
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256u << 10), 0);
  pthread_t thread{};
  int socket = outer.b.get();
  ASSERT_EQ(pthread_create(&thread, &attributes, read_one, &socket), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

/// More than there are threads that close.
TEST(PassedDescriptors, ManyThatLingerAreClosedSoon) {
  SocketPair pair;
  const size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    Lingering slow;
    slow.pass(pair.a.get());
    char byte = 0;
    ASSERT_EQ(stream_read(pair.b.get(), nullptr, &byte, 1).state, IoState::moved);
  }
  const uint64_t end = monotonic_ns() + 3 * kSecond;
  while (open_descriptors() > before && monotonic_ns() < end) usleep(10'000);
  EXPECT_LE(open_descriptors(), before);
}

TEST(PassedDescriptors, RefusedOnesAreNotEvenSentWhereTheKernelKnowsHow) {
  SocketPair pair;
  int takes = 0;
  socklen_t length = sizeof takes;
  if (getsockopt(pair.b.get(), SOL_SOCKET, 83, &takes, &length) != 0) GTEST_SKIP() << "no SO_PASSRIGHTS here";
  refuse_descriptors(pair.b.get());
  ASSERT_EQ(getsockopt(pair.b.get(), SOL_SOCKET, 83, &takes, &length), 0);
  EXPECT_EQ(takes, 0);
  refuse_descriptors(pair.b.get(), false);
  ASSERT_EQ(getsockopt(pair.b.get(), SOL_SOCKET, 83, &takes, &length), 0);
  EXPECT_EQ(takes, 1);
}

TEST(SetupChannel, DescriptorsThatThisProcessHasNoRoomForFailTheirMessageAlone) {
  SocketPair pair;
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
  const auto contents = random_data(50), body = random_data(77);
  const UniqueFd file = memory_with(contents);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const bool short_of : {false, true, false}) {
    const int fds[] = {file.get(), file.get()};
    ASSERT_EQ(a.queue(7, body.data(), body.size(), fds, 2), TW_OK);
    const rlimit none{0, before.rlim_max};
    if (short_of) {
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    const Status flushed = a.flush();
    SetupChannel::Message message;
    const Status status = flushed == TW_OK ? b.receive(&message) : flushed;
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(status, short_of ? TW_ERR_NO_DESCRIPTORS : TW_OK) << last_error();
    EXPECT_EQ(message.type, 7);
    EXPECT_EQ(message.bytes, body);
    EXPECT_EQ(message.fds.size(), short_of ? 0u : 2u);
  }
}

TEST(SetupChannel, DescriptorsNeedAUnixSocketAndSizesALimit) {
  SocketPair pair(true);
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
  const int fd = 0;
  EXPECT_EQ(a.queue(1, nullptr, 0, &fd, 1), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(a.queue(1, nullptr, SetupChannel::kMax + 1), TW_ERR_LIMIT);
}

// --- on its way

struct OnItsWay {
  SocketPair pair{true};
  Session from = session_of(Role::client);
  SetupChannel to{std::move(pair.b), nullptr, session_of(Role::server)};
  std::vector<std::byte> make(const char* text) {
    std::vector<std::byte> body(std::strlen(text));
    std::memcpy(body.data(), text, body.size());
    return signed_message(from, {uint32_t(body.size()), 3, 0, 0}, body);
  }
  Status deliver(const std::vector<std::byte>& bytes, SetupChannel::Message* message) {
    EXPECT_EQ(write(pair.a.get(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
    return receive(to, message);
  }
};

TEST(SetupChannel, EveryChangedBitIsNoticedAndForEver) {
  for (size_t at = 0; at < sizeof(SetupHeader) + 5 + 32; ++at) {
    OnItsWay way;
    auto bytes = way.make("words");
    bytes[at] ^= std::byte{0x10};
    bytes.resize(bytes.size() + SetupChannel::kMax);  // enough for any length that it may say now
    SetupChannel::Message message;
    const Status status = way.deliver(bytes, &message);
    EXPECT_TRUE(status == TW_ERR_AUTHENTICATION || status == TW_ERR_PROTOCOL) << at << ": " << status_name(status);
    EXPECT_TRUE(message.bytes.empty());
    EXPECT_EQ(way.to.receive(&message), status);
  }
}

TEST(SetupChannel, RepeatedLeftOutAndReflectedMessagesAreNoticed) {
  SetupChannel::Message message;
  {
    OnItsWay way;
    const auto first = way.make("first");
    ASSERT_EQ(way.deliver(first, &message), TW_OK);
    EXPECT_EQ(way.deliver(first, &message), TW_ERR_AUTHENTICATION);
    EXPECT_NE(std::string(last_error()).find("counter"), std::string::npos) << last_error();
  }
  {
    OnItsWay way;
    (void)way.make("left out");
    EXPECT_EQ(way.deliver(way.make("second"), &message), TW_ERR_AUTHENTICATION);
  }
  OnItsWay way;
  way.from = session_of(Role::server);  // its own message comes back
  EXPECT_EQ(way.deliver(way.make("words"), &message), TW_ERR_AUTHENTICATION);
}

TEST(SetupChannel, GoesOnOverTheSameSocket) {
  SocketPair pair;
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server));
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client));
  SetupChannel::Message message;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(a.queue(1, "x", 1), TW_OK);
    ASSERT_EQ(a.flush(), TW_OK);
    ASSERT_EQ(receive(b, &message), TW_OK) << last_error();
    const Session session = a.session();
    EXPECT_EQ(session.sent, uint64_t(i + 1));
    UniqueFd socket = a.take_socket();
    a.~SetupChannel();
    new (&a) SetupChannel(std::move(socket), nullptr, session);
  }
}

TEST(SetupChannel, LargerMessagesWhereTheyAreAllowed) {
  SocketPair pair;
  constexpr size_t kLarge = 300'001;
  SetupChannel a(std::move(pair.a), nullptr, session_of(Role::client), kLarge);
  SetupChannel b(std::move(pair.b), nullptr, session_of(Role::server), kLarge);
  const auto body = random_data(kLarge);
  ASSERT_EQ(a.queue(1, body.data(), body.size()), TW_OK);
  SetupChannel::Message message;
  Status status = TW_IN_PROGRESS;
  for (int i = 0; i < 100'000 && status == TW_IN_PROGRESS; ++i) {
    ASSERT_FALSE(is_error(a.flush())) << last_error();
    status = b.receive(&message);
  }
  ASSERT_EQ(status, TW_OK) << last_error();
  EXPECT_EQ(message.bytes, body);
}

struct TlsPair {
  SocketPair sockets{true};
  SSL* client = nullptr;
  SSL* server = nullptr;
  TlsPair() {
    Handshake a(key_of("sixteen bytes and then some"), 0, true, meant());
    Handshake b(key_of("sixteen bytes and then some"), 0, true, is_meant);
    shake(a, sockets.a, b, sockets.b);
    EXPECT_EQ(b.status(), TW_OK);
    client = a.take_tls();
    server = b.take_tls();
  }
};

TEST(SetupChannel, InsideTls) {
  TlsPair pair;
  const UniqueFd watched(fcntl(pair.sockets.b.get(), F_DUPFD_CLOEXEC, 0));
  SetupChannel a(std::move(pair.sockets.a), pair.client, session_of(Role::client));
  SetupChannel b(std::move(pair.sockets.b), pair.server, session_of(Role::server));
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

int key_updates = 0;

void count_key_updates(int, int, int content_type, const void* bytes, size_t length, SSL*, void*) {
  constexpr unsigned char kKeyUpdate = 24;
  key_updates += content_type == SSL3_RT_HANDSHAKE && length > 0 && *static_cast<const unsigned char*>(bytes) == kKeyUpdate;
}

TEST(SetupChannel, TlsRenewsItsKeysAndNothingIsLost) {
  TlsPair pair;
  key_updates = 0;
  SSL_set_msg_callback(pair.server, count_key_updates);
  set_records_per_key(pair.client, 10);
  SetupChannel a(std::move(pair.sockets.a), pair.client, session_of(Role::client));
  SetupChannel b(std::move(pair.sockets.b), pair.server, session_of(Role::server));
  for (int i = 0; i < 100; ++i) {
    const auto body = random_data(size_t(i) * 30);
    SetupChannel::Message message;
    ASSERT_EQ(a.queue(5, body.data(), body.size()), TW_OK);
    ASSERT_EQ(a.flush(), TW_OK);
    ASSERT_EQ(receive(b, &message), TW_OK) << last_error();
    EXPECT_EQ(message.bytes, body);
    ASSERT_EQ(b.queue(6, "answer", 6), TW_OK);
    ASSERT_EQ(b.flush(), TW_OK);
    ASSERT_EQ(receive(a, &message), TW_OK) << last_error();
  }
  EXPECT_GE(key_updates, 9);  // the tenth may wait for a write
}

TEST(SetupChannel, TlsThatIsTamperedWithIsAProtocolError) {
  TlsPair pair;
  SSL_free(pair.client);
  SetupChannel b(std::move(pair.sockets.b), pair.server, session_of(Role::server));
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
  SetupChannel a(std::move(plain.a), nullptr, session_of(Role::client));
  plain.b.reset();
  EXPECT_EQ(write_until_error(a), TW_ERR_PEER_LOST) << last_error();

  TlsPair pair;
  SSL_free(pair.server);
  SetupChannel b(std::move(pair.sockets.a), pair.client, session_of(Role::client));
  pair.sockets.b.reset();
  EXPECT_EQ(write_until_error(b), TW_ERR_PEER_LOST) << last_error();
}

}  // namespace
}  // namespace thalweg::impl
