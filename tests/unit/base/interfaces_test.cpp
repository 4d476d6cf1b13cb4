// SPDX-License-Identifier: Apache-2.0
// The filter over this machine's interfaces.
#include <gtest/gtest.h>

#include "base/interfaces.hpp"

namespace thalweg::impl {
namespace {

TEST(Interfaces, AreFiltered) {
  std::vector<LocalAddress> all, some;
  ASSERT_EQ(local_addresses(nullptr, &all), TW_OK);
  ASSERT_FALSE(all.empty());
  ASSERT_EQ(local_addresses("127.0.0.0/8", &some), TW_OK) << last_error();
  ASSERT_FALSE(some.empty());
  for (const LocalAddress& a : some) EXPECT_TRUE(a.address.loopback());
  ASSERT_EQ(local_addresses(("nothing," + some[0].interface).c_str(), &all), TW_ERR_INVALID);
  EXPECT_NE(std::string(last_error()).find("nothing"), std::string::npos);
  ASSERT_EQ(local_addresses(some[0].interface.c_str(), &all), TW_OK);
  for (const LocalAddress& a : all) EXPECT_EQ(a.interface, some[0].interface);
}

}  // namespace
}  // namespace thalweg::impl
