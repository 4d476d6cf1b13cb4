// SPDX-License-Identifier: Apache-2.0
#include "core/live.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/passed_descriptors.hpp"
#include "base/platform/process.hpp"
#include "base/sockets.hpp"
#include "core/context.hpp"
#include "core/counters.hpp"
#include "core/setup.hpp"
#include "core/socket_dir.hpp"

namespace thalweg::impl {
namespace {

constexpr int kBacklog = 8;
constexpr uint64_t kIdleNs = 120 * kSecond;       // a client that asks nothing
constexpr uint64_t kSlowNs = 5 * kSecond;         // one in the middle of a request, or that does not read its answer
constexpr uint64_t kFreshNs = 10 * kMillisecond;  // so old an answer is given again: requests in a row cost one
constexpr char kAsksForSnapshot[] = "snapshot";

}  // namespace

Status Live::open() {
  const std::string& directory = context_.settings.socket_dir;
  if (Status s = prepare_socket_dir(directory, kEnding); is_error(s)) return s;
  const std::string path = directory + "/" + context_.setup->name() + kEnding;
  SocketAddress where;
  if (Status s = unix_address(path, &where); is_error(s)) return s;
  if (Status s = listen_at(where, kBacklog, &socket_); is_error(s)) return s;
  path_ = path;
  Status status = TW_OK;
  context_.loop.call([&] { status = context_.loop.add(socket_.get(), EPOLLIN, [this](uint32_t) { incoming(); }); });
  return status;
}

void Live::close() {
  if (!socket_) return;
  context_.loop.call([&] {
    while (!clients_.empty()) drop(clients_.begin()->first);
    if (pause_ != 0) context_.loop.cancel(pause_);
    context_.loop.remove(socket_.get());
    unlink(path_.c_str());
    socket_ = UniqueFd();
  });
}

/// After a while in which there were no descriptors. What has connected meanwhile waits in the backlog.
void Live::look_again() {
  pause_ = 0;
  if (is_error(context_.loop.add(socket_.get(), EPOLLIN, [this](uint32_t) { incoming(); })))
    pause_ = context_.loop.after(kSecond, [this] { look_again(); });
}

void Live::incoming() {
  UniqueFd socket;
  const Status status = accept_from(socket_.get(), &socket);
  if (status == TW_AGAIN) return;
  if (is_error(status)) {  // out of descriptors: not looked at for a while, or it would be without end
    warn_once("live", std::string("thalweg top does not see this process for now: ") + last_error());
    context_.loop.remove(socket_.get());
    pause_ = context_.loop.after(kSecond, [this] { look_again(); });
    return;
  }
  const uid_t uid = peer_uid(socket.get());
  if ((uid != geteuid() && uid != 0) || clients_.size() >= kClients) return;  // closed again
  const int fd = socket.get();
  auto client = std::make_unique<Client>();
  client->socket = std::move(socket);
  if (is_error(context_.loop.add(fd, EPOLLIN, [this, fd](uint32_t events) { ready(fd, events); }))) return;
  rest(*clients_.emplace(fd, std::move(client)).first->second);
}

void Live::ready(int fd, uint32_t events) {
  const auto at = clients_.find(fd);
  if (at == clients_.end()) return;
  Client& client = *at->second;
  const bool writes = !client.answer.empty();
  const bool alive = (events & EPOLLERR) == 0 && (writes ? write(client) : read(client));
  if (!alive) return drop(fd);
  // Nothing is read while an answer is left: a client that does not read cannot make this side keep more.
  if (writes != !client.answer.empty()) (void)context_.loop.modify(fd, client.answer.empty() ? EPOLLIN : EPOLLOUT);
  rest(client);
}

bool Live::read(Client& client) {
  char bytes[kLongestRequest];
  const iovec place{bytes, sizeof bytes};
  const ssize_t n = receive_passed(client.socket.get(), &place, 1, nullptr);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  client.asked.append(bytes, static_cast<size_t>(n));
  return request(client);
}

/// The next whole one that is there. False: the client is to be dropped.
bool Live::request(Client& client) {
  const size_t end = client.asked.find('\n');
  if (end == std::string::npos) return client.asked.size() <= kLongestRequest;
  const bool known = client.asked.compare(0, end, kAsksForSnapshot) == 0;
  client.answer = known ? snapshot() : std::string("{\"error\": \"no such request: ask for snapshot\"}");
  client.answer += '\n';
  client.last = !known;
  client.sent = 0;
  client.asked.erase(0, end + 1);
  return write(client);
}

bool Live::write(Client& client) {
  while (client.sent < client.answer.size()) {
    const ssize_t n =
        send(client.socket.get(), client.answer.data() + client.sent, client.answer.size() - client.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    client.sent += static_cast<size_t>(n);
  }
  client.answer.clear();
  if (client.last) return false;
  return client.asked.find('\n') == std::string::npos || request(client);
}

const std::string& Live::snapshot() {
  const uint64_t now = monotonic_ns();
  if (snapshot_.empty() || now - made_ >= kFreshNs) {
    snapshot_ = live_json(context_);
    made_ = now;
  }
  return snapshot_;
}

/// Until the next event of it.
void Live::rest(Client& client) {
  if (client.timer != 0) context_.loop.cancel(client.timer);
  const bool idle = client.asked.empty() && client.answer.empty();
  const int fd = client.socket.get();
  client.timer = context_.loop.after(idle ? kIdleNs : kSlowNs, [this, fd] {
    if (const auto at = clients_.find(fd); at != clients_.end()) at->second->timer = 0;
    drop(fd);
  });
}

void Live::drop(int fd) {
  const auto at = clients_.find(fd);
  if (at == clients_.end()) return;
  if (at->second->timer != 0) context_.loop.cancel(at->second->timer);
  context_.loop.remove(fd);
  clients_.erase(at);
}

}  // namespace thalweg::impl
