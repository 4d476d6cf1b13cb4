// SPDX-License-Identifier: Apache-2.0
// One block of the persistent copy kernel (devices/persistent.hpp), the same text on a GPU and for its twins on the host.
//
// A command is five words of 32 bits, each stored as a 64-bit word together with the command's tag, so a reader of a slot
// knows of every word whether it is the new one, in whatever order they arrive: one poll is one round trip over the bus.
// Every block polls every command, in order, and counts it in `done`, also where it has no share of it.
//
// Block 0 decides the end: it has been idle for too long, or has lived for too long. It sets `leaving`, and the others
// follow when they read it. An `end` command ends them all at once. A block stores `gone` last: it will not do anything that
// it did not count by then, and when all have stored it the host owns the ring again.
#pragma once
#include "thalweg/device/order.hpp"

namespace thalweg::impl::persistent {

using device::u32;
using device::u64;

constexpr u32 kSlots = 64;      // a power of two
constexpr u32 kMostBlocks = 8;  // of one kernel
constexpr u32 kWords = 5;       // of a command
constexpr u32 kLongest = (1u << 24) - 1;

struct Command {
  u64 to = 0, from = 0;
  u32 length = 0;  // bytes, at most kLongest
  u32 blocks = 0;  // blocks 0 .. blocks - 1 share the bytes; 0: this kernel is to end
};

struct alignas(64) Slot {
  u64 words[8];  // kWords: the tag below, the command's bits above
};

/// In pinned host memory, zeroed once. Generations of kernels and positions of commands count up and never again.
struct Shared {
  alignas(64) u64 leaving;               // the generation whose block 0 takes nothing more
  alignas(64) u64 started[kMostBlocks];  // by block: the generation that runs, or did
  alignas(64) u64 done[kMostBlocks];     // by block: the position after the last command that it has done
  alignas(64) u64 gone[kMostBlocks];     // by block: the generation that accesses nothing any more
  Slot slots[kSlots];
};

struct Arguments {
  Shared* shared;
  u64 generation;
  u64 first;  // position where this generation begins
  u64 idle_ns, life_ns;
  u32 blocks;
};

THALWEG_DEVICE u32 tag_of(u64 position) { return static_cast<u32>(position + 1); }
/// The host's side of a slot.
THALWEG_DEVICE u64 word_of(const Command& command, u32 i, u32 tag) {
  const u64 bits = i == 0   ? static_cast<u32>(command.to)
                   : i == 1 ? command.to >> 32
                   : i == 2 ? static_cast<u32>(command.from)
                   : i == 3 ? command.from >> 32
                            : u64{command.length | command.blocks << 24};
  return bits << 32 | tag;
}
/// `parts`: the upper halves of a slot's words.
THALWEG_DEVICE Command command_of(const u32* parts) {
  return {u64{parts[1]} << 32 | parts[0], u64{parts[3]} << 32 | parts[2], parts[4] & kLongest, parts[4] >> 24};
}

enum class Turn : unsigned char { idle, moved, over };

/// Io, of the block's leader (one thread of the host, a warp of a GPU in step):
///   bool fetch(const Slot*, u32 tag, const u64* leaving, Command*, u64* left)   one poll of both
///   void copy(u64 to, u64 from, u32 bytes)                                     by all of the block; may be 0 bytes
///   void say(u64* word, u64 value)                                             after all that the block did
///   u64 nanoseconds()
template <class Io>
class Block {
 public:
  THALWEG_DEVICE Block(Io io, const Arguments& arguments, u32 index)
      : io_(io), arguments_(arguments), shared_(arguments.shared), index_(index), position_(arguments.first) {}
  THALWEG_DEVICE void begin() {
    born_ = since_ = io_.nanoseconds();
    io_.say(&shared_->started[index_], arguments_.generation);
  }

  /// One poll and what it found.
  THALWEG_DEVICE Turn turn() {
    Command command;
    u64 left = 0;
    const bool found = io_.fetch(&shared_->slots[position_ % kSlots], tag_of(position_), &shared_->leaving, &command, &left);
    if (index_ != 0 && left == arguments_.generation) return end();
    if (found) {
      if (index_ < command.blocks) copy_share(command);
      io_.say(&shared_->done[index_], ++position_);
      if (command.blocks == 0) return end();
    }
    if (index_ == 0 && must_leave(found)) {
      io_.say(&shared_->leaving, arguments_.generation);
      return end();
    }
    return found ? Turn::moved : Turn::idle;
  }

 private:
  THALWEG_DEVICE bool must_leave(bool found) {
    const u64 now = io_.nanoseconds();
    if (found) since_ = now;
    return now - since_ > arguments_.idle_ns || now - born_ > arguments_.life_ns;
  }
  THALWEG_DEVICE void copy_share(const Command& command) {
    const u32 share = ((command.length + command.blocks - 1) / command.blocks + 127) / 128 * 128, at = share * index_;
    if (at >= command.length) return;
    const u32 left = command.length - at;
    io_.copy(command.to + at, command.from + at, left < share ? left : share);
  }
  THALWEG_DEVICE Turn end() {
    io_.say(&shared_->gone[index_], arguments_.generation);
    return Turn::over;
  }

  Io io_;
  const Arguments& arguments_;
  Shared* const shared_;
  const u32 index_;
  u64 position_, born_ = 0, since_ = 0;
};

/// A block that is one thread of the host, with a Machine.
template <class M>
struct OneThreadIo {
  M m;
  bool fetch(const Slot* slot, u32 tag, const u64* leaving, Command* out, u64* left) const {
    u32 parts[kWords];
    bool whole = true;
    for (u32 i = 0; i < kWords; ++i) {
      const u64 word = m.acquire(&slot->words[i]);
      parts[i] = static_cast<u32>(word >> 32);
      whole = whole && static_cast<u32>(word) == tag;
    }
    *left = m.acquire(leaving);
    *out = command_of(parts);
    return whole;
  }
  void copy(u64 to, u64 from, u32 bytes) const { m.copy(to, from, bytes); }
  void say(u64* word, u64 value) const { m.release(word, value); }
  u64 nanoseconds() const { return m.nanoseconds(); }
};

}  // namespace thalweg::impl::persistent
