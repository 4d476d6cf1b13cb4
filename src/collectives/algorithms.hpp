// SPDX-License-Identifier: Apache-2.0
// The algorithms: each writes what one rank does in a collective, and all ranks' schedules together are it. One file each.
// Every schedule combines the same operands in the same order whenever it runs; what depends on more than rank, size and count
// says so.
#pragma once
#include "collectives/schedule.hpp"

namespace thalweg::impl {

/// Which protocol of one kernel on each device (devices/program/exchange.hpp), Simple in one phase or two; lines: LL128; none: no kernel.
enum class Kernels : uint8_t { none, ll, lines, simple, two_phases, symmetric, slots };

/// Kernels do it in two phases, where they can: a slice of it to each rank.
inline bool is_sliced(const Collective& c) {
  return c.kind == CollectiveKind::allreduce || (c.kind == CollectiveKind::broadcast && c.size > 2);
}
/// Bytes of one of so many, of which elements stay whole.
inline uint64_t slice_of(uint64_t bytes, uint64_t slices) { return ((bytes + slices - 1) / slices + 15) / 16 * 16; }
/// The root of a broadcast has none.
inline uint64_t slice_of(const Collective& c) {
  return slice_of(c.bytes(), c.kind == CollectiveKind::broadcast ? c.size - 1 : c.size);
}

struct Algorithm {
  const char* name;
  CollectiveKind kind;
  /// Null: it can do this one; on all ranks or on none.
  const char* (*why_not)(const Collective&);
  void (*write)(const Collective&, Schedule*);  // null: it has no schedule, but is run by DirectRun, or by kernels
  Kernels kernels = Kernels::none;
  bool applies(const Collective& collective) const { return why_not(collective) == nullptr; }
};

/// All of a kind, the simpler ones first; one at least has no condition.
std::span<const Algorithm> algorithms_of(CollectiveKind kind);
/// By name, as users say it. Fails if there is none, or it cannot do this.
Status find_algorithm(const Collective& collective, const char* name, const Algorithm** out);
const char* kind_name(CollectiveKind kind);

void dissemination_barrier(const Collective& c, Schedule* schedule);

void linear_broadcast(const Collective& c, Schedule* schedule);
void binomial_broadcast(const Collective& c, Schedule* schedule);
void chain_broadcast(const Collective& c, Schedule* schedule);
void scatter_allgather_broadcast(const Collective& c, Schedule* schedule);

void linear_reduce(const Collective& c, Schedule* schedule);
void binomial_reduce(const Collective& c, Schedule* schedule);
void halving_gather_reduce(const Collective& c, Schedule* schedule);
void ring_gather_reduce(const Collective& c, Schedule* schedule);

void one_shot_allreduce(const Collective& c, Schedule* schedule);
void recursive_doubling_allreduce(const Collective& c, Schedule* schedule);
void halving_doubling_allreduce(const Collective& c, Schedule* schedule);
void ring_allreduce(const Collective& c, Schedule* schedule);
void two_rings_allreduce(const Collective& c, Schedule* schedule);
void leaders_allreduce(const Collective& c, Schedule* schedule);
void hierarchical_ring_allreduce(const Collective& c, Schedule* schedule);
void hierarchical_halving_allreduce(const Collective& c, Schedule* schedule);

void direct_reduce_scatter_all(const Collective& c, Schedule* schedule);
void pairwise_reduce_scatter(const Collective& c, Schedule* schedule);
void halving_reduce_scatter(const Collective& c, Schedule* schedule);
void ring_reduce_scatter_all(const Collective& c, Schedule* schedule);

void direct_allgather_all(const Collective& c, Schedule* schedule);
void recursive_doubling_allgather(const Collective& c, Schedule* schedule);
void bruck_allgather(const Collective& c, Schedule* schedule);
void ring_allgather_all(const Collective& c, Schedule* schedule);

void linear_gather(const Collective& c, Schedule* schedule);
void binomial_gather(const Collective& c, Schedule* schedule);
void linear_scatter(const Collective& c, Schedule* schedule);
void binomial_scatter(const Collective& c, Schedule* schedule);

void linear_alltoall(const Collective& c, Schedule* schedule);
void pairwise_alltoall(const Collective& c, Schedule* schedule);
/// radix: at least 2.
void bruck_alltoall(const Collective& c, uint32_t radix, Schedule* schedule);

// scan and exclusive_scan.
void recursive_doubling_scan(const Collective& c, Schedule* schedule);
void chain_scan(const Collective& c, Schedule* schedule);

}  // namespace thalweg::impl
