// SPDX-License-Identifier: Apache-2.0
// The part that every example shares: this process starts a second one (itself, with a socket to talk over), both make a
// worker, exchange addresses over the socket and connect. Real programs exchange addresses by any means; see thalweg::Store.
#pragma once
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thalweg/thalweg.hpp>

namespace examples {

inline constexpr std::chrono::seconds kPatience{30};  // neither waits longer for what the other has not done

inline void must(tw_status status) {
  if (status < 0) throw thalweg::Error(status);
}

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

/// The socket to the other process, and which of the two this is. Made before there is a context: fork() comes first.
class Start {
 public:
  explicit Start(char** argv) {
    if (const char* number = std::getenv("PAIR_SOCKET")) {
      rank = 1;
      socket_ = std::atoi(number);
    } else {
      start_other(argv);
    }
    const timeval patience{kPatience.count(), 0};
    expect(::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0, "setsockopt failed");
  }

  /// A small string for a string.
  std::string exchange(const std::string& mine) const {
    size_t length = mine.size();
    expect(::send(socket_, &length, sizeof length, MSG_NOSIGNAL) == sizeof length, missing());
    expect(mine.empty() || ::send(socket_, mine.data(), length, MSG_NOSIGNAL) > 0, missing());
    expect(::recv(socket_, &length, sizeof length, MSG_WAITALL) == sizeof length, missing());
    std::string theirs(length, '\0');
    expect(theirs.empty() || ::recv(socket_, theirs.data(), length, MSG_WAITALL) > 0, missing());
    return theirs;
  }

  const char* missing() const {
    return rank == 0 ? "rank 1 has ended, or has not come to this point in 30 s"
                     : "rank 0 has ended, or has not come to this point in 30 s";
  }

  /// Rank 0: how the other one ended.
  int join() const {
    int status = 0;
    if (rank == 0) ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }

  int rank = 0;

 private:
  void start_other(char** argv) {
    int ends[2];
    expect(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair failed");
    socket_ = ends[0];
    child_ = ::fork();
    if (child_ != 0) {
      ::close(ends[1]);
      return;
    }
    ::close(ends[0]);
    ::setenv("PAIR_SOCKET", std::to_string(ends[1]).c_str(), 1);
    ::execv("/proc/self/exe", argv);
    std::_Exit(127);
  }

  int socket_ = -1;
  pid_t child_ = -1;
};

/// A connected worker.
struct Pair {
  explicit Pair(const Start& started) : start(started), rank(started.rank) {
    endpoint = worker.connect(start.exchange(worker.address()));
    endpoint.wait(std::chrono::seconds(10));
  }

  /// From the other process alone: a receive from anybody would go on waiting when it is gone.
  void receive(thalweg::Bytes to, uint64_t tag) const {
    thalweg::Request received;
    must(worker.recv(to, tag, received, UINT64_MAX, thalweg::OpOptions().source(endpoint.get())));
    const tw_status status = received.wait(kPatience);
    expect(status != TW_ERR_TIMED_OUT, start.missing());
    must(status);
  }

  void close() {
    must(endpoint.close());
    start.exchange("");  // neither tears its worker down while the other still closes
  }

  const Start& start;
  int rank;
  thalweg::Context context;
  thalweg::Worker worker{context};
  thalweg::Endpoint endpoint;
};

/// Runs body(pair) in both processes; the exit code of the program.
template <class Body>
int run(char** argv, Body body) try {
  const Start start(argv);
  {
    Pair pair(start);
    body(pair);
    pair.close();
  }
  return start.join();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

}  // namespace examples
