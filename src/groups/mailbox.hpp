// SPDX-License-Identifier: Apache-2.0
// Messages that the groups of a worker send each other, beside those of users: active messages of an id of the library's own,
// kept until they are asked for. One is named by the worker it came from, its group and its step, so nothing is matched.
//
// Threads: the worker's; the handler runs in progress under its lock, and what follows takes the lock.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/worker.hpp"

namespace thalweg::impl {

/// Names the sender of letters: the worker, which has proved its id; or, of connections by a listener, the endpoint. A letter
/// counts also when its connection is over before this side has asked for an endpoint.
inline uint64_t sender_of(const tw_endpoint& endpoint) {
  return endpoint.remote != 0 ? endpoint.remote : reinterpret_cast<uintptr_t>(&endpoint);
}

/// What comes with the bytes: how far the sender came, and which rank ended that.
struct Letter {
  Status status = TW_OK;  // one that has come: any number
  uint32_t rank = 0;      // of the group; meaningful with an error
  uint32_t kind = 0;      // of the call that it is of (exchange.hpp)
  std::vector<std::byte> bytes;
};

struct LetterPiece;  // on the wire

/// Steps are by calls of a group: so many of one.
constexpr unsigned kCallBits = 16;
constexpr uint64_t call_of(uint64_t step) { return step >> kCallBits; }
constexpr uint64_t first_step(uint64_t call) { return call << kCallBits; }
/// The first of the calls that shrink: those that exchange are numbered before.
constexpr uint64_t kShrinks = uint64_t{1} << 47;

class Mailbox {
 public:
  /// Bytes of letters that are not asked for yet: of one sender, and of all; beyond that each still has kAlways, whatever the others
  /// have sent: to groups that exist here; to others only up to kMostAtAll. A letter without room is dropped, and with it what its
  /// sender sends to that call of the group.
  static constexpr uint64_t kMostOfOne = 32u << 20, kMost = 128u << 20, kAlways = 256u << 10, kMostAtAll = kMost + 64 * kAlways;
  /// The worker's; the first call makes it. Called before peers know that the group exists.
  static Mailbox& of(tw_worker& worker);
  /// Returns at once; the bytes are copied. The endpoint may still be connecting.
  static Status send(tw_endpoint& to, uint64_t group, uint64_t step, const Letter& letter);
  /// Progresses until what was sent there is with the transports, or lost: a rank that goes on without progress keeps no other
  /// waiting.
  static void deliver(tw_worker& worker, const std::vector<tw_endpoint*>& to, uint64_t timeout_ns);
  /// TW_IN_PROGRESS: it has not come, or not all of it. TW_ERR_LIMIT: nor will it: a letter of this sender to this call was dropped.
  Status take(tw_worker& worker, uint64_t from, uint64_t group, uint64_t step, Letter* out);
  /// The group exists here. What came for it before counts, unless its sender's connection is over: then that was dropped.
  void expect(tw_worker& worker, uint64_t group);
  /// The group has ended here.
  void forget(tw_worker& worker, uint64_t group);
  /// A call of the group takes its letters from now on, until it is over: what has come for it then, or comes later, is dropped, as
  /// nobody asks for it. Calls begin in the order of their numbers, apart from those that shrink, which have an order of their own.
  void begin_call(tw_worker& worker, uint64_t group, uint64_t call);
  void end_call(tw_worker& worker, uint64_t group, uint64_t call);
  /// Bytes of letters that are kept, and what keeping them costs.
  uint64_t total(tw_worker& worker) const;

 private:
  struct Kept {
    Letter letter;
    size_t here = 0;  // bytes
    bool complete() const { return here == letter.bytes.size(); }
  };
  /// Of the endpoint by which a sender's letters come.
  class Watch final : public LossWatch {
   public:
    Watch(Mailbox& box, uint64_t from) : box_(box), from_(from) {}
    /// The worker calls it, under its lock.
    void on_loss(Status, const char*) override { box_.lose(from_); }

   private:
    Mailbox& box_;
    const uint64_t from_;
  };
  /// Calls of a group to which a letter was dropped.
  struct Dropped {
    uint64_t group, first, last;
    bool holds(uint64_t of, uint64_t call) const { return group == of && first <= call && call <= last; }
  };
  struct Sender {
    uint64_t bytes = 0;                     // of its letters
    const tw_endpoint* endpoint = nullptr;  // watched
    std::shared_ptr<Watch> watch;
    std::vector<Dropped> dropped;  // the last kMostDropped
    bool is_over() const { return bytes == 0 && dropped.empty() && endpoint == nullptr; }
    bool has_dropped(uint64_t group, uint64_t call) const {
      return std::any_of(dropped.begin(), dropped.end(), [&](const Dropped& one) { return one.holds(group, call); });
    }
  };
  /// Of a group that exists here.
  struct Calls {
    uint64_t next[2] = {};       // of those that exchange, that shrink: behind all that have begun
    std::vector<uint64_t> live;  // that have begun, and are not over
    bool is_over(uint64_t call) const {
      return call < next[call >= kShrinks] && std::find(live.begin(), live.end(), call) == live.end();
    }
  };
  using Key = std::tuple<uint64_t, uint64_t, uint64_t>;  // group, step, sender
  static tw_status keep(void* self, const tw_am_message* message);
  Kept* find(const LetterPiece& piece, tw_endpoint& endpoint);
  bool has_room(const Sender& sender, const LetterPiece& piece) const;
  void watch(tw_endpoint& endpoint, Sender& sender);
  void lose(uint64_t from);
  bool is_over(uint64_t group, uint64_t step) const;
  void drop(Sender& sender, uint64_t group, uint64_t call);
  /// All letters from there on, up to that step of the group: nobody asks for them.
  void drop_kept(uint64_t group, uint64_t first, uint64_t last);
  void give_back(uint64_t from, uint64_t bytes);
  std::map<Key, Kept> kept_;
  std::unordered_map<uint64_t, Calls> expected_;  // groups that exist here
  std::unordered_map<uint64_t, Sender> senders_;  // that are watched, or have letters here, or of which one was dropped
  uint64_t total_ = 0;                            // bytes of all
};

/// One call of a group, whose letters are kept as long as it lives.
class LetterCall {
 public:
  LetterCall(tw_worker& worker, uint64_t group, uint64_t call) : worker_(worker), group_(group), call_(call) {
    Mailbox::of(worker_).begin_call(worker_, group_, call_);
  }
  ~LetterCall() { Mailbox::of(worker_).end_call(worker_, group_, call_); }
  LetterCall(const LetterCall&) = delete;
  LetterCall& operator=(const LetterCall&) = delete;
  uint64_t first_step() const { return impl::first_step(call_); }

 private:
  tw_worker& worker_;
  const uint64_t group_, call_;
};

}  // namespace thalweg::impl
