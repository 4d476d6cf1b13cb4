// SPDX-License-Identifier: Apache-2.0
// Device memory and users' streams at the border: which device does the local side of an operation belong to, and what does
// it wait for.
#include "core/c_checks.hpp"
#include "memory/place.hpp"
#include "memory/placement.hpp"
#include "protocols/local_device.hpp"

namespace thalweg::impl {
namespace {

/// Its first and last bytes, of the layout's span, lie in the allocation. Of vmm memory only a piece is known.
Status check_span(const OpDesc& op, const BufferInfo& info) {
  const int64_t first = op.layout != nullptr ? op.layout->first : 0;
  const int64_t last = op.layout != nullptr ? op.layout->last : static_cast<int64_t>(op.length);
  const __int128 at = static_cast<__int128>(reinterpret_cast<uintptr_t>(op.address)), base = info.base;
  if (info.kind == MemoryKind::vmm || (at + first >= base && at + last <= base + info.length)) return TW_OK;
  return fail(TW_ERR_OUT_OF_BOUNDS, "bytes %lld to %lld of the buffer reach outside its allocation of %llu bytes",
              static_cast<long long>(first), static_cast<long long>(last), static_cast<unsigned long long>(info.length));
}

/// The device of a stream or event used with host memory: the first device that owns it.
Status order_after(Device* device, const tw_op_options& options, Ordering** out) {
  if (options.after_kind > TW_AFTER_EVENT) {
    return fail(TW_ERR_INVALID, "after_kind %u: use TW_AFTER_STREAM or TW_AFTER_EVENT", options.after_kind);
  }
  if (device != nullptr) return make_ordering(*device, options.after, options.after_kind, out);
  std::string why = "there is no device in this process";
  Status status = TW_ERR_UNSUPPORTED;
  for (Device* any : list_devices(nullptr)) {
    status = make_ordering(*any, options.after, options.after_kind, out);
    if (!is_error(status)) return status;
    why = last_error();
  }
  return fail(status, "nothing can be ordered after this: %s", why.c_str());
}

}  // namespace

bool is_device_memory(const void* address, BufferInfo* info) {
  return find_device(reinterpret_cast<uint64_t>(address), info) == TW_OK && !by_cpu(info->kind);
}

Status check_buffer(const OpDesc& op) {
  const int64_t first = op.layout != nullptr ? op.layout->first : 0;
  const int64_t last = op.layout != nullptr ? op.layout->last : static_cast<int64_t>(op.length);
  return check_host_memory(op.address + first, static_cast<uint64_t>(last - first));
}

Status set_callbacks(OpDesc& op, size_t length, const tw_op_options& options) {
  if (options.after_kind != TW_AFTER_NONE) {
    return fail(TW_ERR_UNSUPPORTED,
                "a layout of callbacks cannot come after a stream or an event: synchronise with that, then post the operation");
  }
  const bool unpacks = op.verb == Verb::recv || op.verb == Verb::am_recv || op.verb == Verb::get;
  Layout* started = nullptr;
  if (const Status status = start_calls(*options.layout, op.address, length, unpacks, &started); is_error(status))
    return status;
  op.layout = started;
  op.length = started->bytes;
  return TW_OK;
}

Status start_prepared(tw_endpoint& endpoint, OpDesc& op, const Completion& completion) {
  tw_worker& worker = *endpoint.worker;
  const Enter enter(&endpoint);
  if (is_error(enter.status())) return enter.status();
  if (op.peer == nullptr) return fail(TW_ERR_CLOSED, "the endpoint is closed");
  for (const RemoteRegion* region : {op.remote, op.signal}) {
    if (region != nullptr && region->peer != op.peer)
      return fail(TW_ERR_STALE, "the memory was imported through an endpoint that is closed");
  }
  const bool buffer = op.verb == Verb::send || op.verb == Verb::recv || op.verb == Verb::put || op.verb == Verb::get;
  BufferInfo near;
  const bool device = buffer && op.length != 0 && on_device(op.address, &near);
  if (buffer && (device || op.layout != nullptr || op.length >= kAsked)) {
    if (Status s = set_device(op, kOpDefaults, &near); is_error(s)) return s;
  }
  const Status status =
      op.verb == Verb::recv ? worker.engine->post_receive(op, completion) : worker.engine->start(op, completion);
  worker.posted();
  return status;
}

Status send_prepared(tw_endpoint& endpoint, const void* address, uint64_t length, uint64_t tag) {
  BufferInfo near;
  if (length >= kAsked || (length != 0 && on_device(address, &near))) return TW_AGAIN;
  tw_worker& worker = *endpoint.worker;
  const Enter enter(&endpoint);
  if (is_error(enter.status()) || !endpoint.peer) return TW_AGAIN;
  if (worker.engine->try_send(*endpoint.peer, address, length, tag, 0) != TW_OK) return TW_AGAIN;
  worker.posted();
  return TW_OK;
}

Status set_device(OpDesc& op, const tw_op_options& options, const BufferInfo* known) {
  BufferInfo info;
  if (op.length != 0) {
    const int64_t first = op.layout != nullptr ? op.layout->first : 0;
    const bool device = known != nullptr && known->device != nullptr && !by_cpu(known->kind) && op.layout == nullptr;
    if (device) info = *known;
    if (device || is_device_memory(op.address + first, &info)) {
      if (const Status status = check_span(op, info); is_error(status)) return status;
      set_device(op, info);
    } else if (op.length >= kAsked) {
      if (const Status status = check_buffer(op); is_error(status)) return status;
    }
  }
  if (options.after_kind == TW_AFTER_NONE || op.length == 0) return TW_OK;
  const Status status = order_after(info.device, options, &op.after);
  if (op.after != nullptr) op.flags |= kOpLate;
  return status;
}

}  // namespace thalweg::impl
