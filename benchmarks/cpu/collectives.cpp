// SPDX-License-Identifier: Apache-2.0
// Blocking collectives of processes of this machine, each on a core where there are enough. Beside it: mpi_collectives.cpp.
//   usage: thalweg-collectives [RANKS] [SECONDS for each line] [ALGORITHM of allreduce, broadcast and alltoall; -: by costs] [MOST bytes]
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thalweg/collectives.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "collective_loop.hpp"

namespace {

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::_Exit(1);
}

/// Memory that all processes have from before the fork: where they meet and exchange addresses.
struct Board {
  static constexpr size_t kRoom = 4096;
  std::atomic<uint32_t> arrived;
  char room[256][kRoom];
};

struct Place {
  Board* board;
  uint32_t rank, size, meetings = 0;
  void meet() {
    ++meetings;
    board->arrived.fetch_add(1);
    while (board->arrived.load() < meetings * size) std::this_thread::yield();
  }
};

tw_status exchange(void* arg, const void* mine, size_t length, void* values) {
  Place& place = *static_cast<Place*>(arg);
  if (length > Board::kRoom) return TW_ERR_LIMIT;
  std::memcpy(place.board->room[place.rank], mine, length);
  place.meet();
  for (uint32_t i = 0; i < place.size; ++i) std::memcpy(static_cast<char*>(values) + i * length, place.board->room[i], length);
  place.meet();
  return TW_OK;
}

class Thalweg : public bench::Ranks {
 public:
  Thalweg(Place& place, const char* algorithm) {
    rank = static_cast<int>(place.rank);
    size = static_cast<int>(place.size);
    must(tw_context_create(nullptr, &context_), "tw_context_create");
    must(tw_worker_create(context_, nullptr, &worker_), "tw_worker_create");
    char address[1024] = {};
    size_t length = sizeof address;
    must(tw_worker_address(worker_, address, &length), "tw_worker_address");
    std::vector<char> all(place.size * sizeof address);
    must(exchange(&place, address, sizeof address, all.data()), "exchange");
    std::vector<tw_endpoint*> endpoints(place.size);
    for (uint32_t i = 0; i < place.size; ++i) {
      if (i != place.rank) must(tw_connect(worker_, &all[i * sizeof address], length, nullptr, &endpoints[i]), "tw_connect");
    }
    must(tw_group_create(worker_, endpoints.data(), place.size, place.rank, exchange, &place, nullptr, &group_),
         "tw_group_create");
    options_.algorithm = algorithm;
  }
  ~Thalweg() override {
    must(tw_group_destroy(group_), "tw_group_destroy");
    tw_worker_destroy(worker_);
    tw_context_destroy(context_);
  }
  Thalweg(const Thalweg&) = delete;
  Thalweg& operator=(const Thalweg&) = delete;

  void barrier() override { must(tw_barrier(group_, nullptr, nullptr), "tw_barrier"); }
  void allreduce(const float* send, float* recv, size_t count) override {
    must(tw_allreduce(group_, send, recv, count, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &options_, nullptr), "tw_allreduce");
  }
  void alltoall(const char* send, char* recv, size_t bytes) override {
    must(tw_alltoall(group_, send, recv, bytes, TW_TYPE_UINT8, &options_, nullptr), "tw_alltoall");
  }
  void broadcast(char* buffer, size_t bytes) override {
    must(tw_broadcast(group_, buffer, bytes, TW_TYPE_UINT8, 0, &options_, nullptr), "tw_broadcast");
  }
  void greatest(const double* send, double* recv, size_t count) override {
    must(tw_allreduce(group_, send, recv, count, TW_TYPE_FLOAT64, TW_REDUCE_MAX, nullptr, nullptr), "tw_allreduce");
  }

 private:
  tw_collective_options options_ = TW_COLLECTIVE_OPTIONS_INIT;
  tw_context* context_ = nullptr;
  tw_worker* worker_ = nullptr;
  tw_group* group_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const auto size = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2);
  const double budget_s = argc > 2 ? std::atof(argv[2]) : 0.5;
  const char* const algorithm = argc > 3 && std::strcmp(argv[3], "-") != 0 ? argv[3] : nullptr;
  const size_t most = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : SIZE_MAX;
  if (size < 1 || size > 256) return 2;
  void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  Place place{new (shared) Board, 0, size};
  for (uint32_t i = 1; i < size && place.rank == 0; ++i) {
    if (fork() == 0) place.rank = i;
  }
  if (static_cast<long>(size) <= sysconf(_SC_NPROCESSORS_ONLN)) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(place.rank, &core);
    (void)sched_setaffinity(0, sizeof core, &core);
  }
  {
    Thalweg ranks(place, algorithm);
    bench::measure(ranks, algorithm != nullptr ? algorithm : "thalweg", budget_s, most);
    place.meet();
  }
  int worst = 0, status = 0;
  while (place.rank == 0 && wait(&status) > 0) worst |= status;
  return worst != 0;
}
