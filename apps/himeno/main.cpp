// SPDX-License-Identifier: Apache-2.0
// thalweg-himeno: the Himeno benchmark over Thalweg.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "gpu/gpu.hpp"
#include "himeno/loop.hpp"
#include "ranks/arguments.hpp"
#include "ranks/bar.hpp"
#include "ranks/launch.hpp"

namespace himeno {
namespace {

constexpr const char* kHelp =
    R"(thalweg-himeno: the Himeno benchmark (a 19-point Jacobi iteration, 34 operations a point) over several processes or GPUs

  thalweg-himeno --processes 2 --size S                      two processes on this machine's processor
  thalweg-himeno --processes 4 --memory cuda --trigger all   four GPUs, every way to start an exchange, one after the other
  thalweg run -n 4 thalweg-himeno --size M --decompose 1x2x2 the same processes, started by `thalweg run`

  --size XS,S,M,L,XL     32x32x64 points, each next one twice in every axis           (S)
  --processes N          how many to start here; not with `thalweg run`               (1)
  --decompose IxJxK      blocks along i, j, k                                         (the least surface; k is dear)
  --trigger host         who starts the exchange of the block's faces and edges; comma list or all    (host)
              host       the host waits for every iteration, then sends and receives tagged messages
  --memory PLACE         host, pinned, cuda (GPU of the rank's number), cuda:1, ...: compute where the data is   (host)
  --iterations N         of every run; else as many as fit into
  --seconds S            (3)
  --cross B              the coefficients of the mixed terms, which count edges in    (0, as published)
  --json                 one JSON object a line

gosa is the last iteration's sum of squared residuals, field a fingerprint of the solution: every bit of p is the same when it is.
)";

const std::vector<std::string> kTriggers = {"host"};

struct Options {
  std::vector<std::string> sizes, triggers;
  std::string decompose, memory;
  unsigned processes;
  uint64_t iterations;
  double seconds;
  float cross;
  bool json;
};

Options options_of(int argc, char** argv) {
  const apps::Arguments given(
      argc, argv, kHelp, {"size", "processes", "decompose", "trigger", "memory", "iterations", "seconds", "cross"}, {"json"});
  return {given.words("size", "S", size_names()),
          given.words("trigger", "host", kTriggers),
          given.text("decompose", ""),
          given.text("memory", "host"),
          static_cast<unsigned>(given.number("processes", 1, 1)),
          static_cast<uint64_t>(given.number("iterations", 0, 1)),
          given.number("seconds", 3, 0.001),
          static_cast<float>(given.number("cross", 0, -1)),
          given.has("json")};
}

struct Result {
  std::string size, trigger, decomposition, memory;
  int processes;
  uint64_t iterations;
  double seconds, mflops, gosa;
  uint64_t field;
};

void print_header() {
  std::printf("%-4s %9s %-8s %-8s %10s %12s %12s %14s  %s\n", "size", "blocks", "memory", "trigger", "iterations",
              "us/iteration", "[MFLOPS]", "gosa", "field");
}

void print(const Result& r, bool json) {
  const double each = r.seconds / static_cast<double>(r.iterations) * 1e6;
  if (json) {
    std::printf(
        "{\"app\": \"himeno\", \"size\": \"%s\", \"processes\": %d, \"decomposition\": \"%s\", \"memory\": \"%s\", "
        "\"trigger\": \"%s\", "
        "\"iterations\": %" PRIu64
        ", \"seconds\": %.6g, \"us_per_iteration\": %.6g, \"mflops\": %.6g, \"gosa\": %.17g, \"field\": \"%016" PRIx64 "\"}\n",
        r.size.c_str(), r.processes, r.decomposition.c_str(), r.memory.c_str(), r.trigger.c_str(), r.iterations, r.seconds,
        each, r.mflops, r.gosa, r.field);
  } else {
    std::printf("%-4s %9s %-8s %-8s %10" PRIu64 " %12.2f %12.0f %14.7e  %016" PRIx64 "\n", r.size.c_str(),
                r.decomposition.c_str(), r.memory.c_str(), r.trigger.c_str(), r.iterations, each, r.mflops, r.gosa, r.field);
  }
  std::fflush(stdout);
}

/// Seconds of `count` iterations on the slowest rank.
double timed(apps::Ranks& ranks, Loop& loop, uint64_t count, const std::string& what) {
  using clock = std::chrono::steady_clock;
  constexpr uint64_t kSteps = 20;  // of the progress bar; each is waited for, so few
  const apps::Bar bar(ranks.rank() == 0, what);
  const uint64_t piece = std::max<uint64_t>(count / kSteps, 100);
  ranks.barrier();
  const auto start = clock::now();
  for (uint64_t done = 0; done < count; done += piece) {
    bar.at(static_cast<double>(done) / static_cast<double>(count));
    loop.run(std::min(piece, count - done));
  }
  return ranks.most(std::chrono::duration<double>(clock::now() - start).count());
}

Result measure(apps::Ranks& ranks, const Options& o, const std::string& size_name, const std::string& trigger) {
  const Size size = size_of(size_name);
  const Triple parts =
      o.decompose.empty() ? best_decomposition(size.inner(), ranks.size()) : parse_decomposition(o.decompose, ranks.size());
  const Block block(size, parts, ranks.rank());
  const std::string place = ranks.place(o.memory);
  Field field(ranks, size, block, place, o.cross);
  const std::unique_ptr<Jacobi> jacobi = apps::on_gpu(place) ? on_gpu(ranks, field, place) : on_processor(field);
  const std::unique_ptr<Loop> loop = host_loop(ranks, field, *jacobi, moves_of(block, parts));

  constexpr uint64_t kRehearsal = 4;  // even, as all runs but the last: the same buffer is current afterwards
  timed(ranks, *loop, kRehearsal, "");
  const double each = timed(ranks, *loop, kRehearsal, "") / kRehearsal;
  const uint64_t count = o.iterations != 0 ? o.iterations : std::max<uint64_t>(static_cast<uint64_t>(o.seconds / each), 2);
  ranks.barrier();  // nobody's halo is written any more
  field.reset();
  Result r{size.name, trigger, text_of(parts), o.memory, ranks.size(), count, 0, 0, 0, 0};
  r.seconds = timed(ranks, *loop, count, "size " + size.name + ", " + trigger);
  const Triple inner = size.inner();
  const double points = static_cast<double>(inner[0]) * static_cast<double>(inner[1]) * static_cast<double>(inner[2]);
  r.mflops = kOperations * points * static_cast<double>(count) / r.seconds / 1e6;
  r.gosa = ranks.sum(jacobi->gosa());
  r.field = ranks.sum_bits(field.fingerprint(static_cast<int>(count % 2)));
  return r;
}

int run(int argc, char** argv) {
  const Options o = options_of(argc, argv);
  return apps::run(o.processes, argv, [&](apps::Ranks& ranks) {
    if (ranks.rank() == 0 && !o.json) print_header();
    for (const std::string& size : o.sizes)
      for (const std::string& trigger : o.triggers) {
        const Result result = measure(ranks, o, size, trigger);
        if (ranks.rank() == 0) print(result, o.json);
      }
  });
}

}  // namespace
}  // namespace himeno

int main(int argc, char** argv) try { return himeno::run(argc, argv); } catch (const apps::Usage& error) {
  std::fprintf(stderr, "thalweg-himeno: %s\n", error.what());
  return 2;
}
