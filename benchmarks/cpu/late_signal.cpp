// SPDX-License-Identifier: Apache-2.0
// How late a wait for a signal ends when the signal comes late: two processes on two cores; one puts its time with a signal DELAY us
// after the other began to wait. Prints lines "signal_wait,DELAY,microseconds from the put to the end of the wait,us": medians.
// benchmarks/python/late_signal.py does the same in Python.   usage: thalweg-late-signal [ROUNDS]
#include "pair.hpp"

namespace {

using namespace bench;

constexpr unsigned kDelays[] = {0, 50, 200, 1000, 5000};  // us

struct Side : Connected {
  explicit Side(const Pipe& pipe) : Connected(pipe, "self,shm") {
    must(tw_memory_allocate(context, 64, nullptr, &memory), "tw_memory_allocate");
    must(tw_signal_create(worker, nullptr, &signal), "tw_signal_create");
    const auto theirs = swap(pipe, [this](void* key, size_t* size) { return tw_memory_export(memory, key, size); });
    must(tw_memory_import(endpoint, theirs.data(), theirs.size(), &remote), "tw_memory_import");
    const auto word = swap(pipe, [this](void* key, size_t* size) { return tw_signal_export(signal, key, size); });
    must(tw_signal_import(endpoint, word.data(), word.size(), &far), "tw_signal_import");
  }
  void wait(uint64_t step) { must(tw_signal_wait(signal, step, TW_COMPARE_GE, kLong), "tw_signal_wait"); }

  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* far = nullptr;
};

/// How late, in us; rank 0 waits.
double measure(Side& side, int rank, unsigned rounds, unsigned delay, uint64_t& step) {
  std::vector<double> late{0};
  for (unsigned i = 0; i < rounds; ++i) {
    ++step;
    if (rank == 0) {
      must(tw_signal_post(side.far, step, nullptr, nullptr), "tw_signal_post");
      side.wait(step);
      uint64_t put = 0;
      std::memcpy(&put, tw_memory_address(side.memory), sizeof put);
      late.push_back(static_cast<double>(now_ns() - put) / 1e3);
    } else {
      side.wait(step);
      for (const uint64_t until = now_ns() + delay * 1000; now_ns() < until;) {
      }
      const uint64_t time = now_ns();
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.signal = side.far;
      options.signal_value = step;
      must(tw_put(side.endpoint, &time, sizeof time, side.remote, 0, &options, nullptr), "tw_put");
    }
  }
  return median(late);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 300;
  const Processes both;
  {
    Side side(both.pipe);
    uint64_t step = 0;
    for (const unsigned delay : kDelays) {
      const double late = measure(side, both.rank, rounds, delay, step);
      if (both.rank == 0) std::printf("signal_wait,%u,%.3f,us\n", delay, late);
      std::fflush(stdout);
    }
    both.pipe.meet();
  }
  return both.end();
}
