// SPDX-License-Identifier: Apache-2.0
// Addresses of stream sockets as text and back; listening and connecting.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/sockets.hpp"

namespace thalweg::impl {
namespace {

TEST(SocketAddress, ReadsTheFormsAUserWrites) {
  AddressText text;
  ASSERT_EQ(parse_address_text("node7:4711", &text), TW_OK);
  EXPECT_EQ(text.host, "node7");
  EXPECT_EQ(text.port, 4711);
  ASSERT_EQ(parse_address_text("[2001:db8::1]:1", &text), TW_OK);
  EXPECT_EQ(text.host, "2001:db8::1");
  ASSERT_EQ(parse_address_text(":65535", &text), TW_OK);
  EXPECT_EQ(text.host, "");
  EXPECT_EQ(text.port, 65535);
  ASSERT_EQ(parse_address_text("unix:/tmp/a:b", &text), TW_OK);
  EXPECT_TRUE(text.unix_path);
  EXPECT_EQ(text.host, "/tmp/a:b");
  const std::string long_path = "unix:/" + std::string(200, 'x');
  for (const char* bad : {"", "node7", "node7:", "node7:65536", "node7:-1", "node7:4x", "::1:4711", "[::1:4711", "[]:1",
                          "unix:", long_path.c_str()}) {
    EXPECT_EQ(parse_address_text(bad, &text), TW_ERR_INVALID) << bad;
  }
}

TEST(SocketAddress, WritesWhatItReads) {
  for (const char* text : {"192.0.2.1:4711", "[2001:db8::1]:4711", "unix:/tmp/x"}) {
    AddressText parsed;
    std::vector<SocketAddress> found;
    ASSERT_EQ(parse_address_text(text, &parsed), TW_OK);
    ASSERT_EQ(resolve(parsed, false, &found), TW_OK);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].text(), text);
  }
}

TEST(SocketAddress, ResolvesNamesAndEverywhere) {
  std::vector<SocketAddress> found;
  ASSERT_EQ(resolve({.host = "localhost", .port = 1234}, false, &found), TW_OK) << last_error();
  for (const SocketAddress& one : found) {
    EXPECT_TRUE(one.loopback());
    EXPECT_EQ(one.port(), 1234);
  }
  EXPECT_FALSE(found.empty());
  ASSERT_EQ(resolve({}, true, &found), TW_OK);
  for (const SocketAddress& one : found) EXPECT_TRUE(one.any());
  EXPECT_FALSE(found.empty());
  EXPECT_EQ(resolve({.host = "no such host.invalid", .port = 1}, false, &found), TW_ERR_UNREACHABLE);
}

TEST(SocketAddress, IsMadeFromItsBytes) {
  for (const char* host : {"192.0.2.77", "2001:db8::77"}) {
    SocketAddress parsed;
    ASSERT_TRUE(parse_numeric(host, 4711, &parsed));
    EXPECT_EQ(internet_address(parsed.host_bytes(), 4711).text(), parsed.text());
  }
}

TEST(Sockets, ListensOnceAndReplacesADeadSocketFile) {
  SocketAddress at, bound;
  ASSERT_TRUE(parse_numeric("127.0.0.1", 0, &at));
  UniqueFd first, second;
  ASSERT_EQ(listen_at(at, 4, &first), TW_OK);
  ASSERT_EQ(local_address(first.get(), &bound), TW_OK);
  EXPECT_EQ(listen_at(bound, 4, &second), TW_ERR_ADDRESS_IN_USE);
  first.reset();
  const Status refused = start_connect(bound, &second);
  EXPECT_TRUE(refused == TW_ERR_UNREACHABLE || refused == TW_IN_PROGRESS);
  if (refused == TW_IN_PROGRESS) {
    pollfd ready{second.get(), POLLOUT, 0};
    ASSERT_EQ(::poll(&ready, 1, 5000), 1);
    EXPECT_EQ(finish_connect(second.get(), bound), TW_ERR_UNREACHABLE);
  }

  char directory[] = "/tmp/sockets_XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/s";
  AddressText text;
  std::vector<SocketAddress> found;
  ASSERT_EQ(parse_address_text("unix:" + path, &text), TW_OK);
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

/// Two that begin at one path: the first has its name already, and does not listen yet.
TEST(Sockets, ASocketThatDoesNotListenYetKeepsItsPath) {
  char directory[] = "/tmp/sockets_XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/s";
  SocketAddress at;
  ASSERT_EQ(unix_address(path, &at), TW_OK);
  const UniqueFd first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(first.get(), at.get(), at.length), 0);
  struct stat before, after;
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  UniqueFd second;
  EXPECT_EQ(listen_at(at, 4, &second), TW_ERR_ADDRESS_IN_USE);
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  ASSERT_EQ(::listen(first.get(), 4), 0);
  EXPECT_NE(start_connect(at, &second), TW_ERR_UNREACHABLE) << last_error();
  ::unlink(path.c_str());
  ::rmdir(directory);
}

/// Several find the file of one that was killed: who saw it stale removes no other one's, which was bound since.
TEST(Sockets, OneOfSeveralTakesAStaleFileOver) {
  constexpr int kRounds = 200, kThreads = 4;
  char directory[] = "/tmp/sockets_XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/s";
  SocketAddress at;
  ASSERT_EQ(unix_address(path, &at), TW_OK);
  for (int round = 0; round < kRounds; ++round) {
    UniqueFd listeners[kThreads], stale;
    ASSERT_EQ(listen_at(at, 4, &stale), TW_OK) << last_error();
    stale.reset();
    std::barrier together(kThreads);
    std::vector<std::thread> threads;
    for (UniqueFd& listener : listeners) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        const Status status = listen_at(at, 4, &listener);
        EXPECT_TRUE(status == TW_OK || status == TW_ERR_ADDRESS_IN_USE) << last_error();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(std::count_if(std::begin(listeners), std::end(listeners), [](const UniqueFd& one) { return bool(one); }), 1)
        << "round " << round;
    UniqueFd caller;
    EXPECT_EQ(start_connect(at, &caller), TW_OK) << last_error();
    ::unlink(path.c_str());
  }
  ::rmdir(directory);
}

TEST(Sockets, AFileThatIsNoSocketStaysAndIsNamed) {
  char path[] = "/tmp/sockets_XXXXXX";
  const UniqueFd file(::mkstemp(path));
  ASSERT_TRUE(file);
  SocketAddress at;
  ASSERT_EQ(unix_address(path, &at), TW_OK);
  UniqueFd listener;
  EXPECT_EQ(listen_at(at, 4, &listener), TW_ERR_ADDRESS_IN_USE);
  const std::string text = last_error();
  EXPECT_NE(text.find("a file that is no socket is there"), std::string::npos) << text;
  EXPECT_NE(text.find("another path"), std::string::npos) << text;
  EXPECT_EQ(::unlink(path), 0);
}

}  // namespace
}  // namespace thalweg::impl
