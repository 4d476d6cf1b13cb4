// SPDX-License-Identifier: Apache-2.0
// C interface: put, get, flush, fence, atomics.
#include "core/c_checks.hpp"

namespace thalweg::impl {

Status set_signal(OpDesc& op, const tw_endpoint& endpoint, const tw_op_options& options) {
  if (options.signal == nullptr) return TW_OK;
  RemoteRegion* const signal = region_of(options.signal);
  const Status status = check_region(&endpoint, signal);
  if (is_error(status)) return status;
  if (signal->key.device != options.signal_op) {
    return fail(TW_ERR_INVALID, "this signal is %s, the operation would %s it",
                signal->key.device == TW_SIGNAL_SET ? "set by one writer" : "added to",
                options.signal_op == TW_SIGNAL_SET ? "set" : "add to");
  }
  op.signal = signal;
  op.signal_op = static_cast<uint8_t>(options.signal_op);
  op.signal_value = options.signal_value;
  return TW_OK;
}

Status check_operand(const char* what, size_t size, uint64_t value) {
  const bool fits = size == 8 || value <= UINT32_MAX || value >= static_cast<uint64_t>(int64_t{INT32_MIN});
  if (fits) [[likely]]
    return TW_OK;
  return fail(
      TW_ERR_INVALID,
      "the %s 0x%llx does not fit a word of 4 bytes, as an unsigned number or a sign-extended negative one: mask it, or "
      "operate on 8 bytes",
      what, static_cast<unsigned long long>(value));
}

Status check_atomic(uint32_t code, size_t size, const RemoteRegion& region, uint64_t offset, uint64_t operand,
                    uint64_t compare) {
  if (code > TW_ATOMIC_CSWAP) return fail(TW_ERR_INVALID, "unknown atomic operation %u", code);
  if (size != 4 && size != 8) return fail(TW_ERR_INVALID, "atomics are on 4 or 8 bytes, not on %zu", size);
  if ((region.key.base + offset) % size != 0)
    return fail(TW_ERR_MISALIGNED, "the word at offset %llu is not naturally aligned", static_cast<unsigned long long>(offset));
  if (Status s = check_operand("operand", size, operand); is_error(s)) return s;
  return code == TW_ATOMIC_CSWAP ? check_operand("compared value", size, compare) : Status{TW_OK};
}

}  // namespace thalweg::impl

using namespace thalweg::impl;

namespace {

constexpr uint32_t kMoved = fields::layout | fields::remote_layout | fields::told | fields::after;
constexpr Takes kPut{"tw_put", kMoved | fields::signal | fields::notify, TW_OP_NO_WAIT | TW_OP_REMOTE | TW_OP_AFTER_ALL, false};
constexpr Takes kGet{"tw_get", kMoved, TW_OP_NO_WAIT, false};
constexpr Takes kAtomic{"tw_atomic", fields::told, TW_OP_NO_WAIT | TW_OP_REMOTE, false};

Status transfer_op(Verb verb, tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote,
                   uint64_t offset, const tw_op_options* given, tw_request* request, const BufferInfo* near) {
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, verb == Verb::put ? kPut : kGet); is_error(s)) return s;
  OpDesc op;
  op.verb = verb;
  op.peer = &*endpoint->peer;
  op.remote = region_of(remote);
  op.remote_offset = offset;
  Status status = set_local(op, buffer, length, *options, near);
  const LocalHold hold(op);
  if (is_error(status)) return status;
  op.remote_layout = options->remote_layout;
  if (op.remote_layout != nullptr) {
    status = check_named(*op.remote_layout);
    if (is_error(status)) return status;
    if (op.remote_layout->bytes != op.length) {
      return fail(TW_ERR_INVALID, "the local side moves %llu bytes, the remote layout %llu",
                  static_cast<unsigned long long>(op.length), static_cast<unsigned long long>(op.remote_layout->bytes));
    }
  }
  if (verb == Verb::put) {
    status = set_signal(op, *endpoint, *options);
    if (status == TW_OK) status = set_notification(op, *options);
    if (is_error(status)) return status;
  }
  status = start_with_sink(*endpoint->worker, op, *options, request);
  endpoint->worker->posted();
  return status;
}

