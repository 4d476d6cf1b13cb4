// SPDX-License-Identifier: Apache-2.0
// Workers' ids and signatures: no other process can claim them.
#include "security/worker_identity.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "unit/security/pair.hpp"

namespace thalweg::impl {
namespace {

using test::key_of;
using test::random_data;

constexpr char kSecret[] = "a secret of more than sixteen bytes";
constexpr uint64_t kTo = 77;

Session session_with(unsigned char number) {
  Session session;
  session.binding.fill(std::byte{number});
  return session;
}

struct Said {
  WorkerIdentity me;
  Session session = session_with(1);
  std::vector<std::byte> message = random_data(301);
  Statement statement{Role::client, session, kTo, message};
  Signature signature{};
  Said() { EXPECT_EQ(me.sign(statement, &signature), TW_OK); }
};

TEST(WorkerIdentity, AnIdIsItsKeysFingerprint) {
  PublicKey key;  // of RFC 8032's first example
  constexpr unsigned char bytes[] = {0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe,
                                     0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6,
                                     0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};
  std::memcpy(key.data(), bytes, sizeof bytes);
  EXPECT_EQ(worker_of(key), 0x5060e15f9d29d5b9u);
  const WorkerIdentity one, other;
  EXPECT_EQ(one.status(), TW_OK);
  EXPECT_EQ(one.worker(), worker_of(one.key()));
  EXPECT_NE(one.worker(), other.worker());
  EXPECT_NE(one.worker(), 0u);
}

TEST(WorkerIdentity, WhatAWorkerSaidIsItsOwn) {
  const Said said;
  EXPECT_EQ(check_identity(said.me.worker(), said.me.key(), said.statement, said.signature), TW_OK);
}

TEST(WorkerIdentity, AnotherKeyIsNotTheOneOfTheId) {
  const Said victim, attacker;
  EXPECT_EQ(check_identity(victim.me.worker(), attacker.me.key(), attacker.statement, attacker.signature),
            TW_ERR_AUTHENTICATION);
  EXPECT_NE(std::string(last_error()).find("claims a worker id"), std::string::npos);
  EXPECT_EQ(check_identity(victim.me.worker() ^ 1, victim.me.key(), victim.statement, victim.signature), TW_ERR_AUTHENTICATION);
  EXPECT_EQ(check_identity(0, attacker.me.key(), attacker.statement, attacker.signature), TW_ERR_AUTHENTICATION);
}

TEST(WorkerIdentity, AnotherWorkersSignatureIsRefused) {
  const Said victim;
  const WorkerIdentity attacker;
  Signature forged;
  ASSERT_EQ(attacker.sign(victim.statement, &forged), TW_OK);
  EXPECT_EQ(check_identity(victim.me.worker(), victim.me.key(), victim.statement, forged), TW_ERR_AUTHENTICATION);
  EXPECT_EQ(check_identity(victim.me.worker(), victim.me.key(), victim.statement, {}), TW_ERR_AUTHENTICATION);
}

TEST(WorkerIdentity, ASignatureIsOfItsSessionRoleAddresseeAndMessage) {
  const Said said;
  const auto refused = [&](const Statement& other) {
    return check_identity(said.me.worker(), said.me.key(), other, said.signature) == TW_ERR_AUTHENTICATION;
  };
  const Session elsewhere = session_with(2);
  EXPECT_TRUE(refused({Role::client, elsewhere, kTo, said.message}));
  EXPECT_TRUE(refused({Role::server, said.session, kTo, said.message}));
  EXPECT_TRUE(refused({Role::client, said.session, kTo + 1, said.message}));
  for (size_t i = 0; i < said.message.size(); i += 50) {
    std::vector<std::byte> changed = said.message;
    changed[i] ^= std::byte{1};
    EXPECT_TRUE(refused({Role::client, said.session, kTo, changed})) << i;
  }
}

/// Both ends of a handshake name their session alike, and no other session has that name.
TEST(WorkerIdentity, EverySessionHasItsBinding) {
  std::vector<Session::Key> seen;
  for (const bool tls : {false, false, true, true}) {
    test::SocketPair pair(true);
    Handshake client(key_of(kSecret), 0, tls, test::meant()), server(key_of(kSecret), 0, tls, test::is_meant);
    test::shake(client, pair.a, server, pair.b);
    ASSERT_EQ(client.status(), TW_OK);
    const Session session = client.session();
    EXPECT_EQ(session.binding, server.session().binding);
    for (const Session::Key& other : {session.send, session.receive, Session::Key{}}) EXPECT_NE(session.binding, other);
    for (const Session::Key& other : seen) EXPECT_NE(session.binding, other);
    seen.push_back(session.binding);
  }
}

}  // namespace
}  // namespace thalweg::impl
