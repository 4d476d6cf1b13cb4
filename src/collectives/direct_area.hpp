// SPDX-License-Identifier: Apache-2.0
// The memory through which the ranks of a group on one host work together: a segment of each rank, mapped by all.
//
// Time goes in steps, numbered alike on all ranks. In a step a rank writes its own part (a buffer, or what fits into the line of its
// flag), publishes it by the step's number, waits for the numbers of those that it reads, and reads their parts. Lines and buffers
// are used by turns. What keeps a part from being overwritten while it is read:
//   - a rank publishes s + 2 only after it has read what it needs of step s, so that one step may be filled while the last is read,
//   - and writes for step s, of n lines or buffers, once all have published s - n + 2 (reserve()).
//
// Nothing read here is trusted: a peer's number is the awaited one or not, lengths and offsets are the own rank's, and what decides
// something is read once.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/platform/cpu.hpp"
#include "base/status.hpp"
#include "base/waiting.hpp"
#include "collectives/buffers.hpp"
#include "collectives/elements.hpp"

struct tw_memory;
struct tw_remote_memory;
struct tw_worker;

namespace thalweg::impl {

class Collectives;
struct Mapping;

/// Where a rank's part of a step is: in its flag's line, or in a buffer.
enum class Room : uint8_t { line, small, large };

class DirectArea {
 public:
  static constexpr uint32_t kLines = 16, kLargeBuffers = 4, kMostRanks = 64;  // as many small buffers as lines
  static constexpr uint64_t kInline = 112;         // bytes beside a flag; of those the first 48 are in its cache line
  static constexpr uint64_t kSmall = 4u << 10;     // bytes of a small buffer
  static constexpr uint64_t kBuffer = 256u << 10;  // bytes of a large one: a rank's part of a step, at most
  static constexpr uint64_t kLookEvery = 256;      // steps of a call that may never wait
  static constexpr Room room_for(uint64_t bytes) {
    return bytes <= kInline ? Room::line : bytes <= kSmall ? Room::small : Room::large;
  }

  explicit DirectArea(Collectives& owner);
  ~DirectArea();
  DirectArea(const DirectArea&) = delete;
  DirectArea& operator=(const DirectArea&) = delete;

  /// Makes it, together with all ranks: each calls this in its place among the blocking collectives. An error: the group has failed.
  /// TW_OK, and null: not all ranks can; *why_not tells.
  static Status agree(Collectives& owner, uint64_t limit_ns, std::unique_ptr<DirectArea>* out, std::string* why_not);

  /// A collective begins: what all are to have called, and how long it may wait. TW_ERR_BUSY: another thread is in one, or this one
  /// is, in a function that the collective calls.
  Status begin(uint64_t called, const char* name, uint64_t limit_ns);
  void end();
  /// The group has failed: waits end. Any thread.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }

  /// What this rank has read in parts of all ranks and goes on by: ranks that went on by something else are found out, as what they
  /// publish from now on says so.
  void go_on_by(uint64_t value);

  /// The next step's part may be written.
  Status reserve(Room room) {
    const uint64_t turns = room == Room::large ? kLargeBuffers : kLines;
    return passed_ + turns >= next() + 2 ? Status{TW_OK} : await_passed(next() + 2 - turns);
  }
  /// The step that is being written.
  uint64_t next() const { return published_ + 1; }
  void publish() {
    Line& line = mine_->lines[++published_ % kLines];
    line.called = called_at_[published_ % kLines] = called_;
    line.step.store(published_, std::memory_order_release);
  }
  /// The rank has published it, in the same collective.
  Status await(uint32_t rank, uint64_t step) {
    return ranks_[rank].seen >= step ? Status{TW_OK} : await_new(rank, step, false);
  }
  Status await_all(uint64_t step);
  /// Before step k of `count`: a call of many steps keeps to its time and ends with an interrupt or a failure, although it may never
  /// wait for long. Its time begins with its first step.
  Status look_around(uint64_t k, uint64_t count) {
    return count < kLookEvery || k % kLookEvery != 0 ? Status{TW_OK} : look_around();
  }

