// SPDX-License-Identifier: Apache-2.0
// C interface: tagged messages, active messages, byte streams.
#include "core/c_checks.hpp"
#include "memory/placement.hpp"
#include "protocols/eager.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint32_t kMoved = fields::layout | fields::told | fields::after;
constexpr Takes kSend{"tw_send", kMoved | fields::immediate, TW_OP_SYNC | TW_OP_NO_WAIT, false};
constexpr Takes kRecv{"tw_recv", kMoved | fields::source, 0, false};
constexpr Takes kProbe{"tw_probe", fields::source, 0, false};
constexpr Takes kMessageRecv{"tw_message_recv", kMoved, 0, false};
constexpr Takes kAmSend{"tw_am_send", kMoved, TW_OP_NO_WAIT | TW_OP_EAGER | TW_OP_RENDEZVOUS, false};
constexpr Takes kAmRecv{"tw_am_recv", kMoved, 0, false};
constexpr Takes kBytesSend{"tw_bytes_send", kMoved, TW_OP_NO_WAIT, false};
constexpr Takes kBytesRecv{"tw_bytes_recv", kMoved, TW_OP_WAIT_ALL, false};

inline Status start(tw_worker& worker, const OpDesc& op, const tw_op_options& options, tw_request* request) {
  const Status status = start_with_sink(worker, op, options, request);
  worker.posted();
  return status;
}

/// Descriptors are reused: one that was given back belongs to no engine until then.
Status check_data(const tw_am_data* data) {
  if (data == nullptr) return fail(TW_ERR_INVALID, "the descriptor is NULL");
  return data->engine != nullptr ? Status{TW_OK} : fail(TW_ERR_HANDLE, "this payload was received or released already");
}

inline Status wait_for(tw_worker& worker, tw_request request) {
  Status result = TW_IN_PROGRESS;
  worker.wait_until([&] { return (result = Engine::test(request)) != TW_IN_PROGRESS; }, TW_FOREVER);
  if (is_error(result)) set_last_error(Engine::message(request));
  return result;
}

Status need_completion(const tw_op_options& options, const tw_request* request) {
  if (request != nullptr || options.callback != nullptr || sinks_of(options).beside_callback()) [[likely]]
    return TW_OK;
  return fail(TW_ERR_INVALID, "a receive needs a request, a callback, a completion queue, a counter, a record or a signal");
}

/// Receives a message that has arrived: into(op, completion) is the engine's function for its kind.
template <class Into>
Status take(Engine& engine, const Takes& takes, Verb verb, void* buffer, size_t length, const tw_op_options* given,
            tw_request* request, const Into& into) {
  auto* worker = static_cast<tw_worker*>(engine.owner());
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, takes); is_error(s)) return s;
  Status status = need_completion(*options, request);
  if (is_error(status)) return status;
  OpDesc op;
  op.verb = verb;
  status = set_local(op, buffer, length, *options);
  const LocalHold hold(op);
  if (is_error(status)) return status;
  status =
      post_with_sink(*worker, sinks_of(*options), request, [&](const Completion& completion) { return into(op, completion); });
  if (status == TW_IN_PROGRESS) worker->posted();
  return status;
}

/// near: the result of on_device(), maybe nothing.
[[gnu::noinline]] Status send_with_options(tw_endpoint& endpoint, const void* buffer, size_t length, uint64_t tag,
                                           const tw_op_options* given, tw_request* request, const BufferInfo& near) {
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kSend); is_error(s)) return s;
  OpDesc op;
  op.verb = Verb::send;
  op.peer = &*endpoint.peer;
  op.tag = tag;
  op.immediate = options->immediate;
  const Status status = set_local(op, buffer, length, *options, &near);
  const LocalHold hold(op);
  if (is_error(status)) return status;
  return start(*endpoint.worker, op, *options, request);
}

