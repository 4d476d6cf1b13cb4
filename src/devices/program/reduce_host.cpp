// SPDX-License-Identifier: Apache-2.0
#include "devices/program/reduce_host.hpp"

namespace thalweg::impl {
namespace {

#if defined(__x86_64__)
[[gnu::flatten, gnu::target("avx2")]] void reduce_wide(const device::Reduction& what, device::Part part) {
  device::reduce_part(device::DirectMachine(), 0, 1, what, part);
}
const bool kWide = __builtin_cpu_supports("avx2");
#endif

}  // namespace

void reduce_on_host(const device::Reduction& what, device::Part part) {
#if defined(__x86_64__)
  if (kWide) return reduce_wide(what, part);
#endif
  device::reduce_part(device::DirectMachine(), 0, 1, what, part);
}

}  // namespace thalweg::impl
