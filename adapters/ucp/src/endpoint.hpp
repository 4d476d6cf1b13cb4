// SPDX-License-Identifier: Apache-2.0
// Endpoints. Thalweg has one connection between two workers, whoever asked for it and how often; UCX makes a new handle for each
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
  uint64_t pending = 0;  // operations under way with a request
  ucp_err_handler_t on_error{nullptr, nullptr};
  ucp_err_handling_mode_t mode = UCP_ERR_HANDLING_MODE_NONE;
  void* user_data = nullptr;
  bool user_owned = false;  // made by ucp_ep_create; else known to the user as a reply endpoint only
  bool closed = false;      // by the user; freed when nothing is pending
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
  tw_endpoint* endpoint = nullptr;
  bool addressed = false;  // by worker address
  bool lost = false;
  bool one_sided = false;  // puts or atomics since the last fence
  ucs_status_t why = UCS_OK;
  Ledger gets;
  std::vector<ucp_ep*> handles;  // the first one is what messages of the peer are told with
  std::unique_ptr<StreamState, StreamDeleter> stream;
  std::string remote;  // socket address as text
};

/// The handle that the peer behind an endpoint of Thalweg is known by, made where there is none: reply endpoints. NULL: it is gone.
ucp_ep* handle_of(ucp_worker& worker, tw_endpoint* endpoint);
/// This side ends a connection that cannot go on: what is pending ends, then the error handlers are called, as for a lost peer.
/// From progress, outside of handlers.
void break_connection(Peer& peer, ucs_status_t why);
/// An operation without a handle any more: the last one frees the closed handle.
void released(ucp_ep& handle);
/// Closes that may have become complete.
unsigned step_closing(ucp_worker& worker);
/// With the worker.
void end_endpoints(ucp_worker& worker);

/// Blocks, progressing, until the request has ended, and frees it: for the older blocking functions.
ucs_status_t wait_for(ucp_worker& worker, ucs_status_ptr_t request);
/// Flushes of an endpoint, of all of a worker's: with ucp_ep_flush_nbx's rules.
ucs_status_ptr_t flush(ucp_ep& handle, const Wanted& wanted, const char* function);
ucs_status_ptr_t flush(ucp_worker& worker, const Wanted& wanted, const char* function);
/// Those that wait for gets.
unsigned step_flushes(ucp_worker& worker);
void end_flushes(ucp_worker& worker);

}  // namespace thalweg::ucx