  /// A rank's part of a step.
  std::byte* part(uint32_t rank, uint64_t step, Room room) const {
    Segment& segment = *ranks_[rank].segment;
    if (room == Room::line) return segment.lines[step % kLines].payload;
    return room == Room::small ? segment.small[step % kLines] : segment.large[step % kLargeBuffers];
  }
  /// May every rank read the memory of all others, by the kernel?
  bool all_readable() const { return all_readable_; }
  /// From memory of the rank, which waits in this collective.
  Status read(uint32_t rank, std::byte* to, uint64_t from, uint64_t length);
  /// Behind the last read(): an error if a rank has given up, which takes its buffer back, although what it published goes on counting.
  Status hear();
  /// Are there more ranks than cores? On all ranks alike.
  bool crowded() const { return crowded_; }
  /// What the set-up has found, and the costs, go with all that this rank publishes from now on: ranks that were told other things are
  /// found out, before they go on by other ways.
  void go_by(bool crowded, bool all_readable);
  /// A checksum of that.
  uint64_t agreed() const { return agreed_; }
  /// Own memory for a piece of a result on its way to a device.
  std::byte* bounce() { return bounce_.get(); }
  ReduceRoom& room() { return room_; }
  Collectives& owner() { return owner_; }
  /// This rank has found something wrong: the group fails.
  Status fail(Status status, uint32_t rank, const std::string& why);

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> step;
    uint64_t called;  // CalledThing, changed by what the set-up has found and by what the collective goes on by
    std::byte payload[kInline];
  };
  static_assert(sizeof(Line) == 128);
  struct alignas(4096) Segment {
    Line lines[kLines];
    std::atomic<uint64_t> agreed;  // for texts: go_by()
    alignas(4096) std::byte small[kLines][kSmall];
    std::byte large[kLargeBuffers][kBuffer];
  };
  struct RankArea {
    Segment* segment = nullptr;
    uint64_t seen = 0;    // the last step that it is known to have published in the same collective
    uint64_t passed = 0;  // the last one that it has published, or later
    tw_remote_memory* remote = nullptr;
    Mapping* mapping = nullptr;  // counted as used
  };

  Status allocate(void* key, size_t* key_length);
  Status map(uint32_t rank, const void* key, size_t key_length, const Deadline& deadline);
  bool can_read(uint32_t rank);
  int64_t read_part(uint32_t rank, std::byte* to, uint64_t from, uint64_t length);
  /// All ranks have published the step, or a later one.
  Status await_passed(uint64_t step);
  /// later: or a later one; then nothing of it is read.
  Status await_new(uint32_t rank, uint64_t step, bool later);
  Status await_long(uint32_t rank, uint64_t step, bool later);
  Status arrived(uint32_t rank, uint64_t step, bool later);
  bool enter();
  Status look_around();
  /// Nothing came for a while.
  Status look_after(uint32_t rank, uint64_t step);
  /// The clock; the first time, the collective's time begins.
  uint64_t clock();
  /// Of the group, or by an interrupt of this rank. Under the engine's lock.
  Status failure(Status interrupt);
  std::string missing(uint64_t step, uint32_t* rank) const;

  Collectives& owner_;
  tw_worker& worker_;
  std::vector<RankArea> ranks_;
  bool crowded_ = false;  // more ranks than cores: waits give the core away at once
  bool all_readable_ = false;
  uint64_t agreed_ = 0;
  Segment* mine_ = nullptr;
  uint64_t published_ = 0, passed_ = 0;           // by this rank; by all, or more
  uint64_t called_ = 0, called_at_[kLines] = {};  // of this collective; of the last steps
  bool goes_on_by_ = false;                       // `called_` is changed
  const char* name_ = "";
  uint64_t limit_ns_ = 0, deadline_ = 0;  // 0: the clock was not read yet
  uint32_t calls_ = 0;
  std::atomic<bool> stopped_{false}, busy_{false};
  tw_memory* memory_ = nullptr;
  AlignedBytes bounce_;
  ReduceRoom room_;
};

}  // namespace thalweg::impl
