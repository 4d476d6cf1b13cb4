// SPDX-License-Identifier: Apache-2.0
// The list of transports, and what each says of itself.
#include "transports/transports.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace thalweg::impl {
namespace {

TEST(Transports, EachHasItsNameAndAWayToBeSetUp) {
  std::set<std::string> names;
  unsigned local = 0, network = 0, own = 0;
  for (const TransportEntry& entry : known_transports()) {
    const std::unique_ptr<Transport> transport = entry.make();
    EXPECT_STREQ(transport->name(), entry.name);
    EXPECT_TRUE(names.insert(entry.name).second) << "two are called " << entry.name;
    const TransportTraits traits = transport->traits();
    EXPECT_TRUE(traits.to_itself || traits.passes_descriptors || traits.over_network) << entry.name << " cannot be set up";
    EXPECT_FALSE(traits.same_host_only && traits.over_network) << entry.name;
    EXPECT_TRUE(!traits.passes_descriptors || traits.same_host_only) << "descriptors go through unix sockets: " << entry.name;
    own += traits.to_itself;
    local += traits.passes_descriptors;
    network += traits.over_network;
  }
  EXPECT_EQ(own, 1u) << "connect_self takes the first";
  EXPECT_GE(local, 1u);
  EXPECT_GE(network, 1u);
}

}  // namespace
}  // namespace thalweg::impl
