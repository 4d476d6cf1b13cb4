// SPDX-License-Identifier: Apache-2.0
#include "core/hello.hpp"

#include <atomic>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "core/worker.hpp"
#include "memory/registry_state.hpp"
#include "protocols/active.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kTokenBytes = sizeof(uint64_t);
std::atomic<ProxyAddress> proxy_address{nullptr};
std::atomic<TokenEnded> token_ended{nullptr};

Status say(tw_endpoint& endpoint) {
  if (endpoint.token_here != 0) return TW_OK;
  tw_worker& worker = *endpoint.worker;
  const ProxyAddress how = proxy_address.load(std::memory_order_acquire);
  const std::vector<std::byte> proxy = how != nullptr ? how(worker.context) : std::vector<std::byte>();
  if (proxy.empty()) return TW_ERR_UNSUPPORTED;
  uint64_t token = 0;
  if (Status s = random_identifier(&token); is_error(s)) return s;
  std::byte bytes[TW_AM_HEADER_SHORT];
  std::memcpy(bytes, &token, kTokenBytes);
  std::memcpy(bytes + kTokenBytes, proxy.data(), proxy.size());
  OpDesc op;
  op.verb = Verb::am;
  op.tag = ActiveTable::kHello;
  op.peer = &*endpoint.peer;
  op.header = bytes;
  op.header_length = static_cast<uint32_t>(kTokenBytes + proxy.size());
  if (const Status status = worker.engine->start(op, {}); is_error(status)) return status;
  endpoint.token_here = token;
  return TW_OK;
}

/// In progress, under the lock. Untrusted bytes: their reader checks them.
tw_status keep(void*, const tw_am_message* message) {
  tw_endpoint* endpoint = message->endpoint;
  if (endpoint == nullptr || message->header_length <= kTokenBytes) return TW_OK;
  const auto* bytes = static_cast<const std::byte*>(message->header);
  if (message->header_length > TW_AM_HEADER_SHORT) {  // say() sends none: it would stay here, and no budget counts it
    endpoint->worker->engine->violation(*endpoint->peer, "a hello of more than a short header");
    return TW_OK;
  }
  std::memcpy(&endpoint->token_there, bytes, kTokenBytes);
  endpoint->hello.assign(bytes + kTokenBytes, bytes + message->header_length);
  if (is_error(say(*endpoint))) log(LogLevel::warning, "a peer's plan gets no answer: %s", last_error());
  return TW_OK;
}

}  // namespace

void set_proxy_address(ProxyAddress how) { proxy_address.store(how, std::memory_order_release); }

void set_token_ended(TokenEnded how) { token_ended.store(how, std::memory_order_release); }

void end_token(tw_endpoint& endpoint) {
  const uint64_t token = std::exchange(endpoint.token_here, 0);
  const TokenEnded how = token_ended.load(std::memory_order_acquire);
  endpoint.token_there = 0;
  if (token != 0 && how != nullptr) how(endpoint.worker->context, token);
}

void keep_hellos(tw_worker& worker) { worker.engine->active().set_internal(ActiveTable::kHello, keep, nullptr); }

Status say_hello(tw_endpoint& endpoint, uint64_t* token) {
  {
    const Engine::Guard guard(*endpoint.worker->engine);
    if (const Status status = say(endpoint); is_error(status)) return status;
    *token = endpoint.token_here;
  }
  endpoint.worker->posted();
  return TW_OK;
}

bool hello_of(tw_endpoint& endpoint, uint64_t* token, std::vector<std::byte>* proxy) {
  const Engine::Guard guard(*endpoint.worker->engine);
  *token = endpoint.token_there;
  *proxy = endpoint.hello;
  return endpoint.token_there != 0;
}

}  // namespace thalweg::impl