[[gnu::noinline]] Status recv_with_options(tw_worker& worker, void* buffer, size_t length, uint64_t tag, uint64_t mask,
                                           const tw_op_options* given, tw_request* request, const BufferInfo& near) {
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kRecv); is_error(s)) return s;
  Status status = need_completion(*options, request);
  if (is_error(status)) return status;
  OpDesc op;
  op.verb = Verb::recv;
  op.tag = tag;
  op.mask = mask;
  if (options->source != nullptr) {
    status = check(options->source);
    if (is_error(status)) return status;
    if (options->source->worker != &worker) return fail(TW_ERR_INVALID, "the source endpoint belongs to another worker");
    op.peer = &*options->source->peer;
  }
  status = set_local(op, buffer, length, *options, &near);
  const LocalHold hold(op);
  if (is_error(status)) return status;
  status = post_with_sink(worker, sinks_of(*options), request,
                          [&](const Completion& completion) { return worker.engine->post_receive(op, completion); });
  if (status == TW_IN_PROGRESS) worker.posted();
  return status;
}

/// The short forms where a buffer may be device memory, or where the options name only sinks; and everything else.
[[gnu::noinline]] Status send_slowly(tw_endpoint& endpoint, const void* buffer, size_t length, uint64_t tag,
                                     const tw_op_options* given, tw_request* request) {
  BufferInfo near;
  tw_worker& worker = *endpoint.worker;
  // A send that is complete here calls no callback; the other sinks get it all the same, from start().
  const bool plain = given == nullptr || (only_sinks(*given) && !sinks_of(*given).beside_callback());
  if (!plain || buffer == nullptr || length >= kAsked || on_device(buffer, &near) ||
      worker.engine->try_send(*endpoint.peer, buffer, length, tag, 0) != TW_OK) {
    return send_with_options(endpoint, buffer, length, tag, given, request, near);
  }
  if (request != nullptr) *request = TW_REQUEST_NONE;
  worker.posted();
  return TW_OK;
}

[[gnu::noinline]] Status recv_slowly(tw_worker& worker, void* buffer, size_t length, uint64_t tag, uint64_t mask,
                                     const tw_op_options* given, tw_request* request) {
  BufferInfo near;
  const tw_op_options& options = given != nullptr ? *given : kOpDefaults;
  if (!only_sinks(options) || (buffer == nullptr && length != 0) || length >= kAsked || on_device(buffer, &near)) {
    return recv_with_options(worker, buffer, length, tag, mask, given, request, near);
  }
  Status status = need_completion(options, request);
  if (is_error(status)) return status;
  status = post_with_sink(worker, sinks_of(options), request, [&](const Completion& completion) {
    return post_short(*worker.engine, buffer, length, tag, mask, completion);
  });
  worker.posted();
  return status;
}

/// tw_send_blocking in a handler of active messages: what is on its way at once.
[[gnu::noinline]] Status send_in_handler(tw_endpoint& endpoint, const void* buffer, size_t length, uint64_t tag) {
  const Peer& peer = *endpoint.peer;
  if (buffer == nullptr && length != 0) return fail(TW_ERR_INVALID, "the buffer is NULL");
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  BufferInfo near;
  const bool plain = length < kAsked && !on_device(buffer, &near);
  if (!plain || endpoint.worker->engine->try_send(*endpoint.peer, buffer, length, tag, 0) != TW_OK) {
    return tw_worker::refuse_wait();
  }
  endpoint.worker->posted();
  return TW_OK;
}

/// tw_recv_blocking into device memory: no short form.
[[gnu::noinline]] Status receive_and_wait(tw_worker& worker, void* buffer, size_t length, uint64_t tag, uint64_t mask,
                                          tw_recv_info* info, const BufferInfo& near) {
  tw_request request = TW_REQUEST_NONE;
  Status status = recv_with_options(worker, buffer, length, tag, mask, nullptr, &request, near);
  if (status != TW_IN_PROGRESS) return status;
  status = wait_for(worker, request);
  if (info != nullptr) Engine::info(request, info);
  Engine::release(request);
  return status;
}

/// Byte streams have no RTS that would let the other side choose a way.
Status refuse_device(const OpDesc& op) {
  if ((op.flags & (kOpDevice | kOpLate)) == 0) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED,
              "byte streams move host memory that is ready: send device memory, or what a stream produces, as a message");
}

}  // namespace

