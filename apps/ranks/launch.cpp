// SPDX-License-Identifier: Apache-2.0
#include "ranks/launch.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "ranks/ranks.hpp"

namespace apps {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};  // for ranks that are asked to end, as `thalweg run` gives

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

/// While it lives, signals that ask for the end do not end this process: the ranks get them, and the folder goes.
class Signals {
 public:
  Signals() {
    (void)std::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would throw exit codes away
    ::sigemptyset(&awaited_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&awaited_, number);
    ::sigprocmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  /// In a child, too.
  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  /// The next one; 0: none until then.
  int next(const std::optional<Clock::time_point>& until) const {
    for (;;) {
      const auto left = until ? std::max(*until - Clock::now(), Clock::duration::zero()) : std::chrono::hours(1);
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
      const timespec wait = {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
      if (const int number = ::sigtimedwait(&awaited_, nullptr, &wait); number > 0) return number;
      if (until && Clock::now() >= *until) return 0;
    }
  }

 private:
  sigset_t awaited_, before_;
};

pid_t start(unsigned rank, unsigned processes, char** argv, const Signals& signals) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it ended before that took effect
  signals.restore();
  pin(rank, processes);
  ::setenv("THALWEG_RANK", std::to_string(rank).c_str(), 1);
  ::execv("/proc/self/exe", argv);
  std::perror("execv");
  ::_exit(127);
}

/// A fresh one, for as long as this lives.
class Folder {
 public:
  Folder() : path(fresh_folder()) {}
  ~Folder() {
    std::error_code nobody;
    std::filesystem::remove_all(path, nobody);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string path;
};

using Running = std::map<pid_t, unsigned>;

void end_all(const Running& running, int number) {
  for (const auto& [pid, rank] : running) ::kill(pid, number);
}

/// The next one that ends, and its exit code; signals are passed on meanwhile.
/// From kill_at on what is left is killed.
std::pair<pid_t, int> next_end(const Running& running, const Signals& signals, std::optional<Clock::time_point>* kill_at) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid > 0) return {pid, exit_code(status)};
    if (pid < 0) throw std::runtime_error("waitpid failed");
    const int number = signals.next(*kill_at);
    if (number == 0) {
      end_all(running, SIGKILL);
      kill_at->reset();
    } else if (number != SIGCHLD) {
      end_all(running, number);
    }
  }
}

/// Waits for all; ends the others when one fails.
int look_after(Running running, const Signals& signals) {
  int code = 0;
  std::optional<Clock::time_point> kill_at;
  while (!running.empty()) {
    const auto [pid, ended] = next_end(running, signals, &kill_at);
    const auto found = running.find(pid);
    if (found == running.end()) continue;
    const unsigned rank = found->second;
    running.erase(found);
    if (ended == 0 || code != 0) continue;
    code = ended;
    if (!running.empty()) std::fprintf(stderr, "rank %u ended with %d; ending the others\n", rank, ended);
    end_all(running, SIGTERM);
    end_all(running, SIGCONT);  // one that is stopped hears of nothing else
    kill_at = Clock::now() + kGrace;
  }
  return code;
}

int launch(unsigned processes, char** argv) {
  const Signals signals;
  const Folder folder;
  ::setenv("THALWEG_STORE", ("file:" + folder.path + "/store").c_str(), 1);
  ::setenv("THALWEG_SIZE", std::to_string(processes).c_str(), 1);
  ::setenv("THALWEG_JOB_KEY", fresh_key().c_str(), 1);
  Running running;
  for (unsigned rank = 0; rank < processes; ++rank) {
    const pid_t pid = start(rank, processes, argv, signals);
    if (pid < 0) {
      end_all(running, SIGTERM);
      throw std::runtime_error("fork failed");
    }
    running[pid] = rank;
  }
  return look_after(std::move(running), signals);
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

void flush_results() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Unwritten(std::string("the results cannot be written: ") + std::strerror(errno != 0 ? errno : EIO));
}

int run(unsigned processes, char** argv, const std::function<void(Ranks&)>& body) try {
  if (std::getenv("THALWEG_RANK") == nullptr) return launch(processes, argv);
  Ranks ranks;
  body(ranks);
  ranks.align();  // nobody leaves whom another still needs
  return 0;
} catch (const Unwritten& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
} catch (const std::exception& error) {
  const char* rank = std::getenv("THALWEG_RANK");
  std::fprintf(stderr, "%s%s: %s\n", rank == nullptr ? "" : "rank ", rank == nullptr ? "error" : rank, error.what());
  return 1;
}

}  // namespace apps
