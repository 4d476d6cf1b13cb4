// SPDX-License-Identifier: Apache-2.0
// Groups made of a group: its duplicates, its parts, and what is left of it.
#pragma once
#include <memory>
#include <vector>

#include "groups/group.hpp"

namespace thalweg::impl {

/// The group of these ranks of `of`, in this order; this rank is one of them. `salt` tells it from others that are made of the
/// same group by the same call, whose number is of.made already. All members call it with the same.
Status make_part(tw_group& of, std::vector<uint32_t> ranks, uint64_t salt, std::unique_ptr<tw_group>* out);

class ExchangeCall;  // exchange.hpp

/// Ranks of one colour come together, ordered by key and then by rank. `none`: this rank is in no part; *out stays empty.
Status split(ExchangeCall& call, uint64_t color, uint32_t key, bool none, std::unique_ptr<tw_group>* out);

/// Colours by what the ranks have in common (split_by.cpp). All ranks call it.
Status color_by(ExchangeCall& call, uint32_t kind, uint64_t* color);

/// What is left of the group (shrink.cpp). All ranks that are left call it.
Status shrink(tw_group& group, std::unique_ptr<tw_group>* out);

/// A number that others are unlikely to have.
uint64_t mixed(uint64_t a, uint64_t b);

}  // namespace thalweg::impl
