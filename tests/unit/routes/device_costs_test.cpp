// SPDX-License-Identifier: Apache-2.0
// Costs of devices: measured at the first use, kept, shared, refused, given up.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "devices/persistent.hpp"
#include "routes/cost_file.hpp"
#include "routes/device_cost_file.hpp"
#include "routes/device_table.hpp"
#include "routes/limits.hpp"
#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::test {
namespace {

using namespace std::filesystem;
using emulated::EmulatedDevice;
using emulated::open_device;

const std::string kMachine = "host; processor; kernel";
constexpr CopyCosts DeviceCosts::*kOwn[] = {&DeviceCosts::out, &DeviceCosts::in, &DeviceCosts::local};
constexpr CopyCosts DeviceCosts::*kPair[] = {&DeviceCosts::pcie_write, &DeviceCosts::pcie_read};

// ------------------------------------------------------------------------------------------------ the file

TEST(DeviceCostFile, ComesBackAsItWas) {
  std::mt19937_64 random(std::random_device{}());
  std::vector<ModelCosts> made, back;
  for (unsigned i = 0; i < kDeviceModels; ++i) {
    ModelCosts one{"device " + std::to_string(i), {}};
    for (const DeviceCost& cost : device_costs()) {
      if (random() % 3 == 0) continue;
      (one.costs.*cost.copy) = {std::uniform_real_distribution<>(1, 1e8)(random),
                                std::uniform_real_distribution<>(1e-6, 1e3)(random)};
      one.costs.measured |= bit_of(cost.copy);
    }
    made.push_back(one);
  }
  std::string text;
  ASSERT_EQ(format_device_costs(made, kMachine, &text), TW_OK) << last_error();
  ASSERT_LE(text.size(), kDeviceCostFileMax);
  ASSERT_EQ(parse_device_costs(text, kMachine, &back), TW_OK) << last_error();
  ASSERT_EQ(back.size(), made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(back[i].model, made[i].model);
    EXPECT_EQ(back[i].costs.measured, made[i].costs.measured);
    for (const DeviceCost& cost : device_costs()) {
      EXPECT_EQ((back[i].costs.*cost.copy).fixed, (made[i].costs.*cost.copy).fixed) << cost.name;
      EXPECT_EQ((back[i].costs.*cost.copy).byte, (made[i].costs.*cost.copy).byte) << cost.name;
    }
  }
}

TEST(DeviceCostFile, DamagedOrForeignTextChangesNothing) {
  std::string good;
  ModelCosts one{"a device", {}};
  one.costs.measured = bit_of(&DeviceCosts::out);
  ASSERT_EQ(format_device_costs({&one, 1}, kMachine, &good), TW_OK) << last_error();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string many = [] {
    std::string text;
    for (size_t i = 0; i < kDeviceModels; ++i) text += "device = number " + std::to_string(i) + "\n";
    return text;
  }();
  const std::vector<std::string> bad = {
      "",
      "thalweg-costs 1\n",
      good + "more\n",
      good.substr(0, good.size() - 6),
      with("end\n", ""),
      with("out.fixed", "out.speed"),
      with("out.fixed", "out.byte"),
      with("out.fixed", "outer.fixed"),
      with("out.fixed = ", "out.fixed = -"),
      with("out.fixed = ", "out.fixed = nan"),
      with("out.byte = ", "out.byte = 1e9"),
      with("out.byte = ", "out.byte : "),
      with("end\n", "in.fixed = 5\nend\n"),  // half of a cost
      with("end\n", "device = a device\nend\n"),
      with("end\n", "device = \nend\n"),
      with("end\n", "device = " + std::string(kModelMax + 1, 'x') + "\nend\n"),
      with("end\n", "device = \x01\nend\n"),
      with("end\n", many + "end\n"),
      with("device = a device\n", ""),
      with("a device\n", "a device\n" + std::string(kDeviceCostFileMax, ' ') + "\n"),
  };
  for (const std::string& text : bad) {
    std::vector<ModelCosts> out{{"as before", {}}};
    const Status status = parse_device_costs(text, kMachine, &out);
    EXPECT_EQ(status, TW_ERR_INVALID) << text;
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].model, "as before");
  }
  std::vector<ModelCosts> out;
  EXPECT_EQ(parse_device_costs(good, "another machine", &out), TW_ERR_STALE);
  EXPECT_EQ(parse_device_costs(with("library = ", "library = 9"), kMachine, &out), TW_ERR_STALE);
}

