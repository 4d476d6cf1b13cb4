// SPDX-License-Identifier: Apache-2.0
// Addresses of the tcp transport: forms, filters, sources, listening.
#include <sys/stat.h>
#include <unistd.h>

#include "unit/transports/tcp_pair.hpp"

namespace thalweg::impl::tcp {
namespace {

TEST(TcpAddress, ReadsTheFormsAUserWrites) {
  AddressText text;
  ASSERT_EQ(parse_address("node7:4711", &text), TW_OK);
  EXPECT_EQ(text.host, "node7");
  EXPECT_EQ(text.port, 4711);
  ASSERT_EQ(parse_address("[2001:db8::1]:1", &text), TW_OK);
  EXPECT_EQ(text.host, "2001:db8::1");
  ASSERT_EQ(parse_address(":65535", &text), TW_OK);
  EXPECT_EQ(text.host, "");
  EXPECT_EQ(text.port, 65535);
  ASSERT_EQ(parse_address("unix:/tmp/a:b", &text), TW_OK);
  EXPECT_TRUE(text.unix_path);
  EXPECT_EQ(text.host, "/tmp/a:b");
  const std::string long_path = "unix:/" + std::string(200, 'x');
  for (const char* bad : {"", "node7", "node7:", "node7:65536", "node7:-1", "node7:4x", "::1:4711", "[::1:4711", "[]:1",
                          "unix:", long_path.c_str()}) {
    EXPECT_EQ(parse_address(bad, &text), TW_ERR_INVALID) << bad;
  }
}

TEST(TcpAddress, WritesWhatItReads) {
  for (const char* text : {"192.0.2.1:4711", "[2001:db8::1]:4711", "unix:/tmp/x"}) {
    AddressText parsed;
    std::vector<SocketAddress> found;
    ASSERT_EQ(parse_address(text, &parsed), TW_OK);
    ASSERT_EQ(resolve(parsed, false, &found), TW_OK);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].text(), text);
  }
}

TEST(TcpAddress, FiltersInterfaces) {
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

TEST(TcpAddress, ChoosesTheSourceInTheSameSubnet) {
  const auto local = [](const char* name, const char* host, unsigned prefix) {
    LocalAddress a;
    a.interface = name;
    EXPECT_TRUE(parse_numeric(host, 0, &a.address));
    a.prefix = prefix;
    return a;
  };
  const std::vector<LocalAddress> allowed = {local("a", "192.0.2.1", 24), local("b", "198.51.100.1", 20),
                                             local("c", "2001:db8::1", 64), local("lo", "127.0.0.1", 8)};
  const auto chosen = [&](const char* to) -> std::string {
    SocketAddress target;
    EXPECT_TRUE(parse_numeric(to, 9, &target));
    const LocalAddress* found = choose_source(target, allowed);
    return found == nullptr ? "" : found->interface;
  };
  EXPECT_EQ(chosen("198.51.101.77"), "b");
  EXPECT_EQ(chosen("192.0.2.200"), "a");
  EXPECT_EQ(chosen("203.0.113.5"), "a");
  EXPECT_EQ(chosen("2001:db8::77"), "c");
  EXPECT_EQ(chosen("127.0.0.9"), "lo");
  EXPECT_EQ(chosen("::1"), "");
}

TEST(TcpAddress, ListensOnceAndReplacesADeadSocketFile) {
  SocketAddress at, bound;
  ASSERT_TRUE(parse_numeric("127.0.0.1", 0, &at));
  UniqueFd first, second;
  ASSERT_EQ(listen_at(at, 4, &first), TW_OK);
  ASSERT_EQ(local_address(first.get(), &bound), TW_OK);
  EXPECT_EQ(listen_at(bound, 4, &second), TW_ERR_ADDRESS_IN_USE);
  first.reset();
  const Status refused = start_connect(bound, nullptr, &second);
  EXPECT_TRUE(refused == TW_ERR_UNREACHABLE || refused == TW_IN_PROGRESS);
  if (refused == TW_IN_PROGRESS) {
    pollfd ready{second.get(), POLLOUT, 0};
    ASSERT_EQ(::poll(&ready, 1, 5000), 1);
    EXPECT_EQ(finish_connect(second.get(), bound), TW_ERR_UNREACHABLE);
  }

  char directory[] = "/tmp/tcp_address_XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/s";
  AddressText text;
  std::vector<SocketAddress> found;
  ASSERT_EQ(parse_address("unix:" + path, &text), TW_OK);
  ASSERT_EQ(resolve(text, true, &found), TW_OK);
  ASSERT_EQ(listen_at(found[0], 4, &first), TW_OK) << last_error();
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(listen_at(found[0], 4, &second), TW_ERR_ADDRESS_IN_USE);
  first.reset();  // the file stays
  EXPECT_EQ(listen_at(found[0], 4, &second), TW_OK) << last_error();
  ::unlink(path.c_str());
  ::rmdir(directory);
}

}  // namespace
}  // namespace thalweg::impl::tcp
