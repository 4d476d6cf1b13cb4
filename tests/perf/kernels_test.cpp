// SPDX-License-Identifier: Apache-2.0
// Every test of thalweg-perf that runs kernels, between devices of the fake driver and beside host memory: what the host does around
// the kernels, and what they are told. thalweg-perf verifies each payload.
#include <gtest/gtest.h>

#include "program.hpp"

namespace thalweg::test {
namespace {

Outcome perf(const std::string& arguments, const std::string& environment = "") {
  return run_program(PROGRAM, arguments + " --transport shm --seconds 0.01 --json",
                     "THALWEG_COSTS=off LD_LIBRARY_PATH=" DRIVER " " + environment);
}

struct Case {
  const char *test, *mine, *theirs, *sizes;
  size_t rows;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.test << ' ' << c.mine << ' ' << c.theirs << ' ' << c.sizes; }

class Kernels : public testing::TestWithParam<Case> {};

TEST_P(Kernels, AreVerified) {
  if (!HAS_KERNELS) GTEST_SKIP() << "there is no nvcc here: thalweg-perf has no kernels";
  const Case& c = GetParam();
  const Outcome run = perf(std::string(c.test) + " --trigger kernel --window 5 --memory " + c.mine + " --peer-memory " +
                           c.theirs + " --size " + c.sizes);
  ASSERT_EQ(run.code, 0) << run.output;
  ASSERT_EQ(run.objects().size(), c.rows) << run.output;
  for (const std::string& row : run.objects()) {
    EXPECT_EQ(value_of(row, "verified"), "true") << row;
    EXPECT_EQ(value_of(row, "trigger"), "kernel") << row;
    EXPECT_NE(value_of(row, "route").find("mapped"), std::string::npos) << row;
  }
}

const Case kCases[] = {
    {"signal_lat", "cuda:0", "cuda:1", "8", 1},
    {"put_lat", "cuda:0", "cuda:1", "8,4096,5001,70001", 4},
    {"put_lat", "vmm:0", "vmm:1", "1000", 1},
    {"put_bw", "cuda:0", "cuda:1", "8,5001,65536", 3},
    {"tag_lat", "cuda:0", "cuda:1", "8,5001,70001", 3},
    {"strided_put", "cuda:0", "cuda:1", "20000", 1},
    {"daxpy", "cuda:0", "cuda:1", "8,80008", 2},
    {"signal_lat", "cuda:0", "host", "8", 1},
    {"signal_lat", "host", "cuda:1", "8", 1},
    {"put_lat", "cuda:0", "host", "8,5001", 2},
    {"put_lat", "host", "cuda:1", "8,5001", 2},
    {"put_lat", "cuda:0", "pinned", "70001", 1},
    {"put_bw", "cuda:0", "host", "5001", 1},
    {"strided_put", "host", "cuda:1", "20000", 1},
    {"daxpy", "cuda:0", "host", "80008", 1},
    {"daxpy", "host", "cuda:1", "80008", 1},
    {"put_lat", "cuda:0", "cuda:0", "64", 1},
    {"daxpy", "cuda:0", "cuda:0", "80008", 1},
};
INSTANTIATE_TEST_SUITE_P(Perf, Kernels, testing::ValuesIn(kCases));

TEST(Kernels, ADaxpyOnDevicesNeedsNoTrigger) {
  if (!HAS_KERNELS) GTEST_SKIP() << "there is no nvcc here: thalweg-perf has no kernels";
  const Outcome run = perf("daxpy --size 80000 --memory cuda:0 --peer-memory cuda:1");
  ASSERT_EQ(run.objects().size(), 1u) << run.output;
  for (const char* figure : {"get_GB/s", "of_get_percent", "copy_kernel_GB/s", "of_copy_kernel_percent"})
    EXPECT_GT(std::atof(value_of(run.objects()[0], figure).c_str()), 0) << figure << run.output;
}

TEST(Kernels, SmallPutsAreAlsoPacked) {
  if (!HAS_KERNELS) GTEST_SKIP() << "there is no nvcc here: thalweg-perf has no kernels";
  const Outcome run = perf("put_lat --trigger kernel --size 8,4096 --memory cuda:0 --peer-memory cuda:1");
  ASSERT_EQ(run.objects().size(), 2u) << run.output;
  for (const std::string& row : run.objects()) EXPECT_GT(std::atof(value_of(row, "packed_us").c_str()), 0) << row;
}

TEST(Kernels, ABuildWithoutThemSaysWhatToDo) {
  if (HAS_KERNELS) GTEST_SKIP() << "this build has kernels";
  const Outcome run = perf("put_lat --trigger kernel --size 8 --memory cuda:0 --peer-memory cuda:1");
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.output.find("build where CMake finds nvcc"), std::string::npos) << run.output;
}

TEST(Kernels, WhatTheyDoNotReachIsRefusedWithTheReason) {
  if (!HAS_KERNELS) GTEST_SKIP() << "there is no nvcc here: thalweg-perf has no kernels";
  const Outcome apart = perf("put_lat --trigger kernel --size 8 --memory cuda:0 --peer-memory cuda:2");
  EXPECT_EQ(apart.code, 3) << apart.output;
  EXPECT_NE(apart.output.find("cannot be reached from cuda:"), std::string::npos) << apart.output;
}

}  // namespace
}  // namespace thalweg::test
