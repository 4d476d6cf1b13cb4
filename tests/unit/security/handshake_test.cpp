// SPDX-License-Identifier: Apache-2.0
// The handshake between friends, and every kind of stranger: each ends in a named refusal, within bounded bytes.
#include "security/handshake.hpp"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <vector>

#include "base/clock.hpp"
#include "base/event_loop.hpp"
#include "security/handshake_wire.hpp"
#include "security/refusals.hpp"
#include "security/stream.hpp"
#include "unit/security/pair.hpp"

namespace thalweg::impl {
namespace {

using namespace test;
using namespace handshake_wire;

const char* const kSecret = "sixteen bytes or more of secret";
const char* const kOther = "another secret of a neighbour's job";

class HandshakeOver : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  bool tls() const { return std::get<0>(GetParam()); }
  SocketPair pair_{std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(All, HandshakeOver, ::testing::Combine(::testing::Bool(), ::testing::Bool()), [](const auto& info) {
  return std::string(std::get<0>(info.param) ? "Tls" : "Plain") + (std::get<1>(info.param) ? "Tcp" : "Unix");
});

TEST_P(HandshakeOver, SameKeySucceedsAndAgrees) {
  Handshake client(key_of(kSecret), 0b1011, tls(), meant());
  Handshake server(key_of(kSecret), 0b1110, tls(), is_meant);
  shake(client, pair_.a, server, pair_.b);
  EXPECT_EQ(client.status(), TW_OK) << client.text();
  EXPECT_EQ(server.status(), TW_OK) << server.text();
  EXPECT_EQ(client.features(), 0b1010u);
  EXPECT_EQ(server.features(), 0b1010u);
  EXPECT_EQ(client.version(), kVersionMax);
  EXPECT_EQ(server.version(), kVersionMax);
  EXPECT_EQ(client.refusal(), Refusal::none);
  // Nothing is left behind: data may follow at once.
  SSL* tls_a = client.take_tls();
  SSL* tls_b = server.take_tls();
  EXPECT_EQ(tls_a != nullptr, tls());
  const auto sent = random_data(777);
  ASSERT_EQ(stream_write(pair_.a.get(), tls_a, sent.data(), sent.size()).bytes, sent.size());
  std::vector<std::byte> got(2000);
  EXPECT_EQ(stream_read(pair_.b.get(), tls_b, got.data(), got.size()).bytes, sent.size());
  got.resize(sent.size());
  EXPECT_EQ(got, sent);
  SSL_free(tls_a);
  SSL_free(tls_b);
}

TEST_P(HandshakeOver, OtherKeyIsRefusedOnBothSidesWithRemedy) {
  Handshake client(key_of(kSecret), 0, tls(), meant());
  Handshake server(key_of(kOther), 0, tls(), is_meant);
  shake(client, pair_.a, server, pair_.b);
  EXPECT_EQ(server.status(), TW_ERR_AUTHENTICATION) << server.text();
  EXPECT_EQ(server.refusal(), Refusal::authentication);
  EXPECT_EQ(client.status(), TW_ERR_AUTHENTICATION) << client.text();
  EXPECT_NE(client.text().find("same key"), std::string::npos) << client.text();
  EXPECT_NE(server.text().find("job_key option"), std::string::npos) << server.text();
}

TEST_P(HandshakeOver, ScannerThatConnectsAndClosesIsCounted) {
  Handshake server(key_of(kSecret), 0, tls(), is_meant);
  EXPECT_EQ(server.advance(pair_.b.get()), Handshake::Want::read);
  pair_.a.reset();
  EXPECT_EQ(server.advance(pair_.b.get()), Handshake::Want::failed);
  EXPECT_EQ(server.refusal(), Refusal::closed);
}

TEST_P(HandshakeOver, RandomBytesAreMalformedAtOnce) {
  Handshake server(key_of(kSecret), 0, tls(), is_meant);
  auto noise = random_data(64);
  noise[0] = std::byte{0x80};  // neither magic nor TLS
  noise[2] = std::byte{0x99};  // nor the first greeting of SSL 2
  ASSERT_EQ(write(pair_.a.get(), noise.data(), noise.size()), 64);
  EXPECT_EQ(server.advance(pair_.b.get()), Handshake::Want::failed);
  EXPECT_EQ(server.refusal(), Refusal::malformed) << server.text();
  EXPECT_EQ(server.advance(pair_.b.get()), Handshake::Want::failed);  // for ever
}

/// The first message of a client with TLS, as it comes from the socket.
std::vector<std::byte> client_hello() {
  SocketPair pair;
  Handshake client(key_of(kSecret), 0, true, meant());
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  std::vector<std::byte> bytes(1 << 16);
  bytes.resize(size_t(std::max<ssize_t>(read(pair.b.get(), bytes.data(), bytes.size()), 0)));
  return bytes;
}

TEST(Handshake, AStrangersTlsCostsNothingBeforeItsFirstMessageIsThere) {
  const std::vector<std::byte> hello = client_hello();
  ASSERT_GT(hello.size(), 9u);
  EXPECT_LT(hello.size(), 2048u) << "half of what is allowed";
  SocketPair pair;
  Handshake server(key_of(kSecret), 0, true, is_meant);
  for (size_t i = 0; i + 1 < hello.size(); ++i) {
    ASSERT_EQ(write(pair.a.get(), &hello[i], 1), 1);
    ASSERT_EQ(server.advance(pair.b.get()), Handshake::Want::read) << i;
    ASSERT_EQ(server.take_tls(), nullptr) << i;
  }
  ASSERT_EQ(write(pair.a.get(), &hello.back(), 1), 1);
  EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::read);
  SSL* const tls = server.take_tls();
  EXPECT_NE(tls, nullptr);
  SSL_free(tls);
  std::byte answer;
  EXPECT_EQ(read(pair.a.get(), &answer, 1), 1) << "the server goes on";
}

TEST(Handshake, ATlsMessageThatNoClientBeginsWithIsRefusedByItsFirstBytes) {
  using Bytes = std::vector<unsigned char>;
  for (const Bytes& bytes : {Bytes{0x16, 3, 1, 0x40, 0, 1, 0x01, 0x86, 0xa0},  // 100,000 bytes, of which a record has 16,384
                             Bytes{0x16, 3, 1, 0x10, 1}, Bytes{0x16, 3, 1, 0xff, 0xff}, Bytes{0x16, 3, 1, 0, 3},
                             Bytes{0x16, 3, 1, 1, 0, 1, 1, 0x86, 0xa0}, Bytes{0x16, 3, 1, 1, 0, 1, 0, 0, 1},
                             Bytes{0x16, 3, 1, 1, 0, 2, 0, 0, 252}, Bytes{0x15, 3, 1, 0, 2}}) {
    SocketPair pair;
    Handshake server(key_of(kSecret), 0, true, is_meant);
    ASSERT_EQ(write(pair.a.get(), bytes.data(), bytes.size()), ssize_t(bytes.size()));
    EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::failed) << testing::PrintToString(bytes);
    EXPECT_EQ(server.refusal(), Refusal::malformed) << server.text();
    EXPECT_EQ(server.take_tls(), nullptr);
  }
}

TEST(Handshake, OneWrongByteIsEnough) {
  SocketPair pair;
  Handshake server(key_of(kSecret), 0, false, is_meant);
  ASSERT_EQ(write(pair.a.get(), "G", 1), 1);
  EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::failed);
  EXPECT_EQ(server.refusal(), Refusal::malformed);
}

