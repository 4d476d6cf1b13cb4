// SPDX-License-Identifier: Apache-2.0
// Captured collectives of float32 on the queues of N devices, a process each: 100 of a kind in a graph (of more than
// 1 MiB: 20, than 256 MiB: 5), launched three times. Each is verified first. Beside it: nccl_collectives.py.
//   usage: thalweg-gpu-collectives [RANKS] [DEVICE] [ALGORITHM,...]   (2, cuda; ALGORITHM "chosen": by itself; with "symmetric"
//   or "symmetric_simple", buffers are registered windows of the group)
// A line of JSON for each; us: the median of 12 times, of the slowest rank's; bytes: as NCCL's tests name sizes (allgather,
// reduce_scatter, alltoall: of all ranks' blocks).
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr size_t kMost = size_t{1} << 30, kMostOfAll = size_t{256} << 20;  // of allreduce and allgather; of every kind
constexpr int kLaunches = 3, kTimes = 12;
constexpr int in_graph(size_t bytes) { return bytes <= (size_t{1} << 20) ? 100 : bytes <= kMostOfAll ? 20 : 5; }

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::_Exit(1);
}

double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Rank {
  tw_group* world = nullptr;
  uint32_t rank = 0, size = 1;
  tw_queue* queue = nullptr;
  void *in = nullptr, *out = nullptr;
  float* host = nullptr;
};

enum Kind { allreduce, allgather, reduce_scatter, alltoall, broadcast, kinds };
constexpr const char* kNames[] = {"allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast"};

/// For which areas of 128 blocks have room.
size_t most_by_lines(size_t ranks, Kind kind) {
  constexpr size_t kRoom = size_t{128} * 256 * 120;
  if (kind == allreduce) return ranks * (kRoom / 2);
  return kind != broadcast ? ranks * kRoom : ranks > 2 ? (ranks - 1) * (kRoom / 2) : kRoom;
}

tw_status call(const Rank& r, Kind kind, size_t bytes, const char* algorithm) {
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.algorithm = std::strcmp(algorithm, "chosen") == 0 ? nullptr : algorithm;
  const size_t all = bytes / 4, each = all / r.size;
  switch (kind) {
    case allreduce:
      return tw_allreduce_on(r.queue, r.world, r.in, r.out, all, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options);
    case allgather:
      return tw_allgather_on(r.queue, r.world, r.in, r.out, each, TW_TYPE_FLOAT32, &options);
    case reduce_scatter:
      return tw_reduce_scatter_on(r.queue, r.world, r.in, r.out, each, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options);
    case alltoall:
      return tw_alltoall_on(r.queue, r.world, r.in, r.out, each, TW_TYPE_FLOAT32, &options);
    default:
      return tw_broadcast_on(r.queue, r.world, r.out, all, TW_TYPE_FLOAT32, 0, &options);
  }
}

float value(uint32_t rank, size_t i) { return static_cast<float>((i * 7 + rank * 13 + i / 1000) % 101); }

/// What element i of rank `of`'s output has to be.
float wanted(const Rank& r, Kind kind, size_t each, size_t i) {
  float sum = 0;
  switch (kind) {
    case allreduce:
      for (uint32_t k = 0; k < r.size; ++k) sum += value(k, i);
      return sum;
    case allgather:
      return value(static_cast<uint32_t>(i / each), i % each);
    case reduce_scatter:
      for (uint32_t k = 0; k < r.size; ++k) sum += value(k, r.rank * each + i);
      return sum;
    case alltoall:
      return value(static_cast<uint32_t>(i / each), r.rank * each + i % each);
    default:
      return value(0, i);
  }
}

bool verified(const Rank& r, Kind kind, size_t bytes, const char* algorithm) {
  const size_t all = bytes / 4, each = all / r.size;
  for (size_t i = 0; i < all; ++i) r.host[i] = value(r.rank, i);
  must(tw_copy_on(r.queue, kind == broadcast ? r.out : r.in, r.host, bytes, nullptr), "tw_copy_on");
  must(tw_queue_synchronize(r.queue), "tw_queue_synchronize");
  must(tw_barrier(r.world, nullptr, nullptr),
       "tw_barrier");  // in windows, other ranks' kernels store into the output from now on
  must(call(r, kind, bytes, algorithm), kNames[kind]);
  must(tw_copy_on(r.queue, r.host, r.out, bytes, nullptr), "tw_copy_on");
  must(tw_queue_synchronize(r.queue), "tw_queue_synchronize");
  must(tw_queue_check(r.queue), "tw_queue_check");
  const size_t count = kind == reduce_scatter ? each : all;
  for (size_t i = 0; i < count; ++i) {
    if (r.host[i] == wanted(r, kind, each, i)) continue;
    std::fprintf(stderr, "rank %u: %s of %zu bytes by %s: element %zu is %g, not %g\n", r.rank, kNames[kind], bytes, algorithm,
                 i, r.host[i], wanted(r, kind, each, i));
    return false;
  }
  return true;
}

