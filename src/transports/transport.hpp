// SPDX-License-Identifier: Apache-2.0
// The interface of a transport, which carries bytes between two workers. Read this first; each transport is one folder.
//
//   Transport  one per context: is this way available here, and why not.
//   Port       one per worker and transport: makes links, sends, polls. Called by the worker's progress owner only,
//              except where a comment names the service thread.
//   Link       one connected peer over one port.
//   Sink       what the port calls upward. Implemented once, by the protocol engine.
//
// A frame is a 24-byte header and a body of header.length bytes. Frames of one link arrive complete, in order and once,
// or the link is lost. What a frame means is protocols/wire.hpp's business; a transport reads only `length`.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "security/session.hpp"
#include "transports/body_copy.hpp"
#include "transports/offers.hpp"

namespace thalweg::impl {

struct FrameHeader {
  uint32_t length;  // body bytes
  uint8_t type;     // wire.hpp FrameType; bit 7 is reserved for the transport (shm: phase parity)
  uint8_t flags;
  uint16_t id;
  uint64_t a;
  uint64_t b;
};
static_assert(sizeof(FrameHeader) == 24);

using WorkerId = uint64_t;
/// The identity of the other end. All but the pid are the peer's claims, behind the authenticated handshake: names to tell
/// peers apart, and nothing that decides what a link may do. That is Link::features, which its port sets from the kernel's
/// information.
struct PeerIdentity {
  WorkerId worker = 0;       // the fingerprint of its key, proved in set-up (security/worker_identity.hpp)
  uint64_t incarnation = 0;  // of the peer's process: random per process start
  uint64_t host = 0;         // hash of the machine's boot id: equal means same kernel
  int32_t pid = 0;           // by the kernel (SO_PEERCRED), as seen from here; 0: not on this machine, or not to be seen
};

enum LinkFeature : uint32_t {
  kLinkMaps = 1u << 0,         // import() can map the peer's library-allocated memory: load/store
  kLinkSingleCopy = 1u << 1,   // read_peer / write_peer work (process_vm_*)
  kLinkSameProcess = 1u << 2,  // peer addresses may be dereferenced
  kLinkByReference = 1u << 3,  // send_reference() avoids a user-space copy and is worth it for large bodies
  kLinkProtected = 1u << 4,    // no third party can read or change what travels: one process, shared memory, unix socket, TLS
};

class Device;        // devices/device.hpp
class PinningAhead;  // memory/pinning.hpp
class Port;

struct Link {
  Port* port = nullptr;
  void* user = nullptr;  // the engine's Peer; set before the first frame is delivered
  PeerIdentity peer;
  uint32_t features = 0;       // LinkFeature
  uint32_t inline_max = 0;     // bodies up to here are as cheap as none
  uint32_t copy_max = 0;       // largest body of send() and reserve()
  uint32_t fragment = 0;       // best body size when streaming a large message
  uint32_t reference_max = 0;  // largest body of send_reference()
  bool wide = false;           // much that moves is worth a wide ring; set with the costs of the link, as is body_copy
  BodyCopy body_copy;          // into what reserve() gives, too
  /// The peer's flag that its worker sleeps (not 0), for stores into its memory that a thread there may wait for: ring()
  /// then. Null: no thread to wake. fence_before_sleeping: a full fence belongs between the store and the poll.
  const uint32_t* sleeping = nullptr;
  bool fence_before_sleeping = false;
  /// The peer has ended the link by a frame, or broken its rules: close() waits for nothing that the peer does or shows.
  bool parted = false;
  virtual ~Link() = default;
};

inline bool same_process(const Link& link) { return (link.features & kLinkSameProcess) != 0; }

/// A part of a peer's library-allocated memory, mapped here, or a peer's device memory, imported for a device of this
/// process. Owned by the import cache; counted by users.
struct Mapping {
  std::byte* address = nullptr;  // null: device memory
  size_t length = 0;
  std::atomic<bool> revoked{false};  // the owner released it or is lost: use it no more, give it back. By the service thread
  std::atomic<Status> why{TW_OK};    // revoked: TW_ERR_STALE (released), else how the link ended
  std::atomic<uint32_t> users{0};    // holders beyond the next progress() count themselves here (progress owner)
  Device* device = nullptr;          // of device memory: reaches its offset 0 at device_address
  uint64_t device_address = 0;
  // Host memory that devices of this process reach (progress owner; protocols/reach_device.cpp).
  uint64_t staged = 0;                    // bytes that went through bounce buffers so far
  std::shared_ptr<void> pinned;           // null: not pinned here. It ends before the memory is unmapped
  std::shared_ptr<PinningAhead> pinning;  // under way
  bool unpinnable = false;                // pinning failed: not tried again
  /// Any thread; the first reason stays.
  void revoke(Status status) {
    Status none = TW_OK;
    why.compare_exchange_strong(none, status);
    revoked.store(true, std::memory_order_release);
  }
};

/// Called at the first detection of a peer's loss: on shm by the service thread, long before any progress.
class LossWatch {
 public:
  virtual ~LossWatch() = default;
  /// Any thread, perhaps more than once. Must neither block nor call the port.
  virtual void on_loss(Status status, const char* why) = 0;
};

class Sink {
 public:
  virtual ~Sink() = default;
  /// Set by on_frame(), cleared by the ports: the last posted receive has its message, so the next one would be unexpected. Ports that
  /// have more frames at hand leave them to the next progress(): meanwhile the user posts what takes them.
  bool pause = false;
  /// A complete frame. `body` is valid during the call only.
  virtual void on_frame(Link& link, const FrameHeader& header, const std::byte* body) = 0;
  /// Asked by stream transports before a body that is not yet here: where to read it, so that it needs no copy.
  /// nullptr: the transport buffers it and calls on_frame. Otherwise on_landed follows when all of it is there.
  /// The answer must stay valid until on_landed or withdraw().
  virtual std::byte* destination(Link& link, const FrameHeader& header, const std::byte* prefix, size_t prefix_length) = 0;
  virtual void on_landed(Link& link, const FrameHeader& header) = 0;
  /// A send_reference is no longer using the caller's memory.
  virtual void on_sent(Link& link, void* token, Status status) = 0;
  /// The link is dead: no further call for it, until it is closed, here or later, because a port may keep it until then.
  /// `why` is a sentence. Everything sent by reference was already reported.
  virtual void on_lost(Link& link, Status status, const char* why) = 0;
  /// An import() or import_device() that was in progress ended; ask again.
  virtual void on_import(Link& link, uint64_t segment) = 0;
};

/// Bytes and descriptors that the two ports of a link to be exchange through the authenticated set-up socket.
struct SetupMessage {
  std::vector<std::byte> bytes;  // <= 512
  std::vector<UniqueFd> fds;     // <= 8; only over unix sockets
};

/// What the service thread has made of a link before the progress owner takes it. Its end gives the link up.
struct Adopted {
  virtual ~Adopted() = default;
};

struct LinkInit {
  PeerIdentity peer;
  bool initiator = false;
  SetupMessage mine, theirs;
  UniqueFd socket;      // the set-up socket. tcp carries data on it; shm keeps it as control channel (imports, death)
  void* tls = nullptr;  // SSL* when the socket speaks TLS; ownership passes
  Session session;      // of the set-up socket, for messages that still go over it
  std::unique_ptr<Adopted> adopted;
};

class Port {
 public:
  virtual ~Port() = default;
  virtual const char* name() const = 0;

