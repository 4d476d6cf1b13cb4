// SPDX-License-Identifier: Apache-2.0
// The end of a worker's endpoints that the library itself made.
#pragma once
#include <span>

struct tw_endpoint;
struct tw_worker;

namespace thalweg::impl {

/// Closes those that are not null: gracefully where the peer is not lost, and progresses until that is done, for at most two seconds: a
/// peer that does not progress is not waited for any longer. No other thread progresses the worker.
void close_all(tw_worker& worker, std::span<tw_endpoint* const> endpoints);

}  // namespace thalweg::impl
