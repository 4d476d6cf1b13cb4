// SPDX-License-Identifier: Apache-2.0
// TLS through OpenSSL: shared contexts, the pre-shared key's callbacks, and a BIO that never raises SIGPIPE.
#include "security/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/environment.hpp"

namespace thalweg::impl {
namespace {

constexpr char kIdentity[] = "thalweg job key 1";
constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[2] = {0x13, 0x01};

// AES-GCM keeps its promise for 2^24.5 records of full length under one key (RFC 8446, 5.5).
constexpr uint64_t kRecordsPerKey = 1u << 22;

// What a connection has beside OpenSSL's own.
struct Psk {
  std::array<std::byte, 32> key;
  uint64_t records = 0;  // sent with the present key
  uint64_t records_per_key = kRecordsPerKey;
};

void free_psk(void*, void* value, CRYPTO_EX_DATA*, int, long, void*) {
  if (!value) return;
  OPENSSL_cleanse(value, sizeof(Psk));
  delete static_cast<Psk*>(value);
}

int psk_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_psk);
  return index;
}

// A session that holds nothing but the pre-shared key: how OpenSSL takes an external one in TLS 1.3.
SSL_SESSION* session_of(SSL* tls) {
  const Psk* psk = static_cast<const Psk*>(SSL_get_ex_data(tls, psk_index()));
  const SSL_CIPHER* cipher = SSL_CIPHER_find(tls, kSuiteNumber);
  SSL_SESSION* session = SSL_SESSION_new();
  if (psk && cipher && session &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(psk->key.data()), psk->key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int use_session(SSL* tls, const EVP_MD*, const unsigned char** id, size_t* id_length, SSL_SESSION** session) {
  *session = session_of(tls);
  *id = reinterpret_cast<const unsigned char*>(kIdentity);
  *id_length = sizeof kIdentity - 1;
  return *session ? 1 : 0;
}

int find_session(SSL* tls, const unsigned char* id, size_t id_length, SSL_SESSION** session) {
  *session = nullptr;  // unknown: the handshake fails, for there is no certificate to fall back to
  if (id_length == sizeof kIdentity - 1 && std::memcmp(id, kIdentity, id_length) == 0) {
    *session = session_of(tls);
    return *session ? 1 : 0;
  }
  return 1;
}

struct Socket {
  int fd;
  std::vector<std::byte> first;  // read already, and not by TLS yet
};

Socket& socket_of(BIO* bio) { return *static_cast<Socket*>(BIO_get_data(bio)); }
int bio_descriptor(BIO* bio) { return socket_of(bio).fd; }

int bio_destroy(BIO* bio) {
  delete static_cast<Socket*>(BIO_get_data(bio));
  BIO_set_data(bio, nullptr);
  return 1;
}

int bio_write(BIO* bio, const char* data, int n) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(bio_descriptor(bio), data, size_t(n), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return int(sent);
}

int bio_read(BIO* bio, char* data, int n) {
  BIO_clear_retry_flags(bio);
  if (std::vector<std::byte>& first = socket_of(bio).first; !first.empty()) {
    const auto taken = std::min(first.size(), static_cast<size_t>(n));
    std::memcpy(data, first.data(), taken);
    first.erase(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(taken));
    if (first.empty()) first.shrink_to_fit();
    return static_cast<int>(taken);
  }
  const ssize_t got = recv(bio_descriptor(bio), data, size_t(n), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return int(got);
}

long bio_ctrl(BIO* bio, int command, long, void* out) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;
    case BIO_CTRL_EOF:
      return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    case BIO_C_GET_FD:
      if (out) *static_cast<int*>(out) = bio_descriptor(bio);
      return bio_descriptor(bio);
    default:
      return 0;
  }
}

BIO_METHOD* make_bio_method() {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "thalweg socket");
  if (!method) return nullptr;
  BIO_meth_set_write(method, bio_write);
  BIO_meth_set_read(method, bio_read);
  BIO_meth_set_ctrl(method, bio_ctrl);
  BIO_meth_set_destroy(method, bio_destroy);
  return method;
}

