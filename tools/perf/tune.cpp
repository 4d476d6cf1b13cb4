// SPDX-License-Identifier: Apache-2.0
// thalweg tune: what a frame and a byte cost on this machine, by each way that routes are chosen between, saved for the user
// (tw_costs_save). The library's own defaults are in force meanwhile, so that what was measured before decides nothing.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests.hpp"

namespace perf {
namespace {

constexpr unsigned kRounds = 3;

/// A time that is needed: one test at one size.
struct Point {
  const char* name;
  const char* test;
  size_t size;
  bool library;  // memory of tw_memory_allocate
};
// The ways that compete (frames, mapped, kernel) at the same sizes: where caches end differs by machine.
constexpr size_t kWhole = 1u << 20, kLarge = 8u << 20;
constexpr Point kFrames[] = {{"frame", "tag_lat", 8, false},
                             {"one", "tag_lat", 16384, false},
                             {"ring", "tag_lat", kWhole, false},
                             {"ring2", "tag_lat", kLarge, false}};
constexpr Point kMapped[] = {{"mapped", "get_lat", kWhole, true}, {"mapped2", "get_lat", kLarge, true}};
constexpr Point kKernel[] = {
    {"kernel_fixed", "get_lat", 8, false}, {"kernel", "tag_lat", kWhole, false}, {"kernel2", "tag_lat", kLarge, false}};
constexpr Point kTcp[] = {{"frame", "tag_lat", 8, false},
                          {"one", "tag_lat", 7168, false},
                          {"reference", "tag_lat", 65536, false},
                          {"reference2", "tag_lat", 1u << 18, false}};
/// Measurements between one pair of processes, by force.
struct Pass {
  const char* transport;
  const char* way;
  const Point* points;
  size_t count;
};
constexpr Pass kPasses[] = {{"shm", "frames", kFrames, std::size(kFrames)},
                            {"shm", "mapped", kMapped, std::size(kMapped)},
                            {"shm", "kernel", kKernel, std::size(kKernel)},
                            {"tcp", "any", kTcp, std::size(kTcp)}};
constexpr unsigned kSteps = kRounds * (std::size(kFrames) + std::size(kMapped) + std::size(kKernel) + std::size(kTcp));

unsigned step = 0;
std::string values;  // lines for tw_costs_save

void show_progress(const Pass& pass, const Point& point) {
  ++step;
  if (::isatty(2) == 0) return;
  char bar[31] = {};
  for (unsigned i = 0; i < 30; ++i) bar[i] = i * kSteps < step * 30 ? '#' : '.';
  std::fprintf(stderr, "\r[%s] %s %-7s %-10s%s", bar, pass.transport, pass.way, point.test, step == kSteps ? "\n" : "");
}

void keep(const char* link, const char* field, double value) {
  if (!(value > 0)) {
    std::fprintf(stderr, "\nthalweg tune: %s.%s came out as %g: this machine is too busy to measure, try again\n", link, field,
                 value);
    _exit(3);
  }
  char line[80];
  std::snprintf(line, sizeof line, "%s.%s = %.4g\n", link, field, value);
  values += line;
}

using Times = std::map<std::string, double>;  // ns

double slope(const Times& t, const char* from, const char* to, double bytes) { return (t.at(to) - t.at(from)) / bytes; }

/// Per byte of a message of 1 MiB, so that predictions are exact there.
double each(const Times& t, const char* at, double asking) { return (t.at(at) - asking) / static_cast<double>(kWhole); }

void conclude_shm(const Times& t) {
  const double frame = t.at("frame"), beyond = kLarge - kWhole;
  keep("shm", "frame", frame);
  keep("shm", "serial_copy", slope(t, "frame", "one", 16384 - 8));
  keep("shm", "copy", each(t, "ring", 3 * frame));
  keep("shm", "copy_large", slope(t, "ring", "ring2", beyond));
  keep("shm", "mapped", each(t, "mapped", 0));
  keep("shm", "mapped_large", slope(t, "mapped", "mapped2", beyond));
  if (t.count("kernel") == 0) return;            // the kernel does not allow it here; see `thalweg info`
  const double call = t.at("kernel_fixed") / 2;  // a get is two calls: is the key still good, and the bytes
  keep("shm", "kernel_fixed", call);
  keep("shm", "kernel", each(t, "kernel", 3 * frame + call));
  keep("shm", "kernel_large", slope(t, "kernel", "kernel2", beyond));
}

void conclude_tcp(const Times& t) {
  keep("tcp", "frame", t.at("frame"));
  keep("tcp", "copy", slope(t, "frame", "one", 7168 - 8));
  keep("tcp", "serial_copy", slope(t, "frame", "one", 7168 - 8));
  keep("tcp", "reference", slope(t, "reference", "reference2", (1u << 18) - 65536));
}

/// May one process copy from the other's ordinary memory by the kernel? Decided by what the library would do.
bool kernel_copies(Pair& pair) {
  char text[8192];
  size_t length = sizeof text;
  must(tw_endpoint_explain(pair.endpoint, "get", 65536, text, &length), "tw_endpoint_explain");
  return std::strstr(text, "* get_single_copy") != nullptr;
}

}  // namespace

namespace {
const Pass* pass = nullptr;  // what is being measured
Times times;                 // of the passes so far
}  // namespace

void tune_link(Pair& pair, Options o) {
  if (std::strcmp(pass->way, "kernel") == 0 && !kernel_copies(pair)) return;
  std::map<std::string, std::vector<double>> samples;
  for (unsigned round = 0; round < kRounds; ++round) {
    for (const Point* p = pass->points; p != pass->points + pass->count; ++p) {
      show_progress(*pass, *p);
      for (std::string& memory : o.memory) memory = p->library ? "host" : "plain";
      const Result result = measure(pair, o, *find_test(p->test), p->size);
      if (!result.verified) {
        std::fprintf(stderr, "\nthalweg tune: wrong bytes arrived: %s %zu\n", p->test, p->size);
        _exit(3);
      }
      samples[p->name].push_back(percentile(result.latency_us, 50) * 1e3);
    }
  }
  for (auto& [name, measured] : samples) times[name] = percentile(measured, 50);
}

int run_tune(Options o, char** argv) {
  const char* const given = std::getenv("THALWEG_COSTS");
  if (given != nullptr && std::strcmp(given, "off") == 0) {
    std::fprintf(stderr, "thalweg tune: THALWEG_COSTS=off says that no measured costs are wanted: unset it\n");
    return 2;
  }
  const std::string file = given != nullptr ? given : "";
  ::setenv("THALWEG_COSTS", "off", 1);
  ::setenv("THALWEG_KEEP_JOB_KEY", "1", 1);  // for the next pass's contexts and processes
  cpu_set_t allowed;
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  for (const Pass& one : kPasses) {
    pass = &one;
    o.transport = one.transport;
    ::setenv("THALWEG_WAY", one.way, 1);
    ::sched_setaffinity(0, sizeof allowed, &allowed);  // the last pair pinned this process; the next one wants two cores
    if (const int status = start_locally(o, argv); status != 0) return status;
    if (pass == &kPasses[2]) {
      conclude_shm(times);
      times.clear();
    }
  }
  conclude_tcp(times);
  ::unsetenv("THALWEG_WAY");
  file.empty() ? ::unsetenv("THALWEG_COSTS") : ::setenv("THALWEG_COSTS", file.c_str(), 1);
  char path[4096];
  size_t length = sizeof path;
  must(tw_costs_save(values.c_str(), path, &length), "tw_costs_save");
  std::printf("%s", values.c_str());
  std::printf("kept in %s; programs started from now on choose their routes by it\n", path);
  return 0;
}

}  // namespace perf
