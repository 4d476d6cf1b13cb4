// SPDX-License-Identifier: Apache-2.0
// The queue trigger.
#include "plans/trigger.hpp"

namespace thalweg::impl {

Status trigger_queue(const OpDesc& op, const Protocol& protocol, Queue& queue) {
  if (op.verb != protocol.verb) return fail(TW_ERR_INVALID, "protocol %s does not carry this kind of operation", protocol.name);
  if (protocol.lower == nullptr) {
    return fail(TW_ERR_UNSUPPORTED,
                "protocol %s cannot be triggered by a queue; trigger it from the host, or use memory that "
                "is mapped or imported here",
                protocol.name);
  }
  return protocol.lower(op, queue);
}

}  // namespace thalweg::impl
