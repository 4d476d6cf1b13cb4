// SPDX-License-Identifier: Apache-2.0
// The measuring loop of collectives.cpp and mpi_collectives.cpp: batches of one collective, each after a barrier; a batch takes as
// long as its slowest rank. All results are checked: before the batches, and the last one of them.
//
// Prints "LIBRARY,OPERATION,RANKS,BYTES,median us,least us".
#pragma once
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// What is measured: blocking calls.
struct Ranks {
  virtual ~Ranks() = default;
  virtual void barrier() = 0;
  virtual void allreduce(const float* send, float* recv, size_t count) = 0;
  virtual void alltoall(const char* send, char* recv, size_t bytes) = 0;  // to each rank
  virtual void broadcast(char* buffer, size_t bytes) = 0;                 // of rank 0
  virtual void greatest(const double* send, double* recv, size_t count) = 0;
  int rank = 0, size = 1;
};

inline double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline void wrong(const char* what, size_t bytes) {
  std::fprintf(stderr, "%s of %zu bytes: a wrong result\n", what, bytes);
  std::_Exit(1);
}

struct Measured {
  const char* library;
  double budget_s;  // of each line

  void run(Ranks& ranks, const char* what, size_t bytes, const std::function<void()>& once,
           const std::function<void()>& check) const {
    once();
    check();
    const unsigned batch = rounds_of(ranks, once);
    std::vector<double> times;
    const double begin = seconds();
    double over = 0;
    while (over == 0) {
      ranks.barrier();
      const double from = seconds();
      for (unsigned i = 0; i < batch; ++i) once();
      times.push_back((seconds() - from) / batch);
      const double mine = times.size() >= 5 && seconds() - begin > budget_s ? 1 : 0;
      ranks.greatest(&mine, &over, 1);
    }
    check();
    std::vector<double> slowest(times.size());
    ranks.greatest(times.data(), slowest.data(), times.size());
    std::sort(slowest.begin(), slowest.end());
    if (ranks.rank == 0) {
      std::printf("%s,%s,%d,%zu,%.3f,%.3f\n", library, what, ranks.size, bytes, slowest[slowest.size() / 2] * 1e6,
                  slowest[0] * 1e6);
      std::fflush(stdout);
    }
  }

  /// So many as take a quarter of a millisecond, on all ranks alike.
  static unsigned rounds_of(Ranks& ranks, const std::function<void()>& once) {
    for (int i = 0; i < 3; ++i) once();
    ranks.barrier();
    const double from = seconds();
    for (int i = 0; i < 5; ++i) once();
    const double mine = (seconds() - from) / 5;
    double most = 0;
    ranks.greatest(&mine, &most, 1);
    return static_cast<unsigned>(std::clamp(250e-6 / most, 1.0, 1000.0));
  }
};

inline void measure(Ranks& ranks, const char* library, double budget_s, size_t most) {
  const Measured measured{library, budget_s};
  const auto size = static_cast<size_t>(ranks.size);
  const auto me = static_cast<size_t>(ranks.rank);
  measured.run(ranks, "barrier", 0, [&] { ranks.barrier(); }, [] {});
  for (const size_t bytes :
       {size_t{8}, size_t{512}, size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, size_t{4} << 20, size_t{16} << 20}) {
    if (bytes > most) continue;
    const size_t count = bytes / sizeof(float);
    std::vector<float> in(count), out(count);
    for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(me + i % 1000);
    measured.run(
        ranks, "allreduce", bytes, [&] { ranks.allreduce(in.data(), out.data(), count); },
        [&] {
          for (size_t i = 0; i < count; ++i) {
            if (out[i] != static_cast<float>(size * (size - 1) / 2 + size * (i % 1000))) wrong("allreduce", bytes);
            out[i] = -1;
          }
          ranks.allreduce(in.data(), out.data(), count);
        });
    std::vector<char> buffer(bytes);
    measured.run(
        ranks, "broadcast", bytes, [&] { ranks.broadcast(buffer.data(), bytes); },
        [&] {
          for (const char fill : {'a', 'b'}) {
            std::fill(buffer.begin(), buffer.end(), me == 0 ? fill : 'x');
            ranks.broadcast(buffer.data(), bytes);
            if (std::any_of(buffer.begin(), buffer.end(), [&](char c) { return c != fill; })) wrong("broadcast", bytes);
          }
        });
    if (bytes * size > (size_t{256} << 20)) continue;
    std::vector<char> from(bytes * size), to(bytes * size);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i / bytes * 31 + me * 7 + i % 97);
    measured.run(
        ranks, "alltoall", bytes, [&] { ranks.alltoall(from.data(), to.data(), bytes); },
        [&] {
          for (size_t i = 0; i < to.size(); ++i) {
            if (to[i] != static_cast<char>(me * 31 + i / bytes * 7 + (me * bytes + i % bytes) % 97)) wrong("alltoall", bytes);
            to[i] = 0;
          }
          ranks.alltoall(from.data(), to.data(), bytes);
        });
  }
}

}  // namespace bench
