// SPDX-License-Identifier: Apache-2.0
// The mutual challenge-response as a state machine. One message is under way at a time; each has a fixed size, so a stranger
// costs one State (about a kilobyte) and may send at most 120 bytes before it is judged. With TLS it may send its first message,
// of at most 4 KiB (kMostHello), before OpenSSL's object for it (some 50 KiB) is made.
//
//   client: (tls) -> hello! -> challenge? -> proof! -> authentication result? -> done        ! sends, ? receives
//   server: (tls) -> hello? -> challenge! -> proof? -> authentication result! -> done
#include "security/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

#include "base/passed_descriptors.hpp"
#include "base/sockets.hpp"
#include "security/handshake_wire.hpp"
#include "security/stream.hpp"
#include "security/tls.hpp"

namespace thalweg::impl {
namespace {

using namespace handshake_wire;

constexpr unsigned char kTlsHandshake = 0x16, kClientHello = 1;  // of a record, of a message
constexpr size_t kRecordHeader = 5, kMessageHeader = 4;
constexpr size_t kMostHello = 4096;  // OpenSSL's has about 300 bytes, and 1,600 where it offers ML-KEM

// Nonces of recently accepted clients. A proof that fails for one of these is a replay: it could not
// succeed anyhow (the server's nonce is fresh), but it is worth its own counter.
class LateNonces {
 public:
  void add(const Nonce& nonce) {
    const std::lock_guard lock(mutex_);
    ring_[next_++ % ring_.size()] = first_bytes(nonce);
  }
  bool contains(const Nonce& nonce) {
    const std::lock_guard lock(mutex_);
    return std::find(ring_.begin(), ring_.end(), first_bytes(nonce)) != ring_.end();
  }

 private:
  static uint64_t first_bytes(const Nonce& nonce) {
    uint64_t word;
    std::memcpy(&word, nonce.data(), sizeof word);
    return word;
  }
  std::mutex mutex_;
  std::array<uint64_t, 1024> ring_{};
  size_t next_ = 0;
};

LateNonces& late_nonces() {
  static auto* const nonces = new LateNonces;  // leaked: service threads may outlive static destruction
  return *nonces;
}

Carrier carrier_of(int fd) { return is_unix_socket(fd) ? Carrier::unix_socket : Carrier::tcp; }

const char* purpose_name(Purpose purpose) {
  return purpose == Purpose::worker ? "worker" : purpose == Purpose::listener ? "listener" : "store";
}

}  // namespace

struct Handshake::State {
  enum class Step { tls, hello, challenge, proof, authentication_result, done, failed };

  Role role;
  JobKey key;
  uint64_t features = 0;
  SSL* tls = nullptr;
  Step step = Step::hello;
  Hello hello{};
  Challenge challenge{};
  DialTarget target;
  Here here;
  Mac binding{};
  Mac client_proof{};
  std::vector<std::byte> client_hello;            // of TLS, with its record's header, until OpenSSL has it
  std::array<std::byte, sizeof(Hello)> buffer{};  // the message under way, in or out
  size_t done = 0;
  bool sending = false;
  Refusal refusal = Refusal::none;
  Refusal refusal_after_send = Refusal::none;  // set while the bad news is being sent
  Status status = TW_IN_PROGRESS;
  std::string text;

