// SPDX-License-Identifier: Apache-2.0
#include "topology/placement.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "topology/distance.hpp"

namespace thalweg::impl::topology {
namespace {

using Kind = NodeKind;
constexpr size_t kMostSets = 20000;  // of GPUs that are looked at: all of 16 by 8

/// The NUMA node that a GPU hangs on, by the tree or by its NVLinks to the CPU.
size_t numa_of(const Graph& graph, size_t node) {
  if (const size_t found = graph.around(node, Kind::numa); found != kNoNode) return found;
  for (const Link& link : graph.links) {
    if (link.kind == LinkKind::nvlink && link.from == node && link.to != kNoNode && graph.nodes[link.to].kind == Kind::numa)
      return link.to;
  }
  const std::vector<size_t> all = graph.all(Kind::numa);
  return all.size() == 1 ? all[0] : kNoNode;
}

/// A set of GPUs: the bandwidth among its pairs, then the NUMA nodes it is spread over.
using Score = std::tuple<double, size_t>;

class GpuChoice {
 public:
  GpuChoice(const Graph& graph, const std::vector<size_t>& gpus) : gpus_(gpus), bandwidth_(gpus.size() * gpus.size()) {
    for (size_t a = 0; a < gpus.size(); ++a) {
      numa_.push_back(numa_of(graph, gpus[a]));
      for (size_t b = 0; b < a; ++b) {
        const double between = distance_between(graph, gpus[a], gpus[b]).bandwidth;
        bandwidth_[a * gpus.size() + b] = bandwidth_[b * gpus.size() + a] = between;
      }
    }
  }

  /// `wanted` of them, ascending.
  std::vector<size_t> best(size_t wanted) const {
    std::vector<size_t> set = count_of_sets(wanted) <= kMostSets ? by_trying(wanted) : by_adding(wanted);
    std::sort(set.begin(), set.end());
    for (size_t& one : set) one = gpus_[one];
    return set;
  }

 private:
  size_t count_of_sets(size_t wanted) const {
    size_t sets = 1;
    for (size_t i = 0; i < wanted && sets <= kMostSets; ++i) sets = sets * (gpus_.size() - i) / (i + 1);
    return sets;
  }
  Score score(const std::vector<size_t>& set) const {
    double sum = 0;
    std::set<size_t> nodes;
    for (size_t i = 0; i < set.size(); ++i) {
      nodes.insert(numa_[set[i]]);
      for (size_t j = 0; j < i; ++j) sum += bandwidth_[set[i] * gpus_.size() + set[j]];
    }
    return {sum, nodes.size()};
  }
  /// In ascending order, so the first of equally good ones stays.
  std::vector<size_t> by_trying(size_t wanted) const {
    std::vector<bool> in(gpus_.size());
    std::fill_n(in.begin(), wanted, true);
    std::vector<size_t> best;
    Score most{-1, 0};
    do {
      std::vector<size_t> set;
      for (size_t i = 0; i < in.size(); ++i)
        if (in[i]) set.push_back(i);
      if (const Score now = score(set); now > most) {
        most = now;
        best = std::move(set);
      }
    } while (std::prev_permutation(in.begin(), in.end()));
    return best;
  }
  std::vector<size_t> by_adding(size_t wanted) const {
    std::vector<size_t> set;
    while (set.size() < wanted) {
      Score most{-1, 0};
      size_t next = 0;
      for (size_t i = 0; i < gpus_.size(); ++i) {
        if (std::find(set.begin(), set.end(), i) != set.end()) continue;
        set.push_back(i);
        if (const Score now = score(set); now > most) most = now, next = i;
        set.pop_back();
      }
      set.push_back(next);
    }
    return set;
  }

