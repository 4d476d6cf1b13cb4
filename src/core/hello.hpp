// SPDX-License-Identifier: Apache-2.0
// What the plans of two processes tell each other over a user's endpoint, once: a few bytes (where their agents are). Either
// side may say it at any time; it is kept at the endpoint until somebody asks.
#pragma once
#include "core/endpoint.hpp"

namespace thalweg::impl {

inline constexpr size_t kHelloMax = 192;

/// Makes a worker keep what peers say. Called when it opens.
void keep_hellos(tw_worker& worker);
/// Says it, unless it was said before. TW_OK: it is on its way. Takes the lock.
Status say_hello(tw_endpoint& endpoint, const void* bytes, size_t length);
/// What the peer said; empty: nothing yet. Takes the lock.
std::vector<std::byte> hello_of(tw_endpoint& endpoint);

}  // namespace thalweg::impl
