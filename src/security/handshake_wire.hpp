// SPDX-License-Identifier: Apache-2.0
// Every byte that travels before a peer is trusted, and the header of set-up messages. Little endian. A change of any of
// these needs a new kVersionMax; the first eight bytes of Hello and Challenge never change.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace thalweg::impl::handshake_wire {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

constexpr uint32_t kHelloMagic = 0x31435754;      // "TWC1"
constexpr uint32_t kChallengeMagic = 0x31535754;  // "TWS1"
constexpr uint16_t kVersionMin = 3;
constexpr uint16_t kVersionMax = 3;

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

/// client -> server
struct Hello {
  uint32_t magic;
  uint16_t version_min;
  uint16_t version_max;
  uint64_t features;  // what the client can do
  Nonce nonce;
  uint16_t purpose;                // Purpose
  uint16_t carrier;                // Carrier
  uint32_t reserved;               // 0
  std::array<std::byte, 32> name;  // of the target (security/target.hpp)
};
static_assert(sizeof(Hello) == 88);
constexpr size_t kHelloFixed = 8;  // its part that never changes: enough to refuse another version

/// What carries the connection.
enum class Carrier : uint16_t { tcp = 1, unix_socket = 2 };

/// server -> client
struct Challenge {
  uint32_t magic;
  uint16_t version;   // the agreed version; 0: none in common, then the server closes
  uint16_t highest;   // the server's highest version, for the error text
  uint64_t features;  // bits both can do
  Nonce nonce;
};
static_assert(sizeof(Challenge) == 48);

/// client -> server: HMAC(transcript of "client")
struct Proof {
  Mac mac;
};
static_assert(sizeof(Proof) == 32);

enum class Answer : uint32_t {
  accepted = 0,
  wrong_proof = 1,  // the mac is zeros
  not_here = 2,     // the proof is right, but the client means another
};

/// server -> client: HMAC(transcript of "server", which has the answer and the client's mac). After a refusal the server
/// closes.
struct AuthenticationResult {
  uint32_t answer;
  Mac mac;
};
static_assert(sizeof(AuthenticationResult) == 36);

/// What both proofs cover, and what the session's keys are derived with, without holes.
struct Transcript {
  std::array<char, 8> role;  // "client", "server", "to serve", "to dial" or "binding", zero padded
  Hello hello;
  Challenge challenge;
  Mac tls_binding;   // exported from the TLS connection around it; zeros without TLS
  Mac client_proof;  // zeros in the client's own proof
  uint32_t answer;   // the server's; 0 in the client's proof
  uint32_t reserved;
};
static_assert(sizeof(Transcript) == 8 + 88 + 48 + 32 + 32 + 8);

// The keys of a session: HKDF-SHA256 with the job key's derivative for "session" as secret, both nonces (client's first) as
// salt, and the transcript of "to serve" (what the client sends) or "to dial" (what the server sends) as info. "binding"
// gives the value that workers sign (worker_identity.hpp).

/// Before every message of a session; behind its bytes comes HMAC(the direction's key, header and bytes).
struct SetupHeader {
  uint32_t length;  // of the bytes that follow, without the mac; <= SetupChannel's maximum
  uint16_t type;
  uint16_t fds;      // descriptors that travel with it, <= SetupChannel::kMaxFds; 0 except over unix sockets
  uint64_t counter;  // how many messages went this way before
};
static_assert(sizeof(SetupHeader) == 16);

}  // namespace thalweg::impl::handshake_wire
