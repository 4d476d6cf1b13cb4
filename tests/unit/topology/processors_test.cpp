// SPDX-License-Identifier: Apache-2.0
// Distances between processors, as machines' files say them.
#include "topology/processors.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace thalweg::impl {
namespace {

using std::filesystem::path;

cpu_set_t set_of(std::initializer_list<unsigned> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

/// A folder as /sys/devices/system.
class Topology : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/thalweg-topology-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void say(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  /// Two nodes of two caches of two cores of two threads: processor n and n + 8 are one core.
  void describe_sixteen() {
    say("cpu/online", "0-15");
    say("node/node0/cpulist", "0-3,8-11");
    say("node/node1/cpulist", "4-7,12-15");
    for (unsigned cpu = 0; cpu < 16; ++cpu) {
      const std::string folder = "cpu/cpu" + std::to_string(cpu);
      const unsigned core = cpu % 8, first = core / 2 * 2;
      const auto list = [](unsigned from, unsigned to) { return std::to_string(from) + "-" + std::to_string(to); };
      say(folder + "/topology/thread_siblings_list", std::to_string(core) + "," + std::to_string(core + 8));
      say(folder + "/topology/physical_package_id", std::to_string(core / 4));
      say(folder + "/cache/index0/level", "1");
      say(folder + "/cache/index0/shared_cpu_list", std::to_string(core) + "," + std::to_string(core + 8));
      say(folder + "/cache/index3/level", "3");
      say(folder + "/cache/index3/shared_cpu_list", list(first, first + 1) + "," + list(first + 8, first + 9));
    }
  }
  path root_;
};

TEST_F(Topology, DistancesAreTheFiles) {
  describe_sixteen();
  const CpuTopology machine = CpuTopology::read(root_);
  EXPECT_EQ(machine.between(0, 8), CpuDistance::core);
  EXPECT_EQ(machine.between(0, 1), CpuDistance::cache);
  EXPECT_EQ(machine.between(9, 0), CpuDistance::cache);
  EXPECT_EQ(machine.between(0, 2), CpuDistance::node);
  EXPECT_EQ(machine.between(3, 12), CpuDistance::far);
  EXPECT_EQ(machine.distances(), 15u);
  EXPECT_EQ(machine.distances(set_of({0, 8})), bit_of(CpuDistance::core));
  EXPECT_EQ(machine.distances(set_of({0, 2, 3})), bit_of(CpuDistance::node) | bit_of(CpuDistance::cache));
  EXPECT_EQ(machine.distances(set_of({5})), 0u);
}

TEST_F(Topology, WithoutNodesSocketsTakeTheirPlace) {
  describe_sixteen();
  std::filesystem::remove_all(root_ / "node");
  const CpuTopology machine = CpuTopology::read(root_);
  EXPECT_EQ(machine.between(0, 2), CpuDistance::node);
  EXPECT_EQ(machine.between(0, 4), CpuDistance::far);
}

TEST_F(Topology, WhatIsNotSaidMakesNoDifference) {
  for (const char* const text : {"", "0-3", "0-3,x", "-5", "9999999999-99999999999", "3-0", "0-3,\x01"}) {
    say("cpu/online", text);
    const CpuTopology machine = CpuTopology::read(root_);
    EXPECT_EQ(machine.between(0, 1), CpuDistance::cache) << text;
    EXPECT_EQ(machine.distances() & ~bit_of(CpuDistance::cache), 0u) << text;
  }
  EXPECT_EQ(CpuTopology::read("/no/such/folder").distances(), 0u);
  EXPECT_EQ(CpuTopology::read("/no/such/folder").between(0, 5000), CpuDistance::cache);
}

TEST_F(Topology, OddFilesAreSurvived) {
  describe_sixteen();
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 50; ++i) {
    const unsigned cpu = random() % 16;
    const char* const files[] = {"topology/thread_siblings_list", "cache/index3/shared_cpu_list", "cache/index3/level"};
    const char* const texts[] = {"", "0-1023", "7", "x", "4-2", "-1"};
    say("cpu/cpu" + std::to_string(cpu) + "/" + files[random() % 3], texts[random() % 6]);
    const CpuTopology machine = CpuTopology::read(root_);
    // Counting pairs and looking at each says the same.
    uint32_t bits = 0;
    for (unsigned a = 0; a < 16; ++a)
      for (unsigned b = 0; b < 16; ++b)
        if (a != b) bits |= bit_of(machine.between(a, b));
    EXPECT_EQ(machine.distances(), bits);
  }
}

TEST_F(Topology, TheUsualDistanceIsThatOfMostPairs) {
  describe_sixteen();
  const CpuTopology machine = CpuTopology::read(root_);
  CpuDistance usual = CpuDistance::core;
  const auto ask = [&](std::initializer_list<unsigned> one, std::initializer_list<unsigned> other) {
    return machine.usual(set_of(one), set_of(other), &usual);
  };
  ASSERT_TRUE(ask({0}, {8}));
  EXPECT_EQ(usual, CpuDistance::core);
  ASSERT_TRUE(ask({0}, {0, 1, 8, 9}));  // two in the cache, one in the core
  EXPECT_EQ(usual, CpuDistance::cache);
  ASSERT_TRUE(ask({0}, {2, 4, 5, 6, 7}));
  EXPECT_EQ(usual, CpuDistance::far);
  ASSERT_TRUE(ask({0}, {2, 4}));  // as many: the nearer one
  EXPECT_EQ(usual, CpuDistance::node);
  usual = CpuDistance::far;
  EXPECT_FALSE(ask({3}, {3}));  // they take turns
  EXPECT_FALSE(ask({}, {1}));
  EXPECT_EQ(usual, CpuDistance::far);
}

TEST_F(Topology, APairIsFoundNearToWhereOneRuns) {
  describe_sixteen();
  const CpuTopology machine = CpuTopology::read(root_);
  const cpu_set_t allowed = set_of({1, 3, 6, 9, 11});
  unsigned first = 0, second = 0;
  ASSERT_TRUE(machine.pair_at(CpuDistance::far, allowed, 3, &first, &second));
  EXPECT_EQ(first, 3u);
  EXPECT_EQ(second, 6u);
  ASSERT_TRUE(machine.pair_at(CpuDistance::core, allowed, 6, &first, &second));  // 6 has none
  EXPECT_EQ(machine.between(first, second), CpuDistance::core);
  EXPECT_FALSE(machine.pair_at(CpuDistance::cache, allowed, 1, &first, &second));
}

TEST(CpuList, IsParsed) {
  cpu_set_t set = parse_cpu_list("0-2,8,1020-5000");
  EXPECT_EQ(CPU_COUNT(&set), 8);
  for (const unsigned cpu : {0u, 1u, 2u, 8u, 1020u, 1023u}) EXPECT_TRUE(CPU_ISSET(cpu, &set));
  set = parse_cpu_list("nothing");
  EXPECT_EQ(CPU_COUNT(&set), 0);
}

TEST(ThisMachine, SaysSomethingOrNothing) {
  const CpuTopology& machine = CpuTopology::of_machine();
  EXPECT_LT(machine.distances(), 16u);
}

}  // namespace
}  // namespace thalweg::impl
