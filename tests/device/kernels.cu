// SPDX-License-Identifier: Apache-2.0
// Every function of the device headers by every thread group, as a user's kernel calls them. Only compiled: by nvcc, and by
// NVRTC as CuPy and others do (nvrtc_test.cpp), so it includes nothing else.
#include <thalweg/device/channel.hpp>
#include <thalweg/device/ll128.hpp>
#include <thalweg/device/window.hpp>

using namespace thalweg::device;

template <class ThreadGroup, class T>
__device__ bool everything(ThreadGroup group, const Window& window, T* data) {
  const u32 right = (window.rank + 1) % window.size;
  bool ok = put(group, window, right, 256, data, 100);
  ok &= get(group, window, right, 256, data, 100);
  ok &= strided_put(group, window, right, 4096, 7, data, 5, 3, 20);
  ok &= signal(group, window, right, 0, 1, SignalOp::add);
  ok &= put_signal(group, window, right, 256, data, 100, 8, 1);
  ok &= wait(group, window, 8, Compare::greater_equal, 1);
  ok &= put_ll(group, window, right, 512, data, 30, 1);
  ok &= take_ll(group, window, 512, data, 30, 1);
  ok &= put_value(window, right, 64, 1.5) && true;
  Word16* const there = pointer<Word16>(window, right, 512, 1);
  put_ll_value(there, 2.5, 3);
  double value;
  ok &= take_ll_value(window.guard, there, &value, 3);
  copy(group, slices_at(data, 3, 4, 10, 100), contiguous_at(data + 5000), 96);
  quiet(group);
  if (group.rank() == 0 && test(window, 8, Compare::not_equal, 0)) {
    ok &= fetch_add(window, right, 16, 1u) >= fetch_add(window, right, 24, -1ll);
    ok &= compare_swap(window, right, 16, 1, 2) != 0 && compare_swap(window, right, 24, 1ull, 2ull) != 0;
  }
  return ok;
}

template <class ThreadGroup>
__device__ bool whole_warps(ThreadGroup group, const Window& window, double* data) {
  return put_ll128(group, window, 1, 1024, data, 30, 1) && take_ll128(group, window, 1024, data, 30, 1) &&
         await_ll<float>(group, window, 512, 30, 1) && ll_at<float>(window, 512, 3) > 0;
}

template <class ThreadGroup>
__device__ bool channels(ThreadGroup group, SendEnd* send, RecvEnd* recv, const Guard& guard, const float* data) {
  Sender<> out(send, guard);
  Receiver<> in(recv, guard);
  return in.post(group, 0) && out.send(group, data, 100) && out.send(group, rows_at(data, 3, 7), 120) && in.take(group);
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
