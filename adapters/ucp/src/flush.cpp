// SPDX-License-Identifier: Apache-2.0
// Flush and fence. A flush has two parts: Thalweg's, of what is written, and the gets that were under way (ledger.hpp).
#include <new>
#include <utility>
#include <vector>

#include "endpoint.hpp"
#include "status.hpp"

namespace thalweg::ucx {

struct Flush {
  Request* request;
  std::vector<std::pair<Peer*, uint64_t>> gets;  // peers that may be gone meanwhile, and the cuts of their ledgers
  ucs_status_t status = UCS_OK;
};

namespace {

/// The worker's peers, or the handle's, where gets are under way.
std::vector<std::pair<Peer*, uint64_t>> under_way(ucp_worker& worker, const ucp_ep* handle) {
  std::vector<std::pair<Peer*, uint64_t>> gets;
  const auto add = [&](Peer& peer) {
    if (!peer.gets.empty()) gets.emplace_back(&peer, peer.gets.cut());
  };
  if (handle != nullptr) {
    if (handle->peer != nullptr) add(*handle->peer);
  } else {
    for (Peer* peer : worker.peers) add(*peer);
  }
  return gets;
}

ucs_status_t owed_by(ucp_worker& worker, const ucp_ep* handle) {
  if (handle != nullptr) return handle->peer != nullptr ? handle->peer->gets.take_owed() : UCS_OK;
  ucs_status_t first = UCS_OK;
  for (Peer* peer : worker.peers) {
    const ucs_status_t one = peer->gets.take_owed();
    if (first == UCS_OK) first = one;
  }
  return first;
}

bool step(ucp_worker& worker, Flush& flush) {
  Request& request = *flush.request;
  if (request.operation != TW_REQUEST_NONE) {
    const tw_status status = tw_request_test(request.operation);
    if (status == TW_IN_PROGRESS) return false;
    if (status < 0) flush.status = status_of(status);
    (void)tw_request_release(std::exchange(request.operation, TW_REQUEST_NONE));
  }
  std::erase_if(flush.gets, [&](const auto& one) {
    if (!worker.peers.contains(one.first)) return true;
    if (!one.first->gets.settled(one.second)) return false;
    const ucs_status_t owed = one.first->gets.take_owed();
    if (flush.status == UCS_OK) flush.status = owed;
    return true;
  });
  return flush.gets.empty();
}

/// The flush is under way, or ends with the next progress.
ucs_status_ptr_t begin(ucp_worker& worker, Request& request, bool written, std::vector<std::pair<Peer*, uint64_t>>&& gets,
                       ucs_status_t owed) {
  if (written && gets.empty()) {
    finish_later(request, owed);
    return handle_of(request);
  }
  if (gets.empty()) {
    const ucs_status_t told = tell_end(request);
    return told == UCS_OK ? handle_of(request) : pointer_of(told);
  }
  auto* const flush = new (std::nothrow) Flush{&request, std::move(gets), owed};
  if (flush == nullptr) return pointer_of(UCS_ERR_NO_MEMORY);
  worker.flushes.push_back(flush);
  worker.chores = true;
  return handle_of(request);
}

ucs_status_ptr_t flushed(ucp_worker& worker, ucp_ep* handle, const Wanted& wanted, const char* function) {
  tw_request operation = TW_REQUEST_NONE;
  const tw_status status =
      handle != nullptr ? tw_endpoint_flush(handle->endpoint, &operation) : tw_worker_flush(worker.worker, &operation);
  if (status < 0) return pointer_of(refused(status, function));
  auto gets = under_way(worker, handle);
  const bool written = status == TW_OK;
  const ucs_status_t owed = written ? owed_by(worker, handle) : UCS_OK;
  if (written && gets.empty() && !wanted.no_immediate) return pointer_of(owed);
  Request* const request = take(worker, wanted, kFlush);
  if (request == nullptr) return pointer_of(UCS_ERR_NO_MEMORY);
  request->operation = operation;
  if (handle != nullptr) {
    request->endpoint = handle;
    ++handle->pending;
  }
  return begin(worker, *request, written, std::move(gets), owed);
}

}  // namespace

ucs_status_ptr_t flush(ucp_ep& handle, const Wanted& wanted, const char* function) {
  return flushed(*handle.worker, &handle, wanted, function);
}
ucs_status_ptr_t flush(ucp_worker& worker, const Wanted& wanted, const char* function) {
  return flushed(worker, nullptr, wanted, function);
}

unsigned step_flushes(ucp_worker& worker) {
  std::vector<Flush*> done;
  std::erase_if(worker.flushes, [&](Flush* flush) {
    if (!step(worker, *flush)) return false;
    done.push_back(flush);
    return true;
  });
  for (Flush* flush : done) {
    finish(*flush->request, flush->status);
    delete flush;
  }
  return static_cast<unsigned>(done.size());
}

void end_flushes(ucp_worker& worker) {
  for (Flush* flush : worker.flushes) delete flush;
  worker.flushes.clear();
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  if (ucs_status_t s = check_fields("ucp_ep_flush_nbx", *param, kCommonFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return flush(*ep, wanted_send(*param), "ucp_ep_flush_nbx");
}

ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned, ucp_send_callback_t cb) {
  const Hold hold(*ep->worker);
  return flush(*ep, wanted_send(cb), "ucp_ep_flush_nb");
}

ucs_status_t ucp_ep_flush(ucp_ep_h ep) {
  const Hold hold(*ep->worker);
  return wait_for(*ep->worker, flush(*ep, Wanted{}, "ucp_ep_flush"));
}

ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h worker, const ucp_request_param_t* param) {
  if (ucs_status_t s = check_fields("ucp_worker_flush_nbx", *param, kCommonFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*worker);
  return flush(*worker, wanted_send(*param), "ucp_worker_flush_nbx");
}

ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h worker, unsigned, ucp_send_callback_t cb) {
  const Hold hold(*worker);
  return flush(*worker, wanted_send(cb), "ucp_worker_flush_nb");
}

ucs_status_t ucp_worker_flush(ucp_worker_h worker) {
  const Hold hold(*worker);
  return wait_for(*worker, flush(*worker, Wanted{}, "ucp_worker_flush"));
}

ucs_status_t ucp_worker_fence(ucp_worker_h worker) {
  const Hold hold(*worker);
  for (Peer* peer : worker->peers) {
    if (!peer->one_sided || peer->lost) continue;
    peer->one_sided = false;
    const tw_status status = tw_endpoint_fence(peer->endpoint);
    if (status < 0 && status != TW_ERR_PEER_LOST && status != TW_ERR_CLOSED) return failed("ucp_worker_fence", status);
  }
  return UCS_OK;
}

}  // extern "C"