// One per role and process, for the life of the process.
SSL_CTX* make_context(Role role) {
  SSL_CTX* context = SSL_CTX_new(role == Role::client ? TLS_client_method() : TLS_server_method());
  if (!context) return nullptr;
  const bool good = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, kSuite) == 1 &&
                    SSL_CTX_set_num_tickets(context, 0) == 1;  // no bytes of TLS's own behind the handshake
  if (!good) {
    SSL_CTX_free(context);
    return nullptr;
  }
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE,
                     nullptr);  // the pre-shared key authenticates; a server without it has no certificate
  if (role == Role::client) {
    SSL_CTX_set_psk_use_session_callback(context, use_session);
  } else {
    SSL_CTX_set_psk_find_session_callback(context, find_session);
  }
  return context;
}

SSL_CTX* context_of(Role role) {
  static SSL_CTX* const client = make_context(Role::client);
  static SSL_CTX* const server = make_context(Role::server);
  return role == Role::client ? client : server;
}

bool is_key_error(int reason) {
  return reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
         reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR || reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE ||
         reason == SSL_R_NO_SHARED_CIPHER || reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM || reason == SSL_R_BAD_PSK ||
         reason == SSL_R_DIGEST_CHECK_FAILED;
}

}  // namespace

Status choose_tls(bool asked, bool* out) {
  *out = false;
  const Status status = read_switch("THALWEG_TLS", out);
  *out |= asked;
  return status;
}

SSL* make_tls(Role role, const JobKey& key, int fd, std::vector<std::byte> first) {
  static BIO_METHOD* const method = make_bio_method();
  SSL_CTX* context = context_of(role);
  SSL* tls = context ? SSL_new(context) : nullptr;
  BIO* bio = method && tls ? BIO_new(method) : nullptr;
  if (!bio) {
    SSL_free(tls);
    fail(TW_ERR_NO_MEMORY, "OpenSSL cannot make a TLS connection; is the library whole and memory left?");
    return nullptr;
  }
  BIO_set_data(bio, new Socket{fd, std::move(first)});
  BIO_set_init(bio, 1);
  SSL_set_bio(tls, bio, bio);
  auto* psk = new Psk;
  psk->key = key.derive("tls");
  if (SSL_set_ex_data(tls, psk_index(), psk) != 1) {
    free_psk(nullptr, psk, nullptr, 0, 0, nullptr);
    SSL_free(tls);
    fail(TW_ERR_NO_MEMORY, "OpenSSL has no memory for a TLS connection");
    return nullptr;
  }
  role == Role::client ? SSL_set_connect_state(tls) : SSL_set_accept_state(tls);
  return tls;
}

void count_record(SSL* tls) {
  auto* psk = static_cast<Psk*>(SSL_get_ex_data(tls, psk_index()));
  if (psk == nullptr || ++psk->records < psk->records_per_key) return;
  // Each side renews its sending key; the next write announces it first. Not while a record is half written: then at the
  // next one.
  if (SSL_key_update(tls, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) psk->records = 0;
}

void set_records_per_key(SSL* tls, uint64_t records) {
  static_cast<Psk*>(SSL_get_ex_data(tls, psk_index()))->records_per_key = records;
}

TlsStep step_tls(SSL* tls, const char** reason) {
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(tls);
  // Both ends must have used the key: a handshake without it has proven nothing.
  if (returned == 1) {
    *reason = "the pre-shared key was not used";
    return SSL_session_reused(tls) ? TlsStep::done : TlsStep::wrong_key;
  }
  *reason = "the connection was closed";
  switch (SSL_get_error(tls, returned)) {
    case SSL_ERROR_WANT_READ:
      return TlsStep::want_read;
    case SSL_ERROR_WANT_WRITE:
      return TlsStep::want_write;
    case SSL_ERROR_SYSCALL:
    case SSL_ERROR_ZERO_RETURN:
      return TlsStep::closed;
    default:
      break;
  }
  const unsigned long error = ERR_peek_error();
  const char* text = ERR_reason_error_string(error);
  *reason = text ? text : "unknown TLS error";
  if (ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return TlsStep::closed;
  return is_key_error(ERR_GET_REASON(error)) ? TlsStep::wrong_key : TlsStep::malformed;
}

Status tls_binding(SSL* tls, std::array<std::byte, 32>* out) {
  constexpr char kLabel[] = "EXPORTER-thalweg-handshake";
  if (SSL_export_keying_material(tls, reinterpret_cast<unsigned char*>(out->data()), out->size(), kLabel, sizeof kLabel - 1,
                                 nullptr, 0, 0) == 1) {
    return TW_OK;
  }
  return fail(TW_ERR_AUTHENTICATION, "OpenSSL cannot export keying material of the TLS connection");
}

}  // namespace thalweg::impl
