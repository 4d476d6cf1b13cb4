// SPDX-License-Identifier: Apache-2.0
// usage: gpu_device_code [--messages=N] [--cases=N] [NAME...]: device code between two GPUs of one process. Every function at
// every group (cases at random), then litmus tests of memory order: N messages of each form, beside bulk traffic both ways.
// Exit code 77: there are no two GPUs that reach each other.
#include <chrono>
#include <string>

#include "tests/gpu/device/functions.cuh"
#include "tests/gpu/device/litmus.cuh"

namespace thalweg::device::gpu {
namespace {

struct Options {
  u64 messages = 100'000;
  int cases = 20;
  std::vector<std::string> names;
  bool wants(const std::string& name) const {
    for (const std::string& one : names) {
      if (name.find(one) != std::string::npos) return true;
    }
    return names.empty();
  }
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool say(const std::string& name, bool ok, const std::string& more, double begun) {
  std::printf("%-7s %-34s %s, %.2f s\n", ok ? "ok" : "FAILED", name.c_str(), more.c_str(), seconds() - begun);
  std::fflush(stdout);
  return ok;
}

bool run_functions(const Options& options) {
  bool ok = true;
  Functions functions;
  for (u32 call = 0; call < 7; ++call) {
    for (u32 at = 0; at < 4; ++at) {
      const std::string name = std::string("function.") + kCallNames[call] + "." + kAtNames[at];
      if (!options.wants(name) || (Call(call) == Call::lines && At(at) == At::thread)) continue;
      const double begun = seconds();
      long wrong = 0;
      for (int i = 0; i < options.cases && wrong == 0; ++i) wrong = functions.run(Call(call), At(at));
      ok &= say(name, wrong == 0,
                std::to_string(options.cases) + " cases" + (wrong == 0 ? "" : ", wrong " + std::to_string(wrong)), begun);
    }
  }
  return ok;
}

/// A wait that nobody ends ends, says why, and releases the others.
bool run_expiry(const Options& options, Pair& pair) {
  if (!options.wants("expiry")) return true;
  const double begun = seconds();
  pair.clear();
  Case c{};
  c.call = Call::packed;
  c.bytes = 100;
  c.generation = 3;
  c.window = pair.window[1];
  c.window.guard.limit_ns = 20'000'000;
  CUDA_CHECK(cudaSetDevice(1));
  case_block<<<64, 256, 0, pair.stream[1]>>>(c);
  CUDA_CHECK(cudaStreamSynchronize(pair.stream[1]));
  const Failure& f = *pair.failure[1];
  const bool ok = f.code == kTimedOut && f.expected == 3 && f.found == 0 && seconds() - begun < 1;
  const std::string code = std::to_string(f.code);
  pair.clear();
  return say("expiry", ok, "code " + code, begun);
}

/// How a litmus test is run.
struct Setting {
  const char* name;
  void (*kernel)(Litmus);
  u32 groups, blocks, threads;
  u64 bytes;
};

/// Copies both ways beside the test, so that the links are full.
struct Traffic {
  static constexpr size_t kBytes = 32 << 20;
  char* memory[2];
  cudaStream_t stream[2];
  Traffic() {
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMalloc(&memory[g], 2 * kBytes));
      CUDA_CHECK(cudaStreamCreateWithFlags(&stream[g], cudaStreamNonBlocking));
    }
  }
  void begin(int copies) {
    for (int i = 0; i < copies; ++i) {
      for (int g = 0; g < 2; ++g) {
        CUDA_CHECK(cudaMemcpyPeerAsync(memory[1 - g] + kBytes, 1 - g, memory[g], g, kBytes, stream[g]));
      }
    }
  }
  void end() {
    for (auto one : stream) CUDA_CHECK(cudaStreamSynchronize(one));
  }
};

class Litmuses {
 public:
  explicit Litmuses(Pair& pair) : pair_(pair) {
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMalloc(&arrived_[g], sizeof(u32) * kGroups));
      CUDA_CHECK(cudaMalloc(&wrong_[g], sizeof(u64)));
      CUDA_CHECK(cudaMalloc(&send_[g], sizeof(SendEnd*) * kChannels));
      CUDA_CHECK(cudaMalloc(&receive_[g], sizeof(RecvEnd*) * kChannels));
    }
  }
  bool run(const Setting& setting, const Options& options) {
    const std::string name = std::string("litmus.") + setting.name;
    if (!options.wants(name)) return true;
    const double begun = seconds();
    constexpr u64 kBatches = 4;  // with other data each
    const u64 rounds = (options.messages + setting.groups * kBatches - 1) / (setting.groups * kBatches);
    u64 wrong = 0;
    for (u64 batch = 0; batch < kBatches; ++batch) {
      const long found = run_batch(setting, rounds);
      if (found < 0) {
        pair_.say_failures(setting.name);
        return say(name, false, "a wait failed", begun);
      }
      wrong += static_cast<u64>(found);
    }
    const std::string what = std::to_string(rounds * setting.groups * kBatches) + " messages of " +
                             std::to_string(setting.bytes) + " bytes, " + std::to_string(wrong) + " wrong words";
    return say(name, wrong == 0, what, begun);
  }

 private:
  static constexpr u32 kGroups = 2048, kChannels = 64;

  long run_batch(const Setting& setting, u64 rounds) {
    pair_.clear();
    const u64 room = (kData + setting.bytes * 4 / 3 + 256) / 128 * 128;
    const u32 seed = static_cast<u32>(twins::random_source()());
    if (setting.kernel == litmus_channel) make_channels(setting, room);
    for (int g = 0; g < 2; ++g) {
      CUDA_CHECK(cudaSetDevice(g));
      CUDA_CHECK(cudaMemset(arrived_[g], 0, sizeof(u32) * kGroups));
      CUDA_CHECK(cudaMemset(wrong_[g], 0, sizeof(u64)));
      CUDA_CHECK(cudaDeviceSynchronize());
    }
    traffic_.begin(1000);
    const float time = pair_.run([&](int rank) {
      const Litmus test{pair_.window[rank], pair_.own[rank], rounds,      room,          setting.bytes, setting.blocks, seed,
                        wrong_[rank],       arrived_[rank],  send_[rank], receive_[rank]};
      setting.kernel<<<setting.groups * setting.blocks, setting.threads, 0, pair_.stream[rank]>>>(test);
    });
    traffic_.end();
    u64 wrong[2];
    for (int g = 0; g < 2; ++g) CUDA_CHECK(cudaMemcpy(&wrong[g], wrong_[g], sizeof(u64), cudaMemcpyDeviceToHost));
    for (auto& pipe : pipes_) pipe.free();
    pipes_.clear();
    return time < 0 ? -1 : static_cast<long>(wrong[0] + wrong[1]);
  }
  /// One each way for every group.
  void make_channels(const Setting& setting, u64 room) {
    for (int from = 0; from < 2; ++from) {
      std::vector<SendEnd*> send;
      std::vector<RecvEnd*> receive;
      for (u32 group = 0; group < setting.groups; ++group) {
        pipes_.emplace_back(pair_, from, group * room + kData, setting.bytes);
        send.push_back(pipes_.back().send);
        receive.push_back(pipes_.back().receive);
      }
      CUDA_CHECK(cudaMemcpy(send_[from], send.data(), sizeof(SendEnd*) * send.size(), cudaMemcpyHostToDevice));
      CUDA_CHECK(cudaMemcpy(receive_[1 - from], receive.data(), sizeof(RecvEnd*) * receive.size(), cudaMemcpyHostToDevice));
    }
  }

  Pair& pair_;
  Traffic traffic_;
  std::vector<Pipe> pipes_;
  u32* arrived_[2];
  u64* wrong_[2];
  SendEnd** send_[2];
  RecvEnd** receive_[2];
};

