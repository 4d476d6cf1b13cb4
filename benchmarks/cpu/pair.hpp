// SPDX-License-Identifier: Apache-2.0
// Two processes on two cores, connected: what the programs of this folder begin and end with.
#pragma once
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace bench {

constexpr uint64_t kLong = 20'000'000'000;

inline void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::_Exit(1);
}

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One end of a socket pair: bytes with their length before them.
struct Pipe {
  int fd = -1;
  void say(const void* what, size_t length) const {
    const uint64_t n = length;
    if (write(fd, &n, sizeof n) != sizeof n || write(fd, what, length) != static_cast<ssize_t>(length)) std::_Exit(1);
  }
  std::vector<unsigned char> hear() const {
    uint64_t n = 0;
    if (recv(fd, &n, sizeof n, MSG_WAITALL) != sizeof n) std::_Exit(1);
    std::vector<unsigned char> bytes(n);
    if (recv(fd, bytes.data(), n, MSG_WAITALL) != static_cast<ssize_t>(n)) std::_Exit(1);
    return bytes;
  }
  std::vector<unsigned char> swap(const void* what, size_t length) const {
    say(what, length);
    return hear();
  }
  /// Both are here.
  void meet() const { (void)swap("", 1); }
};

/// Forks, and binds rank 0 and rank 1, the child, to a core each. Before there is a context: a child may not use its parent's.
class Processes {
 public:
  Processes() {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) std::_Exit(1);
    child_ = fork();
    rank = child_ != 0 ? 0 : 1;
    pipe.fd = sockets[rank];
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(static_cast<size_t>(rank), &core);
    (void)sched_setaffinity(0, sizeof core, &core);
  }
  /// The exit code, when both are through.
  int end() const {
    int status = 0;
    if (rank == 0) waitpid(child_, &status, 0);
    return status == 0 ? 0 : 1;
  }
  int rank = 0;
  Pipe pipe;

 private:
  pid_t child_ = 0;
};

/// A key or an address of both processes, whose size is asked first: what the other one's is.
template <class Ask>
std::vector<unsigned char> swap(const Pipe& pipe, const Ask& ask) {
  size_t size = 0;
  must(ask(nullptr, &size), "the size of a key or an address");
  std::vector<unsigned char> mine(size);
  must(ask(mine.data(), &size), "a key or an address");
  return pipe.swap(mine.data(), size);
}

/// Context, worker and endpoint to the other process.
struct Connected {
  Connected(const Pipe& pipe, const char* transport) {
    tw_context_options wanted = TW_CONTEXT_OPTIONS_INIT;
    wanted.transports = transport;  // also of what plans connect by themselves
    must(tw_context_create(transport == nullptr ? nullptr : &wanted, &context), "tw_context_create");
    must(tw_worker_create(context, nullptr, &worker), "tw_worker_create");
    const auto peer = swap(pipe, [this](void* address, size_t* size) { return tw_worker_address(worker, address, size); });
    must(tw_connect(worker, peer.data(), peer.size(), nullptr, &endpoint), "tw_connect");
    must(tw_endpoint_wait(endpoint, kLong), "tw_endpoint_wait");
  }
  ~Connected() {
    tw_worker_destroy(worker);
    tw_context_destroy(context);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
};

}  // namespace bench
