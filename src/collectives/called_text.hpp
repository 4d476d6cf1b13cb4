// SPDX-License-Identifier: Apache-2.0
// What a rank called, as text for an error.
#pragma once
#include <cstdint>
#include <string>

namespace thalweg::impl {

/// What another rank called, and this one, which differs: of packed CalledThings (group_wire.hpp); any word of a peer will do.
std::string called_otherwise(uint64_t called, uint64_t here);

}  // namespace thalweg::impl
