// SPDX-License-Identifier: Apache-2.0
// Launchers that give a rank and no way to the others.
#include "bootstrap/launcher.hpp"

#include <gtest/gtest.h>
#include <thalweg/thalweg.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::impl {
namespace {

/// Looks for a launcher in this environment.
Status found(const std::vector<std::pair<const char*, const char*>>& environment, uint32_t* size) {
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  LaunchOptions options;
  options.rank = options.count = TW_STORE_ENVIRONMENT;
  std::unique_ptr<Launcher> launcher;
  const Status status = find_launcher(options, &launcher);
  for (const auto& [name, value] : environment) unsetenv(name);
  *size = launcher != nullptr ? launcher->size : 0;
  return status;
}

TEST(Launchers, ARankWithoutAWayToTheOthersIsNoGroupOfOne) {
  uint32_t size = 0;
  for (const auto& [name, value] : {std::pair{"NOTHING", "1"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "20000"}}) {
    EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {name, value}}, &size), TW_ERR_UNSUPPORTED) << name;
    EXPECT_EQ(size, 0u);
    const std::string text = last_error();
    EXPECT_NE(text.find("set MASTER_ADDR and MASTER_PORT"), std::string::npos) << text;
  }
  EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, &size), TW_OK) << last_error();
  EXPECT_EQ(size, 1u);
  EXPECT_EQ(found({{"RANK", "0"}}, &size), TW_OK) << last_error();
  EXPECT_EQ(size, 1u);
}

}  // namespace
}  // namespace thalweg::impl
