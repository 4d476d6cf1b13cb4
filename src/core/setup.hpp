// SPDX-License-Identifier: Apache-2.0
// Connection set-up of one context: listening sockets ("doors"), incoming (Acceptor) and outgoing (Connector) connections.
//
// All of it lives on the service thread and never touches a worker's fast path: events for a worker go through its
// inbox. A worker is known here from enter() to leave(); both wait for the service thread, so that a pointer to a worker
// seen here is alive during the whole callback.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/inbox.hpp"
#include "core/resolver.hpp"
#include "core/setup_connection.hpp"
#include "security/strangers.hpp"

struct tw_context;
struct tw_worker;

namespace thalweg::impl {

class Acceptor;
class Connector;

/// What a connector is to do.
struct ConnectPlan {
  tw_worker* worker = nullptr;
  uint64_t key = 0;                       // local name of this attempt
  ConnectMessage message;                 // without offers
  std::vector<SocketAddress> candidates;  // where to try, in order
  std::string transport;                  // forced, empty: any
  bool tls = false;
  uint64_t timeout_ns = 0;
  uint64_t waited_ns = 0;    // of that, before the attempt
  uint64_t target_host = 0;  // from the worker address
  std::string note;          // for explain: why not the better transport
};

/// The user's answer to a listener's request.
struct Answer {
  uint64_t acceptor = 0;
  WorkerId worker = 0;
  uint64_t key = 0;  // of the endpoint made by tw_accept
  bool accept = false;
  std::string transport;  // forced
  std::vector<std::byte> data;
  uint64_t timeout_ns = 0;
};

/// A listening socket.
struct Door {
  UniqueFd socket;
  std::string path;  // unix, absolute: removed at the end
  bool tls = false;
  std::vector<DialTarget> known_as;  // user listeners: the unix path, and other addresses that lead here
  tw_worker* worker = nullptr;       // user listeners; null: the context's own doors
  uint64_t listener = 0;
  uint32_t backlog = 0;
  uint32_t unanswered = 0;
  bool resting = false;  // out of descriptors: not watched for a moment
  uint64_t rest_timer = 0;
  Strangers strangers;
};

class Setup {
 public:
  explicit Setup(tw_context& context);
  ~Setup();

  // --- any thread
  Status open();  // the context's doors
  void close();   // everything ends; waits
  void enter(tw_worker* worker);
  void leave(tw_worker* worker);  // no set-up connection of it afterwards; waits
  uint64_t next_key() { return next_key_.fetch_add(1, std::memory_order_relaxed); }
  void call(ConnectPlan&& plan);
  /// As call(), with the candidates that `resolve` finds on a thread of the resolver's, within the plan's time. An error: nothing
  /// will come of it.
  Status call_by_name(ConnectPlan&& plan, std::function<Status(std::vector<SocketAddress>*)> resolve);
  void hang_up(uint64_t key);  // ends a connector or an acceptor; waits
  void answer(Answer&& answer);
  Status add_door(std::unique_ptr<Door> door);
  void remove_door(uint64_t listener);  // waits
  uint64_t token() const { return token_; }
  /// Of this context's sockets' files, and no other's.
  const std::string& name() const { return name_; }
  uint16_t port() const { return port_; }
  /// The unix socket of a process's context by its address's token.
  std::string socket_path(uint64_t token) const;
  /// A candidate for it; false when the path is too long for a socket.
  bool unix_candidate(uint64_t token, SocketAddress* out) const;

  // --- service thread
  tw_context& context() { return context_; }
  tw_worker* find(WorkerId id) const;
  std::vector<const tw_worker*> workers() const;
  void end_connector(uint64_t key);
  void end_acceptor(uint64_t id);
  void refused(Refusal refusal, const std::string& why);
  bool admit(uint64_t listener);    // one more unanswered request; false: the backlog is full
  void dismiss(uint64_t listener);  // one less
  void settled(uint64_t acceptor);  // it is authenticated: no longer a stranger
  Acceptor* by_ticket(uint64_t ticket) const;
  void issue_ticket(uint64_t ticket, uint64_t acceptor) { tickets_[ticket] = acceptor; }
  void withdraw_ticket(uint64_t ticket) { tickets_.erase(ticket); }

 private:
  Status open_unix();
  Status open_network();
  void incoming(Door* door);
  void rest(Door* door);
  void make_place(Door& door);
  void close_door(Door& door);

  tw_context& context_;
  std::atomic<uint64_t> next_key_{1};
  uint64_t token_ = 0;
  std::string name_;
  uint16_t port_ = 0;
  std::vector<std::unique_ptr<Door>> doors_;
  std::unordered_map<WorkerId, tw_worker*> workers_;
  std::unordered_map<uint64_t, std::shared_ptr<Acceptor>> acceptors_;
  std::unordered_map<uint64_t, std::shared_ptr<Connector>> connectors_;
  std::unordered_map<uint64_t, uint64_t> tickets_;
  Resolver resolver_;
  bool closed_ = false;
};

/// The peer's own claims, and its pid from the kernel.
PeerIdentity identify(WorkerId worker, uint64_t incarnation, uint64_t host, int32_t pid);

}  // namespace thalweg::impl
