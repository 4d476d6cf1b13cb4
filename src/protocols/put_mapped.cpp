// SPDX-License-Identifier: Apache-2.0
// Put into memory that is mapped here: the caller's own stores. Copies before it returns. (Queues and kernels put by plans
// and windows, src/plans.)
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

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
  return calls_failed(op.layout);
}

Status copy_in(const OpDesc& op) {
  if (op.remote->mapped != nullptr) return copy_in(op, nullptr);
  const Registry::Reading reading(op.peer->engine->registry());
  return copy_in(op, &reading);
}

}  // namespace

Status put_mapped(const OpDesc& op) {
  const Status status = copy_in(op);
  if (status != TW_OK) return status;
  count_moved(op, Way::mapped);
  return TW_OK;
}

}  // namespace thalweg::impl
