// SPDX-License-Identifier: Apache-2.0
// Writing and parsing set-up messages.
#include "core/setup_wire.hpp"

#include "core/address.hpp"

#include "base/printable.hpp"
#include "base/told_status.hpp"
#include "core/wire_bytes.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMaxOffers = 3, kMaxOfferBytes = 512, kMaxName = 16, kMaxText = 512;

void write_offer(ByteWriter& out, const Offer& offer, std::vector<int>& fds) {
  out.text(offer.transport);
  out.block(offer.message.bytes.data(), offer.message.bytes.size());
  out.u8(static_cast<uint8_t>(offer.message.fds.size()));
  for (const UniqueFd& fd : offer.message.fds) fds.push_back(fd.get());
}

bool read_offer(ByteReader& in, std::vector<UniqueFd>& fds, size_t& next_fd, Offer* out) {
  out->transport = in.text(kMaxName);
  out->message.bytes = in.block(kMaxOfferBytes);
  const unsigned count = in.u8();
  if (!in.good() || count > fds.size() - next_fd) return false;
  for (unsigned i = 0; i < count; ++i) out->message.fds.push_back(std::move(fds[next_fd++]));
  return true;
}

/// Puts public key and signature behind a message.
Status sign(Role role, const Session& session, WorkerId to, const WorkerIdentity& me, ByteWriter& out) {
  out.raw(me.key().data(), me.key().size());
  Signature signature;
  const Status status = me.sign({role, session, to, out.bytes}, &signature);
  out.raw(signature.data(), signature.size());
  return status;
}

/// What sign() has put at the end of `bytes`, which `in` has read up to there.
struct Proof {
  PublicKey key;
  Signature signature;
  explicit Proof(ByteReader& in) {
    in.raw(key.data(), key.size());
    in.raw(signature.data(), signature.size());
  }
  Status check(WorkerId claimed, Role role, const Session& session, WorkerId to, std::span<const std::byte> bytes) const {
    return check_identity(claimed, key, {role, session, to, bytes.first(bytes.size() - signature.size())}, signature);
  }
};

Status malformed(const char* what) { return fail(TW_ERR_PROTOCOL, "malformed %s message during connection set-up", what); }

}  // namespace

Status queue_connect(SetupChannel& channel, const ConnectMessage& message, const WorkerIdentity& me) {
  ByteWriter out;
  std::vector<int> fds;
  for (uint64_t value : {message.target, message.target_incarnation, message.worker, message.incarnation, message.host,
                         message.token, message.previous, message.ticket}) {
    out.u64(value);
  }
  out.u8(message.shared_memory ? 1 : 0);
  out.block(message.data.data(), message.data.size());
  out.u8(static_cast<uint8_t>(message.offers.size()));
  for (const Offer& offer : message.offers) write_offer(out, offer, fds);
  if (const Status status = sign(Role::client, channel.session(), message.target, me, out); is_error(status)) return status;
  return channel.queue(uint16_t(SetupType::connect), out.bytes.data(), out.bytes.size(), fds.data(), fds.size());
}

Status parse_connect(const Session& session, SetupChannel::Message&& from, ConnectMessage* out) {
  ByteReader in(from.bytes.data(), from.bytes.size());
  for (uint64_t* value : {&out->target, &out->target_incarnation, &out->worker, &out->incarnation, &out->host, &out->token,
                          &out->previous, &out->ticket}) {
    *value = in.u64();
  }
  out->shared_memory = in.u8() != 0;
  out->data = in.block(TW_PRIVATE_MAX);
  const unsigned count = in.u8();
  if (!in.good() || count > kMaxOffers) return malformed("connect");
  size_t next_fd = 0;
  out->offers.resize(count);
  for (Offer& offer : out->offers) {
    if (!read_offer(in, from.fds, next_fd, &offer)) return malformed("connect");
  }
  const Proof proof(in);
  if (!in.done() || out->worker == 0 || out->token == 0) return malformed("connect");
  return proof.check(out->worker, Role::client, session, out->target, from.bytes);
}

Status queue_accept(SetupChannel& channel, const AcceptMessage& message, const WorkerIdentity& me, WorkerId client) {
  ByteWriter out;
  std::vector<int> fds;
  for (uint64_t value : {message.worker, message.incarnation, message.host, message.ticket}) out.u64(value);
  out.block(message.address.data(), message.address.size());
  out.block(message.data.data(), message.data.size());
  write_offer(out, message.answer, fds);
  if (const Status status = sign(Role::server, channel.session(), client, me, out); is_error(status)) return status;
  return channel.queue(uint16_t(SetupType::accept), out.bytes.data(), out.bytes.size(), fds.data(), fds.size());
}

Status parse_accept(const Session& session, SetupChannel::Message&& from, WorkerId client, AcceptMessage* out) {
  ByteReader in(from.bytes.data(), from.bytes.size());
  for (uint64_t* value : {&out->worker, &out->incarnation, &out->host, &out->ticket}) *value = in.u64();
  out->address = in.block(kAddressMax);
  out->data = in.block(TW_PRIVATE_MAX);
  size_t next_fd = 0;
  if (!read_offer(in, from.fds, next_fd, &out->answer)) return malformed("accept");
  const Proof proof(in);
  if (!in.done() || out->worker == 0) return malformed("accept");
  return proof.check(out->worker, Role::server, session, client, from.bytes);
}

Status queue_reject(SetupChannel& channel, const RejectMessage& message) {
  ByteWriter out;
  out.u32(static_cast<uint32_t>(message.status));
  out.u8(uint8_t(message.kind));
  out.text(message.text.substr(0, kMaxText));
  out.block(message.data.data(), message.data.size());
  return channel.queue(uint16_t(SetupType::reject), out.bytes.data(), out.bytes.size());
}

Status parse_reject(SetupChannel::Message&& from, RejectMessage* out) {
  ByteReader in(from.bytes.data(), from.bytes.size());
  out->status = told_outcome(static_cast<int32_t>(in.u32()), TW_ERR_REJECTED);
  const uint8_t kind = in.u8();
  out->text = printable(in.text(kMaxText));
  out->data = in.block(TW_PRIVATE_MAX);
  if (!in.done() || kind > uint8_t(RejectKind::superseded)) return malformed("reject");
  if (!is_error(out->status)) out->status = TW_ERR_REJECTED;
  out->kind = RejectKind(kind);
  return TW_OK;
}

Status queue_confirm(SetupChannel& channel) { return channel.queue(uint16_t(SetupType::confirm), nullptr, 0); }

}  // namespace thalweg::impl
