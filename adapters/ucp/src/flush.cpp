// SPDX-License-Identifier: Apache-2.0
// Flush and fence. A flush has two parts: Thalweg's, of what is written, and the gets that were under way (ledger.hpp).
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "endpoint.hpp"
#include "status.hpp"

namespace thalweg::ucx {

struct Flush {
  struct Gets {
    Peer* peer;  // may be gone meanwhile
    uint64_t id;
    uint64_t cut;  // of its ledger
  };
  Request* request;
  ucs_status_t status = UCS_OK;
  std::vector<Gets> gets{};  // under way when it was asked for
};

namespace {

/// Of the handle's peer, or of all of the worker's.
template <class Visit>
void each_peer(ucp_worker& worker, const ucp_ep* handle, const Visit& visit) {
  if (handle == nullptr) {
    for (Peer* peer : worker.peers) visit(*peer);
  } else if (handle->peer != nullptr) {
    visit(*handle->peer);
  }
}

/// What nobody has been told of.
ucs_status_t owed_by(ucp_worker& worker, const ucp_ep* handle) {
  ucs_status_t first = UCS_OK;
  each_peer(worker, handle, [&](Peer& peer) {
    const ucs_status_t one = peer.gets.take_owed();
    if (first == UCS_OK) first = one;
  });
  return first;
}

/// Thalweg's part, within any call: it progresses, so what would call the user waits for the next progress. TW_OK: all that was written is
/// there, as after puts into mapped memory. TW_IN_PROGRESS: *operation tells.
tw_status begin(ucp_worker& worker, ucp_ep* handle, tw_request* operation) {
  const HoldBack held(worker);
  each_peer(worker, handle, [](Peer& peer) { peer.unflushed = false; });
  const tw_status status =
      handle != nullptr ? tw_endpoint_flush(handle->endpoint, operation) : tw_worker_flush(worker.worker, operation);
  // Until it ends, or where it did not begin, closes and flushes wait for what is written.
  if (status != TW_OK) each_peer(worker, handle, [](Peer& peer) { peer.unflushed = true; });
  return status;
}

bool settled(const ucp_worker& worker, const Flush::Gets& gets) {
  return !is_alive(worker, gets.peer, gets.id) || gets.peer->gets.settled(gets.cut);
}

/// What an endpoint that has ended meanwhile says: gets end with it, too.
void take_end_of(const ucp_ep& handle, Flush& flush) {
  if (handle.peer == nullptr) {
    flush.status = UCS_ERR_CANCELED;  // this side closed it by force
  } else if (handle.peer->lost && flush.status == UCS_OK) {
    flush.status = handle.peer->why;
  }
}

/// True: it has ended, with its status.
bool step(ucp_worker& worker, Flush& flush) {
  Request& request = *flush.request;
  if (request.operation != TW_REQUEST_NONE) {
    const tw_status status = tw_request_test(request.operation);
    if (status == TW_IN_PROGRESS) return false;
    if (status < 0) flush.status = status_of(status);
    (void)tw_request_release(std::exchange(request.operation, TW_REQUEST_NONE));
  }
  std::erase_if(flush.gets, [&](const Flush::Gets& gets) { return settled(worker, gets); });
  if (!flush.gets.empty()) return false;
  // Gets that failed before or meanwhile, and were asked for without a request.
  const ucs_status_t owed = owed_by(worker, request.endpoint);
  if (flush.status == UCS_OK) flush.status = owed;
  if (request.endpoint != nullptr) take_end_of(*request.endpoint, flush);
  return true;
}

ucs_status_ptr_t flushed(ucp_worker& worker, ucp_ep* handle, const Wanted& wanted) {
  if (const ucs_status_t why = handle != nullptr ? no_connection(*handle) : UCS_OK; why != UCS_OK) return pointer_of(why);
  bool flushes = false;
  std::vector<Flush::Gets> gets;
  each_peer(worker, handle, [&](Peer& peer) {
    flushes = flushes || (peer.unflushed && !peer.lost);
    if (!peer.gets.empty()) gets.push_back({&peer, peer.id, peer.gets.cut()});
  });
  tw_request operation = TW_REQUEST_NONE;
  const tw_status status = flushes ? begin(worker, handle, &operation) : TW_OK;
  if (status < 0) return pointer_of(refused(status, "a flush"));
  if (status == TW_OK && gets.empty() && !wanted.no_immediate) return pointer_of(owed_by(worker, handle));
  Request* const request = take(worker, wanted, kFlush);
  auto* const flush = request != nullptr ? new (std::nothrow) Flush{request} : nullptr;
  if (flush == nullptr) {
    if (request != nullptr) give_back(*request);
    if (operation != TW_REQUEST_NONE) (void)tw_request_release(operation);
    return pointer_of(UCS_ERR_NO_MEMORY);
  }
  flush->gets = std::move(gets);
  request->operation = operation;
  if (handle != nullptr) {
    request->endpoint = handle;
    ++handle->pending;
  }
  worker.flushes.push_back(flush);
  worker.chores = true;
  return handle_of(*request);
}

}  // namespace

ucs_status_ptr_t flush(ucp_ep& handle, const Wanted& wanted) { return flushed(*handle.worker, &handle, wanted); }
ucs_status_ptr_t flush(ucp_worker& worker, const Wanted& wanted) { return flushed(worker, nullptr, wanted); }

bool may_step_flushes(const ucp_worker& worker) {
  return std::any_of(worker.flushes.begin(), worker.flushes.end(), [&](const Flush* flush) {
    if (tw_request_test(flush->request->operation) == TW_IN_PROGRESS) return false;
    return std::all_of(flush->gets.begin(), flush->gets.end(), [&](const Flush::Gets& gets) { return settled(worker, gets); });
  });
}

unsigned step_flushes(ucp_worker& worker) {
  // Out of the list: a step progresses, and handlers may flush.
  std::vector<Flush*> stepped = std::exchange(worker.flushes, {});
  std::vector<Flush*> done;
  std::erase_if(stepped, [&](Flush* flush) {
    if (!step(worker, *flush)) return false;
    done.push_back(flush);
    return true;
  });
  worker.flushes.insert(worker.flushes.begin(), stepped.begin(), stepped.end());
  for (Flush* flush : done) {
    finish(*flush->request, flush->status);
    delete flush;
  }
  return static_cast<unsigned>(done.size());
}

void end_flushes(ucp_worker& worker) {
  for (Flush* flush : std::exchange(worker.flushes, {})) {
    finish(*flush->request, UCS_ERR_CANCELED);
    delete flush;
  }
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  if (ucs_status_t s = check_fields("ucp_ep_flush_nbx", *param, kCommonFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return flush(*ep, wanted_send(*param));
}

ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned, ucp_send_callback_t cb) {
  const Hold hold(*ep->worker);
  return flush(*ep, wanted_send(cb));
}

ucs_status_t ucp_ep_flush(ucp_ep_h ep) {
  const Hold hold(*ep->worker);
  return wait_for(*ep->worker, flush(*ep, Wanted{}));
}

ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker, const ucp_request_param_t* param) {
  if (ucs_status_t s = check_fields("ucp_worker_flush_nbx", *param, kCommonFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*worker);
  return flush(*worker, wanted_send(*param));
}

ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned, ucp_send_callback_t cb) {
  const Hold hold(*worker);
  return flush(*worker, wanted_send(cb));
}

ucs_status_t ucp_worker_flush(ucp_worker_h worker) {
  const Hold hold(*worker);
  return wait_for(*worker, flush(*worker, Wanted{}));
}

ucs_status_t ucp_worker_fence(ucp_worker_h worker) {
  const Hold hold(*worker);
  for (Peer* peer : worker->peers) {
    if (!peer->one_sided || peer->lost) continue;
    peer->one_sided = false;
    const tw_status status = tw_endpoint_fence(peer->endpoint);
    if (status >= 0 || status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED) continue;
    peer->one_sided = true;
    return failed("ucp_worker_fence", status);
  }
  return UCS_OK;
}

}  // extern "C"
