// SPDX-License-Identifier: Apache-2.0
// What a saved topology makes of the access between emulated devices.
#include "devices/topology_reach.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/devices/emulated_tools.hpp"
#include "topology/machine.hpp"

namespace thalweg::impl::emulated {
namespace {

/// Four GPUs on two NUMA nodes: NVLinks join 0-1, which are up, and 0-2 and 2-3, which are down. 3 is with 2.
constexpr char kMachine[] = R"({"format": "thalweg topology 1", "name": "t", "nodes": [{"id": "machine"},
  {"id": "numa:0", "parent": "machine"}, {"id": "numa:1", "parent": "machine"}, {"id": "gpu:0", "parent": "numa:0"},
  {"id": "gpu:1", "parent": "numa:0"}, {"id": "gpu:2", "parent": "numa:1"}, {"id": "gpu:3", "parent": "numa:1"}], "links": [
  {"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "version": 4, "count": 2},
  {"kind": "nvlink", "from": "gpu:0", "to": "gpu:2", "version": 4, "state": "down"},
  {"kind": "nvlink", "from": "gpu:2", "to": "gpu:3", "version": 4, "count": 3, "state": "down"}]})";

class SavedTopology : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/thalweg-reach-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    file_ = folder_ / "machine.json";
    std::ofstream(file_) << kMachine;
    setenv("THALWEG_TOPOLOGY", file_.c_str(), 1);
    for (unsigned i = 0; i < 5; ++i) devices_.push_back(open_device(i));
  }
  void TearDown() override {
    unsetenv("THALWEG_TOPOLOGY");
    std::filesystem::remove_all(folder_);
  }
  PeerAccess peer(unsigned from, unsigned to) const { return devices_[from]->peer(devices_[to]->uuid()); }
  std::string why(unsigned from, unsigned to) const { return why_no_peer_access(*devices_[from], devices_[to]->uuid()); }

  std::filesystem::path folder_, file_;
  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
};

TEST_F(SavedTopology, NamesTheLinkThatIsLeft) {
  EXPECT_EQ(peer(0, 1).link, DeviceLink::nvlink);
  EXPECT_TRUE(peer(0, 1).atomics);
  EXPECT_EQ(why_limited_by_topology(id_of(*devices_[0]), id_of(*devices_[1])), nullptr);
  EXPECT_EQ(peer(2, 3).link, DeviceLink::pcie);  // below one NUMA node
  EXPECT_TRUE(peer(2, 3).access);
  EXPECT_FALSE(peer(2, 3).atomics);
  EXPECT_EQ(why(2, 3), "all 3 NVLinks between gpu:2 and gpu:3 are down in " + file_.string());
  for (const unsigned other : {2u, 3u}) {
    EXPECT_FALSE(peer(0, other).access);
    EXPECT_FALSE(peer(other, 0).access);
    EXPECT_EQ(peer(0, other).link, DeviceLink::none);
  }
  EXPECT_EQ(why(0, 2),
            "NVLink between gpu:0 and gpu:2 is down in " + file_.string() + ", and they are on different NUMA nodes");
  EXPECT_EQ(why(1, 3), "no NVLink joins gpu:1 and gpu:3 in " + file_.string() + ", and they are on different NUMA nodes");
  EXPECT_EQ(peer(3, 3).link, DeviceLink::same);
}

TEST_F(SavedTopology, LeavesDevicesAloneThatItDoesNotHave) {
  EXPECT_EQ(peer(0, 4).link, DeviceLink::pcie);
  EXPECT_TRUE(peer(0, 4).atomics);
  EXPECT_EQ(why_limited_by_topology(id_of(*devices_[0]), id_of(*devices_[4])), nullptr);
  unsetenv("THALWEG_TOPOLOGY");
  EXPECT_EQ(peer(0, 2).link, DeviceLink::pcie);
  EXPECT_EQ(why(0, 2), "there is no peer access between the two devices");
}

TEST_F(SavedTopology, TakesAwayOnly) {
  Options alone;
  alone.peers = 0;
  const auto device = open_device(6, alone);
  EXPECT_FALSE(device->peer(devices_[1]->uuid()).access);
  EXPECT_EQ(limited_by_topology({}, id_of(*devices_[0]), id_of(*devices_[1])).access, false);
}

/// What the driver gives by PCIe does not become NVLink because a file says that there was one.
TEST_F(SavedTopology, MakesNoNvlinkOfPcie) {
  const DeviceId first = id_of(*devices_[0]), second = id_of(*devices_[1]);
  EXPECT_EQ(limited_by_topology({true, false, DeviceLink::pcie}, first, second).link, DeviceLink::pcie);
  EXPECT_EQ(limited_by_topology({true, true, DeviceLink::nvlink}, first, second).link, DeviceLink::nvlink);
  EXPECT_TRUE(limited_by_topology({true, true, DeviceLink::nvlink}, first, second).atomics);
}

