// SPDX-License-Identifier: Apache-2.0
// Listening, connecting to listeners, accepting: addresses as text.
#include "core/listener.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/interfaces.hpp"
#include "core/worker.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint32_t kBacklog = 128;  // requests without an answer
constexpr uint32_t kQueued = 512;   // the kernel's backlog: a connection that finds no room there retries after a second

}  // namespace

Status tw_worker::connect_to(const char* text, const tw_endpoint_options& options, tw_endpoint** out) {
  AddressText parsed;
  Status status = parse_address_text(text, &parsed);
  if (is_error(status)) return status;
  if (!parsed.unix_path && (parsed.host.empty() || parsed.port == 0)) {
    return fail(TW_ERR_INVALID, "connecting needs host and port, \"%s\" lacks one", text);
  }
  std::vector<SocketAddress> found;
  SocketAddress numeric;
  bool known = true;
  if (parsed.unix_path) {
    status = resolve(parsed, false, &found);
    if (is_error(status)) return status;
  } else if (parse_numeric(parsed.host, parsed.port, &numeric)) {
    found.push_back(numeric);
  } else {
    known = false;
  }
  *out = make_endpoint(options);
  ConnectPlan plan = plan_for(**out);
  plan.candidates = std::move(found);
  if (known) {
    context.setup->call(std::move(plan));
    return TW_OK;
  }
  status = context.setup->call_by_name(std::move(plan), [parsed](auto* to) { return resolve(parsed, false, to); });
  if (!is_error(status)) return TW_OK;
  const std::string why = last_error();
  end_endpoint(*std::exchange(*out, nullptr));
  return fail(status, "%s", why.c_str());
}

Status tw_worker::listen(const char* text, const tw_listener_options& options, tw_listener** out) {
  AddressText parsed;
  Status status = parse_address_text(text, &parsed);
  if (is_error(status)) return status;
  const uint32_t backlog = options.backlog != 0 ? options.backlog : kBacklog;
  std::vector<UniqueFd> sockets;
  uint16_t port = 0;
  status = listen_where_allowed(parsed, context.settings.interfaces.c_str(), int(std::max(backlog, kQueued)), &sockets, &port);
  if (is_error(status)) return status;
  std::vector<DialTarget> known;
  status = known_as(Purpose::listener, &known);
  if (is_error(status)) return status;
  // The working directory may change while it listens.
  const std::string path = parsed.unix_path ? absolute_path(parsed.host) : "";
  if (parsed.unix_path) known.push_back(DialTarget::at_path(Purpose::listener, path));
  auto listener = std::make_unique<tw_listener>();
  listener->worker = this;
  listener->id = context.setup->next_key();
  listener->port = port;
  listener->on_request = options.on_request;
  listener->arg = options.arg;
  listeners[listener->id] = listener.get();
  for (UniqueFd& socket : sockets) {
    auto door = std::make_unique<Door>();
    door->socket = std::move(socket);
    door->path = path;
    door->tls = context.settings.tls;
    door->known_as = known;
    door->worker = this;
    door->listener = listener->id;
    door->backlog = backlog;
    status = context.setup->add_door(std::move(door));
    if (!is_error(status)) continue;
    const std::string why = last_error();
    context.setup->remove_door(listener->id);
    listeners.erase(listener->id);
    return fail(status, "%s", why.c_str());
  }
  *out = listener.release();
  return TW_OK;
}

tw_endpoint* tw_worker::accept(const tw_connection_request& request, const tw_endpoint_options& options) {
  tw_endpoint* endpoint = make_endpoint(options);
  Answer answer;
  answer.acceptor = request.acceptor;
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
  std::erase_if(requested_, [listener](const auto& requested) { return requested.first == listener; });
}
