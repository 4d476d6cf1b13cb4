// SPDX-License-Identifier: Apache-2.0
// The mutual challenge-response as a state machine. One message is under way at a time; each has a fixed size, so a stranger
// costs one State (under a kilobyte; plus OpenSSL's buffers with TLS) and may send at most 80 bytes before it is judged.
//
//   client: (tls) -> hello! -> challenge? -> proof! -> verdict? -> done        ! sends, ? receives
//   server: (tls) -> hello? -> challenge! -> proof? -> verdict! -> done
#include "security/handshake.hpp"

#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "security/handshake_wire.hpp"
#include "security/stream.hpp"
#include "security/tls.hpp"

namespace thalweg::impl {
namespace {

using namespace handshake_wire;

// Nonces of clients that were let in lately. A proof that fails for one of these is a recording played again: it could not
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

}  // namespace

struct Handshake::State {
  enum class Step { tls, hello, challenge, proof, verdict, done, failed };

  Role role;
  JobKey key;
  uint64_t features = 0;
  bool use_tls = false;
  SSL* tls = nullptr;
  Step step = Step::hello;
  Hello hello{};
  Challenge challenge{};
  Mac binding{};
  Mac client_proof{};
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
  Want send_message(int fd, size_t size);
  Want receive_message(int fd, size_t size);
  Want io_failed(const IoResult& result);
  void compose();
  Want judge();
  Want judge_hello();
  Want judge_challenge();
  Want judge_proof();
  Want judge_verdict();
  Mac proof_of(const char* who) const;
  bool wrong_start() const;
  size_t message_size() const;
};

Handshake::Want Handshake::State::stop(Refusal cause, const char* what) {
  constexpr Status statuses[] = {TW_OK,           TW_ERR_AUTHENTICATION, TW_ERR_VERSION,
                                 TW_ERR_PROTOCOL, TW_ERR_TIMED_OUT,      TW_ERR_AUTHENTICATION,
                                 TW_ERR_LIMIT,    TW_ERR_PEER_LOST};
  static_assert(std::size(statuses) == size_t(Refusal::count_));
  refusal = cause;
  status = fail(statuses[size_t(cause)], "%s", what);
  text = what;
  step = Step::failed;
  return Want::failed;
}

Mac Handshake::State::proof_of(const char* who) const {
  Transcript transcript{};
  std::memcpy(transcript.role.data(), who, std::strlen(who));
  transcript.hello = hello;
  transcript.challenge = challenge;
  transcript.tls_binding = binding;
  if (std::strcmp(who, "server") == 0) transcript.client_proof = client_proof;
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
      return sizeof(Verdict);
  }
}

Handshake::Want Handshake::State::io_failed(const IoResult& result) {
  if (result.state == IoState::want_read) return Want::read;
  if (result.state == IoState::want_write) return Want::write;
  if (result.state == IoState::error && result.error == 0)
    return stop(Refusal::malformed, "the TLS stream was damaged on its way");
  return stop(Refusal::closed,
              "the other side closed the connection during the handshake: it may be no Thalweg process, full, or ending");
}

Handshake::Want Handshake::State::step_through_tls(int fd) {
  if (!tls) tls = make_tls(role, key, fd);
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

// A message that starts wrong is refused at once: a stranger who speaks another protocol need not be waited for.
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
    if (!wrong_start()) continue;
    if (buffer[0] == std::byte{0x16}) {  // a TLS record
      return stop(Refusal::malformed, "the other side speaks TLS and this one does not; set TLS on both sides or on none");
    }
    return stop(Refusal::malformed, "the other side does not speak Thalweg's protocol");
  }
  return Want::done;
}

void Handshake::State::compose() {
  if (step == Step::hello) {
    std::memcpy(buffer.data(), &hello, sizeof hello);
  } else if (step == Step::challenge) {
    std::memcpy(buffer.data(), &challenge, sizeof challenge);
  } else if (step == Step::proof) {
    client_proof = proof_of("client");
    std::memcpy(buffer.data(), client_proof.data(), client_proof.size());
  } else {
    Verdict verdict{refusal_after_send == Refusal::none ? 0u : 1u, {}};
    if (verdict.code == 0) verdict.mac = proof_of("server");
    std::memcpy(buffer.data(), &verdict, sizeof verdict);
  }
}

Handshake::Want Handshake::State::judge_hello() {
  std::memcpy(&hello, buffer.data(), sizeof hello);
  const uint16_t version = std::min(hello.version_max, kVersionMax);
  challenge.magic = kChallengeMagic;
  challenge.highest = kVersionMax;
  challenge.features = features & hello.features;
  if (hello.version_min > hello.version_max || version < hello.version_min || version < kVersionMin) {
    refusal_after_send = Refusal::version;
    text = "the client speaks protocol versions " + std::to_string(hello.version_min) + " to " +
           std::to_string(hello.version_max) + ", this side " + std::to_string(kVersionMin) + " to " +
           std::to_string(kVersionMax) + "; install the same release on both sides";
    return Want::done;
  }
  challenge.version = version;
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

Handshake::Want Handshake::State::judge_proof() {
  std::memcpy(client_proof.data(), buffer.data(), client_proof.size());
  const Mac expected = proof_of("client");
  if (equal_secret(expected.data(), client_proof.data(), expected.size())) {
    late_nonces().add(hello.nonce);
    return Want::done;
  }
  const bool replayed = late_nonces().contains(hello.nonce);
  refusal_after_send = replayed ? Refusal::replay : Refusal::authentication;
  text = replayed ? std::string("somebody played an earlier handshake again")
                  : "the client does not know this side's job key (from " + key.source() + "); give both sides the same key";
  return Want::done;
}

Handshake::Want Handshake::State::judge_verdict() {
  Verdict verdict;
  std::memcpy(&verdict, buffer.data(), sizeof verdict);
  const std::string remedy = "mine is from " + key.source() + ": give both sides the same key";
  if (verdict.code != 0) return stop(Refusal::authentication, ("the server refused this side's job key; " + remedy).c_str());
  const Mac expected = proof_of("server");
  if (!equal_secret(expected.data(), verdict.mac.data(), expected.size())) {
    return stop(Refusal::authentication, ("the server does not know the job key; " + remedy).c_str());
  }
  return Want::done;
}

Handshake::Want Handshake::State::judge() {
  switch (step) {
    case Step::hello:
      return judge_hello();
    case Step::challenge:
      return judge_challenge();
    case Step::proof:
      return judge_proof();
    default:
      return judge_verdict();
  }
}

Handshake::Handshake(Role role, const JobKey& key, uint64_t features, bool tls) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.role = role;
  s.key = key;
  s.features = features;
  s.use_tls = tls;
  s.step = tls ? State::Step::tls : State::Step::hello;
  if (role == Role::server) return;
  s.hello = Hello{kHelloMagic, kVersionMin, kVersionMax, features, {}};
  if (is_error(random_bytes(s.hello.nonce.data(), s.hello.nonce.size()))) s.stop(Refusal::overload, last_error());
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
      s.compose();
      s.sending = true;
    }
    const size_t size = s.message_size();
    if (const Want want = sends ? s.send_message(fd, size) : s.receive_message(fd, size); want != Want::done) return want;
    s.done = 0;
    s.sending = false;
    if (sends && s.refusal_after_send != Refusal::none) return s.stop(s.refusal_after_send, std::string(s.text).c_str());
    if (!sends && s.judge() == Want::failed) return Want::failed;
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

SSL* Handshake::take_tls() {
  SSL* tls = state_->tls;
  state_->tls = nullptr;
  return tls;
}

}  // namespace thalweg::impl
