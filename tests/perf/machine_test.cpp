// SPDX-License-Identifier: Apache-2.0
// The tests of thalweg-perf that measure the machine, with the devices of the fake driver: what the host does around kernels and copies,
// every payload and sum verified by thalweg-perf itself. Devices 0 and 1 reach each other, device 2 none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "program.hpp"

namespace thalweg::test {
namespace {

Outcome perf(const std::string& arguments) {
  return run_program(PROGRAM, arguments + " --seconds 0.005 --json", "THALWEG_COSTS=off LD_LIBRARY_PATH=" DRIVER);
}

using Labels = std::vector<std::pair<std::string, std::string>>;

/// Rows with all of these values.
std::vector<std::string> rows_with(const Outcome& run, const Labels& labels) {
  std::vector<std::string> all;
  for (const std::string& row : run.objects()) {
    if (std::all_of(labels.begin(), labels.end(), [&](const auto& l) { return value_of(row, l.first) == l.second; }))
      all.push_back(row);
  }
  return all;
}

class Machine : public testing::Test {
 protected:
  void SetUp() override {
    if (!HAS_KERNELS) GTEST_SKIP() << "there is no nvcc here: thalweg-perf has no kernels";
  }
  /// It ran, and what it measured is verified.
  static void expect_verified(const Outcome& run) {
    ASSERT_EQ(run.code, 0) << run.output;
    EXPECT_FALSE(run.objects().empty()) << run.output;
    for (const std::string& row : run.objects()) {
      EXPECT_EQ(value_of(row, "verified") == "true", value_of(row, "unavailable").empty()) << row;
    }
  }
};

TEST_F(Machine, CopiesAreAMatrixOfAllWays) {
  const Outcome run = perf("copies --size 8,70001");
  expect_verified(run);
  for (const std::string size : {"8", "70001"}) {
    for (const std::string memory : {"pinned", "ordinary"}) {
      for (const std::string direction : {"one", "both"})
        EXPECT_EQ(rows_with(run, {{"from", "host"},
                                  {"to", "cuda:1"},
                                  {"by", "engine"},
                                  {"memory", memory},
                                  {"direction", direction},
                                  {"bytes", size}})
                      .size(),
                  1u)
            << run.output;
    }
    for (const std::string by : {"engine", "host"}) {
      EXPECT_EQ(
          rows_with(run, {{"from", "cuda:0"}, {"to", "cuda:1"}, {"by", by}, {"direction", "both"}, {"bytes", size}}).size(),
          1u);
      EXPECT_EQ(rows_with(run, {{"from", "cuda:2"}, {"to", "cuda:0"}, {"by", by}, {"p2p", "false"}, {"bytes", size}}).size(),
                1u);
    }
  }
  for (const std::string by : {"kernel_load", "kernel_store"}) {
    EXPECT_EQ(rows_with(run, {{"from", "cuda:1"}, {"to", "cuda:0"}, {"by", by}, {"bytes", "70000"}}).size(),
              1u);  // whole doubles
    const auto none = rows_with(run, {{"from", "cuda:0"}, {"to", "cuda:2"}, {"by", by}});
    ASSERT_EQ(none.size(), 1u);
    EXPECT_NE(value_of(none[0], "unavailable").find("no path"), std::string::npos) << none[0];
  }
}

TEST_F(Machine, StagedCopiesOfManyPieces) {
  const Outcome run = perf("copies --size 5000001");
  expect_verified(run);
  EXPECT_EQ(rows_with(run, {{"from", "cuda:0"}, {"to", "cuda:1"}, {"by", "host"}}).size(), 2u);
}

TEST_F(Machine, FlagsOfHostAndKernels) {
  const Outcome run = perf("flags");
  expect_verified(run);
  for (const std::string by : {"kernel", "launch", "stream_write", "stream_wait"}) {
    const auto rows = rows_with(run, {{"from", "host"}, {"to", "cuda:0"}, {"by", by}});
    ASSERT_EQ(rows.size(), 1u) << run.output;
    EXPECT_GT(std::atof(value_of(rows[0], "ns").c_str()), 0) << rows[0];
  }
  EXPECT_EQ(rows_with(run, {{"from", "cuda:1"}, {"to", "cuda:0"}, {"verified", "true"}}).size(), 1u) << run.output;
  EXPECT_TRUE(rows_with(run, {{"from", "cuda:1"}, {"to", "cuda:2"}, {"verified", "true"}}).empty());
}

TEST_F(Machine, AtomicAddsAreAllCounted) {
  const Outcome run = perf("atomics --memory cuda:1");
  expect_verified(run);
  for (const std::string memory : {"pinned", "managed:1"}) {
    for (const std::string who : {"host", "device", "both"})
      EXPECT_EQ(rows_with(run, {{"memory", memory}, {"who", who}, {"verified", "true"}}).size(), 1u) << run.output;
  }
}

TEST_F(Machine, PagesOfManagedMemory) {
  const Outcome run = perf("pages --size 64K --memory cuda:0");
  expect_verified(run);
  EXPECT_EQ(rows_with(run, {{"processor", "cuda:0"}, {"memory", "managed:0"}, {"by", "touch"}, {"verified", "true"}}).size(),
            1u);
  EXPECT_EQ(rows_with(run, {{"processor", "cpu"}, {"memory", "managed:0"}, {"by", "touch"}, {"verified", "true"}}).size(), 1u);
}

TEST_F(Machine, HostAndDeviceSolveEachProblem) {
  const Outcome run = perf("collaborate --size 50001 --threads 2");
  expect_verified(run);
  for (const std::string pattern : {"histogram_input", "histogram_output", "padding", "compaction", "tasks", "search"}) {
    for (const std::string memory : {"pinned", "managed:0"})
      EXPECT_EQ(rows_with(run, {{"pattern", pattern}, {"form", "U"}, {"memory", memory}, {"verified", "true"}}).size(), 1u)
          << pattern;
    EXPECT_EQ(rows_with(run, {{"pattern", pattern}, {"form", "D"}, {"device", "cuda:0"}, {"verified", "true"}}).size(), 1u)
        << pattern;
  }
}

TEST_F(Machine, ADeviceThatIsNotThereIsTold) {
  for (const char* test : {"copies", "flags", "atomics", "collaborate"}) {
    const Outcome run = perf(std::string(test) + " --memory cuda:7");
    EXPECT_EQ(run.code, 3) << test;
    EXPECT_NE(run.output.find("sees 3 devices"), std::string::npos) << run.output;
  }
}

}  // namespace
}  // namespace thalweg::test
