// SPDX-License-Identifier: Apache-2.0
// Pinned memory between device memory (mostly the local side of a run) and what moves bytes with the CPU: frames, mapped
// memory of a peer, an unexpected message. A few chunks, so that the device copies one while another is sent or filled.
// Positions are packed offsets of the run's bytes and only grow. What a chunk is copied from or into is a layout's bytes; of
// blocks see blocks_staging.hpp.
#pragma once
#include <array>

#include "protocols/bounce.hpp"
#include "protocols/device_copy.hpp"

namespace thalweg::impl {

class Staging {
 public:
  enum class Direction : uint8_t { out, in };  // out of the device, into it
  /// Of packed bytes [begin, end) of `side`, which `device` reaches.
  /// users: as DeviceQueues::submit.
  Staging(Engine& engine, OpRun& run, Device& device, const CopySide& side, Direction direction, uint64_t begin, uint64_t end,
          DeviceUserLists users = {});
  /// Out of the run's host memory, by this CPU, into chunks of the bounce buffer that use() gives.
  Staging(Engine& engine, OpRun& run, uint64_t begin, uint64_t end);
  virtual ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Out: the bytes at `position`, *n of them in one piece; null while they are on their way, or with an error in *status.
  const std::byte* look(uint64_t position, size_t* n, Status* status);
  /// Out: everything before `position` was taken.
  void taken(uint64_t position);
  /// Out, before the first poll: the chunks are of this bounce buffer, which the peer reaches, with pieces of at most
  /// `longest` bytes in them. They may be named to the peer. False: others have all of them, and a short payload waits for
  /// no long ones.
  bool use(std::shared_ptr<Bounce> bounce, uint64_t longest);
  /// ... No chunk is ready, nothing is under way and everything sent is taken: others have all chunks. The run, in no
  /// list, comes back to peer.pipelines when one of them is free.
  void wait_for_chunk();
  /// Nothing more will be read, or filled. Chunks of a bounce buffer go back now, not with the request.
  void end();
  const Bounce* bounce() const { return bounce_.get(); }
  /// ... and its oldest chunk was taken.
  void taken_oldest();

  /// In: room for the bytes at `position`, *n of it in one piece. Waits for a device copy when all chunks are under way.
  std::byte* room(uint64_t position, size_t* n, Status* status);
  /// In: would room() have to wait?
  bool full(uint64_t position);
  /// In: everything before `position` is in its room. `then` follows, from progress, when the last byte has reached the
  /// device.
  void filled(uint64_t position, Then then);
  /// In: the bytes [begin, end) lie at `address`, which the device reaches, in `mapping`; the peer is notified when they
  /// have been read. TW_ERR_PROTOCOL: they are not the next ones, or more pieces at a time than a sender has chunks.
  Status land(uint64_t address, Mapping& mapping, uint64_t begin, uint64_t end, uint64_t op, Then then);
  /// Waits for what is under way; `then` of filled() does not follow any more.
  void drain();
  /// In: all of the payload gets a chunk of this bounce buffer, into which the peer's device copies; filled() follows. Null:
  /// others have all chunks.
  std::byte* whole(std::shared_ptr<Bounce> bounce);
  /// The device's status so far.
  Status status() const { return status_; }

 protected:
  /// How many packed bytes from `position` on a chunk takes.
  virtual uint64_t chunk_of(uint64_t position) const;
  /// The device's copy between `chunk` and packed bytes [begin, end); done(engine, token, status) follows unless it fails.
  virtual Status copy(std::byte* chunk, uint64_t begin, uint64_t end, DeviceQueues::Done done, void* token);
  Engine& engine_;
  OpRun& run_;
  Device* const device_;  // null: this CPU copies
  const Direction direction_;
  const DeviceUserLists users_;

 private:
  static constexpr unsigned kDepth = 4;
  struct Chunk {
    Staging* owner = nullptr;
    std::byte* bytes = nullptr;
    uint64_t begin = 0, end = 0;
    uint64_t named = 0;          // in: the bytes are a piece of the peer's; its op
    Peer* sender = nullptr;      // ... the peer
    Mapping* mapping = nullptr;  // ... and where they are, counted
    enum class State : uint8_t { free, copying, ready, filling } state = State::free;
  };
  static void copied(Engine& engine, void* token, Status status);
  Status start(Chunk& chunk, std::byte* bytes, uint64_t begin, uint64_t end);
  bool get_memory(Chunk& chunk);
  void give_memory(Chunk& chunk);
  static void give_back(Engine& engine, Chunk& chunk);
  Chunk* chunk_at(uint64_t position);
  Chunk* free_chunk();
  void free_oldest();
  void read_ahead();
  bool read_next();
  void pack_from_host(std::byte* chunk, uint64_t begin, uint64_t end);

  const CopySide side_;
  const uint64_t begin_, end_;
  uint64_t next_;  // out: read up to here; in: room was given up to here
  Status status_ = TW_OK;
  Then then_ = nullptr;
  std::shared_ptr<Bounce> bounce_;  // null: chunks of this process alone
  uint64_t longest_ = DeviceQueues::kChunk;
  bool over_ = false;
  std::array<Chunk, kDepth> chunks_;
};

/// Gives the run a window to its local side; one of an earlier phase goes.
void stage(Engine& engine, OpRun& run, Staging::Direction direction, uint64_t begin, uint64_t end);

}  // namespace thalweg::impl
