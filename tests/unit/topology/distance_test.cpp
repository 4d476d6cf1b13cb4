// SPDX-License-Identifier: Apache-2.0
// What lies between the parts of the saved machines, and what a link that is down makes of it.
#include "topology/distance.hpp"

#include <cmath>

#include "tests/fixtures/topologies.hpp"
#include "topology/processors.hpp"

namespace thalweg::impl::topology {
namespace {

Distance between(const Graph& graph, const std::string& one, const std::string& other) {
  EXPECT_NE(graph.find(one), kNoNode) << one;
  EXPECT_NE(graph.find(other), kNoNode) << other;
  const Distance there = distance_between(graph, graph.find(one), graph.find(other));
  const Distance back = distance_between(graph, graph.find(other), graph.find(one));
  EXPECT_EQ(there.kind, back.kind);
  EXPECT_EQ(there.hops, back.hops);
  EXPECT_EQ(there.bandwidth, back.bandwidth);
  return there;
}

std::string kind(const Graph& graph, const std::string& one, const std::string& other) {
  return between(graph, one, other).kind;
}

unsigned take_down(Graph* graph, const std::string& one, const std::string& other, unsigned count) {
  unsigned done = 0;
  for (Link& link : graph->links) {
    const bool these = graph->id(link.from) == one && graph->id(link.to) == other && link.kind == LinkKind::nvlink;
    if (these && done < count) link.up = false, ++done;
  }
  return done;
}

TEST(Distance, TheHybridCubeMeshIsAsItsMakerDrawsIt) {
  const Graph graph = graph_of("dgx1");
  const std::string rows[] = {"X NV1 NV1 NV2 NV2 SYS SYS SYS", "NV1 X NV2 NV1 SYS NV2 SYS SYS", "NV1 NV2 X NV2 SYS SYS NV1 SYS",
                              "NV2 NV1 NV2 X SYS SYS SYS NV1", "NV2 SYS SYS SYS X NV1 NV1 NV2", "SYS NV2 SYS SYS NV1 X NV2 NV1",
                              "SYS SYS NV1 SYS NV1 NV2 X NV2", "SYS SYS SYS NV1 NV2 NV1 NV2 X"};
  for (unsigned one = 0; one < 8; ++one) {
    std::string row;
    for (unsigned other = 0; other < 8; ++other)
      row += (other == 0 ? "" : " ") + kind(graph, "gpu:" + std::to_string(one), "gpu:" + std::to_string(other));
    EXPECT_EQ(row, rows[one]) << one;
  }
  EXPECT_EQ(between(graph, "gpu:0", "gpu:3").bandwidth, 50e9);
  EXPECT_EQ(kind(graph, "gpu:0", "nic:0"), "PIX");
  EXPECT_EQ(kind(graph, "gpu:0", "nic:1"), "PHB");
  EXPECT_EQ(kind(graph, "gpu:0", "nic:2"), "SYS");
  const Distance far = between(graph, "gpu:0", "gpu:7");  // no GPU passes anything on
  EXPECT_EQ(path_text(graph, far.path), "gpu:0 - switch:0 - bridge:0 - numa:0 - numa:1 - bridge:1 - switch:3 - gpu:7");
  EXPECT_EQ(far.bandwidth, pcie_bandwidth(3, 16));
}

TEST(Distance, ThroughSwitchesAllLinksCount) {
  const Graph graph = graph_of("hgx_h200_8");
  for (unsigned other = 1; other < 8; ++other) {
    const Distance there = between(graph, "gpu:0", "gpu:" + std::to_string(other));
    EXPECT_EQ(there.kind, "NV18");
    EXPECT_EQ(there.bandwidth, 450e9);
    EXPECT_EQ(there.hops, 2u);
    EXPECT_TRUE(there.nvlinks.switched);
  }
  EXPECT_EQ(kind(graph, "gpu:2", "nic:3"), "PIX");
  EXPECT_EQ(kind(graph, "gpu:2", "nic:1"), "NODE");
  EXPECT_EQ(kind(graph_of("hgx_h200_4"), "gpu:0", "gpu:3"), "NV6");
}

TEST(Distance, PcieAloneGoesByWhatContainsBoth) {
  const Graph graph = graph_of("two_sockets_pcie");
  EXPECT_EQ(kind(graph, "gpu:0", "gpu:1"), "PHB");
  EXPECT_EQ(kind(graph, "gpu:0", "gpu:2"), "SYS");
  EXPECT_EQ(kind(graph, "gpu:0", "nic:0"), "NODE");
  EXPECT_EQ(kind(graph, "gpu:0", "numa:0"), "NODE");
  EXPECT_EQ(kind(graph, "gpu:0", "numa:1"), "SYS");
  EXPECT_EQ(kind(graph, "gpu:3", "gpu:3"), "X");
  EXPECT_EQ(between(graph, "gpu:0", "gpu:1").bandwidth, pcie_bandwidth(4, 16));
}

TEST(Distance, NvlinksOfTheProcessorAreTheWayToItsMemory) {
  const Graph graph = graph_of("power9");
  EXPECT_EQ(kind(graph, "gpu:0", "gpu:1"), "NV3");
  EXPECT_EQ(kind(graph, "gpu:0", "numa:0"), "NV3");
  EXPECT_EQ(between(graph, "gpu:0", "numa:0").bandwidth, 75e9);
  const Distance far = between(graph, "gpu:0", "gpu:2");
  EXPECT_EQ(far.kind, "SYS");
  EXPECT_EQ(path_text(graph, far.path), "gpu:0 - numa:0 - numa:1 - gpu:2");
  EXPECT_EQ(far.bandwidth, 64e9);  // of the link between the sockets
}

TEST(Distance, ProcessorsAreAsFarAsTheKernelWouldSay) {
  for (const char* const machine : kMachines) {
    const Graph graph = graph_of(machine);
    const CpuTopology processors = CpuTopology::of(graph);
    const std::vector<size_t> cores = graph.all(NodeKind::core);
    for (size_t i = 0; i < cores.size(); i += 3) {
      const unsigned one = graph.nodes[cores[0]].processors.back(), other = graph.nodes[cores[i]].processors.front();
      const std::string name = i == 0 ? "X" : name_of(processors.between(one, other));
      EXPECT_EQ(distance_between(graph, cores[0], cores[i]).kind, name) << machine << ' ' << i;
    }
  }
  const Graph graph = graph_of("no_gpu");
  EXPECT_EQ(kind(graph, "processor:0", "processor:7"), "cache");
  EXPECT_EQ(kind(graph, "processor:0", "processor:8"), "node");
  EXPECT_EQ(kind(graph, "processor:0", "processor:16"), "far");
  EXPECT_EQ(kind(graph, "processor:0", "processor:128"), "X");  // threads of one core
  EXPECT_EQ(CpuTopology::of(graph).between(0, 128), CpuDistance::core);
}

TEST(Distance, ALinkThatIsDownNarrowsAndIsNamed) {
  Graph graph = graph_of("hgx_h200_4");
  ASSERT_EQ(take_down(&graph, "gpu:0", "gpu:1", 2), 2u);
  const Distance narrow = between(graph, "gpu:0", "gpu:1");
  EXPECT_EQ(narrow.kind, "NV4");
  EXPECT_EQ(narrow.bandwidth, 100e9);
  EXPECT_EQ(narrow.nvlinks.down, 2u);
  EXPECT_EQ(narrow.note, "2 of 6 NVLinks between gpu:0 and gpu:1 are down");
  ASSERT_EQ(take_down(&graph, "gpu:0", "gpu:1", 6), 6u);
  EXPECT_EQ(kind(graph, "gpu:0", "gpu:1"), "NODE");
  EXPECT_EQ(kind(graph, "gpu:0", "gpu:2"), "NV6");
}

TEST(Distance, FewerLanesThanPossibleAreNamed) {
  Graph graph = graph_of("two_sockets_pcie");
  for (Link& link : graph.links)
    if (graph.id(link.from) == "gpu:1") link.lanes = 8, link.bandwidth = pcie_bandwidth(4, 8);
  const Distance narrow = between(graph, "gpu:0", "gpu:1");
  EXPECT_EQ(narrow.note, "PCIe of gpu:1 has 8 of 16 lanes");
  EXPECT_EQ(narrow.bandwidth, pcie_bandwidth(4, 8));
  EXPECT_EQ(between(graph, "gpu:0", "nic:0").note, "");
}

TEST(Reach, IsNvlinkThenPcieThenNothing) {
  Graph graph = graph_of("hgx_h200_4");
  graph.file = "broken.json";
  const auto reach = [&](const std::string& one, const std::string& other) {
    return reach_between(graph, graph.find(one), graph.find(other));
  };
  EXPECT_EQ(reach("gpu:0", "gpu:1").by, Reach::By::nvlink);
  EXPECT_EQ(reach("gpu:0", "gpu:1").why, "");
  take_down(&graph, "gpu:0", "gpu:1", 6);
  EXPECT_EQ(reach("gpu:1", "gpu:0").by, Reach::By::pcie);
  EXPECT_EQ(reach("gpu:0", "gpu:1").why, "all 6 NVLinks between gpu:0 and gpu:1 are down in broken.json");
  take_down(&graph, "gpu:0", "gpu:2", 6);
  EXPECT_EQ(reach("gpu:0", "gpu:2").by, Reach::By::nothing);
  EXPECT_NE(reach("gpu:0", "gpu:2").why.find("different NUMA nodes"), std::string::npos);
  EXPECT_EQ(reach("gpu:0", "gpu:3").by, Reach::By::nvlink);
}

TEST(Reach, OfASwitchWhoseLinksOfOneGpuAreDown) {
  Graph graph = graph_of("hgx_h200_8");
  for (const char* const center : {"nvswitch:0", "nvswitch:1", "nvswitch:2", "nvswitch:3"})
    take_down(&graph, "gpu:5", center, 5);
  const auto by = [&](size_t one, size_t other) {
    const std::vector<size_t> gpus = graph.all(NodeKind::gpu);
    return reach_between(graph, gpus[one], gpus[other]).by;
  };
  EXPECT_EQ(by(5, 0), Reach::By::nothing);
  EXPECT_EQ(by(5, 4), Reach::By::pcie);
  EXPECT_EQ(by(0, 4), Reach::By::nvlink);
}

TEST(Bandwidth, IsTheStandards) {
  EXPECT_NEAR(pcie_bandwidth(3, 16), 15.754e9, 1e6);
  EXPECT_NEAR(pcie_bandwidth(5, 16), 63.015e9, 1e6);
  EXPECT_EQ(pcie_bandwidth(1, 4), 1e9);
  EXPECT_EQ(pcie_bandwidth(0, 16), 0);
  EXPECT_EQ(pcie_bandwidth(60, 16), 0);
  EXPECT_EQ(nvlink_bandwidth(4), 25e9);
  EXPECT_EQ(nvlink_bandwidth(99), 0);
}

}  // namespace
}  // namespace thalweg::impl::topology
