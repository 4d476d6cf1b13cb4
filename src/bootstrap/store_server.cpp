// SPDX-License-Identifier: Apache-2.0
// The store's server. All state belongs to its EventLoop's thread.
//
// A client is a stranger (Handshake under way, a timer running), then reads one request, and while that request waits for
// its key or its answer is being sent nothing more is read: a client costs one request or one answer, never a queue. Waits
// are parked under their key; the put gives them tickets. All answers share the value that they send, which counts as the
// store's memory until the last is sent, though another has replaced it.
//
// A turn of the loop serves one client, or those with tickets, up to kTurn. The rest goes on behind what else is ready, by a
// timer: the socket of a client with TLS may be empty while requests of its are left.
#include "bootstrap/store_server.hpp"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/event_loop.hpp"
#include "base/interfaces.hpp"
#include "base/log.hpp"
#include "base/platform/fork.hpp"
#include "base/sockets.hpp"
#include "bootstrap/store.hpp"
#include "bootstrap/store_wire.hpp"
#include "security/handshake.hpp"
#include "security/strangers.hpp"

namespace thalweg::impl {
namespace {

using store_wire::AnswerHead;
using store_wire::Op;
using store_wire::RequestHead;

constexpr int kBacklog = 1024, kAcceptsPerTurn = 16;
constexpr uint64_t kEntryCost = 128;                   // bytes that keeping a value costs besides it and its name
constexpr uint64_t kAcceptPause = 100 * kMillisecond;  // after running out of descriptors
constexpr size_t kTurn = 1u << 20;                     // bytes read and answered before others have a turn
constexpr size_t kRequestCost = kTurn / 32;            // what a request counts as besides its bytes
constexpr size_t kShared = 4096;                       // shorter values are copied: one write sends the whole answer

using Value = SetupChannel::SharedBytes;

struct Client {
  uint64_t number = 0;                    // never used again, unlike its descriptor
  UniqueFd socket;                        // until authenticated
  std::unique_ptr<Handshake> handshake;   // once it has begun to speak
  std::unique_ptr<SetupChannel> channel;  // once authenticated
  uint64_t timer = 0;
  std::string parked;    // the key it waits for
  bool answers = false;  // an answer is not all written
  bool goes_on = false;  // its turn was over; a timer gives it the next
};

/// A client that waited, and what it waited for.
struct Ticket {
  int fd;
  uint64_t number;  // the client's
  Value value;
};

bool valid(const SetupChannel::Message& message, RequestHead* head) {
  const Op op = Op(message.type);
  const bool known = op == Op::put || op == Op::get || op == Op::wait || op == Op::erase;
  if (!known || message.bytes.size() < sizeof *head) return false;
  std::memcpy(head, message.bytes.data(), sizeof *head);
  const size_t rest = message.bytes.size() - sizeof *head;
  if (head->key_length == 0 || head->key_length > Store::kMaxKey || head->key_length > rest) return false;
  const size_t value = rest - head->key_length;
  return value <= Store::kMaxValue && (op == Op::put || value == 0);
}

}  // namespace

struct StoreServer::State {
  BornHere born;
  JobKey key;
  StoreServerOptions options;
  std::vector<DialTarget> known_as;
  std::vector<UniqueFd> listeners;
  uint16_t port = 0;
  RefusalCounters refusals;

  // loop thread
  uint64_t value_bytes = 0;  // of all values that are left, also of those that only answers still send
  uint64_t entry_bytes = 0;  // of names, and what entries cost besides
  std::unordered_map<int, std::unique_ptr<Client>> clients;
  uint64_t next_number = 0;
  Strangers strangers;  // by socket
  std::unordered_map<std::string, Value> values;
  std::unordered_map<std::string, std::unordered_set<int>> waiting;  // key -> sockets
  std::deque<Ticket> tickets;

  // stop()
  std::mutex mutex;
  std::condition_variable changed;
  bool empty = true;

  EventLoop loop;  // last: its thread ends before what it uses

