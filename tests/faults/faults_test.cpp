// SPDX-License-Identifier: Apache-2.0
// A peer is killed (SIGKILL) in the middle of every operation over every transport, as initiator and as target. The survivor's
// pending requests end within two seconds, its worker goes on with a new peer, and after many deaths it holds no more
// descriptors and memory than after the first. A stopped peer (SIGSTOP) is not a dead one.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "conformance/side.hpp"

namespace {

using namespace conformance;
using Clock = std::chrono::steady_clock;

Row row_of(const char* operation, uint64_t size, uint64_t seed) {
  Row row{};
  std::snprintf(row.operation, sizeof row.operation, "%s", operation);
  row.size = size;
  row.seed = seed;
  row.asynchronous = 1;
  // Host memory of both sorts, and every third time device memory at both ends.
  const auto named = [&](const Operation& o) { return std::strcmp(o.name, operation) == 0; };
  const bool device = seed % 3 == 2 && std::find_if(operations().begin(), operations().end(), named)->devices == Devices::all;
  for (uint8_t rank = 0; rank < 2; ++rank) row.place[rank] = device ? kFirstDevice + rank : seed & 1;
  return row;
}

/// Runs one operation again and again with its counterpart until one of the two is gone.
void repeat(Side& side, const char* operation, uint64_t size) {
  for (uint64_t seed = 1;; ++seed) {
    run_row(side, row_of(operation, size, seed));
    side.barrier();
  }
}

/// The child's life: connect and repeat. With "helper" a forked grandchild keeps every descriptor open after the child's death.
int victim(char** argv) {
  if (std::strcmp(argv[6], "helper") == 0 && ::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, 0);
    ::alarm(20);
    ::pause();
    _exit(0);
  }
  tw_context* context = nullptr;
  try {
    must(tw_context_create(nullptr, &context), "tw_context_create");
    Side side(context, std::atoi(argv[3]));
    side.connect(std::atoi(argv[2]), argv[4], false);
    if (std::strcmp(argv[6], "fork_late") == 0 && ::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      ::alarm(20);
      ::pause();
      _exit(0);
    }
    repeat(side, argv[5], std::strtoull(argv[7], nullptr, 10));
  } catch (const Failure& f) {
    std::fprintf(stderr, "victim: %s\n", f.text.c_str());
  }
  return 1;
}

struct Victim {
  pid_t pid = -1;
  int socket = -1;
  Victim(int rank, const char* transport, const char* operation, const char* how, uint64_t size) {
    int sockets[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair");
    std::string r = std::to_string(rank), n = std::to_string(size);
    pid = ::fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::string fd = std::to_string(::dup(sockets[1]));
      ::execl("/proc/self/exe", "faults", "--victim", fd.c_str(), r.c_str(), transport, operation, how, n.c_str(), nullptr);
      _exit(127);
    }
    ::close(sockets[1]);
    socket = sockets[0];
  }
  ~Victim() {
    ::kill(pid, SIGCONT);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(socket);
  }
};

/// Survives one death; returns how long after the kill the operation ended.
double survive(tw_context* context, int rank, const char* transport, const char* operation, const char* how, uint64_t size,
               unsigned delay_ms) {
  Victim v(!rank, transport, operation, how, size);
  Side side(context, rank);
  side.connect(v.socket, transport, false);
  Clock::time_point killed;
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    killed = Clock::now();
    ::kill(v.pid, SIGKILL);
  });
  std::string text = "nothing";
  try {
    repeat(side, operation, size);
  } catch (const Failure& f) {
    text = f.text;
  }
  Clock::time_point ended = Clock::now();
  killer.join();
  double seconds = std::chrono::duration<double>(ended - killed).count();
  bool named = text.find("peer_lost") != std::string::npos || text.find("canceled") != std::string::npos;
  if (!named) failed("%s over %s ended with: %s", operation, transport, text.c_str());
  for (int i = 0; i < 100 && tw_endpoint_state(side.endpoint) == TW_OK; ++i) (void)tw_worker_wait(side.worker, 10000000);
  if (tw_status st = tw_endpoint_state(side.endpoint); st != TW_ERR_PEER_LOST)
    failed("%s over %s ended with %s, but the endpoint says %s", operation, transport, text.c_str(), tw_status_name(st));
  return seconds;
}

/// What each open descriptor refers to, sorted.
std::vector<std::string> descriptors() {
  std::vector<std::string> all;
  DIR* dir = ::opendir("/proc/self/fd");
  while (dirent* entry = ::readdir(dir)) {
    char target[256];
    ssize_t n = ::readlinkat(::dirfd(dir), entry->d_name, target, sizeof(target));
    if (n > 0) all.emplace_back(target, static_cast<size_t>(n));
  }
  ::closedir(dir);
  std::sort(all.begin(), all.end());
  return all;
}

