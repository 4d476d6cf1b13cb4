// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group tell each other to make windows and further groups: small values over the group's
// endpoints, beside the messages of users.
#pragma once
#include "groups/group.hpp"

namespace thalweg::impl {

/// An allgather: values[i * length] becomes rank i's `mine`. All ranks call it in the same order; it progresses the worker.
/// When a rank is lost, every other one that waits for its value, directly or not, gets TW_ERR_PEER_LOST with the rank.
/// TW_ERR_TIMED_OUT names a rank that has not come, or waits for another.
Status exchange(tw_group& group, const void* mine, size_t length, void* values);

}  // namespace thalweg::impl
