// SPDX-License-Identifier: Apache-2.0
// Two GPUs of one process that reach each other's memory: for tests and measurements of device code.
#pragma once
#include <cuda_runtime.h>
#include <thalweg/device/channel.hpp>
#include <thalweg/device/ll128.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace thalweg::device::gpu {

inline void check(cudaError_t status, const char* what, int line) {
  if (status == cudaSuccess) return;
  std::printf("FAILED: %s, line %d: %s\n", what, line, cudaGetErrorString(status));
  std::exit(1);
}
#define CUDA_CHECK(call) thalweg::device::gpu::check(call, #call, __LINE__)

/// A window over both GPUs, with a guard each, a stream each, and memory of one's own beside it.
class Pair {
 public:
  static bool available() {
    int count = 0, reach = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) return false;
    return cudaDeviceCanAccessPeer(&reach, 0, 1) == cudaSuccess && reach != 0;
  }
  Pair(size_t length, u64 limit_ns) : length_(length) {
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      static bool reaches[2];
      if (!reaches[g]) CUDA_CHECK(cudaDeviceEnablePeerAccess(1 - g, 0));
      reaches[g] = true;
      CUDA_CHECK(cudaMalloc(&part[g], length));
      CUDA_CHECK(cudaMalloc(&own[g], length));
      CUDA_CHECK(cudaMalloc(&bases_[g], sizeof part));
      CUDA_CHECK(cudaMalloc(&poison_[g], sizeof(u64)));
      CUDA_CHECK(cudaHostAlloc(&failure[g], sizeof(Failure), cudaHostAllocPortable));
      CUDA_CHECK(cudaHostAlloc(&abort_[g], sizeof(u64), cudaHostAllocPortable));
      CUDA_CHECK(cudaStreamCreateWithFlags(&stream[g], cudaStreamNonBlocking));
    }
    for (unsigned g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaMemcpy(bases_[g], part, sizeof part, cudaMemcpyHostToDevice));
      window[g] = {g, 2, length, bases_[g], {poison_[g], failure[g], abort_[g], limit_ns}, {part[0], part[1]}};
    }
    clear();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// Zeros in the window, no failure.
  void clear() {
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMemset(part[g], 0, length_));
      CUDA_CHECK(cudaMemset(poison_[g], 0, sizeof(u64)));
      *failure[g] = Failure{};
      *abort_[g] = 0;
      CUDA_CHECK(cudaDeviceSynchronize());
    }
  }
  /// Launches launch(rank) on both, rank 1 first, and waits. Milliseconds on rank 0's stream; below 0: a guard was poisoned.
  template <class Launch>
  float run(Launch launch) {
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaSetDevice(0));
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    CUDA_CHECK(cudaSetDevice(1));
    launch(1);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaSetDevice(0));
    CUDA_CHECK(cudaEventRecord(begin, stream[0]));
    launch(0);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaEventRecord(end, stream[0]));
    for (auto one : stream) CUDA_CHECK(cudaStreamSynchronize(one));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    return failure[0]->code == 0 && failure[1]->code == 0 ? milliseconds : -1;
  }
  void say_failures(const char* what) const {
    for (int g = 0; g < 2; ++g) {
      const Failure& f = *failure[g];
      if (f.code != 0)
        std::printf("  %s: GPU %d: code %lld, what %llu, expected %llu, found %llu\n", what, g, f.code, f.what, f.expected,
                    f.found);
    }
  }

  char* part[2];  // of the window
  char* own[2];   // as long
  Window window[2];
  Failure* failure[2];
  cudaStream_t stream[2];

 private:
  size_t length_;
  char** bases_[2];
  u64* poison_[2];
  u64* abort_[2];
};

/// A channel from GPU `from` to the other one, which lands in the window's part at `offset`.
class Pipe {
 public:
  Pipe(Pair& pair, int from, u64 offset, u64 capacity) : from_(from) {
    CUDA_CHECK(cudaSetDevice(from));
    CUDA_CHECK(cudaMalloc(&send, sizeof(SendEnd)));
    CUDA_CHECK(cudaMalloc(&credits_, sizeof(u64) * kSlots));
    CUDA_CHECK(cudaMalloc(&recv_buffer_, sizeof(RecvBuffer)));
    CUDA_CHECK(cudaSetDevice(1 - from));
    CUDA_CHECK(cudaMalloc(&receive, sizeof(RecvEnd)));
    CUDA_CHECK(cudaMalloc(&flags_, sizeof(u64) * kSlots));
    const RecvBuffer recv_buffer{contiguous_at(pair.part[1 - from] + offset), capacity};
    CUDA_CHECK(cudaMemcpy(recv_buffer_, &recv_buffer, sizeof recv_buffer, cudaMemcpyHostToDevice));
    clear();
  }
  void clear() {
    SendEnd send_end{};
    send_end.credits = credits_;
    send_end.flags = flags_;
    send_end.recv_buffers = recv_buffer_;
    RecvEnd receive_end{};
    receive_end.credits = credits_;
    receive_end.flags = flags_;
    CUDA_CHECK(cudaSetDevice(from_));
    CUDA_CHECK(cudaMemset(credits_, 0, sizeof(u64) * kSlots));
    CUDA_CHECK(cudaMemcpy(send, &send_end, sizeof send_end, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaSetDevice(1 - from_));
    CUDA_CHECK(cudaMemset(flags_, 0, sizeof(u64) * kSlots));
    CUDA_CHECK(cudaMemcpy(receive, &receive_end, sizeof receive_end, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  void free() {
    for (void* one : {static_cast<void*>(send), static_cast<void*>(credits_), static_cast<void*>(recv_buffer_),
                      static_cast<void*>(receive), static_cast<void*>(flags_)}) {
      CUDA_CHECK(cudaFree(one));
    }
  }
  SendEnd* send = nullptr;
  RecvEnd* receive = nullptr;

 private:
  int from_;
  u64 *credits_ = nullptr, *flags_ = nullptr;
  RecvBuffer* recv_buffer_ = nullptr;
};

}  // namespace thalweg::device::gpu