// ------------------------------------------------------------------------------------------------ measuring

/// A cache of its own, thrown away.
class DeviceCostsOf : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/thalweg-costs-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    costs_.file = folder_ + "/sub/costs";
  }
  void TearDown() override { remove_all(folder_); }
  std::string path() const { return device_cost_path(costs_.file); }
  static bool has(const DeviceCosts& costs, std::span<CopyCosts DeviceCosts::*const> wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](auto one) { return (costs.measured & bit_of(one)) != 0; });
  }
  static void expect_same(const DeviceCosts& one, const DeviceCosts& other) {
    EXPECT_EQ(one.measured, other.measured);
    for (const DeviceCost& cost : device_costs()) {
      EXPECT_EQ((one.*cost.copy).fixed, (other.*cost.copy).fixed) << cost.name;
      EXPECT_EQ((one.*cost.copy).byte, (other.*cost.copy).byte) << cost.name;
    }
  }
  std::string folder_;
  CostTable costs_;
};

const uint32_t kOwnBits = bit_of(&DeviceCosts::out) | bit_of(&DeviceCosts::in) | bit_of(&DeviceCosts::local);
const uint32_t kAllBits = kOwnBits | bit_of(&DeviceCosts::pcie_write) | bit_of(&DeviceCosts::pcie_read);

/// A table that has measured these: machines of tests may be too busy at times. Null: all the time.
std::unique_ptr<DeviceTable> measured_table(const CostTable& costs, Device& device, uint32_t wanted) {
  for (unsigned attempts = 0; attempts < 100; ++attempts) {
    auto table = std::make_unique<DeviceTable>();
    table->open(costs);
    if ((table->of(device).measured & wanted) == wanted) return table;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return nullptr;
}

TEST_F(DeviceCostsOf, AreMeasuredOnceAndKept) {
  const auto device = open_device(0), other = open_device(1);
  const size_t before = device->holdings();
  DeviceCosts first;
  {
    DeviceTable asked;
    asked.open(costs_);
    EXPECT_EQ(asked.known(*device).costs.measured, 0u);
    const auto table = measured_table(costs_, *device, kAllBits);
    if (table == nullptr) GTEST_SKIP() << last_error();
    first = table->of(*device);
    EXPECT_TRUE(has(first, kOwn));
    EXPECT_EQ(table->known(*device).why, "");
    expect_same(table->of(*device), first);
    EXPECT_GT(device->holdings(), before);  // what it measured with
  }
  EXPECT_EQ(device->holdings(), before);
  struct stat status;
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 077, 0u);
  for (const auto one : kOwn) {
    EXPECT_GE((first.*one).fixed, 1);
    EXPECT_GT((first.*one).byte, 0);
  }
  // Another process, or context: as kept, and nothing is allocated.
  DeviceTable table;
  table.open(costs_);
  expect_same(table.of(*device), first);
  expect_same(table.of(*other), first);  // the same sort of device
  EXPECT_EQ(device->holdings(), before);
}