  Status listen_at(const AddressText& address);
  void accept_some(int listener);
  void admit(UniqueFd socket);
  void refuse(int fd, Refusal cause);
  void drop(int fd);
  void ready(int fd, uint32_t events);
  bool is_here(const DialTarget& meant, int fd) const;
  bool begin_handshake(int fd, Client& client);
  bool authenticate(int fd, Client& client);
  bool read_request(int fd, Client& client, SetupChannel::Message* message, RequestHead* head);
  void serve_some(int fd, Client& client);
  void go_on_later(int fd, Client& client);
  size_t serve(int fd, Client& client, const SetupChannel::Message& message, const RequestHead& head);
  void put(const std::string& name, const std::byte* value, size_t length, Client& client);
  Value keep(const std::byte* value, size_t length);
  size_t answer(Client& client, Status status, const Value& value = nullptr);
  bool send_answer(int fd, Client& client);
  void wake_waiters(const std::string& name, const Value& value);
  void serve_tickets();
  void note_population();
};

Status StoreServer::State::listen_at(const AddressText& address) {
  if (const Status status = listen_where_allowed(address, getenv("THALWEG_INTERFACES"), kBacklog, &listeners, &port);
      is_error(status)) {
    return status;
  }
  for (const UniqueFd& listener : listeners) {
    const int fd = listener.get();
    if (const Status status = loop.add(fd, EPOLLIN, [this, fd](uint32_t) { accept_some(fd); }); is_error(status)) return status;
  }
  return TW_OK;
}

void StoreServer::State::note_population() {
  const std::lock_guard lock(mutex);
  empty = clients.empty();
  if (empty) changed.notify_all();
}

/// Accepts a few at a time, so that connected clients are served during a flood of new ones.
void StoreServer::State::accept_some(int listener) {
  UniqueFd socket;
  Status status = TW_OK;
  for (int i = 0; i < kAcceptsPerTurn && status == TW_OK; ++i) {
    status = accept_from(listener, &socket);
    if (status == TW_OK) admit(std::move(socket));
  }
  if (!is_error(status)) return;
  // Out of descriptors or memory: the connection stays in the backlog, so stop looking for a while.
  refusals.count(Refusal::overload);
  warn_once("store accept", std::string("the store cannot accept a client: ") + last_error());
  loop.modify(listener, 0);
  loop.after(kAcceptPause, [this, listener] { loop.modify(listener, EPOLLIN); });
}

void StoreServer::State::admit(UniqueFd socket) {
  if (clients.size() - strangers.count() >= options.max_clients) {
    refusals.count(Refusal::overload);
    return;
  }
  for (uint64_t oldest = 0; strangers.excess(&oldest);) refuse(int(oldest), Refusal::overload);
  SocketAddress from;
  if (is_error(peer_address(socket.get(), &from))) return;  // gone already
  const int fd = socket.get();
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  auto client = std::make_unique<Client>();
  client->number = next_number++;
  client->socket = std::move(socket);
  if (is_error(loop.add(fd, EPOLLIN, [this, fd](uint32_t events) { ready(fd, events); }))) return;
  client->timer = loop.after(options.handshake_timeout_ns, [this, fd] { refuse(fd, Refusal::timeout); });
  clients.emplace(fd, std::move(client));
  strangers.enter(uint64_t(fd), Strangers::source_of(from, 0));
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
  if (!client->channel) {
    strangers.leave(uint64_t(fd));
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
  if (!client.channel && !authenticate(fd, client)) return;
  if (client.goes_on) return;
  const bool busy = !client.parked.empty() || client.answers;
  if (busy && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))) return drop(fd);
  if (client.answers && !send_answer(fd, client)) return;
  serve_some(fd, client);
}

void StoreServer::State::serve_some(int fd, Client& client) {
  size_t spent = 0;
  while (client.parked.empty() && !client.answers) {
    if (spent >= kTurn) return go_on_later(fd, client);
    SetupChannel::Message message;
    RequestHead head{};
    if (!read_request(fd, client, &message, &head)) return;
    spent += kRequestCost + message.bytes.size() + serve(fd, client, message, head);
    if (client.answers && !send_answer(fd, client)) return;
  }
}