  bool sends(Step s) const { return (role == Role::client) == (s == Step::hello || s == Step::proof); }
  Want stop(Refusal cause, const char* what);
  Want step_through_tls(int fd);
  Want receive_client_hello(int fd);
  bool wrong_client_hello() const;
  Want send_message(int fd, size_t size);
  Want receive_message(int fd, size_t size);
  Want io_failed(const IoResult& result);
  void compose(int fd);
  Want judge(int fd);
  Want judge_hello();
  Want judge_challenge();
  Want judge_proof(int fd);
  Want judge_authentication_result();
  Transcript transcript_of(const char* who, Answer answer) const;
  Mac proof_of(const char* who, Answer answer) const;
  bool wrong_start() const;
  bool common_version() const;
  size_t message_size() const;
};

Handshake::Want Handshake::State::stop(Refusal cause, const char* what) {
  constexpr Status statuses[] = {TW_OK,
                                 TW_ERR_AUTHENTICATION,
                                 TW_ERR_VERSION,
                                 TW_ERR_PROTOCOL,
                                 TW_ERR_TIMED_OUT,
                                 TW_ERR_AUTHENTICATION,
                                 TW_ERR_LIMIT,
                                 TW_ERR_PEER_LOST,
                                 TW_ERR_AUTHENTICATION,
                                 TW_ERR_AUTHENTICATION,
                                 TW_ERR_AUTHENTICATION};
  static_assert(std::size(statuses) == size_t(Refusal::count_));
  refusal = cause;
  const bool ended = cause == Refusal::target && target.purpose == Purpose::worker;
  status = fail(ended ? Status(TW_ERR_STALE) : statuses[size_t(cause)], "%s", what);
  text = what;
  step = Step::failed;
  return Want::failed;
}

Transcript Handshake::State::transcript_of(const char* who, Answer answer) const {
  Transcript transcript{};
  std::memcpy(transcript.role.data(), who, std::strlen(who));
  transcript.hello = hello;
  transcript.challenge = challenge;
  transcript.tls_binding = binding;
  if (std::strcmp(who, "client") != 0) transcript.client_proof = client_proof;
  transcript.answer = uint32_t(answer);
  return transcript;
}

Mac Handshake::State::proof_of(const char* who, Answer answer) const {
  const Transcript transcript = transcript_of(who, answer);
  return key.mac("handshake", &transcript, sizeof transcript);
}

size_t Handshake::State::message_size() const {
  switch (step) {
    case Step::hello:
      return sizeof(Hello);
    case Step::challenge:
      return sizeof(Challenge);
    case Step::proof:
      return sizeof(Proof);
    default:
      return sizeof(AuthenticationResult);
  }
}

Handshake::Want Handshake::State::io_failed(const IoResult& result) {
  if (result.state == IoState::want_read) return Want::read;
  if (result.state == IoState::want_write) return Want::write;
  if (result.state == IoState::error && result.error == 0)
    return stop(Refusal::malformed, "the TLS stream was damaged on its way");
  return stop(
      Refusal::closed,
      "the other side closed the connection during the handshake: it may be no Thalweg process, full, ending, or demand TLS");
}

/// A record that holds no whole ClientHello of TLS, or a longer one than clients of ours send.
bool Handshake::State::wrong_client_hello() const {
  const auto at = [this](size_t i) { return std::to_integer<size_t>(client_hello[i]); };
  const size_t have = client_hello.size();
  if (have > 0 && at(0) != kTlsHandshake) return true;
  if (have < kRecordHeader) return false;
  const size_t record = at(3) << 8 | at(4);
  if (record < kMessageHeader || record > kMostHello) return true;
  if (have < kRecordHeader + kMessageHeader) return false;
  return at(5) != kClientHello || (at(6) << 16 | at(7) << 8 | at(8)) != record - kMessageHeader;
}

/// Before OpenSSL keeps anything for the stranger: it would reserve what the stranger announces.
Handshake::Want Handshake::State::receive_client_hello(int fd) {
  for (size_t whole = kRecordHeader + kMessageHeader;;) {
    const size_t have = client_hello.size();
    if (have >= kRecordHeader + kMessageHeader) {
      whole = kRecordHeader + (std::to_integer<size_t>(client_hello[3]) << 8 | std::to_integer<size_t>(client_hello[4]));
      if (have == whole) return Want::done;
    }
    client_hello.resize(whole);
    const IoResult result = stream_read(fd, nullptr, client_hello.data() + have, whole - have);
    client_hello.resize(have + (result.state == IoState::moved ? result.bytes : 0));
    if (result.state != IoState::moved) return io_failed(result);
    if (wrong_client_hello()) {
      return stop(Refusal::malformed,
                  "the other side's first message is none of TLS as this library begins it; set TLS on both sides or on none");
    }
  }
}

Handshake::Want Handshake::State::step_through_tls(int fd) {
  if (!tls && role == Role::server) {
    if (const Want want = receive_client_hello(fd); want != Want::done) return want;
  }
  if (!tls) tls = make_tls(role, key, fd, std::move(client_hello));
  if (!tls) return stop(Refusal::overload, last_error());
  const char* reason = "";
  switch (step_tls(tls, &reason)) {
    case TlsStep::want_read:
      return Want::read;
    case TlsStep::want_write:
      return Want::write;
    case TlsStep::closed:
      return stop(Refusal::closed, "the other side closed the connection during the TLS handshake");
    case TlsStep::wrong_key:
      return stop(Refusal::authentication, ("TLS refused the other side's job key (" + std::string(reason) +
                                            "); mine is from " + key.source() + ": give both sides the same key")
                                               .c_str());
    case TlsStep::malformed:
      return stop(Refusal::malformed,
                  ("the TLS handshake failed (" + std::string(reason) + "); set TLS on both sides or on none").c_str());
    case TlsStep::done:
      break;
  }
  if (is_error(tls_binding(tls, &binding))) return stop(Refusal::authentication, last_error());
  step = Step::hello;
  return Want::done;
}

// A message that starts wrong is refused at once, without waiting for the rest of another protocol.
bool Handshake::State::wrong_start() const {
  if (step != Step::hello && step != Step::challenge) return false;
  const uint32_t expected = step == Step::hello ? kHelloMagic : kChallengeMagic;
  return std::memcmp(buffer.data(), &expected, std::min(done, sizeof expected)) != 0;
}

Handshake::Want Handshake::State::send_message(int fd, size_t size) {
  while (done < size) {
    const IoResult result = stream_write(fd, tls, buffer.data() + done, size - done);
    if (result.state != IoState::moved) return io_failed(result);
    done += result.bytes;
  }
  return Want::done;
}

Handshake::Want Handshake::State::receive_message(int fd, size_t size) {
  while (done < size) {
    const IoResult result = stream_read(fd, tls, buffer.data() + done, size - done);
    if (result.state != IoState::moved) return io_failed(result);
    done += result.bytes;
    if (!wrong_start()) {
      // Of another version only these bytes mean the same: it is answered without waiting for a hello of this one's length.
      if (step != Step::hello || done < kHelloFixed || common_version()) continue;
      return Want::done;
    }
    if (buffer[0] == std::byte{0x16}) {  // a TLS record
      return stop(Refusal::malformed, "the other side speaks TLS and this one does not; set TLS on both sides or on none");
    }
    return stop(Refusal::malformed, "the other side does not speak Thalweg's protocol");
  }
  return Want::done;
}

bool Handshake::State::common_version() const {
  Hello start{};
  std::memcpy(&start, buffer.data(), kHelloFixed);
  return start.version_min <= start.version_max && start.version_min <= kVersionMax && start.version_max >= kVersionMin;
}

void Handshake::State::compose(int fd) {
  if (step == Step::hello) {
    hello.carrier = uint16_t(carrier_of(fd));
    std::memcpy(buffer.data(), &hello, sizeof hello);
  } else if (step == Step::challenge) {
    std::memcpy(buffer.data(), &challenge, sizeof challenge);
  } else if (step == Step::proof) {
    client_proof = proof_of("client", Answer::accepted);
    std::memcpy(buffer.data(), client_proof.data(), client_proof.size());
  } else {
    // From here on descriptors are expected: a client sends them once it has read this.
    if (refusal_after_send == Refusal::none && carrier_of(fd) == Carrier::unix_socket) refuse_descriptors(fd, false);
    const Answer answer = refusal_after_send == Refusal::none     ? Answer::accepted
                          : refusal_after_send == Refusal::target ? Answer::not_here
                                                                  : Answer::wrong_proof;
    AuthenticationResult authentication_result{uint32_t(answer), {}};
    if (answer != Answer::wrong_proof) authentication_result.mac = proof_of("server", answer);
    std::memcpy(buffer.data(), &authentication_result, sizeof authentication_result);
  }
}

Handshake::Want Handshake::State::judge_hello() {
  const bool common = common_version();
  std::memcpy(&hello, buffer.data(), sizeof hello);
  challenge.magic = kChallengeMagic;
  challenge.highest = kVersionMax;
  challenge.features = features & hello.features;
  if (!common) {
    refusal_after_send = Refusal::version;
    text = "the client speaks protocol versions " + std::to_string(hello.version_min) + " to " +
           std::to_string(hello.version_max) + ", this side " + std::to_string(kVersionMin) + " to " +
           std::to_string(kVersionMax) + "; install the same release on both sides";
    return Want::done;
  }
  target = {Purpose(hello.purpose), hello.name};
  challenge.version = std::min(hello.version_max, kVersionMax);
  if (is_error(random_bytes(challenge.nonce.data(), challenge.nonce.size()))) return stop(Refusal::overload, last_error());
  return Want::done;
}

Handshake::Want Handshake::State::judge_challenge() {
  std::memcpy(&challenge, buffer.data(), sizeof challenge);
  if (challenge.version < kVersionMin || challenge.version > kVersionMax) {
    return stop(Refusal::version, ("the server speaks up to protocol version " + std::to_string(challenge.highest) +
                                   ", this side " + std::to_string(kVersionMin) + " to " + std::to_string(kVersionMax) +
                                   "; install the same release on both sides")
                                      .c_str());
  }
  if (challenge.features & ~features) return stop(Refusal::malformed, "the server chose features that were not offered");
  return Want::done;
}

Handshake::Want Handshake::State::judge_proof(int fd) {
  std::memcpy(client_proof.data(), buffer.data(), client_proof.size());
  const Mac expected = proof_of("client", Answer::accepted);
  if (equal_secret(expected.data(), client_proof.data(), expected.size())) {
    late_nonces().add(hello.nonce);
    if (hello.carrier == uint16_t(carrier_of(fd)) && here(target)) return Want::done;
    refusal_after_send = Refusal::target;
    text = std::string("the client means another ") + purpose_name(target.purpose) +
           " than this one: it has an old address, or its bytes were carried here by another process";
    return Want::done;
  }
  const bool replayed = late_nonces().contains(hello.nonce);
  refusal_after_send = replayed ? Refusal::replay : Refusal::authentication;
  text = replayed ? std::string("an earlier handshake was played again")
                  : "the client does not know this side's job key (from " + key.source() + "); give both sides the same key";
  return Want::done;
}

Handshake::Want Handshake::State::judge_authentication_result() {
  AuthenticationResult authentication_result;
  std::memcpy(&authentication_result, buffer.data(), sizeof authentication_result);
  const Answer answer = Answer(authentication_result.answer);
  const std::string remedy = "mine is from " + key.source() + ": give both sides the same key";
  if (answer != Answer::accepted && answer != Answer::not_here)
    return stop(Refusal::authentication, ("the server refused this side's job key; " + remedy).c_str());
  const Mac expected = proof_of("server", answer);
  if (!equal_secret(expected.data(), authentication_result.mac.data(), expected.size())) {
    return stop(Refusal::authentication, ("the server does not know the job key; " + remedy).c_str());
  }
  if (answer == Answer::accepted) return Want::done;
  if (target.purpose == Purpose::worker)
    return stop(Refusal::target, "the address is of a worker that has ended: get a fresh one from the peer");
  return stop(Refusal::target,
              ("a process of this job answered, but not the " + std::string(purpose_name(target.purpose)) +
               " at the address that was dialled: another process has the port and passes connections on; if "
               "that is a port forward or NAT of yours, set THALWEG_KNOWN_AS=<the dialled host:port> where the " +
               purpose_name(target.purpose) + " runs")
                  .c_str());
}

Handshake::Want Handshake::State::judge(int fd) {
  switch (step) {
    case Step::hello:
      return judge_hello();
    case Step::challenge:
      return judge_challenge();
    case Step::proof:
      return judge_proof(fd);
    default:
      return judge_authentication_result();
  }
}

Handshake::Handshake(const JobKey& key, uint64_t features, bool tls, const DialTarget& target)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.role = Role::client;
  s.key = key;
  s.features = features;
  s.step = tls ? State::Step::tls : State::Step::hello;
  s.target = target;
  s.hello = Hello{kHelloMagic, kVersionMin, kVersionMax, features, {}, uint16_t(target.purpose), 0, 0, target.name};
  if (is_error(random_bytes(s.hello.nonce.data(), s.hello.nonce.size()))) s.stop(Refusal::overload, last_error());
}

