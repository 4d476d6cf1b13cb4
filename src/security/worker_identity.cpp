// SPDX-License-Identifier: Apache-2.0
// Key pairs, fingerprints and signatures of workers, by OpenSSL.
#include "security/worker_identity.hpp"

#include <openssl/evp.h>

#include <cstring>
#include <vector>

namespace thalweg::impl {
namespace {

constexpr char kIdLabel[] = "thalweg worker id 1",
               kStatementLabel[] = "thalweg statement 1";  // hashed and signed with their NUL

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;
Context make_context() { return {EVP_MD_CTX_new(), &EVP_MD_CTX_free}; }

void append(std::vector<std::byte>& text, const void* bytes, size_t length) {
  const auto* first = static_cast<const std::byte*>(bytes);
  text.insert(text.end(), first, first + length);
}

/// label, role ("client" or "server", 8 bytes), the session's binding, the worker spoken to, the message.
std::vector<std::byte> text_of(const Statement& statement) {
  std::array<char, 8> role{};
  std::memcpy(role.data(), statement.role == Role::client ? "client" : "server", 6);
  std::vector<std::byte> text;
  append(text, kStatementLabel, sizeof kStatementLabel);
  append(text, role.data(), role.size());
  append(text, statement.session.binding.data(), statement.session.binding.size());
  append(text, &statement.to, sizeof statement.to);
  append(text, statement.message.data(), statement.message.size());
  return text;
}

bool verifies(const PublicKey& key, const std::vector<std::byte>& text, const Signature& signature) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> theirs(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(key.data()), key.size()), &EVP_PKEY_free);
  const Context context = make_context();
  return theirs && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, theirs.get()) == 1 &&
         EVP_DigestVerify(context.get(), raw(signature.data()), signature.size(), raw(text.data()), text.size()) == 1;
}

}  // namespace

uint64_t worker_of(const PublicKey& key) {
  std::vector<std::byte> text;
  append(text, kIdLabel, sizeof kIdLabel);
  append(text, key.data(), key.size());
  std::array<std::byte, 32> hash{};
  if (EVP_Digest(text.data(), text.size(), raw(hash.data()), nullptr, EVP_sha256(), nullptr) != 1) return 0;
  uint64_t worker;
  std::memcpy(&worker, hash.data(), sizeof worker);
  return worker;
}

WorkerIdentity::WorkerIdentity() : pair_(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), &EVP_PKEY_free) {
  size_t length = key_.size();
  if (pair_ && EVP_PKEY_get_raw_public_key(pair_.get(), raw(key_.data()), &length) == 1 && length == key_.size())
    worker_ = worker_of(key_);
}

WorkerIdentity::~WorkerIdentity() = default;

Status WorkerIdentity::status() const {
  if (worker_ != 0) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED,
              "OpenSSL makes no Ed25519 key, which a worker proves its id with: a FIPS configuration may forbid it");
}

Status WorkerIdentity::sign(const Statement& statement, Signature* out) const {
  const std::vector<std::byte> text = text_of(statement);
  const Context context = make_context();
  size_t length = out->size();
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pair_.get()) != 1 ||
      EVP_DigestSign(context.get(), raw(out->data()), &length, raw(text.data()), text.size()) != 1 || length != out->size()) {
    return fail(TW_ERR_NO_MEMORY, "OpenSSL could not sign a set-up message");
  }
  return TW_OK;
}

Status check_identity(uint64_t claimed, const PublicKey& key, const Statement& statement, const Signature& signature) {
  if (claimed == 0 || claimed != worker_of(key)) {
    return fail(TW_ERR_AUTHENTICATION, "the peer claims a worker id that is not the one of its key: it is another worker's");
  }
  if (!verifies(key, text_of(statement), signature)) {
    return fail(TW_ERR_AUTHENTICATION,
                "the peer claims a worker id and does not prove it: its signature is not that worker's, or is of another "
                "connection");
  }
  return TW_OK;
}

}  // namespace thalweg::impl
