// SPDX-License-Identifier: Apache-2.0
// Dispatch and combine of a mixture of experts on the queues of N devices, a process each: an alltoallv of rows of 7,168 bfloat16
// whose counts lie in device memory, captured, several in a graph. Each is verified first. Beside it: nccl_collectives.py, whose
// counts the host knows.
//   usage: thalweg-gpu-dispatch [RANKS] [DEVICE]   (2, cuda)
// Routing: each token of a rank goes to the 8 distinct experts that a hash of its number draws out of 256, which the ranks have in
// equal parts in their order; once to each rank that has one of them. What is sent is packed by rank before. Combine: the way back.
// A line of JSON for each; us: the median of 12 times, of the slowest rank's; bytes: what a rank sends, its own rows too, on average.
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kExperts = 256, kTop = 8;
constexpr int kInGraph = 10, kLaunches = 3, kTimes = 12;

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::_Exit(1);
}

double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The finalizer of splitmix64, as in nccl_collectives.py.
uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// Bits: to which ranks a token goes.
uint64_t ranks_of(uint64_t token, uint32_t size) {
  uint64_t ranks = 0;
  std::vector<uint64_t> drawn;
  for (uint64_t i = 0; drawn.size() < kTop; ++i) {
    const uint64_t expert = mixed(token * 1024 + i + 1) % kExperts;
    if (std::find(drawn.begin(), drawn.end(), expert) != drawn.end()) continue;
    drawn.push_back(expert);
    ranks |= uint64_t{1} << (expert * size / kExperts);
  }
  return ranks;
}

/// Rows of each rank to each.
std::vector<std::vector<uint64_t>> routed(uint64_t tokens, uint32_t size) {
  std::vector<std::vector<uint64_t>> counts(size, std::vector<uint64_t>(size));
  for (uint32_t rank = 0; rank < size; ++rank) {
    for (uint64_t i = 0; i < tokens; ++i) {
      const uint64_t ranks = ranks_of(rank * tokens + i, size);
      for (uint32_t to = 0; to < size; ++to) counts[rank][to] += ranks >> to & 1;
    }
  }
  return counts;
}

uint64_t word(uint32_t from, uint32_t to, uint64_t i) { return mixed((uint64_t{from} * 64 + to + 1) << 40 | i); }

struct Rank {
  tw_group* world = nullptr;
  uint32_t rank = 0, size = 1;
  tw_queue* queue = nullptr;
  tw_context* context = nullptr;
  std::string place;
  size_t row_bytes = 7'168 * 2;
};

/// Buffers for so many tokens of each rank: every rank may get all of them.
class Dispatch {
 public:
  Dispatch(const Rank& r, uint64_t tokens)
      : r_(r), all_(routed(tokens, r.size)), capacity_(tokens * r.size), bytes_(capacity_ * r.row_bytes) {
    send_ = allocate(r.place.c_str(), bytes_);
    recv_ = allocate(r.place.c_str(), bytes_);
    host_ = allocate("host", bytes_);
    send_counts_ = allocate(r.place.c_str(), r.size * 8);
    recv_counts_ = allocate(r.place.c_str(), r.size * 8);
    host_counts_ = allocate("host", r.size * 8);
  }
  ~Dispatch() {
    for (tw_memory* one : memory_) must(tw_memory_release(one), "tw_memory_release");
  }
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  tw_status call(bool back) const {
    auto* const sends = static_cast<uint64_t*>(back ? recv_counts_ : send_counts_);
    auto* const receives = static_cast<uint64_t*>(back ? send_counts_ : recv_counts_);
    return tw_alltoallv_counted_on(r_.queue, r_.world, back ? recv_ : send_, sends, nullptr, capacity_, back ? send_ : recv_,
                                   receives, nullptr, capacity_, r_.row_bytes, nullptr);
  }
  /// What a rank sends, on average.
  uint64_t bytes() const {
    uint64_t rows = 0;
    for (const auto& row : all_) {
      for (const uint64_t count : row) rows += count;
    }
    return rows * r_.row_bytes / r_.size;
  }
  bool verified() const {
    store_sent();
    must(call(false), "dispatch");
    if (!holds(recv_, recv_counts_, false)) return false;
    std::memset(host_, 0, bytes_);
    copy(send_, host_, bytes_);
    copy(send_counts_, host_, r_.size * 8);
    must(call(true), "combine");
    return holds(send_, send_counts_, true);
  }
  double timed(bool back) const;

