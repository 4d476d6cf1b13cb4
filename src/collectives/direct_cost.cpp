// SPDX-License-Identifier: Apache-2.0
// How long a collective takes over memory that all ranks map (direct_run.hpp), and by kernels that store into it.
#include <algorithm>
#include <cmath>

#include "collectives/direct_area.hpp"
#include "collectives/estimate.hpp"

namespace thalweg::impl {

constexpr uint64_t kStep = 64u << 10;  // bytes
constexpr double kInCache = 0.25;  // pieces are combined and copied while they are in a cache; measured on two cores of one die

namespace {

constexpr double kLine = 1.0 / 6;  // of a message: a line that another core has just written
constexpr uint64_t kLineBytes = 64, kInFlagsLine = 48;

// Blocks of an alltoall beside the bytes of messages. Of two ranks both copy a message at once; of more each has others' to copy.
constexpr double kOfTwo = 2, kOfMany = 0.75;

double flags_ns(double copied, double ranks, const CollectiveCosts& costs) {
  return (1 + copied / static_cast<double>(kStep)) * costs.message_ns * (0.25 + ranks / 64);
}
double all_read_ns(uint32_t ranks, uint64_t bytes, const CollectiveCosts& costs) {
  return (ranks - 1) * (costs.read_ns + static_cast<double>(bytes) * costs.read_byte_ns) +
         costs.message_ns * (2 + ranks * kLine);
}
double through_parts_ns(uint32_t ranks, uint64_t bytes, const CollectiveCosts& costs) {
  return (ranks - 1) * static_cast<double>(bytes) * costs.serial_byte_ns;
}

}  // namespace

/// Costs are those of one copy at a time: of many ranks' at once they are less certain.
bool reading_is_faster(uint32_t ranks, uint64_t bytes, const CollectiveCosts& costs) {
  constexpr double kClearly = 1.3;
  return kClearly * all_read_ns(ranks, bytes, costs) < through_parts_ns(ranks, bytes, costs);
}

namespace {

/// The blocks of an alltoall, which each rank reads where they are or copies through parts, and its own one.
double exchanged_ns(uint32_t ranks, uint64_t bytes, const CollectiveCosts& costs) {
  const double length = static_cast<double>(bytes), own_ns = costs.step_ns + length * costs.copy_byte_ns;
  if (reading_is_faster(ranks, bytes, costs)) return own_ns + all_read_ns(ranks, bytes, costs);
  return own_ns + flags_ns(2 * ranks * length, ranks, costs) +
         (ranks > 2 ? kOfMany : kOfTwo) * (ranks - 1) * length * costs.byte_ns;
}

}  // namespace

ReductionWay way_of(const Collective& c, const CollectiveCosts& costs, bool crowded) {
  constexpr uint64_t kAtOnce = 16u << 10;
  const uint64_t bytes = c.kind == CollectiveKind::barrier ? 0 : c.bytes();
  if (crowded || bytes > DirectArea::kSmall) return {0, c.size > 2 && bytes * (c.size - 2) > kAtOnce};
  const auto each = static_cast<uint32_t>(std::lround(std::sqrt(c.size)));
  const uint32_t groups = (c.size + each - 1) / each;
  const double others = c.size - 1,
               lines = bytes <= kInFlagsLine ? 0 : static_cast<double>((bytes + kLineBytes - 1) / kLineBytes);
  const double line_ns = kLine * costs.message_ns, turn_ns = 2 * costs.message_ns, at_once = others * (1 + lines) * line_ns;
  const double by_shares = others * (2 + 2 * std::max(1.0, lines / c.size)) * line_ns + turn_ns;
  const double by_groups = (each + groups - 2) * (1 + lines) * line_ns + turn_ns;
  const bool grouped = c.size >= 4 && (bytes == 0 || c.element >= 4) && by_groups < std::min(at_once, by_shares);
  return {grouped ? each : 0, bytes != 0 && by_shares < at_once};
}

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
      return exchanged_ns(c.size, c.bytes(), costs);
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
  return flags_ns(copied, ranks, costs) + kInCache * (copied * costs.copy_byte_ns + combined * costs.reduce_byte_ns);
}

/// By the bytes that the busiest rank sends (devices/program/exchange.hpp).
double kernel_ns(Kernels kernels, const Collective& c, const CollectiveCosts& costs) {
  const double ranks = c.size, bytes = static_cast<double>(c.bytes());
  if (kernels == Kernels::ll) return costs.ll.of((ranks - 1) * bytes);
  const bool all = c.kind == CollectiveKind::allreduce;
  const double in_two = all ? 2 * (ranks - 1) / ranks * bytes : bytes;
  if (kernels == Kernels::lines) {
    if (!is_sliced(c)) return costs.lines.of((ranks - 1) * bytes);
    return all ? costs.two_lines.of(in_two) : costs.two_lines.ns + in_two * costs.lines.byte_ns;
  }
  if (kernels == Kernels::two_phases)
    return all ? costs.two_phases.of(in_two) : costs.two_phases.ns + in_two * costs.one_phase.byte_ns;
  if (kernels == Kernels::simple) return costs.one_phase.of((ranks - 1) * bytes);
  if (kernels == Kernels::slots) return costs.slots.of(in_two);
  if (all) return costs.symmetric.of(in_two);
  if (c.kind == CollectiveKind::broadcast) return (c.size > 2 ? costs.stores.ns : 0) + costs.stores.of(bytes);
  const bool loads = c.kind == CollectiveKind::reduce || c.kind == CollectiveKind::reduce_scatter;
  return (loads ? costs.loads : costs.stores).of((ranks - 1) * bytes);
}

}  // namespace thalweg::impl
