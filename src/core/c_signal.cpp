// SPDX-License-Identifier: Apache-2.0
// C interface: signals.
#include "core/c_checks.hpp"

using namespace thalweg::impl;

namespace {
constexpr Takes kPost{"tw_signal_post", fields::told | fields::notify, TW_OP_NO_WAIT | TW_OP_REMOTE | TW_OP_AFTER_ALL, false};
}  // namespace

extern "C" {

tw_status tw_signal_create(tw_worker* worker, const tw_signal_options* given, tw_signal** signal) {
  Status status = check(worker);
  if (is_error(status)) return status;
  if (signal == nullptr) return fail(TW_ERR_INVALID, "the place for the signal is NULL");
  const tw_signal_options defaults = TW_SIGNAL_OPTIONS_INIT;
  const Options<tw_signal_options> options(given, defaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (options->kind > TW_SIGNAL_ADD) return fail(TW_ERR_INVALID, "unknown kind of signal %u", options->kind);
  if (options->memory != nullptr) {
    if (status = check(options->memory); is_error(status)) return status;
    status = worker->context.signals->create_in(*options->memory, options->offset, worker->context.copier, options->kind,
                                                options->initial, signal);
  } else {
    status = worker->context.signals->create(options->kind, options->initial, signal);
  }
  if (is_error(status)) return status;
  (*signal)->awaited = worker->awaited;
  return status;
}

tw_status tw_signal_destroy(tw_signal* signal) {
  const Status status = check(signal);
  if (is_error(status)) return status;
  uint32_t expects = signal->expects.load(std::memory_order_relaxed);
  if (tw_worker* const worker = worker_of(*signal); worker != nullptr && expects != 0) {
    expects = worker->engine->completions().expected(signal->expects);
  }
  if (expects != 0)
    return fail(TW_ERR_BUSY, "%u operations are under way that touch this signal when they end: wait for them", expects);
  return signal->pool->destroy(signal);
}

tw_status tw_signal_export(tw_signal* signal, void* key, size_t* key_length) {
  Status status = check(signal);
  if (is_error(status)) return status;
  if (key_length == nullptr) return fail(TW_ERR_INVALID, "the key's length is NULL");
  if (key == nullptr) {
    *key_length = kKeySize;
    return TW_OK;
  }
  if (*key_length < kKeySize) {  // before there is a key, which would live as long as the signal
    *key_length = kKeySize;
    return fail(TW_ERR_TRUNCATED, "a key takes %zu bytes; ask with key NULL", size_t{kKeySize});
  }
  KeyBody body{};
  status = signal->pool->export_signal(signal, &body);
  if (is_error(status)) return status;
  return write_key(body, key, key_length);
}

tw_status tw_signal_import(tw_endpoint* endpoint, const void* key, size_t key_length, tw_remote_signal** remote) {
  RemoteRegion* region = nullptr;
  const Status status = import_key(endpoint, key, key_length, true, remote != nullptr ? &region : nullptr);
  if (remote != nullptr) *remote = reinterpret_cast<tw_remote_signal*>(region);
  return status;
}

void tw_remote_signal_release(tw_remote_signal* remote) {
  tw_remote_memory_release(reinterpret_cast<tw_remote_memory*>(remote));
}

uint64_t tw_signal_read(const tw_signal* signal) { return signal == nullptr ? 0 : signal_read(*signal); }

tw_status tw_signal_reset(tw_signal* signal, uint64_t value) {
  const Status status = check(signal);
  if (is_error(status)) return status;
  return signal_reset(*signal, value);
}

tw_status tw_signal_test(const tw_signal* signal, uint64_t value, uint32_t compare) {
  const Status status = check(signal);
  if (is_error(status)) return status;
  return signal_test(*signal, compare, value);
}

tw_status tw_signal_wait(tw_signal* signal, uint64_t value, uint32_t compare, uint64_t timeout_ns) {
  Status status = check(signal);
  if (is_error(status)) return status;
  tw_worker* const worker = worker_of(*signal);
  if (worker == nullptr) {
    status = signal_test(*signal, compare, value);
    return status != TW_IN_PROGRESS ? status : fail(TW_ERR_CLOSED, "the worker of this signal was destroyed");
  }
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  Status seen = TW_IN_PROGRESS;
  constexpr uint64_t kNapNs = 200'000;  // a peer's store into mapped memory wakes no thread: sleeps stay short
  status =
      worker->wait_until([&] { return (seen = signal_test(*signal, compare, value)) != TW_IN_PROGRESS; }, timeout_ns, kNapNs);
  if (status == TW_ERR_BUSY) return status;
  if (is_error(status)) return fail(status, "the signal is still %llu", static_cast<unsigned long long>(signal_read(*signal)));
  return seen;
}

tw_status tw_signal_post(tw_remote_signal* remote, uint64_t value, const tw_op_options* given, tw_request* request) {
  RemoteRegion* region = region_of(remote);
  if (region == nullptr) return fail(TW_ERR_INVALID, "the signal is NULL");
  if (request != nullptr) *request = TW_REQUEST_NONE;
  Peer* const peer = peer_of(*region);
  if (peer == nullptr) return fail(TW_ERR_STALE, "the signal was imported through an endpoint that is closed");
  tw_endpoint* endpoint = peer->endpoint;
  const Enter enter(endpoint);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kPost); is_error(s)) return s;
  OpDesc op;
  op.verb = Verb::signal;
  op.flags = options->flags & ~kOpInternal;
  op.peer = peer;
  op.signal = region;
  op.signal_op = static_cast<uint8_t>(region->key.device);
  op.signal_value = value;
  Status status = set_notification(op, *options);
  if (is_error(status)) return status;
  status = start_with_sink(*endpoint->worker, op, *options, request);
  endpoint->worker->posted();
  return status;
}

}  // extern "C"
