// SPDX-License-Identifier: Apache-2.0
// The store's server. All state belongs to its EventLoop's thread.
//
// A client is a stranger (Handshake under way, a timer running), then reads one request, and while that request waits for its
// key or its answer is being sent nothing more is read: a client costs one request or one answer, never a queue. Waits are
// parked under their key and answered by the put.
#include "bootstrap/store_server.hpp"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/event_loop.hpp"
#include "base/log.hpp"
#include "base/platform/fork.hpp"
#include "base/sockets.hpp"
#include "bootstrap/store.hpp"
#include "bootstrap/store_wire.hpp"
#include "security/handshake.hpp"
#include "security/stream.hpp"

namespace thalweg::impl {
namespace {

using store_wire::FrameHeader;
using store_wire::Op;

constexpr uint64_t kAcceptPause = 100 * kMillisecond;  // after running out of descriptors

struct Client {
  UniqueFd socket;
  std::unique_ptr<Handshake> handshake;  // null once authenticated
  uint64_t timer = 0;
  FrameHeader header{};
  size_t header_done = 0;
  Bytes body;  // key and value of the request under way
  size_t body_done = 0;
  std::string parked;  // the key it waits for
  Bytes answer;
  size_t answer_done = 0;
};

bool valid(const FrameHeader& header) {
  const Op op = Op(header.op);
  const bool known = op == Op::put || op == Op::get || op == Op::wait || op == Op::erase;
  return known && header.key_length > 0 && header.key_length <= Store::kMaxKey && header.value_length <= Store::kMaxValue &&
         (op == Op::put || header.value_length == 0);
}

}  // namespace

struct StoreServer::State {
  BornHere born;
  JobKey key;
  StoreServerOptions options;
  UniqueFd listener;
  uint16_t port = 0;
  RefusalCounters refusals;

  // loop thread
  std::unordered_map<int, std::unique_ptr<Client>> clients;
  size_t strangers = 0;
  std::unordered_map<std::string, Bytes> values;
  uint64_t bytes = 0;
  std::unordered_map<std::string, std::unordered_set<int>> waiting;  // key -> sockets

  // stop()
  std::mutex mutex;
  std::condition_variable changed;
  bool empty = true;

  EventLoop loop;  // last: its thread ends before what it uses

