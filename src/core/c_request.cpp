// SPDX-License-Identifier: Apache-2.0
// C interface: requests.
#include <algorithm>
#include <vector>

#include "core/c_checks.hpp"
#include "protocols/stream_waits.hpp"

using namespace thalweg::impl;

namespace thalweg::impl {

Status find_worker(tw_request request, tw_worker** worker) {
  Engine* engine = Engine::engine_of(request);
  if (engine == nullptr) return fail(TW_ERR_HANDLE, "this request is not alive: it was released, or its worker is gone");
  *worker = static_cast<tw_worker*>(engine->owner());
  return (*worker)->born.check("request");
}

}  // namespace thalweg::impl

namespace {

/// Of an operation that has failed. Of a request that is none, and in a forked child, the text is there already.
void tell_why(tw_request request, Status status) {
  if (status != TW_ERR_HANDLE && status != TW_ERR_FORKED) set_last_error(Engine::message(request));
}

}  // namespace

extern "C" {

tw_status tw_request_test(tw_request request) {
  if (request == TW_REQUEST_NONE) return TW_OK;
  const Status status = Engine::test(request);
  if (is_error(status)) [[unlikely]]
    tell_why(request, status);
  return status;
}

tw_status tw_request_test_any(const tw_request* requests, size_t count, size_t* index) {
  if (index == nullptr || (requests == nullptr && count != 0)) return fail(TW_ERR_INVALID, "requests or index is NULL");
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    if (requests[i] == TW_REQUEST_NONE) continue;
    any = true;
    if (Engine::test(requests[i]) == TW_IN_PROGRESS) continue;
    *index = i;
    return TW_OK;
  }
  if (!any) return fail(TW_ERR_INVALID, "there is no request among the %zu given", count);
  return TW_IN_PROGRESS;
}

tw_status tw_request_wait(tw_request request, uint64_t timeout_ns) {
  Status status = tw_request_test(request);
  if (status != TW_IN_PROGRESS) return status;
  tw_worker* worker = nullptr;
  status = find_worker(request, &worker);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  Status result = TW_IN_PROGRESS;
  status = worker->wait_until([&] { return (result = Engine::test(request)) != TW_IN_PROGRESS; }, timeout_ns);
  if (status == TW_ERR_BUSY) return status;
  if (is_error(status)) return fail(status, "the operation goes on; test or wait again, or cancel it");
  if (is_error(result)) tell_why(request, result);
  return result;
}

tw_status tw_request_wait_any(const tw_request* requests, size_t count, uint64_t timeout_ns, size_t* index) {
  Status result = tw_request_test_any(requests, count, index);
  if (result != TW_IN_PROGRESS) return result;
  std::vector<tw_worker*> workers;
  for (size_t i = 0; i < count; ++i) {
    tw_worker* worker = nullptr;
    if (requests[i] == TW_REQUEST_NONE) continue;
    if (Status s = find_worker(requests[i], &worker); is_error(s)) return s;
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) workers.push_back(worker);
  }
  const Enter enter(*workers[0]);
  if (is_error(enter.status())) return enter.status();
  const uint64_t nap_ns = workers.size() == 1 ? 0 : kMillisecond / 2;  // the others' events do not end the first one's sleep
  const auto done = [&] {
    for (size_t i = 1; i < workers.size(); ++i) tw_worker_progress(workers[i]);
    return (result = tw_request_test_any(requests, count, index)) != TW_IN_PROGRESS;
  };
  const Status status = workers[0]->wait_until(done, timeout_ns, nap_ns);
  if (status == TW_ERR_BUSY) return status;
  if (is_error(status)) return fail(status, "none of the %zu requests has ended; they go on", count);
  return result;
}

tw_status tw_request_finish(tw_request request) {
  if (request == TW_REQUEST_NONE || Engine::finish(request) == TW_OK) return TW_OK;
  Status status = tw_request_wait(request, TW_FOREVER);
  if (status != TW_OK) {
    if (!Engine::over(request)) return status;  // the call was refused
    status = tw_request_test(request);          // which may be over since
  }
  Engine::release(request);
  return status;
}

tw_status tw_request_finish_all(tw_request* requests, size_t count) {
  if (requests == nullptr && count != 0) return fail(TW_ERR_INVALID, "requests is NULL");
  Status first = TW_OK;
  std::string why;
  for (size_t i = 0; i < count; ++i) {
    const Status status = tw_request_finish(requests[i]);
    if (is_error(status) && Engine::engine_of(requests[i]) != nullptr) return status;  // refused: it is alive
    if (is_error(status) && first == TW_OK) {
      first = status;
      why = last_error();
    }
    requests[i] = TW_REQUEST_NONE;
  }
  if (is_error(first)) set_last_error(why);
  return first;
}

tw_status tw_request_info(tw_request request, tw_recv_info* info) {
  if (info == nullptr) return fail(TW_ERR_INVALID, "info is NULL");
  return Engine::info(request, info);
}

const char* tw_request_message(tw_request request) { return Engine::message(request); }

tw_status tw_request_release(tw_request request) {
  if (request == TW_REQUEST_NONE) return TW_OK;
  return Engine::release(request);
}

tw_status tw_request_before(tw_request request, const void* stream) {
  if (request == TW_REQUEST_NONE) return TW_OK;
  tw_worker* worker = nullptr;
  const Status status = find_worker(request, &worker);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  return hold_stream(*worker->engine, request, stream);
}

tw_status tw_request_cancel(tw_request request) {
  tw_worker* worker = nullptr;
  const Status status = find_worker(request, &worker);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const Status canceled = worker->engine->cancel(request);
  worker->posted();  // its callback runs in progress
  return canceled;
}

}  // extern "C"