TEST(Handshake, TlsAgainstPlainIsNamedOnBothSides) {
  for (const bool tls_client : {true, false}) {
    SocketPair pair;
    Handshake client(key_of(kSecret), 0, tls_client, meant());
    Handshake server(key_of(kSecret), 0, !tls_client, is_meant);
    shake(client, pair.a, server, pair.b);
    EXPECT_EQ(server.refusal(), Refusal::malformed) << server.text();
    EXPECT_NE(server.text().find("TLS on both sides"), std::string::npos) << server.text();
    EXPECT_TRUE(is_error(client.status())) << client.text();
  }
}

Hello hello_of(uint16_t lowest, uint16_t highest) {
  Hello hello{kHelloMagic, lowest, highest, 0, {}, 1, 1, 0, {}};
  EXPECT_EQ(random_bytes(hello.nonce.data(), hello.nonce.size()), TW_OK);
  return hello;
}

TEST(Handshake, FutureAndAbsurdVersionsAreRefusedWithAnAnswer) {
  for (const auto& [lowest, highest] : {std::pair<uint16_t, uint16_t>{kVersionMax + 1, kVersionMax + 5}, {0, 0}, {9, 3}}) {
    SocketPair pair;
    Handshake server(key_of(kSecret), 0, false, is_meant);
    const Hello hello = hello_of(lowest, highest);
    ASSERT_EQ(write(pair.a.get(), &hello, sizeof hello), ssize_t(sizeof hello));
    EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::failed);
    EXPECT_EQ(server.refusal(), Refusal::version);
    EXPECT_EQ(server.status(), TW_ERR_VERSION);
    Challenge answer{};
    ASSERT_EQ(read(pair.a.get(), &answer, sizeof answer), ssize_t(sizeof answer));
    EXPECT_EQ(answer.version, 0);
    EXPECT_EQ(answer.highest, kVersionMax);
  }
}

