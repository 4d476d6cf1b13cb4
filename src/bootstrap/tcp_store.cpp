// SPDX-License-Identifier: Apache-2.0
// Connections, requests and answers of the TCP store's client.
#include "bootstrap/tcp_store.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/interrupt.hpp"
#include "base/sockets.hpp"
#include "security/handshake.hpp"

namespace thalweg::impl {
namespace {

using store_wire::AnswerHead;
using store_wire::Op;
using store_wire::RequestHead;

constexpr size_t kIdleMax = 4;
constexpr int kRetryMs = 20;
constexpr uint64_t kHandshakeTimeout = 10 * kSecond;
constexpr uint64_t kMostOfOne = 3 * kSecond;  // of one address, where others are left
constexpr uint64_t kLookUpAgain = kSecond / 2;

// TW_OK: ready, or a short time-out passed. TW_ERR_TIMED_OUT: the deadline. Else the error of interrupted().
Status await(int fd, short events, const Deadline& deadline) {
  pollfd one{fd, events, 0};
  const int ready = poll(&one, 1, interruptible_ms(deadline.left_ms()));
  if (ready < 0 && errno != EINTR) return fail_errno(errno, "poll");
  if (ready > 0) return TW_OK;
  return deadline.passed() ? Status(TW_ERR_TIMED_OUT) : interrupted();
}

// Writes all that is queued.
Status send_all(SetupChannel& channel, const Deadline& deadline) {
  Status status;
  while ((status = channel.flush()) == TW_IN_PROGRESS) {
    if (const Status waited = await(channel.fd(), POLLOUT, deadline); is_error(waited)) return waited;
  }
  return status;
}

Status receive(SetupChannel& channel, SetupChannel::Message* out, const Deadline& deadline) {
  Status status;
  while ((status = channel.receive(out)) == TW_IN_PROGRESS) {
    if (const Status waited = await(channel.fd(), POLLIN, deadline); is_error(waited)) return waited;
  }
  return status == TW_ERR_CLOSED ? fail(TW_ERR_PEER_LOST, "the store's server ended") : status;
}

Status shake_hands(UniqueFd socket, const StoreOptions& options, const SocketAddress& address, const Deadline& deadline,
                   std::unique_ptr<SetupChannel>* out) {
  const int fd = socket.get();
  Handshake handshake(options.key, 0, options.tls, DialTarget::dialled(Purpose::store, fd, address));
  for (;;) {
    const Handshake::Want want = handshake.advance(fd);
    if (want == Handshake::Want::failed) return handshake.status();
    if (want == Handshake::Want::done) break;
    const Status waited = await(fd, want == Handshake::Want::read ? POLLIN : POLLOUT, deadline);
    if (is_error(waited) && waited != TW_ERR_TIMED_OUT) return waited;
    if (is_error(waited))
      return fail(TW_ERR_TIMED_OUT, "what listens at the store's address does not answer the handshake; is it a store?");
  }
  SSL* const tls = handshake.take_tls();
  *out = std::make_unique<SetupChannel>(std::move(socket), tls, handshake.session(), store_wire::kMaxMessage);
  return TW_OK;
}

/// What answers is no server of this job.
bool is_refusal(Status status) { return status == TW_ERR_AUTHENTICATION || status == TW_ERR_VERSION; }

bool worth_retrying(Status status) {
  return status == TW_ERR_UNREACHABLE || status == TW_ERR_PEER_LOST || status == TW_ERR_IO || status == TW_ERR_NO_DESCRIPTORS;
}

Status parse_server(const std::string& text, AddressText* out) {
  const Status status = parse_address_text(text, out);
  if (is_error(status) || !out->unix_path) return status;
  return fail(TW_ERR_INVALID, "tcp:%s: a store's server has a host and a port; one machine alone may use a file store",
              text.c_str());
}

// What a server may answer to this request.
bool proper(Op op, const AnswerHead& answer, size_t value) {
  if (answer.status == TW_OK) return value == 0 || op == Op::get || op == Op::wait;
  return value == 0 && answer.status == (op == Op::get ? TW_ERR_NO_MATCH : op == Op::put ? TW_ERR_LIMIT : TW_OK);
}

// How others reach a server that listens on all interfaces.
std::string reachable_host(const std::string& host) {
  if (!host.empty() && host != "0.0.0.0" && host != "::") return host;
  char name[256] = {};
  std::vector<SocketAddress> ignored;
  if (gethostname(name, sizeof name - 1) == 0 && resolve({.host = name}, false, &ignored) == TW_OK) return name;
  return "127.0.0.1";
}

}  // namespace

Status TcpStore::open(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out) {
  std::unique_ptr<TcpStore> store(new TcpStore(options));
  if (const Status status = parse_server(address, &store->server_address_); is_error(status)) return status;
  if (store->server_address_.port == 0) return fail(TW_ERR_INVALID, "tcp:%s: the server's port is needed", address.c_str());
  if (store->server_address_.host.empty()) store->server_address_.host = "127.0.0.1";
  store->address_ = "tcp:" + store->server_address_.text();
  Connection first;
  if (const Status status = store->connect(Deadline(options.timeout_ns), &first); is_error(status)) return status;
  store->give_back(std::move(first));
  *out = std::move(store);
  return TW_OK;
}

Status TcpStore::serve(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out) {
  std::unique_ptr<TcpStore> store(new TcpStore(options));
  AddressText& at = store->server_address_;
  if (const Status status = parse_server(address, &at); is_error(status)) return status;
  StoreServerOptions server;
  server.tls = options.tls;
  if (const Status status = StoreServer::start(at, options.key, server, &store->server_); is_error(status)) return status;
  at.port = store->server_->port();
  const char* interfaces = getenv("THALWEG_INTERFACES");
  if (interfaces != nullptr && *interfaces != 0) at.host = store->server_->host();  // nothing else leads here
  store->address_ = "tcp:" + AddressText{.host = reachable_host(at.host), .port = at.port}.text();
  if (at.host.empty() || at.host == "0.0.0.0") at.host = "127.0.0.1";
  if (at.host == "::") at.host = "::1";
  *out = std::move(store);
  return TW_OK;
}

TcpStore::~TcpStore() {
  if (born_.forked()) {
    (void)server_.release();
    return;
  }
  idle_.clear();  // so that our own connections do not keep the server waiting
}

Status TcpStore::finish() {
  if (server_ == nullptr) return TW_OK;
  {
    const std::lock_guard lock(mutex_);
    idle_.clear();  // our own
  }
  constexpr uint64_t kTurn = 10 * kMillisecond;  // between two looks for an interrupt
  const Deadline deadline(options_.timeout_ns);
  while (!server_->drain(kTurn) && !deadline.passed()) {
    if (const Status asked = interrupted(); is_error(asked)) return asked;
  }
  return TW_OK;
}

Status TcpStore::connect_once(const SocketAddress& address, const Deadline& deadline, Connection* out) {
  UniqueFd socket;
  Status status = start_connect(address, &socket);
  while (status == TW_IN_PROGRESS) {
    pollfd one{socket.get(), POLLOUT, 0};
    if (poll(&one, 1, interruptible_ms(deadline.left_ms())) == 0 && deadline.passed()) return TW_ERR_TIMED_OUT;
    if (const Status asked = interrupted(); is_error(asked)) return asked;
    if (one.revents != 0) status = finish_connect(socket.get(), address);
  }
  if (is_error(status)) return status;
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  const uint64_t left = deadline.left_ns();
  const Deadline handshake_deadline(left < kHandshakeTimeout ? left : kHandshakeTimeout);
  return shake_hands(std::move(socket), options_, address, handshake_deadline, out);
}

/// One try each. A refusal is told where none succeeds: another of the name's addresses may lead to the store.
Status TcpStore::connect_to_one_of(const std::vector<SocketAddress>& candidates, const Deadline& deadline, Connection* out) {
  Status status = TW_ERR_UNREACHABLE, refusal = TW_OK;
  std::string why;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // One that does not answer must not take the time of those behind it.
    const uint64_t others = candidates.size() - i, left = deadline.left_ns();
    const Deadline own(candidates.size() == 1 ? left : std::min(left / others, kMostOfOne));
    status = connect_once(candidates[i], own, out);
    if (status == TW_OK || status == TW_ERR_CANCELED) return status;
    if (!is_refusal(status) || is_error(refusal)) continue;
    refusal = status;
    why = last_error();
  }
  if (!is_error(refusal)) return status;
  set_last_error(why);
  return refusal;
}

