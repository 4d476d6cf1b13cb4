// SPDX-License-Identifier: Apache-2.0
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

struct Indirect {
  uint32_t id;
  uint32_t reply;
};

// ------------------------------------------------------------------------------------------------ arriving

/// Calls a handler with a payload, which ends unless the handler keeps it. *kept: whether it does.
template <class Call>
ucs_status_t offer(AmData& data, bool* kept, const Call& call) {
  data.in_handler = true;
  const ucs_status_t status = call(address_of(data));
  data.in_handler = false;
  *kept = status == UCS_INPROGRESS && !data.taken;
  if (!*kept) free_data(data);
  return status;
}

/// An older handler's payload that was announced, on its way here.
struct Fetch {
  AmHandler* handler;
  AmData* data;
  ucp_ep_h reply;  // counted in its `pending`; NULL: none
};

void fetched(void* arg, tw_request, tw_status status, const tw_recv_info*) {
  auto* const fetch = static_cast<Fetch*>(arg);
  AmData& data = *fetch->data;
  AmHandler& handler = *fetch->handler;
  if (status == TW_OK && handler.older != nullptr && !handler.worker->ending) {
    ucp_ep_h const reply = fetch->reply != nullptr && !fetch->reply->closed ? fetch->reply : nullptr;
    bool kept;
    (void)offer(data, &kept,
                [&](void* address) { return handler.older(handler.arg, address, data.length, reply, UCP_CB_PARAM_FLAG_DATA); });
  } else {
    free_data(data);
  }
  if (fetch->reply != nullptr && !handler.worker->ending) released(*fetch->reply);
  delete fetch;
}

void fetch_for_older(AmHandler& handler, const tw_am_message& message, ucp_ep_h reply) {
  AmData* const data = make_data(message.length, handler.worker->am_alignment);
  auto* const fetch = data != nullptr ? new (std::nothrow) Fetch{&handler, data, reply} : nullptr;
  if (fetch == nullptr) {
    if (data != nullptr) free_data(*data);
    return tell("an active message was dropped: no memory for its %zu bytes", message.length);
  }
  if (reply != nullptr) ++reply->pending;  // the handle stays until the payload is here, closed or not
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = fetched;
  options.arg = fetch;
  const tw_status status = tw_am_recv(message.descriptor, address_of(*data), message.length, &options, nullptr);
  if (status == TW_IN_PROGRESS) return;
  if (status < 0) (void)tw_am_release(message.descriptor);
  fetched(fetch, TW_REQUEST_NONE, status, nullptr);
}

/// What the handler was given: it keeps it, has fetched it, or is done with it.
tw_status announced(AmHandler& handler, const tw_am_message& message, const void* header, size_t length,
                    ucp_am_recv_param_t& param) {
  AmData* const data = make_data(0, 1);
  if (data == nullptr) return TW_OK;  // dropped; its sender completes
  data->descriptor = message.descriptor;
  data->length = message.length;
  param.recv_attr |= UCP_AM_RECV_ATTR_FLAG_RNDV;
  bool kept;
  const ucs_status_t status = offer(*data, &kept, [&](void* address) {
    return handler.callback(handler.arg, header, length, address, message.length, &param);
  });
  if (kept) return TW_IN_PROGRESS;
  if (status < 0) {
    tell(
        "an active message handler returned %d: the sender's request ends with UCS_OK all the same, because Thalweg tells a "
        "sender only whether its message was fetched or dropped (docs/adapters.md)",
        status);
  }
  return TW_OK;
}

