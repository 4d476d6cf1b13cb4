// SPDX-License-Identifier: Apache-2.0
// thalweg tune --check: what the library chooses beside every other way by force, and what it predicts beside what it takes, over shm and
// tcp, and with device memory where there is a device. Measures nothing for good.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "check.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr double kWorst = 1.25, kWithin = 1.10, kShare = 0.95, kError = 0.15;

constexpr uint64_t kLimit = 55'000'000'000;  // ns, of a path

/// One pair of memories, and what may move bytes between them.
struct Path {
  std::string name, transport, memory[2];
  const char* test;  // one direction at a time where the memories differ: predictions are of one
  std::vector<const char*> ways;
  unsigned rounds;
};

std::vector<size_t> all_sizes() {
  std::vector<size_t> sizes;
  for (unsigned power = 0; power <= 26; power += 2) sizes.push_back(size_t{1} << power);  // 1 B to 64 MiB
  return sizes;
}

/// Is there memory at this place?
bool there_is(tw_context* context, const std::string& place) {
  tw_memory_options o = TW_MEMORY_OPTIONS_INIT;
  o.place = place.c_str();
  tw_memory* memory = nullptr;
  if (tw_memory_allocate(context, 4096, &o, &memory) < 0) return false;
  (void)tw_memory_release(memory);
  return true;
}

/// GPUs, else emulated devices, else none.
void add_device_paths(unsigned rounds, std::vector<Path>* out) {
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  const bool gpu = there_is(context, "cuda:0");
  const std::string device = gpu ? "cuda" : "emulated", pool = gpu ? "pool" : "emulated-pool";
  const std::string managed = gpu ? "managed" : "emulated-managed";
  if (gpu || there_is(context, "emulated:0")) {
    const std::string second = there_is(context, device + ":1") ? ":1" : ":0";
    const std::vector<const char*> ways = {"any", "push", "pull", "staging"};
    out->push_back({"device-device", "shm", {device + ":0", device + second}, "tag_lat", ways, rounds});
    out->push_back({"device-host", "shm", {device + ":0", "plain"}, "tag_bw", ways, rounds});
    out->push_back({"host-device", "shm", {"plain", device + ":0"}, "tag_bw", ways, rounds});
    out->push_back({"device-pinned", "shm", {device + ":0", "pinned"}, "tag_bw", ways, rounds});
    out->push_back({"pool-pool", "shm", {pool + ":0", pool + second}, "tag_lat", ways, rounds});
    out->push_back({"managed-managed", "shm", {managed + ":0", managed + second}, "tag_lat", ways, rounds});
  }
  tw_context_destroy(context);
}

/// Those that `wanted` names; empty: all.
std::vector<Path> paths_of(const Options& o) {
  std::vector<Path> all = {
      {"shm", "shm", {"plain", "plain"}, "tag_lat", {"any", "eager", "frames", "mapped", "kernel"}, o.rounds},
      {"tcp", "tcp", {"plain", "plain"}, "tag_lat", {"any", "eager", "frames"}, o.rounds}};
  add_device_paths(std::max(1u, o.rounds * 2 / 3), &all);
  if (o.paths.empty()) return all;
  std::vector<Path> some;
  for (const std::string& name : o.paths) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Path& path) { return path.name == name; });
    if (found != all.end()) some.push_back(*found);
    if (found == all.end()) std::fprintf(stderr, "thalweg tune: no path %s here\n", name.c_str());
  }
  return some;
}

// ------------------------------------------------------------------------------------------------ measuring

struct Found {
  double us, predicted_us;
  std::string route;
};
using FoundBy = std::map<std::pair<std::string, size_t>, std::vector<Found>>;  // by way and size

struct Progress {
  size_t step = 0, steps = 0;
  void show(const std::string& path, const char* way, size_t size) {
    ++step;
    if (::isatty(2) == 0) return;
    char bar[31] = {};
    for (size_t i = 0; i < 30; ++i) bar[i] = i * steps < step * 30 ? '#' : '.';
    std::fprintf(stderr, "\r[%s] %-16s %-8s %-10s", bar, path.c_str(), way, human_size(size).c_str());
    if (step == steps) std::fprintf(stderr, "\r%79s\r", "");
  }
};

// What start_locally() comes back to.
Progress progress;
const Path* path = nullptr;
const char* way = nullptr;
FoundBy found;

void measure_path(const Options& given, char** argv, const cpu_set_t& allowed) {
  Options o = given;
  o.transport = path->transport;
  o.window = 1;
  for (int side = 0; side < 2; ++side) o.memory[side] = path->memory[side];
  const uint64_t begin = now_ns();
  for (unsigned round = 0; round < path->rounds; ++round) {
    // No round that would not end in time, on a machine that does something else as well.
    if (round != 0 && (now_ns() - begin) / round * (round + 1) > kLimit) {
      progress.step += (path->rounds - round) * path->ways.size() * o.sizes.size();
      break;
    }
    for (const char* one : path->ways) {
      way = one;
      ::setenv("THALWEG_WAY", way, 1);
      ::sched_setaffinity(0, sizeof allowed, &allowed);  // the last pair pinned this process; the next one wants two cores
      if (const int status = start_locally(o, argv); status != 0) _exit(status);
    }
  }
}

// ------------------------------------------------------------------------------------------------ judging

struct Route {
  std::string way, name;  // the first way that took it
  double us;
};
struct Row {
  size_t size;
  Route chosen, best;
  double predicted_us;  // 0: nothing is said
  double behind() const { return chosen.us / best.us; }
  double error() const { return std::abs(predicted_us / chosen.us - 1); }
};

