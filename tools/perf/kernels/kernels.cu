// SPDX-License-Identifier: Apache-2.0
// The kernels of this tool: ping-pongs and bursts by the functions of include/thalweg/device, daxpy across a link, and those of the
// tests of the machine.
#include "collaborate.hpp"
#include "machine.hpp"
#include "rounds.hpp"
#include "stream.cuh"

namespace perf {
namespace {

using thalweg::device::Block;
using thalweg::device::Blocks;
using thalweg::device::Thread;

}  // namespace

extern "C" {

__global__ void perf_put_thread(const __grid_constant__ Rounds r) { play<PutForm>(r, Thread()); }
__global__ void __launch_bounds__(kThreads) perf_put_block(const __grid_constant__ Rounds r) { play<PutForm>(r, Block()); }
__global__ void __launch_bounds__(kThreads) perf_put_blocks(const __grid_constant__ Rounds r) {
  play<PutForm>(r, Blocks(r.arrived, blockIdx.x, gridDim.x));
}
__global__ void __launch_bounds__(kThreads) perf_strided_blocks(const __grid_constant__ Rounds r) {
  play<StridedForm>(r, Blocks(r.arrived, blockIdx.x, gridDim.x));
}
__global__ void perf_packed_thread(const __grid_constant__ Rounds r) { play<LlForm>(r, Thread()); }
__global__ void __launch_bounds__(kThreads) perf_packed_block(const __grid_constant__ Rounds r) {
  play<LlForm>(r, Block());
}
__global__ void perf_channel_thread(const __grid_constant__ ChannelRounds r) { play(r, Thread()); }
__global__ void __launch_bounds__(kThreads) perf_channel_block(const __grid_constant__ ChannelRounds r) { play(r, Block()); }
__global__ void __launch_bounds__(kThreads) perf_channel_blocks(const __grid_constant__ ChannelRounds r) {
  play(r, Blocks(r.arrived, blockIdx.x, gridDim.x));
}

__global__ void __launch_bounds__(kThreads) perf_burst(const __grid_constant__ Burst b) {
  put_all(b, Blocks(b.arrived, blockIdx.x, gridDim.x));
}

__global__ void __launch_bounds__(kThreads) perf_daxpy_4(const __grid_constant__ Stream s) { stream_loads<4, false, true>(s); }
__global__ void __launch_bounds__(kThreads) perf_copy_4(const __grid_constant__ Stream s) { stream_loads<4, false, false>(s); }
__global__ void __launch_bounds__(kThreads) perf_daxpy_8(const __grid_constant__ Stream s) { stream_loads<8, true, true>(s); }
__global__ void __launch_bounds__(kThreads) perf_copy_8(const __grid_constant__ Stream s) { stream_loads<8, true, false>(s); }
__global__ void __launch_bounds__(kThreads) perf_daxpy_bulk(const __grid_constant__ Stream s) { stream_bulk<true>(s); }
__global__ void __launch_bounds__(kThreads) perf_copy_bulk(const __grid_constant__ Stream s) { stream_bulk<false>(s); }

__global__ void __launch_bounds__(kThreads) perf_move(const __grid_constant__ Move m) {
  stream_words<4, true, false>(reinterpret_cast<const double2*>(m.from), reinterpret_cast<double2*>(m.to), m.count, 0);
}
__global__ void perf_flags(const __grid_constant__ Flags f) { flags(f); }
__global__ void __launch_bounds__(kThreads) perf_adds(const __grid_constant__ Adds a) { adds(a); }
__global__ void __launch_bounds__(kThreads) perf_touches(const __grid_constant__ Touches t) {
  touch(t, u64{blockIdx.x} * blockDim.x + threadIdx.x, u64{gridDim.x} * blockDim.x);
}
__global__ void __launch_bounds__(kThreads) perf_collaborate(const __grid_constant__ Collaboration c) {
  __shared__ u32 words[kBins];
  collaborate(c, Block(), words);
}

}  // extern "C"
}  // namespace perf
