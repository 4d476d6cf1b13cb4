// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
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
constexpr size_t kGraves = size_t{1} << 16;

/// A close that waits: first for the endpoint's operations, then for its flush or the connection's end.
struct Closing {
  ucp_ep* handle;
  bool begun = false;
  bool ended = false;  // the connection, by this close
};

void delete_handle(ucp_ep& handle) {
  if (handle.peer != nullptr) std::erase(handle.peer->handles, &handle);
  if (handle.endpoint == nullptr) std::erase(handle.worker->graves, &handle);
  delete &handle;
}

void delete_peer(Peer& peer) {
  for (ucp_ep* handle : peer.handles) handle->peer = nullptr;
  peer.worker->peers.erase(&peer);
  delete &peer;
}

/// A reply endpoint without a peer: what is posted to it fails. The oldest of these go, so that peers that come and are lost take no
/// memory.
void bury(ucp_ep& handle) {
  ucp_worker& worker = *handle.worker;
  std::erase(handle.peer->handles, &handle);
  handle.peer = nullptr;
  handle.endpoint = nullptr;
  worker.graves.push_back(&handle);
  if (worker.graves.size() <= kGraves) return;
  delete worker.graves.front();
  worker.graves.pop_front();
}

/// Handles that the user knows as reply endpoints only, of a connection that ends.
void end_replies(Peer& peer) {
  const std::vector<ucp_ep*> handles = peer.handles;
  for (ucp_ep* handle : handles) {
    if (handle->user_owned || handle->closed) continue;
    if (handle->pending == 0 && handle->awaited == 0) {
      bury(*handle);
    } else {
      handle->closed = true;  // goes with its last operation
    }
  }
}

/// Does the connection go on without this handle? That of a socket address is its user's: a reply endpoint, which the last messages
/// made while the handle was closing, does not keep it.
bool has_others(const Peer& peer, const ucp_ep& handle) {
  return std::any_of(peer.handles.begin(), peer.handles.end(),
                     [&](const ucp_ep* other) { return other != &handle && (peer.addressed || other->user_owned); });
}

/// The connection ends at once. What is pending ends with TW_ERR_CLOSED.
void end_connection(Peer& peer) {
  const HoldBack held(*peer.worker);
  end_replies(peer);
  cancel_receives(peer, nullptr);
  (void)tw_endpoint_close(peer.endpoint, TW_CLOSE_FORCE, nullptr);
  delete_peer(peer);
}

/// Receives end, error handlers are called.
void tell_loss(ucp_worker& worker, Peer& peer) {
  const uint64_t id = peer.id;
  const ucs_status_t status = peer.why;
  worker.sweeps.emplace_back(&peer, id);
  worker.chores = true;
  lose_stream(peer);
  if (!is_alive(worker, &peer, id)) return;
  const std::vector<ucp_ep*> handles = peer.handles;
  for (ucp_ep* handle : handles) {
    // An error handler may close its handle and others, and the last one takes the peer away.
    if (!is_alive(worker, &peer, id)) return;
    if (std::find(peer.handles.begin(), peer.handles.end(), handle) == peer.handles.end() || handle->closed) continue;
    if (handle->on_error.cb != nullptr) handle->on_error.cb(handle->on_error.arg, handle, status);
  }
}

