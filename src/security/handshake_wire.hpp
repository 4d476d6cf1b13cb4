// SPDX-License-Identifier: Apache-2.0
// Every byte that travels before a peer is trusted, and the header of set-up messages. Little endian. A change of any of these
// needs a new kVersionMax; the first eight bytes of Hello and Challenge never change.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace thalweg::impl::handshake_wire {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

constexpr uint32_t kHelloMagic = 0x31435754;      // "TWC1"
constexpr uint32_t kChallengeMagic = 0x31535754;  // "TWS1"
constexpr uint16_t kVersionMin = 1;
constexpr uint16_t kVersionMax = 1;

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

/// client -> server
struct Hello {
  uint32_t magic;
  uint16_t version_min;
  uint16_t version_max;
  uint64_t features;  // what the client can do
  Nonce nonce;
};
static_assert(sizeof(Hello) == 48);

/// server -> client
struct Challenge {
  uint32_t magic;
  uint16_t version;   // the agreed version; 0: none in common, then the server closes
  uint16_t highest;   // the server's highest version, for the error text
  uint64_t features;  // bits both can do
  Nonce nonce;
};
static_assert(sizeof(Challenge) == 48);

/// client -> server: HMAC("client" | transcript)
struct Proof {
  Mac mac;
};
static_assert(sizeof(Proof) == 32);

/// server -> client: HMAC("server" | transcript | client's mac). A refusal has code 1 and a mac of zeros, then a close.
struct Verdict {
  uint32_t code;  // 0 accepted, 1 refused: wrong proof
  Mac mac;
};
static_assert(sizeof(Verdict) == 36);

/// What both proofs cover, without holes.
struct Transcript {
  std::array<char, 8> role;  // "client" or "server", zero padded
  Hello hello;
  Challenge challenge;
  Mac tls_binding;   // exported from the TLS connection around it; zeros without TLS
  Mac client_proof;  // zeros in the client's own proof
};
static_assert(sizeof(Transcript) == 8 + 48 + 48 + 32 + 32);

/// Before every set-up message.
struct SetupHeader {
  uint32_t length;  // of the bytes that follow, <= SetupChannel::kMax
  uint16_t type;
  uint16_t fds;  // descriptors that travel with it, <= SetupChannel::kMaxFds; 0 except over unix sockets
};
static_assert(sizeof(SetupHeader) == 8);

}  // namespace thalweg::impl::handshake_wire
