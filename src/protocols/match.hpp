// SPDX-License-Identifier: Apache-2.0
// Tag matching: posted receives on one side, unmatched (unexpected) messages on the other.
//
// Posted receives with a full mask are in a hash by tag, the others in one list; sequence numbers decide which is earlier.
// Unmatched messages are in one list in order of arrival and in a hash by tag.
#pragma once
#include <cstdint>
#include <vector>

#include "base/tally.hpp"
#include "protocols/operation.hpp"
#include "protocols/wire.hpp"

/// An unexpected message, or one that a matched probe took out. C handle. The payload follows the struct.
struct tw_message {
  enum class Kind : uint8_t { here, arriving, rts, lost, failed };  // failed: its sender could not pack the rest
  Kind kind = Kind::here;
  bool taken = false;  // by a matched probe
  thalweg::impl::Engine* engine = nullptr;
  thalweg::impl::Peer* peer = nullptr;  // null: its endpoint has ended
  tw_recv_info info{};
  uint64_t cost = 0;     // flow control: returned when consumed
  uint64_t sync_op = 0;  // answered by `matched` when not 0
  uint64_t arrived = 0;
  thalweg::impl::Status failure = TW_OK;                          // failed
  thalweg::impl::ReceivedRts rts;                                 // of kind rts
  tw_message *next = nullptr, *previous = nullptr;                // arrival
  tw_message *bucket_next = nullptr, *bucket_previous = nullptr;  // same hash
  std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
};

namespace thalweg::impl {

class Matcher {
 public:
  explicit Matcher(uint64_t first_receive = 0);
  ~Matcher();  // frees unexpected messages

  // --- posted receives
  void post(OpRun& run) {
    run.sequence = ++sequence_;
    run.posted = true;
    posted_.add();
    if (posted_.get() > size_t{4} << (64 - exact_shift_)) [[unlikely]]  // more than four a bucket
      grow_exact();
    (run.op->mask == ~uint64_t{0} ? exact_[bucket(run.op->tag, exact_shift_)] : wild_).push_back(&run);
  }
  void withdraw(OpRun& run) {
    run.posted = false;
    posted_.sub();
    run.list->remove(&run);
  }
  bool unmatched() const { return first_ != nullptr; }
  // So many of either. Any thread.
  uint64_t posted_count() const { return posted_.get(); }
  uint64_t unmatched_count() const { return unmatched_.get(); }
  /// Neither a posted receive nor an unmatched message.
  bool nothing_to_match() const { return posted_.get() == 0 && first_ == nullptr; }
  /// Any posted receive, or null (to end them all). *from: 0 at first; where it was found, and the next look begins.
  OpRun* any_posted(size_t* from) const;
  /// The earliest posted receive that takes this message, out of matching; or null.
  OpRun* match(uint64_t tag, const Peer* peer) {
    OpRun* best = peek(tag, peer);
    if (best != nullptr) withdraw(*best);
    return best;
  }
  /// The same, left in matching.
  OpRun* peek(uint64_t tag, const Peer* peer) const {
    if (posted_.get() == 0) return nullptr;
    OpRun* exact = exact_[bucket(tag, exact_shift_)].front();
    while (exact != nullptr && !takes_exactly(*exact, tag, peer)) exact = exact->link.next;
    return wild_.empty() ? exact : earlier(exact, tag, peer);
  }

  /// Are all receives that were posted before this one, and could take one of its messages from this peer, offered to that
  /// peer? offered: so many in all.
  bool earlier_are_offered(const OpRun& run, const Peer& peer, size_t offered) const;

  // --- unmatched messages
  /// A message with room for `payload` bytes, not yet findable; null when there is no memory.
  static tw_message* make(uint64_t payload);
  static void destroy(tw_message* message);
  void keep(tw_message& message);
  /// The earliest unmatched message that fits; null: none. It stays.
  tw_message* find(uint64_t tag, uint64_t mask, const Peer* source) const {
    return first_ == nullptr ? nullptr : search(tag, mask, source);
  }
  /// The same with exactly this tag, of a peer for which from(peer) holds.
  template <class From>
  tw_message* find_from(uint64_t tag, From from) const {
    if (first_ == nullptr) return nullptr;
    tw_message* message = chains_[bucket(tag, chain_shift_)].first;
    while (message != nullptr && (message->info.tag != tag || message->peer == nullptr || !from(*message->peer)))
      message = message->bucket_next;
    return message;
  }
  /// Out of matching: about to be received.
  void take_out(tw_message& message);
  /// Taken by a probe: remembered until received, so that a loss reaches it.
  void hold(tw_message& message);
  void unhold(tw_message& message);
  /// The peer is lost: RTS messages and half-arrived messages of it are dropped (taken ones become `lost`). Returns what they cost.
  uint64_t lose(const Peer& peer);
  /// Those that no probe has taken are dropped. here: also what is here.
  uint64_t drop(const Peer& peer, bool here);
  /// The peer is going away: messages that are here stay receivable, without an endpoint.
  void orphan(const Peer& peer);

 private:
  static size_t bucket(uint64_t tag, unsigned shift) { return (tag * 0x9E3779B97F4A7C15u) >> shift; }
  static bool takes_exactly(const OpRun& run, uint64_t tag, const Peer* peer) {
    return run.op->tag == tag && (run.op->peer == nullptr || run.op->peer == peer);
  }
  OpRun* earlier(OpRun* exact, uint64_t tag, const Peer* peer) const;
  tw_message* search(uint64_t tag, uint64_t mask, const Peer* source) const;
  void grow_exact();
  void grow_unmatched();
  void link_bucket(tw_message& message);
  void unlink_list(tw_message& message, tw_message*& first, tw_message*& last);

  struct Chain {
    tw_message *first = nullptr, *last = nullptr;
  };
  std::vector<RunList> exact_;
  RunList wild_;
  uint64_t sequence_;
  Tally posted_, unmatched_;
  unsigned exact_shift_, chain_shift_;
  std::vector<Chain> chains_;
  tw_message *first_ = nullptr, *last_ = nullptr;
  tw_message *first_taken_ = nullptr, *last_taken_ = nullptr;
};

}  // namespace thalweg::impl
