// SPDX-License-Identifier: Apache-2.0
// Random programs against the reference. The long form:
//   model --programs 1000000 --seed 1 [--workers 2] [--seconds 600] [--table] [--json FILE]
//   model --programs 100000 --all     goes on behind what it finds, and tells each kind of it once
//   model --programs 20000 --together       those of collectives alone, of 2 to 9 workers
//   model --programs 1000 --ranks           of ranks over the library's transports (ranks.hpp)
//   model --programs 100000 --threads 3     with other threads beside each program; what happens is another thing each time
//   model --show 17          the program of a seed, and how it goes
//   model --shrink 17        the same, as small as it gets, as a test
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "model/ranks.hpp"
#include "model/runner.hpp"
#include "model/world.hpp"

#if defined(__SANITIZE_THREAD__)
/// A race ends the program that has it, so that it is known which one.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1"; }
#endif

namespace thalweg::model {
namespace {

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// As many as the rarest cell needs, and no more: a test is to do the same on every machine.
constexpr uint64_t kEnough = 30'000;
constexpr uint64_t kMany = 300'000;
constexpr uint64_t kEnoughTogether = 20'000;

/// As many as there are, or as fit into a quarter of the time; says how many.
Outcome run_some(Runs runs) {
  runs.programs = number_of("THALWEG_MODEL_PROGRAMS", kEnough);
  runs.seconds = static_cast<double>(number_of("THALWEG_MODEL_SECONDS", 60)) / 6;
  const Outcome outcome = run_many(runs);
  ::testing::Test::RecordProperty("programs", std::to_string(outcome.programs));
  std::printf("%llu programs, %llu operations\n", static_cast<unsigned long long>(outcome.programs),
              static_cast<unsigned long long>(outcome.operations));
  return outcome;
}

/// As small as it gets.
void report(const Outcome& outcome, unsigned workers) {
  if (outcome.finding.what.empty()) return;
  const Program small = shrink(generate(outcome.finding.seed, workers));
  ADD_FAILURE() << "seed " << outcome.finding.seed << ": " << outcome.finding.what << "\n"
                << run_guarded(small) << "\n"
                << text_of(small) << test_of(small, "Seed" + std::to_string(outcome.finding.seed));
}

class Programs : public ::testing::TestWithParam<unsigned> {};

TEST_P(Programs, DoWhatTheReferenceSays) {
  Runs runs;
  runs.workers = GetParam();
  runs.first = number_of("THALWEG_MODEL_SEED", 1) + uint64_t{GetParam()} * 1'000'000'000;
  const Outcome outcome = run_some(runs);
  EXPECT_TRUE(outcome.programs < kEnough || outcome.coverage.holes(false).empty()) << outcome.coverage.holes(false);
  report(outcome, runs.workers);
}

INSTANTIATE_TEST_SUITE_P(Of, Programs, ::testing::Values(2u, 3u, 4u),
                         [](const auto& of) { return std::to_string(of.param) + "_workers"; });

/// Of 2 to 9 workers.
TEST(Together, DoesWhatTheReferenceSays) {
  Runs runs;
  runs.together = true;
  runs.first = number_of("THALWEG_MODEL_SEED", 1) + 5'000'000'000;
  const Outcome outcome = run_some(runs);
  EXPECT_TRUE(outcome.programs < kEnoughTogether || outcome.coverage.holes_together().empty())
      << outcome.coverage.holes_together();
  report(outcome, 0);
}

/// Ranks with a thread each, over shm and tcp: timing differs from run to run, so there is nothing to shrink.
TEST(Ranks, DoWhatTheReferenceSays) {
  Runs runs;
  runs.ranks = true;
  runs.first = number_of("THALWEG_MODEL_SEED", 1);
  const Outcome outcome = run_some(runs);
  EXPECT_EQ(outcome.finding.what, "") << "seed " << outcome.finding.seed << "\n"
                                      << text_of(generate_ranks(outcome.finding.seed));
}

/// How many, of 2 to 4 workers, and how many threads: they are not the same programs twice, so there is nothing to shrink.
TEST(Threads, WorkBesideThePrograms) {
  Runs runs;
  runs.threads = 3;
  runs.first = number_of("THALWEG_MODEL_SEED", 1);
  const Outcome outcome = run_some(runs);
  EXPECT_EQ(outcome.finding.what, "") << "seed " << outcome.finding.seed << "\n" << text_of(generate(outcome.finding.seed));
}

struct Arguments {
  Runs runs;
  uint64_t show = 0, small = 0;
  bool given = false, table = false, all = false;
  std::string json;
};

Arguments read(int count, char** values) {
  Arguments out;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    const auto value = [&] { return i + 1 < count ? std::strtoull(values[++i], nullptr, 10) : 0; };
    if (name == "--programs") {
      out.runs.programs = value();
    } else if (name == "--seconds") {
      out.runs.seconds = static_cast<double>(value());
    } else if (name == "--seed") {
      out.runs.first = value();
      continue;
    } else if (name == "--workers") {
      out.runs.workers = static_cast<unsigned>(value());
      continue;
    } else if (name == "--threads") {
      out.runs.threads = static_cast<unsigned>(value());
      continue;
    } else if (name == "--show") {
      out.show = value();
    } else if (name == "--shrink") {
      out.small = value();
    } else if (name == "--together") {
      out.runs.together = true;
      continue;
    } else if (name == "--ranks" || name == "--queued") {
      out.runs.ranks = true;
      out.runs.queued |= name == "--queued";
      continue;
    } else if (name == "--all") {
      out.all = true;
      continue;
    } else if (name == "--table") {
      out.table = true;
      continue;
    } else if (name == "--json" && i + 1 < count) {
      out.json = values[++i];
      continue;
    } else {
      continue;
    }
    out.given = true;
  }
  return out;
}

int show(const Program& program, bool as_test) {
  const std::string what = run_guarded(program);
  std::printf("%s", text_of(program).c_str());
  std::printf("%s\n", what.empty() ? "as it should" : what.c_str());
  if (as_test && !what.empty()) std::printf("%s", test_of(program, "Seed" + std::to_string(program.seed)).c_str());
  return what.empty() ? 0 : 1;
}

/// Without its numbers.
std::string kind_of(const std::string& what) {
  std::string out;
  for (const char c : what) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || out.empty() || out.back() != '#') out += digit ? '#' : c;
  }
  return out;
}

