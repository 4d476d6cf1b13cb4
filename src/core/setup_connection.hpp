// SPDX-License-Identifier: Apache-2.0
// One set-up socket on the service thread: non-blocking connect, handshake, then set-up messages, until the socket is handed
// to a port or the connection breaks. Connectors (connector.hpp) and acceptors (acceptor.hpp) are its two users.
//
// Life: shared by its user and by the callbacks it has pending in the loop; abandon() and release() end the latter.
// Everything happens on the loop's thread.
#pragma once
#include <memory>
#include <string>

#include "base/event_loop.hpp"
#include "base/sockets.hpp"
#include "core/setup_wire.hpp"
#include "security/handshake.hpp"

namespace thalweg::impl {

class SetupConnection : public std::enable_shared_from_this<SetupConnection> {
 public:
  /// Callbacks to the user. Any of them may abandon the connection.
  class User {
   public:
    virtual ~User() = default;
    virtual void on_authenticated(SetupConnection& from) = 0;
    virtual void on_message(SetupConnection& from, SetupChannel::Message&& message) = 0;
    /// It has ended (already abandoned). `refusal` is set when the handshake refused it.
    virtual void on_broken(SetupConnection& from, Status status, Refusal refusal, const std::string& why) = 0;
  };

  SetupConnection(EventLoop& loop, const JobKey& key, User* user) : loop_(loop), key_(key), user_(user) {}
  ~SetupConnection();

  /// Client: connects (without waiting) and authenticates. A listener's name is filled in from what was dialled.
  Status open(const SocketAddress& address, bool tls, const DialTarget& target);
  /// Server: authenticates a socket just accepted. TLS is recognised by its first byte; `tls` demands it.
  Status adopt(UniqueFd socket, bool tls, Handshake::Here here);
  /// Ends quietly: no further call to the user.
  void abandon();
  /// The channel after authentication, to queue messages into; then push().
  SetupChannel& channel() { return *channel_; }
  /// Writes what is queued, now and whenever there is room.
  void push();
  /// push(), and `then` once everything is written.
  void push_then(std::function<void()> then);
  /// Takes socket, TLS state and session out; the set-up connection has ended.
  void release(LinkInit* init);

  bool over() const { return over_; }
  bool authenticated() const { return channel_ != nullptr; }
  bool is_unix() const { return unix_; }
  const DialTarget& target() const { return target_; }       // the client's target; proved once authenticated
  int32_t pid() const { return pid_; }                       // of the process at the other end, 0 unknown
  std::string peer_text() const { return address_.text(); }  // "10.0.0.2:4711" or "unix"

 private:
  Status watch(uint32_t events);
  void ready(uint32_t events);
  void connected();
  void recognise();
  void handshake();
  void read_messages();
  void want(uint32_t events);
  void broken(Status status, Refusal refusal, const std::string& why);
  void learn_peer();

  EventLoop& loop_;
  const JobKey& key_;
  User* user_;
  UniqueFd socket_;
  std::unique_ptr<Handshake> handshake_;
  std::unique_ptr<SetupChannel> channel_;
  std::function<void()> written_;
  DialTarget target_;
  Handshake::Here here_;
  SocketAddress address_;  // the peer's
  Role role_ = Role::client;
  uint32_t events_ = 0;
  int32_t pid_ = 0;
  int watched_ = -1;
  bool unix_ = false, tls_ = false, connecting_ = false, recognising_ = false, over_ = false;
};

}  // namespace thalweg::impl
