// SPDX-License-Identifier: Apache-2.0
#include "collectives/algorithms.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace thalweg::impl {
namespace {

const char* always(const Collective&) { return nullptr; }
const char* any_order(const Collective& c) { return c.commutative ? nullptr : "does not keep the order of ranks"; }
const char* power_of_two_only(const Collective& c) {
  return std::has_single_bit(c.size) ? nullptr : "needs a power of two of ranks";
}
const char* counts_everywhere(const Collective& c) { return c.counts_at_root ? "only the root knows the counts" : nullptr; }

/// Its messages are as many as the square of the ranks.
const char* few_ranks(const Collective& c) { return c.size <= 128 ? nullptr : "for at most 128 ranks"; }

const char* hosts(const Collective& c) {
  if (c.ranks_per_host == 0) return "ranks are not spread over hosts evenly, host by host";
  if (c.ranks_per_host == 1) return "each rank is of another host";
  if (c.ranks_per_host >= c.size) return "all ranks are of one host";
  if (c.size % c.ranks_per_host != 0) return "hosts have different numbers of ranks";
  return c.repeatable ? "its order depends on which ranks are of one host" : nullptr;
}
const char* hosts_any_order(const Collective& c) {
  const char* why_not = hosts(c);
  return why_not != nullptr ? why_not : any_order(c);
}

const char* shared(const Collective& c) {
  return c.direct ? nullptr : "for blocking calls alone, of ranks that all map each other's memory";
}
/// Non-blocking calls combine in other orders.
const char* shared_any_order(const Collective& c) {
  return c.direct && c.repeatable ? "its order is not that of non-blocking calls" : shared(c);
}

const char* kernels(const Collective& c) {
  return c.kernel_room == 0 ? "for queues, and plans that name a kernel, of devices that all reach each other's memory"
                            : nullptr;
}
const char* short_kernels(const Collective& c) {
  const char* why_not = kernels(c);
  if (why_not != nullptr) return why_not;
  if (c.has_counts()) return "needs blocks of the same length";
  return c.bytes() > c.kernel_room ? "for shorter blocks" : nullptr;
}
const char* lines(const Collective& c) {
  const char* why_not = kernels(c);
  if (why_not != nullptr) return why_not;
  if (c.line_room == 0) return "for ranks, at most eight, whose devices NVLink joins";
  if (c.has_counts()) return "needs blocks of the same length";
  if (c.rare) return "not of this type, or with this operation";
  return (is_sliced(c) ? 2 * slice_of(c) : c.bytes()) > c.line_room ? "for shorter blocks" : nullptr;
}
const char* kernels_of_three(const Collective& c) {
  const char* why_not = kernels(c);
  return why_not == nullptr && c.size < 3 ? "needs more than two ranks" : why_not;
}
/// The host combines in other orders.
const char* kernels_any_order(const Collective& c) {
  return c.kernel_room != 0 && c.repeatable ? "its order is not that of the host's calls" : kernels(c);
}
const char* short_kernels_any_order(const Collective& c) {
  const char* why_not = kernels_any_order(c);
  return why_not != nullptr ? why_not : short_kernels(c);
}

const char* lines_any_order(const Collective& c) {
  const char* why_not = kernels_any_order(c);
  return why_not != nullptr ? why_not : lines(c);
}

const char* windows(const Collective& c) {
  const char* why_not = kernels(c);
  return why_not == nullptr && !c.symmetric ? "for buffers in windows that are registered (tw_window_register_on), on all ranks"
                                            : why_not;
}
const char* windows_any_order(const Collective& c) {
  const char* why_not = kernels_any_order(c);
  return why_not != nullptr ? why_not : windows(c);
}

template <uint32_t radix>
const char* equal_blocks(const Collective& c) {
  if (c.send_counts != nullptr || c.recv_counts != nullptr) return "needs blocks of the same length";
  return radix < c.size ? nullptr : "needs more ranks than its radix";
}
template <uint32_t radix>
void bruck(const Collective& c, Schedule* schedule) {
  bruck_alltoall(c, radix, schedule);
}

using Kind = CollectiveKind;
// Sorted by kind.
constexpr Algorithm kAlgorithms[] = {
    {"dissemination", Kind::barrier, always, dissemination_barrier},
    {"direct", Kind::barrier, shared, nullptr},
    {"ll", Kind::barrier, short_kernels, nullptr, Kernels::ll},
    {"binomial", Kind::broadcast, always, binomial_broadcast},
    {"linear", Kind::broadcast, always, linear_broadcast},
    {"chain", Kind::broadcast, always, chain_broadcast},
    {"scatter_allgather", Kind::broadcast, few_ranks, scatter_allgather_broadcast},
    {"direct", Kind::broadcast, shared, nullptr},
    {"ll", Kind::broadcast, short_kernels, nullptr, Kernels::ll},
    {"ll128", Kind::broadcast, lines, nullptr, Kernels::lines},
    {"simple", Kind::broadcast, kernels, nullptr, Kernels::simple},
    {"two_phases", Kind::broadcast, kernels_of_three, nullptr, Kernels::two_phases},
    {"symmetric", Kind::broadcast, windows, nullptr, Kernels::symmetric},
    {"binomial", Kind::reduce, always, binomial_reduce},
    {"linear", Kind::reduce, always, linear_reduce},
    {"halving_gather", Kind::reduce, always, halving_gather_reduce},
    {"ring_gather", Kind::reduce, any_order, ring_gather_reduce},
    {"direct", Kind::reduce, shared_any_order, nullptr},
    {"ll", Kind::reduce, short_kernels_any_order, nullptr, Kernels::ll},
    {"ll128", Kind::reduce, lines_any_order, nullptr, Kernels::lines},
    {"simple", Kind::reduce, kernels_any_order, nullptr, Kernels::simple},
    {"symmetric", Kind::reduce, windows_any_order, nullptr, Kernels::symmetric},
    {"one_shot", Kind::allreduce, always, one_shot_allreduce},
    {"recursive_doubling", Kind::allreduce, always, recursive_doubling_allreduce},
    {"halving_doubling", Kind::allreduce, always, halving_doubling_allreduce},
    {"ring", Kind::allreduce, any_order, ring_allreduce},
    {"two_rings", Kind::allreduce, any_order, two_rings_allreduce},
    {"leaders", Kind::allreduce, hosts, leaders_allreduce},
    {"hierarchical_ring", Kind::allreduce, hosts_any_order, hierarchical_ring_allreduce},
    {"hierarchical_halving", Kind::allreduce, hosts, hierarchical_halving_allreduce},
    {"direct", Kind::allreduce, shared_any_order, nullptr},
    {"ll", Kind::allreduce, short_kernels_any_order, nullptr, Kernels::ll},
    {"ll128", Kind::allreduce, lines_any_order, nullptr, Kernels::lines},
    {"simple", Kind::allreduce, kernels_any_order, nullptr, Kernels::two_phases},
    {"symmetric", Kind::allreduce, windows_any_order, nullptr, Kernels::symmetric},
    {"symmetric_simple", Kind::allreduce, windows_any_order, nullptr, Kernels::slots},
    {"linear", Kind::reduce_scatter, always, direct_reduce_scatter_all},
    {"pairwise", Kind::reduce_scatter, any_order, pairwise_reduce_scatter},
    {"halving", Kind::reduce_scatter, any_order, halving_reduce_scatter},
    {"ring", Kind::reduce_scatter, any_order, ring_reduce_scatter_all},
    {"direct", Kind::reduce_scatter, shared_any_order, nullptr},
    {"ll", Kind::reduce_scatter, short_kernels_any_order, nullptr, Kernels::ll},
    {"ll128", Kind::reduce_scatter, lines_any_order, nullptr, Kernels::lines},
    {"simple", Kind::reduce_scatter, kernels_any_order, nullptr, Kernels::simple},
    {"symmetric", Kind::reduce_scatter, windows_any_order, nullptr, Kernels::symmetric},
    {"bruck", Kind::allgather, always, bruck_allgather},
    {"linear", Kind::allgather, always, direct_allgather_all},
    {"recursive_doubling", Kind::allgather, power_of_two_only, recursive_doubling_allgather},
    {"ring", Kind::allgather, always, ring_allgather_all},
    {"direct", Kind::allgather, shared, nullptr},
    {"ll", Kind::allgather, short_kernels, nullptr, Kernels::ll},
    {"ll128", Kind::allgather, lines, nullptr, Kernels::lines},
    {"simple", Kind::allgather, kernels, nullptr, Kernels::simple},
    {"symmetric", Kind::allgather, windows, nullptr, Kernels::symmetric},
    {"linear", Kind::gather, always, linear_gather},
    {"binomial", Kind::gather, counts_everywhere, binomial_gather},
    {"direct", Kind::gather, shared, nullptr},
    {"ll", Kind::gather, short_kernels, nullptr, Kernels::ll},
    {"ll128", Kind::gather, lines, nullptr, Kernels::lines},
    {"simple", Kind::gather, kernels, nullptr, Kernels::simple},
    {"linear", Kind::scatter, always, linear_scatter},
    {"binomial", Kind::scatter, counts_everywhere, binomial_scatter},
    {"direct", Kind::scatter, shared, nullptr},
    {"ll", Kind::scatter, short_kernels, nullptr, Kernels::ll},
    {"ll128", Kind::scatter, lines, nullptr, Kernels::lines},
    {"simple", Kind::scatter, kernels, nullptr, Kernels::simple},
    {"linear", Kind::alltoall, always, linear_alltoall},
    {"pairwise", Kind::alltoall, always, pairwise_alltoall},
    {"bruck", Kind::alltoall, equal_blocks<2>, bruck<2>},
    {"bruck4", Kind::alltoall, equal_blocks<4>, bruck<4>},
    {"bruck8", Kind::alltoall, equal_blocks<8>, bruck<8>},
    {"direct", Kind::alltoall, shared, nullptr},
    {"ll", Kind::alltoall, short_kernels, nullptr, Kernels::ll},
    {"ll128", Kind::alltoall, lines, nullptr, Kernels::lines},
    {"simple", Kind::alltoall, kernels, nullptr, Kernels::simple},
    {"symmetric", Kind::alltoall, windows, nullptr, Kernels::symmetric},
    {"recursive_doubling", Kind::scan, always, recursive_doubling_scan},
    {"chain", Kind::scan, always, chain_scan},
    {"direct", Kind::scan, shared_any_order, nullptr},
    {"ll", Kind::scan, short_kernels_any_order, nullptr, Kernels::ll},
    {"ll128", Kind::scan, lines_any_order, nullptr, Kernels::lines},
    {"simple", Kind::scan, kernels_any_order, nullptr, Kernels::simple},
    {"recursive_doubling", Kind::exclusive_scan, always, recursive_doubling_scan},
    {"chain", Kind::exclusive_scan, always, chain_scan},
    {"direct", Kind::exclusive_scan, shared_any_order, nullptr},
    {"ll", Kind::exclusive_scan, short_kernels_any_order, nullptr, Kernels::ll},
    {"ll128", Kind::exclusive_scan, lines_any_order, nullptr, Kernels::lines},
    {"simple", Kind::exclusive_scan, kernels_any_order, nullptr, Kernels::simple},
};
static_assert(std::ranges::is_sorted(kAlgorithms, {}, &Algorithm::kind));

constexpr const char* kKinds[] = {"barrier", "broadcast", "reduce",   "allreduce", "reduce_scatter", "allgather",
                                  "gather",  "scatter",   "alltoall", "scan",      "exclusive_scan"};
static_assert(std::size(kKinds) == static_cast<size_t>(Kind::count_));

}  // namespace

const char* kind_name(CollectiveKind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::span<const Algorithm> algorithms_of(CollectiveKind kind) {
  return std::ranges::equal_range(kAlgorithms, kind, {}, &Algorithm::kind);
}

Status find_algorithm(const Collective& c, const char* name, const Algorithm** out) {
  std::string names;
  for (const Algorithm& each : algorithms_of(c.kind)) {
    names.append(names.empty() ? "" : ", ").append(each.name);
    if (std::strcmp(each.name, name) != 0) continue;
    const char* why_not = each.why_not(c);
    if (why_not != nullptr) {
      return fail(TW_ERR_UNSUPPORTED, "%s cannot do this %s: %s; choose another algorithm", name, kind_name(c.kind), why_not);
    }
    *out = &each;
    return TW_OK;
  }
  return fail(TW_ERR_INVALID, "%s has no algorithm %s; there are: %s", kind_name(c.kind), name, names.c_str());
}

}  // namespace thalweg::impl
