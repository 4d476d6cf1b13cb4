// SPDX-License-Identifier: Apache-2.0
// What the C functions of groups check first.
#pragma once
#include "groups/group.hpp"

namespace thalweg::impl {

inline Status check(const tw_group* group) {
  if (group == nullptr) return fail(TW_ERR_INVALID, "the group is NULL");
  return group->born.check("group");
}
inline Status check(const tw_group* group, const void* out) {
  if (Status s = check(group); is_error(s)) return s;
  return out != nullptr ? Status{TW_OK} : fail(TW_ERR_INVALID, "the place for the result is NULL");
}

}  // namespace thalweg::impl
