// SPDX-License-Identifier: Apache-2.0
// usage: thalweg-gpu-kernel [--rounds=N]: messages between kernels of two GPUs, one way in microseconds, by the device headers
// and, in turn, by the floors. Each line is a sample: name,test,bytes,microseconds. Exit code 77: there are no two GPUs.
#include <string>

#include "benchmarks/gpu/kernel/floors.cuh"

namespace thalweg::device::gpu {
namespace {

constexpr u64 kFlag = 0, kData = 4096, kLength = 8 << 20;

/// A ping-pong by the headers: who is first sends, the other answers.
struct Game {
  Window window;
  char* own;
  u64 bytes;
  int rounds;
  bool first;
  u32* arrived;
  SendEnd* send;
  RecvEnd* receive;
};

struct DirectForm {
  template <class ThreadGroup>
  __device__ explicit DirectForm(const Game&, ThreadGroup) {}
  template <class ThreadGroup>
  __device__ bool send(const Game& g, ThreadGroup group, int i) {
    const u64* const from = reinterpret_cast<const u64*>(g.own);
    return put_signal(group, g.window, 1 - g.window.rank, kData, from, g.bytes / 8, kFlag, i);
  }
  template <class ThreadGroup>
  __device__ bool take(const Game& g, ThreadGroup group, int i) {
    return wait(group, g.window, kFlag, Compare::greater_equal, i);
  }
};

struct LlForm {
  template <class ThreadGroup>
  __device__ explicit LlForm(const Game&, ThreadGroup) {}
  template <class ThreadGroup>
  __device__ bool send(const Game& g, ThreadGroup group, int i) {
    return put_ll(group, g.window, 1 - g.window.rank, kData, reinterpret_cast<const u64*>(g.own), g.bytes / 8, i);
  }
  template <class ThreadGroup>
  __device__ bool take(const Game& g, ThreadGroup group, int i) {
    return take_ll(group, g.window, kData, reinterpret_cast<u64*>(g.own), g.bytes / 8, i);
  }
};

/// Taken where it lies: what is sent back does not depend on it.
struct LlInPlaceForm : LlForm {
  using LlForm::LlForm;
  template <class ThreadGroup>
  __device__ bool take(const Game& g, ThreadGroup group, int i) {
    return await_ll<u64>(group, g.window, kData, g.bytes / 8, i);
  }
};

struct LinesForm {
  template <class ThreadGroup>
  __device__ explicit LinesForm(const Game&, ThreadGroup) {}
  template <class ThreadGroup>
  __device__ bool send(const Game& g, ThreadGroup group, int i) {
    return put_ll128(group, g.window, 1 - g.window.rank, kData, reinterpret_cast<const u64*>(g.own), g.bytes / 8, i);
  }
  template <class ThreadGroup>
  __device__ bool take(const Game& g, ThreadGroup group, int i) {
    return take_ll128(group, g.window, kData, reinterpret_cast<u64*>(g.own), g.bytes / 8, i);
  }
};

/// A value that is in a register on both sides, as what a kernel computes is.
struct ValueForm {
  template <class ThreadGroup>
  __device__ ValueForm(const Game& g, ThreadGroup) : value(g.bytes) {}
  __device__ bool send(const Game& g, Thread, int i) {
    return put_value(g.window, 1 - g.window.rank, kData, value + i) && signal(Thread(), g.window, 1 - g.window.rank, kFlag, i);
  }
  __device__ bool take(const Game& g, Thread, int i) { return wait(Thread(), g.window, kFlag, Compare::greater_equal, i); }
  u64 value;
};
struct LlValueForm {
  template <class ThreadGroup>
  __device__ LlValueForm(const Game& g, ThreadGroup)
      : value(g.bytes),
        there(pointer<Word16>(g.window, 1 - g.window.rank, kData, 1)),
        here(pointer<Word16>(g.window, g.window.rank, kData, 1)) {}
  __device__ bool send(const Game&, Thread, int i) {
    put_ll_value(there, value, i);
    return true;
  }
  __device__ bool take(const Game& g, Thread, int i) { return take_ll_value(g.window.guard, here, &value, i); }
  u64 value;
  Word16 *there, *here;
};

/// The credit for the next message travels while this one is answered.
struct ChannelForm {
  Sender<> out;
  Receiver<> in;
  template <class ThreadGroup>
  __device__ ChannelForm(const Game& g, ThreadGroup group) : out(g.send, g.window.guard), in(g.receive, g.window.guard) {
    in.post(group, 0);
  }
  template <class ThreadGroup>
  __device__ bool send(const Game& g, ThreadGroup group, int) {
    return out.send(group, reinterpret_cast<const u64*>(g.own), g.bytes / 8);
  }
  template <class ThreadGroup>
  __device__ bool take(const Game&, ThreadGroup group, int) {
    return in.take(group) && in.post(group, 0);
  }
};

template <class Form, class ThreadGroup>
__device__ void play(const Game& g, ThreadGroup group) {
  Form form(g, group);
  for (int i = 1; i <= g.rounds; ++i) {
    if (g.first && !form.send(g, group, i)) return;
    if (!form.take(g, group, i)) return;
    if (!g.first && !form.send(g, group, i)) return;
  }
}
template <class Form>
__global__ void by_thread(const __grid_constant__ Game g) {
  play<Form>(g, Thread());
}
template <class Form>
__global__ void __launch_bounds__(1024) by_block(const __grid_constant__ Game g) {
  play<Form>(g, Block());
}
/// The state of both ends and of sides takes registers.
__global__ void __launch_bounds__(512) channel_by_block(const __grid_constant__ Game g) { play<ChannelForm>(g, Block()); }
__global__ void __launch_bounds__(512) channel_by_blocks(const __grid_constant__ Game g) {
  play<ChannelForm>(g, Blocks(g.arrived, blockIdx.x, gridDim.x));
}
template <class Form>
__global__ void __launch_bounds__(1024) by_blocks(const __grid_constant__ Game g) {
  play<Form>(g, Blocks(g.arrived, blockIdx.x, gridDim.x));
}

struct Series {
  const char *name, *test;
  void (*kernel)(Game);
  void (*floor)(floors::Sides);
  u64 bytes;
  u32 blocks, threads;
};

class Bench {
 public:
  Bench() : pair_(kLength, 2'000'000'000), pipes_{{pair_, 0, kData, kLength - kData}, {pair_, 1, kData, kLength - kData}} {
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMalloc(&count_[g], 64));
    }
  }
  /// Prints a sample; false: a wait failed.
  bool run(const Series& s, bool print) {
    pair_.clear();
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMemset(count_[g], 0, 64));
      CUDA_CHECK(cudaDeviceSynchronize());
    }
    const bool channel = std::string(s.name).find("channel") != std::string::npos;
    for (Pipe& pipe : pipes_) {
      if (channel) pipe.clear();
    }
    const int rounds = s.bytes > 100'000 ? 300 : 2000;
    const float time = pair_.run([&](int rank) { launch(s, rank, rounds); });
    pair_.say_failures(s.name);
    if (print && time > 0) std::printf("%s,%s,%llu,%.4f\n", s.name, s.test, s.bytes, time * 1e3 / rounds / 2);
    return time > 0;
  }

 private:
  void launch(const Series& s, int rank, int rounds) {
    const int other = 1 - rank;
    if (s.floor != nullptr) {
      const floors::Sides sides{pair_.part[other] + kData,
                                pair_.own[rank],
                                pair_.part[rank] + kData,
                                reinterpret_cast<u64*>(pair_.part[other]),
                                reinterpret_cast<u64*>(pair_.part[rank]),
                                count_[rank],
                                s.bytes,
                                rounds,
                                rank == 0};
      s.floor<<<s.blocks, s.threads, 0, pair_.stream[rank]>>>(sides);
    } else {
      const Game game{pair_.window[rank], pair_.own[rank], s.bytes,           rounds,
                      rank == 0,          count_[rank],    pipes_[rank].send, pipes_[other].receive};
      s.kernel<<<s.blocks, s.threads, 0, pair_.stream[rank]>>>(game);
    }
  }
  Pair pair_;
  Pipe pipes_[2];
  u32* count_[2];
};