void lose(Peer& peer, ucs_status_t status) {
  ucp_worker& worker = *peer.worker;
  if (worker.ending) return;
  peer.lost = true;
  peer.why = status;
  // Told by progress, behind the ends of what was under way.
  worker.losses.emplace_back(&peer, peer.id);
  worker.chores = true;
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
  if (peer == nullptr) return nullptr;
  peer->worker = &worker;
  peer->id = ++worker.peers_made;
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
  if (auto* const known = static_cast<Peer*>(tw_endpoint_user(endpoint)); known != nullptr && known != &impostor) {
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
  if (request.worker != &worker) {
    return unsupported("ucp_ep_create", "a connection request of another worker's listener", "accept it with that worker");
  }
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
tw_status begin_close(Closing& closing, tw_request* operation) {
  closing.begun = true;
  ucp_ep& handle = *closing.handle;
  if (handle.peer == nullptr || handle.peer->lost) return TW_OK;
  if (handle.peer->addressed || has_others(*handle.peer, handle)) return tw_endpoint_flush(handle.endpoint, operation);
  const tw_status status = tw_endpoint_close(handle.endpoint, TW_CLOSE_GRACEFUL, operation);
  closing.ended = status >= 0;
  return status;
}

/// Nothing of it is under way, and its connection stays or is lost.
bool ends_at_once(const ucp_ep& handle) {
  const Peer& peer = *handle.peer;
  if (handle.pending != 0) return false;
  return peer.lost || ((peer.addressed || has_others(peer, handle)) && !peer.unflushed && peer.gets.empty());
}

/// The handle's part of the connection ends. `ended`: the connection has, and with it what its last messages were told with.
void end_handle(ucp_ep& handle, bool ended) {
  Peer* const peer = handle.peer;
  handle.closing = false;
  if (handle.awaited == 0) {
    delete_handle(handle);
  } else if (peer != nullptr) {
    std::erase(peer->handles, &handle);
    handle.peer = nullptr;  // it goes with the last message that was to be told with it
  }
  if (peer == nullptr) return;
  if (ended) {
    end_replies(*peer);
    cancel_receives(*peer, nullptr);
    return delete_peer(*peer);
  }
  if (peer->handles.empty() && (peer->lost || !peer->addressed)) end_connection(*peer);
}

/// Of a handle whose connection others use, too: what can be cancelled is; the rest ends as it would have. Requests in the user's
/// memory are not known here.
void cancel_requests(ucp_ep& handle) {
  handle.worker->pool.each([&](Request& request) {
    if (!is_under_way(request) || request.endpoint != &handle) return;
    if (request.operation != TW_REQUEST_NONE) (void)tw_request_cancel(request.operation);
  });
}

/// The user has closed an endpoint.
void leave_stream(Peer& peer, const ucp_ep& handle) {
  cancel_receives(peer, &handle);  // the peer may never send what they wait for
  const bool read = std::any_of(peer.handles.begin(), peer.handles.end(), [](const ucp_ep* one) { return !one->closed; });
  if (!read) drop_stream(peer);
}

void close_by_force(ucp_ep& handle) {
  const HoldBack held(*handle.worker);
  handle.closed = true;
  ++handle.pending;  // stays until all is ended
  Peer* const peer = handle.peer;
  if (peer != nullptr) {
    leave_stream(*peer, handle);
    const bool stays = has_others(*peer, handle);
    if (stays) cancel_requests(handle);
    std::erase(peer->handles, &handle);
    handle.peer = nullptr;
    if (!stays) end_connection(*peer);
  }
  released(handle);  // freed now, or with its last operation
}

ucs_status_ptr_t close(ucp_ep& handle, bool force, const Wanted& wanted) {
  ucp_worker& worker = *handle.worker;
  if (force || handle.peer == nullptr) {
    Request* const request = wanted.no_immediate ? take(worker, wanted, kClose) : nullptr;
    close_by_force(handle);
    if (request == nullptr) return nullptr;
    finish_later(*request, UCS_OK);
    return handle_of(*request);
  }
  handle.closed = true;
  leave_stream(*handle.peer, handle);
  if (!wanted.no_immediate && ends_at_once(handle)) {
    end_handle(handle, false);
    return nullptr;
  }
  // Begun by progress: flushing progresses, and that calls handlers.
  Request* const request = take(worker, wanted, kClose);
  auto* const closing = request != nullptr ? new (std::nothrow) Closing{&handle} : nullptr;
  if (closing == nullptr) {
    if (request != nullptr) give_back(*request);
    return pointer_of(UCS_ERR_NO_MEMORY);
  }
  handle.closing = true;
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
    const tw_status begun = begin_close(closing, &request.operation);
    if (begun == TW_IN_PROGRESS) return false;
    if (begun == TW_ERR_LIMIT) {
      closing.begun = false;  // again when requests have ended
      return false;
    }
    if (begun < 0) *status = status_of(begun);
  } else if (request.operation != TW_REQUEST_NONE) {
    const tw_status ended = tw_request_test(request.operation);
    if (ended == TW_IN_PROGRESS) return false;
    if (ended < 0) *status = status_of(ended);
  }
  (void)tw_request_release(request.operation);
  end_handle(handle, closing.ended);
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
  if (peer == &impostor) return nullptr;
  if (peer == nullptr) {
    // Met as the sender of a message: it sent its address along when it connected.
    size_t length = 0;
    const void* const address = tw_endpoint_data(endpoint, &length);
    if (length <= sizeof(AddressHeader) + sizeof(uint32_t)) return nullptr;
    uint32_t inner = 0;
    std::memcpy(&inner, static_cast<const std::byte*>(address) + sizeof(AddressHeader), sizeof inner);
    if (inner != length - sizeof(AddressHeader) - sizeof inner) return nullptr;
    const std::vector<std::byte> copy(static_cast<const std::byte*>(address), static_cast<const std::byte*>(address) + length);
    const size_t known = worker.peers.size();
    if (connect(worker, copy.data(), &peer) != UCS_OK) return nullptr;
    if (peer->endpoint != endpoint) {
      // The address is the peer's word, the connection is Thalweg's, which has checked who it is. What was dialed for it ends; one that
      // is there already is sound: it is that of whom the address names.
      if (worker.peers.size() != known && tw_endpoint_state(peer->endpoint) == TW_IN_PROGRESS) end_connection(*peer);
      if (tw_endpoint_state(endpoint) >= 0) tw_endpoint_set_user(endpoint, &impostor);
      tell("a message's sender is unknown: it was lost meanwhile, or sent the address of another worker as its own");
      return nullptr;
    }
  }
  return handle_of(*peer);
}

ucp_ep* handle_of(Peer& peer) {
  for (ucp_ep* handle : peer.handles) {
    if (!handle->closed) return handle;
  }
  return new_handle(peer);
}

namespace {

/// Nothing of it is under way, as far as it is freed for.
void end_use(ucp_ep& handle) {
  if (handle.closed) {
    if (handle.peer == nullptr && !handle.closing) delete_handle(handle);
    return;
  }
  if (handle.user_owned || handle.peer == nullptr || !handle.peer->lost) [[likely]]
    return;
  handle.worker->sweeps.emplace_back(handle.peer, handle.peer->id);
  handle.worker->chores = true;
}

}  // namespace

void released(ucp_ep& handle) {
  if (--handle.pending == 0 && handle.awaited == 0) end_use(handle);
}

void no_longer_awaited(ucp_ep& handle) {
  if (--handle.awaited == 0 && handle.pending == 0) end_use(handle);
}

unsigned tell_losses(ucp_worker& worker) {
  const auto losses = std::exchange(worker.losses, {});
  for (const auto& [peer, id] : losses) {
    if (is_alive(worker, peer, id)) tell_loss(worker, *peer);
  }
  return static_cast<unsigned>(losses.size());
}

void sweep(ucp_worker& worker) {
  const auto sweeps = std::exchange(worker.sweeps, {});
  for (const auto& [peer, id] : sweeps) {
    if (!is_alive(worker, peer, id)) continue;
    const std::vector<ucp_ep*> handles = peer->handles;
    for (ucp_ep* handle : handles) {
      if (!handle->user_owned && !handle->closed && handle->pending == 0 && handle->awaited == 0) bury(*handle);
    }
    if (peer->handles.empty()) end_connection(*peer);
  }
}

/// The end of a connection is stepped by progress, whether there is an event or not.
bool may_step_closing(const ucp_worker& worker) {
  return std::any_of(worker.closing.begin(), worker.closing.end(), [](const Request* request) {
    const auto& closing = *static_cast<const Closing*>(request->extra);
    if (closing.handle->pending != 0) return false;
    const bool flushing = closing.begun && !closing.ended && request->operation != TW_REQUEST_NONE;
    return !flushing || tw_request_test(request->operation) != TW_IN_PROGRESS;
  });
}

unsigned step_closing(ucp_worker& worker) {
  // Out of the list: a step progresses, and handlers may close endpoints.
  std::vector<Request*> stepped = std::exchange(worker.closing, {});
  std::vector<std::pair<Request*, ucs_status_t>> done;
  std::erase_if(stepped, [&](Request* request) {
    ucs_status_t status;
    if (!step(*request, &status)) return false;
    done.emplace_back(request, status);
    return true;
  });
  worker.closing.insert(worker.closing.begin(), stepped.begin(), stepped.end());
  for (const auto& [request, status] : done) finish(*request, status);
  return static_cast<unsigned>(done.size());
}

namespace {

/// Is an operation under way that names memory of the user's? What is in `later` is complete.
bool has_requests(ucp_worker& worker) {
  uint64_t unpooled = worker.unpooled;
  for (const Request* request = worker.later; request != nullptr; request = request->next) unpooled -= request->pooled ? 0 : 1;
  bool any = unpooled != 0;
  worker.pool.each([&](const Request& request) {
    const bool runs = request.operation == TW_REQUEST_NONE || tw_request_test(request.operation) == TW_IN_PROGRESS;
    any = any || (is_under_way(request) && runs);
  });
  return any;
}

/// Receives that no message has matched. Those in the user's memory are not known here.
void cancel_unmatched(ucp_worker& worker) {
  worker.pool.each([](Request& request) {
    if (is_under_way(request) && request.kind == kTagRecv && request.operation != TW_REQUEST_NONE)
      (void)tw_request_cancel(request.operation);
  });
}

}  // namespace

void deliver_posted(ucp_worker& worker) {
  // Its buffers may be gone, as the worker's end is what ends it: nothing that arrives may reach them. What it was about to send goes
  // all the same, if it waits for nothing but messages that have not come.
  cancel_unmatched(worker);
  if (has_requests(worker)) return;
  constexpr auto kPatience = std::chrono::seconds(2);
  std::vector<tw_request> closing;
  for (const Peer* peer : worker.peers) {
    if (peer->endpoint == nullptr || peer->lost || tw_endpoint_state(peer->endpoint) < 0) continue;
    // Frames that are in shared memory already reach the peer without this worker.
    if (std::strcmp(tw_endpoint_transport(peer->endpoint), "tcp") != 0) continue;
    tw_request request = TW_REQUEST_NONE;
    if (tw_endpoint_close(peer->endpoint, TW_CLOSE_GRACEFUL, &request) == TW_IN_PROGRESS) closing.push_back(request);
  }
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  const auto ended = [&] {
    std::erase_if(closing, [](tw_request request) { return tw_request_test(request) != TW_IN_PROGRESS; });
    return closing.empty();
  };
  while (!ended() && std::chrono::steady_clock::now() < limit) {
    if (tw_worker_progress(worker.worker) == 0) sched_yield();
  }
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
  for (ucp_ep* handle : worker.graves) delete handle;
  worker.graves.clear();
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
  peer->unread = false;
  take_params(*params, *handle);
  *ep_p = handle;
  return UCS_OK;
}

ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode) {
  if (mode != UCP_EP_CLOSE_MODE_FORCE && mode != UCP_EP_CLOSE_MODE_FLUSH) return pointer_of(UCS_ERR_INVALID_PARAM);
  const Hold hold(*ep->worker);
  return close(*ep, mode == UCP_EP_CLOSE_MODE_FORCE, Wanted{});
}

ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  constexpr uint32_t kKnown = kCommonFields | UCP_OP_ATTR_FIELD_FLAGS;
  if (ucs_status_t s = check_fields("ucp_ep_close_nbx", *param, kKnown); s != UCS_OK) return pointer_of(s);
  const unsigned flags = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0 ? param->flags : 0;
  if (ucs_status_t s = check_mask("ucp_ep_close_nbx", "flags", flags, UCP_EP_CLOSE_FLAG_FORCE); s != UCS_OK) {
    return pointer_of(s);
  }
  const Hold hold(*ep->worker);
  return close(*ep, (flags & UCP_EP_CLOSE_FLAG_FORCE) != 0, wanted_send(*param));
}

ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep) {
  const Hold hold(*ep->worker);
  return close(*ep, false, Wanted{});
}

void ucp_ep_destroy(ucp_ep_h ep) {
  ucp_worker& worker = *ep->worker;
  const Hold hold(worker);
  (void)wait_for(worker, close(*ep, false, Wanted{}));
}

ucs_status_ptr_t ucp_ep_modify_nb(ucp_ep_h, const ucp_ep_params_t*) {
  return pointer_of(unsupported("ucp_ep_modify_nb", "changing an endpoint", "close it and make another one"));
}

}  // extern "C"
