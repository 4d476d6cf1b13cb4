// SPDX-License-Identifier: Apache-2.0
#include "processes.hpp"

#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "pair.hpp"

namespace perf {

void hear_of_children() { (void)std::signal(SIGCHLD, SIG_DFL); }

pid_t start_child() {
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) end_with(std::string("fork: ") + std::strerror(errno));
  if (child != 0) return child;
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(3);  // it ended before that took effect
  return 0;
}

int exit_code_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 3;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

Watch::Watch(int socket)
    : thread_([this, socket] {
        pollfd its_end{socket, 0, 0};  // POLLHUP needs no asking
        while (::poll(&its_end, 1, -1) < 0 && errno == EINTR) {
        }
        if (!over_) end_with("the other process is gone");
      }) {}

bool a_child_ended() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

}  // namespace perf
