// SPDX-License-Identifier: Apache-2.0
// Machines as the kernel's files, hwloc and NVML tell of them.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "topology/distance.hpp"
#include "topology/format.hpp"
#include "topology/hwloc.hpp"
#include "topology/machine.hpp"
#include "topology/nvml.hpp"
#include "topology/placement.hpp"
#include "topology/processors.hpp"

namespace thalweg::impl::topology {
namespace {

namespace fs = std::filesystem;

/// A folder as /sys.
class Discovered : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/thalweg-sys-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    where_.root = root_;
    where_.hwloc = "libhwloc-that-is-not-there.so";
    where_.nvml = "libnvidia-ml-that-is-not-there.so";
  }
  void TearDown() override {
    fs::remove_all(root_);
    unsetenv("THALWEG_FAKE_NVML");
  }
  void say(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  /// Two packages of one node, one cache and two cores of two threads each.
  void describe_processors() {
    say("devices/system/cpu/online", "0-7");
    for (unsigned node = 0; node < 2; ++node) {
      const std::string folder = "devices/system/node/node" + std::to_string(node);
      say(folder + "/cpulist", node == 0 ? "0-1,4-5" : "2-3,6-7");
      say(folder + "/meminfo", "Node 0 MemTotal:       1024 kB\nNode 0 MemFree:  1 kB");
    }
    for (unsigned cpu = 0; cpu < 8; ++cpu) {
      const std::string folder = "devices/system/cpu/cpu" + std::to_string(cpu);
      say(folder + "/topology/physical_package_id", std::to_string(cpu / 2 % 2));
      say(folder + "/topology/thread_siblings_list", std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
      say(folder + "/cache/index0/level", "1");
      say(folder + "/cache/index0/shared_cpu_list", std::to_string(cpu));
      say(folder + "/cache/index3/level", "3");
      say(folder + "/cache/index3/size", "36608K");
      say(folder + "/cache/index3/shared_cpu_list", cpu / 2 % 2 == 0 ? "0-1,4-5" : "2-3,6-7");
    }
  }
  void describe_function(const std::string& path, const std::string& type, const std::string& vendor, unsigned node) {
    const std::string folder = "devices/" + path, address = fs::path(path).filename();
    say(folder + "/class", type);
    say(folder + "/vendor", vendor);
    say(folder + "/numa_node", std::to_string(node));
    say(folder + "/current_link_width", address == "0000:04:00.0" ? "4" : "16");
    say(folder + "/max_link_width", "16");
    say(folder + "/current_link_speed", "2.5 GT/s PCIe");  // idle
    say(folder + "/max_link_speed", "16.0 GT/s PCIe");
    fs::create_directories(root_ / "bus/pci/devices");
    fs::create_directory_symlink(root_ / folder, root_ / "bus/pci/devices" / address);
  }
  /// A switch with two GPUs and a card behind a root port; a console's display; a card of two ports behind another root port; one GPU at
  /// the other node, behind a root port alone.
  void describe_pci() {
    const std::string up = "pci0000:00/0000:00:01.0/0000:01:00.0/", down = "0000:02:0";
    describe_function("pci0000:00/0000:00:01.0", "0x060400", "0x8086", 0);
    describe_function("pci0000:00/0000:00:01.0/0000:01:00.0", "0x060400", "0x10b5", 0);
    const char* const ends[] = {"0000:03:00.0", "0000:04:00.0", "0000:05:00.0"};
    for (unsigned i = 0; i < 3; ++i) {
      describe_function(up + down + std::to_string(i) + ".0", "0x060400", "0x10b5", 0);
      describe_function(up + down + std::to_string(i) + ".0/" + ends[i], i == 2 ? "0x020700" : "0x030200",
                        i == 2 ? "0x15b3" : "0x10de", 0);
    }
    describe_function("pci0000:00/0000:00:02.0", "0x060400", "0x8086", 0);
    describe_function("pci0000:00/0000:00:02.0/0000:06:00.0", "0x020000", "0x15b3", 0);
    describe_function("pci0000:00/0000:00:02.0/0000:06:00.1", "0x020000", "0x15b3", 0);
    describe_function("pci0000:00/0000:00:03.0", "0x030000", "0x1a03", 0);
    describe_function("pci0000:80/0000:80:01.0", "0x060400", "0x8086", 1);
    describe_function("pci0000:80/0000:80:01.0/0000:81:00.0", "0x030200", "0x10de", 1);
    name_card("net/ib0", up + down + "2.0/0000:05:00.0");
    name_card("infiniband/mlx5_0", up + down + "2.0/0000:05:00.0");
    say("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
    say("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    for (unsigned port = 0; port < 2; ++port) {
      const std::string name = "eth" + std::to_string(port);
      name_card("net/" + name, "pci0000:00/0000:00:02.0/0000:06:00." + std::to_string(port));
      say("class/net/" + name + "/speed", port == 0 ? "25000" : "-1");
      say("class/net/" + name + "/operstate", port == 0 ? "up" : "down");
    }
    fs::create_directories(root_ / "devices/virtual/net/lo");
    fs::create_directory_symlink(root_ / "devices/virtual/net/lo", root_ / "class/net/lo");
  }
  void name_card(const std::string& name, const std::string& function) {
    const fs::path folder = root_ / "devices" / function / name;
    fs::create_directories(folder);
    fs::create_directories((root_ / "class" / name).parent_path());
    fs::create_directory_symlink(folder, root_ / "class" / name);
  }
  fs::path root_;
  Where where_;
};

std::string tree(const Graph& graph) {
  std::string text;
  for (size_t i = 1; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind == NodeKind::core) continue;
    text += graph.id(i) + "<" + graph.id(graph.nodes[i].parent) +
            (graph.nodes[i].name.empty() ? "" : "(" + graph.nodes[i].name + ")") + " ";
  }
  return text;
}

TEST_F(Discovered, FromTheKernelsFiles) {
  describe_processors();
  describe_pci();
  const Discovery found = discover(where_);
  const Graph& graph = found.graph;
  EXPECT_EQ(tree(graph),
            "package:0<machine numa:0<package:0 cache:0<numa:0 package:1<machine numa:1<package:1 cache:1<numa:1 "
            "bridge:0<numa:0 switch:0<bridge:0 bridge:1<numa:1 "
            "gpu:0<switch:0 gpu:1<switch:0 nic:0<switch:0(mlx5_0) nic:1<bridge:0(eth0) nic:2<bridge:0(eth1) gpu:2<bridge:1 ");
  EXPECT_EQ(graph.nodes[graph.find("core:0")].processors, (std::vector<unsigned>{0, 4}));
  EXPECT_EQ(graph.nodes[graph.find("numa:0")].memory, 1u << 20);
  EXPECT_EQ(graph.nodes[graph.find("cache:0")].memory, 36608u << 10);
  EXPECT_EQ(graph.nodes[graph.find("nic:0")].speed, 25e9);
  EXPECT_EQ(graph.nodes[graph.find("nic:1")].speed, 3.125e9);
  EXPECT_TRUE(graph.nodes[graph.find("nic:1")].up);
  EXPECT_FALSE(graph.nodes[graph.find("nic:2")].up);
  const auto kind = [&](const char* one, const char* other) {
    return distance_between(graph, graph.find(one), graph.find(other));
  };
  EXPECT_EQ(kind("gpu:0", "gpu:1").kind, "PIX");
  EXPECT_EQ(kind("gpu:0", "gpu:1").bandwidth, pcie_bandwidth(4, 4));
  EXPECT_EQ(kind("gpu:0", "gpu:1").note,
            "NVLinks are not known: there was no NVML to tell of them; PCIe of gpu:1 has 4 of 16 lanes");
  EXPECT_EQ(kind("gpu:0", "nic:1").kind, "PHB");
  EXPECT_EQ(kind("gpu:0", "gpu:2").kind, "SYS");
  EXPECT_NE(found.why_no_hwloc.find("libhwloc"), std::string::npos);
  EXPECT_NE(found.why_no_nvml.find("comes with NVIDIA's driver"), std::string::npos);
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(graph), "x", &again), TW_OK) << last_error();
}

