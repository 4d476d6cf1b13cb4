// SPDX-License-Identifier: Apache-2.0
// What two contexts say to each other on an authenticated set-up socket before it becomes a link:
//
//   client -> connect   who I am, whom I want, private data, one offer per transport
//   server -> accept    which offer, its answer, private data        or reject: why
//   client -> confirm   both sides establish the link after this; nothing is established without it
//
// One message each, bounded, parsed defensively (authenticated peers, but perhaps of another build). connect and accept end with the
// public key of the worker that speaks and its signature (security/worker_identity.hpp), which parsing checks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "security/handshake.hpp"
#include "security/worker_identity.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

enum class SetupType : uint16_t { connect = 1, accept = 2, reject = 3, confirm = 4 };

struct Offer {
  std::string transport;
  SetupMessage message;
};

struct ConnectMessage {
  WorkerId target = 0;              // 0: the listener behind this socket
  uint64_t target_incarnation = 0;  // checked when target is given
  WorkerId worker = 0;              // the connector
  uint64_t incarnation = 0;
  uint64_t host = 0;
  uint64_t token = 0;  // random name of this attempt
  uint64_t previous =
      0;                // the attempt that made the last connection between these two, which the connector knows to have ended
  uint64_t ticket = 0;  // continues a listener connection accepted over TCP by a better transport
  bool shared_memory = false;  // the connector could use a transport of one machine if asked
  std::vector<std::byte> data;
  std::vector<Offer> offers;
};

struct AcceptMessage {
  WorkerId worker = 0;
  uint64_t incarnation = 0;
  uint64_t host = 0;
  uint64_t ticket = 0;             // non-zero: may be continued over the unix socket of `address`
  std::vector<std::byte> address;  // worker address, with a ticket
  std::vector<std::byte> data;
  Offer answer;
};

enum class RejectKind : uint8_t { refused = 0, superseded = 1 };

struct RejectMessage {
  Status status = TW_ERR_REJECTED;
  RejectKind kind = RejectKind::refused;
  std::string text;
  std::vector<std::byte> data;
};

/// `me` is the worker that message.worker names; `client`, the one that is answered.
Status queue_connect(SetupChannel& channel, const ConnectMessage& message, const WorkerIdentity& me);
Status queue_accept(SetupChannel& channel, const AcceptMessage& message, const WorkerIdentity& me, WorkerId client);
Status queue_reject(SetupChannel& channel, const RejectMessage& message);
Status queue_confirm(SetupChannel& channel);
/// Each takes the message's descriptors. TW_ERR_PROTOCOL when malformed. TW_ERR_AUTHENTICATION: it is not from the worker that it
/// names, or not of this session, or not to `client`.
Status parse_connect(const Session& session, SetupChannel::Message&& from, ConnectMessage* out);
Status parse_accept(const Session& session, SetupChannel::Message&& from, WorkerId client, AcceptMessage* out);
Status parse_reject(SetupChannel::Message&& from, RejectMessage* out);

}  // namespace thalweg::impl