  Status listen_at(const AddressText& address);
  void accept_all();
  void admit(UniqueFd socket);
  void refuse(int fd, Refusal cause);
  void drop(int fd);
  void ready(int fd, uint32_t events);
  bool authenticate(int fd, Client& client);
  bool read_request(int fd, Client& client);
  void serve(int fd, Client& client);
  void put(const std::string& name, const std::byte* value, size_t length, Client& client);
  void answer(Client& client, Status status, const Bytes* value);
  bool send_answer(int fd, Client& client);
  void wake_waiters(const std::string& name);
  void note_population();
};

Status StoreServer::State::listen_at(const AddressText& address) {
  std::vector<SocketAddress> candidates;
  if (const Status status = resolve(address, true, &candidates); is_error(status)) return status;
  Status status = TW_ERR_UNREACHABLE;
  for (const SocketAddress& candidate : candidates) {
    status = impl::listen_at(candidate, 1024, &listener);
    if (is_error(status)) continue;
    SocketAddress bound;
    status = local_address(listener.get(), &bound);
    port = bound.port();
    break;
  }
  return status;
}

void StoreServer::State::note_population() {
  const std::lock_guard lock(mutex);
  empty = clients.empty();
  if (empty) changed.notify_all();
}

void StoreServer::State::accept_all() {
  UniqueFd socket;
  Status status;
  while ((status = accept_from(listener.get(), &socket)) == TW_OK) admit(std::move(socket));
  if (status == TW_AGAIN) return;
  // Out of descriptors or memory: the connection stays in the backlog, so stop looking for a while.
  refusals.count(Refusal::overload);
  warn_once("store accept", std::string("the store cannot accept a client: ") + last_error() + "; raise ulimit -n");
  loop.modify(listener.get(), 0);
  loop.after(kAcceptPause, [this] { loop.modify(listener.get(), EPOLLIN); });
}

void StoreServer::State::admit(UniqueFd socket) {
  if (strangers >= options.max_strangers || clients.size() >= options.max_clients) {
    refusals.count(Refusal::overload);
    return;
  }
  const int fd = socket.get();
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  auto client = std::make_unique<Client>();
  client->socket = std::move(socket);
  client->handshake = std::make_unique<Handshake>(Role::server, key, 0, false);
  if (is_error(loop.add(fd, EPOLLIN, [this, fd](uint32_t events) { ready(fd, events); }))) return;
  client->timer = loop.after(options.handshake_timeout_ns, [this, fd] { refuse(fd, Refusal::timeout); });
  clients.emplace(fd, std::move(client));
  ++strangers;
  note_population();
}

void StoreServer::State::refuse(int fd, Refusal cause) {
  refusals.count(cause);
  log(LogLevel::info, "store: a client was refused: %s", refusal_name(cause));
  drop(fd);
}

void StoreServer::State::drop(int fd) {
  const auto found = clients.find(fd);
  if (found == clients.end()) return;
  const std::unique_ptr<Client> client = std::move(found->second);
  clients.erase(found);
  if (client->handshake) {
    --strangers;
    loop.cancel(client->timer);
  }
  if (!client->parked.empty()) {
    const auto waiters = waiting.find(client->parked);
    if (waiters != waiting.end()) {
      waiters->second.erase(fd);
      if (waiters->second.empty()) waiting.erase(waiters);
    }
  }
  loop.remove(fd);
  note_population();
}

void StoreServer::State::ready(int fd, uint32_t events) {
  Client& client = *clients.at(fd);
  if (client.handshake && !authenticate(fd, client)) return;
  const bool busy = !client.parked.empty() || !client.answer.empty();
  if (busy && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))) return drop(fd);
  if (!client.answer.empty() && !send_answer(fd, client)) return;
  while (client.parked.empty() && client.answer.empty()) {
    if (!read_request(fd, client)) return;
    serve(fd, client);
    if (!client.answer.empty() && !send_answer(fd, client)) return;
  }
}

// True when the client is (now) known.
bool StoreServer::State::authenticate(int fd, Client& client) {
  switch (client.handshake->advance(fd)) {
    case Handshake::Want::read:
      loop.modify(fd, EPOLLIN);
      return false;
    case Handshake::Want::write:
      loop.modify(fd, EPOLLOUT);
      return false;
    case Handshake::Want::failed:
      refuse(fd, client.handshake->refusal());
      return false;
    case Handshake::Want::done:
      break;
  }
  loop.cancel(client.timer);
  client.handshake.reset();
  --strangers;
  loop.modify(fd, EPOLLIN);
  return true;
}

// True when a whole request is there. The body grows as it arrives, so that an announced length alone costs nothing.
bool StoreServer::State::read_request(int fd, Client& client) {
  for (;;) {
    const bool in_header = client.header_done < sizeof client.header;
    size_t wanted = sizeof client.header - client.header_done;
    std::byte* at = reinterpret_cast<std::byte*>(&client.header) + client.header_done;
    if (!in_header) {
      const size_t total = size_t(client.header.key_length) + client.header.value_length;
      if (client.body_done == total) return true;
      wanted = std::min<size_t>(total - client.body_done, 64u << 10);
      client.body.resize(client.body_done + wanted);
      at = client.body.data() + client.body_done;
    }
    const IoResult result = stream_read(fd, nullptr, at, wanted);
    if (result.state == IoState::want_read) return false;
    if (result.state != IoState::moved) {
      drop(fd);
      return false;
    }
    (in_header ? client.header_done : client.body_done) += result.bytes;
    if (in_header && client.header_done == sizeof client.header && !valid(client.header)) {
      refuse(fd, Refusal::malformed);
      return false;
    }
  }
}

