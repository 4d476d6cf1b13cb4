// SPDX-License-Identifier: Apache-2.0
// thalweg-himeno: the Himeno benchmark over Thalweg.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <optional>

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
              queue      the GPU's stream, or a queue of the host, starts a prepared plan behind the iteration
              graph      the same, captured in a graph of two iterations
              kernel     the code that computes stores faces and edges into the neighbours' memory, signals and waits
  --memory PLACE         host, pinned, cuda (GPU of the rank's number), cuda:1, ...: compute where the data is   (host)
  --iterations N         of every run, or a comma list with one for each size; else as many as fit into
  --seconds S            (3)
  --cross B              the coefficients of the mixed terms, which count edges in    (0, as published)
  --json                 one JSON object a line

gosa is the last iteration's sum of squared residuals, field a fingerprint of the solution: every bit of p is the same when it is.
)";

const std::vector<std::string> kTriggers = {"host", "queue", "graph", "kernel"};

struct Options {
  std::vector<std::string> sizes, triggers;
  std::string decompose, memory;
  unsigned processes;
  std::vector<uint64_t> iterations;  // one for each size, or for all; 0: as many as fit
  double seconds;
  float cross;
  bool json;
};

std::vector<uint64_t> numbers_of(const std::string& list) {
  std::vector<uint64_t> numbers;
  for (const std::string& word : apps::split(list, ',')) {
    char* end = nullptr;
    numbers.push_back(std::strtoull(word.c_str(), &end, 10));
    if (word.empty() || *end != 0) throw apps::Usage("--iterations " + word + ": wants a number");
  }
  return numbers;
}

