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
#include "routes/measure_tcp.hpp"

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
  // Tcp is measured last: the first context may have had no undisturbed time for it, and leaves it to the next.
  if (first.tcp_measured) EXPECT_NEAR(second.tcp.frame, first.tcp.frame, 0.001 * first.tcp.frame);
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

/// A machine of four processors of which 0 and 1 are at `distance`, and 2 and 3 threads of one core.
CpuTopology topology_of(const path& folder, CpuDistance distance) {
  const path root = folder / (std::string("system-") + name_of(distance));
  const auto say = [&](const std::string& file, const std::string& text) {
    create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << "\n";
  };
  const bool far = distance == CpuDistance::far, cached = distance == CpuDistance::cache;
  say("cpu/online", "0-3");
  say("node/node0/cpulist", far ? "0" : "0,1");
  say("node/node1/cpulist", far ? "1-3" : "2-3");
  for (unsigned cpu = 0; cpu < 4; ++cpu) {
    const std::string alone = std::to_string(cpu), at = "cpu/cpu" + alone;
    say(at + "/topology/thread_siblings_list", cpu < 2 ? alone : "2-3");
    say(at + "/cache/index0/level", "2");
    say(at + "/cache/index0/shared_cpu_list", cpu < 2 ? (cached ? "0-1" : alone) : "2-3");
  }
  return CpuTopology::read(root);
}

bool says(const path& file, const std::string& what) {
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  return text.find(what) != std::string::npos;
}

/// Restricts this process to processors 0 and 1. False: it has not both.
bool take_two() {
  cpu_set_t two;
  CPU_ZERO(&two);
  CPU_SET(0, &two);
  CPU_SET(1, &two);
  if (sched_setaffinity(0, sizeof two, &two) != 0 || sched_getaffinity(0, sizeof two, &two) != 0) return false;
  return CPU_COUNT(&two) == 2;
}

TEST_F(MachineCosts, OfAnotherDistanceAreMeasuredBesideThoseThatAreThere) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (!take_two()) GTEST_SKIP() << "processors 0 and 1 are not this process's";
  const CpuTopology one = topology_of(folder_, CpuDistance::node), other = topology_of(folder_, CpuDistance::far);
  ASSERT_EQ(one.between(0, 1), CpuDistance::node);
  ASSERT_EQ(other.between(0, 1), CpuDistance::far);
  // What could not be measured is not tried again by one process: a child for each attempt.
  const auto attempt = [](const CpuTopology& topology) {
    for (unsigned attempts = 0; attempts < 40; ++attempts) {
      const pid_t pid = fork();
      if (pid == 0) {
        const CostTable table = machine_costs(&topology);
        const CpuDistance distance = topology.between(0, 1);
        _exit(table.shm_at(distance).frame == (table.*costs_at(distance)).frame && table.source == table.file ? 0 : 1);
      }
      int status = 0;
      if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    }
    return false;
  };
  const path file = load_costs().file;
  if (!attempt(one)) GTEST_SKIP() << "the processors are too busy";
  EXPECT_TRUE(says(file, "shm.node.copy = "));
  EXPECT_FALSE(says(file, "shm.far."));
  const CostTable first = load_costs();
  EXPECT_EQ(first.shm.copy, first.shm_node.copy);  // of all pairs of this process's
  if (!attempt(other)) GTEST_SKIP() << "the processors are too busy";
  const CostTable second = load_costs();
  EXPECT_TRUE(says(file, "shm.far.copy = "));
  EXPECT_EQ(second.shm_node.copy, first.shm_node.copy);
  EXPECT_EQ(second.shm.copy, first.shm.copy);
  EXPECT_NE(second.shm_far.frame, 0);
  EXPECT_EQ(&second.shm_at(CpuDistance::core), &second.shm);
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST_F(MachineCosts, OfThalwegTuneAreThoseOfItsProcessors) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (!take_two()) GTEST_SKIP() << "processors 0 and 1 are not this process's";
  std::string file;
  ASSERT_EQ(save_costs("shm.frame = 77\ntcp.frame = 4321\n", &file), TW_OK) << last_error();
  const CpuTopology far = topology_of(folder_, CpuDistance::far);
  const CostTable table = machine_costs(&far);
  EXPECT_EQ(table.shm_at(CpuDistance::far).frame, 77);
  EXPECT_EQ(table.source, file);
  EXPECT_FALSE(says(file, "shm.far."));  // nothing was measured
  EXPECT_TRUE(says(file, "tcp.frame = 4321"));
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST_F(MachineCosts, MeasuringEndsInTime) {
  TwoCores cores;
  ASSERT_TRUE(two_cores(&cores));
  EXPECT_NE(cores.first, cores.second);
  LinkCosts costs = CostTable().shm;
  EXPECT_EQ(measure_shm(cores, 1, &costs), TW_ERR_TIMED_OUT);
  EXPECT_EQ(costs.copy, CostTable().shm.copy);
}

TEST_F(MachineCosts, OfTcpAreThoseOfThisMachinesLoopback) {
  TwoCores cores;
  ASSERT_TRUE(two_cores(&cores));
  LinkCosts costs = CostTable().tcp;
  EXPECT_EQ(measure_tcp(cores, 1, &costs), TW_ERR_TIMED_OUT);
  EXPECT_EQ(costs.frame, CostTable().tcp.frame);
  EXPECT_EQ(costs.reference_large, 0);
  Status status = TW_OK;
  for (unsigned attempts = 0; attempts < 60; ++attempts) {
    status = measure_tcp(cores, 50 * kMillisecond, &costs);
    if (status != TW_ERR_TIMED_OUT) break;
  }
  if (status == TW_ERR_TIMED_OUT) GTEST_SKIP() << last_error();
  ASSERT_EQ(status, TW_OK) << last_error();
  EXPECT_GT(costs.frame, 100);  // two system calls at least
  EXPECT_LT(costs.frame, 1e7);
  for (const double cost : {costs.copy, costs.serial_copy, costs.reference, costs.reference_large}) {
    EXPECT_GT(cost, 0.001);
    EXPECT_LT(cost, 10);
  }
}

/// A rank that is bound to one processor.
class OneCore : public MachineCosts {
 protected:
  void SetUp() override {
    MachineCosts::SetUp();
    ASSERT_EQ(sched_getaffinity(0, sizeof before_set_, &before_set_), 0);
    here_ = sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(here_), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  void TearDown() override {
    cpu_set_t now;
    EXPECT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_EQ(CPU_COUNT(&now), 1);  // measuring leaves the caller where it is
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(here_), &now));
    sched_setaffinity(0, sizeof before_set_, &before_set_);
    MachineCosts::TearDown();
  }
  cpu_set_t before_set_;
  int here_ = -1;
};

TEST_F(OneCore, MeasuresWithAnotherOneOfItsCpuset) {
  TwoCores cores;
  ASSERT_TRUE(two_cores(&cores));
  EXPECT_EQ(cores.first, here_);
  EXPECT_NE(cores.second, here_);
}

TEST_F(OneCore, KeepsWhatItMeasured) {
  const CostTable table = machine_costs();
  if (too_busy(table)) GTEST_SKIP() << table.why;
  EXPECT_TRUE(table.measured()) << table.why;
  EXPECT_EQ(table.source, table.file);
}

}  // namespace
}  // namespace thalweg::impl::test
