// SPDX-License-Identifier: Apache-2.0
// The live socket, as those who watch see it, and with clients that do not behave.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thalweg/thalweg.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"

namespace {

using thalweg::impl::UniqueFd;

constexpr char kKey[] = "a secret of more than sixteen bytes";
constexpr int kPatience = 20'000;  // ms

class Live : public testing::Test {
 protected:
  Live() {
    std::string pattern = (std::filesystem::temp_directory_path() / "thalweg_live_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    make_context();
  }
  ~Live() override {
    context.reset();
    std::filesystem::remove_all(folder);
  }
  void make_context() {
    thalweg::ContextOptions options;
    options.job_key = kKey;
    options.job_key_length = sizeof kKey;
    options.socket_dir = folder.c_str();
    context.emplace(options);
  }
  std::vector<std::string> sockets() const {
    std::vector<std::string> found;
    const std::string directory = folder + "/thalweg-" + std::to_string(geteuid());
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".live") found.push_back(entry.path());
    }
    return found;
  }
  static UniqueFd connect_to(const std::string& path) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0) << strerror(errno);
    return fd;
  }
  UniqueFd client() { return connect_to(sockets().at(0)); }
  static void say(const UniqueFd& to, const std::string& text) {
    EXPECT_EQ(send(to.get(), text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  }
  /// A line, or what came before the end.
  static std::string line(const UniqueFd& from) {
    std::string text;
    while (text.empty() || text.back() != '\n') {
      pollfd ready{from.get(), POLLIN, 0};
      char byte;
      if (poll(&ready, 1, kPatience) != 1 || recv(from.get(), &byte, 1, 0) != 1) break;
      text += byte;
    }
    return text;
  }
  static bool ended(const UniqueFd& fd) {
    pollfd ready{fd.get(), POLLIN, 0};
    char byte;
    return poll(&ready, 1, kPatience) == 1 && recv(fd.get(), &byte, 1, 0) <= 0;
  }

  std::string folder;
  std::optional<thalweg::Context> context;
};

TEST_F(Live, AnswersWithWhatCountersSay) {
  const thalweg::Worker worker(*context);
  const UniqueFd fd = client();
  for (int i = 0; i < 3; ++i) {
    say(fd, "snapshot\n");
    const std::string answer = line(fd);
    ASSERT_FALSE(answer.empty());
    EXPECT_EQ(answer.find('\n'), answer.size() - 1) << "one line";
    for (const std::string& part : {"\"pid\": " + std::to_string(getpid()), std::string("\"workers\": [{"),
                                    std::string("\"moved\""), std::string("\"posted\": 0")})
      EXPECT_NE(answer.find(part), std::string::npos) << part << " in " << answer;
  }
  const std::string counters = context->counters();
  for (const char* part : {"\"authentication\": 0", "\"links\"", "\"workers\"", "\"caches\"", "\"traced\""})
    EXPECT_NE(counters.find(part), std::string::npos) << part << " in " << counters;
}

TEST_F(Live, ItsSocketIsPrivateAndGoesWithTheContext) {
  ASSERT_EQ(sockets().size(), 1u);
  struct stat info {};
  ASSERT_EQ(stat(sockets()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const UniqueFd fd = client();
  context.reset();
  EXPECT_TRUE(ended(fd));
  EXPECT_TRUE(sockets().empty());
}

TEST_F(Live, IsNotThereWhereItIsSwitchedOff) {
  context.reset();
  ASSERT_EQ(setenv("THALWEG_LIVE", "0", 1), 0);
  make_context();
  ASSERT_EQ(unsetenv("THALWEG_LIVE"), 0);
  EXPECT_TRUE(sockets().empty());
  EXPECT_NE(context->counters().find("\"workers\": []"), std::string::npos);
}

TEST_F(Live, EachContextOfAProcessHasItsOwn) {
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  options.socket_dir = folder.c_str();
  const thalweg::Context second(options);
  const thalweg::Worker worker(second);
  ASSERT_EQ(sockets().size(), 2u);
  int with_worker = 0;
  for (const std::string& path : sockets()) {
    const UniqueFd fd = connect_to(path);
    say(fd, "snapshot\n");
    with_worker += line(fd).find("\"workers\": [{") != std::string::npos;
  }
  EXPECT_EQ(with_worker, 1);
}

TEST_F(Live, NonsenseEndsTheConnectionAndNothingElse) {
  for (const std::string& nonsense : {std::string("\n"), std::string("snapshots\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
                                      std::string("snapshot \n"), std::string(1, '\0') + "\n"}) {
    const UniqueFd fd = client();
    say(fd, nonsense);
    EXPECT_NE(line(fd).find("\"error\""), std::string::npos) << nonsense;
    EXPECT_TRUE(ended(fd)) << nonsense;
  }
  const UniqueFd endless = client();
  const std::string much(4096, 'x');
  (void)send(endless.get(), much.data(), much.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(ended(endless)) << "a request without end";
  const UniqueFd again = client();
  say(again, "snapshot\n");
  EXPECT_NE(line(again).find("\"pid\""), std::string::npos);
}

TEST_F(Live, RequestsInPiecesAndSeveralAtOnceAreAnswered) {
  const UniqueFd fd = client();
  say(fd, "snap");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that the pieces come one by one, mostly
  say(fd, "shot\nsnapshot\nsnapshot\n");
  for (int i = 0; i < 3; ++i) EXPECT_NE(line(fd).find("\"pid\""), std::string::npos) << i;
}

/// It is asked for answers that nobody reads, until its buffers are full; the context goes on.
TEST_F(Live, AClientThatDoesNotReadHoldsNothingUp) {
  const UniqueFd deaf = client();
  const int least = 1;
  ASSERT_EQ(setsockopt(deaf.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
  ASSERT_EQ(fcntl(deaf.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string request = "snapshot\n";
  for (int i = 0; i < 100'000; ++i) {
    if (send(deaf.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) break;
  }
  const UniqueFd other = client();
  say(other, "snapshot\n");
  EXPECT_NE(line(other).find("\"pid\""), std::string::npos);
  thalweg::Worker worker(*context);  // the service thread has to take it in
  EXPECT_NE(context->counters().find("\"workers\": [{"), std::string::npos);
}

TEST_F(Live, OnlySoManyAreAnswered) {
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(client());
    say(clients.back(), "snapshot\n");
    ASSERT_NE(line(clients.back()).find("\"pid\""), std::string::npos) << i;
  }
  EXPECT_TRUE(ended(client()));
  clients.pop_back();
  for (int tries = 0;; ++tries) {  // until the service thread has seen that one is gone
    ASSERT_LT(tries, 1000);
    const UniqueFd fd = client();
    if (send(fd.get(), "snapshot\n", 9, MSG_NOSIGNAL) == 9 && line(fd).find("\"pid\"") != std::string::npos) break;
  }
}

TEST_F(Live, AnotherUserIsNotAnswered) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  // The directory keeps others out; here it does not.
  const std::string path = sockets().at(0);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(chmod((folder + "/thalweg-0").c_str(), 0755), 0);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) _exit(2);
    (void)send(fd, "snapshot\n", 9, MSG_NOSIGNAL);  // it may be closed by now
    char byte;
    _exit(read(fd, &byte, 1) <= 0 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// What one endpoint moved, by both ends.
TEST_F(Live, MessagesAreCountedAtBothEnds) {
  const thalweg::Worker a(*context), b(*context);
  const auto connect = [](const thalweg::Worker& from, const thalweg::Worker& to) {
    tw_endpoint* endpoint = nullptr;
    const std::string address = to.address();
    EXPECT_EQ(tw_connect(from.get(), address.data(), address.size(), nullptr, &endpoint), TW_OK);
    return endpoint;
  };
  tw_endpoint* const there = connect(a, b);
  const auto finish = [&](tw_request request) {
    while (tw_request_test(request) == TW_IN_PROGRESS) {
      tw_worker_progress(a.get());
      tw_worker_progress(b.get());
    }
    ASSERT_EQ(tw_request_finish(request), TW_OK);
  };
  tw_op_options synchronous = TW_OP_OPTIONS_INIT;
  synchronous.flags = TW_OP_SYNC;
  const tw_op_options* const hows[] = {nullptr, &synchronous};
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{1000}, size_t{3} << 20}) {
    for (const tw_op_options* const how : hows) {
      std::vector<char> out(bytes, 'x'), in(bytes);
      tw_request requests[2];
      ASSERT_GE(tw_recv(b.get(), in.data(), bytes, 1, UINT64_MAX, nullptr, &requests[0]), 0);
      ASSERT_GE(tw_send(there, out.data(), bytes, 1, how, &requests[1]), 0);
      for (const tw_request request : requests) finish(request);
      EXPECT_EQ(in, out);
    }
  }
  const size_t all = 2 * (8 + 1000 + (3 << 20));
  const std::string counters = context->counters();
  const std::string both = "\"messages\": 8, \"bytes\": " + std::to_string(all);
  EXPECT_NE(counters.find("\"sent\": {" + both), std::string::npos) << counters;
  EXPECT_NE(counters.find("\"received\": {" + both), std::string::npos) << counters;
  EXPECT_NE(counters.find("\"state\": \"connected\""), std::string::npos);
}

}  // namespace
