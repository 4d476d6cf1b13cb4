// SPDX-License-Identifier: Apache-2.0
// Tagged receives of one engine: those that are posted, in two spaces that never meet (users' and groups'), the messages that wait for
// one, and the short forms of a single receive, which stay out of matching.
//
// Short forms. While nothing is to match, a receive that is posted is the sole one, or, of a caller that waits, one on its stack
// (WaitedReceive). A whole message goes straight from its frame to that buffer (eager.cpp). As soon as anything else could match, it is
// posted like others: to_match().
//
// Under the engine's lock, which the functions that post take by themselves; held() is for any thread.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "protocols/completions.hpp"
#include "protocols/operation.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

class Matcher;

class Receives {
 public:
  /// first: where the order of posted receives starts.
  Receives(Engine& engine, uint64_t first);
  ~Receives();
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;

  /// Where a message with these flags of its frame is matched.
  inline Matcher& matcher(uint8_t frame_flags = 0);
  Matcher& matcher(const OpDesc& op) { return *matchers_[op.flags / kOpGroup & 1]; }
  /// To match, or to post beside others: the waited or the sole one is among the posted ones from here on.
  Matcher& to_match(uint8_t frame_flags = 0) {
    if (!nothing_short()) [[unlikely]]
      post_short_forms();
    return matcher(frame_flags);
  }

  // --- the short forms. Nothing is to match where one is set.
  bool nothing_short() const { return waited() == nullptr && sole() == nullptr; }
  WaitedReceive* waited() const { return waited_.load(std::memory_order_relaxed); }
  void set_waited(WaitedReceive* receive) { waited_.store(receive, std::memory_order_relaxed); }
  OpRun* sole() const { return sole_.load(std::memory_order_relaxed); }
  void set_sole(OpRun* run) { sole_.store(run, std::memory_order_relaxed); }

  /// Receives that wait for a message, and messages that wait for a receive. Any thread.
  struct Held {
    uint64_t posted = 0, unexpected = 0;
  };
  Held held() const;
  /// The engine ends: all that is in matching ends with this status.
  void end_all(Status status, const char* why);
  void lose(Peer& peer);    // as Matcher
  void orphan(Peer& peer);  // as Matcher; receives of groups name their peer, and get nothing of one that has gone

 private:
  void post_short_forms();

  Engine& engine_;
  std::unique_ptr<Matcher> matchers_[2];  // of users, of groups
  // Both relaxed: written by the progress owner, read by held() in any thread.
  std::atomic<WaitedReceive*> waited_{nullptr};
  std::atomic<OpRun*> sole_{nullptr};
};

/// The short form of a contiguous receive into host memory, from any source. request must not be null.
Status post_short(Engine& engine, void* buffer, size_t length, uint64_t tag, uint64_t mask, tw_request* request);
/// The same with a sink, with or without a request.
Status post_short(Engine& engine, void* buffer, size_t length, uint64_t tag, uint64_t mask, const Completion& completion);
/// The same for a blocking caller: progress() until receive.done(), then end_wait(), which returns its status.
void post_wait(Engine& engine, WaitedReceive& receive);
Status end_wait(Engine& engine, WaitedReceive& receive);
/// TW_OK with info (and the message taken out when asked), or TW_ERR_NO_MATCH.
Status probe(Engine& engine, uint64_t tag, uint64_t mask, const Peer* source, tw_recv_info* info, tw_message** message);
Status receive_message(tw_message* message, const OpDesc& op, const Completion& completion);  // ends the message

/// Of a message that is longer than the buffer.
[[gnu::cold]] std::string truncated_text(uint64_t message, uint64_t buffer);

}  // namespace thalweg::impl
