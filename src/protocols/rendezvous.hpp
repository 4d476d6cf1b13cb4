// SPDX-License-Identifier: Apache-2.0
// Large messages: an RTS, then the payload by the way that the receiver chooses, knowing both ends.
//
//   sender                              receiver
//   tagged_rts / am_rts  ------------>  matched: (a) copies from mapped memory or the same process, (b) by the kernel, or
//                        <-- cts ----   (c) asks for data frames. With (a) and (b) it may ask the sender to copy the second
//   data ... / copies    ------------>      half at the same time (cts with an address), which answers fin.
//                        <-- fin ----   (a), (b): all is there, the source is reusable. (c): none, cts carried kFrameLast.
//
// Device memory (rendezvous_device.cpp): (a) by the receiver's device from an import, or cts with kFrameDevice asks the
// sender's device to copy all of it into the receiver's memory, which it answers with fin; (c) through pinned memory
// (staging.hpp). A receive that was offered before needs no cts (offers.hpp).
#pragma once
#include <algorithm>

#include "protocols/engine.hpp"

namespace thalweg::impl {

struct Claim;  // offers.hpp

extern const Protocol kRendezvousSend;

/// Describes the run's payload in an RTS: into `body`, and in the frame's flags. Returns its bytes.
inline constexpr size_t kMostRts = sizeof(RtsBody) + sizeof(DeviceBody);
size_t describe_rts(Engine& engine, Peer& peer, OpRun& run, FrameHeader* frame, std::byte* body);
/// The RTS is with the receiver, which may ask for the payload.
void await_receiver(Peer& peer, OpRun& run);
/// Sends the RTS (frame: tagged_rts, or am_rts with `header` after the body). For step functions.
Status send_rts(Engine& engine, Peer& peer, OpRun& run, FrameHeader frame, const std::byte* header, size_t header_length);

/// A receive that matched an RTS: run.info is filled in. Completes the run in the end.
void rendezvous_receive(Engine& engine, Peer& peer, OpRun& run, const ReceivedRts& received_rts);
/// The payload is not wanted: the sender's operation completes.
void rendezvous_drop(Engine& engine, Peer& peer, uint64_t op);
/// The fixed part of tagged_rts and am_rts. False: too short.
inline constexpr uint64_t kLongestMessage = uint64_t{1} << 60;  // bytes; no address space has more
bool take_rts(const FrameHeader& header, PeerBytes& body, ReceivedRts* out);

void on_tagged_rts(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_cts(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_fin(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void send_fin(Engine& engine, Peer& peer, uint64_t op, Status status);
/// A sender that cannot deliver what `op` of the receiver asked for: both end with `status`.
void give_up(Engine& engine, OpRun& run, uint64_t op, Status status);

// --- shared by its two files
enum RtsStage : uint8_t { kRtsSent = 1, kServing = 2, kMoreStages };  // OpRun::stage of a sender; serving: a cts by its device
// ... of a receiver; asked: the sender may report that it has failed; here: all of the message is, and on its way into the buffer
enum ReceivingStage : uint8_t { kChosen = 0, kAsked = 1, kHere = 2 };
inline bool receives(const OpRun& run) { return run.op->verb == Verb::recv || run.op->verb == Verb::am_recv; }
/// Does a device or a stream alone keep this receive? Its sender may end: it has done its part, and been told so.
inline bool all_here(const OpRun& run) { return run.stage == kHere && receives(run); }
/// The part of an RTS's payload that a receive takes.
inline uint64_t wanted(const OpRun& run) { return std::min<uint64_t>(run.info.length, run.op->length); }
/// All that was wanted is here, by this way.
void received_by(Engine& engine, OpRun& run, Way way);
/// Takes [from, to) as data frames, which always work; completes the run. rts_op: the sender's operation. staged: one end at
/// least is a device, which copies from or to pinned memory. forms: PieceForm bits of what a device stages at the sender.
void ask_for_frames(Engine& engine, Peer& peer, OpRun& run, uint64_t rts_op, uint64_t from, uint64_t to, bool staged = false,
                    uint64_t forms = 0);
/// Copies the payload into the run's host memory by this process's CPU, or by both ends' a half each. False: frames are the
/// way.
bool receive_by_cpu(Engine& engine, Peer& peer, OpRun& run, const RtsBody& rts);
/// Where the payload can be copied from by this process's CPU without the sender's help; false: frames are the way.
bool choose_pull(Peer& peer, const OpDesc& into, const RtsBody& rts, Elsewhere* other);
void start_frames(Engine& engine, Peer& peer, OpRun& run, const CtsBody& cts, bool last);

// --- rendezvous_device.cpp
/// The RTS's description of op's local side beyond rts: segment or address for other devices. False: nothing.
bool describe_device(Engine& engine, OpRun& run, RtsBody* rts, DeviceBody* device);
/// A receive with device memory at one end at least, or one that has to wait for a stream.
void device_receive(Engine& engine, Peer& peer, OpRun& run, const ReceivedRts& received_rts);
/// The sender of this RTS has claimed the receive, and its device writes: as after a request for a push.
void device_claimed(Engine& engine, Peer& peer, OpRun& run, const ReceivedRts& received_rts);
/// Starts the push into the claimed receive, behind the RTS that claims it.
void device_push_claimed(Engine& engine, OpRun& run, const Claim& claim);
/// A cts for a source that has to wait for a stream, or one that asks for a push into a device: then `body` has that
/// device's UUID and perhaps a layout; else it is null.
void device_serve(Engine& engine, Peer& peer, OpRun& run, const CtsBody& cts, PeerBytes* body, bool last);

}  // namespace thalweg::impl