Handshake::Handshake(const JobKey& key, uint64_t features, bool tls, Here here) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.role = Role::server;
  s.key = key;
  s.features = features;
  s.step = tls ? State::Step::tls : State::Step::hello;
  s.here = std::move(here);
}

Handshake::~Handshake() { SSL_free(state_->tls); }

Handshake::Want Handshake::advance(int fd) {
  State& s = *state_;
  using Step = State::Step;
  if (s.step == Step::tls) {
    if (const Want want = s.step_through_tls(fd); want != Want::done) return want;
  }
  while (s.step != Step::done && s.step != Step::failed) {
    const bool sends = s.sends(s.step);
    if (sends && !s.sending) {
      s.compose(fd);
      s.sending = true;
    }
    const size_t size = s.message_size();
    if (const Want want = sends ? s.send_message(fd, size) : s.receive_message(fd, size); want != Want::done) return want;
    s.done = 0;
    s.sending = false;
    if (sends && s.refusal_after_send != Refusal::none) return s.stop(s.refusal_after_send, std::string(s.text).c_str());
    if (!sends && s.judge(fd) == Want::failed) return Want::failed;
    s.step = Step(int(s.step) + 1);
  }
  if (s.step == Step::failed) return Want::failed;
  s.status = TW_OK;
  return Want::done;
}

