// SPDX-License-Identifier: Apache-2.0
// Saved topologies: what is written reads as the same; what is not right is refused with its place; no text makes it crash.
#include "topology/format.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "tests/fixtures/topologies.hpp"
#include "topology/json_value.hpp"
#include "topology/placement.hpp"

namespace thalweg::impl::topology {
namespace {

TEST(Format, WhatIsWrittenReadsAsTheSame) {
  for (const char* const machine : kMachines) {
    const std::string once = format_graph(graph_of(machine));
    Graph again;
    ASSERT_EQ(parse_graph(once, "x", &again), TW_OK) << last_error();
    again.file = path_of(machine);
    EXPECT_EQ(format_graph(again), once) << machine;
    EXPECT_GT(again.nodes.size(), 8u);
  }
}

TEST(Format, KeepsAllFields) {
  const char text[] = R"({"format": "thalweg topology 1", "name": "a \"b\" \u00e9", "source": "s", "nodes": [
    {"id": "machine"}, {"id": "numa:0", "parent": "machine", "memory": 1024},
    {"id": "gpu:0", "parent": "numa:0", "name": "G", "pci": "0000:01:00.0", "uuid": "00112233445566778899aabbccddeeff"},
    {"id": "gpu:1", "parent": "numa:0"}, {"id": "nic:0", "parent": "numa:0", "name": "eth0", "speed": 3.125e9, "state": "down"}],
    "links": [{"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "bandwidth": 26562000000, "source": "driver", "version": 4, "port": 7,
    "errors": 3, "state": "down", "count": 2},
    {"kind": "pcie", "from": "gpu:0", "to": "numa:0", "generation": 4, "lanes": 8, "most_generation": 5, "most_lanes": 16}]})";
  Graph graph;
  ASSERT_EQ(parse_graph(text, "x", &graph), TW_OK) << last_error();
  EXPECT_EQ(graph.name, "a \"b\" \xc3\xa9");
  ASSERT_EQ(graph.links.size(), 3u);
  EXPECT_EQ(graph.links[1].port, 8u);
  EXPECT_EQ(graph.links[1].errors, 3u);
  EXPECT_FALSE(graph.links[1].up);
  EXPECT_EQ(graph.links[0].source, Source::driver);
  EXPECT_EQ(graph.links[2].bandwidth, pcie_bandwidth(4, 8));
  EXPECT_EQ(graph.links[2].source, Source::standard);
  EXPECT_EQ(graph.nodes[2].uuid, "00112233445566778899aabbccddeeff");
  EXPECT_EQ(graph.nodes[4].speed, 3.125e9);
  EXPECT_FALSE(graph.nodes[4].up);
}

struct Wrong {
  const char* nodes;  // behind {"id": "machine"}
  const char* links;
  const char* what;  // in the message
};

