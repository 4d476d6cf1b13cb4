// SPDX-License-Identifier: Apache-2.0
// How a port learns of frames in rings that it does not poll, and how it is woken from sleep. One per port, mapped by all
// its peers: a bit per ring with a summary word, and a socket pair for a sleeper.
//
// A socket pair and no eventfd, because peers hold one end of it: writing to a descriptor blocks whenever its other holders
// want it to (O_NONBLOCK is theirs to clear), sending with MSG_DONTWAIT never does. And what is sent only the owner can
// read.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <memory>

#include "base/platform/fork.hpp"
#include "base/unique_fd.hpp"
#include "memory/segment.hpp"
#include "transports/shm/layout.hpp"

namespace thalweg::impl::shm {

/// The owner's end. collect() and sleep are for the progress owner; wake() for any thread.
class OwnDoorbell {
 public:
  ~OwnDoorbell();
  Status open();
  const Segment& segment() const { return segment_; }
  int event_fd() const { return sleeper_.get(); }  // readable after a wake-up
  int ringer_fd() const { return ringer_.get(); }  // for peers: what is sent here makes event_fd() readable

  bool rung() const { return __atomic_load_n(&memory().summary, __ATOMIC_RELAXED) != 0; }
  const uint64_t* summary() const { return &memory().summary; }
  /// Takes all bits and calls visit(bit) for each.
  template <typename Visit>
  void collect(Visit visit) {
    uint64_t summary = __atomic_exchange_n(&memory().summary, 0, __ATOMIC_SEQ_CST);
    while (summary != 0) {
      const unsigned word = unsigned(__builtin_ctzll(summary));
      summary &= summary - 1;
      uint64_t bits = __atomic_exchange_n(&memory().words[word], 0, __ATOMIC_SEQ_CST);
      while (bits != 0) {
        visit(word * 64 + unsigned(__builtin_ctzll(bits)));
        bits &= bits - 1;
      }
    }
  }
  void set_sleeping() { __atomic_store_n(&memory().sleeping, 1u, __ATOMIC_SEQ_CST); }
  /// True when a peer has rung since set_sleeping().
  bool end_sleep() { return __atomic_exchange_n(&memory().sleeping, 0u, __ATOMIC_SEQ_CST) == 0; }
  void wake() const;         // async-signal-safe
  void drain_event() const;  // takes back earlier wake-ups

 private:
  DoorbellMemory& memory() const { return *reinterpret_cast<DoorbellMemory*>(segment_.data()); }
  BornHere born_;
  Segment segment_;
  UniqueFd sleeper_, ringer_;
};

/// The end of a peer, one per link.
class PeerDoorbell {
 public:
  /// TW_ERR_PROTOCOL when they are anything but what an OwnDoorbell gives out.
  Status open(UniqueFd memory, UniqueFd ringer);
  /// Sets bit `bit` of the peer's rings: it has a frame; wakes the peer when it sleeps.
  [[gnu::cold]] void ring(uint32_t bit) const;
  /// Wakes the peer when it sleeps, for what is in no ring.
  [[gnu::cold]] void wake() const;
  const uint32_t* sleeping() const { return &memory().sleeping; }
  /// Does process `pid` have the doorbell's memory at `address`? Then it is the peer, and the kernel lets us reach its
  /// memory. The number that is looked for is ours and fresh. `bit`: of the peer's rings, so that links look at different
  /// words. Sets errno.
  bool probe(pid_t pid, uint64_t address, uint32_t bit) const;

 private:
  DoorbellMemory& memory() const { return *reinterpret_cast<DoorbellMemory*>(segment_.data()); }
  Segment segment_;
  UniqueFd ringer_;
};

}  // namespace thalweg::impl::shm
