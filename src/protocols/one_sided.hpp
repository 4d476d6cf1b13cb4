// SPDX-License-Identifier: Apache-2.0
// Put, get, atomics, signals and flush. Each protocol is one file; this header has what they share, and what the dispatch
// tables and core use.
//
// Three ways (routes/accesses.hpp):
//   mapped       the target is library-allocated memory mapped here, or memory of this process: the caller copies, complete
//                when it returns, no target CPU.
//   single_copy  the kernel copies between the processes (process_vm_*): complete when it returns, no target CPU.
//   frames       travel in the endpoint's ordered queue (OneSided) in order; the target's progress applies them. Taken only where
//                neither of the other two is possible.
// An operation posted before its endpoint is connected or its segment imported waits in the ordered queue (deferred.cpp)
// and then takes one of the three.
//
// Order. The first two are visible at the target when they return, so they need no fence among themselves. Frames are
// applied in order. What remains is a mapped operation overtaking the ordered queue: after tw_endpoint_fence everything goes through
// the ordered queue, as frames unless all before it is applied; so does a signal that covers all earlier puts. What has left
// the ordered queue but is not all in frames is counted (count_in): what devices move, and gets whose answers are not all
// here. A fence is a flush in the ordered queue that waits for what is counted, so nothing behind it needs to check. Parts
// of a counted operation belong to it: no fence that came later holds them back. A signal is its put's last part: until it
// is given the put is counted, or back at the ordered queue's front.
#pragma once
#include <cstring>
#include <span>
#include <utility>

#include "devices/kernel.hpp"
#include "memory/device_users.hpp"
#include "memory/place.hpp"
#include "memory/registry.hpp"
#include "memory/signal.hpp"
#include "protocols/engine.hpp"
#include "protocols/operation_routes.hpp"

