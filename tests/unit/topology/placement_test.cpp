// SPDX-License-Identifier: Apache-2.0
// Where ranks belong on the saved machines, and what holds of every placement.
#include "topology/placement.hpp"

#include <algorithm>
#include <random>
#include <set>

#include "tests/fixtures/topologies.hpp"

namespace thalweg::impl::topology {
namespace {

struct Said {
  std::string gpus, nics, numas, cores;  // numbers, or names of network cards; the first of each rank's processors
};

Said said(const Graph& graph, const std::vector<RankPlace>& places) {
  Said text;
  const auto number = [&](size_t node) {
    return node == kNoNode ? std::string("-") : std::to_string(graph.nodes[node].number);
  };
  for (const RankPlace& place : places) {
    const std::string gap = text.gpus.empty() ? "" : " ";
    text.gpus += gap + number(place.gpu);
    text.nics += gap + number(place.nic);
    text.numas += gap + number(place.numa);
    text.cores += gap + format_list(place.processors);
  }
  return text;
}

Said placed(const std::string& machine, unsigned ranks) {
  const Graph graph = graph_of(machine);
  return said(graph, place_ranks(graph, all_of(graph), ranks));
}

TEST(Placement, OneRankForEachGpuOfACubeMesh) {
  const Said eight = placed("dgx1", 8);
  EXPECT_EQ(eight.gpus, "0 1 2 3 4 5 6 7");
  EXPECT_EQ(eight.nics, "0 0 1 1 2 2 3 3");
  EXPECT_EQ(eight.numas, "0 0 0 0 1 1 1 1");
  EXPECT_EQ(eight.cores, "0-4,40-44 5-9,45-49 10-14,50-54 15-19,55-59 20-24,60-64 25-29,65-69 30-34,70-74 35-39,75-79");
}

TEST(Placement, FewerRanksTakeTheGpusWithTheBestLinks) {
  EXPECT_EQ(placed("dgx1", 4).gpus, "0 1 2 3");  // all joined; others have pairs without NVLinks
  // Two links join 0-3, 0-4, 1-2, 1-5 and more; of those, 0 and 4 are on two nodes.
  EXPECT_EQ(placed("dgx1", 2).gpus, "0 4");
  EXPECT_EQ(placed("dgx1", 1).gpus, "0");
  EXPECT_EQ(placed("power9", 2).gpus, "0 1");            // by NVLink instead of one on each socket
  EXPECT_EQ(placed("two_sockets_pcie", 2).gpus, "0 2");  // equally wide, so with the memory of both sockets
  // All equally good: over the sockets, so that each rank has more of the memory.
  EXPECT_EQ(placed("hgx_h200_8", 2).gpus, "0 4");
  EXPECT_EQ(placed("hgx_h200_8", 2).numas, "0 1");
}

TEST(Placement, CardsAreTheNearestAndShared) {
  EXPECT_EQ(placed("hgx_h200_8", 8).nics, "0 1 2 3 4 5 6 7");
  EXPECT_EQ(placed("hgx_h200_4", 4).nics, "0 1 2 3");
  EXPECT_EQ(placed("two_sockets_pcie", 4).nics, "0 0 1 1");
  EXPECT_EQ(placed("power9", 4).nics, "0 0 1 1");
  EXPECT_EQ(placed("no_gpu", 8).nics, "1 1 1 1 1 1 1 1");  // the other one is down
}

TEST(Placement, MoreRanksShareGpusEvenly) {
  const Graph graph = graph_of("hgx_h200_4");
  const std::vector<RankPlace> places = place_ranks(graph, all_of(graph), 8);
  EXPECT_EQ(said(graph, places).gpus, "0 0 1 1 2 2 3 3");
  for (const RankPlace& place : places) {
    EXPECT_EQ(place.shared, 2u);
    EXPECT_EQ(place.processors.size(), 28u);  // 14 cores of two threads
  }
}

TEST(Placement, WithoutGpusCoresAreDividedInTheirOrder) {
  const Said eight = placed("no_gpu", 8);
  EXPECT_EQ(eight.gpus, "- - - - - - - -");
  EXPECT_EQ(eight.numas, "0 1 2 3 4 5 6 7");
  EXPECT_EQ(eight.cores.substr(0, 29), "0-15,128-143 16-31,144-159 32");
  EXPECT_EQ(placed("arm", 3).cores, "0-41 42-84 85-127");
  EXPECT_EQ(placed("no_gpu", 1).numas, "-");  // on all nodes
}

TEST(Placement, RanksBeyondTheCoresHaveThreadsThenShare) {
  Graph graph = graph_of("no_gpu");
  Usable few = all_of(graph);
  few.processors = {0, 1, 128, 129};
  EXPECT_EQ(said(graph, place_ranks(graph, few, 2)).cores, "0,128 1,129");
  EXPECT_EQ(said(graph, place_ranks(graph, few, 4)).cores, "0 1 128 129");
  EXPECT_EQ(said(graph, place_ranks(graph, few, 5)).cores, "0 1 128 129 0");
}

TEST(Placement, KeepsToWhatIsUsable) {
  const Graph graph = graph_of("dgx1");
  Usable some = all_of(graph);
  some.gpus = {graph.find("gpu:5"), graph.find("gpu:6")};
  EXPECT_EQ(said(graph, place_ranks(graph, some, 2)).gpus, "5 6");
  some.processors = {0, 1, 2, 3};  // of the other socket: better than none
  EXPECT_EQ(said(graph, place_ranks(graph, some, 2)).cores, "0-1 2-3");
}

/// The processors of one socket, the GPUs of both: a job step's cpuset.
TEST(Placement, WithinOneSocketNoCoreIsShared) {
  const Graph graph = graph_of("two_sockets_pcie");
  Usable some = all_of(graph);
  some.processors.clear();
  for (unsigned core = 0; core < 8; ++core) some.processors.push_back(core);
  const Said four = said(graph, place_ranks(graph, some, 4));
  EXPECT_EQ(four.gpus, "0 1 2 3");
  EXPECT_EQ(four.cores, "0-1 2-3 4-5 6-7");
  EXPECT_EQ(four.numas, "0 0 0 0");  // where their processors are
}

/// One GPU: its socket has as many ranks as cores, the others have cores of the other socket.
TEST(Placement, RanksBeyondASocketsCoresGoToTheOther) {
  const Graph graph = graph_of("two_sockets_pcie");
  Usable some = all_of(graph);
  some.gpus = {graph.find("gpu:3")};
  some.processors = {0, 1, 32, 33, 34};
  const Said five = said(graph, place_ranks(graph, some, 5));
  EXPECT_EQ(five.cores, "32 33 34 0 1");
  EXPECT_EQ(five.numas, "1 1 1 0 0");
  EXPECT_EQ(said(graph, place_ranks(graph, some, 3)).cores, "32 33 34");
  EXPECT_EQ(said(graph, place_ranks(graph, some, 2)).cores, "32 33-34");
}

/// Whatever is usable: no processor is in two ranks while there is a core, or where there are none a processor, for each.
TEST(Placement, OfEnoughUsableProcessorsNoneIsShared) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const char* const machine : kMachines) {
    const Graph graph = graph_of(machine);
    for (unsigned round = 0; round < 60; ++round) {
      Usable usable = all_of(graph);
      const unsigned part = 2 + static_cast<unsigned>(random() % 12), first = static_cast<unsigned>(random() % 64);
      const bool near = random() % 2 == 0;  // neighbours, as in a cpuset, or any
      std::erase_if(usable.processors, [&](unsigned processor) {
        return near ? processor < first || processor > first + part : random() % part != 0;
      });
      std::erase_if(usable.gpus, [&](size_t) { return random() % 2 == 0; });
      if (usable.processors.empty()) continue;
      const auto ranks = 1 + static_cast<unsigned>(random() % usable.processors.size());
      std::set<unsigned> taken;
      for (const RankPlace& place : place_ranks(graph, usable, ranks)) {
        ASSERT_FALSE(place.processors.empty());
        for (const unsigned processor : place.processors)
          ASSERT_TRUE(taken.insert(processor).second) << machine << ' ' << ranks << " ranks: " << processor;
      }
    }
  }
}

