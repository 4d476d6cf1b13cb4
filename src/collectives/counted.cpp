// SPDX-License-Identifier: Apache-2.0
#include "collectives/counted.hpp"

#include "collectives/collectives.hpp"
#include "collectives/planned.hpp"
#include "core/c_checks.hpp"
#include "plans/c_steps.hpp"
#include "plans/queue.hpp"

namespace thalweg::impl {
namespace {

constexpr const char* kName = "tw_alltoallv_counted_on";

Status check_options(const tw_collective_options& options) {
  const bool given = options.algorithm != nullptr || options.flags != 0 || options.timeout_ns != 0 ||
                     options.after_count != 0 || options.scale != 0 || options.reduce != nullptr ||
                     sinks_of(options).named() != 0;
  if (!given) return TW_OK;
  return fail(
      TW_ERR_INVALID,
      "%s: a queue keeps its order, one kernel does it, and tw_queue_check tells how it ended: name no algorithm, flag, "
      "timeout, step, function or way of completion",
      kName);
}

Status check_side(const char* name, const void* buffer, size_t capacity, size_t row_bytes) {
  if (buffer == TW_IN_PLACE)
    return fail(TW_ERR_INVALID, "%s: %s cannot be TW_IN_PLACE: rows move while others are read", kName, name);
  if (buffer == nullptr && capacity != 0)
    return fail(TW_ERR_INVALID, "%s: %s is NULL, its capacity %zu rows", kName, name, capacity);
  if (capacity > device::kMostCountedBytes / row_bytes)
    return fail(TW_ERR_INVALID, "%s: %s cannot hold %zu rows of %zu bytes", kName, name, capacity, row_bytes);
  return TW_OK;
}

Status check_counts(const char* name, const void* array, bool needed) {
  if (array == nullptr && needed) return fail(TW_ERR_INVALID, "%s: %s is NULL", kName, name);
  if (reinterpret_cast<uint64_t>(array) % sizeof(uint64_t) != 0)
    return fail(TW_ERR_MISALIGNED, "%s: %s is not aligned to 8 bytes", kName, name);
  return TW_OK;
}

bool overlap(const void* one, uint64_t length, const void* other, uint64_t other_length) {
  const auto a = reinterpret_cast<uint64_t>(one), b = reinterpret_cast<uint64_t>(other);
  return one != nullptr && other != nullptr && a < b + other_length && b < a + length;
}

Status check_counted(const CountedCall& call, uint32_t ranks) {
  if (call.row_bytes == 0) return fail(TW_ERR_INVALID, "%s: row_bytes is 0", kName);
  if (Status s = check_side("send", call.send, call.send_capacity, call.row_bytes); is_error(s)) return s;
  if (Status s = check_side("recv", call.recv, call.recv_capacity, call.row_bytes); is_error(s)) return s;
  if (Status s = check_counts("send_counts", call.send_counts, true); is_error(s)) return s;
  if (Status s = check_counts("send_offsets", call.send_offsets, false); is_error(s)) return s;
  if (Status s = check_counts("recv_counts", call.recv_counts, true); is_error(s)) return s;
  const uint64_t array = ranks * sizeof(uint64_t);
  for (const void* other : {call.send_counts, call.send_offsets, call.recv_offsets}) {
    if (overlap(call.recv_counts, array, other, array))
      return fail(TW_ERR_INVALID, "%s: recv_counts is written while the other arrays are read: give it one of its own", kName);
  }
  if (overlap(call.send, call.send_capacity * call.row_bytes, call.recv, call.recv_capacity * call.row_bytes))
    return fail(TW_ERR_INVALID, "%s: send and recv overlap: rows arrive while others are read", kName);
  return check_counts("recv_offsets", call.recv_offsets, false);
}

const device::u64* words(const uint64_t* array) { return reinterpret_cast<const device::u64*>(array); }

std::shared_ptr<const ExchangeStep> step_of(const CountedCall& call, const std::shared_ptr<DeviceArea>& area) {
  auto made = std::make_shared<ExchangeStep>();
  made->input_bytes = call.send_capacity * call.row_bytes;
  made->output_bytes = call.recv_capacity * call.row_bytes;
  made->what.input = reinterpret_cast<uint64_t>(call.send);
  made->what.output = reinterpret_cast<uint64_t>(call.recv);
  made->what.bytes = made->input_bytes;
  made->counts.send_counts = words(call.send_counts);
  made->counts.send_offsets = words(call.send_offsets);
  made->counts.recv_counts = reinterpret_cast<device::u64*>(call.recv_counts);
  made->counts.recv_offsets = words(call.recv_offsets);
  made->counts.row_bytes = call.row_bytes;
  made->counts.send_capacity = call.send_capacity;
  made->counts.recv_capacity = call.recv_capacity;
  area->fill_counted(made.get());
  made->area = area;
  return made;
}

}  // namespace

Status counted_on(tw_queue& queue, tw_group& group, const CountedCall& call, const tw_collective_options& options) {
  if (Status s = check_counted(call, group.size); is_error(s)) return s;
  if (Status s = check_options(options); is_error(s)) return s;
  Collectives* all = nullptr;
  if (Status s = enter(group, &all); is_error(s)) return s;
  const std::lock_guard turn(all->enqueue_order(), std::adopt_lock);
  const Occupied here(group);
  if (Status s = find_device(queue, *all, kName); is_error(s)) return s;
  {
    const Engine::Guard guard(all->engine());
    if (Status s = all->check(); is_error(s)) return s;  // of one that is kept, too
  }
  const std::shared_ptr<DeviceArea>& area = all->device();
  if (area == nullptr)
    return fail(TW_ERR_UNSUPPORTED,
                "%s: kernels read its counts, and %s: bring the counts to the host, and use tw_alltoallv_on", kName,
                all->why_no_device().c_str());
  std::string key("counted");
  key.append(reinterpret_cast<const char*>(&group.id), sizeof group.id);
  key.append(reinterpret_cast<const char*>(&call), sizeof call);
  const auto fill = [&](tw_plan& made) { return made.add(exchange_step(kName, step_of(call, area)), kOpDefaults, nullptr); };
  const void* const buffers[] = {call.send,         call.recv,        call.send_counts,
                                 call.send_offsets, call.recv_counts, call.recv_offsets};
  return queue.kept({std::move(key), 0}, buffers, fill, [&](tw_plan& plan) { return plan.trigger(&queue); });
}

}  // namespace thalweg::impl