void StoreServer::State::serve(int fd, Client& client) {
  const FrameHeader header = client.header;
  const std::string name(reinterpret_cast<const char*>(client.body.data()), header.key_length);
  const auto found = values.find(name);
  switch (Op(header.op)) {
    case Op::put:
      put(name, client.body.data() + header.key_length, header.value_length, client);
      break;
    case Op::erase:
      if (found != values.end()) {
        bytes -= name.size() + found->second.size();
        values.erase(found);
      }
      answer(client, TW_OK, nullptr);
      break;
    default:
      if (found != values.end()) {
        answer(client, TW_OK, &found->second);
      } else if (Op(header.op) == Op::get) {
        answer(client, TW_ERR_NO_MATCH, nullptr);
      } else {
        client.parked = name;
        waiting[name].insert(fd);
        loop.modify(fd, EPOLLRDHUP);
      }
  }
  client.header_done = client.body_done = 0;
  client.body = Bytes();
}

void StoreServer::State::put(const std::string& name, const std::byte* value, size_t length, Client& client) {
  const auto found = values.find(name);
  const uint64_t before = found == values.end() ? 0 : name.size() + found->second.size();
  if (bytes - before + name.size() + length > options.max_bytes) {
    answer(client, TW_ERR_LIMIT, nullptr);
    return;
  }
  bytes += name.size() + length - before;
  values[name].assign(value, value + length);
  answer(client, TW_OK, nullptr);
  wake_waiters(name);
}

void StoreServer::State::wake_waiters(const std::string& name) {
  const auto found = waiting.find(name);
  if (found == waiting.end()) return;
  const std::unordered_set<int> sockets = std::move(found->second);
  waiting.erase(found);
  for (const int fd : sockets) {
    Client& waiter = *clients.at(fd);
    waiter.parked.clear();
    answer(waiter, TW_OK, &values.at(name));
    loop.modify(fd, EPOLLOUT | EPOLLRDHUP);  // sent when its turn comes: a lost client may not disturb this loop
  }
}

void StoreServer::State::answer(Client& client, Status status, const Bytes* value) {
  const FrameHeader header{0, value ? uint32_t(value->size()) : 0, uint16_t(Op::answer), 0, status};
  client.answer.resize(sizeof header + header.value_length);
  std::memcpy(client.answer.data(), &header, sizeof header);
  if (header.value_length) std::memcpy(client.answer.data() + sizeof header, value->data(), value->size());
  client.answer_done = 0;
}

// True when the answer is gone; false when it waits for room or the client was dropped.
bool StoreServer::State::send_answer(int fd, Client& client) {
  while (client.answer_done < client.answer.size()) {
    const IoResult result =
        stream_write(fd, nullptr, client.answer.data() + client.answer_done, client.answer.size() - client.answer_done);
    if (result.state == IoState::want_write) {
      loop.modify(fd, EPOLLOUT | EPOLLRDHUP);
      return false;
    }
    if (result.state != IoState::moved) {
      drop(fd);
      return false;
    }
    client.answer_done += result.bytes;
  }
  client.answer = Bytes();
  loop.modify(fd, EPOLLIN);
  return true;
}

StoreServer::StoreServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Status StoreServer::start(const AddressText& address, const JobKey& key, const StoreServerOptions& options,
                          std::unique_ptr<StoreServer>* out) {
  auto state = std::make_unique<State>();
  State& s = *state;
  s.key = key;
  s.options = options;
  if (const Status status = s.listen_at(address); is_error(status)) return status;
  if (const Status status = s.loop.add(s.listener.get(), EPOLLIN, [&s](uint32_t) { s.accept_all(); }); is_error(status)) {
    return status;
  }
  if (const Status status = s.loop.start(); is_error(status)) return status;
  out->reset(new StoreServer(std::move(state)));
  return TW_OK;
}

StoreServer::~StoreServer() {
  State& s = *state_;
  if (s.born.forked()) {
    (void)state_.release();  // its locks and thread are the parent's
    return;
  }
  s.loop.call([&s] {
    s.loop.remove(s.listener.get());
    s.listener.reset();
    s.options.max_clients = 0;
  });
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait_for(lock, std::chrono::nanoseconds(s.options.linger_ns), [&s] { return s.empty; });
  }
  s.loop.stop();
}

uint16_t StoreServer::port() const { return state_->port; }
const RefusalCounters& StoreServer::refusals() const { return state_->refusals; }

}  // namespace thalweg::impl
