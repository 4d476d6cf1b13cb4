// SPDX-License-Identifier: Apache-2.0
#include "collectives/called_text.hpp"

#include "collectives/algorithms.hpp"
#include "collectives/group_wire.hpp"

namespace thalweg::impl {

namespace {

/// Its count is a checksum.
bool has_counts(const CalledThing& one) {
  const auto kind = static_cast<CollectiveKind>(one.kind);
  return (kind == CollectiveKind::allgather || kind == CollectiveKind::reduce_scatter) && one.root == kCountsByRank;
}

std::string name_of(const CalledThing& one) {
  const bool known = one.kind < static_cast<uint8_t>(CollectiveKind::count_);
  return known ? kind_name(static_cast<CollectiveKind>(one.kind)) : "something unknown";
}

std::string called_text(const CalledThing& one) {
  std::string text = name_of(one) + " of type " + std::to_string(one.type) + ", operation " + std::to_string(one.op);
  if (has_counts(one)) {
    text += ", counts by rank of checksum " + std::to_string(one.count);
  } else {
    text += ", root " + std::to_string(one.root) + ", count " + std::to_string(one.count);
  }
  return text + ", algorithm " + std::to_string(one.algorithm);
}

}  // namespace

std::string called_otherwise(uint64_t called, uint64_t here) {
  const CalledThing theirs = unpack_called(called), own = unpack_called(here);
  const bool as_far_as_counts = static_cast<uint32_t>(called) == static_cast<uint32_t>(here);
  if (as_far_as_counts && has_counts(own))
    return "it called " + name_of(own) + " with other counts by rank than this rank: all ranks give the same counts of all";
  return "it called " + called_text(theirs) + ", and this rank " + called_text(own) +
         ": all ranks call the same in the same order";
}

}  // namespace thalweg::impl
