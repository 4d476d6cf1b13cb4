// SPDX-License-Identifier: Apache-2.0
// Active messages: payloads, sending, and UCX's functions.
#include "am.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "datatype.hpp"
#include "endpoint.hpp"
#include "request.hpp"
#include "status.hpp"

namespace thalweg::ucx {

AmData* make_data(size_t length, size_t alignment) {
  const size_t before = std::max<size_t>({sizeof(AmData), alignment, 64});
  if (length > PTRDIFF_MAX - before) return nullptr;  // of a peer's message: no memory is that large, and the sum might wrap
  void* block = nullptr;
  if (posix_memalign(&block, std::max<size_t>(alignment, 64), before + length) != 0) return nullptr;
  AmData* const data = reinterpret_cast<AmData*>(static_cast<std::byte*>(block) + before) - 1;
  return new (data) AmData{block, nullptr, length, false, false};
}

void free_data(AmData& data) { std::free(data.block); }

void end_data(AmData& data) {
  data.taken = true;
  if (!data.in_handler) free_data(data);
}

namespace {

struct Outgoing {
  unsigned id;
  const void* header;
  size_t header_length;
  unsigned flags;  // UCP_AM_SEND_FLAG_*

  bool has(unsigned flag) const { return (flags & flag) != 0; }
};

/// With what the receiver must know in front of the header.
tw_status post_indirect(ucp_ep& ep, const Outgoing& message, uint32_t whole, const Local& local, const tw_op_options* options,
                        tw_request* operation) {
  const Indirect before{message.id, whole | (message.has(UCP_AM_SEND_FLAG_REPLY) ? kWithReply : 0u)};
  std::string header(reinterpret_cast<const char*>(&before), sizeof before);
  if (message.header_length != 0) header.append(static_cast<const char*>(message.header), message.header_length);
  return tw_am_send(ep.endpoint, kIndirectId, header.data(), header.size(), local.buffer, local.length, options, operation);
}

tw_status post_flagged(ucp_ep& ep, const Outgoing& message, const Local& local, const tw_op_options* options,
                       tw_request* operation) {
  if (message.id >= kDirectIds) return post_indirect(ep, message, 0, local, options, operation);
  const auto id = static_cast<uint16_t>(2 * message.id + (message.has(UCP_AM_SEND_FLAG_REPLY) ? 1 : 0));
  return tw_am_send(ep.endpoint, id, message.header, message.header_length, local.buffer, local.length, options, operation);
}

tw_status post(ucp_ep& ep, const Outgoing& message, const Local& local, Request& request) {
  const bool eager = message.has(UCP_AM_SEND_FLAG_EAGER);
  const uint32_t flags = eager ? TW_OP_EAGER : message.has(UCP_AM_SEND_FLAG_RNDV) ? TW_OP_RENDEZVOUS : 0;
  const tw_status status = post_flagged(ep, message, local, options_for(request, local.layout, flags), &request.operation);
  if (!eager || (status != TW_ERR_LIMIT && status != TW_ERR_UNSUPPORTED)) [[likely]]
    return status;
  // Longer than Thalweg's eager ones, or on a device: on its best way, and fetched by this library at the receiver.
  return post_indirect(ep, message, kWhole, local, options_for(request, local.layout, 0), &request.operation);
}

ucs_status_ptr_t send(ucp_ep& ep, const Outgoing& message, const void* buffer, size_t count, ucp_datatype_t datatype,
                      const Wanted& wanted, const char* function) {
  if (message.id > UINT16_MAX || (message.has(UCP_AM_SEND_FLAG_EAGER) && message.has(UCP_AM_SEND_FLAG_RNDV))) {
    return pointer_of(UCS_ERR_INVALID_PARAM);
  }
  Local local;
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(*ep.worker, wanted, kAmSend);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  request->endpoint = &ep;
  ++ep.pending;
  return posted(*request, post(ep, message, local, *request), wanted, function);
}

/// The payload ends, received or not.
void drop(AmData& data) {
  if (data.descriptor != nullptr) (void)tw_am_release(std::exchange(data.descriptor, nullptr));
  end_data(data);
}

/// Where ucp_am_recv_data_nbx puts a payload.
struct Into {
  void* buffer;
  size_t count;
  ucp_datatype_t datatype;
};

ucs_status_ptr_t copy_out(ucp_worker& worker, AmData& data, const Into& into, const Wanted& wanted, const char* function) {
  const Span from{address_of(data), data.length};
  if (ucs_status_t s = unpack_all(worker, function, into.datatype, into.buffer, into.count, from); s != UCS_OK) {
    return pointer_of(s);
  }
  if (!wanted.no_immediate) return nullptr;
  Request* const request = take(worker, wanted, kAmRecv);
  if (request == nullptr) return pointer_of(UCS_ERR_NO_MEMORY);
  request->info.length = data.length;
  finish_later(*request, UCS_OK);
  return handle_of(*request);
}

ucs_status_ptr_t fetch(ucp_worker& worker, AmData& data, const Into& into, const Wanted& wanted, const char* function) {
  Local local;
  if (ucs_status_t s = describe(function, into.datatype, into.buffer, into.count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(worker, wanted, kAmRecv);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  local.call.outcome = &request->unpacked;
  request->info.length = data.length;
  const tw_op_options* const options = options_for(*request, local.layout, 0);
  const tw_status status = tw_am_recv(data.descriptor, local.buffer, local.length, options, &request->operation);
  if (status >= 0) data.descriptor = nullptr;
  return posted(*request, status, wanted, function);
}

/// Receives the payload, and ends it in any case.
ucs_status_ptr_t recv_data(ucp_worker& worker, AmData& data, const Into& into, const Wanted& wanted, const char* function) {
  ucs_status_ptr_t const request =
      data.descriptor != nullptr ? fetch(worker, data, into, wanted, function) : copy_out(worker, data, into, wanted, function);
  drop(data);
  return request;
}

}  // namespace
}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker, const ucp_am_handler_param_t* param) {
  if (worker == nullptr || param == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                              UCP_AM_HANDLER_PARAM_FIELD_ARG;
  constexpr uint64_t kNeeded = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
  const uint64_t mask = param->field_mask;
  if (ucs_status_t s = check_mask("ucp_worker_set_am_recv_handler", "field_mask", mask, kKnown); s != UCS_OK) return s;
  if ((mask & kNeeded) != kNeeded || param->id > UINT16_MAX) return UCS_ERR_INVALID_PARAM;
  AmHandler handler;
  handler.worker = worker;
  handler.id = param->id;
  handler.callback = param->cb;
  if ((mask & UCP_AM_HANDLER_PARAM_FIELD_FLAGS) != 0) handler.flags = param->flags;
  if ((mask & UCP_AM_HANDLER_PARAM_FIELD_ARG) != 0) handler.arg = param->arg;
  constexpr uint64_t kFlags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  if (ucs_status_t s = check_mask("ucp_worker_set_am_recv_handler", "flags", handler.flags, kFlags); s != UCS_OK) return s;
  const Hold hold(*worker);
  return set_handler(*worker, handler, "ucp_worker_set_am_recv_handler");
}

ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker, uint16_t id, ucp_am_callback_t cb, void* arg, uint32_t flags) {
  if (worker == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kFlags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  if (ucs_status_t s = check_mask("ucp_worker_set_am_handler", "flags", flags, kFlags); s != UCS_OK) return s;
  AmHandler handler;
  handler.worker = worker;
  handler.id = id;
  handler.older = cb;
  handler.arg = arg;
  // Its data may always be kept, where this is passed: what older users do.
  handler.flags = flags | UCP_AM_FLAG_PERSISTENT_DATA;
  const Hold hold(*worker);
  return set_handler(*worker, handler, "ucp_worker_set_am_handler");
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_length, const void* buffer,
                                 size_t count, const ucp_request_param_t* param) {
  constexpr uint32_t kKnown = kCommonFields | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
  if (ucs_status_t s = check_fields("ucp_am_send_nbx", *param, kKnown); s != UCS_OK) return pointer_of(s);
  const unsigned flags = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0 ? param->flags : 0;
  constexpr unsigned kFlags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV
#if THALWEG_HAS_UCP_AM_SEND_FLAG_COPY_HEADER
                              | UCP_AM_SEND_FLAG_COPY_HEADER
#endif
      ;
  if (ucs_status_t s = check_mask("ucp_am_send_nbx", "flags", flags, kFlags); s != UCS_OK) return pointer_of(s);
  const ucp_datatype_t datatype = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param->datatype : kBytes;
  const Outgoing message{id, header, header_length, flags};
  const Hold hold(*ep->worker);
  return send(*ep, message, buffer, count, datatype, wanted_send(*param), "ucp_am_send_nbx");
}

ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void* buffer, size_t count, ucp_datatype_t datatype,
                                ucp_send_callback_t cb, unsigned flags) {
  constexpr unsigned kFlags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV;
  if (ucs_status_t s = check_mask("ucp_am_send_nb", "flags", flags, kFlags); s != UCS_OK) return pointer_of(s);
  const Outgoing message{id, nullptr, 0, flags};
  const Hold hold(*ep->worker);
  return send(*ep, message, buffer, count, datatype, wanted_send(cb), "ucp_am_send_nb");
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* data_desc, void* buffer, size_t count,
                                      const ucp_request_param_t* param) {
  constexpr uint32_t kKnown =
      kCommonFields | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_RECV_INFO;
  const Hold hold(*worker);
  AmData& data = data_of(data_desc);
  ucs_status_t checked = check_fields("ucp_am_recv_data_nbx", *param, kKnown);
  if (checked == UCS_OK) checked = check_flags("ucp_am_recv_data_nbx", *param, 0);
  if (checked != UCS_OK) {
    drop(data);
    return pointer_of(checked);
  }
  const ucp_datatype_t datatype = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param->datatype : kBytes;
  const size_t length = data.length;
  ucs_status_ptr_t const request =
      recv_data(*worker, data, {buffer, count, datatype}, wanted_am(*param), "ucp_am_recv_data_nbx");
  if (request == nullptr && (param->op_attr_mask & UCP_OP_ATTR_FIELD_RECV_INFO) != 0) *param->recv_info.length = length;
  return request;
}

void ucp_am_data_release(ucp_worker_h worker, void* address) {
  const Hold hold(*worker);
  drop(data_of(address));
}

}  // extern "C"
