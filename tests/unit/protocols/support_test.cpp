// SPDX-License-Identifier: Apache-2.0
// The table of triggers in docs/support.md is what the protocols' entries say.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "protocols/eager.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {
namespace {

std::string row(const char* verb, const Protocol& protocol) {
  std::string text = std::string("| ") + verb + " | " + protocol.name;
  for (const bool has : {protocol.step != nullptr, protocol.lower != nullptr, protocol.bind != nullptr}) {
    text += has ? " | yes" : " | no";
  }
  return text + " |";
}

std::vector<std::string> table_of_the_code() {
  std::vector<std::string> table = {"| verb | protocol | host | queue | kernel |", "|---|---|---|---|---|"};
  for (const Protocol* protocol : {&kEagerSingle, &kEagerSegmented, &kRendezvousSend}) table.push_back(row("send", *protocol));
  constexpr std::pair<const char*, Verb> kVerbs[] = {{"put", Verb::put},
                                                     {"get", Verb::get},
                                                     {"atomic", Verb::atomic},
                                                     {"signal", Verb::signal},
                                                     {"flush", Verb::flush},
                                                     {"put_blocks", Verb::put_blocks},
                                                     {"get_blocks", Verb::get_blocks}};
  for (const auto& [name, verb] : kVerbs) {
    for (const Protocol* const* at = one_sided_protocols(verb); *at != nullptr; ++at) table.push_back(row(name, **at));
  }
  return table;
}

/// The lines between the two comments.
std::vector<std::string> table_of_the_page(const std::filesystem::path& page) {
  std::vector<std::string> table;
  std::ifstream in(page);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("<!-- compared with the code", 0) == 0) {
      inside = true;
    } else if (line == "<!-- end -->") {
      inside = false;
    } else if (inside) {
      table.push_back(line);
    }
  }
  return table;
}

TEST(Support, ThePageSaysWhatTheProtocolsDo) {
  const auto page = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path() / "docs/support.md";
  ASSERT_TRUE(std::filesystem::exists(page)) << page;
  EXPECT_EQ(table_of_the_page(page), table_of_the_code());
}

}  // namespace
}  // namespace thalweg::impl