extern "C" {

tw_status tw_send(tw_endpoint* endpoint, const void* buffer, size_t length, uint64_t tag, const tw_op_options* given,
                  tw_request* request) {
  const Status status = check(endpoint);
  if (is_error(status)) [[unlikely]]
    return status;
  tw_worker& worker = *endpoint->worker;
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  if (given != nullptr || buffer == nullptr || may_be_on_device(buffer) || length >= kAsked || worker.multi || trace::on())
      [[unlikely]]
    return send_slowly(*endpoint, buffer, length, tag, given, request);
  if (send_untraced(*endpoint->peer, buffer, length, tag, 0, 0) != TW_OK) [[unlikely]]
    return send_slowly(*endpoint, buffer, length, tag, nullptr, request);
  if (request != nullptr) *request = TW_REQUEST_NONE;
  return TW_OK;  // there is no thread to wake: those of one user have none
}

tw_status tw_recv(tw_worker* worker, void* buffer, size_t length, uint64_t tag, uint64_t mask, const tw_op_options* given,
                  tw_request* request) {
  Status status = check(worker);
  if (is_error(status)) [[unlikely]]
    return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const bool called = given != nullptr;
  if (request == nullptr || (buffer == nullptr && length != 0) || may_be_on_device(buffer) || length >= kAsked ||
      (called && !only_calls(*given))) [[unlikely]]
    return recv_slowly(*worker, buffer, length, tag, mask, given, request);
  Engine& engine = *worker->engine;
  status = called
               ? post_short(engine, buffer, length, tag, mask, {request, SinkKind::callback, {given->callback}, given->arg, 0})
               : post_short(engine, buffer, length, tag, mask, request);
  worker->posted();
  return status;
}

tw_status tw_send_blocking(tw_endpoint* endpoint, const void* buffer, size_t length, uint64_t tag) {
  tw_request request = TW_REQUEST_NONE;
  Status status = check(endpoint);
  if (is_error(status)) [[unlikely]]
    return status;
  if (endpoint->worker->engine->in_handler()) [[unlikely]]
    return send_in_handler(*endpoint, buffer, length, tag);
  status = tw_send(endpoint, buffer, length, tag, nullptr, &request);
  if (status != TW_IN_PROGRESS) return status;
  const Enter enter(*endpoint->worker);
  const Status result = wait_for(*endpoint->worker, request);
  Engine::release(request);
  return result;
}

tw_status tw_recv_blocking(tw_worker* worker, void* buffer, size_t length, uint64_t tag, uint64_t mask, tw_recv_info* info) {
  Status status = check(worker);
  if (is_error(status)) [[unlikely]]
    return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  if (buffer == nullptr && length != 0) return fail(TW_ERR_INVALID, "the buffer is NULL");
  if (worker->engine->in_handler()) [[unlikely]]
    return tw_worker::refuse_wait();
  if (may_be_on_device(buffer)) [[unlikely]] {
    BufferInfo near;
    if (is_device_memory(buffer, &near)) return receive_and_wait(*worker, buffer, length, tag, mask, info, near);
  }
  if (length >= kAsked) {
    status = check_host_memory(buffer, length);
    if (is_error(status)) return status;
  }
  Engine& engine = *worker->engine;
  WaitedReceive receive{static_cast<std::byte*>(buffer), length, tag, mask};
  post_wait(engine, receive);
  worker->posted();
  worker->wait_until([&] { return receive.done(); }, TW_FOREVER);
  status = end_wait(engine, receive);
  if (info != nullptr) *info = receive.info;
  return status;
}

tw_status tw_probe(tw_worker* worker, uint64_t tag, uint64_t mask, const tw_op_options* given, tw_recv_info* info,
                   tw_message** message) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kProbe); is_error(s)) return s;
  const Peer* source = nullptr;
  if (options->source != nullptr) {
    const Status status = check(options->source);
    if (is_error(status)) return status;
    source = &*options->source->peer;
  }
  tw_recv_info unused{};
  return probe(*worker->engine, tag, mask, source, info != nullptr ? info : &unused, message);
}