TEST(Format, RefusesWhatIsNotRightAndSaysWhere) {
  constexpr Wrong kWrong[] = {
      {R"({"id": "gpu:1", "parent": "machine"})", "",
       R"("id" is "gpu:1"; kinds are numbered in order, so the next is "gpu:0")"},
      {R"({"id": "gpu:0"})", "", "without \"parent\""},
      {R"({"parent": "machine"})", "", "without \"id\""},
      {R"({"id": "tpu:0", "parent": "machine"})", "", "the first node is \"machine\", others are"},
      {R"({"id": "machine"})", "", "the first node is"},
      {R"({"id": "gpu:0", "parent": "gpu:0"})", "", "parents stand before children"},
      {R"({"id": "gpu:0", "parent": "switch:0"}, {"id": "switch:0", "parent": "gpu:0"})", "", "parents stand before children"},
      {R"({"id": "gpu:0", "parent": "machine"}, {"id": "nic:0", "parent": "gpu:0"})", "",
       "\"parent\" of a nic cannot be \"gpu:0\""},
      {R"({"id": "numa:0", "parent": "machine"}, {"id": "package:0", "parent": "numa:0"}, {"id": "numa:1", "parent": "package:0"})",
       "", "\"parent\" of a numa cannot be"},
      {R"({"id": "core:0", "parent": "machine"})", "", "\"processors\" is needed of each core"},
      {R"({"id": "gpu:0", "parent": "machine", "processors": "1"})", "",
       "\"processors\" is needed of each core, and of nothing else"},
      {R"({"id": "core:0", "parent": "machine", "processors": "3-1"})", "", "write ascending numbers below 1024"},
      {R"({"id": "core:0", "parent": "machine", "processors": "0-1024"})", "", "write ascending numbers below 1024"},
      {R"({"id": "core:0", "parent": "machine", "processors": "0,1,"})", "", "write ascending numbers below 1024"},
      {R"({"id": "core:0", "parent": "machine", "processors": "0"}, {"id": "core:1", "parent": "machine", "processors": "0"})",
       "", "has 0, which another core has"},
      {R"({"id": "gpu:0", "parent": "machine", "colour": 1})", "", "\"colour\" is not known here; what is: id, parent"},
      {R"({"id": "gpu:0", "parent": "machine", "uuid": "12"})", "", "32 hexadecimal digits"},
      {R"({"id": "gpu:0", "parent": "machine", "speed": 1e9})", "", "is of network cards"},
      {R"({"id": "nic:0", "parent": "machine", "state": "broken"})", "", "is \"up\" or \"down\""},
      {R"({"id": "nic:0", "parent": "machine", "speed": -1})", "", "needs bytes per second"},
      {R"({"id": "numa:0", "parent": "machine", "memory": 1.5})", "", "needs a whole number"},
      {R"({"id": "gpu:0", "parent": "machine", "name": "a\nb"})", "", "on one line"},
      {R"({"id": "gpu:0", "parent": "machine"})", R"({"kind": "nvlink", "from": "gpu:0", "to": "gpu:1"})", "which no node has"},
      {R"({"id": "gpu:0", "parent": "machine"})", R"({"kind": "nvlink", "from": "gpu:0", "to": "gpu:0"})", "to another one"},
      {R"({"id": "gpu:0", "parent": "machine"})", R"({"kind": "rope", "from": "gpu:0", "to": "machine"})",
       "pcie, nvlink, memory or"},
      {R"({"id": "gpu:0", "parent": "machine"})", R"({"kind": "pcie", "from": "gpu:0", "to": "machine", "state": "down"})",
       "is of nvlink only"},
      {R"({"id": "gpu:0", "parent": "machine"})", R"({"kind": "pcie", "from": "machine", "to": "gpu:0"})",
       "is the parent of its"},
      {R"({"id": "gpu:0", "parent": "machine"})",
       R"({"kind": "pcie", "from": "gpu:0", "to": "machine"}, {"kind": "pcie", "from": "gpu:0", "to": "machine"})",
       "has such a link"},
      {R"({"id": "gpu:0", "parent": "machine"}, {"id": "gpu:1", "parent": "machine"})",
       R"({"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "count": 65})", "needs a whole number of 0 to 64"},
      {R"({"id": "gpu:0", "parent": "machine"}, {"id": "gpu:1", "parent": "machine"})",
       R"({"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "count": 0})", "is 1 to 64"},
      {R"({"id": "gpu:0", "parent": "machine"}, {"id": "gpu:1", "parent": "machine"})",
       R"({"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "source": "driver"})", "says where \"bandwidth\" comes from"},
      {R"({"id": "gpu:0", "parent": "machine"}, {"id": "gpu:1", "parent": "machine"})",
       R"({"kind": "nvlink", "from": "gpu:0", "to": "gpu:1", "lanes": 4})", "is of pcie"},
      {R"({"id": "nvswitch:0", "parent": "machine"})", R"({"kind": "nvlink", "from": "nvswitch:0"})",
       "is the gpu that tells of it"},
      {R"({"id": "gpu:0", "parent": "machine"})", R"({"kind": "pcie", "from": "gpu:0"})", "which no node has"},
  };
  for (const Wrong& wrong : kWrong) {
    const std::string begin = "{\"format\": \"thalweg topology 1\",\n\"nodes\": [{\"id\": \"machine\"}, ";
    Graph graph;
    graph.name = "as it was";
    EXPECT_EQ(parse_graph(begin + wrong.nodes + "],\n\"links\": [" + wrong.links + "]}", "F", &graph), TW_ERR_INVALID)
        << wrong.nodes;
    const std::string said = last_error(), place = wrong.links[0] == 0 ? "F:2:" : "F:3:";
    EXPECT_EQ(said.substr(0, 4), place) << said;
    EXPECT_NE(said.find(wrong.what), std::string::npos) << said;
    EXPECT_EQ(graph.name, "as it was");
  }
}

