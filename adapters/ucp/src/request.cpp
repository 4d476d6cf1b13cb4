// SPDX-License-Identifier: Apache-2.0
#include "request.hpp"

#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "endpoint.hpp"
#include "memory.hpp"
#include "status.hpp"
#include "stream.hpp"
#include "worker.hpp"

namespace thalweg::ucx {
namespace {

// One for each kind of callback.
void call_send(const Ended& e) { e.callback.send(e.handle, e.status); }
void call_recv(const Ended& e) {
  ucp_tag_recv_info_t info = e.info;
  e.callback.recv(e.handle, e.status, &info);
}
void call_stream(const Ended& e) { e.callback.stream(e.handle, e.status, e.info.length); }
void call_stream_nbx(const Ended& e) { e.callback.stream_nbx(e.handle, e.status, e.info.length, e.user_data); }
void call_am_nbx(const Ended& e) { e.callback.am_nbx(e.handle, e.status, e.info.length, e.user_data); }

}  // namespace

void call_send_nbx(const Ended& e) { e.callback.send_nbx(e.handle, e.status, e.user_data); }
void call_recv_nbx(const Ended& e) { e.callback.recv_nbx(e.handle, e.status, &e.info, e.user_data); }

Wanted wanted_stream(const ucp_request_param_t& param) { return wanted(param, call_stream_nbx); }
Wanted wanted_am(const ucp_request_param_t& param) { return wanted(param, call_am_nbx); }

Wanted wanted_send(ucp_send_callback_t callback) {
  Wanted wanted;
  wanted.invoke = callback != nullptr ? call_send : nullptr;
  wanted.callback = reinterpret_cast<void*>(callback);
  return wanted;
}

Wanted wanted_recv(ucp_tag_recv_callback_t callback) {
  Wanted wanted;
  wanted.invoke = callback != nullptr ? call_recv : nullptr;
  wanted.callback = reinterpret_cast<void*>(callback);
  wanted.no_immediate = true;
  return wanted;
}

Wanted wanted_stream(ucp_stream_recv_callback_t callback) {
  Wanted wanted;
  wanted.invoke = callback != nullptr ? call_stream : nullptr;
  wanted.callback = reinterpret_cast<void*>(callback);
  return wanted;
}

// ------------------------------------------------------------------------------------------------ the pool

Pool::Pool(const ucp_context& context) : context_(context), stride_((kRequestBytes + context.request_size + 15) / 16 * 16) {}

Pool::~Pool() {
  for (std::byte* chunk : chunks_) {
    if (context_.request_cleanup != nullptr) {
      for (size_t i = 0; i < kAtOnce; ++i) context_.request_cleanup(chunk + i * stride_ + kRequestBytes);
    }
    ::operator delete(chunk, std::align_val_t{64});
  }
}

bool Pool::grow() {
  auto* const chunk = static_cast<std::byte*>(::operator new(stride_ * kAtOnce, std::align_val_t{64}, std::nothrow));
  if (chunk == nullptr) return false;
  std::memset(chunk, 0, stride_ * kAtOnce);
  chunks_.push_back(chunk);
  for (size_t i = kAtOnce; i-- > 0;) {
    auto* const request = new (chunk + i * stride_) Request;
    if (context_.request_init != nullptr) context_.request_init(handle_of(*request));
    put(*request);
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ life

void give_back(Request& request) {
  if (request.layout != nullptr) tw_layout_destroy(request.layout);
  if (!request.pooled) {
    --request.worker->unpooled;
    return;
  }
  request.status.store(UCS_OK, std::memory_order_relaxed);  // a look through the pool sees that it is not under way
  request.worker->pool.put(request);
}

namespace {

/// A write whose request the user has freed already: the next flush tells of its failure, as UCX's do.
void owe_write(const Request& request, ucs_status_t status) {
  if (status == UCS_OK || !request.released || (request.kind != kPut && request.kind != kAtomic) || request.endpoint == nullptr)
    return;
  if (Peer* const peer = request.endpoint->peer; peer != nullptr) peer->gets.owe(status);
}

void leave_ledger(Request& request, ucs_status_t status) {
  if (!std::exchange(request.fetches, false)) return owe_write(request, status);
  // Not by the endpoint, which a forced close has parted from its peer: the peer's other endpoints have the same ledger.
  if (!is_alive(*request.worker, request.peer, request.peer_id)) return;
  request.peer->gets.end(request.get, status, request.released);
}

/// With several threads, who sees the status sees what the callback did, as in UCX. Until then the request is complete and under way:
/// what frees it leaves that to here.
void call_then_show(Request& request, Invoke invoke, ucs_status_t status) {
  ucp_worker& worker = *request.worker;
  const bool pooled = request.pooled;
  if (!pooled) --worker.unpooled;
  request.calling = true;
  invoke({request.callback, request.user_data, request.info, status, handle_of(request)});
  if (!request.calling) return;  // the callback has posted it anew
  request.calling = false;
  const bool free = request.released && pooled;
  request.status.store(status, std::memory_order_release);  // the last that is done with memory of the user's
  if (free) worker.pool.put(request);
}

}  // namespace

void finish(Request& request, ucs_status_t status) {
  ucp_worker& worker = *request.worker;
  if (request.layout != nullptr) tw_layout_destroy(request.layout);
  request.layout = nullptr;
  ucp_ep* const endpoint = request.endpoint;
  leave_ledger(request, status);
  const Invoke invoke = !request.muted && !worker.ending ? request.invoke : nullptr;
  if (invoke != nullptr && worker.multi) {
    call_then_show(request, invoke, status);
    if (endpoint != nullptr) released(*endpoint);
    return;
  }
  const bool free = request.released && request.pooled;
  // A callback gets a copy: from the store on another thread may free the request, or its memory.
  Ended ended{request.callback, request.user_data, request.info, status, handle_of(request)};
  if (!request.pooled) --worker.unpooled;
  // Release: a thread that sees the status sees the data.
  request.status.store(status, std::memory_order_release);
  if (invoke != nullptr) invoke(ended);
  if (free) worker.pool.put(request);
  if (endpoint != nullptr) released(*endpoint);
}

[[gnu::noinline]] void ended(void* arg, tw_request, tw_status status, const tw_recv_info* info) {
  Request& request = *static_cast<Request*>(arg);
  const ucp_worker& worker = *request.worker;
  request.info = {info->tag, info->length};
  ucs_status_t mine = status_of(status);
  // What the user's functions said tells more than that they failed.
  if (request.unpacked != UCS_OK && (status == TW_OK || status == TW_ERR_INVALID)) mine = request.unpacked;
  // This side closed by force: UCX calls that canceled.
  if (status == TW_ERR_CLOSED && request.endpoint != nullptr && request.endpoint->closed) mine = UCS_ERR_CANCELED;
  // In a call of the user's that is none of progress: callbacks wait for it.
  if (worker.holding != 0 && !worker.ending) [[unlikely]]
    return finish_later(request, mine);
  finish(request, mine);
}

void ended_receive(void* arg, tw_request operation, tw_status status, const tw_recv_info* info) {
  Request& request = *static_cast<Request*>(arg);
  const ucp_tag_recv_nbx_callback_t callback = request.callback.recv_nbx;
  if (status != TW_OK || request.worker->holding != 0 || request.released) [[unlikely]]
    return ended(arg, operation, status, info);
  const ucp_tag_recv_info_t copy{info->tag, info->length};  // as in finish()
  request.info = copy;
  void* const user_data = request.user_data;
  request.status.store(UCS_OK, std::memory_order_release);
  callback(handle_of(request), UCS_OK, &copy, user_data);
}

void finish_later(Request& request, ucs_status_t status) {
  ucp_worker& worker = *request.worker;
  request.next = nullptr;
  request.in_later = true;
  request.outcome = status;
  worker.chores = true;
  *worker.later_end = &request;
  worker.later_end = &request.next;
}

ucs_status_t tell_end(Request& request) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.queue = request.worker->queue;
  options.arg = &request;
  const tw_status status = tw_request_tell(request.operation, &options);
  if (status != TW_OK) return failed("a request", status);
  request.told = true;
  ++request.worker->told;
  request.worker->chores = true;
  return UCS_OK;
}

ucs_status_ptr_t posted(Request& request, tw_status status, const Wanted& wanted, const char* function) {
  if (status == TW_IN_PROGRESS) [[likely]]
    return handle_of(request);
  ucp_ep* const endpoint = request.endpoint;
  leave_ledger(request, UCS_OK);
  if (status == TW_OK && wanted.no_immediate) {
    finish_later(request, request.unpacked);
    return handle_of(request);
  }
  request.endpoint = nullptr;
  const ucs_status_t unpacked = request.unpacked;
  give_back(request);
  const ucs_status_t why = endpoint != nullptr && endpoint->endpoint == nullptr ? no_connection(*endpoint) : UCS_OK;
  if (endpoint != nullptr) released(*endpoint);
  if (status == TW_OK) return unpacked == UCS_OK ? nullptr : pointer_of(unpacked);
  return pointer_of(why != UCS_OK ? why : refused(status, function));
}

ucs_status_t refused(tw_status status, const char* function) {
  const bool told = status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED;
  return told ? status_of(status) : failed(function, status);
}

ucs_status_t check_fields(const char* function, const ucp_request_param_t& param, uint32_t known) {
  const uint32_t unknown = param.op_attr_mask & ~known;
  if (unknown == 0) [[likely]]
    return UCS_OK;
  if ((unknown & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0) {
    return unsupported(function, "UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL", "leave it out and cancel what did not complete at once");
  }
  return unknown_bits(function, "op_attr_mask", unknown);
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

namespace {

/// What the user declared, of the types that this library has, else what lies there.
ucs_memory_type_t memory_type_of(const Request& request) {
  switch (request.memory) {
    case UCS_MEMORY_TYPE_HOST:
    case UCS_MEMORY_TYPE_CUDA:
    case UCS_MEMORY_TYPE_CUDA_MANAGED:
      return static_cast<ucs_memory_type_t>(request.memory);
    default:
      return type_at(request.buffer);
  }
}

[[gnu::noinline]] void free_held(Request& request, bool mute) {
  const Lock lock(*request.worker);
  if (request.status.load(std::memory_order_relaxed) != UCS_INPROGRESS) {
    if (request.pooled) request.worker->pool.put(request);
    return;
  }
  request.released = true;
  request.muted = request.muted || mute;
}

/// Of the user's handle: the request goes back now, or when it ends.
inline void free_request(void* handle, bool mute) {
  if (handle == nullptr) return;
  Request& request = request_of(handle);
  ucp_worker& worker = *request.worker;
  if (worker.multi || !request.pooled || request.status.load(std::memory_order_relaxed) == UCS_INPROGRESS) [[unlikely]]
    return free_held(request, mute);
  worker.pool.put(request);
}

}  // namespace

extern "C" {

ucs_status_t ucp_request_check_status(void* request) {
  return request_of(request).status.load(std::memory_order_acquire);  // with the data
}

int ucp_request_is_completed(void* request) { return ucp_request_check_status(request) != UCS_INPROGRESS; }

ucs_status_t ucp_tag_recv_request_test(void* request, ucp_tag_recv_info_t* info) {
  const ucs_status_t status = ucp_request_check_status(request);
  if (status != UCS_INPROGRESS && info != nullptr) *info = request_of(request).info;
  return status;
}

ucs_status_t ucp_request_test(void* request, ucp_tag_recv_info_t* info) { return ucp_tag_recv_request_test(request, info); }

ucs_status_t ucp_stream_recv_request_test(void* request, size_t* length_p) {
  const ucs_status_t status = ucp_request_check_status(request);
  if (status == UCS_OK && length_p != nullptr) *length_p = request_of(request).info.length;
  return status;
}

void ucp_request_free(void* request) { free_request(request, true); }
void ucp_request_release(void* request) { free_request(request, false); }

void* ucp_request_alloc(ucp_worker_h) { return nullptr; }  // as its documentation says

void ucp_request_cancel(ucp_worker_h worker, void* handle) {
  if (worker == nullptr || handle == nullptr) return;
  const Hold hold(*worker);
  Request& request = request_of(handle);
  if (request.status.load(std::memory_order_relaxed) != UCS_INPROGRESS) return;
  if (over(request)) return;                // told by the next progress, or now
  if (request.kind == kStreamSend) return;  // the bytes behind it would take its place: it ends as it would have
  if (request.kind == kStreamRecv) return cancel_stream(request);
  if (request.operation == TW_REQUEST_NONE) return;
  (void)tw_request_cancel(request.operation);  // too late: it ends as it would have
}

ucs_status_t ucp_request_query(void* handle, ucp_request_attr_t* attr) {
  if (handle == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  const Request& request = request_of(handle);
  constexpr uint64_t kKnown = UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE |
                              UCP_REQUEST_ATTR_FIELD_STATUS | UCP_REQUEST_ATTR_FIELD_MEM_TYPE;
  if (ucs_status_t s = check_mask("ucp_request_query", "field_mask", attr->field_mask, kKnown); s != UCS_OK) return s;
  if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING) != 0) {
    constexpr const char* kNames[] = {"tag_send", "tag_recv", "am_send", "am_recv", "stream_send", "stream_recv",
                                      "put",      "get",      "atomic",  "flush",   "close"};
    const size_t room =
        (attr->field_mask & UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE) != 0 ? attr->debug_string_size : UCP_ENTITY_NAME_MAX;
    if (room != 0) std::snprintf(attr->debug_string, room, "%s by thalweg", kNames[request.kind]);
  }
  if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_STATUS) != 0) {
    attr->status = request.status.load(std::memory_order_acquire);  // with the data
  }
  if ((attr->field_mask & UCP_REQUEST_ATTR_FIELD_MEM_TYPE) != 0) attr->mem_type = memory_type_of(request);
  return UCS_OK;
}

}  // extern "C"
