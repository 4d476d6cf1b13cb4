// SPDX-License-Identifier: Apache-2.0
// An operation's local side that lies in device memory.
#pragma once
#include "devices/device.hpp"
#include "protocols/operation.hpp"

namespace thalweg::impl {

/// `info` is of the buffer; address, length and layout are set apart.
inline void set_device(OpDesc& op, const BufferInfo& info) {
  op.flags |= kOpDevice;
  op.kind = info.kind;
  op.exportable = static_cast<uint8_t>(info.exportable);
  op.device = info.device;
  op.buffer_id = info.buffer_id;
  op.allocation = info.base;
  op.allocated = info.length;
}

/// As it was set.
inline BufferInfo info_of(const OpDesc& op) {
  BufferInfo info;
  info.kind = op.kind;
  info.device = op.device;
  info.buffer_id = op.buffer_id;
  info.base = op.allocation;
  info.length = op.allocated;
  info.host_access = false;
  info.exportable = static_cast<ExportForm>(op.exportable);
  return info;
}

}  // namespace thalweg::impl