/// A file that was saved where there was no NVML takes nothing away.
TEST_F(SavedTopology, LeavesAllWhereNobodyToldOfNvlinks) {
  std::string text = kMachine;
  text.replace(text.find("\"name\""), 0, "\"nvlinks\": \"unknown\", ");
  const std::string other = (folder_ / "unknown.json").string();
  std::ofstream(other) << text;
  setenv("THALWEG_TOPOLOGY", other.c_str(), 1);
  EXPECT_TRUE(peer(1, 3).access);  // in kMachine nothing joins them
  EXPECT_EQ(why_limited_by_topology(id_of(*devices_[1]), id_of(*devices_[3])), nullptr);
  EXPECT_FALSE(peer(0, 2).access);  // what is down is known to be
}

TEST_F(SavedTopology, NamesLinksThatAreDownBesideOthers) {
  std::string text = kMachine;
  text.replace(text.find("\"links\": ["), 10,
               R"("links": [{"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "state": "down"}, )");
  const std::string other = (folder_ / "some.json").string();
  std::ofstream(other) << text;
  setenv("THALWEG_TOPOLOGY", other.c_str(), 1);
  EXPECT_EQ(peer(0, 1).link, DeviceLink::nvlink);
  EXPECT_EQ(why_limited_by_topology(id_of(*devices_[0]), id_of(*devices_[1])), nullptr);
  EXPECT_STREQ(what_is_down_in_topology(id_of(*devices_[0]), id_of(*devices_[1])),
               ("1 of 3 NVLinks between gpu:0 and gpu:1 is down in " + other).c_str());
}

/// A kernel's access is refused, and so is an import: bytes go another way.
TEST_F(SavedTopology, IsWhatQueuesGoBy) {
  const auto queue = make_queue(*devices_[0]);
  const uint64_t near = allocate(*devices_[1], 64), far = allocate(*devices_[2], 64);
  EXPECT_EQ(queue->admit(Use::kernel, near, 64), TW_OK);
  EXPECT_EQ(queue->admit(Use::kernel, far, 64), TW_ERR_UNREACHABLE);
  EXPECT_EQ(queue->admit(Use::copy, far, 64), TW_OK);  // an engine gets there
  uint64_t at = 0;
  EXPECT_EQ(devices_[0]->allocate_at(devices_[2]->uuid(), 64, &at), TW_ERR_UNREACHABLE);
  EXPECT_EQ(devices_[1]->free(near), TW_OK);
  EXPECT_EQ(devices_[2]->free(far), TW_OK);
}

TEST_F(SavedTopology, KnowsDevicesByTheirUuidsWhereItHasSome) {
  topology::Graph graph;
  graph.add(topology::NodeKind::machine, topology::kNoNode);
  const size_t first = graph.add(topology::NodeKind::gpu, 0), second = graph.add(topology::NodeKind::gpu, 0);
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[0])), first);
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[1])), second);
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[2])), topology::kNoNode);
  constexpr char kDigits[] = "0123456789abcdef";
  for (const uint8_t byte : devices_[3]->uuid()) graph.nodes[first].uuid += {kDigits[byte >> 4], kDigits[byte & 15]};
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[3])), first);
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[1])), topology::kNoNode);  // numbers count only where there are no UUIDs
}

/// A part of a GPU (MIG) has a UUID of its own, and the GPU's address.
TEST_F(SavedTopology, KnowsDevicesByTheirAddressesWhereUuidsDiffer) {
  topology::Graph graph;
  graph.add(topology::NodeKind::machine, topology::kNoNode);
  const size_t first = graph.add(topology::NodeKind::gpu, 0), second = graph.add(topology::NodeKind::gpu, 0);
  graph.nodes[first].pci = "0000:1b:00.0";
  graph.nodes[second].pci = "0000:1c:00.0";
  graph.nodes[first].uuid = graph.nodes[second].uuid = std::string(32, '7');
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[0])), topology::kNoNode);
  set_pci_address(devices_[0]->uuid(), "0000:1c:00.0");
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[0])), second);
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[1])), topology::kNoNode);
  graph.nodes[first].uuid = graph.nodes[second].uuid = "";
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[0])), second);  // not by its number
  EXPECT_EQ(gpu_of(graph, id_of(*devices_[1])), second);
  set_pci_address(devices_[0]->uuid(), "");
}

}  // namespace
}  // namespace thalweg::impl::emulated
