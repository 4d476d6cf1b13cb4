// SPDX-License-Identifier: Apache-2.0
#include "collectives/called_text.hpp"

#include "collectives/algorithms.hpp"
#include "collectives/group_wire.hpp"

namespace thalweg::impl {

std::string called_text(uint64_t called) {
  const CalledThing one = unpack_called(called);
  std::string text = one.kind < static_cast<uint8_t>(CollectiveKind::count_) ? kind_name(static_cast<CollectiveKind>(one.kind))
                                                                             : "something unknown";
  text += " of type " + std::to_string(one.type) + ", operation " + std::to_string(one.op) + ", root " +
          std::to_string(one.root) + ", count " + std::to_string(one.count);
  return text + ", algorithm " + std::to_string(one.algorithm);
}

}  // namespace thalweg::impl
