// SPDX-License-Identifier: Apache-2.0
// Runs many programs in a child process, so that a crash or a program that never ends is a finding like any other, and makes what
// it finds small.
#pragma once
#include <functional>
#include <string>

#include "model/coverage.hpp"
#include "model/program.hpp"

namespace thalweg::model {

struct Finding {
  uint64_t seed = 0;
  std::string what;  // empty: nothing was found
};

struct Runs {
  uint64_t first = 1;     // seed
  bool together = false;  // only programs of collectives, from the first behind `first`
  bool ranks = false;     // programs of ranks (ranks.hpp)
  bool queued = false;    // of those: also on queues
  uint64_t programs = 0;  // at most; 0: no limit
  double seconds = 0;     // about; 0: no limit
  unsigned workers = 0;   // 0: 2 to 4
  unsigned threads = 0;   // that work beside each program
  std::function<void(uint64_t programs, double seconds)> progress;  // now and then
};

struct Outcome {
  uint64_t programs = 0, operations = 0;
  double seconds = 0;
  Finding finding;  // the first
  Coverage coverage;
};

Outcome run_many(const Runs& runs);
/// Of one program, in a child. "" or what went wrong.
std::string run_guarded(const Program& program);
/// A smaller program that goes wrong, too.
Program shrink(const Program& program);

}  // namespace thalweg::model
