// SPDX-License-Identifier: Apache-2.0
// Bounce buffers that both processes reach. A process makes one for a peer and a device of its own when a payload of that
// device first goes to the peer through staging, and sends its name to the peer (Frame::bounce). From then on the device
// fills chunks of it, and frames name the bytes in them instead of carrying them (data_at, put_at); the peer's CPU copies
// from host memory that it has mapped, its device from device memory that it has imported or from that host memory, which it
// pins once; then the chunk is free again.
//
//   host    8 chunks of 2 MiB, pinned: payload for host memory, and for devices that cannot reach this one
//   device  8 chunks of 8 MiB of the device's own memory: payload for a device that reaches it
//
// Payload of host memory for a device of the peer goes the same way, through one of host memory that this process's CPU
// fills. One for each peer: no other peer can map what it is sent.
#pragma once
#include <memory>
#include <vector>

#include "memory/registry.hpp"
#include "protocols/engine.hpp"
#include "protocols/wire.hpp"
#include "routes/device_messages.hpp"

namespace thalweg::impl {

/// Ends with its last user: what a device still writes to stays. Progress owner.
class Bounce {
 public:
  static constexpr unsigned kChunks = 8;
  /// device: null where this CPU fills it.
  static Status make(Engine& engine, Device* device, bool on_device, uint64_t chunk, std::shared_ptr<Bounce>* out);
  ~Bounce();
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  std::byte* take();  // null: all are out
  void give(std::byte* chunk);
  /// A run without a chunk, in no list, takes turns again when one comes back.
  void wait(OpRun& run) { waiting_.push_back(&run); }
  uint64_t chunk() const { return chunk_; }
  uint64_t length() const { return kChunks * chunk(); }
  bool on_device() const { return on_device_; }
  Device* device() const { return device_; }
  uint64_t segment() const { return memory_->segment_id; }
  uint64_t offset() const { return memory_->segment_offset; }  // in it
  uint64_t offset_of(const std::byte* at) const {
    return memory_->segment_offset + static_cast<uint64_t>(at - memory_->address);
  }

 private:
  Bounce(Engine& engine, Device* device, bool on_device, uint64_t chunk, tw_memory* memory);
  Engine& engine_;
  Device* const device_;
  const bool on_device_;
  const uint64_t chunk_;
  tw_memory* const memory_;
  std::vector<std::byte*> free_;
  RunList waiting_;  // empty before the peer's Bounces end
};

/// Of one peer: this process's bounce buffers for it, and those that it has named.
class Bounces {
 public:
  struct Ours {
    std::shared_ptr<Bounce> bounce;  // null: it cannot be had, which is not tried again
    Device* device = nullptr;        // null: this CPU fills it
    bool on_device = false;
    bool mapped = false;  // the peer has mapped it (host memory)
  };
  struct Theirs {
    uint64_t segment = 0, offset = 0, length = 0;
    bool on_device = false;
    Uuid uuid{};                 // of the device that fills it; none: its CPU does
    Mapping* mapping = nullptr;  // host memory, counted; null: not mapped (yet)
    bool failed = false;         // it cannot be
    bool released = false;       // on_device: by the peer
  };
  /// A piece whose memory is being imported again: the cache of imports was full.
  struct Waiting {
    FrameHeader header;
    PieceBody piece;
  };
  ~Bounces();
  std::vector<Ours> ours;
  std::vector<Theirs> theirs;
  std::vector<Waiting> waiting;
};

/// Makes the bounce buffer in which pieces for this peer may be named, if it is missing, and sends its name to the peer.
void make_bounce(Engine& engine, Peer& peer, Device* device, bool on_device);
/// That bounce buffer; null: none (yet). A missing one is made where no kernel may wait for this engine meanwhile: to pin memory may
/// wait for kernels.
std::shared_ptr<Bounce> bounce_for(Engine& engine, Peer& peer, Device* device, bool on_device);

/// The input of src/routes for pieces of `length` bytes, but for the two ends.
Pieces pieces_to(const Peer& peer, uint64_t length);
/// Of a put from memory of a device that is relayed.
Pieces put_pieces(const OpDesc& op);
/// A receiver's part of a cts for frames: its PieceForm bits. `from`: the device that stages the payload at the sender,
/// none: its CPU. May import.
uint64_t piece_forms(Engine& engine, Peer& peer, OpRun& run, const Uuid& from, bool from_managed);
/// The sender's: the run, whose frames are about to begin, names its pieces where `forms` and the state of its bounce
/// buffers allow it.
void name_pieces(Engine& engine, Peer& peer, OpRun& run, uint64_t forms);
/// A put of staged bytes into host memory of the target is about to begin: true, its pieces are named (put_at).
bool name_put(Engine& engine, Peer& peer, OpRun& run);
/// Names the next `length` staged bytes, which are at `bytes`. As Port::send; the answer to run is `taken`, or fin.
Status send_named(Engine& engine, Peer& peer, OpRun& run, FrameHeader header, const std::byte* bytes, size_t length);
/// The piece is not used here any more.
void send_taken(Engine& engine, Peer& peer, uint64_t op);

/// An import has ended: bounce buffers of the peer that were waiting for it are mapped now.
void settle_bounces(Engine& engine, Peer& peer);

// Frames.
void on_bounce(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_data_at(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_put_at(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);
void on_taken(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body);

}  // namespace thalweg::impl