TEST_F(DeviceCostsOf, OneDeviceMeasureNoPair) {
  const auto device = open_device(0);
  const auto table = measured_table(costs_, *device, kOwnBits);
  if (table == nullptr) GTEST_SKIP() << last_error();
  const DeviceCosts alone = table->of(*device);
  EXPECT_TRUE(has(alone, kOwn));
  EXPECT_FALSE(has(alone, kPair));
  EXPECT_EQ(alone.pcie_write.fixed, DeviceCosts().pcie_write.fixed);
  EXPECT_EQ(nearest_link(*device, alone), DeviceLink::same);  // whatever else there is, nobody knows
  EXPECT_EQ(nearest_link(*device, DeviceCosts()), DeviceLink::unknown);
  // A process that sees another device measures what is missing, and keeps what there is.
  const auto other = open_device(1);
  DeviceCosts both;
  for (unsigned attempts = 0; attempts < 100 && !has(both, kPair); ++attempts) {
    DeviceTable later;
    later.open(costs_);
    both = later.of(*device);
    EXPECT_TRUE(has(both, kOwn));
    EXPECT_EQ(both.out.fixed, alone.out.fixed);
  }
  EXPECT_TRUE(has(both, kPair));
  EXPECT_EQ(nearest_link(*device, both), DeviceLink::pcie);
}

TEST_F(DeviceCostsOf, DevicesWithoutPeerAccessMeasureNoPair) {
  emulated::Options options;
  options.peers = 1;
  const auto device = open_device(0, options), other = open_device(1, options);
  DeviceTable table;
  table.open(costs_);
  EXPECT_FALSE(has(table.of(*device), kPair));
}

TEST_F(DeviceCostsOf, AreDefaultsWhereTheyAreSwitchedOff) {
  const auto device = open_device(0);
  const size_t before = device->holdings();
  CostTable off;
  off.why = "switched off by THALWEG_COSTS";
  DeviceTable table;
  table.open(off);
  expect_same(table.of(*device), DeviceCosts());
  EXPECT_EQ(table.known(*device).why, off.why);
  EXPECT_EQ(device->holdings(), before);
  EXPECT_TRUE(is_empty(folder_));
}

TEST_F(DeviceCostsOf, OfAReadOnlyHomeAreThisProcesssAlone) {
  const auto device = open_device(0);
  costs_.file = "/proc/no-such-folder/costs";
  const auto table = measured_table(costs_, *device, kOwnBits);
  if (table == nullptr) GTEST_SKIP() << last_error();
  const DeviceCosts first = table->of(*device);
  EXPECT_TRUE(has(first, kOwn));
  EXPECT_NE(table->known(*device).why.find("not kept"), std::string::npos) << table->known(*device).why;
  const size_t before = device->holdings();
  DeviceTable another;
  another.open(costs_);
  expect_same(another.of(*device), first);
  EXPECT_EQ(device->holdings(), before);  // not measured again
}

TEST_F(DeviceCostsOf, AFileThatIsNotRightIsLeftAndUsedForNothing) {
  const auto device = open_device(0);
  ASSERT_EQ(create_directories(folder_ + "/sub"), true);
  std::ofstream(path()) << "rubbish\n";
  ::chmod(path().c_str(), 0600);
  DeviceTable table;
  table.open(costs_);
  expect_same(table.of(*device), DeviceCosts());
  std::string text;
  std::ifstream in(path());
  std::getline(in, text);
  EXPECT_EQ(text, "rubbish");
}

TEST_F(DeviceCostsOf, OfAnotherVersionAreMeasuredAgain) {
  const auto device = open_device(0);
  if (measured_table(costs_, *device, kOwnBits) == nullptr) GTEST_SKIP() << last_error();
  std::ifstream in(path());
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::ofstream(path()) << text.replace(text.find("library = ") + 10, 1, "9");
  DeviceTable asked;
  asked.open(costs_);
  EXPECT_EQ(asked.known(*device).costs.measured, 0u);
  const auto table = measured_table(costs_, *device, kOwnBits);
  if (table == nullptr) GTEST_SKIP() << last_error();
  EXPECT_TRUE(has(table->of(*device), kOwn));
}

/// Whoever waits for the device would wait for what it waits for.
TEST_F(DeviceCostsOf, NothingIsMeasuredOnceQueuesMayWaitForThisProcess) {
  const auto device = open_device(0);
  const size_t before = device->holdings();
  DeviceTable table;
  table.open(costs_);
  table.forbid();
  expect_same(table.of(*device), DeviceCosts());
  EXPECT_NE(table.known(*device).why, "");
  EXPECT_EQ(device->holdings(), before);
}