TEST(Handshake, AnEarlierVersionsShortHelloIsAnsweredAtOnce) {
  SocketPair pair;
  Handshake server(key_of(kSecret), 0, false, is_meant);
  const Hello hello = hello_of(1, 1);
  ASSERT_EQ(write(pair.a.get(), &hello, 48), 48);  // all of what version 1 sends
  EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::failed);
  EXPECT_EQ(server.refusal(), Refusal::version);
  Challenge answer{};
  ASSERT_EQ(read(pair.a.get(), &answer, sizeof answer), ssize_t(sizeof answer));
  EXPECT_EQ(answer.version, 0);
}

TEST(Handshake, ClientNamesAServerOfAnotherVersion) {
  for (const uint16_t version : {uint16_t(0), uint16_t(kVersionMax + 1)}) {
    SocketPair pair;
    Handshake client(key_of(kSecret), 0, false, meant());
    EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
    const Challenge challenge{kChallengeMagic, version, 7, 0, {}};
    ASSERT_EQ(write(pair.b.get(), &challenge, sizeof challenge), ssize_t(sizeof challenge));
    EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::failed);
    EXPECT_EQ(client.status(), TW_ERR_VERSION);
    EXPECT_NE(client.text().find("version 7"), std::string::npos) << client.text();
  }
}

TEST(Handshake, ServerMayNotInventFeatures) {
  SocketPair pair;
  Handshake client(key_of(kSecret), 1, false, meant());
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  const Challenge challenge{kChallengeMagic, kVersionMax, kVersionMax, 2, {}};
  ASSERT_EQ(write(pair.b.get(), &challenge, sizeof challenge), ssize_t(sizeof challenge));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::failed);
  EXPECT_EQ(client.refusal(), Refusal::malformed);
}

TEST(Handshake, ServerThatDoesNotKnowTheKeyIsFoundOut) {
  SocketPair pair;
  Handshake client(key_of(kSecret), 0, false, meant());
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  const Challenge challenge{kChallengeMagic, kVersionMax, kVersionMax, 0, {}};
  ASSERT_EQ(write(pair.b.get(), &challenge, sizeof challenge), ssize_t(sizeof challenge));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  const AuthenticationResult authentication_result{0, {}};  // "accepted", without a proof
  ASSERT_EQ(write(pair.b.get(), &authentication_result, sizeof authentication_result), ssize_t(sizeof authentication_result));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::failed);
  EXPECT_EQ(client.status(), TW_ERR_AUTHENTICATION);
}

// Copies everything that goes from one handshake to the other.
std::vector<std::byte> relay(int from, int to) {
  std::vector<std::byte> bytes(4096);
  const ssize_t n = read(from, bytes.data(), bytes.size());
  bytes.resize(n > 0 ? size_t(n) : 0);
  EXPECT_EQ(write(to, bytes.data(), bytes.size()), ssize_t(bytes.size()));
  return bytes;
}

TEST(Handshake, RecordedClientIsRefusedAsReplay) {
  SocketPair left, right;
  Handshake client(key_of(kSecret), 0, false, meant());
  Handshake server(key_of(kSecret), 0, false, is_meant);
  EXPECT_EQ(client.advance(left.a.get()), Handshake::Want::read);
  const auto hello = relay(left.b.get(), right.a.get());
  EXPECT_EQ(server.advance(right.b.get()), Handshake::Want::read);
  relay(right.a.get(), left.b.get());
  EXPECT_EQ(client.advance(left.a.get()), Handshake::Want::read);
  const auto proof = relay(left.b.get(), right.a.get());
  EXPECT_EQ(server.advance(right.b.get()), Handshake::Want::done);
  ASSERT_EQ(hello.size(), sizeof(Hello));
  ASSERT_EQ(proof.size(), sizeof(Proof));

  SocketPair again;
  Handshake second(key_of(kSecret), 0, false, is_meant);
  ASSERT_EQ(write(again.a.get(), hello.data(), hello.size()), ssize_t(hello.size()));
  ASSERT_EQ(write(again.a.get(), proof.data(), proof.size()), ssize_t(proof.size()));
  EXPECT_EQ(second.advance(again.b.get()), Handshake::Want::failed);
  EXPECT_EQ(second.refusal(), Refusal::replay);
  EXPECT_EQ(second.status(), TW_ERR_AUTHENTICATION);
}

