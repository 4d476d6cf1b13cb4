// SPDX-License-Identifier: Apache-2.0
// A thread computes a point and its neighbours along i; a block leaves its part of gosa in its own place, which the host
// adds up in a fixed order when it is asked for.
#include "himeno/stencil.hpp"

using himeno::Arrays;
using himeno::Index;

namespace {

/// Of all threads of the block, in a fixed order; the result is thread 0's.
__device__ double block_sum(double mine) {
  __shared__ double of_warp[32];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / 32;
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
  if (thread % 32 == 0) of_warp[thread / 32] = mine;
  __syncthreads();
  if (thread >= 32) return 0;
  mine = thread < warps ? of_warp[thread] : 0;
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
  return mine;
}

}  // namespace

/// blockIdx.z takes `thickness` planes i.
extern "C" __global__ void jacobi(Arrays g, const float* __restrict__ p, float* __restrict__ out, double* gosa, Index thickness) {
  const Index k = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x + 1;
  const Index j = static_cast<Index>(blockIdx.y) * blockDim.y + threadIdx.y + 1;
  const Index first = static_cast<Index>(blockIdx.z) * thickness + 1;
  const Index end = first + thickness <= g.inside[0] + 1 ? first + thickness : g.inside[0] + 1;
  double sum = 0;
  if (k <= g.inside[2] && j <= g.inside[1]) {
    for (Index i = first; i < end; ++i) {
      const Index at = i * g.stride_i + j * g.stride_j + k;
      const float ss = himeno::residual(g, p, at);
      out[at] = p[at] + himeno::kOmega * ss;
      sum += static_cast<double>(ss * ss);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0 && threadIdx.y == 0) gosa[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}