  // --- set-up. offer, answer and adopt: service thread. establish: progress owner.
  virtual Status offer(const PeerIdentity& peer, SetupMessage& mine) = 0;                               // initiator
  virtual Status answer(const PeerIdentity& peer, const SetupMessage& theirs, SetupMessage& mine) = 0;  // acceptor
  /// The connection is confirmed. From here on the peer needs nothing of the progress owner to map memory of this process,
  /// and its end is watched for. establish() reports errors.
  virtual void adopt(LinkInit&) {}
  virtual Status establish(LinkInit&& init, Link** link) = 0;

  // --- sending. TW_AGAIN: no room now; progress makes room. Order of acceptance is order of arrival.
  /// Takes a copy of body (<= copy_max bytes) before it returns.
  virtual Status send(Link& link, const FrameHeader& header, const void* body) = 0;
  /// Room for a body of n <= copy_max bytes, to be filled in place and then committed before any other call, or left;
  /// nullptr: again.
  virtual std::byte* reserve(Link& link, size_t n) = 0;
  virtual void commit(Link& link, const FrameHeader& header) = 0;
  /// Sends a body straight from the caller's memory (kLinkByReference). TW_OK: all gone. TW_IN_PROGRESS: on_sent(token).
  virtual Status send_reference(Link& link, const FrameHeader& header, const iovec* pieces, size_t count, void* token) = 0;
  /// The destination of this frame goes away (its receive failed): the rest of the body is thrown away.
  virtual void withdraw(Link& link, std::byte* destination) = 0;

