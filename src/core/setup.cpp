// SPDX-License-Identifier: Apache-2.0
// Listening sockets, and the tables of acceptors and connectors.
#include "core/setup.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/hex.hpp"
#include "base/interfaces.hpp"
#include "base/log.hpp"
#include "base/platform/process.hpp"
#include "core/acceptor.hpp"
#include "core/connector.hpp"
#include "core/context.hpp"
#include "core/socket_dir.hpp"
#include "core/worker.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kRestNs = 50 * kMillisecond;
constexpr int kAcceptsPerTurn = 16;
constexpr int kBacklog = 512;

}  // namespace

PeerIdentity identify(WorkerId worker, uint64_t incarnation, uint64_t host, int32_t pid) {
  PeerIdentity peer;
  peer.worker = worker;
  peer.incarnation = incarnation;
  peer.host = host;
  peer.pid = pid;
  return peer;
}

Setup::Setup(tw_context& context) : context_(context) {}
Setup::~Setup() = default;

Status Setup::open() {
  token_ = random_id();
  name_ = hex16(token_);
  const bool network = context_.usable(&TransportTraits::over_network) != nullptr;
  if (context_.usable(&TransportTraits::passes_descriptors) != nullptr) {
    const Status status = open_unix();
    if (is_error(status)) {
      token_ = 0;
      warn_once("socket-dir", std::string("no unix socket for connections on this machine: ") + last_error());
      if (!network) return status;
    }
  } else {
    token_ = 0;
  }
  return network ? open_network() : Status(TW_OK);
}

std::vector<const tw_worker*> Setup::workers() const {
  std::vector<const tw_worker*> all;
  for (const auto& [id, worker] : workers_) all.push_back(worker);
  return all;
}

std::string Setup::socket_path(uint64_t token) const { return context_.settings.socket_dir + "/" + hex16(token) + ".sock"; }

bool Setup::unix_candidate(uint64_t token, SocketAddress* out) const {
  return token != 0 && !is_error(unix_address(socket_path(token), out));
}

Status Setup::open_unix() {
  const std::string& directory = context_.settings.socket_dir;
  if (const Status made = prepare_socket_dir(directory, ".sock"); is_error(made)) return made;
  SocketAddress where;
  if (!unix_candidate(token_, &where)) {
    return fail(TW_ERR_INVALID, "socket directory %s is too long a path: set THALWEG_SOCKET_DIR", directory.c_str());
  }
  auto door = std::make_unique<Door>();
  const Status status = listen_at(where, kBacklog, &door->socket);
  if (is_error(status)) return status;
  door->path = socket_path(token_);
  return add_door(std::move(door));
}

Status Setup::open_network() {
  std::vector<UniqueFd> sockets;
  Status status = listen_where_allowed({}, context_.settings.interfaces.c_str(), kBacklog, &sockets, &port_);
  for (UniqueFd& socket : sockets) {
    if (is_error(status)) break;
    auto door = std::make_unique<Door>();
    door->tls = context_.settings.tls;
    door->socket = std::move(socket);
    status = add_door(std::move(door));
  }
  return status;
}

Status Setup::add_door(std::unique_ptr<Door> door) {
  Status status = TW_OK;
  std::string why;
  context_.loop.call([&] {
    Door* at = door.get();
    status = context_.loop.add(at->socket.get(), EPOLLIN, [this, at](uint32_t) { incoming(at); });
    if (is_error(status)) {
      why = last_error();
      return;
    }
    doors_.push_back(std::move(door));
  });
  if (is_error(status)) set_last_error(why);
  return status;
}

void Setup::remove_door(uint64_t listener) {
  context_.loop.call([&] {
    std::vector<std::shared_ptr<Acceptor>> ended;
    for (auto& [id, acceptor] : acceptors_) {
      if (acceptor->listener() == listener) ended.push_back(acceptor);
    }
    for (auto& acceptor : ended) acceptor->turn_away();
    std::erase_if(doors_, [&](const auto& door) {
      if (door->listener != listener) return false;
      close_door(*door);
      return true;
    });
  });
}

void Setup::close_door(Door& door) {
  if (!door.resting) context_.loop.remove(door.socket.get());
  if (door.rest_timer != 0) context_.loop.cancel(door.rest_timer);
  if (!door.path.empty()) unlink(door.path.c_str());
}

void Setup::close() {
  context_.loop.call([&] {
    closed_ = true;
    for (auto& door : doors_) close_door(*door);
    doors_.clear();
    auto acceptors = std::exchange(acceptors_, {});
    for (auto& [id, acceptor] : acceptors) acceptor->end();
    auto connectors = std::exchange(connectors_, {});
    for (auto& [key, connector] : connectors) connector->end();
    tickets_.clear();
  });
  resolver_.close();
}

void Setup::rest(Door* door) {
  door->resting = true;
  context_.loop.remove(door->socket.get());
  door->rest_timer = context_.loop.after(kRestNs, [this, door] {
    door->rest_timer = 0;
    door->resting = false;
    if (is_error(context_.loop.add(door->socket.get(), EPOLLIN, [this, door](uint32_t) { incoming(door); }))) rest(door);
  });
}

void Setup::incoming(Door* door) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd socket;
    const Status status = accept_from(door->socket.get(), &socket);
    if (status == TW_AGAIN) return;
    if (is_error(status)) {
      warn_once("accept", std::string("connections cannot be accepted: ") + last_error());
      return rest(door);
    }
    if (!door->path.empty()) {
      const uid_t uid = peer_uid(socket.get());
      if (uid != geteuid() && uid != 0) {
        refused(Refusal::authentication, "a process of another user came by the unix socket");
        continue;
      }
    }
    SocketAddress from;
    if (is_error(peer_address(socket.get(), &from))) continue;  // gone already
    make_place(*door);
    const uint64_t id = next_key();
    auto acceptor = std::make_shared<Acceptor>(*this, id, *door);
    acceptors_[id] = acceptor;
    door->strangers.enter(id, Strangers::source_of(from, peer_pid(socket.get())));
    if (is_error(acceptor->start(std::move(socket), door->tls))) end_acceptor(id);
  }
}

