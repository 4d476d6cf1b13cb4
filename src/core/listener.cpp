// SPDX-License-Identifier: Apache-2.0
// Listening, connecting to listeners, accepting: addresses as text.
#include "core/listener.hpp"

#include <sys/un.h>

#include <cstring>

#include "core/worker.hpp"
#include "transports/tcp/address.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint32_t kBacklog = 128;

Candidate candidate_of(const tcp::SocketAddress& address) {
  Candidate candidate;
  std::memcpy(&candidate.address, &address.storage, sizeof candidate.address);
  candidate.length = address.length;
  return candidate;
}

}  // namespace

Status tw_worker::connect_to(const char* text, const tw_endpoint_options& options, tw_endpoint** out) {
  tcp::AddressText parsed;
  Status status = tcp::parse_address(text, &parsed);
  if (is_error(status)) return status;
  if (!parsed.unix_path && (parsed.host.empty() || parsed.port == 0)) {
    return fail(TW_ERR_INVALID, "connecting needs host and port, \"%s\" lacks one", text);
  }
  std::vector<tcp::SocketAddress> found;
  tcp::SocketAddress numeric;
  bool known = true;
  if (parsed.unix_path) {
    status = tcp::resolve(parsed, false, &found);
    if (is_error(status)) return status;
  } else if (tcp::parse_numeric(parsed.host, parsed.port, &numeric)) {
    found.push_back(numeric);
  } else {
    known = false;
  }
  *out = make_endpoint(options);
  CallPlan plan = plan_for(**out);
  for (const auto& address : found) plan.candidates.push_back(candidate_of(address));
  if (known) {
    context.setup->call(std::move(plan));
    return TW_OK;
  }
  context.setup->call_by_name(std::move(plan), [parsed](CallPlan& to) {
    std::vector<tcp::SocketAddress> addresses;
    const Status resolved = tcp::resolve(parsed, false, &addresses);
    if (is_error(resolved)) return resolved;
    for (const auto& address : addresses) to.candidates.push_back(candidate_of(address));
    return Status(TW_OK);
  });
  return TW_OK;
}

Status tw_worker::listen(const char* text, const tw_listener_options& options, tw_listener** out) {
  tcp::AddressText parsed;
  Status status = tcp::parse_address(text, &parsed);
  if (is_error(status)) return status;
  std::vector<tcp::SocketAddress> found;
  status = tcp::resolve(parsed, true, &found);
  if (is_error(status)) return status;
  const uint32_t backlog = options.backlog != 0 ? options.backlog : kBacklog;
  auto door = std::make_unique<Door>();
  status = tcp::listen_at(found.front(), int(backlog), &door->socket);
  if (is_error(status)) return status;
  tcp::SocketAddress bound;
  status = tcp::local_address(door->socket.get(), &bound);
  if (is_error(status)) return status;
  auto listener = std::make_unique<tw_listener>();
  listener->worker = this;
  listener->id = context.setup->next_key();
  listener->port = bound.port();
  listener->on_request = options.on_request;
  listener->arg = options.arg;
  if (parsed.unix_path) door->path = parsed.host;
  door->tls = context.settings.tls;
  door->worker = this;
  door->listener = listener->id;
  door->backlog = backlog;
  listeners[listener->id] = listener.get();
  status = context.setup->add_door(std::move(door));
  if (is_error(status)) {
    listeners.erase(listener->id);
    return status;
  }
  *out = listener.release();
  return TW_OK;
}

tw_endpoint* tw_worker::accept(const tw_connection_request& request, const tw_endpoint_options& options) {
  tw_endpoint* endpoint = make_endpoint(options);
  Answer answer;
  answer.visitor = request.visitor;
  answer.worker = id;
  answer.key = context.setup->next_key();
  answer.accept = true;
  answer.transport = endpoint->forced;
  answer.data = endpoint->data;
  endpoint->key = answer.key;
  pending[answer.key] = endpoint;
  context.setup->answer(std::move(answer));
  return endpoint;
}

void tw_worker::forget(tw_listener* listener) {
  listeners.erase(listener->id);
  std::erase_if(requested_, [listener](const auto& requested) {
    if (requested.first != listener) return false;
    delete requested.second;
    return true;
  });
}
