// SPDX-License-Identifier: Apache-2.0
// Are kernels that wait for each other begun at once, if several threads launch them? Ranks are threads of this process with a stream
// each. In a round every rank launches some kernels in a row, each of which waits for the others' of the same number, up to 50 ms: one
// that ends without them was launched while another rank's kernel, launched as well, was not begun.
//
//   nvcc -std=c++20 -arch=sm_90 launches.cu -o launches && ./launches [RANKS] [ROUNDS]
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr int kLine = 32;  // words between two ranks'
constexpr long long kLongest = 50'000'000;

__device__ long long now() {
  long long ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

/// begun: a word of each rank, by line. alone: set where a rank was waited for in vain.
__global__ void meet(unsigned* begun, int me, int ranks, unsigned number, int* alone) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) atomicExch_system(&begun[me * kLine], number);
  const long long start = now();
  for (int rank = 0; rank < ranks; ++rank) {
    while (static_cast<int>(*static_cast<volatile unsigned*>(&begun[rank * kLine]) - number) < 0) {
      if (now() - start < kLongest) continue;
      *alone = 1;
      return;
    }
  }
}

enum class How { free, in_turn, graph };

struct Job {
  int ranks, rounds;
  unsigned kernels;  // of a round
  How how;
};

/// How many of the ranks' rounds had a kernel that was alone.
int run(const Job& job) {
  unsigned* begun = nullptr;
  int* alone = nullptr;
  cudaMalloc(&begun, job.ranks * kLine * sizeof *begun);
  cudaMemset(begun, 0, job.ranks * kLine * sizeof *begun);
  cudaHostAlloc(&alone, job.ranks * kLine * sizeof *alone, 0);
  std::fill_n(alone, job.ranks * kLine, 0);
  cudaDeviceSynchronize();
  std::barrier all(job.ranks);
  std::mutex turn;
  std::vector<int> held(job.ranks);
  const auto rank = [&](int me) {
    cudaSetDevice(0);
    int* const mine = &alone[me * kLine];
    for (int round = 0; round < job.rounds; ++round) {
      cudaStream_t stream;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      if (job.how == How::graph) cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
      all.arrive_and_wait();
      for (unsigned i = 1; i <= job.kernels; ++i) {
        std::unique_lock<std::mutex> lock(turn, std::defer_lock);
        if (job.how == How::in_turn) lock.lock();
        meet<<<16, 128, 0, stream>>>(begun, me, job.ranks, round * job.kernels + i, mine);
      }
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      if (job.how == How::graph) {
        cudaStreamEndCapture(stream, &graph);
        cudaGraphInstantiate(&executable, graph, 0);
        all.arrive_and_wait();
        cudaGraphLaunch(executable, stream);
      }
      cudaStreamSynchronize(stream);
      all.arrive_and_wait();
      held[me] += *mine;
      *mine = 0;
      if (executable != nullptr) cudaGraphExecDestroy(executable);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaStreamDestroy(stream);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < job.ranks; ++i) threads.emplace_back(rank, i);
  for (std::thread& one : threads) one.join();
  cudaFree(begun);
  cudaFreeHost(alone);
  int sum = 0;
  for (const int one : held) sum += one;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 3, rounds = argc > 2 ? std::atoi(argv[2]) : 60;
  cudaDeviceProp device;
  int driver = 0;
  cudaGetDeviceProperties(&device, 0);
  cudaDriverGetVersion(&driver);
  cudaFuncAttributes loaded;
  cudaFuncGetAttributes(&loaded, meet);
  std::printf("# %s, driver of CUDA %d.%d, %d ranks, %d rounds\n", device.name, driver / 1000, driver % 1000 / 10, ranks,
              rounds);
  std::printf("%-28s %8s %20s\n", "launches", "kernels", "rounds held up");
  const char* const names[] = {"of all threads at once", "by one thread at a time", "a graph of each thread"};
  for (const How how : {How::free, How::in_turn, How::graph}) {
    for (const unsigned kernels : {1u, 2u, 4u}) {
      const int held = run({ranks, rounds, kernels, how});
      std::printf("%-28s %8u %13d of %d\n", names[static_cast<int>(how)], kernels, held, ranks * rounds);
    }
  }
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  return error == cudaSuccess ? 0 : 1;
}
