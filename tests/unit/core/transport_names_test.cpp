// SPDX-License-Identifier: Apache-2.0
// Connection set-up asks transports what they can do, and knows none of them by name.
#include <gtest/gtest.h>
#include <thalweg/thalweg.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "transports/transports.hpp"

namespace {

using thalweg::impl::known_transports;
using thalweg::impl::TransportEntry;

TEST(TransportNames, CoreHasNone) {
  unsigned files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(THALWEG_SOURCE "/src/core")) {
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const TransportEntry& known : known_transports()) {
      const std::string name = known.name;
      EXPECT_EQ(text.find('"' + name + '"'), std::string::npos) << entry.path() << " names " << name;
      EXPECT_EQ(text.find("transports/" + name + "/"), std::string::npos) << entry.path() << " includes " << name;
    }
    ++files;
  }
  EXPECT_GT(files, 30u);
}

TEST(TransportNames, AnUnknownOneIsRefusedWithAllThatThereAre) {
  tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
  options.transports = "self,carrier-pigeon";
  tw_context* context = nullptr;
  EXPECT_EQ(tw_context_create(&options, &context), TW_ERR_INVALID);
  const std::string why = tw_last_error();
  EXPECT_NE(why.find("carrier-pigeon"), std::string::npos) << why;
  for (const TransportEntry& known : known_transports()) EXPECT_NE(why.find(known.name), std::string::npos) << why;
}

}  // namespace
