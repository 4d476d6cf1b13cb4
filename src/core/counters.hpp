// SPDX-License-Identifier: Apache-2.0
// What a context counts, as JSON: tw_context_counters, and what its live socket answers.
#pragma once
#include <string>

struct tw_context;

namespace thalweg::impl {

/// Of each worker so many endpoints are listed by themselves, those that moved most; the others are in its sums.
inline constexpr size_t kMostListed = 256;

/// The text of tw_context_counters. Asks the service thread, and waits for it.
std::string counters_json(tw_context& context);
/// The same with what this process is, in one line. On the service thread.
std::string live_json(tw_context& context);

}  // namespace thalweg::impl
