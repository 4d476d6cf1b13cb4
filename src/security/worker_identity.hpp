// SPDX-License-Identifier: Apache-2.0
// A worker's identity: an Ed25519 key pair of its lifetime; its id is the fingerprint of the public key. So knowing an id,
// with the job key or without it, is not enough to claim it in a connection's set-up.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "security/handshake.hpp"

typedef struct evp_pkey_st EVP_PKEY;

namespace thalweg::impl {

using PublicKey = std::array<std::byte, 32>;
using Signature = std::array<std::byte, 64>;

/// What a worker signs: a set-up message in one session, from one side of it to one worker.
struct Statement {
  Role role;                           // of the signer
  const Session& session;              // its binding is signed, no key of it
  uint64_t to;                         // id of the worker that is spoken to, 0: a listener's
  std::span<const std::byte> message;  // all of it before the signature: the signer's id, incarnation and public key
};

class WorkerIdentity {
 public:
  WorkerIdentity();  // a fresh key pair
  ~WorkerIdentity();
  WorkerIdentity(const WorkerIdentity&) = delete;
  WorkerIdentity& operator=(const WorkerIdentity&) = delete;
  /// The worker's id. 0: OpenSSL makes no such keys; see status().
  uint64_t worker() const { return worker_; }
  Status status() const;
  const PublicKey& key() const { return key_; }
  /// One thread at a time.
  Status sign(const Statement& statement, Signature* out) const;

 private:
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> pair_;
  PublicKey key_{};
  uint64_t worker_ = 0;
};

/// The id of the worker that has this key: the first eight bytes of SHA-256(label, key).
uint64_t worker_of(const PublicKey& key);

/// TW_ERR_AUTHENTICATION unless the worker `claimed` has this key and signed this.
Status check_identity(uint64_t claimed, const PublicKey& key, const Statement& statement, const Signature& signature);

}  // namespace thalweg::impl