void StoreServer::State::go_on_later(int fd, Client& client) {
  client.goes_on = true;
  loop.after(0, [this, fd, number = client.number] {
    const auto found = clients.find(fd);
    if (found == clients.end() || found->second->number != number) return;
    found->second->goes_on = false;
    serve_some(fd, *found->second);
  });
}

bool StoreServer::State::is_here(const DialTarget& meant, int fd) const {
  return meant == DialTarget::reached(Purpose::store, fd) ||
         std::find(known_as.begin(), known_as.end(), meant) != known_as.end();
}

bool StoreServer::State::begin_handshake(int fd, Client& client) {
  const Opening opening = look_at_opening(fd);
  if (opening == Opening::wait) return false;
  if (opening == Opening::closed) {
    refuse(fd, Refusal::closed);
    return false;
  }
  if (options.tls && opening != Opening::tls) {
    refuse(fd, Refusal::authentication);
    return false;
  }
  client.handshake = std::make_unique<Handshake>(key, 0, opening == Opening::tls,
                                                 [this, fd](const DialTarget& meant) { return is_here(meant, fd); });
  return true;
}

// True when the client is (now) known.
bool StoreServer::State::authenticate(int fd, Client& client) {
  if (!client.handshake && !begin_handshake(fd, client)) return false;
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
  SSL* const tls = client.handshake->take_tls();
  const Session session = client.handshake->session();
  client.channel = std::make_unique<SetupChannel>(std::move(client.socket), tls, session, store_wire::kMaxMessage);
  client.handshake.reset();
  strangers.leave(uint64_t(fd));
  loop.modify(fd, EPOLLIN);
  return true;
}

// True when a whole request is there.
bool StoreServer::State::read_request(int fd, Client& client, SetupChannel::Message* message, RequestHead* head) {
  const Status status = client.channel->receive(message);
  if (status == TW_IN_PROGRESS) return false;
  if (status == TW_OK && valid(*message, head)) return true;
  if (status == TW_ERR_AUTHENTICATION) {
    refuse(fd, Refusal::integrity);
  } else if (status == TW_OK || status == TW_ERR_PROTOCOL) {
    refuse(fd, Refusal::malformed);
  } else {
    drop(fd);
  }
  return false;
}

// Returns the bytes of values that it has begun to answer.
size_t StoreServer::State::serve(int fd, Client& client, const SetupChannel::Message& message, const RequestHead& head) {
  const std::byte* text = message.bytes.data() + sizeof head;
  const std::string name(reinterpret_cast<const char*>(text), head.key_length);
  const auto found = values.find(name);
  switch (Op(message.type)) {
    case Op::put:
      put(name, text + head.key_length, message.bytes.size() - sizeof head - head.key_length, client);
      return 0;
    case Op::erase:
      if (found != values.end()) {
        entry_bytes -= kEntryCost + name.size();
        values.erase(found);
      }
      return answer(client, TW_OK);
    default:
      if (found != values.end()) return answer(client, TW_OK, found->second);
      if (Op(message.type) == Op::get) return answer(client, TW_ERR_NO_MATCH);
      client.parked = name;
      waiting[name].insert(fd);
      loop.modify(fd, EPOLLRDHUP);
      return 0;
  }
}

void StoreServer::State::put(const std::string& name, const std::byte* value, size_t length, Client& client) {
  const auto found = values.find(name);
  const bool known = found != values.end();
  const uint64_t freed = known && found->second.use_count() == 1 ? found->second->size() : 0;
  const uint64_t entry = known ? 0 : kEntryCost + name.size();
  if (entry_bytes + entry + value_bytes - freed + length > options.max_bytes) {
    answer(client, TW_ERR_LIMIT);
    return;
  }
  entry_bytes += entry;
  const Value kept = values[name] = keep(value, length);
  answer(client, TW_OK);
  wake_waiters(name, kept);
}

