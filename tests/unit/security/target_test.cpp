// SPDX-License-Identifier: Apache-2.0
// Names of targets: one for each door, the same at both ends.
#include "security/target.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/sockets.hpp"
#include "unit/security/pair.hpp"

namespace thalweg::impl {
namespace {

SocketAddress numeric(const char* host, uint16_t port) {
  SocketAddress address;
  EXPECT_TRUE(parse_numeric(host, port, &address));
  return address;
}

TEST(Target, BothEndsOfATcpConnectionHaveOneNameForTheServer) {
  const test::SocketPair pair(true);
  const DialTarget dialled = DialTarget::dialled(Purpose::listener, pair.a.get(), numeric("0.0.0.0", 1));
  EXPECT_EQ(dialled, DialTarget::reached(Purpose::listener, pair.b.get()));
  EXPECT_NE(dialled, DialTarget::reached(Purpose::store, pair.b.get()));
  EXPECT_NE(dialled, DialTarget::reached(Purpose::listener, pair.a.get()));
}

TEST(Target, HostAndPortCountAndAMappedAddressIsItsIpv4One) {
  const DialTarget target = DialTarget::at(Purpose::store, numeric("192.0.2.1", 5000));
  EXPECT_EQ(target, DialTarget::at(Purpose::store, numeric("::ffff:192.0.2.1", 5000)));
  EXPECT_NE(target, DialTarget::at(Purpose::store, numeric("192.0.2.2", 5000)));
  EXPECT_NE(target, DialTarget::at(Purpose::store, numeric("192.0.2.1", 5001)));
  EXPECT_NE(target, DialTarget::at(Purpose::store, numeric("2001:db8::1", 5000)));
}

TEST(Target, AUnixSocketHasOneNameByWhateverPath) {
  std::string folder = (std::filesystem::temp_directory_path() / "thalweg_target_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::create_directory_symlink(folder, folder + "/again");
  SocketAddress straight, around, other, link;
  ASSERT_EQ(unix_address(folder + "/door", &straight), TW_OK);
  UniqueFd listener;
  ASSERT_EQ(listen_at(straight, 1, &listener), TW_OK) << last_error();
  ASSERT_EQ(unix_address(folder + "/again/../door", &around), TW_OK);
  ASSERT_EQ(unix_address(folder + "/again/door", &link), TW_OK);
  ASSERT_EQ(unix_address(folder + "/other", &other), TW_OK);
  const DialTarget target = DialTarget::at(Purpose::listener, straight);
  EXPECT_EQ(target, DialTarget::at(Purpose::listener, link));
  EXPECT_EQ(target, DialTarget::reached(Purpose::listener, listener.get()));
  EXPECT_NE(target, DialTarget::at(Purpose::listener, other));
  std::filesystem::remove_all(folder);
}

TEST(Target, KnownAs) {
  setenv("THALWEG_KNOWN_AS", "203.0.113.7:5000,,unix:/run/job.sock", 1);
  std::vector<DialTarget> names;
  ASSERT_EQ(known_as(Purpose::store, &names), TW_OK) << last_error();
  SocketAddress path;
  ASSERT_EQ(unix_address("/run/job.sock", &path), TW_OK);
  const std::vector<DialTarget> expected = {DialTarget::at(Purpose::store, numeric("203.0.113.7", 5000)),
                                            DialTarget::at(Purpose::store, path)};
  EXPECT_EQ(names, expected);
  for (const char* bad : {"203.0.113.7", ":5000", "nonsense"}) {
    setenv("THALWEG_KNOWN_AS", bad, 1);
    EXPECT_EQ(known_as(Purpose::store, &names), TW_ERR_INVALID) << bad;
  }
  unsetenv("THALWEG_KNOWN_AS");
}

}  // namespace
}  // namespace thalweg::impl
