// SPDX-License-Identifier: Apache-2.0
// Packing and unpacking a box of an array [i][j][k], a thread an element; and exchanges that the kernel makes itself.
#include "halo/direct.hpp"

namespace {

struct Box {
  unsigned long long start[3], extent[3];
};

__device__ unsigned long long place(const Box& box, unsigned long long points_j, unsigned long long points_k, unsigned long long n) {
  const unsigned long long k = n % box.extent[2], j = n / box.extent[2] % box.extent[1], i = n / box.extent[2] / box.extent[1];
  return ((box.start[0] + i) * points_j + box.start[1] + j) * points_k + box.start[2] + k;
}

template <class T>
__device__ void move(T* cells, T* packed, const Box& box, unsigned long long points_j, unsigned long long points_k, bool in) {
  const unsigned long long n = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= box.extent[0] * box.extent[1] * box.extent[2]) return;
  T& cell = cells[place(box, points_j, points_k, n)];
  if (in) {
    packed[n] = cell;
  } else {
    cell = packed[n];
  }
}

}  // namespace

extern "C" __global__ void move4(unsigned* cells, unsigned* packed, Box box, unsigned long long points_j, unsigned long long points_k,
                                 bool in) {
  move(cells, packed, box, points_j, points_k, in);
}
extern "C" __global__ void move8(unsigned long long* cells, unsigned long long* packed, Box box, unsigned long long points_j,
                                 unsigned long long points_k, bool in) {
  move(cells, packed, box, points_j, points_k, in);
}

/// Exchanges first to last, of the box that blockIdx.y names, shared by the blocks of a row.
extern "C" __global__ void __launch_bounds__(512)
    exchange_all(thalweg::device::Window window, const halo::Route* routes, unsigned* arrived,
                                        unsigned long long first, unsigned long long last) {
  const thalweg::device::Blocks group(arrived + blockIdx.y, blockIdx.x, gridDim.x);
  for (unsigned long long n = first; n <= last; ++n)
    if (!halo::exchange(group, window, routes + blockIdx.y, 1, n)) return;
}
