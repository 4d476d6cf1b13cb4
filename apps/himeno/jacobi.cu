// SPDX-License-Identifier: Apache-2.0
// A thread computes a point and its neighbours along i; a block leaves its part of gosa in its own place, which the host
// adds up in a fixed order when it is asked for.
#include <thalweg/device/window.hpp>

#include "himeno/neighbour.hpp"
#include "himeno/stencil.hpp"

using himeno::Arrays;
using himeno::Index;
using himeno::Neighbour;
using himeno::Progress;
using himeno::Tile;
namespace device = thalweg::device;

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

__device__ void leave_sum(double mine, double* gosa) {
  const double sum = block_sum(mine);
  if (threadIdx.x == 0 && threadIdx.y == 0) gosa[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

/// Both ends of i come first, so that neighbours have them early.
__device__ Tile tile_of(Index thickness) {
  const Index z = blockIdx.z == 0 ? 0 : blockIdx.z == 1 ? gridDim.z - 1 : blockIdx.z - 1;
  const Index i = z * thickness + 1, j = static_cast<Index>(blockIdx.y) * blockDim.y + 1,
              k = static_cast<Index>(blockIdx.x) * blockDim.x + 1;
  return {{i, j, k}, {i + thickness, j + blockDim.y, k + blockDim.x}};
}

/// stored(i, j, k, value) after each point; returns this thread's part of gosa.
template <class F>
__device__ double sweep(const Arrays& g, const float* p, float* out, const Tile& tile, F stored) {
  const Index k = tile.begin[2] + threadIdx.x, j = tile.begin[1] + threadIdx.y;
  const Index end = tile.end[0] <= g.inside[0] + 1 ? tile.end[0] : g.inside[0] + 1;
  double sum = 0;
  if (k > g.inside[2] || j > g.inside[1]) return 0;
  for (Index i = tile.begin[0]; i < end; ++i) {
    const Index at = i * g.stride_i + j * g.stride_j + k;
    const float ss = himeno::residual(g, p, at), value = p[at] + himeno::kOmega * ss;
    out[at] = value;
    stored(i, j, k, value);
    sum += static_cast<double>(ss * ss);
  }
  return sum;
}

/// The neighbours of a block of threads, in shared memory.
struct Near {
  Neighbour of[himeno::kMostNeighbours];
  float* there[himeno::kMostNeighbours];
  unsigned number[himeno::kMostNeighbours], count;
};

/// Fills in `near`, a lane of the first warp for each neighbour; all threads know its count afterwards.
__device__ void find_near(Near& near, const Arrays& g, const Neighbour* neighbours, unsigned count, const Tile& tile) {
  bool inner = true;
  for (int axis = 0; axis < 3; ++axis) inner = inner && tile.begin[axis] > 1 && tile.end[axis] <= g.inside[axis];
  const unsigned lane = threadIdx.y * blockDim.x + threadIdx.x;
  if (lane < 32) {
    const bool touches = !inner && lane < count && neighbours[lane].touches(tile);
    const unsigned all = __ballot_sync(~0u, touches), place = __popc(all & ((1u << lane) - 1));
    if (touches) {
      near.of[place] = neighbours[lane];
      near.number[place] = lane;
    }
    if (lane == 0) near.count = __popc(all);
  }
  __syncthreads();
}

/// A thread for each neighbour: waits for its halo, finds its memory. False: the guard says why.
__device__ bool wait_for_near(Near& near, const device::Window& window, int into, device::u64 generation) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  bool ok = true;
  if (thread < near.count) {
    const Neighbour& n = near.of[thread];
    near.there[thread] = device::pointer<float>(window, n.rank, n.to[into], n.span());
    ok = near.there[thread] != nullptr &&
         device::wait(device::Thread(), window, n.word, device::Compare::greater_equal, generation, n.rank);
  }
  return __syncthreads_and(ok) != 0;
}

}  // namespace

// The registers of four blocks a multiprocessor: with fewer, and more blocks, an iteration of size M took 75 instead of 61 us on an H200;
// with four points of i unrolled 85.
extern "C" __global__ void __launch_bounds__(256, 4) jacobi(Arrays g, const float* p, float* out, double* gosa, Index thickness) {
  leave_sum(sweep(g, p, out, tile_of(thickness), [](Index, Index, Index, float) {}), gosa);
}

/// The same, and the exchange (neighbour.hpp). Blocks without a neighbour do not wait. The halo of p changes
/// while the kernel runs. `serving`: blocks that have a neighbour.
extern "C" __global__ void __launch_bounds__(256, 4)
    jacobi_put(Arrays g, const float* p, float* out, double* gosa, Index thickness, device::Window window,
                                      const Neighbour* neighbours, unsigned count, unsigned serving, Progress* progress, int into) {
  __shared__ Near near;
  const Tile tile = tile_of(thickness);
  find_near(near, g, neighbours, count, tile);
  const device::u64 generation = progress->generation;
  if (near.count == 0) {
    leave_sum(sweep(g, p, out, tile, [](Index, Index, Index, float) {}), gosa);
    return;
  }
  if (!wait_for_near(near, window, into, generation)) return;
  const double sum = sweep(g, p, out, tile, [](Index i, Index j, Index k, float value) {
    for (unsigned n = 0; n < near.count; ++n)
      if (near.of[n].needs(i, j, k)) near.there[n][near.of[n].place(i, j, k)] = value;
  });
  for (unsigned n = 0; n < near.count; ++n) {
    const device::Blocks all(&progress->served[near.number[n]], 0, near.of[n].blocks);
    device::signal(all, window, near.of[n].rank, near.of[n].its_word, generation + 1);
  }
  leave_sum(sum, gosa);
  if (device::Blocks(&progress->arrived, 0, serving).last(device::DirectMachine())) progress->generation = generation + 1;
}
