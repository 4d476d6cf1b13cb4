// SPDX-License-Identifier: Apache-2.0
// explain() of cost.hpp, of operations with device memory at one end at least.
#pragma once
#include <string>

#include "protocols/operation.hpp"

namespace thalweg::impl {

/// As explain(); op.peer is connected.
std::string explain_device(const OpDesc& op);

}  // namespace thalweg::impl
