// SPDX-License-Identifier: Apache-2.0
// Byte streams, by active messages of one id: UCX's say which endpoints have data and hand out data where it lies, which Thalweg's
// own byte streams do not. What nobody has received yet stays with its sender's credit, so a stream without a reader is bounded.
#pragma once
#include <deque>
#include <unordered_map>

#include "am.hpp"
#include "endpoint.hpp"
#include "request.hpp"

namespace thalweg::ucx {

struct Chunk {
  tw_am_data* descriptor;  // not fetched yet
  AmData* data;            // being fetched (descriptor NULL, here false), or here
  size_t length;
  size_t used;  // bytes that were received already
  bool here;
};

struct StreamState {
  explicit StreamState(ucp_worker* its_worker) : worker(its_worker) {}
  ucp_worker* worker;
  std::deque<Chunk> chunks;
  std::deque<Request*> receives;
  std::unordered_map<void*, AmData*> lent;  // by ucp_stream_recv_data_nb
  ucs_status_t broken = UCS_OK;             // bytes of it are lost: its connection ends in the next progress
};

ucs_status_t open_stream_handlers(ucp_worker& worker);
/// Fetches what arrived for receives that wait, and ends the connections of broken streams; outside of handlers.
unsigned load_streams(ucp_worker& worker);
/// The peer is lost: receives end.
void lose_stream(Peer& peer);
/// Its posted receives, or those of one endpoint, end with UCS_ERR_CANCELED in the next progress.
void cancel_receives(Peer& peer, const ucp_ep* endpoint);
void cancel_stream(Request& request);
/// Nobody reads it any more: its bytes end, so that their sender's requests do.
void drop_stream(Peer& peer);

}  // namespace thalweg::ucx