int run_all(const Options& options) {
  if (!Pair::available()) {
    std::printf("skipped: no two GPUs that reach each other\n");
    return 77;
  }
  const Setting settings[] = {
      {"direct.thread", litmus_thread<Direct>, 1024, 1, 1, 24},
      {"direct.warp", litmus_warp<Direct>, 1024, 1, 32, 512},
      {"direct.block", litmus_block<Direct>, 128, 1, 256, 4096},
      {"direct.blocks", litmus_blocks<Direct>, 32, 4, 128, 4096},
      {"fetch_add.block", litmus_block<Added>, 128, 1, 128, 1024},
      {"fetch_add.blocks", litmus_blocks<Added>, 32, 4, 128, 4096},
      {"packed.thread", litmus_thread<Packed<false>>, 1024, 1, 1, 8},
      {"packed.block", litmus_block<Packed<false>>, 128, 1, 256, 4096},
      {"packed_lines.warp", litmus_warp<Packed<true>>, 1024, 1, 32, 480},
      {"packed_lines.block", litmus_block<Packed<true>>, 128, 1, 256, 7200},
      {"channel.blocks", litmus_channel, 32, 4, 128, 4096},
  };
  bool ok = run_functions(options);
  Pair pair(32 << 20, 5'000'000'000);
  ok &= run_expiry(options, pair);
  Litmuses litmuses(pair);
  for (const Setting& setting : settings) ok &= litmuses.run(setting, options);
  std::printf("%s\n", ok ? "all passed" : "FAILED");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace thalweg::device::gpu

int main(int argc, char** argv) {
  thalweg::device::gpu::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--messages=", 0) == 0) {
      options.messages = std::stoull(word.substr(11));
    } else if (word.rfind("--cases=", 0) == 0) {
      options.cases = std::stoi(word.substr(8));
    } else {
      options.names.push_back(word);
    }
  }
  return thalweg::device::gpu::run_all(options);
}
