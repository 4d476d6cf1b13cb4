// SPDX-License-Identifier: Apache-2.0
#include "ranks/launch.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "ranks/ranks.hpp"

namespace apps {
namespace {

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/// Keeps rank r on the r-th processor of those allowed, when there is one for each: two that poll must not share one.
void pin(unsigned rank, unsigned processes) {
  cpu_set_t allowed, one;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < static_cast<int>(processes)) return;
  CPU_ZERO(&one);
  for (unsigned cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == rank) CPU_SET(cpu, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

pid_t start(unsigned rank, unsigned processes, char** argv) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it ended before that took effect
  pin(rank, processes);
  ::setenv("THALWEG_RANK", std::to_string(rank).c_str(), 1);
  ::execv("/proc/self/exe", argv);
  std::perror("execv");
  ::_exit(127);
}

/// Waits for all; ends the others when one fails.
int look_after(std::map<pid_t, unsigned> running) {
  int code = 0;
  while (!running.empty()) {
    int status = 0;
    const pid_t pid = ::wait(&status);
    if (pid < 0) throw std::runtime_error("wait failed");
    const auto found = running.find(pid);
    if (found == running.end()) continue;
    const int ended = exit_code(status);
    if (ended != 0 && code == 0) {
      code = ended;
      if (running.size() > 1) std::fprintf(stderr, "rank %u ended with %d; ending the others\n", found->second, ended);
      for (const auto& [other, rank] : running)
        if (other != pid) ::kill(other, SIGTERM);
    }
    running.erase(found);
  }
  return code;
}

int launch(unsigned processes, char** argv) {
  const std::string folder = fresh_folder();
  ::setenv("THALWEG_STORE", ("file:" + folder + "/store").c_str(), 1);
  ::setenv("THALWEG_SIZE", std::to_string(processes).c_str(), 1);
  ::setenv("THALWEG_JOB_KEY", fresh_key().c_str(), 1);
  std::map<pid_t, unsigned> running;
  for (unsigned rank = 0; rank < processes; ++rank) {
    const pid_t pid = start(rank, processes, argv);
    if (pid < 0) {
      for (const auto& [other, number] : running) ::kill(other, SIGTERM);
      throw std::runtime_error("fork failed");
    }
    running[pid] = rank;
  }
  const int code = look_after(std::move(running));
  std::filesystem::remove_all(folder);
  return code;
}

}  // namespace

std::string fresh_key() {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw std::runtime_error("getrandom failed");
  std::string hex;
  char two[3];
  for (const unsigned char byte : bytes) {
    std::snprintf(two, sizeof two, "%02x", byte);
    hex += two;
  }
  return hex;
}

std::string fresh_folder() {
  std::string folder = (std::filesystem::temp_directory_path() / "thalweg-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make a folder in " + folder + "; set TMPDIR");
  return folder;
}

int run(unsigned processes, char** argv, const std::function<void(Ranks&)>& body) try {
  if (std::getenv("THALWEG_RANK") == nullptr) return launch(processes, argv);
  Ranks ranks;
  body(ranks);
  ranks.align();  // nobody leaves whom another still needs
  return 0;
} catch (const std::exception& error) {
  const char* rank = std::getenv("THALWEG_RANK");
  std::fprintf(stderr, "%s%s: %s\n", rank == nullptr ? "" : "rank ", rank == nullptr ? "error" : rank, error.what());
  return 1;
}

}  // namespace apps
