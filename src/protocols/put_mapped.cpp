// SPDX-License-Identifier: Apache-2.0
// Put into memory that is mapped here: the trigger's own stores, then the signal by a release store or an atomic add.
// Host: copies before it returns. Queue: copies and the signal in the queue's order, on an imported device region or on
// mapped host memory. Kernel: the addresses of everything, for thalweg::device::run_copy.
#include <algorithm>
#include <vector>

#include "devices/device.hpp"
#include "protocols/device_copy.hpp"
#include "protocols/device_desc.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

bool probe(const OpDesc& op, Cost& cost) {
  cost = {25, link_costs(op).mapped, nullptr};
  const bool reachable = op.remote != nullptr && (op.remote->mapped != nullptr || in_process(*op.remote));
  if (!reachable) {
    cost.why_not = "the target is not memory of tw_memory_allocate that is mapped here";
  } else if (op.peer != nullptr && fenced(*op.peer)) {
    cost.why_not = "operations before a fence still travel as frames";
  }
  return cost.why_not == nullptr;
}

Status step(OpRun& run) { return put_mapped(*run.op); }

/// Where queues and kernels reach the region, 0: not at all.
uint64_t device_address(const RemoteRegion& region) {
  if (region.device_import != nullptr) return reinterpret_cast<uintptr_t>(region.device_import);
  return reinterpret_cast<uintptr_t>(region.mapped);
}

Status check_addresses(const OpDesc& op) {
  if (op.remote == nullptr || device_address(*op.remote) == 0) {
    return fail(TW_ERR_UNSUPPORTED,
                "a queue or kernel puts only into imported device memory or mapped memory of "
                "tw_memory_allocate; map the region first");
  }
  if (op.signal != nullptr && device_address(*op.signal) == 0) {
    return fail(TW_ERR_UNSUPPORTED, "the signal's word is not mapped here; import it over a transport that maps memory");
  }
  return TW_OK;
}

Status lower(const OpDesc& op, Queue& queue) {
  if (Status s = check_target(op, TW_MEMORY_WRITE); is_error(s)) return s;
  if (Status s = check_addresses(op); is_error(s)) return s;
  if (op.signal != nullptr) {
    if (Status s = check_signal(op); is_error(s)) return s;
  }
  const uint64_t to = device_address(*op.remote) + op.remote_offset;
  Status status = TW_OK;
  if (op.length > 0) {
    const Side from = side_of(reinterpret_cast<uintptr_t>(op.address), op.layout);
    std::vector<Copy> copies;
    status = plan_copies(side_of(to, op.remote_layout), from, op.length, 0, op.length, &copies);
    if (status == TW_OK) status = queue.copy(copies.data(), copies.size());
  }
  if (status != TW_OK || op.signal == nullptr) return status;
  return queue.write_value(device_address(*op.signal), op.signal_value, op.signal_op == TW_SIGNAL_ADD);
}

Status bind(const OpDesc& op, DeviceDesc* out) {
  if (Status s = check_target(op, TW_MEMORY_WRITE); is_error(s)) return s;
  if (Status s = check_addresses(op); is_error(s)) return s;
  if (op.signal == nullptr) return fail(TW_ERR_UNSUPPORTED, "a kernel's put needs a signal; nothing else publishes its data");
  if (Status s = check_signal(op); is_error(s)) return s;
  if ((op.layout != nullptr && !op.layout->contiguous()) || (op.remote_layout != nullptr && !op.remote_layout->contiguous())) {
    return fail(TW_ERR_UNSUPPORTED, "a kernel's put is contiguous on both sides; put rows one by one or from a queue");
  }
  *out = DeviceDesc{};
  out->verb = Verb::put;
  const int64_t to = op.remote_layout ? op.remote_layout->start : 0, from = op.layout ? op.layout->start : 0;
  device::Step& put = out->step;
  put.kind = device::StepKind::copy;
  put.bytes = op.length;
  put.to = device::contiguous_at(device_address(*op.remote) + op.remote_offset + static_cast<uint64_t>(to));
  put.from = device::contiguous_at(op.address + from);
  put.signal.word = reinterpret_cast<device::u64*>(device_address(*op.signal));
  put.signal.value = op.signal_value;
  put.signal.add = op.signal_op == TW_SIGNAL_ADD ? 1 : 0;
  return TW_OK;
}

/// Under `reading` when the memory is this process's own.
Status copy_in(const OpDesc& op, const Registry::Reading* reading) {
  const Layout* there = op.remote_layout;
  Status status = TW_OK;
  std::byte* to = reach(*op.remote, op.remote_offset, there ? there->first : 0,
                        there ? there->last : static_cast<int64_t>(op.length), TW_MEMORY_WRITE, reading, &status);
  if (to == nullptr) return status == TW_OK ? TW_AGAIN : status;
  if (op.layout == nullptr && there == nullptr) {
    if (op.length == 8) {
      std::memcpy(to, op.address, 8);  // one store: a poller never sees half of it
    } else if (op.length == 4) {
      std::memcpy(to, op.address, 4);
    } else if (op.length > 0) {
      std::memmove(to, op.address, op.length);
    }
  } else {
    LayoutCursor from(op.address, op.layout, op.length), target(to, there, op.length);
    transfer(target, from, op.length);
  }
  return signal_after_data(op, reading);
}

}  // namespace

Status put_mapped(const OpDesc& op) {
  if (op.remote->mapped != nullptr && (op.signal == nullptr || op.signal->mapped != nullptr)) return copy_in(op, nullptr);
  const Registry::Reading reading(op.peer->engine->registry());
  return copy_in(op, &reading);
}

const Protocol kPutMapped = {"put_mapped", Verb::put, probe, step, lower, bind, nullptr};

}  // namespace thalweg::impl
