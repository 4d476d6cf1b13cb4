// SPDX-License-Identifier: Apache-2.0
// How long a collective takes over memory that all ranks map (direct_run.hpp), and by kernels that store into it.
#include "collectives/estimate.hpp"

namespace thalweg::impl {

constexpr uint64_t kStep = 64u << 10;  // bytes
constexpr double kInCache = 0.25;  // pieces are combined and copied while they are in a cache; measured on two cores of one die

/// Flags in turns of steps, bytes that a rank copies, and bytes that it combines.
double direct_ns(const Collective& c, const CollectiveCosts& costs) {
  const double ranks = c.size, bytes = static_cast<double>(c.bytes());
  double copied = 2 * bytes, combined = 0;
  switch (c.kind) {
    case CollectiveKind::allgather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      copied = (1 + ranks) * bytes;
      break;
    case CollectiveKind::alltoall:
      copied = 2 * ranks * bytes;
      break;
    case CollectiveKind::reduce_scatter:
      copied = ranks * bytes;
      combined = (ranks - 1) * bytes;
      break;
    case CollectiveKind::scan:
    case CollectiveKind::exclusive_scan:
      combined = (ranks - 1) * bytes;
      break;
    case CollectiveKind::allreduce:
    case CollectiveKind::reduce:
      combined = bytes;
      break;
    default:
      break;
  }
  const double turns = 1 + copied / static_cast<double>(kStep);
  return turns * costs.message_ns * (0.25 + ranks / 64) +
         kInCache * (copied * costs.copy_byte_ns + combined * costs.reduce_byte_ns);
}

double kernel_ns(Kernels kernels, const Collective& c, const CollectiveCosts& costs) {
  const double ranks = c.size, bytes = static_cast<double>(c.bytes());
  if (kernels == Kernels::ll) return costs.ll_ns + (ranks - 1) * bytes * costs.ll_byte_ns;
  if (c.kind == CollectiveKind::allreduce) return costs.two_phases_ns + 2 * (ranks - 1) / ranks * bytes * costs.simple_byte_ns;
  return costs.one_phase_ns + (ranks - 1) * bytes * costs.simple_byte_ns;
}

}  // namespace thalweg::impl