  const std::vector<size_t>& gpus_;
  std::vector<double> bandwidth_;
  std::vector<size_t> numa_;
};

/// The usable processors of each core, cores in the order of the tree: neighbours have most in common.
using Cores = std::vector<std::vector<unsigned>>;
template <class Wanted>
Cores cores_of(const Graph& graph, const std::vector<unsigned>& usable, Wanted wanted) {
  struct Place {
    size_t numa, cache;
    std::vector<unsigned> processors;
  };
  std::vector<Place> found;
  for (const size_t core : graph.all(Kind::core)) {
    if (!wanted(core)) continue;
    Place place{graph.around(core, Kind::numa), graph.around(core, Kind::cache), {}};
    const auto& all = graph.nodes[core].processors;
    std::set_intersection(all.begin(), all.end(), usable.begin(), usable.end(), std::back_inserter(place.processors));
    if (!place.processors.empty()) found.push_back(std::move(place));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Place& a, const Place& b) { return std::tie(a.numa, a.cache) < std::tie(b.numa, b.cache); });
  Cores cores;
  for (Place& place : found) cores.push_back(std::move(place.processors));
  return cores;
}

/// Each a piece of its own: first threads of all cores, then the second ones.
Cores processors_of(const Cores& cores) {
  Cores single;
  for (size_t thread = 0, found = 1; found > 0; ++thread) {
    found = 0;
    for (const auto& core : cores) {
      if (thread >= core.size()) continue;
      single.push_back({core[thread]});
      ++found;
    }
  }
  return single;
}

/// Divides pieces among `ranks` in their order; each has one at least, shared where there are too few.
void divide(const Cores& cores, const std::vector<RankPlace*>& ranks) {
  if (cores.empty()) return;
  const Cores pieces = cores.size() >= ranks.size() ? cores : processors_of(cores);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool shared = pieces.size() < ranks.size();
    const size_t begin = shared ? i % pieces.size() : i * pieces.size() / ranks.size();
    const size_t end = shared ? begin + 1 : (i + 1) * pieces.size() / ranks.size();
    auto& to = ranks[i]->processors;
    for (size_t piece = begin; piece < end; ++piece) to.insert(to.end(), pieces[piece].begin(), pieces[piece].end());
    std::sort(to.begin(), to.end());
  }
}

/// NUMA nodes with the cores of theirs that are usable, and the ranks that get them.
class Nodes {
 public:
  Nodes(const Graph& graph, const Usable& usable, std::vector<RankPlace>* ranks) : ranks_(*ranks) {
    for (const size_t node : graph.all(Kind::numa))
      add(node, cores_of(graph, usable.processors, [&](size_t core) { return graph.around(core, Kind::numa) == node; }));
    add(kNoNode, cores_of(graph, usable.processors, [&](size_t core) { return graph.around(core, Kind::numa) == kNoNode; }));
  }

  /// Each rank's node gives its cores to as many ranks as it has cores; the others go where most is left for each. With fewer cores
  /// than ranks that holds for processors, with fewer of those each node has a share of the ranks.
  void give() {
    if (nodes_.empty()) return;
    std::vector<RankPlace*> homeless;
    for (RankPlace& rank : ranks_) {
      const size_t home = static_cast<size_t>(std::find(nodes_.begin(), nodes_.end(), rank.numa) - nodes_.begin());
      if (rank.numa != kNoNode && home < nodes_.size() && given_[home].size() < room(home))
        given_[home].push_back(&rank);
      else
        homeless.push_back(&rank);
    }
    for (RankPlace* rank : homeless) given_[roomiest()].push_back(rank);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::sort(given_[i].begin(), given_[i].end());  // as the ranks are in their list
      divide(all_[i], given_[i]);
    }
  }

 private:
  void add(size_t node, Cores cores) {
    if (cores.empty()) return;
    nodes_.push_back(node);
    cores_ += cores.size();
    for (const auto& core : cores) processors_ += core.size();
    all_.push_back(std::move(cores));
    given_.emplace_back();
  }
  /// How many ranks a node may have.
  size_t room(size_t i) const {
    if (cores_ >= ranks_.size()) return all_[i].size();
    size_t processors = 0;
    for (const auto& core : all_[i]) processors += core.size();
    return processors * ((ranks_.size() + processors_ - 1) / processors_);
  }
  size_t roomiest() const {
    size_t best = 0;
    const auto left = [&](size_t i) { return static_cast<double>(room(i)) / static_cast<double>(given_[i].size() + 1); };
    for (size_t i = 1; i < nodes_.size(); ++i)
      if (left(i) > left(best)) best = i;
    return best;
  }

  std::vector<RankPlace>& ranks_;
  std::vector<size_t> nodes_;
  std::vector<Cores> all_;  // of each node
  std::vector<std::vector<RankPlace*>> given_;
  size_t cores_ = 0, processors_ = 0;
};

