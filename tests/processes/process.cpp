// SPDX-License-Identifier: Apache-2.0
// Children of tests, and the main of every process test.
#include "process.hpp"
#include "../fixtures/rooms.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>

namespace thalweg::test {
namespace {

constexpr int kPipeFd = 3;
constexpr int kPipeWaitMs = 60'000;

std::map<std::string, std::function<int(Pipe&)>>& roles() {
  static std::map<std::string, std::function<int(Pipe&)>> all;
  return all;
}

[[noreturn]] void become(const std::string& role, int pipe, const std::vector<std::string>& environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (pipe == kPipeFd) {
    fcntl(pipe, F_SETFD, 0);
  } else {
    dup2(pipe, kPipeFd);
  }
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  const std::string argument = "--role=" + role;
  execl("/proc/self/exe", "child", argument.c_str(), nullptr);
  _exit(126);
}

}  // namespace

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

Role::Role(const char* name, std::function<int(Pipe&)> body) { roles()[name] = std::move(body); }

Pipe::~Pipe() {
  if (fd_ >= 0) close(fd_);
}

void Pipe::send(const std::string& text) {
  if (::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) < 0) perror("test pipe");
}

std::string Pipe::receive() {
  pollfd one{fd_, POLLIN, 0};
  if (poll(&one, 1, kPipeWaitMs) <= 0) return "";
  char buffer[8192];
  const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
  return got > 0 ? std::string(buffer, size_t(got)) : "";
}

bool Pipe::readable() const {
  pollfd one{fd_, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

Child::Child(const std::string& role, const std::vector<std::string>& environment)
    : pipe_([&] {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) abort();
        pid_ = fork();
        if (pid_ == 0) become(role, ends[1], environment);
        close(ends[1]);
        return ends[0];
      }()) {}

Child::~Child() {
  if (pid_ > 0) kill();
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int Child::join() {
  int status = 0;
  const uint64_t limit = now_ns() + 30'000'000'000;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (now_ns() > limit) {
      kill();
      return -1;
    }
    poll(nullptr, 0, 2);
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Side::Side(const SideOptions& options) {
  tw_context_options context_options = TW_CONTEXT_OPTIONS_INIT;
  context_options.job_key = options.key;
  context_options.job_key_length = strlen(options.key);
  context_options.transports = options.transports;
  context_options.handshake_timeout_ns = options.handshake_timeout_ns;
  context_options.tls = options.tls;
  tw_worker_options worker_options = TW_WORKER_OPTIONS_INIT;
  worker_options.threads = options.threads;
  worker_options.progress = options.progress;
  if (tw_context_create(&context_options, &context) != TW_OK || tw_worker_create(context, &worker_options, &worker) != TW_OK) {
    fprintf(stderr, "no context or worker: %s\n", tw_last_error());
    abort();
  }
}

Side::~Side() {
  tw_worker_destroy(worker);
  tw_context_destroy(context);
}

std::string Side::address() const {
  char bytes[kAddressRoom];
  size_t length = sizeof bytes;
  if (tw_worker_address(worker, bytes, &length) != TW_OK) abort();
  return std::string(bytes, length);
}

tw_endpoint* Side::connect(const std::string& address, const char* transport) {
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.transport = transport;
  tw_endpoint* endpoint = nullptr;
  if (tw_connect(worker, address.data(), address.size(), &options, &endpoint) != TW_OK) {
    fprintf(stderr, "tw_connect: %s\n", tw_last_error());
  }
  return endpoint;
}

std::string random_bytes(size_t length) {
  thread_local std::mt19937_64 generator(std::random_device{}());
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = char(generator());
  return bytes;
}

bool progress_until(tw_worker* worker, const std::function<bool()>& done, uint64_t limit_ns) {
  const uint64_t limit = now_ns() + limit_ns;
  for (unsigned idle = 0; !done();) {
    idle = tw_worker_progress(worker) != 0 ? 0 : idle + 1;
    if (idle > 200) sched_yield();
    if (now_ns() > limit) return done();
  }
  return true;
}

tw_status finish(tw_status started, tw_request request, uint64_t limit_ns) {
  if (started != TW_IN_PROGRESS) return started;
  const tw_status status = tw_request_wait(request, limit_ns);
  (void)tw_request_release(request);
  return status;
}

bool echo(tw_worker* worker, tw_endpoint* endpoint, size_t length, uint64_t tag) {
  const std::string out = random_bytes(length);
  std::string in(length + 16, '\x5a');
  tw_request receive = TW_REQUEST_NONE;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.source = endpoint;
  if (tw_recv(worker, in.data() + 8, length, tag, UINT64_MAX, &options, &receive) != TW_IN_PROGRESS) return false;
  tw_request send = TW_REQUEST_NONE;
  const tw_status sent = tw_send(endpoint, out.data(), length, tag, nullptr, &send);
  if (sent < 0) {
    fprintf(stderr, "echo send: %s\n", tw_last_error());
    (void)tw_request_release(receive);
    return false;
  }
  const tw_status send_status = tw_request_finish(send);
  const tw_status status = tw_request_wait(receive, 30'000'000'000);
  if (status != TW_OK || send_status != TW_OK) fprintf(stderr, "echo: %s\n", tw_request_message(receive));
  tw_recv_info info{};
  if (tw_request_info(receive, &info) != TW_OK) fprintf(stderr, "echo: %s\n", tw_last_error());
  (void)tw_request_release(receive);
  const std::string guard(8, '\x5a');
  return status == TW_OK && info.length == length && info.endpoint == endpoint && in.substr(8, length) == out &&
         in.substr(0, 8) == guard && in.substr(8 + length) == guard;
}

tw_endpoint* serve_echo(tw_worker* worker) {
  std::string buffer(4 << 20, '\0');
  for (;;) {
    tw_recv_info info{};
    const tw_status status = tw_recv_blocking(worker, buffer.data(), buffer.size(), 0, 0, &info);
    if (status != TW_OK) continue;  // a sender was lost half-way
    if (info.tag == kStop) return info.endpoint;
    (void)tw_send_blocking(info.endpoint, buffer.data(), info.length, info.tag);  // the receiver may be gone
  }
}

}  // namespace thalweg::test

int main(int argc, char** argv) {
  using namespace thalweg::test;
  signal(SIGPIPE, SIG_DFL);
  if (argc == 2 && strncmp(argv[1], "--role=", 7) == 0) {
    auto role = roles().find(argv[1] + 7);
    if (role == roles().end()) return 125;
    Pipe pipe(kPipeFd);
    fcntl(kPipeFd, F_SETFD, FD_CLOEXEC);
    return role->second(pipe);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
