// SPDX-License-Identifier: Apache-2.0
// Every function of the device headers at every level, as a user's kernel calls them. Only compiled: by nvcc, and by NVRTC as
// CuPy and others do (nvrtc_test.cpp), so it includes nothing else.
#include <thalweg/device/channel.hpp>
#include <thalweg/device/ll128.hpp>
#include <thalweg/device/window.hpp>

using namespace thalweg::device;

template <class L, class T>
__device__ bool everything(L level, const Window& window, T* data) {
  const u32 right = (window.rank + 1) % window.size;
  bool ok = put(level, window, right, 256, data, 100);
  ok &= get(level, window, right, 256, data, 100);
  ok &= strided_put(level, window, right, 4096, 7, data, 5, 3, 20);
  ok &= signal(level, window, right, 0, 1, SignalOp::add);
  ok &= put_signal(level, window, right, 256, data, 100, 8, 1);
  ok &= wait(level, window, 8, Compare::greater_equal, 1);
  ok &= put_ll(level, window, right, 512, data, 30, 1);
  ok &= take_ll(level, window, 512, data, 30, 1);
  ok &= put_value(window, right, 64, 1.5) && true;
  Word16* const there = pointer<Word16>(window, right, 512, 1);
  put_ll_value(there, 2.5, 3);
  double value;
  ok &= take_ll_value(window.guard, there, &value, 3);
  copy(level, slices_at(data, 3, 4, 10, 100), contiguous_at(data + 5000), 96);
  quiet(level);
  if (level.rank() == 0 && test(window, 8, Compare::not_equal, 0)) {
    ok &= fetch_add(window, right, 16, 1u) >= fetch_add(window, right, 24, -1ll);
    ok &= compare_swap(window, right, 16, 1, 2) != 0 && compare_swap(window, right, 24, 1ull, 2ull) != 0;
  }
  return ok;
}

template <class L>
__device__ bool whole_warps(L level, const Window& window, double* data) {
  return put_ll128(level, window, 1, 1024, data, 30, 1) && take_ll128(level, window, 1024, data, 30, 1) &&
         await_ll<float>(level, window, 512, 30, 1) && ll_at<float>(window, 512, 3) > 0;
}

template <class L>
__device__ bool channels(L level, SendEnd* send, RecvEnd* recv, const Guard& guard, const float* data) {
  Sender<> out(send, guard);
  Receiver<> in(recv, guard);
  return in.post(level, 0) && out.send(level, data, 100) && out.send(level, rows_at(data, 3, 7), 120) && in.take(level);
}

extern "C" __global__ void windows(Window window, double* data, u32* counter, u64* result) {
  bool ok = everything(Thread(), window, data);
  ok &= everything(Warp(), window, reinterpret_cast<float*>(data));
  ok &= everything(Block(), window, reinterpret_cast<unsigned char*>(data));
  ok &= everything(Blocks(counter, blockIdx.x, gridDim.x), window, data);
  ok &= whole_warps(Warp(), window, data) && whole_warps(Block(), window, data);
  ok &= whole_warps(Blocks(counter, blockIdx.x, gridDim.x), window, data);
  *result = ok;
}

extern "C" __global__ void channel_ends(SendEnd* send, RecvEnd* recv, Guard guard, const float* data, u64* result) {
  bool ok = channels(Thread(), send, recv, guard, data) && channels(Warp(), send, recv, guard, data);
  ok &= channels(Block(), send, recv, guard, data);
  ok &= channels(Blocks(nullptr, blockIdx.x, gridDim.x), send, recv, guard, data);
  *result = ok;
}
