// SPDX-License-Identifier: Apache-2.0
#include "machine/workers.hpp"

#include "driver.hpp"
#include "kernels/collaborate.hpp"
#include "machine/numa.hpp"

namespace perf {

Workers::Workers(Gpu* gpu, unsigned threads)
    : gpu_(gpu),
      host_(gpu != nullptr ? threads : std::max(1u, threads - threads / 2)),
      team_(allowed_processors(), gpu != nullptr ? host_ : std::max(2u, threads)) {}

double Workers::together(const Collaboration* host, const Collaboration* device) {
  constexpr unsigned kGpuThreads = 256, kBlocksEach = 4;
  const StreamTeam::Part part = [&](unsigned thread, size_t, size_t) {
    const Collaboration* const mine = thread < host_ ? host : device;
    u32 words[kBins];
    if (mine != nullptr) collaborate(*mine, thalweg::device::Thread(), words);
  };
  if (gpu_ == nullptr) return team_.run(team_.threads(), part);
  return timed([&] {
    if (device != nullptr) gpu_->launch("perf_collaborate", kBlocksEach * gpu_->multiprocessors(), kGpuThreads, *device);
    if (host != nullptr) (void)team_.run(team_.threads(), part);
    if (device != nullptr) gpu_->finish();
  });
}

bool Workers::native_atomics() const {
  return gpu_ == nullptr || cuda::attribute_of(gpu_->ordinal(), cuda::kHostNativeAtomics) != 0;
}

}  // namespace perf
