// SPDX-License-Identifier: Apache-2.0
// Hello messages, once per user endpoint, between the plans of two processes: a number that names this end of it, and the
// address of their proxy. Either side may begin; the other answers from its progress, even if it uses no plans.
#pragma once
#include "core/endpoint.hpp"

namespace thalweg::impl {

/// The address of a context's proxy, which is made if need be; empty: it cannot be. Set by the plans.
using ProxyAddress = std::vector<std::byte> (*)(tw_context& context);
void set_proxy_address(ProxyAddress how);

/// Told, under the engine's lock, when an endpoint that has said hello ends: the token names nothing any more. Set by the plans.
using TokenEnded = void (*)(tw_context& context, uint64_t token);
void set_token_ended(TokenEnded how);
void end_token(tw_endpoint& endpoint);

/// Makes a worker store peers' hellos, and answer them. Called when it opens.
void keep_hellos(tw_worker& worker);
/// Sends the hello, once; *token: of this end. TW_OK: it is on its way. Takes the lock.
Status say_hello(tw_endpoint& endpoint, uint64_t* token);
/// The peer's hello: its token and its proxy's address. False: not here yet. Takes the lock.
bool hello_of(tw_endpoint& endpoint, uint64_t* token, std::vector<std::byte>* proxy);

}  // namespace thalweg::impl
