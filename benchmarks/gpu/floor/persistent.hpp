// SPDX-License-Identifier: Apache-2.0
// A kernel of one block that stays on the device and copies what a word in pinned memory tells it: the least that a copy without
// a launch costs. It ends by itself after some seconds.
#pragma once
#include "bench.hpp"

namespace thalweg::floors {

class PersistentCopier {
 public:
  PersistentCopier(Bench& bench, Device& device);
  ~PersistentCopier();  // ends it
  /// Returns when the copy is done.
  void copy(uint64_t to, uint64_t from, uint64_t length) const;

 private:
  struct Mailbox;
  Mailbox* mailbox() const { return reinterpret_cast<Mailbox*>(memory_.host()); }
  Memory memory_;
  std::unique_ptr<Queue> queue_;
  mutable uint64_t turn_ = 0;
};

}  // namespace thalweg::floors