/// Disjoint while there are enough, all used in turn, each rank has its own, whatever is usable.
TEST(Placement, HoldsWhateverIsUsable) {
  std::mt19937 random(std::random_device{}());
  for (const char* const machine : kMachines) {
    const Graph graph = graph_of(machine);
    for (unsigned round = 0; round < 40; ++round) {
      Usable usable = all_of(graph);
      std::erase_if(usable.processors, [&](unsigned) { return random() % 3 == 0; });
      std::erase_if(usable.gpus, [&](size_t) { return random() % 3 == 0; });
      const unsigned ranks = 1 + static_cast<unsigned>(random() % 40);
      const std::vector<RankPlace> places = place_ranks(graph, usable, ranks);
      ASSERT_EQ(places.size(), ranks);
      std::map<size_t, unsigned> users;
      for (const RankPlace& place : places) {
        ASSERT_TRUE(std::is_sorted(place.processors.begin(), place.processors.end()));
        ASSERT_EQ(place.processors.empty(), usable.processors.empty()) << machine;
        ASSERT_TRUE(std::includes(usable.processors.begin(), usable.processors.end(), place.processors.begin(),
                                  place.processors.end()));
        ASSERT_EQ(place.gpu == kNoNode, usable.gpus.empty());
        if (place.gpu != kNoNode) ++users[place.gpu];
      }
      unsigned least = ranks, most = 0;
      for (const auto& [gpu, count] : users) least = std::min(least, count), most = std::max(most, count);
      ASSERT_TRUE(users.empty() || most - least <= 1) << machine;
      ASSERT_EQ(users.size(), std::min<size_t>(usable.gpus.size(), ranks));
    }
  }
}

TEST(Placement, OfEnoughCoresNoneIsShared) {
  for (const char* const machine : kMachines) {
    const Graph graph = graph_of(machine);
    for (unsigned ranks = 1; ranks <= 16; ++ranks) {
      std::set<unsigned> taken;
      for (const RankPlace& place : place_ranks(graph, all_of(graph), ranks)) {
        for (const unsigned processor : place.processors)
          EXPECT_TRUE(taken.insert(processor).second) << machine << ' ' << processor;
        const std::set<unsigned> own(place.processors.begin(), place.processors.end());
        for (const size_t core : graph.all(NodeKind::core)) {  // threads of one core stay together
          const auto& all = graph.nodes[core].processors;
          const auto in =
              static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](unsigned p) { return own.count(p) != 0; }));
          EXPECT_TRUE(in == 0 || in == all.size()) << machine << ' ' << graph.id(core);
        }
      }
    }
  }
}

TEST(Placement, NeedsNothingToBeKnown) {
  Graph graph;
  graph.add(NodeKind::machine, kNoNode);
  const std::vector<RankPlace> places = place_ranks(graph, all_of(graph), 3);
  ASSERT_EQ(places.size(), 3u);
  for (const RankPlace& place : places) {
    EXPECT_TRUE(place.processors.empty());
    EXPECT_EQ(place.gpu, kNoNode);
    EXPECT_EQ(place.nic, kNoNode);
  }
}

}  // namespace
}  // namespace thalweg::impl::topology
