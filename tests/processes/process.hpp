// SPDX-License-Identifier: Apache-2.0
// Other processes for tests: the test executable started again (fork and exec) in a named role, joined to the test by a
// socket that carries short messages. And a context with one worker, made and ended together.
#pragma once
#include <sys/types.h>
#include <thalweg/thalweg.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace thalweg::test {

/// The socket between test and child. Messages keep their borders; a receive waits at most 60 s.
class Pipe {
 public:
  explicit Pipe(int fd = -1) : fd_(fd) {}
  Pipe(Pipe&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~Pipe();
  void send(const std::string& text);
  /// "" when the other side has ended.
  std::string receive();
  /// receive() would not wait.
  bool readable() const;

 private:
  int fd_;
};

/// Registers what a child does: a file-scope object. The function's value is the child's exit code.
struct Role {
  Role(const char* name, std::function<int(Pipe&)> body);
};

/// A running child. Killed and reaped by the destructor.
class Child {
 public:
  explicit Child(const std::string& role, const std::vector<std::string>& environment = {});
  ~Child();
  Child(const Child&) = delete;
  void send(const std::string& text) { pipe_.send(text); }
  std::string receive() { return pipe_.receive(); }
  bool readable() const { return pipe_.readable(); }
  Pipe& pipe() { return pipe_; }
  void kill();  // SIGKILL, and waits
  int join();   // exit code; 128 + signal; -1: killed after 30 s
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Pipe pipe_;
};

struct SideOptions {
  const char* transports = nullptr;
  const char* key = "a secret of 27 bytes for tests";
  uint32_t threads = TW_THREADS_SINGLE;
  uint32_t progress = TW_PROGRESS_CALLER;
  uint64_t handshake_timeout_ns = 0;
  uint32_t tls = 0;
};

/// A context and a worker of it.
class Side {
 public:
  explicit Side(const SideOptions& options = {});
  ~Side();
  Side(const Side&) = delete;
  std::string address() const;
  tw_endpoint* connect(const std::string& address, const char* transport = nullptr);
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
};

/// Fresh random bytes.
std::string random_bytes(size_t length);

/// Progresses until done() or the limit: false.
bool progress_until(tw_worker* worker, const std::function<bool()>& done, uint64_t limit_ns = 20'000'000'000);

/// How the operation that was started so ended, within the limit.
tw_status finish(tw_status started, tw_request request, uint64_t limit_ns = 20'000'000'000);

/// Sends, and receives back from an echo role, `length` random bytes: true when they are the same.
bool echo(tw_worker* worker, tw_endpoint* endpoint, size_t length, uint64_t tag);
/// Echoes messages of any tag to their senders until one with tag kStop comes. Returns its sender.
constexpr uint64_t kStop = 0xffffffffffffffff;
tw_endpoint* serve_echo(tw_worker* worker);

uint64_t now_ns();

}  // namespace thalweg::test
