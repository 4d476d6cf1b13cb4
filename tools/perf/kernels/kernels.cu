// SPDX-License-Identifier: Apache-2.0
// The kernels of this tool: ping-pongs and bursts by the functions of include/thalweg/device, and daxpy across a link.
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

}  // extern "C"
}  // namespace perf
