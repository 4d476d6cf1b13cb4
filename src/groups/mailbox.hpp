// SPDX-License-Identifier: Apache-2.0
// Messages that the groups of a worker send each other, beside those of users: active messages of an id of the library's own, kept
// until they are asked for. One is named by the connection it came over, its group and its step, so nothing is matched.
//
// Threads: the worker's; the handler runs in progress under its lock, and what follows takes the lock.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/worker.hpp"

namespace thalweg::impl {

/// What comes with the bytes: how far the sender came, and which rank ended that.
struct Letter {
  Status status = TW_OK;
  uint32_t rank = 0;  // of the group; meaningful with an error
  std::vector<std::byte> bytes;
};

class Mailbox {
 public:
  static constexpr uint64_t kMost = 64u << 20;  // bytes of letters that are not asked for yet; beyond, they are dropped
  /// The worker's; the first call makes it. Called before peers know that the group exists.
  static Mailbox& of(tw_worker& worker);
  /// Returns at once; the bytes are copied. The endpoint may still be connecting.
  static Status send(tw_endpoint& to, uint64_t group, uint64_t step, const Letter& letter);
  /// False: it has not come, or not all of it.
  bool take(tw_worker& worker, const tw_endpoint* from, uint64_t group, uint64_t step, Letter* out);
  /// The group has ended here.
  void forget(tw_worker& worker, uint64_t group);

 private:
  struct Kept {
    Letter letter;
    size_t here = 0;  // bytes
    bool complete() const { return here == letter.bytes.size(); }
  };
  using Key = std::tuple<uint64_t, uint64_t, const tw_endpoint*>;  // group, step, sender
  static tw_status keep(void* self, const tw_am_message* message);
  std::map<Key, Kept> kept_;
  uint64_t total_ = 0;
};

}  // namespace thalweg::impl
