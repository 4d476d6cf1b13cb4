// SPDX-License-Identifier: Apache-2.0
// thalweg-gpu-programs [--quick] [--json=FILE] [section...]: programs between two GPUs beside kernels written for one purpose.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "prepared.hpp"

using namespace thalweg::floors;

namespace {

constexpr struct {
  const char* name;
  void (*run)(Bench&);
} kSections[] = {{"calls", calls}, {"hops", hops}, {"channels", channels}, {"faces", faces}, {"chains", chains}};

bool run_section(Bench& bench, const char* name, void (*run)(Bench&)) {
  alarm(kSectionSeconds);  // ends the program; what earlier sections measured is written by then
  bool good = true;
  try {
    run(bench);
  } catch (const std::exception& error) {
    bench.table.note(std::string("FAILED ") + name + ": " + error.what());
    good = false;
  }
  alarm(0);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  bool quick = false, good = true;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--json=", 7) == 0) {
      json = argv[i] + 7;
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  try {
    Bench bench;
    bench.quick = quick;
    for (const auto& section : kSections) {
      bool run = wanted.empty();
      for (const std::string& name : wanted) run = run || name == section.name;
      if (run) good = run_section(bench, section.name, section.run) && good;
      if (json != nullptr && !bench.table.write(json)) std::fprintf(stderr, "cannot write %s\n", json);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thalweg-gpu-programs: %s\n", error.what());
    return 77;
  }
  std::fflush(stdout);
  _exit(good ? 0 : 1);  // nothing of the driver's is torn down
}
