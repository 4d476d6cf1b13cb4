// SPDX-License-Identifier: Apache-2.0
// What a rank called, as text for an error.
#pragma once
#include <cstdint>
#include <string>

namespace thalweg::impl {

/// Of a packed CalledThing (group_wire.hpp); any word of a peer will do.
std::string called_text(uint64_t called);

}  // namespace thalweg::impl