/// Counted until the last who sends it has let it go.
Value StoreServer::State::keep(const std::byte* value, size_t length) {
  auto copy = std::make_unique<const Bytes>(value, value + length);
  value_bytes += length;
  return Value(copy.release(), [this](const Bytes* bytes) {
    value_bytes -= bytes->size();
    delete bytes;
  });
}

void StoreServer::State::wake_waiters(const std::string& name, const Value& value) {
  const auto found = waiting.find(name);
  if (found == waiting.end()) return;
  const bool served = !tickets.empty();  // a timer runs
  for (const int fd : found->second) tickets.push_back({fd, clients.at(fd)->number, value});
  waiting.erase(found);
  if (!served) loop.after(0, [this] { serve_tickets(); });
}

void StoreServer::State::serve_tickets() {
  for (size_t spent = 0; spent < kTurn && !tickets.empty(); tickets.pop_front()) {
    const Ticket& ticket = tickets.front();
    const auto found = clients.find(ticket.fd);
    if (found == clients.end() || found->second->number != ticket.number) continue;  // it has left
    found->second->parked.clear();
    spent += kRequestCost + answer(*found->second, TW_OK, ticket.value);
    loop.modify(ticket.fd, EPOLLOUT | EPOLLRDHUP);  // sent by the loop: a lost client must not disturb it here
  }
  if (!tickets.empty()) loop.after(0, [this] { serve_tickets(); });
}

// Returns the value's bytes.
size_t StoreServer::State::answer(Client& client, Status status, const Value& value) {
  const AnswerHead head{status};
  const size_t length = value ? value->size() : 0, copied = length < kShared ? length : 0;
  Bytes text(sizeof head + copied);
  std::memcpy(text.data(), &head, sizeof head);
  if (copied != 0) std::memcpy(text.data() + sizeof head, value->data(), copied);
  client.channel->queue(uint16_t(Op::answer), text.data(), text.size(), std::vector<UniqueFd>(),
                        copied == length ? nullptr : value);  // one at a time: there is room
  client.answers = true;
  return length;
}

// True when the answer is sent; false when it waits for room or the client was dropped.
bool StoreServer::State::send_answer(int fd, Client& client) {
  const Status status = client.channel->flush();
  if (status == TW_IN_PROGRESS) {
    loop.modify(fd, EPOLLOUT | EPOLLRDHUP);
    return false;
  }
  if (is_error(status)) {
    drop(fd);
    return false;
  }
  client.answers = false;
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
  if (const Status status = known_as(Purpose::store, &s.known_as); is_error(status)) return status;
  s.strangers = Strangers(options.max_strangers);
  if (const Status status = s.listen_at(address); is_error(status)) return status;
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
  drain(s.options.linger_ns);
  s.loop.stop();
}

bool StoreServer::drain(uint64_t ns) {
  State& s = *state_;
  s.loop.call([&s] {
    for (const UniqueFd& listener : s.listeners) s.loop.remove(listener.get());
    s.listeners.clear();
    s.options.max_clients = 0;
    std::vector<int> strangers;  // were they clients, they would come too late
    for (const auto& [fd, client] : s.clients) {
      if (!client->channel) strangers.push_back(fd);
    }
    for (const int fd : strangers) s.drop(fd);
  });
  std::unique_lock lock(s.mutex);
  return s.changed.wait_for(lock, std::chrono::nanoseconds(ns), [&s] { return s.empty; });
}

uint16_t StoreServer::port() const { return state_->port; }

std::string StoreServer::host() const {
  SocketAddress bound;
  AddressText text;
  if (state_->listeners.empty() || is_error(local_address(state_->listeners.front().get(), &bound))) return {};
  return is_error(parse_address_text(bound.text(), &text)) ? std::string() : text.host;
}
const RefusalCounters& StoreServer::refusals() const { return state_->refusals; }

}  // namespace thalweg::impl
