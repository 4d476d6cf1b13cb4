// SPDX-License-Identifier: Apache-2.0
// The reference for tagged messages at one receiver: two queues, searched from the front.
#pragma once
#include <cstdint>
#include <deque>

#include "model/program.hpp"

namespace thalweg::model {

struct KnownMessage {
  uint32_t id = 0;
  unsigned from = 0;
  uint64_t tag = 0, length = 0;
  bool here = false;  // all of it; a loss of the sender does not take it away
};
struct KnownReceive {
  uint32_t id = 0;
  unsigned from = kAnyone;
  uint64_t tag = 0, mask = 0;
};

class Matching {
 public:
  /// The receive is posted, or gets the message that is returned (its id; 0: none).
  KnownMessage post(const KnownReceive& receive) {
    const auto found = find_message(receive.tag, receive.mask, receive.from);
    if (found == unmatched_.end()) {
      posted_.push_back(receive);
      return {};
    }
    const KnownMessage message = *found;
    unmatched_.erase(found);
    return message;
  }
  /// The message is kept, or for the receive whose id is returned. other(id): is that receive another sender's already?
  template <class Other>
  uint32_t arrive(const KnownMessage& message, const Other& other) {
    for (auto at = posted_.begin(); at != posted_.end(); ++at) {
      if (other(at->id)) continue;
      if (((at->tag ^ message.tag) & at->mask) != 0 || (at->from != kAnyone && at->from != message.from)) continue;
      const uint32_t id = at->id;
      posted_.erase(at);
      return id;
    }
    unmatched_.push_back(message);
    return 0;
  }
  void here(uint32_t id) {
    for (KnownMessage& one : unmatched_) {
      if (one.id == id) one.here = true;
    }
  }
  const KnownMessage* find(uint64_t tag, uint64_t mask, unsigned from) {
    const auto found = find_message(tag, mask, from);
    return found == unmatched_.end() ? nullptr : &*found;
  }
  void take(uint32_t id) {
    std::erase_if(unmatched_, [id](const KnownMessage& one) { return one.id == id; });
  }
  /// False: it is not posted (any more).
  bool withdraw(uint32_t receive) {
    return std::erase_if(posted_, [receive](const KnownReceive& one) { return one.id == receive; }) != 0;
  }
  void lose(unsigned from) {
    std::erase_if(unmatched_, [from](const KnownMessage& one) { return one.from == from && !one.here; });
    std::erase_if(posted_, [from](const KnownReceive& one) { return one.from == from; });
  }
  bool posted(uint32_t receive) const {
    for (const KnownReceive& one : posted_) {
      if (one.id == receive) return true;
    }
    return false;
  }
  const std::deque<KnownMessage>& unmatched() const { return unmatched_; }

 private:
  std::deque<KnownMessage>::iterator find_message(uint64_t tag, uint64_t mask, unsigned from) {
    auto at = unmatched_.begin();
    while (at != unmatched_.end() && (((at->tag ^ tag) & mask) != 0 || (from != kAnyone && at->from != from))) ++at;
    return at;
  }
  std::deque<KnownMessage> unmatched_;
  std::deque<KnownReceive> posted_;
};

}  // namespace thalweg::model
