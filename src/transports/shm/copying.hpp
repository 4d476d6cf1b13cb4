// SPDX-License-Identifier: Apache-2.0
// A copier of the other side's memory sets a flag in the connection; the owner waits for it before it takes the memory back:
// before a link ends here, and before memory that a peer may copy into by the kernel is released.
//
// Both sides store their own word, then load the other's with a full fence between: either the copier sees `closed` (or
// the revoked key), or the closer sees `copying`. A copier is never waited for when its process is gone.
#pragma once
#include <mutex>

#include "transports/shm/layout.hpp"

namespace thalweg::impl::shm {

/// This side's part: touches the peer's memory. Progress owner.
class Copier {
 public:
  void open(RingControl& mine, const RingControl& theirs) {
    mine_ = &mine;
    theirs_ = &theirs;
  }
  bool enter() {
    __atomic_store_n(&mine_->copying, ++count_, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&theirs_->closed, __ATOMIC_SEQ_CST) == 0) return true;
    leave();
    return false;
  }
  void leave() { __atomic_store_n(&mine_->copying, ++count_, __ATOMIC_RELEASE); }
  void close() { __atomic_store_n(&mine_->closed, 1, __ATOMIC_SEQ_CST); }

 private:
  RingControl* mine_ = nullptr;
  const RingControl* theirs_ = nullptr;
  uint32_t count_ = 0;
};

/// What the peer does to our memory, for any thread: the connection's memory may go away meanwhile.
class PeerCopying {
 public:
  void open(const RingControl& theirs) { theirs_ = &theirs; }
  void forget() {
    const std::lock_guard lock(mutex_);
    theirs_ = nullptr;
  }
  /// Its count: odd while it copies, 0 when the connection is gone.
  uint32_t count() {
    const std::lock_guard lock(mutex_);
    return theirs_ == nullptr ? 0 : __atomic_load_n(&theirs_->copying, __ATOMIC_SEQ_CST);
  }

 private:
  std::mutex mutex_;
  const RingControl* theirs_ = nullptr;
};

}  // namespace thalweg::impl::shm