double timed(const Rank& r, Kind kind, size_t bytes, const char* algorithm) {
  tw_graph* graph = nullptr;
  must(tw_queue_begin_capture(r.queue), "tw_queue_begin_capture");
  for (int i = 0; i < in_graph(bytes); ++i) must(call(r, kind, bytes, algorithm), kNames[kind]);
  must(tw_queue_end_capture(r.queue, &graph), "tw_queue_end_capture");
  std::vector<double> times;
  for (int k = -2; k < kTimes; ++k) {
    must(tw_barrier(r.world, nullptr, nullptr), "tw_barrier");
    const double begin = microseconds();
    for (int i = 0; i < kLaunches; ++i) must(tw_graph_launch(graph, r.queue), "tw_graph_launch");
    must(tw_queue_synchronize(r.queue), "tw_queue_synchronize");
    double mine = (microseconds() - begin) / (in_graph(bytes) * kLaunches), most = 0;
    must(tw_allreduce(r.world, &mine, &most, 1, TW_TYPE_FLOAT64, TW_REDUCE_MAX, nullptr, nullptr), "tw_allreduce");
    if (k >= 0) times.push_back(most);
  }
  must(tw_queue_check(r.queue), "tw_queue_check");
  tw_graph_destroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run(const char* device, const std::vector<std::string>& algorithms) {
  Rank r;
  must(tw_init(nullptr, &r.world), "tw_init");
  r.rank = tw_group_rank(r.world);
  r.size = tw_group_size(r.world);
  tw_context* const context = tw_group_context(r.world);
  const std::string place = std::string(device) + ":" + std::to_string(r.rank);
  must(tw_queue_create(context, place.c_str(), nullptr, &r.queue), "tw_queue_create");
  const size_t most = std::strcmp(device, "cuda") == 0 ? kMost : size_t{1} << 20;
  tw_memory* memory[3] = {};
  for (int i = 0; i < 3; ++i) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = i < 2 ? place.c_str() : "host";
    must(tw_memory_allocate(context, most, &options, &memory[i]), "tw_memory_allocate");
  }
  r.in = tw_memory_address(memory[0]);
  r.out = tw_memory_address(memory[1]);
  r.host = static_cast<float*>(tw_memory_address(memory[2]));
  tw_window* windows[2] = {};
  const bool symmetric =
      std::any_of(algorithms.begin(), algorithms.end(), [](const std::string& one) { return one.starts_with("symmetric"); });
  for (int i = 0; i < 2 && symmetric; ++i) {
    must(tw_group_window(r.world, memory[i], nullptr, &windows[i]), "tw_group_window");
    must(tw_window_register_on(windows[i], r.queue), "tw_window_register_on");
  }
  for (int kind = 0; kind < kinds; ++kind) {
    for (size_t bytes : {size_t{8}, size_t{4096}, size_t{16} << 10, size_t{64} << 10, size_t{256} << 10, size_t{1} << 20,
                         size_t{4} << 20, size_t{16} << 20, size_t{64} << 20, size_t{256} << 20, size_t{1} << 30}) {
      if (bytes > most || (bytes < 64 && kind != allreduce && kind != broadcast)) continue;
      if (bytes > kMostOfAll && kind != allreduce && kind != allgather) continue;
      for (const std::string& algorithm : algorithms) {
        if (algorithm == "symmetric_simple" && kind != allreduce) continue;
        if (algorithm == "two_phases" && (kind != broadcast || r.size < 3)) continue;
        if (algorithm == "ll" && bytes / (kind == allreduce || kind == broadcast ? 1 : r.size) > (size_t{1} << 20)) continue;
        if (algorithm == "ll128" && bytes > most_by_lines(r.size, static_cast<Kind>(kind))) continue;
        if (most < kMost && algorithm[0] == 'l' && bytes > (16u << 10)) continue;
        if (!verified(r, static_cast<Kind>(kind), bytes, algorithm.c_str())) return 1;
        const double us = timed(r, static_cast<Kind>(kind), bytes, algorithm.c_str());
        if (r.rank == 0)
          std::printf("{\"collective\": \"%s\", \"algorithm\": \"%s\", \"ranks\": %u, \"bytes\": %zu, \"us\": %.2f}\n",
                      kNames[kind], algorithm.c_str(), r.size, bytes, us);
        std::fflush(stdout);
      }
    }
  }
  must(tw_barrier(r.world, nullptr, nullptr), "tw_barrier");
  tw_queue_destroy(r.queue);
  for (tw_window* one : windows) {
    if (one != nullptr) must(tw_window_destroy(one), "tw_window_destroy");
  }
  for (tw_memory* one : memory) must(tw_memory_release(one), "tw_memory_release");
  must(tw_group_destroy(r.world), "tw_group_destroy");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const char* const device = argc > 2 ? argv[2] : "cuda";
  std::vector<std::string> algorithms;
  std::istringstream names(argc > 3 ? argv[3] : "chosen");
  for (std::string name; std::getline(names, name, ',');) algorithms.push_back(name);
  char folder[] = "/tmp/thalweg-collectives-XXXXXX";
  if (ranks < 1 || mkdtemp(folder) == nullptr) return 2;
  std::random_device random;
  std::string key;
  for (int i = 0; i < 16; ++i) {
    char two[5];
    std::snprintf(two, sizeof two, "%04x", random() & 0xffffu);
    key += two;
  }
  setenv("THALWEG_STORE", (std::string("file:") + folder + "/store").c_str(), 1);
  setenv("THALWEG_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("THALWEG_JOB_KEY", key.c_str(), 1);
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    setenv("THALWEG_RANK", std::to_string(rank).c_str(), 1);
    std::exit(run(device, algorithms));
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  return failed != 0;
}
