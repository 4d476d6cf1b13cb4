// SPDX-License-Identifier: Apache-2.0
// The routes of a link as breakpoints by size: computed once, when it is connected; the hot path only compares with them.
#pragma once
#include <cstdint>

#include "routes/costs.hpp"
#include "routes/ways.hpp"

namespace thalweg::impl {

struct Link;

inline constexpr uint64_t kNever = UINT64_MAX;

struct Limits {
  uint32_t copy = 0;                // largest body sent by copy
  uint32_t single = 0;              // largest payload of one `tagged` or `am` frame, by copy or by reference
  uint32_t reference = 0;           // pieces from here on go by send_reference; UINT32_MAX: never
  uint32_t fragment = 0;            // payload of one data frame
  uint32_t reference_fragment = 0;  // the same, by reference
  uint64_t eager = 0;               // largest eager payload (in several frames); above: rendezvous
  uint64_t halves = 0;              // both ends copy from here on
  uint64_t mapped_from = kNever;    // rendezvous payloads in mapped memory are copied from there, from this size on
  uint64_t kernel_from = kNever;    // contiguous rendezvous payloads are copied by the kernel from this size on
};

/// Do `length` bytes of a buffer go straight from it?
inline bool by_reference(const Limits& limits, bool contiguous, uint64_t length) {
  return contiguous && length >= limits.reference;
}

/// The same of a message in one frame of `body` bytes, `length` of them the buffer's: what may go by copy does, and ends
/// with its call.
inline bool single_by_reference(const Limits& limits, bool contiguous, uint64_t length, uint64_t body) {
  return body > limits.copy && by_reference(limits, contiguous, length);
}

/// `distance`: of the processors of two processes, CpuDistance::count_: unknown.
const LinkCosts& costs_of(const CostTable& table, const Link& link, CpuDistance distance = CpuDistance::count_);
/// Asks the kernel where the peer's process may run; nothing where all processors are at one distance.
CpuDistance distance_to(const CostTable& table, const Link& link);
Limits limits_of(const Link& link, const LinkCosts& costs, Way forced = Way::any);

/// Predicted nanoseconds, one way, of a rendezvous payload.
double frames_ns(const LinkCosts& costs, bool by_reference, uint64_t length);
double mapped_ns(const LinkCosts& costs, uint64_t length);
double kernel_ns(const LinkCosts& costs, uint64_t length);

}  // namespace thalweg::impl
