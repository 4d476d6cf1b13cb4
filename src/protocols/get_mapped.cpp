// SPDX-License-Identifier: Apache-2.0
// Get from memory that is mapped here, or of this process: the caller's own loads, complete when it returns.
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

Status copy_out(const OpDesc& op, const Registry::Reading* reading) {
  const Layout* there = op.remote_layout;
  Status status = TW_OK;
  std::byte* from = reach(*op.remote, op.remote_offset, there ? there->first : 0,
                          there ? there->last : static_cast<int64_t>(op.length), TW_MEMORY_READ, reading, &status);
  if (from == nullptr) return status == TW_OK ? TW_AGAIN : status;
  if (op.layout == nullptr && there == nullptr) {
    if (op.length == 8) {
      std::memcpy(op.address, from, 8);
    } else if (op.length > 0) {
      std::memmove(op.address, from, op.length);
    }
  } else {
    LayoutCursor to(op.address, op.layout, op.length), source(from, there, op.length);
    transfer(to, source, op.length);
  }
  return calls_failed(op.layout);
}

Status copy_out(const OpDesc& op) {
  if (op.remote->mapped != nullptr) return copy_out(op, nullptr);
  const Registry::Reading reading(op.peer->engine->registry());
  return copy_out(op, &reading);
}

}  // namespace

Status get_mapped(const OpDesc& op) {
  const Status status = copy_out(op);
  if (status == TW_OK) count_moved(op, Way::mapped);
  return status;
}

}  // namespace thalweg::impl
