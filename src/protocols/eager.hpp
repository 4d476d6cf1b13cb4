// SPDX-License-Identifier: Apache-2.0
// Eager tagged messages: in one frame, or in several (segmented: the receiver copies out piece k
// while the sender copies in piece k+1). Out of credit they become RTS messages (rendezvous.hpp).
#pragma once
#include "protocols/engine.hpp"
#include "protocols/flow.hpp"
#include "protocols/match.hpp"
#include "protocols/tracing.hpp"

namespace thalweg::impl {

extern const Protocol kEagerSingle, kEagerSegmented;
Status start_send(Engine& engine, const OpDesc& op, const Completion& completion);

/// In the frames of a message: where it is matched.
inline uint8_t space_flag(const OpDesc& op) { return (op.flags & kOpGroup) != 0 ? kFrameGroup : 0; }

/// send_at_once() where nothing is traced.
[[gnu::always_inline]] inline Status send_untraced(Peer& peer, const void* buffer, size_t length, uint64_t tag,
                                                   uint64_t immediate, uint8_t flags) {
  const int64_t cost = eager_cost(length);
  if (peer.eager_credit < cost || length > peer.limits.copy || !peer.ordered.empty() || !peer.control.empty()) return TW_AGAIN;
  const Status status = peer.link->port->send(*peer.link, make_header(Frame::tagged, length, tag, immediate, flags), buffer);
  if (status == TW_OK) [[likely]] {
    peer.eager_credit -= eager_cost(length);
    peer.tally.moved.count(Way::eager, length);
  }
  return status;
}

/// Engine::try_send, under the lock where there is one.
[[gnu::always_inline]] inline Status send_at_once(Peer& peer, const void* buffer, size_t length, uint64_t tag,
                                                  uint64_t immediate, uint8_t flags) {
  const uint64_t at = trace::moment();
  const Status status = send_untraced(peer, buffer, length, tag, immediate, flags);
  if (at != 0 && status == TW_OK) [[unlikely]]
    trace_sent(peer, trace::What::sent, tag, length, at);
  return status;
}

/// Sends a message in several frames: `first` (tagged_first or am_first) with FirstBody, `header` and the first payload
/// bytes, then data frames. For step functions: TW_OK, TW_IN_PROGRESS (pieces by reference), TW_AGAIN, or an error.
/// run.stage 0: nothing was sent. Credit must have been checked.
Status send_segments(Engine& engine, Peer& peer, OpRun& run, FrameHeader first, const std::byte* header, size_t header_length);
/// Its payload from run.pipeline.position on; data frames count `ahead` bytes before it.
Status send_rest(Peer& peer, OpRun& run, uint64_t ahead);
/// Nothing of the payload is sent yet.
void begin_payload(OpRun& run);
/// `then` of sends whose last phase is local: completes the run.
void complete_then(Engine& engine, OpRun& run, Status status);
/// A send that is all handed to the link: TW_OK, or TW_IN_PROGRESS until pieces sent by reference are free.
Status sent_all(OpRun& run);

void on_tagged(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_tagged_first(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_matched(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// data frames with kFrameMore: the next bytes of peer.assembly.
void on_more(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// The rest of the message that arrives in several frames, as `op`, does not come: its sender could not pack it.
void cut_short(Engine& engine, Peer& peer, uint64_t op, Status why);
/// Of a receive whose message its sender could not deliver.
inline constexpr char kUndelivered[] =
    "the sender could not deliver the message: its device, or its layout, failed; its own request says more";
std::byte* more_destination(Peer& peer, const FrameHeader& header);
void more_landed(Engine& engine, Peer& peer, const FrameHeader& header);
std::byte* tagged_destination(Engine& engine, Peer& peer, const FrameHeader& header);
void tagged_landed(Engine& engine, Peer& peer, const FrameHeader& header);

/// Gives an unmatched message that was taken out of matching to a receive, and ends the message. The run may complete now.
void receive_unexpected(Engine& engine, OpRun& run, tw_message& message);

}  // namespace thalweg::impl