tw_status tw_message_recv(tw_message* message, void* buffer, size_t length, const tw_op_options* given, tw_request* request) {
  if (message == nullptr) return fail(TW_ERR_INVALID, "the message is NULL");
  return take(*message->engine, kMessageRecv, Verb::recv, buffer, length, given, request,
              [&](const OpDesc& op, const Completion& done) { return receive_message(message, op, done); });
}

tw_status tw_am_register(tw_worker* worker, uint16_t id, tw_am_handler handler, void* arg) {
  const Status status = check(worker);
  if (is_error(status)) return status;
  return set_handler(*worker->engine, id, handler, arg);
}

tw_status tw_am_send(tw_endpoint* endpoint, uint16_t id, const void* header, size_t header_length, const void* buffer,
                     size_t length, const tw_op_options* given, tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  if (id >= ActiveTable::kHandlers) return fail(TW_ERR_INVALID, "handler %u: ids are below %u", id, ActiveTable::kHandlers);
  if (header == nullptr && header_length != 0) return fail(TW_ERR_INVALID, "the header of %zu bytes is NULL", header_length);
  if (header_length > UINT32_MAX) {
    return fail(TW_ERR_LIMIT, "a header of %zu bytes: no receiver takes 4 GiB; send the bytes as payload", header_length);
  }
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kAmSend); is_error(s)) return s;
  OpDesc op;
  op.verb = Verb::am;
  op.peer = &*endpoint->peer;
  op.tag = id;
  op.header = static_cast<const std::byte*>(header);
  op.header_length = static_cast<uint32_t>(header_length);
  Status status = set_local(op, buffer, length, *options);
  const LocalHold hold(op);
  if (is_error(status)) return status;
  return start(*endpoint->worker, op, *options, request);
}

tw_status tw_am_recv(tw_am_data* data, void* buffer, size_t length, const tw_op_options* given, tw_request* request) {
  if (Status s = check_data(data); is_error(s)) return s;
  return take(*data->engine, kAmRecv, Verb::am_recv, buffer, length, given, request,
              [&](const OpDesc& op, const Completion& done) { return active_receive(data, op, done); });
}

tw_status tw_am_release(tw_am_data* data) {
  if (Status s = check_data(data); is_error(s)) return s;
  auto* worker = static_cast<tw_worker*>(data->engine->owner());
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  const Status released = active_release(data);
  worker->posted();
  return released;
}

tw_status tw_bytes_send(tw_endpoint* endpoint, const void* buffer, size_t length, const tw_op_options* given,
                        tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kBytesSend); is_error(s)) return s;
  if (options->layout != nullptr && !options->layout->contiguous()) {
    return fail(TW_ERR_UNSUPPORTED, "byte streams are contiguous: send the pieces one by one, or a message with the layout");
  }
  OpDesc op;
  op.verb = Verb::bytes_send;
  op.peer = &*endpoint->peer;
  Status status = set_local(op, buffer, length, *options);
  const LocalHold hold(op);
  if (status == TW_OK) status = refuse_device(op);
  if (is_error(status)) return status;
  return start(*endpoint->worker, op, *options, request);
}

tw_status tw_bytes_recv(tw_endpoint* endpoint, void* buffer, size_t length, const tw_op_options* given, tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kBytesRecv); is_error(s)) return s;
  Status status = need_completion(*options, request);
  if (is_error(status)) return status;
  if (options->layout != nullptr && !options->layout->contiguous()) {
    return fail(TW_ERR_UNSUPPORTED, "byte streams are contiguous: receive the pieces one by one, or a message with the layout");
  }
  OpDesc op;
  op.verb = Verb::bytes_recv;
  op.peer = &*endpoint->peer;
  status = set_local(op, buffer, length, *options);
  const LocalHold hold(op);
  if (status == TW_OK) status = refuse_device(op);
  if (is_error(status)) return status;
  return start(*endpoint->worker, op, *options, request);
}

}  // extern "C"