TEST(Handshake, ProofReflectedAtItsMakerFails) {
  // One without the key hands a client its own nonce and its own proof back: the roles are in the proofs.
  SocketPair pair;
  Handshake client(key_of(kSecret), 0, false, meant());
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  Hello hello;
  ASSERT_EQ(read(pair.b.get(), &hello, sizeof hello), ssize_t(sizeof hello));
  const Challenge challenge{kChallengeMagic, kVersionMax, kVersionMax, 0, hello.nonce};
  ASSERT_EQ(write(pair.b.get(), &challenge, sizeof challenge), ssize_t(sizeof challenge));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  AuthenticationResult authentication_result{};
  ASSERT_EQ(read(pair.b.get(), &authentication_result.mac, sizeof authentication_result.mac),
            ssize_t(sizeof authentication_result.mac));
  ASSERT_EQ(write(pair.b.get(), &authentication_result, sizeof authentication_result), ssize_t(sizeof authentication_result));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::failed);
  EXPECT_EQ(client.refusal(), Refusal::authentication);
}

// --- the client's target

TEST_P(HandshakeOver, AnotherTargetIsRefusedOnBothSides) {
  struct Case {
    DialTarget target;
    Status status;
  };
  DialTarget store = meant(), listener = meant();
  store.purpose = Purpose::store;
  listener.purpose = Purpose::listener;
  for (const Case& one : {Case{DialTarget::of_worker(0x1122334455667788, 8), TW_ERR_STALE},
                          Case{DialTarget::of_worker(0x1122334455667789, 7), TW_ERR_STALE}, Case{store, TW_ERR_AUTHENTICATION},
                          Case{listener, TW_ERR_AUTHENTICATION}}) {
    SocketPair pair(std::get<1>(GetParam()));
    Handshake client(key_of(kSecret), 0, tls(), one.target);
    Handshake server(key_of(kSecret), 0, tls(), is_meant);
    shake(client, pair.a, server, pair.b);
    EXPECT_EQ(client.status(), one.status) << client.text();
    EXPECT_EQ(client.refusal(), Refusal::target) << client.text();
    EXPECT_EQ(server.refusal(), Refusal::target) << server.text();
  }
}

TEST_P(HandshakeOver, BothEndsDeriveTheSameKeysOfEachConnection) {
  std::vector<Session::Key> seen;
  for (int i = 0; i < 2; ++i) {
    SocketPair pair(std::get<1>(GetParam()));
    Handshake client(key_of(kSecret), 0, tls(), meant());
    Handshake server(key_of(kSecret), 0, tls(), is_meant);
    shake(client, pair.a, server, pair.b);
    ASSERT_EQ(server.status(), TW_OK) << server.text();
    EXPECT_EQ(server.target(), meant());
    EXPECT_EQ(client.session().send, server.session().receive);
    EXPECT_EQ(client.session().receive, server.session().send);
    for (const Session::Key& key : {client.session().send, client.session().receive}) {
      EXPECT_EQ(std::find(seen.begin(), seen.end(), key), seen.end());
      seen.push_back(key);
    }
  }
}

// Copies the four messages from one handshake to the other.
void carry(Handshake& client, int client_end, Handshake& server, int server_end, int near, int far) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client.advance(client_end), Handshake::Want::read);
    relay(near, far);
    server.advance(server_end);
    relay(far, near);
  }
  client.advance(client_end);
}

TEST(Handshake, CarriedOverAnotherKindOfSocketIsRefused) {
  SocketPair left(true), right(false);
  Handshake client(key_of(kSecret), 0, false, meant());
  Handshake server(key_of(kSecret), 0, false, is_meant);
  carry(client, left.a.get(), server, right.b.get(), left.b.get(), right.a.get());
  EXPECT_EQ(server.refusal(), Refusal::target);
  EXPECT_EQ(client.refusal(), Refusal::target) << client.text();
}

TEST(Handshake, CarriedToTheOneMeantItHoldsButTheCarrierHasNoKey) {
  SocketPair left(true), right(true);
  Handshake client(key_of(kSecret), 0, false, meant());
  Handshake server(key_of(kSecret), 0, false, is_meant);
  carry(client, left.a.get(), server, right.b.get(), left.b.get(), right.a.get());
  ASSERT_EQ(client.status(), TW_OK) << client.text();
  ASSERT_EQ(server.status(), TW_OK) << server.text();
  SetupChannel to(std::move(right.b), nullptr, server.session());
  Session guess;
  const auto forged = signed_message(guess, {0, 1, 0, 0});
  ASSERT_EQ(write(right.a.get(), forged.data(), forged.size()), ssize_t(forged.size()));
  SetupChannel::Message message;
  EXPECT_EQ(to.receive(&message), TW_ERR_AUTHENTICATION);
}

