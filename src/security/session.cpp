// SPDX-License-Identifier: Apache-2.0
// Session keys by OpenSSL's EVP_KDF and EVP_MAC.
#include "security/session.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace thalweg::impl {
namespace {

// Only without memory, or with an OpenSSL that lacks SHA-256. A predictable value would be an open door: stop here.
[[noreturn]] void cannot_go_on(const char* what) {
  std::fprintf(stderr, "thalweg: %s failed in OpenSSL; cannot go on safely\n", what);
  std::abort();
}

char digest_name[] = "SHA256";

OSSL_PARAM octets(const char* name, std::span<const std::byte> bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()), bytes.size());
}

const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

Session::~Session() {
  OPENSSL_cleanse(send.data(), send.size());
  OPENSSL_cleanse(receive.data(), receive.size());
}

Session::Key authenticate(const Session::Key& key, std::span<const std::span<const std::byte>> pieces) {
  static EVP_MAC* const hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(hmac ? EVP_MAC_CTX_new(hmac) : nullptr,
                                                                          &EVP_MAC_CTX_free);
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest_name, 0),
                                   OSSL_PARAM_construct_end()};
  bool good = context && EVP_MAC_init(context.get(), raw(key.data()), key.size(), parameters) == 1;
  for (const auto& piece : pieces) {
    if (!piece.empty()) good = good && EVP_MAC_update(context.get(), raw(piece.data()), piece.size()) == 1;
  }
  Session::Key out;
  size_t length = 0;
  if (!good || EVP_MAC_final(context.get(), raw(out.data()), &length, out.size()) != 1 || length != out.size())
    cannot_go_on("HMAC-SHA256");
  return out;
}

Session::Key derive_key(std::span<const std::byte> secret, std::span<const std::byte> salt, std::span<const std::byte> info) {
  static EVP_KDF* const hkdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(hkdf ? EVP_KDF_CTX_new(hkdf) : nullptr,
                                                                          &EVP_KDF_CTX_free);
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest_name, 0),
                                   octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, salt),
                                   octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  Session::Key out;
  if (!context || EVP_KDF_derive(context.get(), raw(out.data()), out.size(), parameters) != 1) cannot_go_on("HKDF-SHA256");
  return out;
}

}  // namespace thalweg::impl
