// SPDX-License-Identifier: Apache-2.0
// What is in a machine, as one graph: a tree of what contains what, and typed links. Made once, then only read, by any thread.
//
//   machine > package > numa > cache (the last level) > core            processors belong to cores, by the system's numbers
//           numa > bridge (a PCIe host bridge) > switch > gpu, nic, nvswitch
//
// A level that a machine lacks, or that nothing is known of, is left out. PCIe bridges with one thing behind them are none here: what
// is behind is a child of what is before. A parent stands before its children, so there are no circles.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace thalweg::impl::topology {

enum class NodeKind : uint8_t { machine, package, numa, cache, core, bridge, pcie_switch, gpu, nic, nvswitch, count_ };
inline constexpr size_t kNodeKinds = static_cast<size_t>(NodeKind::count_);
/// As in names of nodes, and in files: "pcie_switch" is "switch".
const char* name_of(NodeKind kind);

enum class LinkKind : uint8_t { pcie, nvlink, memory, socket, count_ };
inline constexpr size_t kLinkKinds = static_cast<size_t>(LinkKind::count_);
const char* name_of(LinkKind kind);

/// Where a bandwidth comes from: nowhere, the standard's number for its generation, the driver, a file.
enum class Source : uint8_t { unknown, standard, driver, file, count_ };
const char* name_of(Source source);

/// Whether the driver gives one GPU access to another one's memory, or why not; untold: it does not say.
enum class PeerStatus : uint8_t { untold, ok, chipset, gpu, hub, registry_key, not_supported, unknown, count_ };
/// As in files: "chipset not supported"; of untold nothing.
const char* name_of(PeerStatus status);
enum class PeerUse : uint8_t { read, write, nvlink, atomics, count_ };
inline constexpr size_t kPeerUses = static_cast<size_t>(PeerUse::count_);
const char* name_of(PeerUse use);

inline constexpr size_t kNoNode = SIZE_MAX;
inline constexpr unsigned kMostProcessors = 1024;  // CPU_SETSIZE
inline constexpr unsigned kMostSwitches = 32;      // of PCIe, above each other

struct Node {
  NodeKind kind = NodeKind::machine;
  unsigned number = 0;               // among its kind
  size_t parent = kNoNode;           // before it in the list
  std::string name;                  // a model, or a network card's interface: "NVIDIA H200", "mlx5_0"
  std::string pci;                   // "0000:1b:00.0"
  std::string uuid;                  // of a GPU: 32 hexadecimal digits, the same in every process
  uint64_t memory = 0;               // bytes: of a NUMA node, a GPU, a cache
  double speed = 0;                  // of a network card, bytes per second
  bool up = true;                    // of a network card
  std::vector<unsigned> processors;  // of a core, ascending
};

struct Link {
  LinkKind kind = LinkKind::pcie;
  size_t from = kNoNode,
         to = kNoNode;   // of pcie: a node and its parent; of an nvlink that does not say where it leads: kNoNode
  double bandwidth = 0;  // bytes per second in each direction; 0: not known
  Source source = Source::unknown;
  unsigned generation = 0, lanes = 0;            // of pcie, as trained
  unsigned most_generation = 0, most_lanes = 0;  // as both ends could; 0: not known
  unsigned version = 0, port = 0;                // of nvlink; its number at `from`
  uint64_t errors = 0;                           // that the driver has counted
  bool up = true;                                // of nvlink
};

/// Two GPUs, as the driver tells of them; each pair once.
struct Peers {
  size_t from = kNoNode, to = kNoNode;
  PeerStatus status[kPeerUses] = {};
};

/// Bytes per second in each direction by the standard; 0: no such generation or version.
double pcie_bandwidth(unsigned generation, unsigned lanes);
double nvlink_bandwidth(unsigned version);

class Graph {
 public:
  std::string name;           // of the machine, for readers
  std::string source;         // "hwloc 2.9.0, nvml 12.4", "/sys": what said it
  std::string file;           // that it was read from; empty: it is this machine's
  bool nvlinks_known = true;  // false: nobody told of them, so there may be some that are not here
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<Peers> peers;

  /// Adds a node with the next number of its kind, returns its place.
  size_t add(NodeKind kind, size_t parent);
  /// "gpu:0", "machine".
  std::string id(size_t node) const;
  /// The node of an id, also "processor:7": its core. kNoNode: none.
  size_t find(std::string_view id) const;
  std::vector<size_t> all(NodeKind kind) const;
  size_t count(NodeKind kind) const;
  /// The nearest of that kind that contains it, or itself.
  size_t around(size_t node, NodeKind kind) const;
  bool contains(size_t outer, size_t inner) const;
  size_t common(size_t one, size_t other) const;
  /// The link to its parent, of pcie or memory; null: none is known.
  const Link* upward(size_t node) const;
};

/// "0-3,8": ascending numbers as text, and back. False: it is not such a list, or has numbers beyond kMostProcessors.
std::string format_list(const std::vector<unsigned>& numbers);
bool parse_list(std::string_view text, std::vector<unsigned>* out);

}  // namespace thalweg::impl::topology
