// SPDX-License-Identifier: Apache-2.0
// Connections, requests and answers of the TCP store's client.
#include "bootstrap/tcp_store.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/sockets.hpp"
#include "security/handshake.hpp"
#include "security/stream.hpp"

namespace thalweg::impl {
namespace {

using store_wire::FrameHeader;
using store_wire::Op;

constexpr size_t kIdleMax = 4;
constexpr int kRetryMs = 20;
constexpr uint64_t kHandshakeTimeout = 10 * kSecond;

// TW_OK: ready, or a short time-out passed. TW_ERR_TIMED_OUT: the deadline.
Status await(int fd, short events, const Deadline& deadline) {
  pollfd one{fd, events, 0};
  const int ready = poll(&one, 1, deadline.left_ms());
  if (ready < 0 && errno != EINTR) return fail_errno(errno, "poll");
  return ready == 0 && deadline.passed() ? Status(TW_ERR_TIMED_OUT) : Status(TW_OK);
}

Status lost(const IoResult& result) {
  if (result.state == IoState::end) return fail(TW_ERR_PEER_LOST, "the store's server ended");
  return fail_errno(result.error, "the connection to the store's server");
}

Status send_all(int fd, const Bytes& bytes, const Deadline& deadline) {
  size_t done = 0;
  while (done < bytes.size()) {
    const IoResult result = stream_write(fd, nullptr, bytes.data() + done, bytes.size() - done);
    if (result.state == IoState::moved) {
      done += result.bytes;
    } else if (result.state != IoState::want_write) {
      return lost(result);
    } else if (const Status status = await(fd, POLLOUT, deadline); is_error(status)) {
      return status;
    }
  }
  return TW_OK;
}

Status receive_all(int fd, void* out, size_t n, const Deadline& deadline) {
  size_t done = 0;
  while (done < n) {
    const IoResult result = stream_read(fd, nullptr, static_cast<std::byte*>(out) + done, n - done);
    if (result.state == IoState::moved) {
      done += result.bytes;
    } else if (result.state != IoState::want_read) {
      return lost(result);
    } else if (const Status status = await(fd, POLLIN, deadline); is_error(status)) {
      return status;
    }
  }
  return TW_OK;
}

Status shake_hands(int fd, const JobKey& key, const Deadline& deadline) {
  Handshake handshake(Role::client, key, 0, false);
  for (;;) {
    const Handshake::Want want = handshake.advance(fd);
    if (want == Handshake::Want::done) return TW_OK;
    if (want == Handshake::Want::failed) return handshake.status();
    if (is_error(await(fd, want == Handshake::Want::read ? POLLIN : POLLOUT, deadline))) {
      return fail(TW_ERR_TIMED_OUT, "whoever listens at the store's address does not answer the handshake; is it a store?");
    }
  }
}

bool worth_retrying(Status status) {
  return status == TW_ERR_UNREACHABLE || status == TW_ERR_PEER_LOST || status == TW_ERR_IO || status == TW_ERR_NO_DESCRIPTORS;
}

Status parse_server(const std::string& text, AddressText* out) {
  const Status status = parse_address_text(text, out);
  if (is_error(status) || !out->unix_path) return status;
  return fail(TW_ERR_INVALID, "tcp:%s: a store's server has a host and a port; one machine alone may use a file store",
              text.c_str());
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
  UniqueFd first;
  if (const Status status = store->connect(Deadline(options.timeout_ns), &first); is_error(status)) return status;
  store->give_back(std::move(first));
  *out = std::move(store);
  return TW_OK;
}

Status TcpStore::serve(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out) {
  std::unique_ptr<TcpStore> store(new TcpStore(options));
  AddressText& at = store->server_address_;
  if (const Status status = parse_server(address, &at); is_error(status)) return status;
  if (const Status status = StoreServer::start(at, options.key, StoreServerOptions{}, &store->server_); is_error(status)) {
    return status;
  }
  at.port = store->server_->port();
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

Status TcpStore::connect_once(const SocketAddress& address, const Deadline& deadline, UniqueFd* out) {
  UniqueFd socket;
  Status status = start_connect(address, &socket);
  while (status == TW_IN_PROGRESS) {
    pollfd one{socket.get(), POLLOUT, 0};
    if (poll(&one, 1, deadline.left_ms()) == 0 && deadline.passed()) return TW_ERR_TIMED_OUT;
    if (one.revents != 0) status = finish_connect(socket.get(), address);
  }
  if (is_error(status)) return status;
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  const uint64_t left = deadline.left_ns();
  const Deadline handshake_deadline(left < kHandshakeTimeout ? left : kHandshakeTimeout);
  status = shake_hands(socket.get(), options_.key, handshake_deadline);
  if (is_error(status)) return status;
  *out = std::move(socket);
  return TW_OK;
}

Status TcpStore::connect(const Deadline& deadline, UniqueFd* out) {
  std::vector<SocketAddress> candidates;
  if (const Status status = resolve(server_address_, false, &candidates); is_error(status)) return status;
  for (;;) {
    Status status = TW_ERR_UNREACHABLE;
    for (const SocketAddress& candidate : candidates) {
      status = connect_once(candidate, deadline, out);
      if (status == TW_OK || status == TW_ERR_AUTHENTICATION || status == TW_ERR_VERSION) return status;
    }
    if (deadline.passed()) {
      return fail(TW_ERR_TIMED_OUT,
                  "no store at %s (last try: %s); start its server (\"serve:host:port\") or check the address "
                  "and the firewall",
                  server_address_.text().c_str(), status_name(status));
    }
    if (!worth_retrying(status)) return status;
    const int left = deadline.left_ms();
    poll(nullptr, 0, left < 0 || left > kRetryMs ? kRetryMs : left);
  }
}

Status TcpStore::take_connection(const Deadline& deadline, UniqueFd* out) {
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      *out = std::move(idle_.back());
      idle_.pop_back();
      char byte;
      if (recv(out->get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) return TW_OK;
      out->reset();  // the server has closed it, or says what nobody asked for
    }
  }
  return connect(deadline, out);
}

void TcpStore::give_back(UniqueFd connection) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(connection));
}

Status TcpStore::request(Op op, const std::string& key, const void* value, size_t length, const Deadline& deadline,
                         Bytes* out) {
  UniqueFd connection;
  if (const Status status = take_connection(deadline, &connection); is_error(status)) return status;
  const FrameHeader header{uint32_t(key.size()), uint32_t(length), uint16_t(op), 0, 0};
  Bytes frame(sizeof header + key.size() + length);
  std::memcpy(frame.data(), &header, sizeof header);
  std::memcpy(frame.data() + sizeof header, key.data(), key.size());
  if (length) std::memcpy(frame.data() + sizeof header + key.size(), value, length);
  if (const Status status = send_all(connection.get(), frame, deadline); is_error(status)) return status;
  FrameHeader answer{};
  if (const Status status = receive_all(connection.get(), &answer, sizeof answer, deadline); is_error(status)) return status;
  if (Op(answer.op) != Op::answer || answer.key_length != 0 || answer.value_length > kMaxValue) {
    return fail(TW_ERR_PROTOCOL, "the store's server gave no proper answer");
  }
  Bytes bytes(answer.value_length);
  if (const Status status = receive_all(connection.get(), bytes.data(), bytes.size(), deadline); is_error(status))
    return status;
  if (out) *out = std::move(bytes);
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
