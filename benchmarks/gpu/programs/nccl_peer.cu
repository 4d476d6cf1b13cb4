// SPDX-License-Identifier: Apache-2.0
// nccl-peer: one way between two GPUs by ncclSend and ncclRecv, captured in a graph and enqueued, in the form of
// thalweg-gpu-programs' table. Built by run.sh where nvcc and NCCL are.
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 200, kTimes = 9;
constexpr size_t kSizes[] = {8, 4096, 64 << 10, 1 << 20};
std::barrier<> both(2);

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}
void check(ncclResult_t code, const char* what) {
  if (code == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(code));
  std::exit(1);
}

/// Median microseconds of one hop; each round is two.
double timed(cudaStream_t stream, const std::function<void()>& rounds) {
  std::vector<double> all;
  for (int i = 0; i < kTimes; ++i) {
    both.arrive_and_wait();
    const auto start = std::chrono::steady_clock::now();
    rounds();
    check(cudaStreamSynchronize(stream), "waiting");
    both.arrive_and_wait();
    all.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / (2 * kRounds));
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void side(int rank, ncclUniqueId id) {
  check(cudaSetDevice(rank), "choosing a GPU");
  ncclComm_t comm;
  check(ncclCommInitRank(&comm, 2, id, rank), "ncclCommInitRank");
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  char *out, *in;
  check(cudaMalloc(&out, 1 << 20), "memory");
  check(cudaMalloc(&in, 1 << 20), "memory");
  for (const size_t size : kSizes) {
    const auto rounds = [&] {
      for (int i = 0; i < kRounds; ++i) {
        if (rank == 0) check(ncclSend(out, size, ncclInt8, 1, comm, stream), "ncclSend");
        check(ncclRecv(in, size, ncclInt8, 1 - rank, comm, stream), "ncclRecv");
        if (rank == 1) check(ncclSend(out, size, ncclInt8, 0, comm, stream), "ncclSend");
      }
    };
    timed(stream, rounds);
    const double loose = timed(stream, rounds);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    rounds();
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    check(cudaGraphInstantiate(&ready, graph, 0), "a graph");
    const double captured = timed(stream, [&] { check(cudaGraphLaunch(ready, stream), "a graph"); });
    if (rank != 0) continue;
    std::printf("nccl                   captured: ncclSend, ncclRecv                  %12zu %12.3f us\n", size, captured);
    std::printf("nccl                   uncaptured                                    %12zu %12.3f us\n", size, loose);
  }
}

}  // namespace

int main() {
  int version = 0;
  ncclGetVersion(&version);
  std::printf("# NCCL %d\n", version);
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::thread other(side, 1, id);
  side(0, id);
  other.join();
}
