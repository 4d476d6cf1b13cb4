// SPDX-License-Identifier: Apache-2.0
// A deep bulk ring: memory beside a connection's, for a direction that moves much. A connection starts with room for three
// fragments, which keeps an idle one small; a producer and a consumer whose cores are far from each other need more in
// flight.
//
// A *wide* one holds more than the caches of both cores, where that was measured to be faster: a line that a producer fills
// again has left the consumer's own cache by then, and is found in the one that both share. There 64 KiB take a third of the
// time (EPYC: 3.0 and 8.4 us). It is for a producer that moves much, room or not; a port makes few. No more bytes lie in it
// at a time than in a deep one.
//
// The producer that has often found no room asks its service thread for one (Control::offer_ring). That makes the memory and
// offers it; the consumer's progress owner takes it (kRingTaken); from then on the producer may turn: it publishes kTurn,
// and the bodies behind that frame lie in the deep ring. Once nothing has moved there for a while it turns back, and both
// sides let go of the memory. Progress owner only.
#pragma once
#include <utility>

#include "base/clock.hpp"
#include "memory/segment.hpp"
#include "transports/shm/consumer.hpp"
#include "transports/shm/producer.hpp"

namespace thalweg::impl::shm {

/// The producer's side.
class DeepOut {
 public:
  static constexpr unsigned kOften = 16;              // times without room for a body until it is worth the memory
  static constexpr uint64_t kIdleNs = 1'000'000'000;  // without a body until it goes
  static constexpr uint64_t kMuch = 1 << 20;          // bytes of bodies within kIdleNs that are worth a wide one

  /// A body found no room. True: that was often enough for a ring, unless one was offered.
  bool starved() { return state_ == State::first && ++starved_ >= kOften; }
  /// As bodies move. True: enough for a wide ring.
  bool busy(const Producer& out) {
    if (state_ != State::first || out.bulk_head() - seen_ < kMuch) return false;
    seen_ = out.bulk_head();
    const uint64_t now = monotonic_ns(), before = std::exchange(since_, now);
    return now - before < kIdleNs;
  }
  void offered(bool wide) {
    state_ = State::offered;
    wide_ = wide;
  }
  /// The consumer has it.
  void taken(Segment&& memory) {
    if (state_ != State::offered) return;
    memory_ = std::move(memory);
    state_ = State::ready;
  }
  /// There is no memory for it, here or at the consumer: it may be tried again.
  void refused() {
    if (state_ == State::offered) forget();
  }
  bool ready() const { return state_ == State::ready; }
  bool deep() const { return state_ == State::deep; }
  /// It counts among the port's wide rings no more. 1: it did.
  unsigned give_back() { return std::exchange(wide_, false) ? 1 : 0; }
  /// Needs ready() and out.has_slot().
  void turn(Producer& out) {
    out.turn(memory_.data(), static_cast<uint32_t>(memory_.size()));
    state_ = State::deep;
    seen_ = out.bulk_head();
    since_ = monotonic_ns();
  }
  /// Turns back when nothing has moved for long. True: it has; let the consumer know of the frame.
  bool turn_back(Producer& out, uint64_t now) {
    if (std::exchange(seen_, out.bulk_head()) != out.bulk_head()) since_ = now;
    if (now - since_ < kIdleNs || !out.refresh() || !out.bulk_consumed() || !out.has_slot()) return false;
    out.turn(out.first_area(), kBulkBytes);
    forget();
    return true;
  }
  void forget() {
    memory_ = Segment();
    state_ = State::first;
    starved_ = 0;
  }

 private:
  enum class State : uint8_t { first, offered, ready, deep };
  State state_ = State::first;
  bool wide_ = false;
  unsigned starved_ = 0;
  uint64_t seen_ = 0, since_ = 0;
  Segment memory_;
};

/// The consumer's side.
class DeepIn {
 public:
  /// False: there is one already that was not turned to.
  bool offered(Segment&& memory) {
    if (next_.data() != nullptr) return false;
    next_ = std::move(memory);
    return true;
  }
  /// The producer has turned. False: to a ring that was never offered.
  bool turn(Consumer& in) {
    if (current_.data() != nullptr) {
      in.turn(in.first_area(), kBulkBytes);
      current_ = Segment();
      return true;
    }
    if (next_.data() == nullptr) return false;
    current_ = std::move(next_);
    next_ = Segment();
    in.turn(current_.data(), static_cast<uint32_t>(current_.size()));
    return true;
  }
  void forget() {
    next_ = Segment();
    current_ = Segment();
  }

 private:
  Segment next_, current_;
};

}  // namespace thalweg::impl::shm
