// SPDX-License-Identifier: Apache-2.0
// Variables whose values are few: what they say is done, or refused by the variable's name.
#include "base/environment.hpp"

#include <gtest/gtest.h>
#include <thalweg/thalweg.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace thalweg::impl {
namespace {

constexpr char kSwitch[] = "THALWEG_TEST_SWITCH";

TEST(Environment, ASwitchIsOnOffOrLeft) {
  for (const bool before : {false, true}) {
    const auto read = [&](const char* value) {
      EXPECT_EQ(value != nullptr ? setenv(kSwitch, value, 1) : unsetenv(kSwitch), 0);
      bool out = before;
      EXPECT_EQ(read_switch(kSwitch, &out), TW_OK) << last_error();
      return out;
    };
    EXPECT_TRUE(read("1"));
    EXPECT_FALSE(read("0"));
    EXPECT_EQ(read(""), before);
    EXPECT_EQ(read(nullptr), before);
  }
}

TEST(Environment, ASwitchThatSaysNeitherIsRefusedByItsName) {
  for (const char* value : {"yes", "true", "on", "2", "1 ", " 1", "no", "false", "off", "01", "-1", "11"}) {
    ASSERT_EQ(setenv(kSwitch, value, 1), 0);
    bool out = false;
    EXPECT_EQ(read_switch(kSwitch, &out), TW_ERR_INVALID) << value;
    const std::string text = last_error();
    EXPECT_NE(text.find(kSwitch), std::string::npos) << text;
    EXPECT_NE(text.find("\"" + std::string(value) + "\""), std::string::npos) << text;
  }
  unsetenv(kSwitch);
}

TEST(Environment, ALevelOfTheLogThatIsNoneIsSaidOnce) {
  if (!log_enabled(LogLevel::warning)) GTEST_SKIP() << "this process shows no warnings";
  const char* const before = std::getenv("THALWEG_LOG");
  const std::string kept = before != nullptr ? before : "";
  std::vector<std::string> lines;
  tw_set_log_handler([](void* arg, int, const char* text) { static_cast<std::vector<std::string>*>(arg)->emplace_back(text); },
                     &lines);
  for (const char* level : {"", "debug", "info", "warning", "error", "off"}) {
    ASSERT_EQ(setenv("THALWEG_LOG", level, 1), 0);
    warn_of_unknown_level();
    EXPECT_TRUE(lines.empty()) << level << ": " << lines.front();
  }
  ASSERT_EQ(setenv("THALWEG_LOG", "nosuch", 1), 0);
  for (int i = 0; i < 2; ++i) warn_of_unknown_level();
  tw_set_log_handler(nullptr, nullptr);
  before != nullptr ? setenv("THALWEG_LOG", kept.c_str(), 1) : unsetenv("THALWEG_LOG");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("THALWEG_LOG is \"nosuch\""), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace thalweg::impl
