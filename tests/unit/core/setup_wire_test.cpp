// SPDX-License-Identifier: Apache-2.0
// Set-up messages: cut, changed, or said by another worker than they name.
#include "core/setup_wire.hpp"

#include <cstdint>
#include <utility>

#include "unit/security/pair.hpp"

namespace thalweg::impl {
namespace {

TEST(SetupWire, CutMessagesAreRefused) {
  const std::byte zeros[256] = {};
  for (size_t length = 0; length <= sizeof zeros; ++length) {
    SetupChannel::Message message;
    message.bytes.assign(zeros, zeros + length);
    ConnectMessage connect;
    EXPECT_EQ(parse_connect({}, std::move(message), &connect), TW_ERR_PROTOCOL);
    message.bytes.assign(zeros, zeros + length);
    AcceptMessage accept;
    EXPECT_EQ(parse_accept({}, std::move(message), 7, &accept), TW_ERR_PROTOCOL);
  }
}

/// What one end of a session queued, as the other end has it.
struct SaidInSetup {
  Session session;
  SetupChannel near, far;
  SetupChannel::Message message;
  SaidInSetup() : SaidInSetup(test::SocketPair()) {}
  explicit SaidInSetup(test::SocketPair pair)
      : near(std::move(pair.a), nullptr, session), far(std::move(pair.b), nullptr, session) {}
  void carry() {
    ASSERT_EQ(near.flush(), TW_OK);
    ASSERT_EQ(far.receive(&message), TW_OK);
  }
  SetupChannel::Message copy(size_t changed) const {
    SetupChannel::Message out;
    out.bytes = message.bytes;
    if (changed < out.bytes.size()) out.bytes[changed] ^= std::byte{0x10};
    return out;
  }
};

TEST(SetupWire, AConnectIsFromTheWorkerThatItNames) {
  const WorkerIdentity me, other;
  for (const WorkerIdentity* signer : {&me, &other}) {
    SaidInSetup said;
    ConnectMessage sent, got;
    sent.target = 5;
    sent.worker = me.worker();
    sent.token = 9;
    sent.data.resize(20);
    ASSERT_EQ(queue_connect(said.near, sent, *signer), TW_OK);
    said.carry();
    Session elsewhere;
    elsewhere.binding[3] = std::byte{1};
    EXPECT_EQ(parse_connect(said.session, said.copy(SIZE_MAX), &got), signer == &me ? TW_OK : TW_ERR_AUTHENTICATION);
    EXPECT_EQ(parse_connect(elsewhere, said.copy(SIZE_MAX), &got), TW_ERR_AUTHENTICATION);
    for (size_t i = 0; i < said.message.bytes.size(); ++i)
      EXPECT_NE(parse_connect(said.session, said.copy(i), &got), TW_OK) << i;
  }
}

TEST(SetupWire, AnAcceptIsFromTheWorkerThatItNamesToTheOneThatCalled) {
  constexpr WorkerId kCaller = 77;
  const WorkerIdentity me, other;
  for (const WorkerIdentity* signer : {&me, &other}) {
    SaidInSetup said;
    AcceptMessage sent, got;
    sent.worker = me.worker();
    sent.answer.transport = "tcp";
    ASSERT_EQ(queue_accept(said.near, sent, *signer, kCaller), TW_OK);
    said.carry();
    EXPECT_EQ(parse_accept(said.session, said.copy(SIZE_MAX), kCaller, &got), signer == &me ? TW_OK : TW_ERR_AUTHENTICATION);
    EXPECT_EQ(parse_accept(said.session, said.copy(SIZE_MAX), kCaller + 1, &got), TW_ERR_AUTHENTICATION);
    for (size_t i = 0; i < said.message.bytes.size(); ++i)
      EXPECT_NE(parse_accept(said.session, said.copy(i), kCaller, &got), TW_OK) << i;
  }
}

}  // namespace
}  // namespace thalweg::impl
