// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "listener.hpp"
#include "status.hpp"
#include "stream.hpp"

namespace thalweg::ucx {
namespace {

constexpr uint64_t kFields = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                             UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_USER_DATA | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                             UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_NAME;
constexpr unsigned kFlags =
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_NO_LOOPBACK | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;

constexpr uint32_t kMaxAddress = 512;  // of Thalweg's part

/// A close that waits: first for the endpoint's operations, then for its flush or the connection's end.
struct Closing {
  ucp_ep* handle;
  bool begun = false;
};

void delete_handle(ucp_ep& handle) {
  if (handle.peer != nullptr) std::erase(handle.peer->handles, &handle);
  delete &handle;
}

void delete_peer(Peer& peer) {
  for (ucp_ep* handle : peer.handles) handle->peer = nullptr;
  peer.worker->peers.erase(&peer);
  delete &peer;
}

/// The connection ends at once. What is pending ends with TW_ERR_CLOSED.
void end_connection(Peer& peer) {
  (void)tw_endpoint_close(peer.endpoint, TW_CLOSE_FORCE, nullptr);
  delete_peer(peer);
}

void lose(Peer& peer, ucs_status_t status) {
  ucp_worker& worker = *peer.worker;
  if (worker.ending) return;
  peer.lost = true;
  peer.why = status;
  lose_stream(peer);
  if (!worker.peers.contains(&peer)) return;
  const std::vector<ucp_ep*> handles = peer.handles;
  for (ucp_ep* handle : handles) {
    // An error handler may close its handle and others, and the last one takes the peer away.
    if (!worker.peers.contains(&peer)) return;
    if (std::find(peer.handles.begin(), peer.handles.end(), handle) == peer.handles.end() || handle->closed) continue;
    if (handle->on_error.cb != nullptr) handle->on_error.cb(handle->on_error.arg, handle, status);
  }
  if (worker.peers.contains(&peer) && peer.handles.empty()) end_connection(peer);
}

void on_lost(void* arg, tw_endpoint*, tw_status why) { lose(*static_cast<Peer*>(arg), status_of(why)); }

tw_endpoint_options options_of(ucp_worker& worker, Peer& peer) {
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.on_lost = on_lost;
  options.arg = &peer;
  options.private_data = worker.address.data();
  options.private_length = worker.address.size();
  return options;
}

Peer* new_peer(ucp_worker& worker) {
  auto* const peer = new (std::nothrow) Peer;
  if (peer != nullptr) peer->worker = &worker;
  return peer;
}

void enter(Peer& peer, tw_endpoint* endpoint) {
  peer.endpoint = endpoint;
  tw_endpoint_set_user(endpoint, &peer);
  peer.worker->peers.insert(&peer);
}

/// The connection to a worker address, which may exist already.
ucs_status_t connect(ucp_worker& worker, const void* address, Peer** out) {
  AddressHeader header;
  if (!parse_address(address, &header)) {
    return unsupported("ucp_ep_create", "an address of another UCX", "let all processes use the same libucp");
  }
  uint32_t length = 0;
  const auto* const bytes = static_cast<const std::byte*>(address) + sizeof header;
  std::memcpy(&length, bytes, sizeof length);
  if (length > kMaxAddress) return UCS_ERR_INVALID_ADDR;
  Peer* const peer = new_peer(worker);
  if (peer == nullptr) return UCS_ERR_NO_MEMORY;
  const tw_endpoint_options options = options_of(worker, *peer);
  tw_endpoint* endpoint = nullptr;
  const tw_status status = tw_connect(worker.worker, bytes + sizeof length, length, &options, &endpoint);
  if (status != TW_OK) {
    delete peer;
    return failed("ucp_ep_create", status);
  }
  if (auto* const known = static_cast<Peer*>(tw_endpoint_user(endpoint)); known != nullptr) {
    delete peer;
    (void)tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr);  // counts down: one connect for each peer
    *out = known;
    return UCS_OK;
  }
  peer->addressed = true;
  enter(*peer, endpoint);
  *out = peer;
  return UCS_OK;
}

ucs_status_t connect_to(ucp_worker& worker, const ucs_sock_addr_t& to, Peer** out) {
  const std::string text = text_of(to.addr);
  if (text.empty()) return unsupported("ucp_ep_create", "this family of socket addresses", "pass an IPv4 or IPv6 address");
  Peer* const peer = new_peer(worker);
  if (peer == nullptr) return UCS_ERR_NO_MEMORY;
  const tw_endpoint_options options = options_of(worker, *peer);
  tw_endpoint* endpoint = nullptr;
  const tw_status status = tw_connect_to(worker.worker, text.c_str(), &options, &endpoint);
  if (status != TW_OK) {
    delete peer;
    return failed("ucp_ep_create", status);
  }
  peer->remote = text;
  enter(*peer, endpoint);
  *out = peer;
  return UCS_OK;
}

ucs_status_t accept(ucp_worker& worker, ucp_conn_request& request, Peer** out) {
  Peer* const peer = new_peer(worker);
  if (peer == nullptr) return UCS_ERR_NO_MEMORY;
  const tw_endpoint_options options = options_of(worker, *peer);
  peer->remote = request.peer;
  tw_endpoint* endpoint = nullptr;
  const tw_status status = tw_accept(request.request, &options, &endpoint);
  delete &request;
  if (status != TW_OK) {
    delete peer;
    return failed("ucp_ep_create", status);
  }
  enter(*peer, endpoint);
  *out = peer;
  return UCS_OK;
}

ucp_ep* new_handle(Peer& peer) {
  auto* const handle = new (std::nothrow) ucp_ep;
  if (handle == nullptr) return nullptr;
  handle->endpoint = peer.endpoint;
  handle->worker = peer.worker;
  handle->peer = &peer;
  peer.handles.push_back(handle);
  return handle;
}

void take_params(const ucp_ep_params_t& params, ucp_ep& handle) {
  const uint64_t mask = params.field_mask;
  if ((mask & UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) != 0) handle.mode = params.err_mode;
  if ((mask & UCP_EP_PARAM_FIELD_ERR_HANDLER) != 0) handle.on_error = params.err_handler;
  if ((mask & UCP_EP_PARAM_FIELD_USER_DATA) != 0) {
    handle.user_data = handle.on_error.arg = params.user_data;
  }
  if ((mask & UCP_EP_PARAM_FIELD_NAME) != 0 && params.name != nullptr) handle.name = params.name;
}

ucs_status_t find_peer(ucp_worker& worker, const ucp_ep_params_t& params, Peer** peer) {
  if ((params.field_mask & UCP_EP_PARAM_FIELD_CONN_REQUEST) != 0) return accept(worker, *params.conn_request, peer);
  if ((params.field_mask & UCP_EP_PARAM_FIELD_SOCK_ADDR) != 0) return connect_to(worker, params.sockaddr, peer);
  if ((params.field_mask & UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) != 0) return connect(worker, params.address, peer);
  return UCS_ERR_INVALID_PARAM;
}

// ------------------------------------------------------------------------------------------------ closing

/// What a handle's close waits for after its operations. TW_OK: nothing. The connection of a socket address ends with its handle.
tw_status begin_close(ucp_ep& handle, tw_request* operation) {
  Peer& peer = *handle.peer;
  *operation = TW_REQUEST_NONE;
  if (peer.lost) return TW_OK;
  if (peer.addressed || peer.handles.size() > 1) return tw_endpoint_flush(handle.endpoint, operation);
  return tw_endpoint_close(handle.endpoint, TW_CLOSE_GRACEFUL, operation);
}

/// The handle's part of the connection ends. `closed`: the connection was closed already.
void end_handle(ucp_ep& handle) {
  Peer* const peer = handle.peer;
  delete_handle(handle);
  if (peer == nullptr || !peer->handles.empty()) return;
  if (peer->lost) return end_connection(*peer);
  if (!peer->addressed) delete_peer(*peer);
}

ucs_status_ptr_t close_by_force(ucp_ep& handle) {
  handle.closed = true;
  Peer* const peer = handle.peer;
  if (peer != nullptr) std::erase(peer->handles, &handle);
  handle.peer = nullptr;
  if (peer != nullptr && peer->handles.empty()) end_connection(*peer);
  if (handle.pending == 0) delete_handle(handle);  // else with its last operation
  return nullptr;
}

ucs_status_ptr_t close(ucp_ep& handle, bool force, const Wanted& wanted, const char* function) {
  ucp_worker& worker = *handle.worker;
  cancel_receives(handle);  // the peer may never send what they wait for
  if (force || handle.peer == nullptr) {
    Request* const request = wanted.no_immediate ? take(worker, wanted, kClose) : nullptr;
    close_by_force(handle);
    if (request == nullptr) return nullptr;
    finish_later(*request, UCS_OK);
    return handle_of(*request);
  }
  handle.closed = true;
  tw_request operation = TW_REQUEST_NONE;
  if (handle.pending == 0 && !wanted.no_immediate) {
    const tw_status status = begin_close(handle, &operation);
    if (status != TW_IN_PROGRESS) {
      end_handle(handle);
      return status == TW_OK || status == TW_ERR_CLOSED || status == TW_ERR_PEER_LOST ? nullptr
                                                                                      : pointer_of(failed(function, status));
    }
  }
  Request* const request = take(worker, wanted, kClose);
  auto* const closing = request != nullptr ? new (std::nothrow) Closing{&handle, operation != TW_REQUEST_NONE} : nullptr;
  if (closing == nullptr) return pointer_of(UCS_ERR_NO_MEMORY);
  request->operation = operation;
  request->extra = closing;
  worker.closing.push_back(request);
  worker.chores = true;
  return handle_of(*request);
}

/// True: it has ended, with *status.
bool step(Request& request, ucs_status_t* status) {
  auto& closing = *static_cast<Closing*>(request.extra);
  ucp_ep& handle = *closing.handle;
  *status = UCS_OK;
  if (handle.pending != 0) return false;
  if (!closing.begun) {
    closing.begun = true;
    const tw_status begun = handle.peer == nullptr ? TW_OK : begin_close(handle, &request.operation);
    if (begun == TW_IN_PROGRESS) return false;
    if (begun < 0) *status = status_of(begun);
  } else if (request.operation != TW_REQUEST_NONE) {
    const tw_status ended = tw_request_test(request.operation);
    if (ended == TW_IN_PROGRESS) return false;
    if (ended < 0) *status = status_of(ended);
  }
  (void)tw_request_release(request.operation);
  end_handle(handle);
  delete &closing;
  request.extra = nullptr;
  return true;
}

}  // namespace

