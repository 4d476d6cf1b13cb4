// SPDX-License-Identifier: Apache-2.0
// Large messages: announced, then moved in the way the receiver chooses, knowing both ends.
//
//   sender                              receiver
//   tagged_rts / am_rts  ------------>  matched: (a) copies from mapped memory or the same process, (b) by the kernel, or
//                        <-- cts ----   (c) asks for data frames. With (a) and (b) it may ask the sender to copy the second
//   data ... / copies    ------------>      half at the same time (cts with an address), which answers fin.
//                        <-- fin ----   (a), (b): all is there, the source is free. (c): none, cts carried kFrameLast.
#pragma once
#include "protocols/engine.hpp"

namespace thalweg::impl {

extern const Protocol kRendezvousSend;

/// Sends the announcement (frame: tagged_rts, or am_rts with `header` after the body). For step functions.
Status announce(Engine& engine, Peer& peer, OpRun& run, FrameHeader frame, const std::byte* header, size_t header_length);

/// A matched receive of an announced payload: run.info is filled in. Completes the run in the end.
void rendezvous_receive(Engine& engine, Peer& peer, OpRun& run, const RtsBody& rts);
/// Nobody wants the payload: the sender completes.
void rendezvous_drop(Engine& engine, Peer& peer, const RtsBody& rts);

void on_tagged_rts(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
void on_cts(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
void on_fin(Engine& engine, Peer& peer, const FrameHeader& header, const std::byte* body);
void send_fin(Engine& engine, Peer& peer, uint64_t op, Status status);

}  // namespace thalweg::impl
