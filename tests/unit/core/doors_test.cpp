// SPDX-License-Identifier: Apache-2.0
// Where a context listens, and which clients it accepts there.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../fixtures/listening.hpp"
#include "../../fixtures/rooms.hpp"
#include "base/log.hpp"
#include "base/socket_address.hpp"
#include "base/unique_fd.hpp"
#include "core/address.hpp"
#include "core/setup_wire.hpp"
#include "core/wire_bytes.hpp"
#include "security/strangers.hpp"

namespace {

using thalweg::impl::SocketAddress;
using thalweg::impl::UniqueFd;

constexpr char kKey[] = "a secret of more than sixteen bytes";
constexpr uint64_t kLong = 20'000'000'000;

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "thalweg_doors_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

struct Made {
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_status status;
  std::string text;
  explicit Made(const char* transports, const char* socket_dir = nullptr, const char* interfaces = nullptr) {
    tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
    options.job_key = kKey;
    options.job_key_length = sizeof kKey;
    options.transports = transports;
    options.socket_dir = socket_dir;
    options.interfaces = interfaces;
    status = tw_context_create(&options, &context);
    if (status == TW_OK) status = tw_worker_create(context, nullptr, &worker);
    if (status != TW_OK) text = tw_last_error();
  }
  ~Made() {
    if (worker != nullptr) tw_worker_destroy(worker);
    if (context != nullptr) tw_context_destroy(context);
  }
};

std::string name_of_directory(const Folder& folder) { return folder.path + "/thalweg-" + std::to_string(geteuid()); }

TEST(SocketDirectory, OneThatOthersMadeIsRefused) {
  Folder folder, elsewhere;
  const std::string directory = name_of_directory(folder);
  ASSERT_EQ(symlink(elsewhere.path.c_str(), directory.c_str()), 0);
  const Made by_link("shm", folder.path.c_str());
  EXPECT_EQ(by_link.status, TW_ERR_PERMISSION);
  EXPECT_NE(by_link.text.find(directory), std::string::npos) << by_link.text;
  ASSERT_EQ(unlink(directory.c_str()), 0);
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  ASSERT_EQ(chmod(directory.c_str(), 0750), 0);
  EXPECT_EQ(Made("shm", folder.path.c_str()).status, TW_ERR_PERMISSION);
  ASSERT_EQ(chmod(directory.c_str(), 0700), 0);
  EXPECT_EQ(Made("shm", folder.path.c_str()).status, TW_OK);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(directory.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Made("shm", folder.path.c_str()).status, TW_ERR_PERMISSION);
}

TEST(SocketDirectory, OneThatOthersMayReplaceIsRefused) {
  Folder folder;
  ASSERT_EQ(chmod(folder.path.c_str(), 0777), 0);
  const Made replaceable("shm", folder.path.c_str());
  EXPECT_EQ(replaceable.status, TW_ERR_PERMISSION);
  EXPECT_NE(replaceable.text.find("sticky"), std::string::npos) << replaceable.text;
  ASSERT_EQ(chmod(folder.path.c_str(), 01777), 0);
  EXPECT_EQ(Made("shm", folder.path.c_str()).status, TW_OK);
}

/// A stale listening socket, as a killed process leaves it.
void leave_door(const std::string& path, time_t age) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
  const int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(door, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(close(door), 0);
  const timespec then{time(nullptr) - age, 0};
  const timespec times[] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

TEST(SocketDirectory, DoorsOfTheKilledAreRemovedAndNoOthers) {
  Folder folder;
  const std::string directory = name_of_directory(folder);
  const Made live("shm", folder.path.c_str());
  ASSERT_EQ(live.status, TW_OK);
  std::string door;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".sock") door = entry.path();
  }
  const timespec old[] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, door.c_str(), old, AT_SYMLINK_NOFOLLOW), 0);
  const std::string dead = directory + "/00112233445566aa.sock", fresh = directory + "/00112233445566bb.sock";
  const std::string foreign = directory + "/kept.other", file = directory + "/file.sock";
  leave_door(dead, 100);
  leave_door(fresh, 0);
  leave_door(foreign, 100);
  std::ofstream(file) << "not a socket";
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), old, AT_SYMLINK_NOFOLLOW), 0);
  const Made next("shm", folder.path.c_str());
  ASSERT_EQ(next.status, TW_OK);
  EXPECT_FALSE(std::filesystem::exists(dead));
  for (const std::string& kept : {door, fresh, foreign, file}) EXPECT_TRUE(std::filesystem::exists(kept)) << kept;
  char text[1 << 16];
  size_t length = sizeof text;
  ASSERT_EQ(tw_context_counters(live.context, text, &length), TW_OK);
  EXPECT_NE(std::string(text).find("\"closed\": 0"), std::string::npos) << text;  // no connection came
}