size_t resident_kib() {
  size_t total = 0, resident = 0;
  FILE* f = std::fopen("/proc/self/statm", "r");
  if (std::fscanf(f, "%zu %zu", &total, &resident) != 2) resident = 0;
  std::fclose(f);
  return resident * 4;
}

class Deaths : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { must(tw_context_create(nullptr, &context_), "tw_context_create"); }
  void TearDown() override { tw_context_destroy(context_); }
  tw_context* context_ = nullptr;
};

TEST_P(Deaths, EveryOperationEndsWithinTwoSeconds) {
  std::mt19937 random(std::random_device{}());
  const char* const only = std::getenv("THALWEG_FAULTS_OPERATIONS");  // a part of their names
  for (const Operation& o : operations()) {
    if (only != nullptr && std::strstr(o.name, only) == nullptr) continue;
    for (int rank = 0; rank < 2; ++rank) {
      for (uint64_t size : {uint64_t{8}, uint64_t{20000}, uint64_t{3000000}}) {
        if (size > o.size_limit) continue;
        try {
          double seconds = survive(context_, rank, GetParam(), o.name, "plain", size, 20 + random() % 60);
          EXPECT_LT(seconds, 2.0) << o.name << " rank " << rank << " size " << size;
        } catch (const Failure& f) {
          ADD_FAILURE() << o.name << " rank " << rank << " size " << size << ": " << f.text;
        }
      }
    }
  }
}

/// The dead process's forked child still holds its descriptors: forked before and after the library was set up.
TEST_P(Deaths, AForkedChildOfTheDeadDoesNotHideIt) {
  for (const char* how : {"helper", "fork_late"}) {
    try {
      EXPECT_LT(survive(context_, 0, GetParam(), "send", how, 20000, 50), 2.0) << how;
    } catch (const Failure& f) {
      ADD_FAILURE() << how << ": " << f.text;
    }
  }
}

TEST_P(Deaths, NothingIsLeakedAndTheWorkerGoesOn) {
  try {
    survive(context_, 0, GetParam(), "put_signal", "plain", 100000, 20);
    survive(context_, 0, GetParam(), "send", "plain", 100000, 20);
    std::vector<std::string> before = descriptors();
    size_t memory = resident_kib();
    for (int i = 0; i < 30; ++i) survive(context_, i & 1, GetParam(), i % 3 ? "send" : "put_signal", "plain", 100000, 10 + i);
    std::vector<std::string> after = descriptors();
    for (int i = 0; i < 2000 && after.size() > before.size() + 2; ++i) {  // the service thread closes a lost link's
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      after = descriptors();
    }
    EXPECT_LE(after.size(), before.size() + 2) << testing::PrintToString(before) << "\n" << testing::PrintToString(after);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    constexpr size_t kNoise = 4096, kStaging = 8192;  // pinned chunks that the first large transfers of a device take
    EXPECT_LE(resident_kib(), memory + kNoise + kStaging);
#endif
  } catch (const Failure& f) {
    FAIL() << f.text;
  }
}

/// THALWEG_TEST_STOP_SECONDS=30 for the long form; a stopped peer loses nothing on one machine.
TEST_P(Deaths, AStoppedPeerIsNotDead) {
  const char* wanted = std::getenv("THALWEG_TEST_STOP_SECONDS");
  int seconds = wanted ? std::atoi(wanted) : 7;  // longer than the silence limit of a network
  try {
    Victim v(1, GetParam(), "send", "plain", 50000);
    Side side(context_, 0);
    side.connect(v.socket, GetParam(), false);
    for (uint64_t seed = 1; seed < 200; ++seed) {
      if (seed == 100) {
        ::kill(v.pid, SIGSTOP);
        std::thread([pid = v.pid, seconds] {
          std::this_thread::sleep_for(std::chrono::seconds(seconds));
          ::kill(pid, SIGCONT);
        }).detach();
      }
      run_row(side, row_of("send", 50000, seed));
      side.barrier();
    }
    EXPECT_EQ(tw_endpoint_state(side.endpoint), TW_OK);
  } catch (const Failure& f) {
    FAIL() << f.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Deaths, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

int main(int argc, char** argv) {
  ::setenv("THALWEG_EMULATED", "devices=2", 0);
  if (argc == 8 && std::strcmp(argv[1], "--victim") == 0) return victim(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
