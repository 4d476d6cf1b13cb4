// SPDX-License-Identifier: Apache-2.0
// Rounds of a ping-pong in device code: the same text for a kernel and for its twin on the CPU. False: a wait failed, and a guard has
// the Failure.
#pragma once
#include <thalweg/device/channel.hpp>
#include <thalweg/device/ll.hpp>

#include "arguments.hpp"

namespace perf {

/// put, then signal.
struct PutForm {
  template <class ThreadGroup>
  static THALWEG_DEVICE bool send(const Rounds& r, ThreadGroup group, u64 round) {
    using namespace thalweg::device;
    const u32 there = 1 - r.data.rank;
    if (r.bytes != 0 && !put(group, r.data, there, r.to, reinterpret_cast<const unsigned char*>(r.from), r.bytes)) return false;
    return signal(group, r.flags, there, r.flag, round);
  }
  template <class ThreadGroup>
  static THALWEG_DEVICE bool take(const Rounds& r, ThreadGroup group, u64 round) {
    using namespace thalweg::device;
    return wait(group, r.flags, r.flag, Compare::greater_equal, round, round);
  }
};

/// Rows of doubles, then signal.
struct StridedForm : PutForm {
  template <class ThreadGroup>
  static THALWEG_DEVICE bool send(const Rounds& r, ThreadGroup group, u64 round) {
    using namespace thalweg::device;
    const u32 there = 1 - r.data.rank;
    const auto* const from = reinterpret_cast<const double*>(r.from);
    return strided_put(group, r.data, there, r.to, r.to_pitch, from, r.from_pitch, r.width, r.rows) &&
           signal(group, r.flags, there, r.flag, round);
  }
};

/// The flag beside the data, in the same store. The answer says that the room is free again.
struct LlForm {
  template <class ThreadGroup>
  static THALWEG_DEVICE bool send(const Rounds& r, ThreadGroup group, u64 round) {
    using namespace thalweg::device;
    const auto* const from = reinterpret_cast<const u32*>(r.from);
    return put_ll(group, r.data, 1 - r.data.rank, r.to, from, r.bytes / sizeof(u32), static_cast<u32>(round));
  }
  template <class ThreadGroup>
  static THALWEG_DEVICE bool take(const Rounds& r, ThreadGroup group, u64 round) {
    using namespace thalweg::device;
    auto* const to = reinterpret_cast<u32*>(r.recv_buffer);
    return take_ll(group, r.data, r.to, to, r.bytes / sizeof(u32), static_cast<u32>(round), round);
  }
};

template <class Form, class ThreadGroup>
THALWEG_DEVICE bool round_of(const Rounds& r, ThreadGroup group, u64 round) {
  if (r.leads && !Form::send(r, group, round)) return false;
  if (!Form::take(r, group, round)) return false;
  return r.leads || Form::send(r, group, round);
}

template <class Form, class ThreadGroup>
THALWEG_DEVICE void play(const Rounds& r, ThreadGroup group) {
  const thalweg::device::DirectMachine m;
  u64 start = 0;
  for (u32 i = 0; i < r.warm + r.rounds; ++i) {
    if (i == r.warm) start = m.nanoseconds();
    if (!round_of<Form>(r, group, r.before + i + 1)) return;
  }
  if (group.leads()) m.store(r.took, m.nanoseconds() - start);
}

/// The next receive is posted while this message is answered; the last one leaves none.
template <class ThreadGroup>
THALWEG_DEVICE void play(const ChannelRounds& r, ThreadGroup group) {
  using namespace thalweg::device;
  const DirectMachine m;
  Sender<> out(r.send, r.send_guard);
  Receiver<> in(r.receive, r.receive_guard);
  const auto* const from = reinterpret_cast<const unsigned char*>(r.from);
  const u32 all = r.warm + r.rounds;
  u64 start = 0;
  if (!in.post(group, r.recv_buffer)) return;
  for (u32 i = 0; i < all; ++i) {
    if (i == r.warm) start = m.nanoseconds();
    if (r.leads && !out.send(group, from, r.bytes, i)) return;
    if (!in.take(group, i)) return;
    if (i + 1 < all && !in.post(group, r.recv_buffer, i)) return;
    if (!r.leads && !out.send(group, from, r.bytes, i)) return;
  }
  if (group.leads()) m.store(r.took, m.nanoseconds() - start);
}

/// Small puts: a block each. Large ones: all blocks together, one after the other.
THALWEG_DEVICE void put_all(const Burst& b, thalweg::device::Blocks all) {
  using namespace thalweg::device;
  constexpr u64 kShared = 256 << 10,
                kDivided = 16 << 10;  // bytes from which on all blocks share a put; where there are few puts
  const u32 there = 1 - b.data.rank;
  const auto* const from = reinterpret_cast<const unsigned char*>(b.from);
  const bool together = b.bytes >= kShared || (b.count < all.count && b.bytes >= kDivided);
  for (u64 i = together ? 0 : all.index; i < b.count; i += together ? 1 : all.count) {
    const u64 at = i * b.pitch;
    const bool ok =
        together ? put(all, b.data, there, at, from + at, b.bytes) : put(Block(), b.data, there, at, from + at, b.bytes);
    if (!ok) return;
  }
  signal(all, b.data, there, b.flag, b.value);
}

}  // namespace perf