TEST(Handshake, AnUnprovenAnswerThatItIsNotHereIsNotBelieved) {
  SocketPair pair;
  Handshake client(key_of(kSecret), 0, false, meant());
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  const Challenge challenge{kChallengeMagic, kVersionMax, kVersionMax, 0, {}};
  ASSERT_EQ(write(pair.b.get(), &challenge, sizeof challenge), ssize_t(sizeof challenge));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  const AuthenticationResult authentication_result{uint32_t(Answer::not_here), {}};
  ASSERT_EQ(write(pair.b.get(), &authentication_result, sizeof authentication_result), ssize_t(sizeof authentication_result));
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::failed);
  EXPECT_EQ(client.refusal(), Refusal::authentication);
}

TEST_P(HandshakeOver, WorksByteByByte) {
  SocketPair far(std::get<1>(GetParam()));
  Handshake client(key_of(kSecret), 3, tls(), meant());
  Handshake server(key_of(kSecret), 1, tls(), is_meant);
  auto want_a = Handshake::Want::read;
  auto want_b = Handshake::Want::read;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!(over(want_a) && over(want_b)) && std::chrono::steady_clock::now() < limit) {
    if (!over(want_a)) want_a = client.advance(pair_.a.get());
    if (!over(want_b)) want_b = server.advance(far.b.get());
    char byte;
    if (read(pair_.b.get(), &byte, 1) == 1) {
      EXPECT_EQ(write(far.a.get(), &byte, 1), 1);
    }
    if (read(far.a.get(), &byte, 1) == 1) {
      EXPECT_EQ(write(pair_.b.get(), &byte, 1), 1);
    }
  }
  EXPECT_EQ(client.status(), TW_OK) << client.text();
  EXPECT_EQ(server.status(), TW_OK) << server.text();
}

TEST(Handshake, SlowLorisIsEndedByItsOwnersTimer) {
  // How an owner uses it: one timer per stranger, set at accept; the trickle of bytes does not move it.
  SocketPair pair;
  EventLoop loop;
  ASSERT_EQ(loop.start(), TW_OK);
  RefusalCounters counters;
  auto handshake = std::make_unique<Handshake>(key_of(kSecret), 0, false, is_meant);
  std::promise<void> ended;
  const uint64_t start = monotonic_ns();
  loop.call([&] {
    loop.after(200 * kMillisecond, [&] {
      loop.remove(pair.b.get());
      counters.count(Refusal::timeout);
      handshake.reset();
      pair.b.reset();
      ended.set_value();
    });
    const auto ready = [&](uint32_t) { EXPECT_EQ(handshake->advance(pair.b.get()), Handshake::Want::read); };
    EXPECT_EQ(loop.add(pair.b.get(), EPOLLIN, ready), TW_OK);
  });
  const Hello hello = hello_of(kVersionMin, kVersionMax);
  const auto* bytes = reinterpret_cast<const char*>(&hello);
  auto future = ended.get_future();
  size_t sent = 0;
  while (future.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    ASSERT_LT(monotonic_ns() - start, 20 * kSecond);
    if (sent + 1 < sizeof hello && send(pair.a.get(), bytes + sent, 1, MSG_NOSIGNAL) == 1) ++sent;
  }
  EXPECT_GT(sent, 0u);
  EXPECT_EQ(counters.value(Refusal::timeout), 1u);
  EXPECT_EQ(counters.value(Refusal::timeout), 1u);
  EXPECT_EQ(counters.value(Refusal::replay), 0u);
  loop.stop();
}

TEST(Handshake, ReadsNothingBehindItsLastByte) {
  SocketPair pair;
  Handshake client(key_of(kSecret), 0, false, meant());
  Handshake server(key_of(kSecret), 0, false, is_meant);
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::read);
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::read);
  ASSERT_EQ(write(pair.a.get(), "early", 5), 5);
  EXPECT_EQ(server.advance(pair.b.get()), Handshake::Want::done);
  ASSERT_EQ(write(pair.b.get(), "also early", 10), 10);
  EXPECT_EQ(client.advance(pair.a.get()), Handshake::Want::done);
  char buffer[64] = {};
  EXPECT_EQ(read(pair.b.get(), buffer, sizeof buffer), 5);
  EXPECT_STREQ(buffer, "early");
  EXPECT_EQ(read(pair.a.get(), buffer, sizeof buffer), 10);
}

}  // namespace
}  // namespace thalweg::impl
