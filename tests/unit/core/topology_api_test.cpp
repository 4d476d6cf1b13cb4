// SPDX-License-Identifier: Apache-2.0
// The topology through the C interface and its C++ view: saved machines, this one, and files that are not right.
#include <gtest/gtest.h>
#include <sched.h>
#include <thalweg/thalweg.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=4", 1);
constexpr char kKey[] = "a secret of more than sixteen bytes";

std::string machine(const std::string& name) { return THALWEG_SOURCE "/tests/fixtures/topologies/" + name + ".json"; }

class TopologyApi : public testing::Test {
 protected:
  void TearDown() override { unsetenv("THALWEG_TOPOLOGY"); }
  static void use(const std::string& file) { setenv("THALWEG_TOPOLOGY", file.c_str(), 1); }
};

TEST_F(TopologyApi, PlacesRanksOfASavedMachine) {
  use(machine("hgx_h200_4"));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const tw_placement place = thalweg::topology::place(rank, 4);
    EXPECT_EQ(place.gpu, static_cast<int>(rank));
    EXPECT_EQ(place.device, static_cast<int>(rank));  // emulated devices are its GPUs
    EXPECT_EQ(place.place, "emulated:" + std::to_string(rank));
    EXPECT_EQ(place.nic, "mlx5_" + std::to_string(rank));
    EXPECT_EQ(place.numa, static_cast<int>(rank / 2));
    EXPECT_EQ(place.shared, 1u);
    const std::vector<unsigned> processors = thalweg::topology::processors(place);
    ASSERT_EQ(processors.size(), 56u);
    EXPECT_EQ(processors.front(), rank * 28);
    EXPECT_EQ(processors.back(), rank * 28 + 27 + 112);
  }
}

TEST_F(TopologyApi, DevicesOfThisProcessAreTheOnesToUse) {
  use(machine("hgx_h200_8"));  // of whose GPUs there are four here
  EXPECT_EQ(thalweg::topology::place(7, 8).gpu, 3);
  EXPECT_EQ(thalweg::topology::place(7, 8).shared, 2u);
}

TEST_F(TopologyApi, MeasuresDistances) {
  use(machine("dgx1"));
  const tw_distance near = thalweg::topology::distance("gpu:0", "gpu:3");
  EXPECT_STREQ(near.kind, "NV2");
  EXPECT_EQ(near.links, 2u);
  EXPECT_EQ(near.bandwidth, 50e9);
  EXPECT_STREQ(near.path, "gpu:0 - gpu:3");
  EXPECT_STREQ(thalweg::topology::distance("gpu:0", "nic:0").kind, "PIX");
  EXPECT_STREQ(thalweg::topology::distance("processor:0", "processor:40").kind, "core");
  EXPECT_STREQ(thalweg::topology::distance("processor:0", "processor:20").kind, "far");
  EXPECT_STREQ(thalweg::topology::distance("numa:0", "numa:0").kind, "X");
}

TEST_F(TopologyApi, RefusesWhatIsNotThere) {
  use(machine("dgx1"));
  tw_distance distance = TW_DISTANCE_INIT;
  tw_placement place = TW_PLACEMENT_INIT;
  EXPECT_EQ(tw_topology_distance("gpu:0", "gpu:8", &distance), TW_ERR_INVALID);
  EXPECT_NE(std::string(tw_last_error()).find("no node \"gpu:8\"; it has machine, package:0-1"), std::string::npos)
      << tw_last_error();
  EXPECT_EQ(tw_topology_distance(nullptr, "gpu:0", &distance), TW_ERR_INVALID);
  EXPECT_EQ(tw_topology_distance("gpu:0", "gpu:1", nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_topology_place(4, 4, &place), TW_ERR_INVALID);
  EXPECT_EQ(tw_topology_place(0, 0, &place), TW_ERR_INVALID);
  EXPECT_EQ(tw_topology_place(0, 65537, &place), TW_ERR_INVALID);
  EXPECT_EQ(tw_topology_place(0, 1, nullptr), TW_ERR_INVALID);
  place.size = 0;
  EXPECT_EQ(tw_topology_place(0, 1, &place), TW_ERR_INVALID);
  EXPECT_EQ(tw_topology_json(nullptr, nullptr), TW_ERR_INVALID);
}

/// Structs of older callers are shorter: what lies behind them stays.
TEST_F(TopologyApi, FillsAsMuchAsTheCallerHas) {
  use(machine("power9"));
  struct {
    tw_placement place;
  } old{TW_PLACEMENT_INIT};
  old.place.size = offsetof(tw_placement, place);
  std::memset(old.place.place, 'x', sizeof old.place.place);
  ASSERT_EQ(tw_topology_place(1, 2, &old.place), TW_OK);
  EXPECT_EQ(old.place.gpu, 1);
  EXPECT_EQ(old.place.size, offsetof(tw_placement, place));
  EXPECT_EQ(old.place.place[0], 'x');
}

TEST_F(TopologyApi, TheTextIsTheFileAgain) {
  use(machine("power9"));
  const std::string text = thalweg::topology::json();
  const std::string copy = testing::TempDir() + "thalweg-topology-api.json";
  std::ofstream(copy) << text;
  use(copy);
  const std::string again = thalweg::topology::json();
  const auto nodes = [](const std::string& of) { return of.substr(of.find("\"nodes\"")); };
  EXPECT_EQ(nodes(again), nodes(text));
  std::filesystem::remove(copy);
}

TEST_F(TopologyApi, AFileThatIsNotRightEndsContextsToo) {
  const std::string file = testing::TempDir() + "thalweg-topology-wrong.json";
  std::ofstream(file) << "{\"format\": \"thalweg topology 1\",\n \"nodes\": [{\"id\": \"gpu:0\"}]}";
  use(file);
  EXPECT_THROW((void)thalweg::topology::json(), thalweg::Error);
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  try {
    const thalweg::Context context(options);
    ADD_FAILURE() << "a context was made";
  } catch (const thalweg::Error& error) {
    EXPECT_EQ(error.status(), TW_ERR_INVALID);
    EXPECT_NE(std::string(error.what()).find(file + ":2:19: \"id\" is \"gpu:0\""), std::string::npos) << error.what();
  }
  std::filesystem::remove(file);
  use("/no/such/file");
  EXPECT_THROW((void)thalweg::topology::place(0, 1), thalweg::Error);
}

TEST_F(TopologyApi, ThisMachineHasTheProcessorsOfThisProcess) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  std::vector<unsigned> all;
  for (uint32_t rank = 0; rank < 2; ++rank)
    for (const unsigned processor : thalweg::topology::processors(thalweg::topology::place(rank, 2))) {
      EXPECT_TRUE(CPU_ISSET(processor, &own));
      all.push_back(processor);
    }
  EXPECT_GE(all.size(), std::min(2, CPU_COUNT(&own)));
  EXPECT_NE(thalweg::topology::json().find("\"machine\""), std::string::npos);
}

}  // namespace