TEST(Format, RefusesOtherTexts) {
  Graph graph;
  for (const std::string text : {"", "{}", "[]", "{\"format\": \"thalweg topology 2\"}", "{\"format\": \"thalweg topology 1\"}",
                                 "{\"format\": \"thalweg topology 1\", \"nodes\": {}}", "not JSON", "{\"format\": 1}"}) {
    EXPECT_EQ(parse_graph(text, "F", &graph), TW_ERR_INVALID) << text;
    EXPECT_EQ(std::string(last_error()).substr(0, 2), "F:") << last_error();
  }
  EXPECT_EQ(parse_graph(std::string(kMostFileBytes + 1, ' '), "F", &graph), TW_ERR_INVALID);
  std::string many = "{\"format\": \"thalweg topology 1\", \"nodes\": [{\"id\": \"machine\"}";
  for (unsigned i = 0; i < 65; ++i) many += ", {\"id\": \"gpu:" + std::to_string(i) + "\", \"parent\": \"machine\"}";
  EXPECT_EQ(parse_graph(many + "]}", "F", &graph), TW_ERR_INVALID);
  EXPECT_NE(std::string(last_error()).find("beyond 64"), std::string::npos);
}

TEST(Format, LinksNeedNotSayWhereTheyLead) {
  const std::string text = R"({"format": "thalweg topology 1", "name": "", "source": "s", "nvlinks": "unknown", "nodes": [
    {"id": "machine"}, {"id": "gpu:0", "parent": "machine"}], "links": [
    {"kind": "nvlink", "from": "gpu:0", "version": 4, "state": "down", "count": 3}]})";
  Graph graph;
  ASSERT_EQ(parse_graph(text, "F", &graph), TW_OK) << last_error();
  EXPECT_FALSE(graph.nvlinks_known);
  ASSERT_EQ(graph.links.size(), 3u);
  EXPECT_EQ(graph.links[2].to, kNoNode);
  const std::string once = format_graph(graph);
  Graph again;
  ASSERT_EQ(parse_graph(once, "F", &again), TW_OK) << last_error();
  EXPECT_EQ(format_graph(again), once);
  (void)place_ranks(again, all_of(again), 3);
  std::string wrong = text;
  wrong.replace(wrong.find("unknown"), 7, "some");
  EXPECT_EQ(parse_graph(wrong, "F", &graph), TW_ERR_INVALID);
  EXPECT_NE(std::string(last_error()).find("\"unknown\" where nobody told"), std::string::npos) << last_error();
}