Status Handshake::status() const { return state_->status; }
const std::string& Handshake::text() const { return state_->text; }
Refusal Handshake::refusal() const { return state_->refusal; }
uint16_t Handshake::version() const { return state_->challenge.version; }
uint64_t Handshake::features() const { return state_->challenge.features; }
const DialTarget& Handshake::target() const { return state_->target; }

Session Handshake::session() const {
  const State& s = *state_;
  auto secret = s.key.derive("session");
  std::array<std::byte, 2 * sizeof(Nonce)> salt;
  std::memcpy(salt.data(), s.hello.nonce.data(), sizeof(Nonce));
  std::memcpy(salt.data() + sizeof(Nonce), s.challenge.nonce.data(), sizeof(Nonce));
  const auto key_for = [&](const char* direction) {
    const Transcript transcript = s.transcript_of(direction, Answer::accepted);
    return derive_key(secret, salt, std::as_bytes(std::span(&transcript, 1)));
  };
  const Session::Key to_server = key_for("to serve"), to_client = key_for("to dial"), binding = key_for("binding");
  OPENSSL_cleanse(secret.data(), secret.size());
  Session session;
  session.send = s.role == Role::client ? to_server : to_client;
  session.receive = s.role == Role::client ? to_client : to_server;
  session.binding = binding;
  return session;
}

SSL* Handshake::take_tls() {
  SSL* tls = state_->tls;
  state_->tls = nullptr;
  return tls;
}

Opening look_at_opening(int fd) {
  unsigned char first = 0;
  const ssize_t got = recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Opening::wait;
  if (got <= 0) return Opening::closed;
  return first == kTlsHandshake ? Opening::tls : Opening::plain;
}

}  // namespace thalweg::impl