tw_status arrived(AmHandler& handler, const tw_am_message& message, const void* header, size_t length,
                  ucp_am_recv_param_t& param) {
  const auto call = [&](void* data) {
    if (handler.older == nullptr) return handler.callback(handler.arg, header, length, data, message.length, &param);
    const unsigned flags = (param.recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 ? unsigned{UCP_CB_PARAM_FLAG_DATA} : 0u;
    return handler.older(handler.arg, data, message.length, param.reply_ep, flags);
  };
  const bool misaligned = reinterpret_cast<uintptr_t>(message.data) % handler.worker->am_alignment != 0;
  if ((handler.flags & UCP_AM_FLAG_PERSISTENT_DATA) == 0 && !misaligned) {
    (void)call(const_cast<void*>(message.data));
    return TW_OK;
  }
  AmData* const copy = make_data(message.length, handler.worker->am_alignment);
  if (copy == nullptr) return TW_OK;
  if (message.length != 0) std::memcpy(address_of(*copy), message.data, message.length);
  param.recv_attr |= UCP_AM_RECV_ATTR_FLAG_DATA;
  bool kept;
  (void)offer(*copy, &kept, call);
  return TW_OK;
}

tw_status deliver(AmHandler& handler, const tw_am_message& message, const void* header, size_t length, bool reply) {
  if (handler.worker->ending) return TW_OK;
  ucp_am_recv_param_t param{0, nullptr};
  if (reply) {
    param.reply_ep = handle_of(*handler.worker, message.endpoint);
    if (param.reply_ep == nullptr) return TW_OK;  // told: handlers of these messages rely on it
    param.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
  }
  if (message.data != nullptr || message.length == 0) return arrived(handler, message, header, length, param);
  if (handler.older == nullptr) return announced(handler, message, header, length, param);
  fetch_for_older(handler, message, param.reply_ep);
  return TW_OK;
}

template <bool kReply>
tw_status on_direct(void* arg, const tw_am_message* message) {
  return deliver(*static_cast<AmHandler*>(arg), *message, message->header, message->header_length, kReply);
}

tw_status on_indirect(void* arg, const tw_am_message* message) {
  auto& worker = *static_cast<ucp_worker*>(arg);
  Indirect before;
  if (message->header_length < sizeof before) return TW_OK;
  std::memcpy(&before, message->header, sizeof before);
  const auto at = worker.handlers.find(before.id);
  if (at == worker.handlers.end() || (at->second->callback == nullptr && at->second->older == nullptr)) {
    tell("an active message for id %u was dropped: no handler was set", before.id);
    return TW_OK;
  }
  const auto* const header = static_cast<const std::byte*>(message->header) + sizeof before;
  return deliver(*at->second, *message, header, message->header_length - sizeof before, before.reply != 0);
}

ucs_status_t set_handler(ucp_worker& worker, const AmHandler& given, const char* function) {
  const bool removes = given.callback == nullptr && given.older == nullptr;
  auto& entry = worker.handlers[given.id];
  if (entry == nullptr) entry = std::make_unique<AmHandler>();
  *entry = given;
  tw_status status = TW_OK;
  if (given.id >= kDirectIds) {
    status = tw_am_register(worker.worker, kIndirectId, on_indirect, &worker);
  } else {
    const auto id = static_cast<uint16_t>(2 * given.id);
    status = tw_am_register(worker.worker, id, removes ? nullptr : on_direct<false>, entry.get());
    if (status == TW_OK) {
      status = tw_am_register(worker.worker, static_cast<uint16_t>(id + 1), removes ? nullptr : on_direct<true>, entry.get());
    }
  }
  return status == TW_OK ? UCS_OK : failed(function, status);
}

// ------------------------------------------------------------------------------------------------ sending

struct Outgoing {
  unsigned id;
  const void* header;
  size_t header_length;
  bool reply;
  uint32_t flags;
};

tw_status post(ucp_ep& ep, const Outgoing& message, const Local& local, const tw_op_options* options, tw_request* operation) {
  if (message.id < kDirectIds) [[likely]] {
    const auto id = static_cast<uint16_t>(2 * message.id + (message.reply ? 1 : 0));
    return tw_am_send(ep.endpoint, id, message.header, message.header_length, local.buffer, local.length, options, operation);
  }
  const Indirect before{message.id, message.reply ? 1u : 0u};
  std::string header(reinterpret_cast<const char*>(&before), sizeof before);
  header.append(static_cast<const char*>(message.header), message.header_length);
  return tw_am_send(ep.endpoint, kIndirectId, header.data(), header.size(), local.buffer, local.length, options, operation);
}

ucs_status_ptr_t send(ucp_ep& ep, const Outgoing& message, const void* buffer, size_t count, ucp_datatype_t datatype,
                      const Wanted& wanted, const char* function) {
  if (message.id > UINT16_MAX) return pointer_of(UCS_ERR_INVALID_PARAM);
  Local local;
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(*ep.worker, wanted, kAmSend);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->endpoint = &ep;
  ++ep.pending;
  const tw_op_options* const options = options_for(*request, local.layout, message.flags);
  return posted(*request, post(ep, message, local, options, &request->operation), wanted, function);
}

uint32_t flags_of(unsigned flags) {
  return ((flags & UCP_AM_SEND_FLAG_EAGER) != 0 ? unsigned{TW_OP_EAGER} : 0u) |
         ((flags & UCP_AM_SEND_FLAG_RNDV) != 0 ? unsigned{TW_OP_RENDEZVOUS} : 0u);
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
#if THALWEG_UCX_1_22
                              | UCP_AM_SEND_FLAG_COPY_HEADER
#endif
      ;
  if (ucs_status_t s = check_mask("ucp_am_send_nbx", "flags", flags, kFlags); s != UCS_OK) return pointer_of(s);
  const ucp_datatype_t datatype = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param->datatype : kBytes;
  const Outgoing message{id, header, header_length, (flags & UCP_AM_SEND_FLAG_REPLY) != 0, flags_of(flags)};
  const Hold hold(*ep->worker);
  return send(*ep, message, buffer, count, datatype, wanted_send(*param), "ucp_am_send_nbx");
}

ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void* buffer, size_t count, ucp_datatype_t datatype,
                                ucp_send_callback_t cb, unsigned flags) {
  constexpr unsigned kFlags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV;
  if (ucs_status_t s = check_mask("ucp_am_send_nb", "flags", flags, kFlags); s != UCS_OK) return pointer_of(s);
  const Outgoing message{id, nullptr, 0, (flags & UCP_AM_SEND_FLAG_REPLY) != 0, flags_of(flags)};
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
  const bool here = data.descriptor == nullptr;
  ucs_status_ptr_t const request =
      recv_data(*worker, data, {buffer, count, datatype}, wanted_am(*param), "ucp_am_recv_data_nbx");
  if (here && !UCS_PTR_IS_ERR(request) && (param->op_attr_mask & UCP_OP_ATTR_FIELD_RECV_INFO) != 0) {
    *param->recv_info.length = length;
  }
  return request;
}

void ucp_am_data_release(ucp_worker_h worker, void* address) {
  const Hold hold(*worker);
  drop(data_of(address));
}

}  // extern "C"
