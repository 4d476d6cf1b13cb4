// SPDX-License-Identifier: Apache-2.0
// Endpoints. Thalweg has one connection between two workers, whichever side asked for it and how often; UCX makes a new handle for each
// ucp_ep_create. A Peer is the connection, a ucp_ep a handle to it.
//
// A connection by worker address outlives its handles: UCX's other side may still send to this worker by a handle of its own. It ends
// with the worker, with its loss, or when a handle is closed by force. A connection by socket address ends with its handle.
#pragma once
#include <thalweg/thalweg.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ledger.hpp"
#include "ucx.hpp"
#include "worker.hpp"

struct ucp_ep {
  tw_endpoint* endpoint = nullptr;  // the peer's, here for the way of a message
  ucp_worker* worker = nullptr;
  thalweg::ucx::Peer* peer = nullptr;
  uint64_t pending = 0;  // operations under way with a request: a close waits for them
  uint64_t awaited = 0;  // messages that are to be told with it: it is freed after them, but its close does not wait
  ucp_err_handler_t on_error{nullptr, nullptr};
  ucp_err_handling_mode_t mode = UCP_ERR_HANDLING_MODE_NONE;
  void* user_data = nullptr;
  bool user_owned = false;  // made by ucp_ep_create; else known to the user as a reply endpoint only
  bool closed = false;      // by the user; freed when nothing is pending
  bool closing = false;     // among the worker's closes that wait, which free it
  std::string name;
};

namespace thalweg::ucx {

struct StreamState;
void destroy(StreamState* stream);
struct StreamDeleter {
  void operator()(StreamState* stream) const { destroy(stream); }
};

struct Peer {
  ucp_worker* worker = nullptr;
  uint64_t id = 0;  // of this worker's: another one may be made at the same place
  tw_endpoint* endpoint = nullptr;
  bool addressed = false;  // by worker address
  bool lost = false;
  bool one_sided = false;  // puts or atomics since the last fence
  bool unflushed = false;  // and since the last flush that was complete at once
  bool unread = false;     // the user has closed all its endpoints: bytes of its stream are for nobody
  ucs_status_t why = UCS_OK;
  Ledger gets;
  std::vector<ucp_ep*> handles;  // the first one is what messages of the peer are told with
  std::unique_ptr<StreamState, StreamDeleter> stream;
  std::string remote;  // socket address as text
};

/// The user data of connections whose peer sent another worker's address as its own: it is not looked at again.
inline Peer impostor;

/// Why nothing can be posted to it, or received from it. UCS_OK: it can.
inline ucs_status_t no_connection(const ucp_ep& ep) {
  if (ep.peer == nullptr) return UCS_ERR_CONNECTION_RESET;
  return ep.peer->lost ? ep.peer->why : UCS_OK;
}

/// Is it the one that had this number?
inline bool is_alive(const ucp_worker& worker, Peer* peer, uint64_t id) {
  return worker.peers.contains(peer) && peer->id == id;
}
/// The handle that the peer behind an endpoint of Thalweg is known by, made where there is none: reply endpoints. NULL: it is gone.
ucp_ep* handle_of(ucp_worker& worker, tw_endpoint* endpoint);
/// This side ends a connection that cannot go on: what is pending ends, then the error handlers are called, as for a lost peer.
/// From progress, outside of handlers.
void break_connection(Peer& peer, ucs_status_t why);
/// The same of a connection that is known.
ucp_ep* handle_of(Peer& peer);
/// An operation without a handle any more: the last one frees the closed handle.
void released(ucp_ep& handle);
/// The same of a message that was to be told with it.
void no_longer_awaited(ucp_ep& handle);
/// Receives of peers that were lost end, and their error handlers are called.
unsigned tell_losses(ucp_worker& worker);
/// Reply endpoints of lost peers end, and their connections.
void sweep(ucp_worker& worker);
/// Has one not begun that may, or become complete?
bool may_step_closing(const ucp_worker& worker);
/// Closes that may have become complete.
unsigned step_closing(ucp_worker& worker);
/// What was sent is delivered before the worker ends, if the peers take it within two seconds and no request is under way.
void deliver_posted(ucp_worker& worker);
/// With the worker.
void end_endpoints(ucp_worker& worker);

/// Blocks, progressing, until the request has ended, and frees it: for the older blocking functions.
ucs_status_t wait_for(ucp_worker& worker, ucs_status_ptr_t request);
/// Flushes of an endpoint, of all of a worker's: with ucp_ep_flush_nbx's rules. NULL: all was there at once.
ucs_status_ptr_t flush(ucp_ep& handle, const Wanted& wanted);
ucs_status_ptr_t flush(ucp_worker& worker, const Wanted& wanted);
/// Has one become complete?
bool may_step_flushes(const ucp_worker& worker);
unsigned step_flushes(ucp_worker& worker);
void end_flushes(ucp_worker& worker);

}  // namespace thalweg::ucx