TEST_F(Discovered, NothingIsAMachineToo) {
  const Discovery found = discover(where_);
  ASSERT_EQ(found.graph.nodes.size(), 1u);
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(found.graph), "x", &again), TW_OK) << last_error();
}

TEST_F(Discovered, OneNodeContainsThePackagesOfAVirtualMachine) {
  describe_processors();
  fs::remove_all(root_ / "devices/system/node");
  EXPECT_EQ(tree(discover(where_).graph),
            "package:0<machine numa:0<package:0 cache:0<numa:0 package:1<machine numa:1<package:1 cache:1<numa:1 ");
  say("devices/system/node/node0/cpulist", "0-7");
  EXPECT_EQ(tree(discover(where_).graph),
            "numa:0<machine package:0<numa:0 cache:0<package:0 package:1<numa:0 cache:1<package:1 ");
}

TEST_F(Discovered, NvmlCompletesGpusAndTellsOfNvlinks) {
  describe_processors();
  where_.nvml = FAKE_NVML;
  setenv("THALWEG_FAKE_NVML", "mesh", 1);
  describe_function("pci0000:00/0000:01:00.0", "0x030200", "0x10de", 1);
  const Discovery found = discover(where_);
  const Graph& graph = found.graph;
  EXPECT_EQ(found.nvml, "999.1");
  EXPECT_EQ(graph.count(NodeKind::gpu), 3u);  // the files show one, NVML the others
  const Node& first = graph.nodes[graph.find("gpu:0")];
  EXPECT_EQ(graph.id(first.parent), "bridge:0");
  EXPECT_EQ(first.name, "Fake GPU");
  EXPECT_EQ(first.uuid, "8f6d1c00000011112222333344445550");
  EXPECT_EQ(first.memory, uint64_t{1} << 36);
  EXPECT_EQ(graph.upward(graph.find("gpu:1"))->lanes, 8u);
  const auto nvlinks = [&](const char* one, const char* other) {
    return nvlinks_between(graph, graph.find(one), graph.find(other));
  };
  EXPECT_EQ(nvlinks("gpu:0", "gpu:1").up, 1u);
  EXPECT_EQ(nvlinks("gpu:0", "gpu:1").down, 1u);
  EXPECT_EQ(nvlinks("gpu:0", "gpu:2").up, 2u);
  EXPECT_EQ(nvlinks("gpu:1", "gpu:2").bandwidth, 2 * 26.562e9);
  uint64_t errors = 0;
  for (const Link& link : graph.links) errors += link.errors;
  EXPECT_EQ(errors, 7u);  // of port 0 of the first; it tells of those of the others' port 0, too
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(graph), "x", &again), TW_OK) << last_error();
}