/// Where no rank has a GPU, all cores are divided in their order, whatever nodes they are on.
void give_processors(const Graph& graph, const Usable& usable, std::vector<RankPlace>* ranks) {
  if (std::any_of(ranks->begin(), ranks->end(), [](const RankPlace& rank) { return rank.numa != kNoNode; }))
    return Nodes(graph, usable, ranks).give();
  std::vector<RankPlace*> all;
  for (RankPlace& rank : *ranks) all.push_back(&rank);
  divide(cores_of(graph, usable.processors, [](size_t) { return true; }), all);
}

/// The NUMA node of each processor.
std::vector<size_t> numa_by_processor(const Graph& graph) {
  std::vector<size_t> numa(kMostProcessors, kNoNode);
  for (const size_t core : graph.all(Kind::core))
    for (const unsigned processor : graph.nodes[core].processors) numa[processor] = graph.around(core, Kind::numa);
  return numa;
}

/// That of all of them; kNoNode: they are on several, or it is not known.
size_t numa_of_all(const std::vector<size_t>& numa, const std::vector<unsigned>& processors) {
  if (processors.empty()) return kNoNode;
  const size_t first = numa[processors[0]];
  const bool one =
      std::all_of(processors.begin(), processors.end(), [&](unsigned processor) { return numa[processor] == first; });
  return one ? first : kNoNode;
}

unsigned farness(const std::string& kind) {
  constexpr const char* kKinds[] = {"PIX", "PXB", "PHB", "NODE"};
  for (unsigned i = 0; i < std::size(kKinds); ++i)
    if (kind == kKinds[i]) return i;
  return std::size(kKinds);
}

void give_cards(const Graph& graph, std::vector<RankPlace>* ranks) {
  const std::vector<size_t> cards = graph.all(Kind::nic);
  std::vector<unsigned> users(cards.size());
  std::map<size_t, std::vector<unsigned>> far;  // of each card from what a rank is at
  for (RankPlace& rank : *ranks) {
    const size_t from = rank.gpu != kNoNode ? rank.gpu : rank.numa != kNoNode ? rank.numa : 0;
    auto& distances = far[from];
    for (size_t i = distances.size(); i < cards.size(); ++i)
      distances.push_back(farness(distance_between(graph, from, cards[i]).kind));
    size_t best = cards.size();
    const auto rate = [&](size_t i) {
      const double speed = std::max(graph.nodes[cards[i]].speed, 1.0);
      return std::make_tuple(distances[i], (users[i] + 1) / speed);
    };
    for (size_t i = 0; i < cards.size(); ++i)
      if (graph.nodes[cards[i]].up && (best == cards.size() || rate(i) < rate(best))) best = i;
    if (best == cards.size()) continue;
    rank.nic = cards[best];
    ++users[best];
  }
}

}  // namespace

Usable all_of(const Graph& graph) {
  Usable all;
  for (const size_t core : graph.all(Kind::core))
    all.processors.insert(all.processors.end(), graph.nodes[core].processors.begin(), graph.nodes[core].processors.end());
  std::sort(all.processors.begin(), all.processors.end());
  all.gpus = graph.all(Kind::gpu);
  return all;
}

std::vector<RankPlace> place_ranks(const Graph& graph, const Usable& usable, unsigned ranks) {
  std::vector<RankPlace> places(ranks);
  std::vector<size_t> gpus = usable.gpus;
  if (ranks < gpus.size()) gpus = GpuChoice(graph, usable.gpus).best(ranks);
  std::map<size_t, unsigned> users;
  for (size_t rank = 0; rank < ranks && !gpus.empty(); ++rank) {
    places[rank].gpu = gpus[rank * gpus.size() / ranks];
    places[rank].numa = numa_of(graph, places[rank].gpu);
    ++users[places[rank].gpu];
  }
  for (RankPlace& one : places)
    if (one.gpu != kNoNode) one.shared = users[one.gpu];
  give_processors(graph, usable, &places);
  const std::vector<size_t> numa = numa_by_processor(graph);
  for (RankPlace& one : places) {  // where its processors are; of several nodes that of its GPU
    const size_t own = numa_of_all(numa, one.processors);
    if (one.gpu == kNoNode || own != kNoNode) one.numa = own;
  }
  give_cards(graph, &places);
  return places;
}

}  // namespace thalweg::impl::topology