namespace thalweg::impl {

// --- what core calls
/// Makes a key usable through the peer. Refuses keys of another incarnation (TW_ERR_STALE) once the peer is connected.
Status import_region(Peer& peer, const KeyBody& key, RemoteRegion** out);
/// Takes a region back (references reach 0). Under the lock of its peer's engine.
void release_region(RemoteRegion* region);
/// Maps the region when that is possible: TW_OK (mapped), TW_IN_PROGRESS (progress, then ask again), TW_ERR_UNSUPPORTED,
/// TW_ERR_STALE or the peer's error. Progress owner.
Status map_region(RemoteRegion& region);
/// The peer is lost or closed: no load or store any more. Releasing the region stays its holder's business.
void unmap_region(RemoteRegion& region);
/// tw_endpoint_fence.
Status fence_one_sided(Engine& engine, Peer& peer);

// --- dispatch tables
Status start_put(Engine& engine, const OpDesc& op, const Completion& completion);
Status start_get(Engine& engine, const OpDesc& op, const Completion& completion);
Status start_atomic(Engine& engine, const OpDesc& op, const Completion& completion);
Status start_signal(Engine& engine, const OpDesc& op, const Completion& completion);
Status start_flush(Engine& engine, const OpDesc& op, const Completion& completion);  // op.peer null: the whole worker
void on_put(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_put_layout(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_get(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_atomic(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_atomic_reply(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// Sets or adds to a word of a device of this process, behind what is there already. Waits: not under a Registry::Reading.
Status signal_on_device(Engine& engine, const Target& target, uint32_t op, uint64_t value);
void on_signal(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_notice(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_flush(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
/// Sends what the ordered queue has, a few pieces a turn. Returns the pieces sent. room: does the link take anything?
/// Without it only what stays in this process goes on.
unsigned push_one_sided(Engine& engine, Peer& peer, bool room = true);

extern const Protocol kPutFrames, kGetFrames, kAtomicFrames, kSignalFrames, kFlushFrames;
extern const Protocol kAtomicDevice;
extern const Protocol kDeferred;  // not a way of its own: waits in the ordered queue, then one of the above

// --- one_sided_device.cpp
/// Memory that only devices touch: its segment is imported for one of them.
inline bool of_device(const RemoteRegion& region) { return !by_cpu(static_cast<MemoryKind>(region.key.kind)); }
/// Is one end memory of a device? What only waits for a stream then moves as between host memories.
inline bool has_device_end(const OpDesc& op) {
  return (op.flags & kOpDevice) != 0 || (op.remote != nullptr && of_device(*op.remote));
}
/// ... or does it wait for a stream?
inline bool needs_device(const OpDesc& op) { return (op.flags & kOpLate) != 0 || has_device_end(op); }
extern const Protocol kPutDevice, kGetDevice;
/// Of a put, get or atomic that needs a device: the input of the routes' table. What only a trial can decide counts as
/// possible.
Access device_access_of(const OpDesc& op);
/// Moves a run on whose bytes this CPU relays between a device and the other side. As pipeline_turn.
Status relay_turn(Engine& engine, Peer& peer, OpRun& run);
/// Target: work(), which waits for devices at memory of these keys, resolved under `reading`. The reading ends before it,
/// because all who change the registry, and all who read it then, would wait for the device; a release waits in DeviceUsers
/// instead. TW_ERR_STALE: one has begun, and nothing is touched.
template <class Work>
Status at_devices(const Registry& registry, Registry::Reading& reading, std::span<const uint64_t> rkeys, const Work& work) {
  DeviceUserLists lists;
  for (const uint64_t rkey : rkeys) {
    if (auto users = registry.users(reading, rkey); users != nullptr) lists.push_back(std::move(users));
  }
  DeviceUse use(lists);
  const bool inside = use.enter();  // under the reading: a key that is alive here is revoked before its memory is closed
  reading.end();
  return inside ? work() : Status{TW_ERR_STALE};
}
/// The same of one key.
template <class Work>
Status at_device(const Registry& registry, Registry::Reading& reading, uint64_t rkey, const Work& work) {
  return at_devices(registry, reading, std::span(&rkey, 1), work);
}
/// Target: a frame's bytes into (or out of) device memory, done when it returns: within at_device(). `layout` null: contiguous
/// at address.
Status store_to_device(Engine& engine, const Target& target, const Layout* layout, uint64_t skip, const std::byte* from,
                       uint64_t length);
Status load_from_device(Engine& engine, const Target& target, const Layout* layout, uint64_t skip, std::byte* to,
                        uint64_t length);

// --- the immediate forms of the protocols that are complete when they return, without the signal. TW_AGAIN, or TW_ERR_STALE where the
// region is not known as released: not this way.
Status put_mapped(const OpDesc& op);
Status get_mapped(const OpDesc& op);
Status atomic_mapped(const OpDesc& op);
Status put_single_copy(const OpDesc& op);
Status get_single_copy(const OpDesc& op);
/// A put, get or atomic by the best of them that src/routes lets it take. TW_AGAIN: by none, use frames.
Status move_at_once(const OpDesc& op, const Access& access);
/// Of an operation that is about to move, whose import is settled.
Access access_of(const OpDesc& op);
/// Null when the kernel can copy for this put or get.
const char* why_no_single_copy(const OpDesc& op);

// --- shared by the protocols
inline LinkCosts link_costs(const OpDesc& op) {
  return op.peer == nullptr || op.peer->link == nullptr ? LinkCosts{} : costs_of(*op.peer);
}
inline uint32_t link_features(const OpDesc& op) {
  return op.peer == nullptr || op.peer->link == nullptr ? 0 : op.peer->link->features;
}
/// All that has left the ordered queue is applied, whatever the order in which it ends: frames are answered, nothing is
/// counted.
inline bool settled(const Peer& peer) {
  const OneSided& state = peer.one_sided;
  return state.confirmed >= state.framed && state.device == 0 && state.gets == 0;
}
inline bool unconfirmed(const Peer& peer) { return !peer.one_sided.queue.empty() || !settled(peer); }
/// Something before a fence is not applied for sure: only frames keep the order.
inline bool fenced(const Peer& peer) { return peer.one_sided.fences != 0; }
/// The same for what is at the ordered queue's front: a fence that is still in the ordered queue comes behind it, and waits
/// for it.
inline bool front_fenced(const Peer& peer) { return peer.one_sided.fences_out != 0; }
/// Does a fence hold this operation back, which is about to enter the ordered queue?
inline bool behind_fence(const OpDesc& op) { return (op.flags & kOpPart) == 0 && fenced(*op.peer); }
/// The run has left the ordered queue, and is counted until count_out(), or until it ends.
void count_in(OpRun& run, Counted as);
void count_out(OpRun& run);
/// To the ordered queue's front, behind an operation whose frames have begun and behind parts: what is under way already
/// goes before what waits.
void to_front(OpRun& run);
/// The segment of this region can perhaps be mapped, and that is not decided yet.
inline bool awaits_import(const RemoteRegion& region) {
  return region.mapped == nullptr && !of_device(region) && !region.unmappable && !region.revoked && region.key.segment != 0 &&
         region.peer->link != nullptr && (region.peer->link->features & kLinkMaps) != 0;
}
/// As an operation starts: whether to do without a mapping. What failed for want of descriptors is asked for again, now and then.
bool unmappable_now(RemoteRegion& region);
constexpr uint64_t kAskAgainNs = 100 * kMillisecond;
/// For explain: it awaits its import, and no way is forced that does without.
bool will_map(const RemoteRegion& region);
/// Can this still go as frames after the immediate way was refused?
inline bool frames_decide(Status s) { return s == TW_AGAIN || s == TW_ERR_STALE; }
/// TW_AGAIN while the region's import is under way, TW_OK when that is decided (or region is null), or TW_ERR_STALE.
Status settle_import(RemoteRegion* region);
/// Around the kernel's copies (enter_peer): TW_OK, TW_ERR_STALE, or TW_AGAIN: not possible this way.
Status check_alive(RemoteRegion& region);
/// Target: how the put frame in `header` went, for the signal and the answer behind it.
void note_put(Peer& peer, const FrameHeader& header, Status status);
/// Frames of the operation were sent; without an answer of their own only a flush can report their failure.
void note_frames(Peer& peer, OpRun& run);
/// It failed. If it has neither a holder nor a callback, the next flush reports it.
void note_failure(Peer& peer, const OpRun& run, Status status);
/// A layout of callbacks does not meet memory of a device: TW_ERR_UNSUPPORTED.
Status check_local(const OpDesc& op, const RemoteRegion& target);
/// Bounds, access, life of the key and of the peer; the layouts' extents included. The first refusal sets the error text.
/// The key allows the access, and the bytes lie in it.
Status check_range(const OpDesc& op, uint32_t access);
Status check_target(const OpDesc& op, uint32_t access);
/// Target: the status of what a frame with these flags covers; a signal must not report data that is not there. (signal.cpp)
Status covered(const Peer& peer, uint8_t flags);
/// Does anything follow the data: a signal, a notification?
inline bool tells(const OpDesc& op) { return op.signal != nullptr || (op.flags & kOpNotify) != 0; }
/// The part of a put that brings its end, or what follows a put that has moved: the same signal and notification.
inline void take_signal(const OpDesc& from, OpDesc* to) {
  to->flags |= from.flags & kOpNotify;
  to->tag = from.tag;
  to->immediate = from.immediate;
  to->signal = from.signal;
  to->signal_op = from.signal_op;
  to->signal_value = from.signal_value;
}
/// The signal of op: its key is one of a signal, alive, and of the kind of signal_op.
Status check_signal(const OpDesc& op);
/// The load/store address of [offset, offset + length) of the region, or null. For memory of this process `reading` must be
/// held while it is used; it is checked against the registry.
std::byte* reach(const RemoteRegion& region, uint64_t offset, int64_t first, int64_t last, uint32_t access,
                 const Registry::Reading* reading, Status* status);
/// Is this memory of a context of this process (no mapping needed)?
inline bool in_process(const RemoteRegion& region) {
  return region.peer != nullptr && region.peer->link != nullptr && (region.peer->link->features & kLinkSameProcess) != 0;
}
/// ... and of this engine's own one, whose registry knows it? Another one's is reached by frames.
bool known_here(const RemoteRegion& region);
/// Sets or adds to a signal's word that is reached from here, and wakes the peer's worker where it sleeps: a load otherwise.
/// Of the worker that the endpoint leads to; a waiter at another worker of its process polls now and then.
inline void touch_and_wake(const Peer& peer, void* word, uint32_t op, uint64_t value) {
  touch_signal(static_cast<uint64_t*>(word), op, value);
  Link* const link = peer.link;
  if (link == nullptr || link->sleeping == nullptr) return;
  // The sleeper's half: it sets its sleeping flag, has a full barrier run on this core, and polls the word.
  if (link->fence_before_sleeping) [[unlikely]]
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  else
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(link->sleeping, __ATOMIC_RELAXED) != 0) [[unlikely]]
    link->port->ring(*link);
}
/// Touches the signal's word if this process reaches it and src/routes chooses that. False: by a frame, as with a
/// notification. behind: what it comes behind has gone as frames, or is not all applied. Not under a Registry::Reading.
bool touch_now(const OpDesc& op, bool behind);
/// Might the signal of op overtake what it is behind, if it was given now?
bool overtakes(const OpDesc& op);
/// Outside the ordered queue, the data of op is at the target: signals when asked, at once or by way of the ordered queue.
/// What start() returns: with TW_OP_REMOTE the operation ends when the signal or notification is there.
Status signal_after_data(const OpDesc& op, const Completion& completion);
/// In the ordered queue: the signal of a run whose data is where it belongs, or has gone before it as frames. TW_OK,
/// TW_AGAIN or an error; TW_IN_PROGRESS where TW_OP_REMOTE has the peer answer its frame: run.fin ends the run, which is on_confirmed
/// unless the data has gone as frames. One that covers all earlier puts has waited for those that devices move.
Status give_signal(OpRun& run, bool framed);
/// Puts an operation into the ordered queue: steps it at once when nothing is before it. Returns what start() returns.
Status launch_one_sided(Engine& engine, const OpDesc& op, const Completion& completion, const Protocol& protocol);
/// Keeps the regions of a run alive that its caller may release meanwhile.
void hold_regions(OpRun& run);
/// Ends what keeps the regions of a run in the ordered queue alive (OpRun::holds_regions).
void drop_regions(OpRun& run);
/// Sends the signal frame of op (put or signal), with `ack` asking for a fin; TW_OK, TW_AGAIN or an error.
Status send_signal(Peer& peer, const OpDesc& op, uint8_t flags, const uint64_t* ack);
/// Largest payload of a frame of the ordered queue.
size_t queue_fragment(const Peer& peer);
/// The part of a remote layout that a frame describes: encodes it to `wire` (kWireLayout bytes) for the packed range that
/// starts at `position`. *length is how many of the wanted bytes it covers, *skip where they start in what is encoded.
inline constexpr size_t kWireLayout = 4 + 16 * 64;
size_t encode_part(const Layout& layout, uint64_t position, uint64_t* length, uint64_t* skip, std::byte* wire);
/// Target: a decoded layout at `offset` of an exported range, checked; base->address is the address of the layout's zero.
Status resolve_layout(const Registry& registry, const Registry::Reading& reading, uint64_t rkey, uint64_t offset,
                      const Layout& layout, uint32_t access, Target* base);
/// Target: answers `op` (kFrameAck) or remembers how an operation went.
void conclude(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t op, Status status);
/// Target: the same for a frame of a put, behind note_put().
void conclude_put(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t op);
/// Target: what kFrameAck puts before the fields of a frame, the op to answer. False: the frame is too short for it.
inline bool take_ack(const FrameHeader& header, PeerBytes& body, uint64_t* op) {
  *op = 0;
  return (header.flags & kFrameAck) == 0 || body.take(op);
}
/// Fin handler of acknowledged operations: confirms the frames up to the run's.
void on_confirmed(Engine& engine, OpRun& run, Status status);
/// The target has answered the run's frames, so all before them is applied.
inline void confirm(Peer& peer, const OpRun& run) {
  if (run.sequence > peer.one_sided.confirmed) peer.one_sided.confirmed = run.sequence;
}
/// The old value of a fetching atomic to where its caller wants it.
void deliver_old(const OpDesc& op, uint64_t old);
/// op: TW_ATOMIC_*, checked; the word and where its old value goes are left to fill in.
AtomicKernel atomic_kernel(unsigned op, unsigned size, uint64_t operand, uint64_t compare);
/// The CPU's atomic on a mapped, aligned word; returns the old value. op is checked by the caller.
uint64_t apply_atomic(std::byte* word, unsigned size, unsigned op, uint64_t operand, uint64_t compare);

/// The short form of a contiguous put without options into memory mapped here: true when it is done. A word-sized, aligned
/// put is one store. False: use Engine::start, which also explains refusals. Multi-threaded engines: under the lock.
inline bool try_put_mapped(const void* buffer, size_t length, const RemoteRegion& region, uint64_t offset) {
  if (region.mapped == nullptr || region.mapping->revoked || length == 0 || offset > region.key.length ||
      length > region.key.length - offset || (region.key.access & TW_MEMORY_WRITE) == 0 || fenced(*region.peer)) {
    return false;
  }
  std::byte* to = region.mapped + offset;
  if (length == 8) {
    std::memcpy(to, buffer, 8);
  } else if (length == 4) {
    std::memcpy(to, buffer, 4);
  } else {
    std::memcpy(to, buffer, length);
  }
  region.peer->tally.moved.count(Way::mapped, length);
  return true;
}

}  // namespace thalweg::impl