/// Whoever tells of a link that is down, and whether it says where it leads: it is there, and down.
TEST_F(Discovered, LinksThatAreDownStay) {
  where_.nvml = FAKE_NVML;
  const auto seen = [&](const char* shape) {
    setenv("THALWEG_FAKE_NVML", shape, 1);
    Graph again;
    EXPECT_EQ(parse_graph(format_graph(discover(where_).graph), "x", &again), TW_OK) << last_error();
    return again;
  };
  const auto down = [](const Graph& graph) {
    return std::count_if(graph.links.begin(), graph.links.end(), [](const Link& link) { return !link.up; });
  };
  const Graph half = seen("half"), dark = seen("dark"), stuck = seen("stuck");
  for (const Graph* graph : {&half, &dark, &stuck}) EXPECT_TRUE(graph->nvlinks_known);
  EXPECT_EQ(down(half), 1);
  EXPECT_EQ(nvlinks_between(half, half.find("gpu:0"), half.find("gpu:1")).up, 1u);
  EXPECT_EQ(nvlinks_between(half, half.find("gpu:0"), half.find("gpu:1")).down, 1u);
  EXPECT_EQ(down(dark), 2);  // of each end, as nobody says that they belong together
  const Distance distance = distance_between(dark, dark.find("gpu:0"), dark.find("gpu:1"));
  EXPECT_EQ(distance.kind, "NV1");
  EXPECT_EQ(
      distance.note,
      "1 NVLink of gpu:0 is down and does not say where it leads; 1 NVLink of gpu:1 is down and does not say where it leads");
  EXPECT_EQ(distance_between(dark, dark.find("gpu:0"), dark.find("gpu:2")).kind, "NV2");
  EXPECT_EQ(down(stuck), 2);  // and that between the first two
  EXPECT_EQ(nvlinks_between(stuck, stuck.find("gpu:1"), stuck.find("gpu:2")).down, 1u);
}

/// As the driver says it, for each pair and use; it stays in files, and is nothing where nobody says it.
TEST_F(Discovered, WhyThereIsNoAccessBetweenGpus) {
  where_.nvml = FAKE_NVML;
  setenv("THALWEG_FAKE_NVML", "apart", 1);
  Graph graph;
  ASSERT_EQ(parse_graph(format_graph(discover(where_).graph), "x", &graph), TW_OK) << last_error();
  ASSERT_EQ(graph.peers.size(), 3u);
  const auto said = [&](const char* one, const char* other, PeerUse use) -> std::string {
    for (const Peers& peers : graph.peers)
      if (graph.id(peers.from) == one && graph.id(peers.to) == other) return name_of(peers.status[static_cast<size_t>(use)]);
    return "no such pair";
  };
  for (const PeerUse use : {PeerUse::read, PeerUse::write, PeerUse::nvlink}) {
    EXPECT_EQ(said("gpu:0", "gpu:1", use), "chipset not supported");
    EXPECT_EQ(said("gpu:0", "gpu:2", use), "disabled by registry key");
    EXPECT_EQ(said("gpu:1", "gpu:2", use), "ok");
  }
  EXPECT_EQ(said("gpu:0", "gpu:1", PeerUse::atomics), "");
  EXPECT_EQ(said("gpu:1", "gpu:2", PeerUse::atomics), "ok");
  where_.nvml = "none";
  EXPECT_TRUE(discover(where_).graph.peers.empty());
}

