// SPDX-License-Identifier: Apache-2.0
// Statuses that another process tells: any number may come.
#pragma once
#include <cstdint>

#include "base/status.hpp"

namespace thalweg::impl {

/// TW_OK, or one of the library's errors; any other number is TW_ERR_PROTOCOL. No error text.
Status told_status(int32_t number);

}  // namespace thalweg::impl
