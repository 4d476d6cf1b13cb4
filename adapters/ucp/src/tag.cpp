// SPDX-License-Identifier: Apache-2.0
// Tagged messages.
#include "datatype.hpp"
#include "endpoint.hpp"
#include "request.hpp"
#include "status.hpp"

namespace thalweg::ucx {
namespace {

constexpr uint32_t kSendFields = kCommonFields | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
constexpr uint32_t kRecvFields = kSendFields | UCP_OP_ATTR_FIELD_RECV_INFO;
// What the short ways take: of contiguous bytes, with a request of the pool, of a worker that is not guarded.
constexpr uint32_t kShortFields = kCommonFields & ~(UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
constexpr uint32_t kShortSendFields = kShortFields | UCP_OP_ATTR_FIELD_DATATYPE;
constexpr uint32_t kShortRecvFields = kShortSendFields | UCP_OP_ATTR_FIELD_RECV_INFO | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;

/// Tagged messages have no flags.
inline ucs_status_t check(const char* function, const ucp_request_param_t& param, uint32_t known) {
  if (ucs_status_t s = check_fields(function, param, known); s != UCS_OK) return s;
  return check_flags(function, param, 0);
}

ucp_datatype_t datatype_of(const ucp_request_param_t& param) {
  return (param.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param.datatype : kBytes;
}

[[gnu::noinline]] ucs_status_ptr_t send_with(ucp_ep& ep, const void* buffer, size_t count, ucp_datatype_t datatype,
                                             ucp_tag_t tag, uint32_t flags, const Wanted& wanted, const char* function) {
  Local local;
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(*ep.worker, wanted, kTagSend);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  request->endpoint = &ep;
  ++ep.pending;
  const tw_status status =
      tw_send(ep.endpoint, local.buffer, local.length, tag, options_for(*request, local.layout, flags), &request->operation);
  return posted(*request, status, wanted, function);
}

/// A message that was posted without a request is under way, or refused.
[[gnu::noinline]] ucs_status_ptr_t not_at_once(ucp_ep& ep, const void* buffer, tw_status status, tw_request operation,
                                               const Wanted& wanted, const char* function) {
  Request* const request = take(*ep.worker, wanted, kTagSend);
  request->operation = operation;
  request->buffer = buffer;
  request->endpoint = &ep;
  ++ep.pending;
  // Late rather than with the buffer in use: no other way to learn its end is left.
  if (status == TW_IN_PROGRESS && tell_end(*request) != UCS_OK) status = tw_request_finish(operation);
  return posted(*request, status, wanted, function);
}

[[gnu::noinline]] ucs_status_ptr_t not_at_once(ucp_ep& ep, const void* buffer, tw_status status, tw_request operation,
                                               const ucp_request_param_t& param, const char* function) {
  return not_at_once(ep, buffer, status, operation, wanted_send(param), function);
}

/// The worker can give a request: what is under way has one. Contiguous messages that are complete at once take none, so what is wanted
/// is asked for the others only.
template <class Asked>
inline ucs_status_ptr_t send_bytes(ucp_ep& ep, const void* buffer, size_t length, ucp_tag_t tag, const Asked& asked,
                                   const char* function) {
  tw_request operation;
  const tw_status status = tw_send(ep.endpoint, length != 0 ? buffer : empty_buffer, length, tag, nullptr, &operation);
  if (status == TW_OK) [[likely]]
    return nullptr;
  return not_at_once(ep, buffer, status, operation, asked, function);
}

ucs_status_ptr_t send(ucp_ep& ep, const void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag,
                      const Wanted& wanted, const char* function) {
  if ((datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG || wanted.no_immediate)
    return send_with(ep, buffer, count, datatype, tag, 0, wanted, function);
  if (wanted.memory == nullptr && !ep.worker->pool.reserve()) return pointer_of(UCS_ERR_NO_MEMORY);
  const size_t length = count * (datatype >> UCP_DATATYPE_SHIFT);
  return send_bytes(ep, buffer, length, tag, wanted, function);
}

[[gnu::noinline]] ucs_status_ptr_t send_slowly(ucp_ep& ep, const void* buffer, size_t count, ucp_tag_t tag,
                                               const ucp_request_param_t& param, const char* function) {
  if (ucs_status_t s = check(function, param, kSendFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep.worker);
  return send(ep, buffer, count, datatype_of(param), tag, wanted_send(param), function);
}

[[gnu::noinline]] ucs_status_ptr_t recv_described(ucp_worker& worker, void* buffer, size_t count, ucp_datatype_t datatype,
                                                  ucp_tag_t tag, ucp_tag_t mask, const Wanted& wanted, const char* function) {
  Local local;
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(worker, wanted, kTagRecv);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  local.call.outcome = &request->unpacked;
  const tw_status status = tw_recv(worker.worker, local.buffer, local.length, tag, mask, options_for(*request, local.layout, 0),
                                   &request->operation);
  if (status == TW_IN_PROGRESS) return handle_of(*request);
  give_back(*request);
  return pointer_of(failed(function, status));
}

/// Contiguous bytes.
inline ucs_status_ptr_t recv_bytes(ucp_worker& worker, void* buffer, size_t length, ucp_tag_t tag, ucp_tag_t mask,
                                   const Wanted& wanted, tw_callback end, const char* function) {
  Request* const request = take(worker, wanted, kTagRecv);
  if (request == nullptr) [[unlikely]]
    return pointer_of(UCS_ERR_NO_MEMORY);
  if (length == 0) buffer = empty_buffer;
  request->buffer = buffer;
  const tw_status status =
      tw_recv(worker.worker, buffer, length, tag, mask, calls_for(*request, worker, end), &request->operation);
  if (status == TW_IN_PROGRESS) [[likely]]
    return handle_of(*request);
  give_back(*request);
  return pointer_of(failed(function, status));
}

/// Programs that ignore what a receive returned ask the request in their memory: it has ended by the error.
ucs_status_ptr_t shown(ucs_status_ptr_t returned, const Wanted& wanted) {
  if (UCS_PTR_IS_ERR(returned) && wanted.memory != nullptr)
    request_of(wanted.memory).status.store(UCS_PTR_STATUS(returned), std::memory_order_release);
  return returned;
}

ucs_status_ptr_t recv(ucp_worker& worker, void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t mask,
                      const Wanted& wanted, const char* function) {
  if ((datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG)
    return shown(recv_described(worker, buffer, count, datatype, tag, mask, wanted, function), wanted);
  return shown(recv_bytes(worker, buffer, count * (datatype >> UCP_DATATYPE_SHIFT), tag, mask, wanted, ended, function),
               wanted);
}

[[gnu::noinline]] ucs_status_ptr_t recv_slowly(ucp_worker& worker, void* buffer, size_t count, ucp_tag_t tag, ucp_tag_t mask,
                                               const ucp_request_param_t& param, const char* function) {
  if (ucs_status_t s = check(function, param, kRecvFields); s != UCS_OK) return shown(pointer_of(s), wanted_recv(param));
  const Hold hold(worker);
  return recv(worker, buffer, count, datatype_of(param), tag, mask, wanted_recv(param), function);
}

ucs_status_ptr_t recv_message(ucp_worker& worker, void* buffer, size_t count, ucp_datatype_t datatype,
                              ucp_tag_message_h message, const Wanted& wanted, const char* function) {
  Local local;
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(worker, wanted, kTagRecv);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  local.call.outcome = &request->unpacked;
  const tw_status status = tw_message_recv(reinterpret_cast<tw_message*>(message), local.buffer, local.length,
                                           options_for(*request, local.layout, 0), &request->operation);
  return posted(*request, status, wanted, function);
}

}  // namespace
}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t* param) {
  const ucp_datatype_t datatype = datatype_of(*param);
  if ((param->op_attr_mask & ~kShortSendFields) != 0 || (datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG ||
      ep->worker->guarded || !ep->worker->pool.has_free()) [[unlikely]]
    return send_slowly(*ep, buffer, count, tag, *param, "ucp_tag_send_nbx");
  const size_t length = count * (datatype >> UCP_DATATYPE_SHIFT);
  return send_bytes(*ep, buffer, length, tag, *param, "ucp_tag_send_nbx");
}

ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t* param) {
  if (ucs_status_t s = check("ucp_tag_send_sync_nbx", *param, kSendFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return send_with(*ep, buffer, count, datatype_of(*param), tag, TW_OP_SYNC, wanted_send(*param), "ucp_tag_send_sync_nbx");
}

ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag,
                                 ucp_send_callback_t cb) {
  const Hold hold(*ep->worker);
  return send(*ep, buffer, count, datatype, tag, wanted_send(cb), "ucp_tag_send_nb");
}

ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb) {
  const Hold hold(*ep->worker);
  return send_with(*ep, buffer, count, datatype, tag, TW_OP_SYNC, wanted_send(cb), "ucp_tag_send_sync_nb");
}

ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag,
                              void* req) {
  const Hold hold(*ep->worker);
  Wanted wanted;
  wanted.memory = req;
  return UCS_PTR_STATUS(send(*ep, buffer, count, datatype, tag, wanted, "ucp_tag_send_nbr"));
}

ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_t tag, ucp_tag_t tag_mask,
                                  const ucp_request_param_t* param) {
  const ucp_datatype_t datatype = datatype_of(*param);
  if ((param->op_attr_mask & ~kShortRecvFields) != 0 || (datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG ||
      worker->guarded) [[unlikely]]
    return recv_slowly(*worker, buffer, count, tag, tag_mask, *param, "ucp_tag_recv_nbx");
  const size_t length = count * (datatype >> UCP_DATATYPE_SHIFT);
  Wanted wanted = wanted_recv(*param);
  wanted.memory = nullptr;  // as the fields say
  const tw_callback end = wanted.invoke != nullptr ? ended_receive : ended;
  return recv_bytes(*worker, buffer, length, tag, tag_mask, wanted, end, "ucp_tag_recv_nbx");
}

ucs_status_ptr_t ucp_tag_recv_nb(ucp_worker_h worker, void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag,
                                 ucp_tag_t tag_mask, ucp_tag_recv_callback_t cb) {
  const Hold hold(*worker);
  return recv(*worker, buffer, count, datatype, tag, tag_mask, wanted_recv(cb), "ucp_tag_recv_nb");
}

ucs_status_t ucp_tag_recv_nbr(ucp_worker_h worker, void* buffer, size_t count, ucp_datatype_t datatype, ucp_tag_t tag,
                              ucp_tag_t tag_mask, void* req) {
  const Hold hold(*worker);
  Wanted wanted;
  wanted.memory = req;
  const ucs_status_ptr_t posted = recv(*worker, buffer, count, datatype, tag, tag_mask, wanted, "ucp_tag_recv_nbr");
  return UCS_PTR_IS_ERR(posted) ? UCS_PTR_STATUS(posted) : UCS_OK;  // posted: the request tells the rest
}

ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask, int remove,
                                   ucp_tag_recv_info_t* info) {
  const Lock lock(*worker);
  tw_recv_info found;
  tw_message* message = nullptr;
  if (tw_probe(worker->worker, tag, tag_mask, nullptr, &found, remove != 0 ? &message : nullptr) != TW_OK) return nullptr;
  if (info != nullptr) *info = {found.tag, found.length};
  // Where it stays, the handle only says that there is one.
  return reinterpret_cast<ucp_tag_message_h>(remove != 0 ? static_cast<void*>(message) : empty_buffer);
}

ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_message_h message,
                                      const ucp_request_param_t* param) {
  if (ucs_status_t s = check("ucp_tag_msg_recv_nbx", *param, kRecvFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*worker);
  return recv_message(*worker, buffer, count, datatype_of(*param), message, wanted_recv(*param), "ucp_tag_msg_recv_nbx");
}

ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void* buffer, size_t count, ucp_datatype_t datatype,
                                     ucp_tag_message_h message, ucp_tag_recv_callback_t cb) {
  const Hold hold(*worker);
  return recv_message(*worker, buffer, count, datatype, message, wanted_recv(cb), "ucp_tag_msg_recv_nb");
}

}  // extern "C"