TEST(Format, WhatTheDriverSaysOfPairsOfGpus) {
  const auto with = [](const std::string& peers) {
    return R"({"format": "thalweg topology 1", "nodes": [{"id": "machine"}, {"id": "gpu:0", "parent": "machine"},
      {"id": "gpu:1", "parent": "machine"}, {"id": "nic:0", "parent": "machine"}], "links": [], "peers": [)" +
           peers + "]}";
  };
  const std::string pair =
      R"({"from": "gpu:0", "to": "gpu:1", "read": "ok", "write": "disabled by registry key", "atomics": "unknown"})";
  Graph graph, again;
  ASSERT_EQ(parse_graph(with(pair), "F", &graph), TW_OK) << last_error();
  ASSERT_EQ(parse_graph(format_graph(graph), "F", &again), TW_OK) << last_error();
  ASSERT_EQ(again.peers.size(), 1u);
  const PeerStatus wanted[] = {PeerStatus::ok, PeerStatus::registry_key, PeerStatus::untold, PeerStatus::unknown};
  for (size_t use = 0; use < kPeerUses; ++use) EXPECT_EQ(again.peers[0].status[use], wanted[use]);
  const std::pair<std::string, const char*> wrong[] = {
      {R"({"from": "gpu:0", "to": "gpu:0"})", "are two GPUs"},
      {R"({"from": "gpu:0", "to": "nic:0"})", "are two GPUs"},
      {R"({"from": "gpu:0"})", "which no node has"},
      {R"({"from": "gpu:0", "to": "gpu:2"})", "which no node has"},
      {pair + R"(, {"from": "gpu:1", "to": "gpu:0"})", "are peers already"},
      {R"({"from": "gpu:0", "to": "gpu:1", "read": "no"})", "is \"no\"; it is one of: ok, chipset not supported"},
      {R"({"from": "gpu:0", "to": "gpu:1", "read": ""})", "it is one of"},
      {R"({"from": "gpu:0", "to": "gpu:1", "read": 1})", "needs a text"},
      {R"({"from": "gpu:0", "to": "gpu:1", "reads": "ok"})", "is not known here"},
  };
  for (const auto& [peers, what] : wrong) {
    EXPECT_EQ(parse_graph(with(peers), "F", &graph), TW_ERR_INVALID) << peers;
    EXPECT_NE(std::string(last_error()).find(what), std::string::npos) << last_error();
  }
}

TEST(Format, SwitchesAreNestedSoDeepAndNoDeeper) {
  const auto nested = [](unsigned depth) {
    std::string text = R"({"format": "thalweg topology 1", "nodes": [{"id": "machine"})", above = "machine";
    for (unsigned i = 0; i < depth; ++i) {
      const std::string id = "switch:" + std::to_string(i);
      text += ", {\"id\": \"" + id + "\", \"parent\": \"" + above + "\"}";
      above = id;
    }
    return text + "]}";
  };
  Graph graph;
  EXPECT_EQ(parse_graph(nested(32), "F", &graph), TW_OK) << last_error();
  for (const unsigned depth : {33u, 8000u}) {
    EXPECT_EQ(parse_graph(nested(depth), "F", &graph), TW_ERR_INVALID);
    EXPECT_NE(std::string(last_error()).find("is below 32 switches already"), std::string::npos) << last_error();
  }
}

TEST(Format, FilesThatCannotBeReadAreNamed) {
  Graph graph;
  EXPECT_TRUE(is_error(read_graph("/no/such/file.json", &graph)));
  EXPECT_NE(std::string(last_error()).find("/no/such/file.json (THALWEG_TOPOLOGY)"), std::string::npos) << last_error();
  EXPECT_EQ(read_graph("/tmp", &graph), TW_ERR_INVALID);
  char folder[] = "/tmp/thalweg-topology-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string pipe = std::string(folder) + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_graph(pipe, &graph), TW_ERR_INVALID);  // at once
  unlink(pipe.c_str());
  rmdir(folder);
}