TEST_F(Discovered, WithoutNvmlNvlinksAreNotKnown) {
  describe_processors();
  describe_pci();
  const Graph graph = discover(where_).graph;
  EXPECT_FALSE(graph.nvlinks_known);
  Graph again;
  ASSERT_EQ(parse_graph(format_graph(graph), "x", &again), TW_OK) << last_error();
  EXPECT_FALSE(again.nvlinks_known);
  const Distance distance = distance_between(again, again.find("gpu:0"), again.find("gpu:2"));
  EXPECT_NE(distance.note.find("NVLinks are not known"), std::string::npos) << distance.note;
  EXPECT_EQ(reach_between(again, again.find("gpu:0"), again.find("gpu:2")).by, Reach::By::unknown);
}

/// An interface's name may be any bytes, a card's name for verbs any length.
TEST_F(Discovered, NamesAreTextsWhateverTheFilesHave) {
  describe_processors();
  describe_pci();
  name_card("infiniband/\xff\xfe" + std::string(200, 'x'), "pci0000:00/0000:00:02.0/0000:06:00.0");
  say("class/dmi/id/product_name", std::string(255, 'y') + "\xc3\xa9");
  const Graph graph = discover(where_).graph;
  EXPECT_EQ(graph.name, std::string(255, 'y'));
  EXPECT_EQ(graph.nodes[graph.find("nic:1")].name, "??" + std::string(200, 'x'));
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(graph), "x", &again), TW_OK) << last_error();
}

/// As deep as folders can be nested, which is deeper than a topology may be.
TEST_F(Discovered, SwitchesBelowEachOtherAreNotTooDeepForAFile) {
  describe_processors();
  std::string path = "pci0000:00/";
  for (unsigned bus = 0; bus < 40; ++bus) {
    char name[16], other[16];
    std::snprintf(name, sizeof name, "0000:%02x:00.0", bus);
    std::snprintf(other, sizeof other, "0000:%02x:01.0", bus);
    describe_function(path + name, "0x060400", "0x10b5", 0);
    describe_function(path + name + "/" + other, "0x030200", "0x10de", 0);
    path += std::string(name) + "/";
  }
  describe_function(path + "0000:90:00.0", "0x030200", "0x10de", 0);
  const Graph graph = discover(where_).graph;
  EXPECT_EQ(graph.count(NodeKind::gpu), 41u);
  EXPECT_EQ(graph.count(NodeKind::pcie_switch), 32u);
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(graph), "x", &again), TW_OK) << last_error();
}

TEST_F(Discovered, NvlinksThroughSwitchesAlsoWhereOneDoesNotSayWhereItLeads) {
  where_.nvml = FAKE_NVML;
  setenv("THALWEG_FAKE_NVML", "switch", 1);
  const Graph graph = discover(where_).graph;
  EXPECT_EQ(graph.count(NodeKind::nvswitch), 2u);
  const NvLinks links = nvlinks_between(graph, graph.find("gpu:0"), graph.find("gpu:1"));
  EXPECT_EQ(links.up, 3u);
  EXPECT_EQ(links.down, 1u);
  EXPECT_TRUE(links.switched);
}

TEST_F(Discovered, NvmlThatDoesNotBeginLeavesAll) {
  describe_processors();
  where_.nvml = FAKE_NVML;
  const Discovery found = discover(where_);
  EXPECT_EQ(found.graph.count(NodeKind::gpu), 0u);
  EXPECT_EQ(found.graph.count(NodeKind::core), 4u);
  EXPECT_NE(found.why_no_nvml.find("does not begin"), std::string::npos);
}

