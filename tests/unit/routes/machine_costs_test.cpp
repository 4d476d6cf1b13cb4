// SPDX-License-Identifier: Apache-2.0
// Costs that measure themselves: what is kept, shared, refused, and given up.
#include "routes/machine_costs.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/clock.hpp"
#include "routes/cost_text.hpp"
#include "routes/measure.hpp"

namespace thalweg::impl::test {
namespace {

using namespace std::filesystem;

/// A cache of its own, thrown away.
class MachineCosts : public ::testing::Test {
 protected:
  void SetUp() override {
    TwoCores cores;
    if (!two_cores(&cores)) GTEST_SKIP() << "one processor: nothing is measured";
    char name[] = "/tmp/thalweg-costs-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    const char* const before = getenv("THALWEG_COSTS");
    before_ = before != nullptr ? before : "";
    unsetenv("THALWEG_COSTS");
    setenv("XDG_CACHE_HOME", name, 1);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    before_.empty() ? unsetenv("THALWEG_COSTS") : setenv("THALWEG_COSTS", before_.c_str(), 1);
    if (!folder_.empty()) remove_all(folder_);
  }
  path folder_;
  std::string before_;
};

/// Busy machines measure nothing; then the reason is said.
bool too_busy(const CostTable& table) { return table.source == "defaults" && table.why.find("busy") != std::string::npos; }

TEST_F(MachineCosts, AreMeasuredOnceAndKept) {
  const CostTable first = machine_costs();
  if (too_busy(first)) GTEST_SKIP() << first.why;
  ASSERT_EQ(first.source, first.file) << first.why;
  EXPECT_TRUE(first.measured());
  struct stat status;
  ASSERT_EQ(stat(first.file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077, 0u);
  const CostTable second = machine_costs();
  EXPECT_EQ(second.source, first.file);
  EXPECT_NEAR(second.shm.copy, first.shm.copy, 0.001 * first.shm.copy);
  for (const double cost : {second.shm.copy, second.shm.copy_large, second.shm.mapped, second.shm.mapped_large}) {
    EXPECT_GT(cost, 0);
    EXPECT_LT(cost, 10);
  }
  EXPECT_EQ(second.tcp.frame, CostTable().tcp.frame);  // of that nothing was measured
}

TEST_F(MachineCosts, OfAnotherVersionAreMeasuredAgainAndDamagedOnesAreLeft) {
  const CostTable first = machine_costs();
  if (too_busy(first)) GTEST_SKIP() << first.why;
  std::ifstream in(first.file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t at = text.find("library = ") + 10;
  std::ofstream(first.file) << text.replace(at, 1, "9");
  const CostTable again = machine_costs();
  EXPECT_TRUE(again.measured() || too_busy(again)) << again.why;
  std::ofstream(first.file) << "rubbish\n";
  EXPECT_EQ(machine_costs().source, "defaults");
  std::ifstream damaged(first.file);
  std::getline(damaged, text);
  EXPECT_EQ(text, "rubbish");
}

TEST_F(MachineCosts, AreOffWhereTheyAreSwitchedOff) {
  setenv("THALWEG_COSTS", "off", 1);
  EXPECT_EQ(machine_costs().source, "defaults");
  EXPECT_TRUE(is_empty(folder_));
}

TEST_F(MachineCosts, OfAReadOnlyHomeAreThisProcesssAlone) {
  setenv("XDG_CACHE_HOME", "/proc/no-such-folder", 1);
  const uint64_t begin = monotonic_ns();
  const CostTable first = machine_costs();
  if (too_busy(first)) GTEST_SKIP() << first.why;
  const uint64_t took = monotonic_ns() - begin;
  EXPECT_EQ(first.source, "measured");
  EXPECT_NE(first.why.find("not kept"), std::string::npos) << first.why;
  const uint64_t again = monotonic_ns();
  EXPECT_EQ(machine_costs().shm.copy, first.shm.copy);  // not measured again
  EXPECT_LT(monotonic_ns() - again, took);
}

TEST_F(MachineCosts, OfProcessesThatStartAtOnceAreMeasuredByOne) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const CostTable table = machine_costs();
      _exit(table.source == table.file ? 0 : too_busy(table) ? 2 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 1);
  }
  unsigned files = 0;
  for (const auto& entry : directory_iterator(folder_ / "thalweg")) files += entry.path().extension() != ".lock" ? 1 : 0;
  EXPECT_LE(files, 1u);
}

TEST_F(MachineCosts, WaitForAnotherProcessForALimitedTime) {
  const CostTable asked = load_costs();
  ASSERT_EQ(make_place(asked.file), TW_OK);
  const int lock = open((asked.file + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const CostTable table = machine_costs();
  EXPECT_TRUE(table.measured() || too_busy(table)) << table.why;
  close(lock);
}

TEST_F(MachineCosts, MeasuringEndsInTime) {
  TwoCores cores;
  ASSERT_TRUE(two_cores(&cores));
  EXPECT_NE(cores.first, cores.second);
  LinkCosts costs = CostTable().shm;
  EXPECT_EQ(measure_shm(cores, 1, &costs), TW_ERR_TIMED_OUT);
  EXPECT_EQ(costs.copy, CostTable().shm.copy);
}

TEST(OneCore, MeasuresNothing) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  const int here = sched_getcpu();
  CPU_SET(static_cast<size_t>(here), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  TwoCores cores;
  EXPECT_FALSE(two_cores(&cores));
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace thalweg::impl::test