int all_kinds(Arguments& arguments) {
  struct Kind {
    uint64_t count, seed;
    std::string what;
  };
  std::map<std::string, Kind> kinds;
  const uint64_t end = arguments.runs.first + arguments.runs.programs;
  uint64_t programs = 0;
  while (arguments.runs.first < end) {
    arguments.runs.programs = end - arguments.runs.first;
    const Outcome outcome = run_many(arguments.runs);
    programs += outcome.programs;
    if (outcome.finding.what.empty()) break;
    Kind& kind =
        kinds.try_emplace(kind_of(outcome.finding.what), Kind{0, outcome.finding.seed, outcome.finding.what}).first->second;
    ++kind.count;
    arguments.runs.first = outcome.finding.seed + 1;
  }
  std::printf("%llu programs\n", static_cast<unsigned long long>(programs));
  for (const auto& [name, kind] : kinds) {
    std::printf("%6llu times, first seed %llu: %s\n", static_cast<unsigned long long>(kind.count),
                static_cast<unsigned long long>(kind.seed), kind.what.c_str());
  }
  return kinds.empty() ? 0 : 1;
}

/// For a string of JSON: texts of errors quote names.
std::string unquoted(std::string what) {
  std::replace(what.begin(), what.end(), '"', '\'');
  std::replace(what.begin(), what.end(), '\n', ' ');
  return what;
}

int many(Arguments& arguments) {
  if (arguments.all) return all_kinds(arguments);
  arguments.runs.progress = [](uint64_t programs, double seconds) {
    std::printf("%llu programs, %.0f s\n", static_cast<unsigned long long>(programs), seconds);
    std::fflush(stdout);
  };
  const Outcome outcome = run_many(arguments.runs);
  std::printf("%llu programs, %llu operations, %.1f s\n", static_cast<unsigned long long>(outcome.programs),
              static_cast<unsigned long long>(outcome.operations), outcome.seconds);
  const Coverage& coverage = outcome.coverage;
  const std::string holes = arguments.runs.ranks      ? coverage.holes_forms(arguments.runs.queued)
                            : arguments.runs.together ? coverage.holes_together()
                                                      : coverage.holes(outcome.programs >= kMany);
  if (arguments.table)
    std::printf("%s%s", (arguments.runs.ranks ? coverage.table_forms() : coverage.table()).c_str(),
                holes.empty() ? "" : ("never seen:\n" + holes).c_str());
  if (!arguments.json.empty()) {
    std::ofstream(arguments.json) << "{\"first_seed\": " << arguments.runs.first << ", \"programs\": " << outcome.programs
                                  << ", \"operations\": " << outcome.operations << ", \"seconds\": " << outcome.seconds
                                  << ", \"found\": " << (outcome.finding.what.empty() ? "false" : "true")
                                  << ", \"seed\": " << outcome.finding.seed << ", \"what\": \""
                                  << unquoted(outcome.finding.what) << "\"}\n";
  }
  if (outcome.finding.what.empty()) return arguments.table && !holes.empty() ? 2 : 0;
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(outcome.finding.seed), outcome.finding.what.c_str());
  return 1;
}

}  // namespace
}  // namespace thalweg::model

int main(int count, char** values) {
  using namespace thalweg::model;
  Arguments arguments = read(count, values);
  const auto program_of = [&](uint64_t seed) {
    Program program = arguments.runs.ranks ? generate_ranks(seed, arguments.runs.workers, arguments.runs.queued)
                                           : generate(seed, arguments.runs.workers);
    program.threads = static_cast<uint8_t>(arguments.runs.threads);
    return program;
  };
  if (arguments.show != 0) return show(program_of(arguments.show), false);
  if (arguments.small != 0) return show(shrink(program_of(arguments.small)), true);
  if (arguments.given) return many(arguments);
  ::testing::InitGoogleTest(&count, values);
  return RUN_ALL_TESTS();
}
