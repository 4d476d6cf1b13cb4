// SPDX-License-Identifier: Apache-2.0
// Reads topologies. Ids are numbered in order and parents stand before their children, so a graph that passes has no circle, no
// number twice and no end that is not there.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/printable.hpp"
#include "base/unique_fd.hpp"
#include "topology/fields.hpp"
#include "topology/format.hpp"

namespace thalweg::impl::topology {
namespace {

using Kind = NodeKind;
constexpr unsigned kMostDevices = 64;  // of a kind: what lies between any two of them is looked at
constexpr size_t kMostPairs = size_t{kMostDevices} * (kMostDevices - 1) / 2;
constexpr uint64_t kMostMemory = uint64_t{1} << 52;
constexpr unsigned kMostGeneration = 6, kMostLanes = 32, kMostVersion = 5, kMostPort = 255;

constexpr unsigned bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }

/// The kinds that may contain one.
unsigned parents_of(Kind kind) {
  constexpr unsigned kMemory = bit(Kind::machine) | bit(Kind::package) | bit(Kind::numa);
  constexpr unsigned kPcie = kMemory | bit(Kind::bridge) | bit(Kind::pcie_switch);
  constexpr unsigned kOf[] = {0,
                              bit(Kind::machine) | bit(Kind::numa),
                              bit(Kind::machine) | bit(Kind::package) | bit(Kind::cache),
                              kMemory,
                              kMemory | bit(Kind::cache),
                              kMemory,
                              kPcie,
                              kPcie,
                              kPcie,
                              kPcie};
  static_assert(std::size(kOf) == kNodeKinds);
  return kOf[static_cast<size_t>(kind)];
}

class FormatReader {
 public:
  FormatReader(std::string_view text, const std::string& file) : place_{printable(file), text} {}

  Status read(Graph* out) {
    if (place_.text.size() > kMostFileBytes) return place_.refuse(0, "more than 8 MiB; a topology has a few hundred KiB");
    JsonValue root;
    JsonError error;
    if (!parse_json(place_.text, &root, &error)) return place_.refuse(error.at, error.what + "; this is not JSON");
    if (Status s = head(root); is_error(s)) return s;
    if (Status s = each(root, "nodes", kMostNodes, &FormatReader::node); is_error(s)) return s;
    if (graph_.nodes.empty()) return place_.refuse(root.at, "there are no nodes; the first is {\"id\": \"machine\"}");
    if (Status s = each(root, "links", kMostLinks, &FormatReader::link); is_error(s)) return s;
    if (Status s = each(root, "peers", kMostPairs, &FormatReader::peers); is_error(s)) return s;
    *out = std::move(graph_);
    return TW_OK;
  }

 private:
  Status head(const JsonValue& root) {
    const Fields fields(root, place_);
    if (Status s = fields.only({"format", "name", "source", "nvlinks", "nodes", "links", "peers"}); is_error(s)) return s;
    std::string format;
    if (Status s = fields.text("format", 64, &format); is_error(s)) return s;
    if (format != "thalweg topology 1")
      return place_.refuse(root.at, "\"format\" is not \"thalweg topology 1\"; `thalweg topo --json` writes such a file");
    if (Status s = fields.text("name", 256, &graph_.name); is_error(s)) return s;
    std::string nvlinks = "known";
    if (Status s = fields.text("nvlinks", 16, &nvlinks); is_error(s)) return s;
    if (nvlinks != "known" && nvlinks != "unknown")
      return fields.refuse("nvlinks", "is \"known\", or \"unknown\" where nobody told of NVLinks");
    graph_.nvlinks_known = nvlinks == "known";
    return fields.text("source", 4096, &graph_.source);
  }