void break_connection(Peer& peer, ucs_status_t why) {
  (void)tw_endpoint_close(peer.endpoint, TW_CLOSE_FORCE, nullptr);
  peer.endpoint = nullptr;  // what is posted to it from here on is refused
  for (ucp_ep* handle : peer.handles) handle->endpoint = nullptr;
  lose(peer, why);
}

ucp_ep* handle_of(ucp_worker& worker, tw_endpoint* endpoint) {
  auto* peer = static_cast<Peer*>(tw_endpoint_user(endpoint));
  if (peer == nullptr) {
    // Met as the sender of a message: it sent its address along when it connected.
    size_t length = 0;
    const void* const address = tw_endpoint_data(endpoint, &length);
    if (length <= sizeof(AddressHeader) + sizeof(uint32_t)) return nullptr;
    uint32_t inner = 0;
    std::memcpy(&inner, static_cast<const std::byte*>(address) + sizeof(AddressHeader), sizeof inner);
    if (inner != length - sizeof(AddressHeader) - sizeof inner) return nullptr;
    const std::vector<std::byte> copy(static_cast<const std::byte*>(address), static_cast<const std::byte*>(address) + length);
    if (connect(worker, copy.data(), &peer) != UCS_OK) return nullptr;
    if (peer->endpoint != endpoint) return nullptr;  // lost meanwhile; the peer has a new connection now
  }
  for (ucp_ep* handle : peer->handles) {
    if (!handle->closed) return handle;
  }
  return new_handle(*peer);
}

