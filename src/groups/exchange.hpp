// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group tell each other to make windows and further groups: small values over the group's
// endpoints, beside the messages of users.
#pragma once
#include <functional>

#include "groups/group.hpp"

namespace thalweg::impl {

/// An allgather: values[i * length] becomes rank i's `mine`. All ranks call it in the same order; it progresses the worker.
/// When a rank is lost, every other one that waits for its value, directly or not, gets TW_ERR_PEER_LOST with the rank.
/// TW_ERR_TIMED_OUT names a rank that has not come, or waits for another; TW_ERR_LIMIT one that is too far ahead (mailbox.hpp).
Status exchange(tw_group& group, const void* mine, size_t length, void* values);

/// What else ends an exchange, of a caller that then tells all ranks so.
struct ExchangeEnd {
  uint64_t limit_ns = 0;            // instead of the group's time
  std::function<Status()> failure;  // asked while it waits, under no lock: an error ends it at once
  uint32_t rank = UINT32_MAX;       // out: whose fault an error is, if that is known
};
Status exchange(tw_group& group, const void* mine, size_t length, void* values, ExchangeEnd& end);

}  // namespace thalweg::impl