std::vector<SocketAddress> TcpStore::known_candidates() {
  const std::lock_guard lock(mutex_);
  return candidates_;
}

/// Those there are stay where the look-up fails.
Status TcpStore::look_up(std::vector<SocketAddress>* candidates) {
  std::vector<SocketAddress> found;
  if (const Status status = resolve(server_address_, false, &found); is_error(status)) return status;
  const std::lock_guard lock(mutex_);
  *candidates = candidates_ = std::move(found);
  return TW_OK;
}

/// The name is looked up first where nothing is known of it, and again while nobody answers: a name server may be as late as the
/// store, or out of order when a job has long found it.
Status TcpStore::connect(const Deadline& deadline, Connection* out) {
  std::vector<SocketAddress> candidates = known_candidates();
  Deadline known(candidates.empty() ? 0 : kLookUpAgain);
  Status status = TW_ERR_UNREACHABLE;
  for (;;) {
    if (known.passed()) {
      status = look_up(&candidates);
      known = Deadline(kLookUpAgain);
    }
    if (!candidates.empty()) status = connect_to_one_of(candidates, deadline, out);
    if (status == TW_OK || is_refusal(status)) return status;
    const std::string why = status == TW_ERR_TIMED_OUT ? "" : last_error();
    if (deadline.passed()) {
      return fail(TW_ERR_TIMED_OUT,
                  "no store at %s (last try: %s); start its server (\"serve:host:port\") or check the address "
                  "and the firewall",
                  server_address_.text().c_str(), why.empty() ? status_name(status) : why.c_str());
    }
    if (!worth_retrying(status) && status != TW_ERR_TIMED_OUT) return status;  // a time-out: of the last candidate's share
    const int left = deadline.left_ms();
    poll(nullptr, 0, left < 0 || left > kRetryMs ? kRetryMs : left);
    if (const Status asked = interrupted(); is_error(asked)) return asked;
  }
}

