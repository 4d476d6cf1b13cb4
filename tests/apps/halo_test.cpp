// SPDX-License-Identifier: Apache-2.0
// thalweg-halo verifies every cell itself; here: it does so for all regions, elements, memories and ways, in a pair and in a ring.
#include <gtest/gtest.h>

#include "program.hpp"

namespace thalweg::test {
namespace {

constexpr size_t kWays = 5;

void expect_lines(const Outcome& run, size_t count) {
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(run.objects().size(), count) << run.output;
}

TEST(Halo, AllRegionsElementsAndWaysBetweenTwoProcesses) {
  // 13: rows at odd alignments; 2: every cell goes to several neighbours.
  const Outcome run = run_program(PROGRAM, "--n 13 --seconds 0.001 --rounds 1 --json");
  expect_lines(run, 2 * 4 * kWays);
  const std::string face = run.objects().back();
  EXPECT_EQ(value_of(face, "region"), "26");
  EXPECT_EQ(value_of(face, "bytes"), std::to_string((6 * 13 * 13 + 12 * 13 + 8) * 8));
}

TEST(Halo, ARingOfThree) {
  expect_lines(run_program(PROGRAM, "--n 2 --element 4 --region ij,26 --processes 3 --seconds 0.001 --rounds 1 --json"),
               2 * kWays);
}

TEST(Halo, AProcessAloneIsItsOwnNeighbour) {
  expect_lines(run_program(PROGRAM, "--n 5 --processes 1 --seconds 0.001 --rounds 1 --json"), 2 * 4 * kWays);
}

TEST(Halo, DeviceMemory) {
  const std::string arguments = "--n 7 --element 8 --seconds 0.001 --rounds 1 --json --way host,queue,graph --memory ";
  expect_lines(run_program(PROGRAM, arguments + "emulated", "THALWEG_EMULATED=devices=2"), 4 * 3);
  expect_lines(run_program(PROGRAM, "--region ik " + arguments + "emulated-vmm", "THALWEG_EMULATED=devices=2"), 3);
}

TEST(Halo, MistakesAreNamed) {
  const Outcome edge = run_program(PROGRAM, "--n 1");
  EXPECT_EQ(edge.code, 2);
  const Outcome loops = run_program(PROGRAM, "--n 4 --way pack --memory emulated", "THALWEG_EMULATED=devices=2");
  EXPECT_NE(loops.code, 0);
  EXPECT_NE(loops.output.find("pack: no loop of the host's reaches emulated:"), std::string::npos) << loops.output;
}

}  // namespace
}  // namespace thalweg::test
