// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group tell each other to make windows and further groups: small values over the group's
// endpoints, beside the messages of users.
#pragma once
#include <functional>
#include <memory>

#include "groups/group.hpp"
#include "groups/mailbox.hpp"

namespace thalweg::impl {

/// The call that exchanges; it goes with every letter.
enum class ExchangeKind : uint32_t { values = 1, split, split_by, window, shared_memory, kernels, registration };

/// One call of all ranks, which exchanges once or more often. It is numbered where the call begins, before anything that may end it on
/// one rank alone: ranks of which it ends early, and others not, are in step again in the next call.
class ExchangeCall {
 public:
  ExchangeCall(tw_group& group, ExchangeKind kind)
      : group(group), kind(kind), letters_(group.worker, group.id, group.exchanges++) {}
  ExchangeCall(const ExchangeCall&) = delete;
  ExchangeCall& operator=(const ExchangeCall&) = delete;
  /// The first step of its next exchange.
  uint64_t next_step() { return step_of(index_++); }
  /// ... of the one behind that, which it does not begin.
  uint64_t step_ahead() const { return step_of(index_); }

  tw_group& group;
  const ExchangeKind kind;

 private:
  static constexpr uint64_t kMost = 1024, kRounds = 64;  // exchanges of a call; rounds of one, at most
  static_assert(kMost * kRounds == first_step(1));
  uint64_t step_of(uint64_t index) const { return letters_.first_step() + index % kMost * kRounds; }
  const LetterCall letters_;
  uint64_t index_ = 0;
};

/// Before a call takes its number: may this thread progress here, and is that length a value's? A call that is refused has no number, so
/// that ranks on which it is called again stay in step.
Status check_exchange(tw_group& group, size_t length = 0);

/// An allgather: values[i * length] becomes rank i's `mine`. All ranks call it in the same order; it progresses the worker.
/// When a rank is lost, every other one that waits for its value, directly or not, gets TW_ERR_PEER_LOST with the rank.
/// TW_ERR_TIMED_OUT names a rank that has not come, or waits for another; TW_ERR_LIMIT one that is too far ahead (mailbox.hpp).
/// A rank that fails in a call that makes something (all kinds but `values`, `shared_memory` and `kernels`) tells so in the call's
/// next exchange, too, and comes to no further one.
Status exchange(ExchangeCall& call, const void* mine, size_t length, void* values);

/// The last exchange of a call that makes something, by the ranks that have all that they need for it, and by those that could not
/// make it (so_far, whose text is the last error): TW_OK where all ranks have come, and none has failed before. A rank whose part fails
/// in this exchange itself (it is lost, interrupted, or hears nothing for the group's time) may fail alone. Ranks may give values, too:
/// what they compare of what they have made.
Status agree(ExchangeCall& call, Status so_far, const void* mine = nullptr, size_t length = 0, void* values = nullptr);

/// What else ends an exchange, of a caller that then tells all ranks so.
struct ExchangeEnd {
  uint64_t limit_ns = 0;            // instead of the group's time
  std::function<Status()> failure;  // asked while it waits, under no lock: an error ends it at once
  uint32_t rank = UINT32_MAX;       // out: whose fault an error is, if that is known
};
Status exchange(ExchangeCall& call, const void* mine, size_t length, void* values, ExchangeEnd& end);

/// A window of the group, in the call's next exchanges; *out has it to its end, which may be one more.
Status make_window(std::shared_ptr<ExchangeCall> call, tw_memory* memory, const tw_window_options* options, tw_window** out);

}  // namespace thalweg::impl
