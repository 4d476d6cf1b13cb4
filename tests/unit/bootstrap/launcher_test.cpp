// SPDX-License-Identifier: Apache-2.0
// Launchers that give a rank and no way to the others, and variables that switch something for stores.
#include "bootstrap/launcher.hpp"

#include <gtest/gtest.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
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

TEST(Launchers, ASwitchOfStoresThatSaysNeitherIsRefused) {
  const std::string path = (std::filesystem::temp_directory_path() / ("thalweg_switch_" + std::to_string(getpid()))).string();
  const auto opened = [&](const char* tls) {
    setenv("THALWEG_TLS", tls, 1);
    tw_store_options options = TW_STORE_OPTIONS_INIT;
    options.job_key = "sixteen bytes or more of secret";
    options.job_key_length = 31;
    tw_store* store = nullptr;
    const Status status = tw_store_open(("file:" + path).c_str(), &options, &store);
    tw_store_close(store);
    unsetenv("THALWEG_TLS");
    return status;
  };
  for (const char* value : {"yes", "true", "on", "2", "1 "}) {
    EXPECT_EQ(opened(value), TW_ERR_INVALID) << value;
    EXPECT_NE(std::string(last_error()).find("THALWEG_TLS"), std::string::npos) << last_error();
  }
  for (const char* value : {"", "0", "1"}) EXPECT_EQ(opened(value), TW_OK) << value << ": " << last_error();
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace thalweg::impl
