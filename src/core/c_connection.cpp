// SPDX-License-Identifier: Apache-2.0
// C interface: listeners and endpoints.
#include <algorithm>
#include <thread>

#include "core/c_checks.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_endpoint_options kEndpointDefaults = TW_ENDPOINT_OPTIONS_INIT;

/// end() under the worker's lock, once no other thread runs a callback of this endpoint or listener: which may have ended it
/// itself, so end() checks again whether it is there.
template <class End>
void end_uncalled(tw_worker& worker, const void* one, End end) {
  for (;; std::this_thread::yield()) {
    const Engine::Guard guard(*worker.engine);
    if (!worker.is_called(one)) return end();
  }
}

Status check_options(const tw_endpoint_options& options, const tw_context& context) {
  if (options.private_length > TW_PRIVATE_MAX) {
    return fail(TW_ERR_INVALID, "%zu bytes of private data, at most %d are allowed", options.private_length, TW_PRIVATE_MAX);
  }
  if (options.private_length != 0 && options.private_data == nullptr) return fail(TW_ERR_INVALID, "the private data is NULL");
  if (options.transport == nullptr) return TW_OK;
  const std::string name = options.transport;
  const auto slot = std::find_if(context.transports.begin(), context.transports.end(),
                                 [&](const TransportSlot& one) { return one.name == name; });
  if (slot == context.transports.end()) return fail(TW_ERR_INVALID, "unknown transport \"%s\"", name.c_str());
  if (slot->why_not.empty()) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED, "transport %s cannot be used here: %s", name.c_str(), slot->why_not.c_str());
}

}  // namespace

namespace thalweg::impl {

Status refuse_endpoint(const tw_endpoint* endpoint) {
  if (endpoint == nullptr) return fail(TW_ERR_INVALID, "the endpoint is NULL");
  if (endpoint->magic == tw_endpoint::kClosing) return fail(TW_ERR_CLOSED, "this side has closed the endpoint");
  return fail(TW_ERR_HANDLE, "this endpoint is not alive (any more)");
}

}  // namespace thalweg::impl

