// SPDX-License-Identifier: Apache-2.0
// An incoming connection of a listening socket: authenticates it, reads its request, answers, and hands the confirmed link to the worker.
#pragma once
#include <memory>
#include <string>

#include "core/setup.hpp"

namespace thalweg::impl {

class Acceptor final : public Conversation::User, public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(Setup& setup, uint64_t id, const Door& door);
  ~Acceptor() override;
  Status start(UniqueFd socket, bool tls);
  /// The listener's user has answered.
  void answered(Answer&& answer);
  /// Ends without a word to anybody.
  void end();
  /// The listener goes away: who still waits for its answer is told, the others go on.
  void turn_away();
  /// Ends a stranger to make room.
  void evict();
  tw_worker* worker() const { return worker_; }
  uint64_t listener() const { return listener_; }
  uint64_t key() const { return key_; }
  /// The listener connection goes on over another acceptor's socket: its claim passes on.
  void pass_on() { key_ = 0; }

  void on_authenticated(Conversation&) override {}
  void on_message(Conversation& from, SetupChannel::Message&& message) override;
  void on_broken(Conversation& from, Status status, Refusal refusal, const std::string& why) override;

 private:
  enum class State { stranger, asking, answered, over };
  void connect(SetupChannel::Message&& message);
  void impostor(const std::string& why);
  void by_address();
  void by_ticket();
  void by_listener();
  bool choose(const std::string& forced, bool local, Offer* answer, std::string* why);
  void accept(Offer&& offer, std::vector<std::byte> data, uint64_t ticket);
  void reject(Status status, RejectKind kind, const std::string& text, std::vector<std::byte> data = {});
  void confirmed();
  void failed(Status status, const std::string& why);
  bool is_here(const DialTarget& meant, int fd) const;
  void start_timer(uint64_t timeout_ns);
  void leave();

  Setup& setup_;
  uint64_t id_, listener_, key_ = 0, timer_ = 0, ticket_ = 0;
  tw_worker* worker_;
  std::vector<DialTarget> known_as_;
  bool claimed_ = false;  // another acceptor came with this one's ticket
  State state_ = State::stranger;
  std::shared_ptr<Conversation> conversation_;
  ConnectMessage message_;
  PeerIdentity peer_;
  Port* port_ = nullptr;
  SetupMessage mine_, theirs_;
};

}  // namespace thalweg::impl