/// The short form where a buffer may be device memory, and everything else.
[[gnu::noinline]] Status put_slowly(tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote,
                                    uint64_t offset, const tw_op_options* options, tw_request* request) {
  BufferInfo near;
  if (options == nullptr && buffer != nullptr && length < kAsked && !on_device(buffer, &near)) {
    const Engine::Guard guard(*endpoint->worker->engine);
    if (try_put_mapped(buffer, length, *region_of(remote), offset)) return TW_OK;
  }
  return transfer_op(Verb::put, endpoint, buffer, length, remote, offset, options, request, &near);
}

}  // namespace

extern "C" {

tw_status tw_put(tw_endpoint* endpoint, const void* buffer, size_t length, tw_remote_memory* remote, uint64_t offset,
                 const tw_op_options* options, tw_request* request) {
  Status status = check(endpoint);
  if (is_error(status)) [[unlikely]]
    return status;
  const Enter enter(*endpoint->worker);
  if (is_error(enter.status())) return enter.status();
  if (request != nullptr) *request = TW_REQUEST_NONE;
  status = check_region(endpoint, region_of(remote));
  if (is_error(status)) [[unlikely]]
    return status;
  if (options != nullptr || buffer == nullptr || may_be_on_device(buffer) || length >= kAsked) [[unlikely]]
    return put_slowly(endpoint, buffer, length, remote, offset, options, request);
  const Engine::Guard guard(*endpoint->worker->engine);
  if (try_put_mapped(buffer, length, *region_of(remote), offset)) return TW_OK;
  return transfer_op(Verb::put, endpoint, buffer, length, remote, offset, options, request, nullptr);
}

tw_status tw_get(tw_endpoint* endpoint, void* buffer, size_t length, tw_remote_memory* remote, uint64_t offset,
                 const tw_op_options* options, tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  if (request != nullptr) *request = TW_REQUEST_NONE;
  Status status = check_region(endpoint, region_of(remote));
  if (is_error(status)) [[unlikely]]
    return status;
  return transfer_op(Verb::get, endpoint, buffer, length, remote, offset, options, request, nullptr);
}

tw_status tw_endpoint_flush(tw_endpoint* endpoint, tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  if (request != nullptr) *request = TW_REQUEST_NONE;
  OpDesc op;
  op.verb = Verb::flush;
  op.peer = &*endpoint->peer;
  const Status started = endpoint->worker->engine->start(op, Completion{request});
  endpoint->worker->posted();
  if (started != TW_OK || !endpoint->worker->engine->may_progress()) return started;
  endpoint->worker->progress();  // a caller that only uses mapped memory gets its progress here
  endpoint->worker->progressed();
  const Status state = tw_endpoint_state(endpoint);
  return is_error(state) ? state : Status{TW_OK};
}

tw_status tw_endpoint_fence(tw_endpoint* endpoint) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  const Engine::Guard guard(*endpoint->worker->engine);
  return fence_one_sided(*endpoint->worker->engine, *endpoint->peer);
}

tw_status tw_atomic(tw_endpoint* endpoint, uint32_t code, tw_remote_memory* remote, uint64_t offset, size_t size,
                    uint64_t operand, uint64_t compare, void* result, const tw_op_options* given, tw_request* request) {
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  if (request != nullptr) *request = TW_REQUEST_NONE;
  Status status = check_region(endpoint, region_of(remote));
  if (is_error(status)) return status;
  status = check_atomic(code, size, *region_of(remote), offset, operand, compare);
  if (is_error(status)) return status;
  BufferInfo near;
  if (result != nullptr && on_device(result, &near)) {
    return fail(TW_ERR_UNSUPPORTED, "the old value goes to host memory: device memory cannot take it");
  }
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kAtomic); is_error(s)) return s;
  OpDesc op;
  op.verb = Verb::atomic;
  op.atomic_op = static_cast<uint8_t>(code);
  op.word = static_cast<uint8_t>(size);
  op.flags = options->flags & ~kOpInternal;
  op.peer = &*endpoint->peer;
  op.length = size;
  op.remote = region_of(remote);
  op.remote_offset = offset;
  op.operand = operand;
  op.compare = compare;
  op.result = result;
  status = start_with_sink(*endpoint->worker, op, *options, request);
  endpoint->worker->posted();
  return status;
}

}  // extern "C"