Status TcpStore::take_connection(const Deadline& deadline, Connection* out) {
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      *out = std::move(idle_.back());
      idle_.pop_back();
      char byte;
      if (recv((*out)->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) return TW_OK;
      out->reset();  // the server has closed it, or sent an unrequested answer
    }
  }
  return connect(deadline, out);
}

void TcpStore::give_back(Connection connection) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(connection));
}

Status TcpStore::request(Op op, const std::string& key, const void* value, size_t length, const Deadline& deadline,
                         Bytes* out) {
  Connection connection;
  if (const Status status = take_connection(deadline, &connection); is_error(status)) return status;
  const RequestHead head{uint32_t(key.size())};
  Bytes bytes(sizeof head + key.size() + length);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, key.data(), key.size());
  if (length) std::memcpy(bytes.data() + sizeof head + key.size(), value, length);
  if (const Status status = connection->queue(uint16_t(op), bytes.data(), bytes.size()); is_error(status)) return status;
  if (const Status status = send_all(*connection, deadline); is_error(status)) return status;
  SetupChannel::Message message;
  if (const Status status = receive(*connection, &message, deadline); is_error(status)) return status;
  AnswerHead answer{};
  const bool whole = Op(message.type) == Op::answer && message.bytes.size() >= sizeof answer;
  if (whole) std::memcpy(&answer, message.bytes.data(), sizeof answer);
  if (!whole || !proper(op, answer, message.bytes.size() - sizeof answer)) {
    return fail(TW_ERR_PROTOCOL,
                "what listens at the store's address (%s) gave no proper answer; install the same release there",
                address_.c_str());
  }
  if (out) out->assign(message.bytes.begin() + sizeof answer, message.bytes.end());
  give_back(std::move(connection));
  if (answer.status == TW_ERR_LIMIT)
    return fail(TW_ERR_LIMIT, "the store at %s is full; it is not for payload", address_.c_str());
  return answer.status;
}

Status TcpStore::do_put(const std::string& key, const void* value, size_t length) {
  const Status status = request(Op::put, key, value, length, Deadline(options_.timeout_ns), nullptr);
  if (status != TW_ERR_TIMED_OUT) return status;
  return fail(status, "the store at %s did not answer within the time limit", address_.c_str());
}

Status TcpStore::do_get(const std::string& key, Bytes* out) {
  const Status status = request(Op::get, key, nullptr, 0, Deadline(options_.timeout_ns), out);
  if (status != TW_ERR_TIMED_OUT) return status;
  return fail(status, "the store at %s did not answer within the time limit", address_.c_str());
}

Status TcpStore::do_wait(const std::string& key, const Deadline& deadline, Bytes* out) {
  return request(Op::wait, key, nullptr, 0, deadline, out);
}

Status TcpStore::do_erase(const std::string& key) {
  return request(Op::erase, key, nullptr, 0, Deadline(options_.timeout_ns), nullptr);
}

}  // namespace thalweg::impl