/// hwloc's file of a machine as `lstopo machine.xml` writes it.
TEST_F(Discovered, HwlocsFileOfAnotherMachine) {
  where_ = {};
  where_.nvml = "none";
  where_.xml = std::string(THALWEG_SOURCE) + "/tests/fixtures/topologies/two_packages.hwloc.xml";
  const Discovery found = discover(where_);
  if (found.hwloc.empty()) GTEST_SKIP() << found.why_no_hwloc;
  EXPECT_EQ(tree(found.graph),
            "package:0<machine numa:0<package:0 cache:0<numa:0 package:1<machine numa:1<package:1 cache:1<numa:1 "
            "bridge:0<numa:1 switch:0<bridge:0 gpu:0<switch:0 nic:0<switch:0(mlx5_0) ");
  EXPECT_EQ(found.graph.nodes[found.graph.find("core:1")].processors, (std::vector<unsigned>{1, 5}));
  EXPECT_EQ(found.graph.nodes[found.graph.find("gpu:0")].pci, "0000:83:00.0");
}

/// NUMA nodes below a shared cache, and memory without processors (CXL) around both.
TEST_F(Discovered, HwlocsNodesBelowACacheAndMemoryAroundThem) {
  where_ = {};
  where_.nvml = "none";
  where_.xml = std::string(THALWEG_SOURCE) + "/tests/fixtures/topologies/nodes_below_cache.hwloc.xml";
  const Discovery found = discover(where_);
  if (found.hwloc.empty()) GTEST_SKIP() << found.why_no_hwloc;
  EXPECT_EQ(tree(found.graph), "package:0<machine cache:0<package:0 numa:0<cache:0 numa:1<cache:0 ");
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(found.graph), "x", &again), TW_OK) << last_error();
  const CpuTopology processors = CpuTopology::of(again);
  EXPECT_EQ(processors.between(0, 2), CpuDistance::cache);
}

/// Both readers of this machine say the same of its processors, and of their distances.
TEST(ThisMachine, IsTheSameByHwlocAndByTheKernelsFiles) {
  Where where;
  where.nvml = "none";
  const Discovery by_hwloc = discover(where);
  where.hwloc = "none";
  const Discovery by_files = discover(where);
  const std::vector<unsigned> processors = all_of(by_files.graph).processors;
  ASSERT_FALSE(processors.empty());
  const CpuTopology files = CpuTopology::of(by_files.graph), kernel = CpuTopology::of_machine();
  for (const unsigned one : processors) {
    for (const unsigned other : processors) {
      if (one == other) continue;
      ASSERT_EQ(name_of(files.between(one, other)), std::string(name_of(kernel.between(one, other))));
    }
  }
  if (by_hwloc.hwloc.empty()) GTEST_SKIP() << by_hwloc.why_no_hwloc;
  const CpuTopology hwloc = CpuTopology::of(by_hwloc.graph);
  for (const unsigned one : all_of(by_hwloc.graph).processors) {
    for (const unsigned other : all_of(by_hwloc.graph).processors) {
      if (one == other) continue;
      ASSERT_EQ(name_of(hwloc.between(one, other)), std::string(name_of(kernel.between(one, other))));
    }
  }
  EXPECT_EQ(by_hwloc.graph.count(NodeKind::numa), by_files.graph.count(NodeKind::numa));
  EXPECT_EQ(by_hwloc.graph.count(NodeKind::nic), by_files.graph.count(NodeKind::nic));
  Graph again;
  EXPECT_EQ(parse_graph(format_graph(by_hwloc.graph), "x", &again), TW_OK) << last_error();
}

TEST(ThisProcess, GoesByTheFileOfItsEnvironment) {
  const Graph* graph = nullptr;
  const std::string file = std::string(THALWEG_SOURCE) + "/tests/fixtures/topologies/no_gpu.json";
  setenv("THALWEG_TOPOLOGY", file.c_str(), 1);
  ASSERT_EQ(current(&graph), TW_OK) << last_error();
  EXPECT_EQ(graph->file, file);
  EXPECT_EQ(graph->count(NodeKind::numa), 8u);
  EXPECT_EQ(CpuTopology::current().between(0, 16), CpuDistance::far);
  setenv("THALWEG_TOPOLOGY", "/no/such/file", 1);
  EXPECT_TRUE(is_error(current(&graph)));
  EXPECT_TRUE(is_error(saved(&graph)));
  unsetenv("THALWEG_TOPOLOGY");
  ASSERT_EQ(saved(&graph), TW_OK);
  EXPECT_EQ(graph, nullptr);
  ASSERT_EQ(current(&graph), TW_OK);
  EXPECT_TRUE(graph->file.empty());
}

}  // namespace
}  // namespace thalweg::impl::topology
