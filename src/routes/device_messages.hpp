// SPDX-License-Identifier: Apache-2.0
// The ways of a message with device memory at one end at least, or with an end that has to wait for a user's stream. The
// receiver chooses: one function for it and for explain.
#pragma once
#include <array>
#include <cstdint>

#include "memory/place.hpp"
#include "routes/limits.hpp"
#include "routes/messages.hpp"

namespace thalweg::impl {

/// Payloads from here on that go through staging are named to the receiver in bounce buffers (protocols/bounce.hpp): of
/// less, that saves less than a second copy of a device or a first mapping costs.
inline constexpr uint64_t kNamedFrom = 64u << 10;

/// From here on a transfer takes long enough (some ten microseconds) that both sides may want to compute meanwhile, and a
/// device reads in little more time than it writes: a receive that is posted second pulls in its call. Of less, it asks for
/// a push.
inline constexpr uint64_t kHiddenFrom = 2u << 20;
/// `from`: of the engine's options, kHiddenFrom unless a test sets another.
constexpr bool worth_hiding(uint64_t length, uint64_t from) { return length >= from; }

/// Pinning a mapping of a peer's host memory takes as long as copying it: after as many bytes of it as it has went through
/// staging, it costs at most twice the best of both. What a plan or a window has pinned costs nothing more.
constexpr bool worth_pinning(bool pinned, uint64_t staged, uint64_t length) { return pinned || staged >= length; }

/// May pieces of staged payloads be named to the peer at all?
bool may_name(uint32_t features, Way forced);
/// Its sender does not where the user's functions pack it: each piece is packed once, into its frame.
constexpr bool names_pieces(bool packed) { return !packed; }

/// A payload that is staged at one end at least: how its receiver takes the pieces.
struct Pieces {
  uint32_t features = 0;  // of the link: LinkFeature
  bool imports = true;    // this side imports memory of peers for its devices, and pins it
  Way forced = Way::any;
  uint64_t length = 0, named_from = kNamedFrom;
  uint64_t shared_from = 0;  // between processes on one device, which have it in turns: by that device from here on
  bool to_device = false;
  bool from_device = false;  // of a device
  bool same_device = false;  // both ends are of one device
  bool managed = false;      // one of them is managed memory
  bool reaches = false;      // the receiver's device reaches memory of the sender's
  // Of a put, whose target's CPU stores them.
  bool put = false;
  bool strided = false;  // the target is not one piece
  bool reached = false;  // its initiator reaches the target without the target's CPU, once they are in host memory
};
enum class PieceRoute : uint8_t {
  in_device,  // named in memory of the sender's device
  in_host,    // named in host memory that both processes reach
  in_frames,  // carried by the frames; of a put also as accesses of host memory
};
constexpr uint32_t bit_of(PieceRoute route) { return 1u << static_cast<unsigned>(route); }
/// The best one that has not failed (`failed`: bits).
PieceRoute piece_route(const Pieces& pieces, uint32_t failed = 0);
/// While the receiver's device imports memory of the sender's: what needs nothing more. host_ready: their host memory is
/// pinned here.
PieceRoute piece_route_meanwhile(const Pieces& pieces, bool host_ready);

struct DeviceMessage {
  struct End {
    MemoryKind kind = MemoryKind::host;
    bool named = false;     // it can be named to the other side: it is exportable, or, within one process, lent
    bool late = false;      // it waits for a stream
    bool readable = false;  // the sender's: host memory that the receiver's CPU may read (see routes/messages.hpp)
    bool library = false;   // library-allocated host memory, which a device of the other side reaches once it is pinned there
    bool bounced = false;   // the receiver's: its device's bounce buffer takes all of it, and the sender's device reaches that
    bool on_device() const { return !by_cpu(kind); }
  };
  uint32_t features = 0;     // of the link: LinkFeature
  bool imports = true;       // this side imports device memory of peers
  bool same_device = false;  // both ends are of one device
  bool second = false;       // the receive was posted when the RTS was there: the sender may be elsewhere by now
  uint64_t length = 0, eager = 0, named_from = kNamedFrom, hidden_from = kHiddenFrom;
  Way forced = Way::any;
  bool by_kernel = false;            // `readable` means: by the kernel's copy
  const LinkCosts* costs = nullptr;  // null: unknown
  End from, to;
  bool active = false;  // an active message: its receive cannot be posted first
  // Only for explain.
  bool persistent = false;              // a push is by the persistent kernel of the sender's device
  const char* why_not_named = nullptr;  // why the sender's buffer is not, where that is known
};

enum class DeviceRoute : uint8_t {
  in_process,   // one process: by a device, from the address itself
  push,         // by the sender's device
  push_bounce,  // by the sender's device into a bounce buffer of the receiver's device, and on by that
  pull,         // by the receiver's, or by the sender's device as the receiver's process sees it
  copy,         // by the receiver's CPU, into pinned memory for its device
  frames,       // data frames, through pinned memory at whichever end is a device's
  count_
};
inline constexpr size_t kDeviceRoutes = static_cast<size_t>(DeviceRoute::count_);
/// As users see it.
constexpr Way way_of(DeviceRoute route) {
  switch (route) {
    case DeviceRoute::in_process:
    case DeviceRoute::push:
      return Way::push;
    case DeviceRoute::pull:
      return Way::pull;
    default:
      return Way::staging;
  }
}
constexpr uint32_t bit_of(DeviceRoute route) { return 1u << static_cast<unsigned>(route); }

/// The best one that has not failed (`failed`: bits). Order: a device writes to another one in two thirds of the time
/// in which it reads (two H200: 6.7 us and 10.3), so push comes before pull, but for two ends of one device, which need no
/// request, and for large payloads to a receive that was posted second, because the sender may not answer a request soon.
DeviceRoute device_route(const DeviceMessage& message, uint32_t failed = 0);

/// Does the sender push into a receive that was offered to it before (protocols/offers.hpp), once it has imported that
/// memory? So the receiver offers it where this is true of every sender's device memory.
bool pushes_unasked(const DeviceMessage& message);

/// Whose progress the payload needs once both sides have posted and have imported what they do: as part of a sentence. way:
/// of the message when it is unknown which side posts first. The receiver's buffer is one piece.
const char* progress_of(const Limits& limits, const DeviceMessage& message, Way way);

/// The receiver's choice, of rendezvous or eager messages, as a message's sender can foresee it. cold: neither
/// side has mapped or pinned the other's memory, and without waiting for that.
Way received_way(const Limits& limits, Message message, const DeviceMessage& facts, bool cold);

/// The lines of explain, with what each is predicted to take. Those that such a message never has are left out: no name.
/// through: what the pieces of staged payloads go through.
std::array<Route, kDeviceRoutes> device_message_routes(const DeviceMessage& message,
                                                       const std::array<double, kDeviceRoutes>& predicted_ns,
                                                       PieceRoute through);

}  // namespace thalweg::impl
