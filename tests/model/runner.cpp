// SPDX-License-Identifier: Apache-2.0
#include "model/runner.hpp"

#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/clock.hpp"
#include "model/ranks.hpp"
#include "model/world.hpp"

namespace thalweg::model {
namespace {

constexpr unsigned kPatience = 20;  // seconds of a processor, of one program

/// What parent and child share.
struct Shared {
  uint64_t seed;  // that runs now
  uint64_t programs, operations;
  bool done;
  char what[1000];
  Coverage coverage;
};

Shared* share() {
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return new (at) Shared{};
}

void tell(Shared& shared, const std::string& what) { std::strncpy(shared.what, what.c_str(), sizeof shared.what - 1); }

std::string how_it_died(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGPROF || signal == SIGALRM) return "it did not come to an end in time";
    return std::string("it died: ") + strsignal(signal);
  }
#if defined(__SANITIZE_THREAD__)
  if (WEXITSTATUS(status) == 66) return "the thread sanitizer has found something";
#endif
  return "it left with status " + std::to_string(WEXITSTATUS(status));
}

template <class Body>
void in_child(Shared& shared, const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    shared.done = true;
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) != child) {
  }
  if (!shared.done && shared.what[0] == 0) tell(shared, how_it_died(status));
}

/// With the next program. One that works on and on is told from one that others keep from the processor.
void begin_patience() {
  const itimerval limit{{}, {kPatience, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
  alarm(10 * kPatience);
}

double now() { return static_cast<double>(monotonic_ns()) / 1e9; }

}  // namespace

Outcome run_many(const Runs& runs) {
  Shared& shared = *share();
  const double start = now();
  in_child(shared, [&] {
    double told = start;
    for (uint64_t n = 0; runs.programs == 0 || n < runs.programs; ++n) {
      if (n % 16 == 0) {
        const double at = now();
        if (runs.seconds > 0 && at - start > runs.seconds) break;
        if (runs.progress && at - told > 10) {
          runs.progress(n, at - start);
          told = at;
        }
      }
      begin_patience();
      shared.seed = n == 0 ? runs.first : shared.seed + 1;
      while (runs.together && !is_together(shared.seed)) ++shared.seed;
      Program program =
          runs.ranks ? generate_ranks(shared.seed, runs.workers, runs.queued) : generate(shared.seed, runs.workers);
      program.threads = static_cast<uint8_t>(runs.threads);
      const std::string what = run(program, &shared.coverage);
      ++shared.programs;
      shared.operations += program.ops.size();
      if (!what.empty()) return tell(shared, what);
    }
  });
  Outcome outcome;
  outcome.programs = shared.programs;
  outcome.operations = shared.operations;
  outcome.seconds = now() - start;
  outcome.finding = {shared.seed, shared.what};
  outcome.coverage = shared.coverage;
  munmap(&shared, sizeof shared);
  return outcome;
}

std::string run_guarded(const Program& program) {
  Shared& shared = *share();
  in_child(shared, [&] {
    begin_patience();
    tell(shared, run(program));
  });
  const std::string what = shared.what;
  munmap(&shared, sizeof shared);
  return what;
}

namespace {

bool goes_wrong(const Program& program) { return !run_guarded(program).empty(); }

/// Takes operations away, larger parts first.
bool fewer(Program& program) {
  bool any = false;
  for (size_t part = (program.ops.size() + 1) / 2; part != 0; part /= 2) {
    for (size_t at = 0; at < program.ops.size();) {
      Program smaller = program;
      const size_t end = std::min(at + part, smaller.ops.size());
      smaller.ops.erase(smaller.ops.begin() + static_cast<std::ptrdiff_t>(at),
                        smaller.ops.begin() + static_cast<std::ptrdiff_t>(end));
      if (goes_wrong(smaller)) {
        program = std::move(smaller);
        any = true;
      } else {
        at += part;
      }
    }
  }
  return any;
}

template <class Change>
bool try_change(Program& program, const Change& change) {
  Program changed = program;
  change(changed);
  if (!goes_wrong(changed)) return false;
  program = std::move(changed);
  return true;
}

void simpler(Program& program) {
  if (program.late != 0) try_change(program, [](Program& p) { p.late = 0; });
  if (program.refuse != 0) try_change(program, [](Program& p) { p.refuse = 0; });
  try_change(program, [](Program& p) { p.budget = 64u << 20; });
  for (uint32_t counter = 1; counter != kCountersEnd; counter <<= 1) {
    if ((program.counters & counter) != 0) try_change(program, [counter](Program& p) { p.counters &= ~counter; });
  }
  unsigned used = 2;
  for (const Op& op : program.ops) {
    used = std::max<unsigned>(used, op.worker + 1u);
    if (op.peer != kAnyone) used = std::max<unsigned>(used, op.peer + 1u);
  }
  if (used < program.workers) try_change(program, [used](Program& p) { p.workers = static_cast<uint8_t>(used); });
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (uint32_t flag = 1; flag != kFlagsEnd; flag <<= 1) {
      if ((program.ops[i].flags & flag) != 0) try_change(program, [i, flag](Program& p) { p.ops[i].flags &= ~flag; });
    }
    for (const uint32_t size : {0u, 8u, 100u}) {
      if (program.ops[i].size > size && try_change(program, [i, size](Program& p) { p.ops[i].size = size; })) break;
    }
    if (program.ops[i].offset != 0) try_change(program, [i](Program& p) { p.ops[i].offset = 0; });
    if (program.ops[i].tag != 0) try_change(program, [i](Program& p) { p.ops[i].tag = 0; });
  }
}

}  // namespace

Program shrink(const Program& program) {
  Program small = program;
  for (int round = 0; round < 4 && fewer(small); ++round) {
  }
  simpler(small);
  fewer(small);
  return small;
}

}  // namespace thalweg::model
