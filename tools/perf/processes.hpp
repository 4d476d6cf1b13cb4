// SPDX-License-Identifier: Apache-2.0
// Processes that this tool starts: they end with it, and it hears of their ends.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <thread>

namespace perf {

/// Undoes an inherited SIG_IGN of SIGCHLD, under which the kernel throws exit codes away. Before the first child.
void hear_of_children();
/// As fork(). The child gets SIGKILL when this process ends; where there is none this process ends with a message.
pid_t start_child();
/// Waits for its end. 3, the code of a lost peer: a signal ended it.
int exit_code_of(pid_t child);
/// While it lives, the end of the process at the other end of a socket ends this one, wherever it waits: in a plan, a kernel, memory that
/// it polls.
class Watch {
 public:
  explicit Watch(int socket);
  ~Watch() { thread_.join(); }  // when that process has ended
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// From now on it may end.
  void over() { over_ = true; }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};
/// Has a child ended? It stays to be waited for. In a process without children: no.
bool a_child_ended();

}  // namespace perf