/// Bytes changed, taken out, doubled: what is taken must be whole, and everything may be asked of it.
TEST(Format, DamagedTextsAreRefusedOrWhole) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  unsigned taken = 0;
  for (unsigned round = 0; round < 4000; ++round) {
    std::string text = text_of(kMachines[random() % std::size(kMachines)]);
    for (unsigned change = 0; change <= random() % 3; ++change) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text[at] = static_cast<char>('0' + random() % 10);
      }
    }
    Graph graph, again;
    if (is_error(parse_graph(text, "F", &graph))) {
      ASSERT_TRUE(graph.nodes.empty());
      continue;
    }
    ++taken;
    ASSERT_EQ(parse_graph(format_graph(graph), "F", &again), TW_OK) << last_error();
    (void)place_ranks(graph, all_of(graph), 3);
  }
  EXPECT_GT(taken, 20u);  // of random damage: some 100
}

TEST(JsonValues, AreReadStrictly) {
  JsonValue value;
  JsonError error;
  for (const char* const good :
       {"1", "-0.5e-3", "[]", "{}", " [1, 2 , {\"a\": null}] ", "\"\\u00e9\\ud83d\\ude00\\n\"", "true", "0"})
    EXPECT_TRUE(parse_json(good, &value, &error)) << good << ": " << error.what;
  for (const char* const bad : {"",
                                "01",
                                "1.",
                                ".5",
                                "+1",
                                "1e",
                                "1e400",
                                "inf",
                                "nan",
                                "[1,]",
                                "[1 2]",
                                "{\"a\":1,}",
                                "{a:1}",
                                "{\"a\" 1}",
                                "{\"a\":1,\"a\":2}",
                                "\"",
                                "\"\n\"",
                                "\"\\x\"",
                                "\"\\ud83d\"",
                                "\"\\ude00\"",
                                "\"\\u12\"",
                                "tru",
                                "nul",
                                "[",
                                "{",
                                "{\"a\":",
                                "1 1",
                                "// c\n1",
                                "\"\xff\"",
                                "\"\xc0\x80\"",
                                "\"\xed\xa0\x80\"",
                                "\"\xf4\x90\x80\x80\""})
    EXPECT_FALSE(parse_json(bad, &value, &error)) << bad;
  EXPECT_TRUE(parse_json("\"\\u00e9\\ud83d\\ude00\"", &value, &error));
  EXPECT_EQ(value.text, "\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_FALSE(parse_json(std::string(200000, '['), &value, &error));
  EXPECT_EQ(error.what, "more than 16 levels of brackets");
  std::string wide = "{\"0\": 0";
  for (int i = 1; i < 65; ++i) wide += ", \"" + std::to_string(i) + "\": 0";
  EXPECT_FALSE(parse_json(wide + "}", &value, &error));
  EXPECT_EQ(error.what, "more than 64 names in one object");
}

TEST(PlainTexts, AreCutBetweenCharacters) {
  EXPECT_EQ(plain_text("a\xc3\xa9", 8), "a\xc3\xa9");
  EXPECT_EQ(plain_text("a\xc3\xa9", 2), "a");
  EXPECT_EQ(plain_text("\xf0\x9f\x98\x80x", 3), "");
  EXPECT_EQ(plain_text("\xc3(\n\xff", 8), "?(??");
  JsonValue value;
  JsonError error;
  const std::string name = "mlx5_\xe2\x82\xac\xe2\x82\xac";
  for (size_t most = 0; most <= name.size(); ++most)
    EXPECT_TRUE(parse_json('"' + plain_text(name, most) + '"', &value, &error)) << most;
}

TEST(Lists, OfNumbersComeBack) {
  std::vector<unsigned> numbers;
  for (const std::string text : {"", "0", "0-3", "0-3,8", "1,3,5-6,1023"}) {
    EXPECT_TRUE(parse_list(text, &numbers)) << text;
    EXPECT_EQ(format_list(numbers), text);
  }
  for (const char* const text : {",", "0,", "3-1", "1,1", "1-3,2", "1024", "a", "1-", "-1", "1 2", "99999999999"})
    EXPECT_FALSE(parse_list(text, &numbers)) << text;
}

}  // namespace
}  // namespace thalweg::impl::topology