Options options_of(int argc, char** argv) {
  const apps::Arguments given(
      argc, argv, kHelp, {"size", "processes", "decompose", "trigger", "memory", "iterations", "seconds", "cross"}, {"json"});
  return {given.words("size", "S", size_names()),
          given.words("trigger", "host", kTriggers),
          given.text("decompose", ""),
          given.text("memory", "host"),
          static_cast<unsigned>(given.number("processes", 1, 1)),
          numbers_of(given.text("iterations", "0")),
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

/// JSON has no infinity and no number that is none.
std::string json_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return std::isfinite(value) ? text : "null";
}

void print(const Result& r, bool json) {
  const double each = r.seconds / static_cast<double>(r.iterations) * 1e6;
  if (json) {
    std::printf(
        "{\"app\": \"himeno\", \"size\": \"%s\", \"processes\": %d, \"decomposition\": \"%s\", \"memory\": \"%s\", "
        "\"trigger\": \"%s\", "
        "\"iterations\": %" PRIu64
        ", \"seconds\": %.6g, \"us_per_iteration\": %.6g, \"mflops\": %.6g, \"gosa\": %s, \"field\": \"%016" PRIx64 "\"}\n",
        r.size.c_str(), r.processes, r.decomposition.c_str(), r.memory.c_str(), r.trigger.c_str(), r.iterations, r.seconds,
        each, r.mflops, json_number(r.gosa).c_str(), r.field);
  } else {
    std::printf("%-4s %9s %-8s %-8s %10" PRIu64 " %12.2f %12.0f %14.7e  %016" PRIx64 "\n", r.size.c_str(),
                r.decomposition.c_str(), r.memory.c_str(), r.trigger.c_str(), r.iterations, each, r.mflops, r.gosa, r.field);
  }
  apps::flush_results();
}

/// Seconds of `count` iterations on the slowest rank, in pieces for the progress bar; each piece is waited for.
double timed(apps::Ranks& ranks, Loop& loop, uint64_t count, uint64_t piece, const std::string& what) {
  using clock = std::chrono::steady_clock;
  const apps::Bar bar(ranks.rank() == 0, what);
  ranks.align();
  const auto start = clock::now();
  for (uint64_t done = 0; done < count; done += piece) {
    bar.at(static_cast<double>(done) / static_cast<double>(count));
    loop.run(std::min(piece, count - done));
  }
  return ranks.most(std::chrono::duration<double>(clock::now() - start).count());
}

/// What computes and exchanges, and what starts that, for one run.
struct Solver {
  Solver(apps::Ranks& ranks, Field& field, const Triple& parts, const std::string& place, const std::string& trigger) {
    const std::string where = apps::on_gpu(place) ? place : "host";
    const apps::Moves moves = moves_of(field.block(), parts);
    if (trigger == "kernel") reach.emplace(ranks, field, parts, where);
    const Reach* const with = reach ? &*reach : nullptr;
    jacobi = apps::on_gpu(place) ? on_gpu(ranks, field, place, with) : on_processor(ranks, field, with);
    if (trigger == "host") loop = host_loop(ranks, field, *jacobi, moves);
    if (trigger == "queue" || trigger == "graph") loop = queue_loop(ranks, field, *jacobi, moves, where, trigger == "graph");
    if (trigger == "kernel") loop = kernel_loop(*jacobi, *reach);
  }
  std::optional<Reach> reach;
  std::unique_ptr<Jacobi> jacobi;
  std::unique_ptr<Loop> loop;
};

/// A number of iterations that takes about so long; even, so that the same buffer is current afterwards.
uint64_t even_count(double seconds, double each) {
  return std::max<uint64_t>(static_cast<uint64_t>(seconds / each / 2), 1) * 2;
}

Result measure(apps::Ranks& ranks, const Options& o, Field& field, const Triple& parts, const std::string& trigger,
               uint64_t iterations) {
  constexpr uint64_t kRehearsal = 4;
  constexpr double kPiece = 0.05;
  Solver solver(ranks, field, parts, ranks.place(o.memory), trigger);
  timed(ranks, *solver.loop, kRehearsal, kRehearsal, "");
  const double each = timed(ranks, *solver.loop, kRehearsal, kRehearsal, "") / kRehearsal;
  const uint64_t count = iterations != 0 ? iterations : even_count(o.seconds, each);
  ranks.align();  // nobody's halo is written any more
  field.reset();
  ranks.align();  // nor before it is as at the beginning
  const Size& size = field.size();
  Result r{size.name, trigger, text_of(parts), o.memory, ranks.size(), count, 0, 0, 0, 0};
  r.seconds = timed(ranks, *solver.loop, count, even_count(kPiece, each), "size " + size.name + ", " + trigger);
  const Triple inner = size.inner();
  const double points = static_cast<double>(inner[0]) * static_cast<double>(inner[1]) * static_cast<double>(inner[2]);
  r.mflops = kOperations * points * static_cast<double>(count) / r.seconds / 1e6;
  r.gosa = ranks.sum(solver.jacobi->gosa());
  r.field = ranks.sum_bits(field.fingerprint(static_cast<int>(count % 2)));
  return r;
}

void all_triggers(apps::Ranks& ranks, const Options& o, const Size& size, uint64_t iterations) {
  const Triple parts =
      o.decompose.empty() ? best_decomposition(size.inner(), ranks.size()) : parse_decomposition(o.decompose, ranks.size());
  Field field(ranks, size, parts, ranks.place(o.memory), o.cross);
  for (const std::string& trigger : o.triggers) {
    field.reset();
    const Result result = measure(ranks, o, field, parts, trigger, iterations);
    if (ranks.rank() == 0) print(result, o.json);
    if (!std::isfinite(result.gosa)) throw std::runtime_error("gosa is no number: the iteration diverges, a smaller --cross");
  }
  ranks.align();  // before the field ends
}

int run(int argc, char** argv) {
  const Options o = options_of(argc, argv);
  return apps::run(o.processes, argv, [&](apps::Ranks& ranks) {
    if (ranks.rank() == 0 && !o.json) print_header();
    for (size_t n = 0; n < o.sizes.size(); ++n) {
      all_triggers(ranks, o, size_of(o.sizes[n]), o.iterations[std::min(n, o.iterations.size() - 1)]);
    }
  });
}

}  // namespace
}  // namespace himeno

int main(int argc, char** argv) try { return himeno::run(argc, argv); } catch (const apps::Usage& error) {
  std::fprintf(stderr, "thalweg-himeno: %s\n", error.what());
  return 2;
}