  // --- reaching the peer's memory without its help
  /// Maps segment (named by a key or an RTS). TW_OK with *mapping, TW_IN_PROGRESS (on_import follows), or an error.
  virtual Status import(Link& link, uint64_t segment, Mapping** mapping) = 0;
  /// As import(), of a segment of device memory, for a device of this process: the one whose queue will touch it. The
  /// mapping is good until the next import_device(), progress() or arm() of this port, and while users count: work under
  /// way, and nothing else, because the owner's release of the memory waits for it. Errors are reported once, the next call
  /// asks again: TW_ERR_UNREACHABLE: no peer access; TW_ERR_STALE: released by its owner; TW_ERR_UNSUPPORTED: not shared
  /// this way.
  virtual Status import_device(Link&, uint64_t segment, Device& device, Mapping** mapping);
  /// A hint for `watch` beside Sink::on_lost. Kept for as long as its owner and the link keep it.
  virtual void watch_loss(Link&, const std::shared_ptr<LossWatch>&) {}
  /// Around every access to the peer's ordinary memory, and to what it is receiving into or sending from: until leave_peer
  /// the end of the link at the peer's side and its release of memory wait, so keys are checked in between. False: the peer
  /// has ended the link, its memory must not be touched.
  virtual bool enter_peer(Link&) { return true; }
  /// Wakes the peer's worker, which was seen to sleep: a signal was stored into its memory. Never blocks. Its progress()
  /// counts this as an event.
  virtual void ring(Link&) {}
  virtual void leave_peer(Link&) {}
  /// Single copy by the kernel. Returns bytes moved (whole pieces of both lists are equal in sum) or a negative Status.
  virtual int64_t read_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) = 0;
  virtual int64_t write_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) = 0;

  // --- receives that are offered to the peer before it sends (offers.hpp)
  using FrameTest = bool (*)(const FrameHeader& header, const void* what);
  /// Good until the link is closed here, or, once it is lost, until on_lost has returned.
  virtual OfferTables offers(Link&) { return {}; }
  /// Frames that were taken from this link, the one that is being handled included; and frames that were sent. The n-th that was sent
  /// is the n-th that is taken. 0: this transport does not count.
  virtual uint64_t taken(const Link&) { return 0; }
  virtual uint64_t sent(const Link&) { return 0; }
  /// Of the frames that went over this link behind the first `taken` ones, and that the peer may not have handled yet: does
  /// test(header, what) hold for one? True also if that is unknown. Of a header, type, flags, id and `a` are filled
  /// in.
  virtual bool any_behind(const Link&, uint64_t /*taken*/, FrameTest, const void* /*what*/) { return true; }
  /// As progress(), within a call that posts: only frames that are there, of each link up to the first one for which `test`
  /// does not hold, and no event of a link. Of a header, length, type, flags and id are filled in.
  virtual unsigned take(unsigned /*budget*/, FrameTest /*test*/) { return 0; }

  // --- progress
  /// Nothing to poll: no links, not armed. Set by progress(), cleared by establish() and arm(), so that an engine may skip
  /// progress() and pays nothing for unused transports.
  bool quiet = false;
  /// Receives and sends what it can, at most about `budget` frames. Returns events handled.
  virtual unsigned progress(unsigned budget) = 0;
  /// Where the next event of a port shows: while it shows none, a few calls of progress() may be saved. Set by progress(), cleared by
  /// whatever leaves that more to do than to look.
  struct Arrival {
    const uint64_t* word = nullptr;  // of the next frame, which is there once kParity of it has this value
    uint64_t parity = 0;
    static constexpr uint64_t kParity = uint64_t(1) << 39;
    bool arrived() const { return ((__atomic_load_n(word, __ATOMIC_ACQUIRE) ^ parity) & kParity) == 0; }
  };
  struct Glance {
    const Arrival* next = nullptr;              // null: progress()
    const uint64_t* bell = nullptr;             // not 0: frames elsewhere
    const std::atomic<bool>* events = nullptr;  // of another kind
    bool nothing() const {
      return next != nullptr && !next->arrived() && __atomic_load_n(bell, __ATOMIC_RELAXED) == 0 &&
             !events->load(std::memory_order_relaxed);
    }
  } glance;
  /// How often progress() may look for arrivals before it reports none: more than once for a caller that has
  /// nothing else to do. A hint: ports that poll by a system call poll once.
  unsigned looks = 1;
  /// The longest sleep of an armed port, in nanoseconds, whatever fd() shows: progress() is called behind it. Set by arm(), read by
  /// the thread that sleeps.
  std::atomic<uint64_t> longest_sleep{UINT64_MAX};
  /// A descriptor that becomes readable when progress is needed after arm(); -1: none needed.
  virtual int fd() const = 0;
  /// TW_OK: asleep; anything that comes from now on makes fd() readable. TW_ERR_BUSY: something is there already.
  virtual Status arm() = 0;
  /// Any thread, async-signal-safe: makes fd() readable.
  virtual void wake() = 0;

  /// Ends a link: graceful sends what is queued first. Afterwards the Link is freed; no on_lost.
  virtual void close(Link& link, bool graceful) = 0;
  /// Bytes queued in user space and not yet handed to the kernel or ring.
  virtual size_t queued(const Link& link) const = 0;
  /// ... and what the kernel still has: the end of this process, with answers of the peer unread, would discard it.
  virtual size_t undelivered(const Link& link) const { return queued(link); }
};