TEST_F(DeviceCostsOf, ADeviceThatDoesNotComeToItKeepsDefaults) {
  emulated::Options options;
  options.stepped = true;  // nobody steps
  const auto device = open_device(0, options);
  const uint64_t begin = monotonic_ns();
  DeviceTable table;
  table.open(costs_);
  expect_same(table.of(*device), DeviceCosts());
  EXPECT_LT(monotonic_ns() - begin, 2 * kSecond);
  EXPECT_NE(table.known(*device).why.find("busy"), std::string::npos);
  EXPECT_FALSE(exists(path()));
  const uint64_t again = monotonic_ns();
  (void)table.of(*device);  // once is enough
  EXPECT_LT(monotonic_ns() - again, 50 * kMillisecond);
  while (device->step(0)) continue;
}

TEST_F(DeviceCostsOf, WhatADeviceRefusesLeavesDefaults) {
  for (const emulated::Operation operation : {emulated::Operation::allocate, emulated::Operation::queue,
                                              emulated::Operation::copy, emulated::Operation::word, emulated::Operation::run}) {
    emulated::Options options;
    options.fail(operation, 2);
    const auto device = open_device(0, options);
    if (operation == emulated::Operation::queue) device->faults().inject(operation, 1);
    DeviceTable table;
    table.open(costs_);
    expect_same(table.of(*device), DeviceCosts());
    EXPECT_NE(table.known(*device).why, "") << static_cast<int>(operation);
    EXPECT_FALSE(exists(path()));
  }
}

TEST_F(DeviceCostsOf, ProcessesThatStartAtOnceShareThem) {
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const auto device = open_device(0);
      DeviceTable table;
      table.open(costs_);
      const DeviceCosts costs = table.of(*device);
      _exit(has(costs, kOwn) ? 0 : table.known(*device).why.find("busy") != std::string::npos ? 2 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 1);
  }
  for (const auto& entry : directory_iterator(folder_ + "/sub")) {
    const std::filesystem::path name = entry.path().extension();
    EXPECT_TRUE(name == ".devices" || name == ".lock") << entry.path();
  }
}

TEST_F(DeviceCostsOf, APersistentKernelsAreMeasuredWhereOneIsAskedFor) {
  const auto device = open_device(0);
  std::shared_ptr<PersistentCopier> persistent;
  ASSERT_EQ(PersistentCopier::open(*device, {2, PersistentOptions::kLongest}, &persistent), TW_OK) << last_error();
  const uint32_t bit = bit_of(&DeviceCosts::persistent);
  DeviceCosts costs;
  for (unsigned attempts = 0; attempts < 100 && (costs.measured & bit) == 0; ++attempts) {
    DeviceTable table;
    table.open(costs_);
    costs = table.of(*device, *persistent);
  }
  if ((costs.measured & bit) == 0) GTEST_SKIP() << last_error();
  EXPECT_GE(costs.persistent.fixed, 1);
  EXPECT_GT(persistent->taken(), 0u);
  std::vector<ModelCosts> kept;
  ASSERT_EQ(load_device_costs(path(), &kept), TW_OK) << last_error();
  ASSERT_EQ(kept.size(), 1u);
  expect_same(kept[0].costs, costs);
}

// ------------------------------------------------------------------------------------------------ what follows

TEST(DeviceCostsFollow, APersistentKernelTakesWhatItCopiesForLess) {
  DeviceCosts costs;
  costs.persistent = {3000, 0.02};
  costs.persistent_block = 0;
  costs.nvlink_write = {7000, 0.01};
  EXPECT_EQ(persistent_most(costs, DeviceLink::nvlink, 1), 400'000u);
  costs.nvlink_write.fixed = 2000;  // an engine that starts sooner
  EXPECT_EQ(persistent_most(costs, DeviceLink::nvlink, 1), 0u);
  costs.pcie_write = {5000, 0.03};  // and one that is slower for each byte
  EXPECT_EQ(persistent_most(costs, DeviceLink::pcie, 1), 1u << 20);
}

}  // namespace
}  // namespace thalweg::impl::test