void released(ucp_ep& handle) {
  if (--handle.pending != 0 || !handle.closed || handle.peer != nullptr) return;
  const auto waits = [&](const Request* request) { return static_cast<Closing*>(request->extra)->handle == &handle; };
  const auto& closing = handle.worker->closing;
  if (std::none_of(closing.begin(), closing.end(), waits)) delete_handle(handle);
}

unsigned step_closing(ucp_worker& worker) {
  unsigned events = 0;
  std::vector<std::pair<Request*, ucs_status_t>> done;
  std::erase_if(worker.closing, [&](Request* request) {
    ucs_status_t status;
    if (!step(*request, &status)) return false;
    done.emplace_back(request, status);
    return true;
  });
  for (const auto& [request, status] : done) {
    finish(*request, status);
    ++events;
  }
  return events;
}

void end_endpoints(ucp_worker& worker) {
  for (Request* request : worker.closing) {
    auto* const closing = static_cast<Closing*>(request->extra);
    if (closing->handle->peer == nullptr) delete closing->handle;
    delete closing;
  }
  worker.closing.clear();
  for (Peer* peer : worker.peers) {
    for (ucp_ep* handle : peer->handles) delete handle;
    delete peer;
  }
  worker.peers.clear();
}

ucs_status_t wait_for(ucp_worker& worker, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_RAW_STATUS(request);
  constexpr int kLooks = 1000;  // before others get the core
  for (int look = 0; ucp_request_check_status(request) == UCS_INPROGRESS; ++look) {
    const Hold hold(worker);
    if (progress(worker) == 0 && look % kLooks == kLooks - 1) sched_yield();
  }
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status;
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* ep_p) {
  if (worker == nullptr || params == nullptr || ep_p == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_ep_create", "field_mask", params->field_mask, kFields); s != UCS_OK) return s;
  if ((params->field_mask & UCP_EP_PARAM_FIELD_FLAGS) != 0) {
    if (ucs_status_t s = check_mask("ucp_ep_create", "flags", params->flags, kFlags); s != UCS_OK) return s;
  }
  if ((params->field_mask & UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) != 0 && params->err_mode > UCP_ERR_HANDLING_MODE_PEER) {
    return unsupported("ucp_ep_create", "UCP_ERR_HANDLING_MODE_FAILOVER", "use UCP_ERR_HANDLING_MODE_PEER");
  }
  const Hold hold(*worker);
  Peer* peer = nullptr;
  if (ucs_status_t s = find_peer(*worker, *params, &peer); s != UCS_OK) return s;
  ucp_ep* handle = nullptr;
  for (ucp_ep* one : peer->handles) {
    if (!one->user_owned && !one->closed) handle = one;  // known as a reply endpoint
  }
  if (handle == nullptr) handle = new_handle(*peer);
  if (handle == nullptr) return UCS_ERR_NO_MEMORY;
  handle->user_owned = true;
  take_params(*params, *handle);
  *ep_p = handle;
  return UCS_OK;
}

ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode) {
  if (mode != UCP_EP_CLOSE_MODE_FORCE && mode != UCP_EP_CLOSE_MODE_FLUSH) return pointer_of(UCS_ERR_INVALID_PARAM);
  const Hold hold(*ep->worker);
  return close(*ep, mode == UCP_EP_CLOSE_MODE_FORCE, Wanted{}, "ucp_ep_close_nb");
}

ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  constexpr uint32_t kKnown = kCommonFields | UCP_OP_ATTR_FIELD_FLAGS;
  if (ucs_status_t s = check_fields("ucp_ep_close_nbx", *param, kKnown); s != UCS_OK) return pointer_of(s);
  const unsigned flags = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0 ? param->flags : 0;
  if (ucs_status_t s = check_mask("ucp_ep_close_nbx", "flags", flags, UCP_EP_CLOSE_FLAG_FORCE); s != UCS_OK) {
    return pointer_of(s);
  }
  const Hold hold(*ep->worker);
  return close(*ep, (flags & UCP_EP_CLOSE_FLAG_FORCE) != 0, wanted_send(*param), "ucp_ep_close_nbx");
}

ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep) {
  const Hold hold(*ep->worker);
  return close(*ep, false, Wanted{}, "ucp_disconnect_nb");
}

void ucp_ep_destroy(ucp_ep_h ep) {
  ucp_worker& worker = *ep->worker;
  const Hold hold(worker);
  (void)wait_for(worker, close(*ep, false, Wanted{}, "ucp_ep_destroy"));
}

ucs_status_ptr_t ucp_ep_modify_nb(ucp_ep_h, const ucp_ep_params_t*) {
  return pointer_of(unsupported("ucp_ep_modify_nb", "changing an endpoint", "close it and make another one"));
}

}  // extern "C"
