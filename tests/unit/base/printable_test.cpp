// SPDX-License-Identifier: Apache-2.0
// What a terminal would obey becomes text.
#include "base/printable.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace thalweg::impl {
namespace {

TEST(Printable, OrdinaryTextStays) {
  EXPECT_EQ(printable("nobody listens at 10.0.0.2:4711"), "nobody listens at 10.0.0.2:4711");
}

TEST(Printable, NothingThatATerminalObeysIsLeft) {
  EXPECT_EQ(printable("\x1b[2J\r\nforged line"), "\\x1b[2J\\x0d\\x0aforged line");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\\x1b"), "\\\\x1b");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const char c : printable(all)) EXPECT_TRUE(c >= ' ' && c <= '~');
}

}  // namespace
}  // namespace thalweg::impl