inline Status Port::import_device(Link&, uint64_t, Device&, Mapping**) {
  return fail(TW_ERR_UNSUPPORTED, "%s does not share device memory; it goes through staging", name());
}

class EventLoop;
class Registry;

struct PortOptions {
  Sink* sink = nullptr;
  EventLoop* service = nullptr;  // the context's service thread: control channels, deaths
  Registry* registry = nullptr;  // library-allocated memory that peers may import
  WorkerId worker = 0;           // of the worker this port belongs to
  uint64_t incarnation = 0;
  uint64_t silent_timeout_ns = 0;
  bool multi_threaded = false;
};

/// What connection set-up asks of a transport.
struct TransportTraits {
  bool to_itself = false;           // links a worker to itself, by Port::establish alone
  bool same_host_only = false;      // peers are on this machine
  bool passes_descriptors = false;  // its ports' set-up messages carry descriptors: set-up needs a unix socket
  bool over_network = false;        // set-up may come over a network socket, which then carries the bytes: the context listens
};
using TransportTrait = bool TransportTraits::*;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  virtual TransportTraits traits() const = 0;
  /// Empty when usable here; otherwise why not and what to do about it.
  virtual std::string unavailable() const = 0;
  /// Warnings with remedies (ptrace forbidden, no huge pages, ...), for `info`.
  virtual std::vector<std::string> remarks() const = 0;
  virtual Status open(const PortOptions& options, std::unique_ptr<Port>* port) = 0;
};

}  // namespace thalweg::impl
