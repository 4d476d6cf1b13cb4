// SPDX-License-Identifier: Apache-2.0
// thalweg-gpu-floor [--quick] [--json=FILE] [section...]: what two GPUs and src/devices give without protocols.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "bench.hpp"

using namespace thalweg::floors;

namespace {

constexpr struct {
  const char* name;
  void (*run)(Bench&);
} kSections[] = {{"identify", identify_costs}, {"calls", call_costs},    {"one_way", one_way},       {"windows", windows},
                 {"both_ways", both_ways},     {"faces", faces},         {"blocks", blocks},         {"host", host_copies},
                 {"graphs", graphs},           {"processes", processes}, {"killed", killed_exporter}};

bool run_section(Bench& bench, const char* name, void (*run)(Bench&)) {
  const double start = now_us();
  bool good = true;
  alarm(kSectionSeconds);  // ends the program; what earlier sections measured is written by then
  try {
    run(bench);
  } catch (const std::exception& error) {
    bench.table.note(std::string("FAILED ") + name + ": " + error.what());
    good = false;
  }
  alarm(0);
  char text[100];
  std::snprintf(text, sizeof text, "section %s: %.1f s", name, (now_us() - start) / 1e6);
  bench.table.note(text);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  bool quick = false;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--serve=", 8) == 0) {
      try {
        return serve(std::atoi(argv[i] + 8));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "the other process: %s\n", error.what());
        return 1;
      }
    }
    if (std::strncmp(argv[i], "--json=", 7) == 0) {
      json = argv[i] + 7;
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  bool good = true;
  try {
    Bench bench;
    bench.quick = quick;
    bench.table.note("GPUs: " + std::to_string(bench.devices.size()));
    for (const auto& section : kSections) {
      const auto matches = [&](const std::string& name) { return name == section.name; };
      bool run = wanted.empty();
      for (const std::string& name : wanted) run = run || matches(name);
      if (run) good = run_section(bench, section.name, section.run) && good;
      if (json != nullptr && !bench.table.write(json)) std::fprintf(stderr, "cannot write %s\n", json);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thalweg-gpu-floor: %s\n", error.what());
    return 77;
  }
  std::fflush(stdout);
  _exit(good ? 0 : 1);  // nothing of the driver's is torn down
}