void Setup::make_place(Door& door) {
  for (uint64_t id = 0; door.strangers.excess(&id);) {
    door.strangers.leave(id);
    auto at = acceptors_.find(id);
    if (at == acceptors_.end()) continue;
    auto acceptor = at->second;
    acceptor->evict();
  }
}

void Setup::settled(uint64_t acceptor) {
  for (auto& door : doors_) door->strangers.leave(acceptor);
}

void Setup::end_acceptor(uint64_t id) {
  settled(id);
  auto at = acceptors_.find(id);
  if (at == acceptors_.end()) return;
  auto acceptor = at->second;
  acceptors_.erase(at);
  acceptor->end();
}

void Setup::end_connector(uint64_t key) {
  auto at = connectors_.find(key);
  if (at == connectors_.end()) return;
  auto connector = at->second;
  connectors_.erase(at);
  connector->end();
}

void Setup::refused(Refusal refusal, const std::string& why) {
  if (refusal == Refusal::none) return;
  context_.refusals.count(refusal);
  if (refusal != Refusal::closed) log(LogLevel::info, "refused a connection (%s): %s", refusal_name(refusal), why.c_str());
}

bool Setup::admit(uint64_t listener) {
  for (auto& door : doors_) {
    if (door->listener != listener) continue;
    if (door->unanswered >= door->backlog) return false;
    ++door->unanswered;
    return true;
  }
  return false;
}

void Setup::dismiss(uint64_t listener) {
  for (auto& door : doors_) {
    if (door->listener == listener && door->unanswered > 0) --door->unanswered;
  }
}

tw_worker* Setup::find(WorkerId id) const {
  auto at = workers_.find(id);
  return at == workers_.end() ? nullptr : at->second;
}

Acceptor* Setup::by_ticket(uint64_t ticket) const {
  auto at = tickets_.find(ticket);
  if (at == tickets_.end()) return nullptr;
  auto acceptor = acceptors_.find(at->second);
  return acceptor == acceptors_.end() ? nullptr : acceptor->second.get();
}

void Setup::enter(tw_worker* worker) {
  context_.loop.call([&] { workers_[worker->id] = worker; });
}

void Setup::leave(tw_worker* worker) {
  context_.loop.call([&] {
    workers_.erase(worker->id);
    std::vector<uint64_t> acceptors, connectors;
    for (auto& [id, acceptor] : acceptors_) {
      if (acceptor->worker() == worker) acceptors.push_back(id);
    }
    for (auto& [key, connector] : connectors_) {
      if (connector->worker() == worker) connectors.push_back(key);
    }
    for (uint64_t id : acceptors) end_acceptor(id);
    for (uint64_t key : connectors) end_connector(key);
    for (auto at = doors_.begin(); at != doors_.end();) {
      if ((*at)->worker != worker) {
        ++at;
        continue;
      }
      close_door(**at);
      at = doors_.erase(at);
    }
  });
}

void Setup::call(ConnectPlan&& plan) {
  auto shared = std::make_shared<ConnectPlan>(std::move(plan));
  context_.loop.post([this, shared] {
    if (closed_ || find(shared->message.worker) != shared->worker) return;
    auto connector = std::make_shared<Connector>(*this, std::move(*shared));
    connectors_[connector->key()] = connector;
    connector->start();
  });
}

Status Setup::call_by_name(ConnectPlan&& plan, std::function<Status(std::vector<SocketAddress>*)> resolve) {
  const uint64_t key = plan.key;
  auto shared = std::make_shared<ConnectPlan>(std::move(plan));
  // First: the attempt may run out of time, or be hung up, while its name is looked up.
  context_.loop.post([this, shared] {
    if (closed_ || find(shared->message.worker) != shared->worker) return;
    auto connector = std::make_shared<Connector>(*this, std::move(*shared));
    connectors_[connector->key()] = connector;
    connector->await_candidates();
  });
  return resolver_.ask([this, key, resolve = std::move(resolve)] {
    std::vector<SocketAddress> found;
    const Status status = resolve(&found);
    const std::string why = is_error(status) ? last_error() : "";
    context_.loop.post([this, key, status, why, found = std::move(found)] {
      const auto at = connectors_.find(key);
      if (at == connectors_.end()) return;
      const auto connector = at->second;
      is_error(status) ? connector->give_up(status, why) : connector->start(found);
    });
  });
}

void Setup::hang_up(uint64_t key) {
  context_.loop.call([&] {
    end_connector(key);
    for (auto& [id, acceptor] : acceptors_) {
      if (acceptor->key() != key) continue;
      end_acceptor(id);
      return;
    }
  });
}

void Setup::answer(Answer&& answer) {
  auto shared = std::make_shared<Answer>(std::move(answer));
  context_.loop.post([this, shared] {
    auto at = acceptors_.find(shared->acceptor);
    if (at != acceptors_.end()) {
      auto acceptor = at->second;
      return acceptor->answered(std::move(*shared));
    }
    tw_worker* worker = find(shared->worker);
    if (worker == nullptr || !shared->accept) return;
    ConnectionEvent event;
    event.kind = ConnectionEvent::Kind::failed;
    event.key = shared->key;
    event.status = TW_ERR_PEER_LOST;
    event.text = "the client gave up before it was accepted";
    worker->inbox.post(std::move(event));
  });
}

}  // namespace thalweg::impl