/// What took the same route is one measurement under several names (a way that is impossible falls back to one that is there
/// already): its times count together, so that only another route can be better.
Row row_of(size_t size) {
  std::map<std::string, std::vector<double>> times;
  std::map<std::string, std::string> first;
  for (const char* one : path->ways) {
    for (const Found& sample : found[{one, size}]) {
      times[sample.route].push_back(sample.us);
      first.try_emplace(sample.route, one);
    }
  }
  const std::vector<Found>& chosen = found[{"any", size}];
  Row row{size, {}, {}, chosen.back().predicted_us};
  for (const auto& [name, samples] : times) {
    const Route route{first[name], name, percentile(samples, 50)};
    if (name == chosen.back().route) row.chosen = route;
    if (row.best.name.empty() || route.us < row.best.us) row.best = route;
  }
  return row;
}

struct CheckResult {
  double within, worst, error;  // error < 0: nothing was predicted
  bool good;
};
CheckResult judge(const std::vector<Row>& rows) {
  CheckResult v{0, 1, -1, false};
  std::vector<double> errors;
  for (const Row& row : rows) {
    v.within += row.behind() <= kWithin ? 1.0 / static_cast<double>(rows.size()) : 0;
    v.worst = std::max(v.worst, row.behind());
    if (row.predicted_us > 0) errors.push_back(row.error());
  }
  if (!errors.empty()) v.error = percentile(errors, 50);
  v.good = v.within >= kShare && v.worst <= kWorst && v.error <= kError;
  return v;
}

void print_rows(const std::vector<Row>& rows) {
  std::printf("%-16s %8s  %-34s %10s %10s  %-34s %10s %6s\n", "path", "size", "chosen", "us", "predicted", "best by force",
              "us", "behind");
  for (const Row& row : rows) {
    char predicted[32] = "-";
    if (row.predicted_us > 0) std::snprintf(predicted, sizeof predicted, "%.2f", row.predicted_us);
    std::printf("%-16s %8s  %-34s %10.2f %10s  %-34s %10.2f %6.2f\n", path->name.c_str(), human_size(row.size).c_str(),
                row.chosen.name.c_str(), row.chosen.us, predicted, row.best.name.c_str(), row.best.us, row.behind());
  }
}

void print_result(const CheckResult& v) {
  char error[16] = "-";
  if (v.error >= 0) std::snprintf(error, sizeof error, "%.0f %%", v.error * 100);
  std::printf(
      "%s %s: within 10 %% of the best at %.0f %% of the sizes (95 %%); worst %.2f (1.25); median error of predictions %s (15 "
      "%%)\n",
      v.good ? "PASS" : "FAIL", path->name.c_str(), v.within * 100, v.worst, error);
}

std::string json_of(const std::vector<Row>& rows, const CheckResult& v) {
  std::string text;
  char part[512];
  for (const Row& row : rows) {
    std::snprintf(
        part, sizeof part,
        "%s{\"path\": \"%s\", \"size\": %zu, \"chosen\": \"%s\", \"us\": %.6g, \"predicted_us\": %.6g, \"best\": \"%s\", "
        "\"best_way\": \"%s\", \"best_us\": %.6g, \"behind\": %.4g}",
        text.empty() ? "" : ", ", path->name.c_str(), row.size, row.chosen.name.c_str(), row.chosen.us, row.predicted_us,
        row.best.name.c_str(), row.best.way.c_str(), row.best.us, row.behind());
    text += part;
  }
  std::snprintf(part, sizeof part, "], \"within_10_percent\": %.4g, \"worst\": %.4g, \"median_error\": %.4g, \"good\": %s}",
                v.within, v.worst, v.error, v.good ? "true" : "false");
  return "{\"path\": \"" + path->name + "\", \"rows\": [" + text + part;
}

}  // namespace

void check_link(Pair& pair, const Options& o) {
  for (const size_t size : o.sizes) {
    progress.show(path->name, way, size);
    const Result result = measure(pair, o, *find_test(path->test), size);
    if (!result.verified) {
      std::fprintf(stderr, "\nthalweg tune: wrong bytes arrived: %s, %s, %zu bytes\n", path->name.c_str(), way, size);
      _exit(3);
    }
    const bool latency = !result.latency_us.empty();
    const double us = latency ? percentile(result.latency_us, 50) : static_cast<double>(size) / result.bandwidth / 1e3;
    found[{way, size}].push_back({us, result.predicted_us, result.route});
  }
}

int run_check(Options o, char** argv) {
  cpu_set_t allowed;
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  ::setenv("THALWEG_KEEP_JOB_KEY", "1", 1);  // for the next pair's contexts and processes
  if (o.sizes.empty()) o.sizes = all_sizes();
  if (std::find(o.sizes.begin(), o.sizes.end(), size_t{0}) != o.sizes.end()) {
    std::fprintf(stderr, "thalweg tune: --check: --size from 1, a way of no bytes has no bandwidth\n");
    return 2;
  }
  const std::vector<Path> paths = paths_of(o);
  if (paths.empty()) return 2;
  for (const Path& one : paths) progress.steps += one.rounds * one.ways.size() * o.sizes.size();
  bool good = true;
  std::string json;
  for (const Path& one : paths) {
    path = &one;
    found.clear();
    measure_path(o, argv, allowed);
    std::vector<Row> rows;
    for (const size_t size : o.sizes) rows.push_back(row_of(size));
    const CheckResult result = judge(rows);
    good = good && result.good;
    if (o.format == Format::json) {
      json += (json.empty() ? "" : ", ") + json_of(rows, result);
      continue;
    }
    print_rows(rows);
    print_result(result);
    flush_results();
  }
  ::unsetenv("THALWEG_WAY");
  if (o.format == Format::json) std::printf("{\"paths\": [%s], \"good\": %s}\n", json.c_str(), good ? "true" : "false");
  flush_results();
  return good ? 0 : 1;
}

}  // namespace perf
