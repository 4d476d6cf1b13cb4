// SPDX-License-Identifier: Apache-2.0
// What the two ends of a handshake hold in common afterwards: a key and a counter for each direction of the messages that
// follow on this connection (SetupChannel). They travel with the socket when it is handed on.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace thalweg::impl {

struct Session {
  using Key = std::array<std::byte, 32>;
  Key send{}, receive{};  // zeros: pairs that tests make without a handshake
  Key binding{};          // names this session and no other, the same at both ends: signatures are bound to it
  uint64_t sent = 0, received = 0;
  Session() = default;
  Session(const Session&) = default;
  Session& operator=(const Session&) = default;
  ~Session();  // wipes the keys
};

/// HMAC-SHA256 over the pieces as if they were one.
Session::Key authenticate(const Session::Key& key, std::span<const std::span<const std::byte>> pieces);

/// HKDF-SHA256 (RFC 5869), 32 bytes.
Session::Key derive_key(std::span<const std::byte> secret, std::span<const std::byte> salt, std::span<const std::byte> info);

}  // namespace thalweg::impl
