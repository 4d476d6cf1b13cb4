// SPDX-License-Identifier: Apache-2.0
// Notifications: small eager messages bound to a block transfer. They go the ordered queue's way behind the data, cost
// credit as active messages do, and end in a handler or in the worker's queue.
#include <cstring>
#include <utility>

#include "protocols/active.hpp"
#include "protocols/blocks.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

void settle(Engine& engine, Peer* peer, uint64_t cost) {
  let_go(engine, peer, cost);
  if (peer != nullptr && peer->link != nullptr) consumed(engine, *peer, cost);
}

}  // namespace

void enter_notices(OpRun& run) {
  NoticeList& notices = run.peer->one_sided.notices;
  BlockTransfer& transfer = *run.op->blocks;
  transfer.noticing = true;
  transfer.notice_before = notices.last;
  (notices.last != nullptr ? notices.last->op->blocks->notice_after : notices.first) = &run;
  notices.last = &run;
}

void leave_notices(OpRun& run) {
  BlockTransfer& transfer = *run.op->blocks;
  if (!std::exchange(transfer.noticing, false)) return;
  Peer& peer = *run.peer;
  NoticeList& notices = peer.one_sided.notices;
  OpRun* const before = std::exchange(transfer.notice_before, nullptr);
  OpRun* const after = std::exchange(transfer.notice_after, nullptr);
  (before != nullptr ? before->op->blocks->notice_after : notices.first) = after;
  (after != nullptr ? after->op->blocks->notice_before : notices.last) = before;
  if (notices_wait(peer)) peer.engine->pusher().wants(peer);
}

Status send_notification(Peer& peer, const BlockTransfer& transfer, uint8_t covers) {
  const int64_t cost = eager_cost(transfer.notification_length);
  if (peer.eager_credit < cost) return TW_AGAIN;
  const uint16_t id = transfer.notify == TW_NOTIFY_HANDLER ? transfer.handler : kNotifyQueue;
  const FrameHeader header = make_header(Frame::notify, transfer.notification_length, 0, 0, covers, id);
  const Status s = peer.link->port->send(*peer.link, header, transfer.notification);
  if (s == TW_OK) peer.eager_credit -= cost;
  return s;
}

void take_notification(Engine& engine, Peer& peer, uint16_t id, const void* data, size_t length, bool failed) {
  if (id != kNotifyQueue && !failed) {
    const FrameHeader message = make_header(Frame::am, length, length, 0, 0, id);  // all of it is the message's header
    return on_am(engine, peer, message, PeerBytes(static_cast<const std::byte*>(data), length));
  }
  const uint64_t cost = static_cast<uint64_t>(eager_cost(length));
  if (!hold(peer, cost)) return engine.violation(peer, "more notifications than it was granted");
  if (failed) return settle(engine, &peer, cost);
  Notification kept;
  kept.peer = &peer;
  kept.length = static_cast<uint32_t>(length);
  std::memcpy(kept.data, data, length);
  engine.active().notifications.push_back(kept);
}

void on_notify(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  std::byte data[TW_NOTIFICATION_MAX];
  if (header.length > sizeof data || !body.take(data, header.length))
    return engine.violation(peer, "a notification of more than 64 bytes");
  take_notification(engine, peer, header.id, data, header.length, is_error(covered(peer, header.flags)));
}

Status next_notification(Engine& engine, tw_notification* out) {
  const Engine::Guard guard(engine);
  auto& queue = engine.active().notifications;
  if (queue.empty()) return TW_AGAIN;
  const Notification& next = queue.front();
  out->endpoint = next.peer != nullptr ? next.peer->endpoint : nullptr;
  out->length = next.length;
  std::memcpy(out->data, next.data, next.length);
  settle(engine, next.peer, static_cast<uint64_t>(eager_cost(next.length)));
  queue.pop_front();
  return TW_OK;
}

}  // namespace thalweg::impl
