// SPDX-License-Identifier: Apache-2.0
// thalweg-himeno against a plain one-process version of the published algorithm (a copy back after each sweep), and every
// decomposition and trigger against each other: the same bits of p, gosa the same in all but the last bits of a double.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "program.hpp"

namespace thalweg::test {
namespace {

struct Solution {
  double gosa = 0;
  std::string field;
};

/// XS as published: p starts as (i / (n - 1))^2; a = 1, 1, 1, 1/6; c = 1; bnd = 1; wrk1 = 0; b = cross.
class Reference {
 public:
  explicit Reference(float cross) : cross_(cross), p_(size_t{kI} * kJ * kK), next_(p_.size()) {
    for (int i = 0; i < kI; ++i)
      for (int j = 0; j < kJ; ++j)
        for (int k = 0; k < kK; ++k) at(p_, i, j, k) = float(i) * float(i) / (float(kI - 1) * float(kI - 1));
    next_ = p_;
  }
  Solution after(int iterations) {
    double gosa = 0;
    for (int n = 0; n < iterations; ++n) {
      gosa = 0;
      for (int i = 1; i < kI - 1; ++i)
        for (int j = 1; j < kJ - 1; ++j)
          for (int k = 1; k < kK - 1; ++k) {
            const float ss = violation(i, j, k);
            gosa += double(ss * ss);
            at(next_, i, j, k) = at(p_, i, j, k) + 0.8f * ss;
          }
      p_ = next_;
    }
    return {gosa, fingerprint()};
  }

 private:
  static constexpr int kI = 32, kJ = 32, kK = 64;
  static float& at(std::vector<float>& f, int i, int j, int k) { return f[(size_t(i) * kJ + size_t(j)) * kK + size_t(k)]; }
  float violation(int i, int j, int k) {
    const auto p = [&](int di, int dj, int dk) { return at(p_, i + di, j + dj, k + dk); };
    const float s = 1.0f * p(1, 0, 0) + 1.0f * p(0, 1, 0) + 1.0f * p(0, 0, 1) +
                    cross_ * (p(1, 1, 0) - p(1, -1, 0) - p(-1, 1, 0) + p(-1, -1, 0)) +
                    cross_ * (p(0, 1, 1) - p(0, 1, -1) - p(0, -1, 1) + p(0, -1, -1)) +
                    cross_ * (p(1, 0, 1) - p(1, 0, -1) - p(-1, 0, 1) + p(-1, 0, -1)) + 1.0f * p(-1, 0, 0) + 1.0f * p(0, -1, 0) +
                    1.0f * p(0, 0, -1) + 0.0f;
    return (s * (1.0f / 6.0f) - p(0, 0, 0)) * 1.0f;
  }
  std::string fingerprint() {
    uint64_t sum = 0, number = 0;
    for (int i = 0; i < kI; ++i)
      for (int j = 0; j < kJ; ++j)
        for (int k = 0; k < kK; ++k, ++number) {
          const bool border = i == 0 || j == 0 || k == 0 || i == kI - 1 || j == kJ - 1 || k == kK - 1;
          uint32_t bits = 0;
          std::memcpy(&bits, &at(p_, i, j, k), sizeof bits);
          if (!border) sum += bits * (2 * number + 1);
        }
    char text[20];
    std::snprintf(text, sizeof text, "%016" PRIx64, sum);
    return text;
  }
  const float cross_;
  std::vector<float> p_, next_;
};

void expect_solution(const Outcome& run, const Solution& wanted, size_t count = 1) {
  ASSERT_EQ(run.code, 0) << run.output;
  ASSERT_EQ(run.objects().size(), count) << run.output;
  for (const std::string& object : run.objects()) {
    EXPECT_EQ(value_of(object, "field"), wanted.field) << object;
    EXPECT_NEAR(std::stod(value_of(object, "gosa")), wanted.gosa, 1e-12 * wanted.gosa) << object;
  }
}

constexpr size_t kTriggers = 4;
constexpr const char* kCross = " --size XS --json --cross 0.02 ";  // edges count

TEST(Himeno, OneProcessComputesWhatThePublishedAlgorithmDoes) {
  expect_solution(run_program(PROGRAM, "--size XS --json --iterations 8"), Reference(0).after(8));
  expect_solution(run_program(PROGRAM, std::string(kCross) + "--iterations 5 --trigger all"), Reference(0.02f).after(5),
                  kTriggers);
}

class Decompositions : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cut, Decompositions, ::testing::Values("2x1x1", "1x2x1", "1x1x2", "1x2x2", "3x1x1", "2x2x2"));

TEST_P(Decompositions, EveryBitIsTheOneOfASingleProcess) {
  const std::string cut = GetParam();
  const int processes = (cut[0] - '0') * (cut[2] - '0') * (cut[4] - '0');
  const std::string arguments =
      kCross + ("--iterations 9 --trigger all --processes " + std::to_string(processes)) + " --decompose " + cut;
  expect_solution(run_program(PROGRAM, arguments), Reference(0.02f).after(9), kTriggers);
}

TEST(Himeno, MemoryOfADeviceThatTheHostMayTouch) {
  const Outcome run = run_program(PROGRAM, std::string(kCross) + "--iterations 4 --processes 2 --memory emulated-managed",
                                  "THALWEG_EMULATED=devices=2");
  expect_solution(run, Reference(0.02f).after(4));
}

TEST(Himeno, MistakesAreNamed) {
  const Outcome size = run_program(PROGRAM, "--size XXS"), cut = run_program(PROGRAM, "--processes 2 --decompose 2x2x1");
  EXPECT_EQ(size.code, 2);
  EXPECT_NE(size.output.find("--size XXS: not one of XS S M L XL"), std::string::npos) << size.output;
  EXPECT_NE(cut.code, 0);
  EXPECT_NE(cut.output.find("--decompose 2x2x1: wants IxJxK blocks"), std::string::npos) << cut.output;
}

TEST(HimenoJob, LeavesNoFolderWhereASignalEndsIt) {
  std::string folder = std::filesystem::temp_directory_path() / "thalweg-job-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const Outcome run = run_program(PROGRAM, "--processes 2 --size S --seconds 50", "TMPDIR=" + folder + " timeout 1");
  EXPECT_EQ(run.code, 124) << run.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace thalweg::test
