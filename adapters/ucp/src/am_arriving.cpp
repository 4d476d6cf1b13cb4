// SPDX-License-Identifier: Apache-2.0
// Active messages that arrive, from Thalweg's handlers to the user's.
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "am.hpp"
#include "endpoint.hpp"
#include "request.hpp"
#include "status.hpp"

namespace thalweg::ucx {
namespace {

bool is_set(const AmHandler& handler) { return handler.callback != nullptr || handler.older != nullptr; }

/// One message for the user's handler.
struct Message {
  AmHandler* handler;
  const void* header;
  size_t header_length;
  ucp_ep* reply;  // NULL: none
};

/// The user's function; attributes: UCP_AM_RECV_ATTR_FLAG_* of the data.
ucs_status_t call(const Message& message, void* data, size_t length, uint64_t attributes) {
  const AmHandler& handler = *message.handler;
  if (handler.older != nullptr) {
    const bool kept = (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    return handler.older(handler.arg, data, length, message.reply, kept ? unsigned{UCP_CB_PARAM_FLAG_DATA} : 0u);
  }
  ucp_am_recv_param_t param{attributes, message.reply};
  if (message.reply != nullptr) param.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
  return handler.callback(handler.arg, message.header, message.header_length, data, length, &param);
}

/// What a handler did with a payload: fetched or released it, keeps it, or neither.
enum class Fate { taken, kept, left };

/// Calls the handler with a payload of ours, which ends unless the handler keeps it.
Fate offer(const Message& message, AmData& data, uint64_t attributes) {
  data.in_handler = true;
  const ucs_status_t status = call(message, address_of(data), data.length, attributes);
  data.in_handler = false;
  const Fate fate = data.taken ? Fate::taken : status == UCS_INPROGRESS ? Fate::kept : Fate::left;
  if (fate == Fate::left && data.descriptor != nullptr && status < 0) {
    tell(
        "an active message handler returned %d: the sender's request ends with UCS_OK all the same, because Thalweg tells a "
        "sender only whether its message was fetched or dropped (docs/adapters.md)",
        status);
  }
  if (fate != Fate::kept) free_data(data);
  return fate;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ later than they arrive

/// A message that its handler gets after the call that it arrived in, or once its payload is here. Its reply endpoint stays.
struct Waiting {
  explicit Waiting(const Message& message)
      : handler(message.handler),
        header(static_cast<const char*>(message.header), message.header_length),
        reply(message.reply) {
    if (reply == nullptr) return;
    ++reply->awaited;
    peer = reply->peer;
    peer_id = peer->id;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (reply != nullptr) no_longer_awaited(*reply);
  }
  AmHandler* handler;
  std::string header;
  AmData* data = nullptr;
  ucp_ep* reply;
  Peer* peer = nullptr;  // of the reply endpoint; it may be gone: see peer_id
  uint64_t peer_id = 0;
  tw_am_data* kept = nullptr;  // the message as Thalweg has it: its sender's credit is held until then
  // Of one that is fetched first.
  tw_endpoint* endpoint = nullptr;
  uint64_t length = 0;
};

namespace {

/// What it is told with now. NULL: none, or its connection has ended.
ucp_ep* reply_of(const Waiting& waiting) {
  if (waiting.reply == nullptr || !waiting.reply->closed) return waiting.reply;
  if (!is_alive(*waiting.handler->worker, waiting.peer, waiting.peer_id)) return nullptr;
  ucp_ep* const other = handle_of(*waiting.peer);  // the user has closed the one that it arrived for
  if (other != nullptr) waiting.peer->unread = false;
  return other;
}

/// To its handler now: outside of Thalweg's.
void tell_waiting(Waiting& waiting) {
  AmData& data = *waiting.data;
  const ucp_worker& worker = *waiting.handler->worker;
  tw_am_data* const descriptor = data.descriptor;
  const bool ends = worker.ending || !is_set(*waiting.handler);
  const Message message{waiting.handler, waiting.header.data(), waiting.header.size(), ends ? nullptr : reply_of(waiting)};
  // Handlers of messages with a reply endpoint rely on it; the older functions document that there may be none.
  const bool unanswerable = waiting.reply != nullptr && message.reply == nullptr && waiting.handler->older == nullptr;
  const bool dropped = ends || unanswerable;
  if (unanswerable && !ends)
    tell("an active message was dropped: its connection has ended, and with it the endpoint for replies");
  Fate fate = Fate::left;
  if (dropped) {
    free_data(data);
  } else {
    fate = offer(message, data, descriptor != nullptr ? UCP_AM_RECV_ATTR_FLAG_RNDV : UCP_AM_RECV_ATTR_FLAG_DATA);
  }
  if (fate == Fate::left && descriptor != nullptr && !worker.ending) (void)tw_am_release(descriptor);
  if (waiting.kept != nullptr && !worker.ending) (void)tw_am_release(waiting.kept);
}

void start_fetches(ucp_worker& worker, tw_endpoint* endpoint);

void end_fetch(std::unique_ptr<Waiting> waiting, tw_status status) {
  ucp_worker& worker = *waiting->handler->worker;
  if (status != TW_OK) {
    free_data(*waiting->data);
  } else if (worker.holding != 0) {
    postpone(worker, [held = std::shared_ptr<Waiting>(std::move(waiting))] { tell_waiting(*held); });
  } else {
    tell_waiting(*waiting);
  }
}

void fetched(void* arg, tw_request, tw_status status, const tw_recv_info*) {
  std::unique_ptr<Waiting> waiting(static_cast<Waiting*>(arg));
  ucp_worker& worker = *waiting->handler->worker;
  tw_endpoint* const endpoint = waiting->endpoint;
  Fetches& fetches = worker.fetches[endpoint];
  --fetches.count;
  fetches.bytes -= waiting->length;
  end_fetch(std::move(waiting), status);
  if (!worker.ending) start_fetches(worker, endpoint);
}

void no_memory_for(size_t length) { tell("an active message was dropped: no memory for its %zu bytes", length); }

/// Asks for the payload. False: that came to nothing, and the message is gone.
bool start_fetch(ucp_worker& worker, std::unique_ptr<Waiting> waiting) {
  tw_am_data* const descriptor = std::exchange(waiting->kept, nullptr);
  waiting->data = make_data(waiting->length, worker.am_alignment);
  if (waiting->data == nullptr) {
    no_memory_for(waiting->length);
    (void)tw_am_release(descriptor);
    return false;
  }
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = fetched;
  options.arg = waiting.get();
  const tw_status status = tw_am_recv(descriptor, address_of(*waiting->data), waiting->length, &options, nullptr);
  if (status == TW_IN_PROGRESS) {
    (void)waiting.release();
    return true;
  }
  if (status < 0) (void)tw_am_release(descriptor);
  end_fetch(std::move(waiting), status);
  return false;
}

/// Of an endpoint, in their order, as far as its peer may have under way: it chooses the lengths, and may never send the bytes.
void start_fetches(ucp_worker& worker, tw_endpoint* endpoint) {
  for (;;) {
    const auto at = worker.fetches.find(endpoint);
    if (at == worker.fetches.end()) return;
    Fetches& fetches = at->second;
    if (fetches.waiting.empty()) {
      if (fetches.count == 0) worker.fetches.erase(at);
      return;
    }
    const uint64_t length = fetches.waiting.front()->length;
    if (fetches.count != 0 && (fetches.count == kMostFetches || fetches.bytes + length > kMostFetchedBytes)) return;
    std::unique_ptr<Waiting> next = std::move(fetches.waiting.front());
    fetches.waiting.pop_front();
    ++fetches.count;
    fetches.bytes += length;
    if (start_fetch(worker, std::move(next))) continue;
    Fetches& now = worker.fetches[endpoint];  // a handler may have run
    --now.count;
    now.bytes -= length;
  }
}

/// An announced payload that its handler gets whole.
tw_status fetch_first(const Message& message, const tw_am_message& given) {
  ucp_worker& worker = *message.handler->worker;
  auto waiting = std::make_unique<Waiting>(message);
  waiting->kept = given.descriptor;
  waiting->endpoint = given.endpoint;
  waiting->length = given.length;
  worker.fetches[given.endpoint].waiting.push_back(std::move(waiting));
  start_fetches(worker, given.endpoint);
  return TW_IN_PROGRESS;
}

/// The same after the user's call that is under way.
tw_status arrived_in_call(const Message& message, const tw_am_message& given, bool here) {
  ucp_worker& worker = *message.handler->worker;
  AmData* const data = make_data(here ? given.length : 0, here ? worker.am_alignment : 1);
  if (data == nullptr) {
    no_memory_for(given.length);
    return TW_OK;
  }
  if (here && given.length != 0) std::memcpy(address_of(*data), given.data, given.length);
  if (!here) data->descriptor = given.descriptor;
  data->length = given.length;
  auto held = std::make_shared<Waiting>(message);
  held->data = data;
  if (here) held->kept = given.descriptor;
  postpone(worker, [held = std::move(held)] { tell_waiting(*held); });
  return TW_IN_PROGRESS;
}

// ------------------------------------------------------------------------------------------------ as they arrive

tw_status announced(const Message& message, const tw_am_message& given) {
  AmData* const data = make_data(0, 1);
  if (data == nullptr) return TW_OK;  // dropped; its sender completes
  data->descriptor = given.descriptor;
  data->length = given.length;
  return offer(message, *data, UCP_AM_RECV_ATTR_FLAG_RNDV) == Fate::kept ? TW_IN_PROGRESS : TW_OK;
}

tw_status arrived(const Message& message, const tw_am_message& given) {
  const AmHandler& handler = *message.handler;
  const bool misaligned = reinterpret_cast<uintptr_t>(given.data) % handler.worker->am_alignment != 0;
  if ((handler.flags & UCP_AM_FLAG_PERSISTENT_DATA) == 0 && !misaligned) {
    (void)call(message, const_cast<void*>(given.data), given.length, 0);
    return TW_OK;
  }
  AmData* const copy = make_data(given.length, handler.worker->am_alignment);
  if (copy == nullptr) {
    no_memory_for(given.length);
    return TW_OK;
  }
  if (given.length != 0) std::memcpy(address_of(*copy), given.data, given.length);
  (void)offer(message, *copy, UCP_AM_RECV_ATTR_FLAG_DATA);
  return TW_OK;
}

/// flags: of Indirect.
tw_status deliver(AmHandler& handler, const tw_am_message& given, const void* header, size_t length, uint32_t flags) {
  ucp_worker& worker = *handler.worker;
  if (worker.ending) return TW_OK;
  Message message{&handler, header, length, nullptr};
  if ((flags & kWithReply) != 0) {
    message.reply = handle_of(worker, given.endpoint);
    if (message.reply == nullptr) return TW_OK;  // told: handlers of these messages rely on it
    message.reply->peer->unread = false;         // the user gets a handle to read its stream with
  }
  const bool here = given.data != nullptr || given.length == 0;
  if (!here && (handler.older != nullptr || (flags & kWhole) != 0)) {
    return fetch_first(message, given);
  }
  if (worker.holding != 0) [[unlikely]]
    return arrived_in_call(message, given, here);
  return here ? arrived(message, given) : announced(message, given);
}

template <uint32_t kFlags>
tw_status on_direct(void* arg, const tw_am_message* given) {
  return deliver(*static_cast<AmHandler*>(arg), *given, given->header, given->header_length, kFlags);
}

tw_status on_indirect(void* arg, const tw_am_message* given) {
  auto& worker = *static_cast<ucp_worker*>(arg);
  Indirect before;
  if (given->header_length < sizeof before) return TW_OK;
  std::memcpy(&before, given->header, sizeof before);
  const auto at = worker.handlers.find(before.id);
  if (at == worker.handlers.end() || !is_set(*at->second)) {
    tell("an active message for id %u was dropped: no handler was set", before.id);
    return TW_OK;
  }
  const auto* const header = static_cast<const std::byte*>(given->header) + sizeof before;
  return deliver(*at->second, *given, header, given->header_length - sizeof before, before.flags);
}

}  // namespace

Fetches::Fetches() = default;
Fetches::~Fetches() = default;

ucs_status_t open_am_handlers(ucp_worker& worker) {
  const tw_status status = tw_am_register(worker.worker, kIndirectId, on_indirect, &worker);
  return status == TW_OK ? UCS_OK : failed("ucp_worker_create", status);
}

ucs_status_t set_handler(ucp_worker& worker, const AmHandler& given, const char* function) {
  auto& entry = worker.handlers[given.id];
  if (entry == nullptr) entry = std::make_unique<AmHandler>();
  *entry = given;
  if (given.id >= kDirectIds) return UCS_OK;
  const auto id = static_cast<uint16_t>(2 * given.id);
  tw_status status = tw_am_register(worker.worker, id, is_set(given) ? on_direct<0> : nullptr, entry.get());
  if (status == TW_OK) {
    status = tw_am_register(worker.worker, static_cast<uint16_t>(id + 1), is_set(given) ? on_direct<kWithReply> : nullptr,
                            entry.get());
  }
  return status == TW_OK ? UCS_OK : failed(function, status);
}

}  // namespace thalweg::ucx
