// SPDX-License-Identifier: Apache-2.0
// The kernel trigger.
#include "plans/trigger.hpp"

namespace thalweg::impl {

Status trigger_kernel(const OpDesc& op, const Protocol& protocol, DeviceDesc* out) {
  if (op.verb != protocol.verb) return fail(TW_ERR_INVALID, "protocol %s does not carry this kind of operation", protocol.name);
  if (protocol.bind == nullptr) {
    return fail(TW_ERR_UNSUPPORTED,
                "protocol %s cannot be triggered by a kernel; trigger it from the host, or use memory that "
                "is mapped or imported here",
                protocol.name);
  }
  return protocol.bind(op, out);
}

}  // namespace thalweg::impl