  Status each(const JsonValue& root, std::string_view name, size_t most, Status (FormatReader::*read)(const JsonValue&)) {
    const JsonValue* const list = root.find(name);
    if (list == nullptr) return TW_OK;
    if (list->kind != JsonValue::Kind::list || list->list.size() > most)
      return place_.refuse(list->at, in_quotes(name) + " needs a list of at most " + std::to_string(most));
    for (const JsonValue& one : list->list)
      if (Status s = (this->*read)(one); is_error(s)) return s;
    return TW_OK;
  }

  // ---- nodes
  Status node(const JsonValue& value) {
    const Fields fields(value, place_);
    Status status = fields.only({"id", "parent", "name", "pci", "uuid", "memory", "speed", "processors", "state"});
    if (is_error(status)) return status;
    Node node;
    std::string id;
    if (status = identify(fields, &id, &node); is_error(status)) return status;
    if (status = place_under(fields, &node); is_error(status)) return status;
    if (status = fields.text("name", 256, &node.name); is_error(status)) return status;
    if (status = fields.text("pci", 32, &node.pci); is_error(status)) return status;
    if (status = uuid(fields, &node); is_error(status)) return status;
    if (status = fields.whole("memory", kMostMemory, &node.memory); is_error(status)) return status;
    if (status = fields.rate("speed", &node.speed); is_error(status)) return status;
    if (status = card(fields, &node); is_error(status)) return status;
    if (status = processors(fields, &node); is_error(status)) return status;
    const bool device = node.kind == Kind::gpu || node.kind == Kind::nic || node.kind == Kind::nvswitch;
    if (device && node.number >= kMostDevices) return fields.refuse("id", "is beyond 64 of that kind");
    ids_.emplace(id, graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
    return TW_OK;
  }

  Status identify(const Fields& fields, std::string* id, Node* node) {
    if (!fields.has("id")) return fields.refuse("a node without \"id\"; write \"gpu:0\" and its like");
    if (Status s = fields.text("id", 32, id); is_error(s)) return s;
    for (size_t i = 0; i < kNodeKinds; ++i) {
      node->kind = static_cast<Kind>(i);
      node->number = count_[i];
      const std::string wanted = i == 0 ? "machine" : name_of(node->kind) + (":" + std::to_string(count_[i]));
      if (*id == wanted && (i != 0) == !graph_.nodes.empty()) return ++count_[i], TW_OK;
    }
    const std::string kind = id->substr(0, id->find(':'));
    for (size_t i = 1; i < kNodeKinds && !graph_.nodes.empty(); ++i) {
      if (kind != name_of(static_cast<Kind>(i))) continue;
      return fields.refuse("id", "is " + in_quotes(*id) + "; kinds are numbered in order, so the next is " +
                                     in_quotes(kind + ":" + std::to_string(count_[i])));
    }
    return fields.refuse("id",
                         "is " + in_quotes(*id) +
                             "; the first node is \"machine\", others are package, numa, cache, core, bridge, switch, gpu, "
                             "nic, nvswitch with a number: \"gpu:0\"");
  }

  Status place_under(const Fields& fields, Node* node) {
    if (node->kind == Kind::machine)
      return fields.has("parent") ? fields.refuse("parent", "has no place at the machine: it is in nothing") : TW_OK;
    std::string id;
    if (!fields.has("parent")) return fields.refuse("a node without \"parent\"; only the machine has none");
    if (Status s = fields.text("parent", 32, &id); is_error(s)) return s;
    const auto found = ids_.find(id);
    if (found == ids_.end())
      return fields.refuse("parent",
                           "is " + in_quotes(id) + ", which no node before this one has; parents stand before children");
    node->parent = found->second;
    const Kind kind = graph_.nodes[node->parent].kind;
    if (node->kind == Kind::pcie_switch && switches_above(node->parent) >= kMostSwitches)
      return fields.refuse("parent", "is below " + std::to_string(kMostSwitches) + " switches already, the most there may be");
    if ((parents_of(node->kind) & bit(kind)) != 0 && !nested(node->parent, node->kind)) return TW_OK;
    return fields.refuse("parent", std::string("of a ") + name_of(node->kind) + " cannot be " + in_quotes(id));
  }

  /// Is there one of that kind around it already? Packages and NUMA nodes may contain each other, but once. Switches are nested.
  bool nested(size_t parent, Kind kind) const { return kind != Kind::pcie_switch && graph_.around(parent, kind) != kNoNode; }

  unsigned switches_above(size_t node) const {
    unsigned count = 0;
    for (; node != kNoNode; node = graph_.nodes[node].parent) count += graph_.nodes[node].kind == Kind::pcie_switch ? 1 : 0;
    return count;
  }

  Status uuid(const Fields& fields, Node* node) {
    if (Status s = fields.text("uuid", 32, &node->uuid); is_error(s)) return s;
    const bool digits = node->uuid.find_first_not_of("0123456789abcdef") == std::string::npos;
    const bool fits = node->uuid.empty() || (node->kind == Kind::gpu && node->uuid.size() == 32 && digits);
    if (!fits) return fields.refuse("uuid", "is 32 hexadecimal digits, in lower case, of a GPU");
    if (node->uuid.empty() || uuids_.emplace(node->uuid, 0).second) return TW_OK;
    return fields.refuse("uuid", "is another GPU's, too");
  }

  Status card(const Fields& fields, Node* node) const {
    for (const char* const name : {"speed", "state"})
      if (node->kind != Kind::nic && fields.has(name)) return fields.refuse(name, "is of network cards (nic) only");
    return fields.state(&node->up);
  }

  Status processors(const Fields& fields, Node* node) {
    std::string list;
    if (Status s = fields.text("processors", 4096, &list); is_error(s)) return s;
    if ((node->kind == Kind::core) == list.empty())
      return fields.refuse("processors", "is needed of each core, and of nothing else: \"0,56\" and its like");
    if (!parse_list(list, &node->processors))
      return fields.refuse("processors", "is " + in_quotes(list) + "; write ascending numbers below 1024: \"0-3,8\"");
    for (const unsigned processor : node->processors) {
      if (taken_[processor])
        return fields.refuse("processors", "has " + std::to_string(processor) + ", which another core has");
      taken_.set(processor);
    }
    return TW_OK;
  }

  // ---- links
  Status link(const JsonValue& value) {
    const Fields fields(value, place_);
    Status status = fields.only({"kind", "from", "to", "bandwidth", "source", "generation", "lanes", "most_generation",
                                 "most_lanes", "version", "port", "count", "errors", "state"});
    if (is_error(status)) return status;
    Link link;
    if (status = kind(fields, &link); is_error(status)) return status;
    if (status = end(fields, "from", &link.from); is_error(status)) return status;
    const bool nowhere = link.kind == LinkKind::nvlink && !fields.has("to");  // it does not say where it leads
    if (!nowhere && is_error(status = end(fields, "to", &link.to))) return status;
    if (status = ends(fields, link); is_error(status)) return status;
    if (status = link.kind == LinkKind::nvlink ? nvlink(fields, &link) : other(fields, &link); is_error(status)) return status;
    if (status = bandwidth(fields, &link); is_error(status)) return status;
    unsigned count = 1;
    if (status = fields.whole("count", 64u, &count); is_error(status)) return status;
    if (count == 0 || (count > 1 && link.kind != LinkKind::nvlink) || graph_.links.size() + count > kMostLinks)
      return fields.refuse("count", "is 1 to 64 NVLinks side by side, and a topology has at most 32768 links");
    for (; count > 0; --count, ++link.port) graph_.links.push_back(link);
    return TW_OK;
  }

  Status kind(const Fields& fields, Link* link) const {
    std::string word;
    if (Status s = fields.text("kind", 16, &word); is_error(s)) return s;
    for (size_t i = 0; i < kLinkKinds; ++i) {
      link->kind = static_cast<LinkKind>(i);
      if (word == name_of(link->kind)) return TW_OK;
    }
    return fields.refuse("kind", "of a link is pcie, nvlink, memory or socket");
  }

  Status end(const Fields& fields, std::string_view name, size_t* out) const {
    std::string id;
    if (Status s = fields.text(name, 32, &id); is_error(s)) return s;
    const auto found = ids_.find(id);
    if (found == ids_.end()) return fields.refuse(name, "of a link is " + in_quotes(id) + ", which no node has");
    *out = found->second;
    return TW_OK;
  }

  Status ends(const Fields& fields, const Link& link) {
    const Node& from = graph_.nodes[link.from];
    constexpr unsigned kPcie = bit(Kind::pcie_switch) | bit(Kind::gpu) | bit(Kind::nic) | bit(Kind::nvswitch);
    constexpr unsigned kNvlink = bit(Kind::gpu) | bit(Kind::nvswitch), kSocket = bit(Kind::numa) | bit(Kind::package);
    const auto among = [](const Node& node, unsigned kinds) { return (bit(node.kind) & kinds) != 0; };
    if (link.to == kNoNode)
      return from.kind == Kind::gpu ? TW_OK : fields.refuse("from", "of an nvlink without \"to\" is the gpu that tells of it");
    const Node& to = graph_.nodes[link.to];
    switch (link.kind) {
      case LinkKind::pcie:
      case LinkKind::memory:
        if (!among(from, link.kind == LinkKind::pcie ? kPcie : bit(Kind::numa)) || from.parent != link.to)
          return fields.refuse("to", "of a pcie or memory link is the parent of its \"from\", a PCIe device or a NUMA node");
        return upward_.emplace(link.from, 0).second ? TW_OK : fields.refuse("from", "has such a link already");
      case LinkKind::nvlink:
        if (link.from != link.to && among(from, kNvlink) && among(to, kNvlink | bit(Kind::numa))) return TW_OK;
        return fields.refuse("to", "of an nvlink goes from a gpu or nvswitch to another one, or to a numa node");
      default:
        if (link.from != link.to && among(from, kSocket) && to.kind == from.kind) return TW_OK;
        return fields.refuse("to", "of a socket link goes between two packages, or two numa nodes");
    }
  }

  Status nvlink(const Fields& fields, Link* link) const {
    for (const char* const name : {"generation", "lanes", "most_generation", "most_lanes"})
      if (fields.has(name)) return fields.refuse(name, "is of pcie, not of nvlink");
    if (Status s = fields.whole("version", kMostVersion, &link->version); is_error(s)) return s;
    if (Status s = fields.whole("port", kMostPort, &link->port); is_error(s)) return s;
    if (Status s = fields.whole("errors", kMostMemory, &link->errors); is_error(s)) return s;
    return fields.state(&link->up);
  }

  Status other(const Fields& fields, Link* link) const {
    for (const char* const name : {"version", "port", "errors", "state"})
      if (fields.has(name)) return fields.refuse(name, "is of nvlink only");
    if (Status s = fields.whole("generation", kMostGeneration, &link->generation); is_error(s)) return s;
    if (Status s = fields.whole("lanes", kMostLanes, &link->lanes); is_error(s)) return s;
    if (Status s = fields.whole("most_generation", kMostGeneration, &link->most_generation); is_error(s)) return s;
    if (Status s = fields.whole("most_lanes", kMostLanes, &link->most_lanes); is_error(s)) return s;
    const unsigned all = link->generation + link->lanes + link->most_generation + link->most_lanes;
    return link->kind == LinkKind::pcie || all == 0 ? TW_OK
                                                    : fields.refuse("kind", "has generations and lanes only if it is pcie");
  }

  Status bandwidth(const Fields& fields, Link* link) const {
    if (Status s = fields.rate("bandwidth", &link->bandwidth); is_error(s)) return s;
    std::string word = fields.has("bandwidth") ? "file" : "unknown";
    if (Status s = fields.text("source", 16, &word); is_error(s)) return s;
    for (size_t i = 0; i < static_cast<size_t>(Source::count_); ++i)
      if (word == name_of(static_cast<Source>(i))) link->source = static_cast<Source>(i);
    const bool known = link->source != Source::unknown;
    if (known != fields.has("bandwidth") || (!known && word != "unknown"))
      return fields.refuse("source", "says where \"bandwidth\" comes from: standard, driver or file");
    if (known) return TW_OK;
    link->bandwidth =
        link->kind == LinkKind::pcie ? pcie_bandwidth(link->generation, link->lanes) : nvlink_bandwidth(link->version);
    if (link->bandwidth != 0) link->source = Source::standard;
    return TW_OK;
  }

  // ---- access between GPUs
  Status peers(const JsonValue& value) {
    const Fields fields(value, place_);
    if (Status s = fields.only({"from", "to", "read", "write", "nvlink", "atomics"}); is_error(s)) return s;
    Peers peers;
    if (Status s = end(fields, "from", &peers.from); is_error(s)) return s;
    if (Status s = end(fields, "to", &peers.to); is_error(s)) return s;
    const bool gpus = graph_.nodes[peers.from].kind == Kind::gpu && graph_.nodes[peers.to].kind == Kind::gpu;
    if (!gpus || peers.from == peers.to) return fields.refuse("to", "of peers and \"from\" are two GPUs");
    const auto pair = std::minmax(peers.from, peers.to);
    if (!pairs_.emplace(pair.first, pair.second).second) return fields.refuse("to", "and \"from\" are peers already");
    for (size_t use = 0; use < kPeerUses; ++use)
      if (Status s = peer_status(fields, static_cast<PeerUse>(use), &peers.status[use]); is_error(s)) return s;
    graph_.peers.push_back(peers);
    return TW_OK;
  }

  static Status peer_status(const Fields& fields, PeerUse use, PeerStatus* out) {
    std::string word, all;
    if (!fields.has(name_of(use))) return TW_OK;
    if (Status s = fields.text(name_of(use), 64, &word); is_error(s)) return s;
    for (size_t i = 1; i < static_cast<size_t>(PeerStatus::count_); ++i) {
      *out = static_cast<PeerStatus>(i);
      if (word == name_of(*out)) return TW_OK;
      all.append(all.empty() ? "" : ", ").append(name_of(*out));
    }
    return fields.refuse(name_of(use), "is " + in_quotes(word) + "; it is one of: " + all);
  }

  const TextPlace place_;
  Graph graph_;
  unsigned count_[kNodeKinds] = {};
  std::unordered_map<std::string, size_t> ids_;
  std::unordered_map<std::string, int> uuids_;
  std::unordered_map<size_t, int> upward_;
  std::set<std::pair<size_t, size_t>> pairs_;  // of peers
  std::bitset<kMostProcessors> taken_;
};

}  // namespace

Status parse_graph(std::string_view text, const std::string& file, Graph* out) {
  Graph graph;
  if (Status s = FormatReader(text, file).read(&graph); is_error(s)) return s;
  *out = std::move(graph);
  return TW_OK;
}

Status read_graph(const std::string& file, Graph* out) {
  const std::string what = "opening the topology of " + printable(file) + " (THALWEG_TOPOLOGY)";
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not hold the caller
  if (!fd) return fail_errno(errno, what.c_str());
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) return fail_errno(errno, what.c_str());
  if (!S_ISREG(found.st_mode)) return fail(TW_ERR_INVALID, "%s: it is no regular file; name one", what.c_str());
  std::string text(std::min(static_cast<size_t>(found.st_size), kMostFileBytes + 1), '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + length, text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, what.c_str());
    if (n == 0) break;
    length += static_cast<size_t>(n);
  }
  text.resize(length);
  if (Status s = parse_graph(text, file, out); is_error(s)) return s;
  out->file = file;
  return TW_OK;
}

}  // namespace thalweg::impl::topology