extern "C" {

tw_status tw_listen(tw_worker* worker, const char* address, const tw_listener_options* given, tw_listener** out) {
  const Status status = check(worker);
  if (is_error(status)) return status;
  if (address == nullptr || out == nullptr) return fail(TW_ERR_INVALID, "address or the place for the listener is NULL");
  *out = nullptr;
  const tw_listener_options defaults = TW_LISTENER_OPTIONS_INIT;
  const Options<tw_listener_options> options(given, defaults);
  if (Status s = options.status(); is_error(s)) return s;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const Engine::Guard guard(*worker->engine);
  return worker->listen(address, *options, out);
}

void tw_listener_close(tw_listener* listener) {
  if (listener == nullptr || listener->worker->born.forked()) return;
  tw_worker& worker = *listener->worker;
  const uint64_t id = listener->id;
  worker.context.setup->remove_door(id);
  end_uncalled(worker, listener, [&] {
    if (!worker.listeners.contains(id)) return;  // its on_request has ended it
    worker.forget(listener);
    delete listener;
  });
}

uint16_t tw_listener_port(const tw_listener* listener) { return listener == nullptr ? 0 : listener->port; }

tw_status tw_listener_next(tw_listener* listener, tw_connection_request** out) {
  if (listener == nullptr || out == nullptr) return fail(TW_ERR_INVALID, "listener or the place for the request is NULL");
  const Status status = check(listener->worker);
  if (is_error(status)) return status;
  const Engine::Guard guard(*listener->worker->engine);
  *out = nullptr;
  if (listener->waiting.empty()) return TW_AGAIN;
  *out = listener->waiting.front().release();
  listener->waiting.pop_front();
  return TW_OK;
}

const void* tw_connection_request_data(const tw_connection_request* request, size_t* length) {
  if (length != nullptr) *length = request == nullptr ? 0 : request->data.size();
  return request == nullptr ? nullptr : request->data.data();
}

const char* tw_connection_request_peer(const tw_connection_request* request) {
  return request == nullptr ? "" : request->peer.c_str();
}

tw_status tw_accept(tw_connection_request* request, const tw_endpoint_options* given, tw_endpoint** out) {
  if (request == nullptr || out == nullptr) return fail(TW_ERR_INVALID, "request or the place for the endpoint is NULL");
  tw_worker* worker = request->worker;
  Status status = check(worker);
  if (is_error(status)) return status;
  const Options<tw_endpoint_options> options(given, kEndpointDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  status = check_options(*options, worker->context);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const Engine::Guard guard(*worker->engine);
  *out = worker->accept(*request, *options);
  delete request;
  return TW_OK;
}

tw_status tw_reject(tw_connection_request* request, const void* data, size_t length) {
  if (request == nullptr) return fail(TW_ERR_INVALID, "the request is NULL");
  const Status status = check(request->worker);
  if (is_error(status)) return status;
  if (length > TW_PRIVATE_MAX || (length != 0 && data == nullptr)) {
    return fail(TW_ERR_INVALID, "at most %d bytes of private data are allowed", TW_PRIVATE_MAX);
  }
  Answer answer;
  answer.acceptor = request->acceptor;
  answer.worker = request->worker->id;
  if (length != 0) answer.data.assign(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + length);
  request->worker->context.setup->answer(std::move(answer));
  delete request;
  return TW_OK;
}

tw_status tw_connect(tw_worker* worker, const void* address, size_t length, const tw_endpoint_options* given,
                     tw_endpoint** out) {
  Status status = check(worker);
  if (is_error(status)) return status;
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the endpoint is NULL");
  *out = nullptr;
  const Options<tw_endpoint_options> options(given, kEndpointDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  status = check_options(*options, worker->context);
  if (is_error(status)) return status;
  WorkerAddress to;
  status = parse_address(address, length, &to);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const Engine::Guard guard(*worker->engine);
  return worker->connect(to, *options, out);
}

tw_status tw_connect_to(tw_worker* worker, const char* address, const tw_endpoint_options* given, tw_endpoint** out) {
  Status status = check(worker);
  if (is_error(status)) return status;
  if (address == nullptr || out == nullptr) return fail(TW_ERR_INVALID, "address or the place for the endpoint is NULL");
  *out = nullptr;
  const Options<tw_endpoint_options> options(given, kEndpointDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  status = check_options(*options, worker->context);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const Engine::Guard guard(*worker->engine);
  return worker->connect_to(address, *options, out);
}

tw_status tw_endpoint_state(tw_endpoint* endpoint) {
  const Status status = check(endpoint);
  if (is_error(status)) return status;
  const Engine::Guard guard(*endpoint->worker->engine);
  const Peer& peer = *endpoint->peer;
  if (is_error(peer.state)) set_last_error(peer.why);
  return peer.state;
}

tw_status tw_endpoint_wait(tw_endpoint* endpoint, uint64_t timeout_ns) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  Status state = TW_IN_PROGRESS;
  Status status = endpoint->worker->wait_until(
      [&] {
        state = tw_endpoint_state(endpoint);
        return state != TW_IN_PROGRESS;
      },
      timeout_ns);
  if (status == TW_ERR_BUSY) return status;
  if (is_error(status)) return fail(status, "the endpoint is still connecting");
  return state;
}

const void* tw_endpoint_data(tw_endpoint* endpoint, size_t* length) {
  if (length != nullptr) *length = 0;
  if (is_error(check(endpoint))) return nullptr;
  if (length != nullptr) *length = endpoint->received.size();
  return endpoint->received.data();
}

tw_worker* tw_endpoint_worker(tw_endpoint* endpoint) { return endpoint == nullptr ? nullptr : endpoint->worker; }
int tw_endpoint_protected(tw_endpoint* endpoint) {
  if (is_error(check(endpoint))) return 0;
  const Engine::Guard guard(*endpoint->worker->engine);
  return endpoint->is_protected ? 1 : 0;
}

const char* tw_endpoint_transport(tw_endpoint* endpoint) { return is_error(check(endpoint)) ? "" : endpoint->transport; }

void tw_endpoint_set_user(tw_endpoint* endpoint, void* user) {
  if (endpoint != nullptr) endpoint->user = user;
}
void* tw_endpoint_user(tw_endpoint* endpoint) { return endpoint == nullptr ? nullptr : endpoint->user; }

tw_status tw_endpoint_close(tw_endpoint* endpoint, uint32_t mode, tw_request* request) {
  Status status = check(endpoint);
  if (is_error(status)) return status;
  if (mode > TW_CLOSE_FORCE) return fail(TW_ERR_INVALID, "unknown close mode %u", mode);
  tw_worker& worker = *endpoint->worker;
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  tw_request own = TW_REQUEST_NONE;
  if (request != nullptr) *request = TW_REQUEST_NONE;
  end_uncalled(worker, endpoint, [&] {
    status = check(endpoint);  // again: its on_lost may have closed it
    if (is_error(status)) return;
    const bool waits = request == nullptr && mode == TW_CLOSE_GRACEFUL && endpoint->references <= 1;
    if (waits && worker.engine->in_handler() && !ends_at_once(*worker.engine, *endpoint->peer)) {
      status = tw_worker::refuse_wait();
    } else {
      status = worker.close(*endpoint, mode == TW_CLOSE_GRACEFUL, request != nullptr ? request : &own);
    }
  });
  worker.posted();
  if (status != TW_IN_PROGRESS || request != nullptr) return status;
  return tw_request_finish(own);
}

}  // extern "C"
