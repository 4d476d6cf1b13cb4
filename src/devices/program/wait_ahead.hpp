// SPDX-License-Identifier: Apache-2.0
// A kernel of one block ahead of a program's kernel of many: it gives the credits of the run's receives, then polls what all of
// the run needs, so that the program's blocks take no multiprocessor from others while the peer is late.
//
// The program's kernel comes behind it in the queue, gives the same credits again (the same words) and polls everything again:
// a wait that ends too early does no harm. A wait that fails fills in the program's Failure and closes it, as a failed run does,
// so that the kernel behind does nothing. Counts of the ends are read here, as in a run: earlier runs of the queue are over.
#pragma once
#include <thalweg/device/channel_steps.hpp>

#include "devices/program/timeout.hpp"

namespace thalweg::device {

constexpr u32 kMostAhead = 48;

/// A step of the program: the credit that a receive gives, or the slot that a send or receive waits for.
struct AheadStep {
  void* end;        // SendEnd of a send, RecvEnd of post and take
  StepKind kind;    // post, send, take
  u32 number;       // of the program's step
  u32 offset;       // of its message from the end's count
  u32 recv_buffer;  // post
};

struct WaitAhead {
  ProgramState* state;
  Guard guard;  // the program's
  u32 step_count, blocks;
  u32 posts, waits;  // used of the two arrays
  AheadStep post[kMostAhead], wait[kMostAhead];
};

/// One of `lanes` threads of the block; none waits for another.
template <class M>
class AheadLane {
 public:
  THALWEG_DEVICE AheadLane(M m, const WaitAhead& ahead, u32 lane, u32 lanes) : m_(m), ahead_(ahead), at_(lane), lanes_(lanes) {}

  THALWEG_DEVICE void begin() const {
    for (u32 i = at_; i < ahead_.posts; i += lanes_) {
      auto* const end = static_cast<RecvEnd*>(ahead_.post[i].end);
      write_credit<Publish::released>(m_, end, m_.load(&end->posted) + ahead_.post[i].offset, ahead_.post[i].recv_buffer);
    }
    m_.fence();
  }

  /// One poll. True: this thread waits for nothing more.
  THALWEG_DEVICE bool pass() {
    if (at_ >= ahead_.waits) return true;
    const AheadStep& step = ahead_.wait[at_];
    const u64 n = number_of(step), found = m_.acquire(slot_of(step, n));
    if (slot_reached(found, n)) {
      at_ += lanes_;
      polls_ = 0;
      since_ = 0;
      return at_ >= ahead_.waits;
    }
    if (++polls_ % kPollsPerClock != 0) return false;
    const TimeoutCheck timeout = check_timeout(m_, ahead_.guard, since_, polls_ / kPollsPerClock - 1);
    since_ = timeout.since;
    if (timeout.code == 0) return false;
    if (timeout.code != kAlreadyAborted) give_up(timeout.code, step.number, n + 1, found >> 16);
    at_ = ahead_.waits;
    return true;
  }

 private:
  THALWEG_DEVICE u64 number_of(const AheadStep& step) const {
    const u64* const count = step.kind == StepKind::send ? &static_cast<const SendEnd*>(step.end)->count
                                                         : &static_cast<const RecvEnd*>(step.end)->taken;
    return m_.load(count) + step.offset;
  }
  THALWEG_DEVICE const u64* slot_of(const AheadStep& step, u64 n) const {
    u64* const* const slots = step.kind == StepKind::send ? &static_cast<const SendEnd*>(step.end)->credits
                                                          : &static_cast<const RecvEnd*>(step.end)->flags;
    return read_pointer(m_, slots) + n % kSlots;
  }
  THALWEG_DEVICE void give_up(i64 code, u32 step, u64 expected, u64 found) const {
    fail(m_, ahead_.guard, code, step, expected, found);
    const u64 run = m_.load(&ahead_.state->runs);
    m_.store(&ahead_.state->closed, run + 1);
    release_blocks(m_, ahead_.state, ahead_.step_count, ahead_.blocks, run, false, 0, 1);
    m_.fence();
  }

  const M m_;
  const WaitAhead& ahead_;
  u32 at_;
  const u32 lanes_;
  u32 polls_ = 0;
  u64 since_ = 0;
};

}  // namespace thalweg::device
