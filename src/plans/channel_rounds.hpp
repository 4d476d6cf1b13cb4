// SPDX-License-Identifier: Apache-2.0
// Rounds of a channel: plans that name it are prepared by both sides, the n-th here with the n-th there, because a device may not
// import a buffer while its kernel already waits for it. The receiver tells a round when a plan's buffers are known; the sender's plan
// takes it. A plan that fails later gives it back.
//
// Counted anew for each pair of epochs. Under Proxy::mutex().
#pragma once
#include <cstdint>

namespace thalweg::impl {

/// At the receiver.
class ToldRounds {
 public:
  /// The end has buffers for every plan of the sender: it is a kernel's, or a queue's operations.
  static constexpr uint64_t kEvery = ~uint64_t{0};

  /// Another plan's buffers are known. True: the sender is to be told; otherwise it was told of this round by a plan that failed later.
  bool add() {
    if (in_vain_ > 0) {
      --in_vain_;
      return false;
    }
    ++told_;
    return true;
  }
  /// A plan failed behind its round: the next one has it.
  void add_in_vain() { ++in_vain_; }
  uint64_t told() const { return told_; }

 private:
  uint64_t told_ = 0, in_vain_ = 0;
};

/// At the sender.
class TakenRounds {
 public:
  bool ready() const { return every() || there_ > taken_; }
  void take() { taken_ += !every(); }
  /// A plan failed behind its round.
  void give_back() {
    if (!every() && taken_ > 0) --taken_;
  }
  /// The receiver says that there have been so many, or ToldRounds::kEvery. When that is over, both count on from what it says.
  void set(uint64_t there) {
    if (every() && there != ToldRounds::kEvery) taken_ = there;
    there_ = there;
  }
  /// A kernel had this end: what was told meanwhile is taken.
  void take_all() {
    if (!every()) taken_ = there_;
  }

 private:
  bool every() const { return there_ == ToldRounds::kEvery; }
  uint64_t there_ = 0, taken_ = 0;
};

}  // namespace thalweg::impl
