// SPDX-License-Identifier: Apache-2.0
#include "core/hello.hpp"

#include "core/worker.hpp"
#include "protocols/active.hpp"

namespace thalweg::impl {
namespace {

/// In progress, under the lock. Bytes of a stranger: whoever asks for them checks them.
tw_status keep(void*, const tw_am_message* message) {
  tw_endpoint* endpoint = message->endpoint;
  if (endpoint == nullptr || message->header_length > kHelloMax) return TW_OK;
  const auto* bytes = static_cast<const std::byte*>(message->header);
  endpoint->hello.assign(bytes, bytes + message->header_length);
  return TW_OK;
}

}  // namespace

void keep_hellos(tw_worker& worker) { worker.engine->active().set_internal(keep, nullptr); }

Status say_hello(tw_endpoint& endpoint, const void* bytes, size_t length) {
  tw_worker& worker = *endpoint.worker;
  {
    const Engine::Guard guard(*worker.engine);
    if (endpoint.greeted) return TW_OK;
    OpDesc op;
    op.verb = Verb::am;
    op.tag = ActiveTable::kInternal;
    op.peer = &*endpoint.peer;
    op.header = static_cast<const std::byte*>(bytes);
    op.header_length = static_cast<uint32_t>(length);
    if (const Status status = worker.engine->start(op, {}); is_error(status)) return status;
    endpoint.greeted = true;
  }
  worker.posted();
  return TW_OK;
}

std::vector<std::byte> hello_of(tw_endpoint& endpoint) {
  const Engine::Guard guard(*endpoint.worker->engine);
  return endpoint.hello;
}

}  // namespace thalweg::impl
