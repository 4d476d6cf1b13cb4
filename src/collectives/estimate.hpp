// SPDX-License-Identifier: Apache-2.0
// How long a collective takes by an algorithm: its schedules, run by a model of the ranks. Each rank sends, and receives, one
// message after the other, and its CPU does one reduction or copy after the other.
#pragma once
#include <algorithm>
#include <cstdint>

#include "collectives/algorithms.hpp"

namespace thalweg::impl {

/// Nanoseconds by the bytes that a rank sends, or loads: of a few; each one; each one beyond `bend`.
struct KernelLine {
  double ns = 0, byte_ns = 0;
  uint64_t bend = UINT64_MAX;
  double longer_byte_ns = 0;
  double of(double bytes) const {
    const double straight = std::min(bytes, static_cast<double>(bend));
    return ns + straight * byte_ns + (bytes - straight) * longer_byte_ns;
  }
};

/// Nanoseconds, of idle ranks and links. Until they are measured: of shared memory.
struct CollectiveCosts {
  double message_ns = 400;  // one way, without bytes
  double byte_ns = 0.1;
  double serial_byte_ns = 0.2;                 // where the copy in and the copy out follow each other
  double read_ns = 1000, read_byte_ns = 0.11;  // by the kernel, from another process
  double reduce_byte_ns = 0.1;                 // for each source but the first
  double copy_byte_ns = 0.05;
  double step_ns = 40;            // a reduction or copy, without bytes
  double scratch_byte_ns = 0.02;  // of scratch memory, which has to be had
  double host_message_ns = 0;     // between hosts, where ranks_per_host says which; 0: as within one
  double host_byte_ns = 0;
  // Kernels; until they are measured: of NVLink.
  KernelLine ll{2900, 0.0065, uint64_t{768} << 10, 0.011};
  KernelLine lines{3200, 0.003}, two_lines{4300, 0.003};  // LL128: in one phase; an allreduce
  KernelLine two_phases{13'000, 0.003};                   // an allreduce
  KernelLine one_phase{11'500, 0.0034};                   // all else
  KernelLine symmetric{8'000, 0.0029};                    // in windows: an allreduce
  KernelLine slots{10'000, 0.0028};                       // the same, operands by slots
  KernelLine loads{7'000, 0.003}, stores{6'500, 0.0028};  // other reductions, all else
  bool cpu_moves = false;                                 // the CPU that reduces moves what is sent and received, too
};

/// Until the last rank is done. The same on all ranks: rank and, of alltoall's v form, counts are not looked at.
double predicted_ns(const Algorithm& algorithm, const Collective& collective, const CollectiveCosts& costs);

/// In an alltoall over memory that all ranks map: does each rank read its blocks where they are, instead of their being copied into
/// shared memory first?
bool reading_is_faster(uint32_t ranks, uint64_t bytes, const CollectiveCosts& costs);
/// How ranks reduce there, or come together in a barrier, by the cache lines that each reads: those of all others; or in a turn more,
/// of its group of ranks and of one of each other group; or of its share of all ranks', and all shares. Types of 16 bits and fewer are
/// not rounded twice. crowded: more ranks than cores, where a turn is much longer.
struct ReductionWay {
  uint32_t group;  // ranks of one; 0: no groups
  bool by_shares;  // otherwise
};
ReductionWay way_of(const Collective& collective, const CollectiveCosts& costs, bool crowded);

/// Of the algorithms without a schedule.
double direct_ns(const Collective& collective, const CollectiveCosts& costs);
double kernel_ns(Kernels kernels, const Collective& collective, const CollectiveCosts& costs);

}  // namespace thalweg::impl
