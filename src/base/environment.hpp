// SPDX-License-Identifier: Apache-2.0
// Variables of the environment whose values are few.
#pragma once
#include "base/status.hpp"

namespace thalweg::impl {

/// 1: on, 0: off, unset or empty: *out stays. Anything else is TW_ERR_INVALID: what a user meant to switch is never left as it
/// was without a word.
Status read_switch(const char* name, bool* out);

/// Says once that THALWEG_LOG is no level, if it is none. Contexts and stores call it: the log's own look must not log.
void warn_of_unknown_level();  // log.cpp

}  // namespace thalweg::impl
