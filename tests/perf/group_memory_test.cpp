// SPDX-License-Identifier: Apache-2.0
// Control groups as their files tell of them.
#include "machine/group_memory.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace perf {
namespace {

namespace fs = std::filesystem;

class Groups : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/thalweg-groups-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  void say(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  uint64_t left() const { return left_in_groups((root_ / "self").string(), (root_ / "groups").string()); }
  fs::path root_;
};

TEST_F(Groups, TheLeastOfAllThatContainItCounts) {
  say("self", "0::/job/step/task");
  EXPECT_EQ(left(), UINT64_MAX);
  say("groups/job/step/task/memory.max", "max");
  say("groups/job/step/task/memory.current", "100");
  EXPECT_EQ(left(), UINT64_MAX);
  say("groups/job/memory.max", "5000");
  say("groups/job/memory.current", "1000");
  EXPECT_EQ(left(), 4000u);  // of the one two above
  say("groups/job/step/memory.max", "900");
  say("groups/job/step/memory.current", "600");
  EXPECT_EQ(left(), 300u);
  say("groups/job/step/memory.stat", "file 550\ninactive_file 500");
  EXPECT_EQ(left(), 800u);
  say("groups/job/step/memory.current", "2000");  // beyond it, as when a limit was lowered
  EXPECT_EQ(left(), 0u);
}

TEST_F(Groups, ThoseOfVersionOne) {
  say("self", "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/");
  say("groups/memory/a/memory.limit_in_bytes", "700");
  say("groups/memory/a/memory.usage_in_bytes", "200");
  say("groups/memory/a/b/memory.limit_in_bytes", "9223372036854771712");
  say("groups/memory/a/b/memory.usage_in_bytes", "1");
  EXPECT_EQ(left(), 500u);
}

TEST_F(Groups, LinesThatAreNone) {
  say("self", "\n:\n0:\nx::y\n::");
  EXPECT_EQ(left(), UINT64_MAX);
  say("groups/memory.max", "77");
  EXPECT_EQ(left(), 77u);  // of the whole; what is used is not told
}

}  // namespace
}  // namespace perf
