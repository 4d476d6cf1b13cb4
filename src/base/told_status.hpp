// SPDX-License-Identifier: Apache-2.0
// Statuses that another process tells: any number may come.
#pragma once
#include <cstdint>

#include "base/status.hpp"

namespace thalweg::impl {

/// TW_OK, or one of the library's errors; any other number is TW_ERR_PROTOCOL. No error text.
Status told_status(int32_t number);
/// How an operation ended, as a peer or a function of the user's tells: as told_status(), without what only a call that is refused or
/// gives up returns (TW_ERR_HANDLE, _THREAD, _FORKED, _BUSY, _TIMED_OUT). Those would be taken for the result of the call that tests
/// or waits for the request. `otherwise`: what the others are.
Status told_outcome(int64_t number, Status otherwise = TW_ERR_PROTOCOL);
/// The error that a function of the user's has returned: as told_outcome(); what is none is TW_ERR_INVALID.
Status told_error(int64_t number);

}  // namespace thalweg::impl