 private:
  void* allocate(const char* place, size_t length) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    tw_memory* memory = nullptr;
    must(tw_memory_allocate(r_.context, length, &options, &memory), "tw_memory_allocate");
    memory_.push_back(memory);
    return tw_memory_address(memory);
  }
  void copy(void* to, const void* from, size_t bytes) const {
    must(tw_memory_copy(r_.context, to, from, bytes), "tw_memory_copy");
  }
  uint64_t count(uint32_t peer, bool sent) const { return sent ? all_[r_.rank][peer] : all_[peer][r_.rank]; }
  uint64_t expected(uint32_t peer, bool sent, uint64_t i) const {
    return sent ? word(r_.rank, peer, i) : word(peer, r_.rank, i);
  }
  void store_sent() const {
    auto* at = static_cast<uint64_t*>(host_);
    for (uint32_t to = 0; to < r_.size; ++to) {
      const uint64_t words = count(to, true) * r_.row_bytes / 8;
      for (uint64_t i = 0; i < words; ++i) *at++ = word(r_.rank, to, i);
    }
    copy(send_, host_, bytes_);
    copy(send_counts_, all_[r_.rank].data(), r_.size * 8);
  }
  bool holds(const void* rows, const void* counts, bool sent) const {
    must(tw_queue_synchronize(r_.queue), "tw_queue_synchronize");
    must(tw_queue_check(r_.queue), "tw_queue_check");
    copy(host_, rows, bytes_);
    copy(host_counts_, counts, r_.size * 8);
    const auto* at = static_cast<const uint64_t*>(host_);
    for (uint32_t peer = 0; peer < r_.size; ++peer) {
      const uint64_t words = count(peer, sent) * r_.row_bytes / 8;
      bool good = static_cast<const uint64_t*>(host_counts_)[peer] == count(peer, sent);
      for (uint64_t i = 0; i < words; ++i) good &= *at++ == expected(peer, sent, i);
      if (good) continue;
      std::fprintf(stderr, "rank %u: %s: what rank %u has is not what it has to be\n", r_.rank, sent ? "combine" : "dispatch",
                   peer);
      return false;
    }
    return true;
  }

  const Rank& r_;
  const std::vector<std::vector<uint64_t>> all_;
  const uint64_t capacity_;
  const size_t bytes_;
  std::vector<tw_memory*> memory_;
  void *send_ = nullptr, *recv_ = nullptr, *host_ = nullptr;
  void *send_counts_ = nullptr, *recv_counts_ = nullptr, *host_counts_ = nullptr;
};

double Dispatch::timed(bool back) const {
  tw_graph* graph = nullptr;
  must(tw_queue_begin_capture(r_.queue), "tw_queue_begin_capture");
  for (int i = 0; i < kInGraph; ++i) must(call(back), "tw_alltoallv_counted_on");
  must(tw_queue_end_capture(r_.queue, &graph), "tw_queue_end_capture");
  std::vector<double> times;
  for (int k = -2; k < kTimes; ++k) {
    must(tw_barrier(r_.world, nullptr, nullptr), "tw_barrier");
    const double begin = microseconds();
    for (int i = 0; i < kLaunches; ++i) must(tw_graph_launch(graph, r_.queue), "tw_graph_launch");
    must(tw_queue_synchronize(r_.queue), "tw_queue_synchronize");
    double mine = (microseconds() - begin) / (kInGraph * kLaunches), most = 0;
    must(tw_allreduce(r_.world, &mine, &most, 1, TW_TYPE_FLOAT64, TW_REDUCE_MAX, nullptr, nullptr), "tw_allreduce");
    if (k >= 0) times.push_back(most);
  }
  must(tw_queue_check(r_.queue), "tw_queue_check");
  tw_graph_destroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run(const char* device) {
  Rank r;
  must(tw_init(nullptr, &r.world), "tw_init");
  r.rank = tw_group_rank(r.world);
  r.size = tw_group_size(r.world);
  r.context = tw_group_context(r.world);
  r.place = std::string(device) + ":" + std::to_string(r.rank);
  must(tw_queue_create(r.context, r.place.c_str(), nullptr, &r.queue), "tw_queue_create");
  const bool gpu = std::strcmp(device, "cuda") == 0;
  if (!gpu) r.row_bytes = 112;
  for (const uint64_t tokens : {uint64_t{128}, uint64_t{4'096}}) {
    if (!gpu && tokens > 128) continue;
    const Dispatch dispatch(r, tokens);
    if (!dispatch.verified()) return 1;
    for (const bool back : {false, true}) {
      const double us = dispatch.timed(back);
      if (r.rank == 0)
        std::printf("{\"collective\": \"%s\", \"tokens\": %llu, \"ranks\": %u, \"bytes\": %llu, \"us\": %.2f}\n",
                    back ? "combine" : "dispatch", static_cast<unsigned long long>(tokens), r.size,
                    static_cast<unsigned long long>(dispatch.bytes()), us);
      std::fflush(stdout);
    }
    must(tw_barrier(r.world, nullptr, nullptr), "tw_barrier");
  }
  tw_queue_destroy(r.queue);
  must(tw_group_destroy(r.world), "tw_group_destroy");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const char* const device = argc > 2 ? argv[2] : "cuda";
  char folder[] = "/tmp/thalweg-dispatch-XXXXXX";
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
    std::exit(run(device));
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  return failed != 0;
}