/// Another user listens at the path that we connect to: it gets not even the first message.
TEST(UnixSockets, AListenerOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Folder folder;
  ASSERT_EQ(chmod(folder.path.c_str(), 01777), 0);
  const std::string path = folder.path + "/squatted";
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || listen(listener, 4) != 0) _exit(2);
    if (write(ready[1], "x", 1) != 1) _exit(3);
    const int one = accept(listener, nullptr, nullptr);
    char byte = 0;
    _exit(recv(one, &byte, 1, 0) == 0 ? 0 : 4);  // closed without a word
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  {
    Made made("shm,tcp");
    ASSERT_EQ(made.status, TW_OK) << made.text;
    tw_endpoint* endpoint = nullptr;
    ASSERT_EQ(tw_connect_to(made.worker, ("unix:" + path).c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_ERR_PERMISSION);
    EXPECT_NE(std::string(tw_last_error()).find("user 65534 listens"), std::string::npos) << tw_last_error();
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

struct WorkingDirectory {
  const std::string before = std::filesystem::current_path();
  explicit WorkingDirectory(const std::string& path) { std::filesystem::current_path(path); }
  ~WorkingDirectory() { std::filesystem::current_path(before); }
};

/// A program goes elsewhere, as daemons do, where a file of the same name lies.
TEST(UnixSockets, AListenerAtARelativePathStaysWhereItWas) {
  Folder folder, elsewhere;
  const WorkingDirectory begun(folder.path);
  const std::string door = folder.path + "/door", same_name = elsewhere.path + "/door";
  std::ofstream(same_name) << "no socket";
  const Made made("shm,tcp"), client("shm,tcp");
  ASSERT_EQ(made.status, TW_OK) << made.text;
  ASSERT_EQ(client.status, TW_OK) << client.text;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(made.worker, "unix:door", nullptr, &listener), TW_OK) << tw_last_error();
  std::filesystem::current_path(elsewhere.path);
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(client.worker, ("unix:" + door).c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
  tw_connection_request* request = nullptr;
  for (int i = 0; i < 500 && request == nullptr && tw_endpoint_state(endpoint) == TW_IN_PROGRESS; ++i) {
    (void)tw_worker_progress(client.worker);
    (void)tw_worker_wait(made.worker, 10'000'000);
    (void)tw_listener_next(listener, &request);
  }
  EXPECT_NE(request, nullptr) << tw_last_error();
  if (request != nullptr) {
    EXPECT_EQ(tw_reject(request, nullptr, 0), TW_OK);
  }
  EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_ERR_REJECTED) << tw_last_error();
  (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  tw_listener_close(listener);
  EXPECT_FALSE(std::filesystem::exists(door));
  EXPECT_TRUE(std::filesystem::exists(same_name));
}

// ------------------------------------------------------------------------------------------------ interfaces

uint16_t worker_port(const Made& made) {
  unsigned char bytes[kAddressRoom];
  size_t length = sizeof bytes;
  EXPECT_EQ(tw_worker_address(made.worker, bytes, &length), TW_OK);
  thalweg::impl::WorkerAddress address;
  EXPECT_EQ(thalweg::impl::parse_address(bytes, length, &address), TW_OK);
  return address.port;
}

/// A connection that says nothing; *error: why there is none.
UniqueFd connect_silently(const char* to, uint16_t port, int* error, const char* from = nullptr) {
  SocketAddress target, source;
  EXPECT_TRUE(thalweg::impl::parse_numeric(to, port, &target));
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (from != nullptr) {
    EXPECT_TRUE(thalweg::impl::parse_numeric(from, 0, &source));
    EXPECT_EQ(bind(fd.get(), source.get(), source.length), 0);
  }
  *error = connect(fd.get(), target.get(), target.length) == 0 ? 0 : errno;
  return fd;
}

int error_of_connecting(const char* to, uint16_t port) {
  int error = 0;
  const UniqueFd fd = connect_silently(to, port, &error);
  return error;
}

TEST(Interfaces, DoorsAreOnlyWhereTheyMayBe) {
  const Made made("tcp", nullptr, "127.0.0.1");
  ASSERT_EQ(made.status, TW_OK) << made.text;
  EXPECT_EQ(error_of_connecting("127.0.0.1", worker_port(made)), 0);
  EXPECT_EQ(error_of_connecting("127.0.0.2", worker_port(made)), ECONNREFUSED);
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(made.worker, ":0", nullptr, &listener), TW_OK) << tw_last_error();
  EXPECT_EQ(error_of_connecting("127.0.0.1", tw_listener_port(listener)), 0);
  EXPECT_EQ(error_of_connecting("127.0.0.2", tw_listener_port(listener)), ECONNREFUSED);
  tw_listener_close(listener);
  EXPECT_EQ(tw_listen(made.worker, "127.0.0.2:0", nullptr, &listener), TW_ERR_INVALID);
  EXPECT_NE(std::string(tw_last_error()).find("interfaces"), std::string::npos) << tw_last_error();
  const Made everywhere("tcp");
  ASSERT_EQ(everywhere.status, TW_OK) << everywhere.text;
  EXPECT_EQ(error_of_connecting("127.0.0.2", worker_port(everywhere)), 0);
}

/// Both families of an interface have one port, and both sockets lead to the listener.
TEST(Interfaces, AllAddressesOfOneHaveOnePort) {
  const Made made("tcp", nullptr, "127.0.0.0/8,::1/128");
  if (made.status == TW_ERR_INVALID) GTEST_SKIP() << "no IPv6 here";
  ASSERT_EQ(made.status, TW_OK) << made.text;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(made.worker, ":0", nullptr, &listener), TW_OK) << tw_last_error();
  const std::string port = std::to_string(tw_listener_port(listener));
  for (const std::string& to : {"127.0.0.1:" + port, "[::1]:" + port}) {
    const Made client("tcp");
    tw_endpoint* endpoint = nullptr;
    ASSERT_EQ(tw_connect_to(client.worker, to.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
    tw_connection_request* request = nullptr;
    for (int i = 0; i < 1000 && request == nullptr; ++i) {
      (void)tw_worker_wait(made.worker, 10'000'000);
      (void)tw_listener_next(listener, &request);
    }
    ASSERT_NE(request, nullptr) << to;
    EXPECT_EQ(tw_reject(request, nullptr, 0), TW_OK);
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_ERR_REJECTED) << tw_last_error();
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  }
  tw_listener_close(listener);
}

/// Only a lack of descriptors is helped by more of them.
TEST(Interfaces, ThatNobodyCanBeAcceptedIsToldWithItsOwnReason) {
  const Made made("tcp", nullptr, "127.0.0.1");
  ASSERT_EQ(made.status, TW_OK) << made.text;
  ASSERT_EQ(shutdown(listening_at(worker_port(made)), SHUT_RD), 0);  // accept4: EINVAL
  std::string warnings;
  for (int i = 0; i < 1000 && warnings.find("cannot be accepted") == std::string::npos; ++i) {
    (void)tw_worker_wait(made.worker, 10'000'000);
    warnings = thalweg::impl::warnings_so_far();
  }
  EXPECT_NE(warnings.find("connections cannot be accepted: accept4: Invalid argument\n"), std::string::npos) << warnings;
}

// ------------------------------------------------------------------------------------------------ floods

bool closed_within(const UniqueFd& fd, int ms) {
  pollfd one{fd.get(), POLLIN, 0};
  char byte;
  return poll(&one, 1, ms) == 1 && recv(fd.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

/// More silent connections than a door has places: returns when the door has turned the first of them out.
std::vector<UniqueFd> flood(uint16_t port) {
  constexpr size_t kMore = 40;
  std::vector<UniqueFd> all;
  for (size_t i = 0; i < thalweg::impl::Strangers::kPlaces + kMore; ++i) {
    int error = 0;
    all.push_back(connect_silently("127.0.0.1", port, &error));
    EXPECT_EQ(error, 0);
  }
  EXPECT_TRUE(closed_within(all[kMore - 1], 20'000));
  return all;
}

TEST(Floods, OneSourceAndOneDoorDoNotTurnOthersOut) {
  const Made made("tcp");
  ASSERT_EQ(made.status, TW_OK) << made.text;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(made.worker, ":0", nullptr, &listener), TW_OK) << tw_last_error();
  int error = 0;
  const UniqueFd at_worker = connect_silently("127.0.0.1", worker_port(made), &error);
  ASSERT_EQ(error, 0);
  const UniqueFd other_source = connect_silently("127.0.0.1", tw_listener_port(listener), &error, "127.0.0.2");
  ASSERT_EQ(error, 0);
  const std::vector<UniqueFd> silent = flood(tw_listener_port(listener));
  EXPECT_FALSE(closed_within(at_worker, 0));     // the other door has places of its own
  EXPECT_FALSE(closed_within(other_source, 0));  // older than all of them, but not of the source that has most
  EXPECT_FALSE(closed_within(silent.back(), 0));
  tw_listener_close(listener);
}

/// Silent sockets come as fast as they can, from the client's own address; it is turned away now and then, and comes again.
TEST(Floods, AClientGetsThroughASustainedOne) {
  const Made made("tcp"), client("tcp");
  ASSERT_EQ(made.status, TW_OK) << made.text;
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(made.worker, "127.0.0.1:0", nullptr, &listener), TW_OK) << tw_last_error();
  std::atomic<bool> stop{false};
  std::thread flooding([&, port = tw_listener_port(listener)] {
    std::vector<UniqueFd> open(400);
    for (size_t i = 0; !stop; ++i) {
      int error = 0;
      open[i % open.size()] = connect_silently("127.0.0.1", port, &error);
      if (i % 16 == 0) std::this_thread::yield();
    }
  });
  const std::string to = "127.0.0.1:" + std::to_string(tw_listener_port(listener));
  for (int round = 0; round < 3; ++round) {
    tw_endpoint *endpoint = nullptr, *accepted = nullptr;
    EXPECT_EQ(tw_connect_to(client.worker, to.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
    tw_connection_request* request = nullptr;
    for (int i = 0; i < 6000 && request == nullptr; ++i) {
      (void)tw_worker_wait(made.worker, 10'000'000);
      (void)tw_listener_next(listener, &request);
    }
    EXPECT_NE(request, nullptr);
    if (request != nullptr) {
      EXPECT_EQ(tw_accept(request, nullptr, &accepted), TW_OK) << tw_last_error();
      std::thread other([&] { EXPECT_EQ(tw_endpoint_wait(accepted, kLong), TW_OK) << tw_last_error(); });
      EXPECT_EQ(tw_endpoint_wait(endpoint, kLong), TW_OK) << tw_last_error();
      other.join();
      (void)tw_endpoint_close(accepted, TW_CLOSE_FORCE, nullptr);
    }
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  }
  stop = true;
  flooding.join();
  tw_listener_close(listener);
}

// ------------------------------------------------------------------------------------------------ texts

TEST(SetupMessages, APeersTextIsPlain) {
  thalweg::impl::ByteWriter out;
  out.u32(uint32_t(TW_ERR_REJECTED));
  out.u8(0);
  out.text("\x1b]0;owned\x07\nforged");
  out.block(nullptr, 0);
  thalweg::impl::SetupChannel::Message message;
  message.bytes = out.bytes;
  thalweg::impl::RejectMessage reject;
  ASSERT_EQ(thalweg::impl::parse_reject(std::move(message), &reject), TW_OK);
  EXPECT_EQ(reject.text, "\\x1b]0;owned\\x07\\x0aforged");
}

}  // namespace