constexpr u64 kKi = 1024, kMi = 1 << 20;
const Series kSeries[] = {
    {"floor|units of 16 bytes, value, thread", "kernel_packed", nullptr, floors::packed_value, 8, 1, 1},
    {"floor|units of 16 bytes, from memory, thread", "kernel_packed", nullptr, floors::packed, 8, 1, 1},
    {"thalweg|packed value, thread", "kernel_packed", by_thread<LlValueForm>, nullptr, 8, 1, 1},
    {"thalweg|packed from memory, thread", "kernel_packed", by_thread<LlForm>, nullptr, 8, 1, 1},
    {"floor|units of 16 bytes, block", "kernel_packed", nullptr, floors::packed, 4 * kKi, 1, 342},
    {"thalweg|packed, block of 192", "kernel_packed", by_block<LlForm>, nullptr, 4 * kKi, 1, 192},
    {"thalweg|packed, block of 352", "kernel_packed", by_block<LlForm>, nullptr, 4 * kKi, 1, 352},
    {"thalweg|packed, block of 128", "kernel_packed", by_block<LlForm>, nullptr, 4 * kKi, 1, 128},
    {"thalweg|packed in place, block of 352", "kernel_packed", by_block<LlInPlaceForm>, nullptr, 4 * kKi, 1, 352},
    {"thalweg|packed lines, block of 288", "kernel_packed_lines", by_block<LinesForm>, nullptr, 4 * kKi, 1, 288},
    {"thalweg|packed lines, block of 1024", "kernel_packed_lines", by_block<LinesForm>, nullptr, 16 * kKi, 1, 1024},
    {"floor|direct, thread", "kernel_direct", nullptr, floors::direct_thread, 8, 1, 1},
    {"thalweg|direct value, thread", "kernel_direct", by_thread<ValueForm>, nullptr, 8, 1, 1},
    {"thalweg|direct from memory, thread", "kernel_direct", by_thread<DirectForm>, nullptr, 8, 1, 1},
    {"floor|direct, block of 128", "kernel_direct", nullptr, floors::direct_block, 4 * kKi, 1, 128},
    {"thalweg|direct, block of 128", "kernel_direct", by_block<DirectForm>, nullptr, 4 * kKi, 1, 128},
    {"floor|direct, block of 256", "kernel_direct", nullptr, floors::direct_block, 4 * kKi, 1, 256},
    {"thalweg|direct, block of 256", "kernel_direct", by_block<DirectForm>, nullptr, 4 * kKi, 1, 256},
    {"floor|direct, block of 512", "kernel_direct", nullptr, floors::direct_block, 4 * kKi, 1, 512},
    {"thalweg|direct, block of 512", "kernel_direct", by_block<DirectForm>, nullptr, 4 * kKi, 1, 512},
    {"floor|direct, block of 512", "kernel_direct", nullptr, floors::direct_block, 64 * kKi, 1, 512},
    {"thalweg|direct, block of 512", "kernel_direct", by_block<DirectForm>, nullptr, 64 * kKi, 1, 512},
    {"floor|direct, block of 1024", "kernel_direct", nullptr, floors::direct_block, 64 * kKi, 1, 1024},
    {"thalweg|direct, block of 1024", "kernel_direct", by_block<DirectForm>, nullptr, 64 * kKi, 1, 1024},
    {"floor|direct, block of 512", "kernel_direct", nullptr, floors::direct_block, kMi, 1, 512},
    {"thalweg|direct, block of 512", "kernel_direct", by_block<DirectForm>, nullptr, kMi, 1, 512},
    {"floor|direct, block of 1024", "kernel_direct", nullptr, floors::direct_block, kMi, 1, 1024},
    {"thalweg|direct, block of 1024", "kernel_direct", by_block<DirectForm>, nullptr, kMi, 1, 1024},
    {"floor|direct, 16 blocks of 512", "kernel_direct_16", nullptr, floors::direct_grid, 64 * kKi, 16, 512},
    {"thalweg|direct, 16 blocks of 512", "kernel_direct_16", by_blocks<DirectForm>, nullptr, 64 * kKi, 16, 512},
    {"thalweg|direct, 16 blocks of 256", "kernel_direct_16", by_blocks<DirectForm>, nullptr, 64 * kKi, 16, 256},
    {"floor|direct, 16 blocks of 512", "kernel_direct_16", nullptr, floors::direct_grid, kMi, 16, 512},
    {"thalweg|direct, 16 blocks of 512", "kernel_direct_16", by_blocks<DirectForm>, nullptr, kMi, 16, 512},
    {"thalweg|direct, 16 blocks of 1024", "kernel_direct_16", by_blocks<DirectForm>, nullptr, kMi, 16, 1024},
    {"thalweg|channel, thread", "kernel_channel", by_thread<ChannelForm>, nullptr, 8, 1, 1},
    {"thalweg|channel, block of 256", "kernel_channel", channel_by_block, nullptr, 4 * kKi, 1, 256},
    {"thalweg|channel, 16 blocks of 512", "kernel_channel", channel_by_blocks, nullptr, 64 * kKi, 16, 512},
    {"thalweg|channel, 16 blocks of 512", "kernel_channel", channel_by_blocks, nullptr, kMi, 16, 512},
};

int run_all(int rounds) {
  if (!Pair::available()) {
    std::printf("skipped: no two GPUs that reach each other\n");
    return 77;
  }
  Bench bench;
  bool ok = true;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    for (const Series& series : kSeries) ok &= bench.run(series, round > 0);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace thalweg::device::gpu

int main(int argc, char** argv) {
  int rounds = 5;
  if (argc > 1 && std::strncmp(argv[1], "--rounds=", 9) == 0) rounds = std::atoi(argv[1] + 9);
  return thalweg::device::gpu::run_all(rounds);
}
