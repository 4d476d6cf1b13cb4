// SPDX-License-Identifier: Apache-2.0
// One connection attempt, to a worker address or to a listener: candidates in order, handshake, offers, confirmation.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/setup.hpp"

namespace thalweg::impl {

class Connector final : public SetupConnection::User, public std::enable_shared_from_this<Connector> {
 public:
  Connector(Setup& setup, ConnectPlan&& plan) : setup_(setup), plan_(std::move(plan)) {}
  ~Connector() override;
  void start();
  /// Before its candidates are known: its time runs already.
  void await_candidates();
  void start(std::vector<SocketAddress> candidates);
  void end();
  void give_up(Status status, const std::string& why) { failed(status, why); }
  uint64_t key() const { return plan_.key; }
  const tw_worker* worker() const { return plan_.worker; }

  void on_authenticated(SetupConnection& from) override;
  void on_message(SetupConnection& from, SetupChannel::Message&& message) override;
  void on_broken(SetupConnection& from, Status status, Refusal refusal, const std::string& why) override;

 private:
  void begin_time();
  void next_candidate();
  void retry(uint64_t after_ns);
  void make_offers(const SetupConnection& from, const PeerIdentity& peer, std::vector<Offer>* offers);
  bool wants(const std::string& transport) const;
  bool wants_local() const;
  void accepted(SetupConnection& from, SetupChannel::Message&& message);
  bool is_meant(const SetupConnection& from, const AcceptMessage& accept) const;
  void impostor(SetupConnection& from, const std::string& why);
  void rejected(SetupConnection& from, SetupChannel::Message&& message);
  bool begin_upgrade();
  void upgrade_failed(const std::string& why);
  void confirm(SetupConnection& from);
  void hand_over(SetupConnection& from);
  void failed(Status status, const std::string& why, std::vector<std::byte> data = {});
  bool by_address() const { return plan_.message.target != 0; }

  Setup& setup_;
  ConnectPlan plan_;
  size_t next_ = 0;
  unsigned turned_away_ = 0;  // closed before the handshake was over
  uint64_t deadline_timer_ = 0, retry_timer_ = 0;
  Status last_status_ = TW_ERR_UNREACHABLE;
  std::string last_text_;
  std::shared_ptr<SetupConnection> connection_;  // the one that leads
  std::shared_ptr<SetupConnection> upgrade_;     // over the unix socket, when a listener over TCP turned out to be local
  std::vector<Offer> offers_, upgrade_offers_;
  AcceptMessage accept_;
  bool over_ = false, committed_ = false;
};

}  // namespace thalweg::impl
