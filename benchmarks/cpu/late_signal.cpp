// SPDX-License-Identifier: Apache-2.0
// How late a wait for a signal ends when the signal comes late: two processes on two cores; one puts its time with a signal DELAY us
// after the other began to wait. Prints lines "signal_wait,DELAY,microseconds from the put to the end of the wait,us": medians.
// benchmarks/python/late_signal.py does the same in Python.   usage: thalweg-late-signal [ROUNDS]
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

namespace {

constexpr uint64_t kLong = 20'000'000'000;
constexpr unsigned kDelays[] = {0, 50, 200, 1000, 5000};  // us

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "thalweg-late-signal: %s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::_Exit(1);
}

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void say(int pipe, const void* what, size_t length) {
  const uint64_t n = length;
  if (write(pipe, &n, sizeof n) != sizeof n || write(pipe, what, length) != static_cast<ssize_t>(length)) std::_Exit(1);
}

std::vector<unsigned char> hear(int pipe) {
  uint64_t n = 0;
  if (recv(pipe, &n, sizeof n, MSG_WAITALL) != sizeof n) std::_Exit(1);
  std::vector<unsigned char> bytes(n);
  if (recv(pipe, bytes.data(), n, MSG_WAITALL) != static_cast<ssize_t>(n)) std::_Exit(1);
  return bytes;
}

struct Side {
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  tw_memory* memory = nullptr;
  tw_signal* signal = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* far = nullptr;

  explicit Side(int pipe) {
    must(tw_context_create(nullptr, &context), "tw_context_create");
    must(tw_worker_create(context, nullptr, &worker), "tw_worker_create");
    unsigned char bytes[TW_ADDRESS_MAX];
    size_t length = sizeof bytes;
    must(tw_worker_address(worker, bytes, &length), "tw_worker_address");
    say(pipe, bytes, length);
    const auto peer = hear(pipe);
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.transport = "shm";
    must(tw_connect(worker, peer.data(), peer.size(), &options, &endpoint), "tw_connect");
    must(tw_endpoint_wait(endpoint, kLong), "tw_endpoint_wait");
    must(tw_memory_allocate(context, 64, nullptr, &memory), "tw_memory_allocate");
    must(tw_signal_create(worker, nullptr, &signal), "tw_signal_create");
    unsigned char key[TW_KEY_MAX];
    length = sizeof key;
    must(tw_memory_export(memory, key, &length), "tw_memory_export");
    say(pipe, key, length);
    const auto theirs = hear(pipe);
    must(tw_memory_import(endpoint, theirs.data(), theirs.size(), &remote), "tw_memory_import");
    length = sizeof key;
    must(tw_signal_export(signal, key, &length), "tw_signal_export");
    say(pipe, key, length);
    const auto word = hear(pipe);
    must(tw_signal_import(endpoint, word.data(), word.size(), &far), "tw_signal_import");
  }
  void wait(uint64_t step) { must(tw_signal_wait(signal, TW_COMPARE_GE, step, kLong), "tw_signal_wait"); }
};

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 300;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  const pid_t child = fork();
  const bool waits = child != 0;
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(waits ? 0 : 1, &core);
  (void)sched_setaffinity(0, sizeof core, &core);
  Side side(sockets[waits ? 0 : 1]);
  uint64_t step = 0;
  for (const unsigned delay : kDelays) {
    std::vector<double> late;
    for (unsigned i = 0; i < rounds; ++i) {
      ++step;
      if (waits) {
        must(tw_signal_post(side.far, step, nullptr, nullptr), "tw_signal_post");
        side.wait(step);
        uint64_t put = 0;
        std::memcpy(&put, tw_memory_address(side.memory), sizeof put);
        late.push_back(static_cast<double>(now_ns() - put) / 1e3);
      } else {
        side.wait(step);
        for (const uint64_t until = now_ns() + delay * 1000; now_ns() < until;) {
        }
        const uint64_t time = now_ns();
        tw_op_options options = TW_OP_OPTIONS_INIT;
        options.signal = side.far;
        options.signal_value = step;
        must(tw_put(side.endpoint, &time, sizeof time, side.remote, 0, &options, nullptr), "tw_put");
      }
    }
    if (!waits) continue;
    std::nth_element(late.begin(), late.begin() + rounds / 2, late.end());
    std::printf("signal_wait,%u,%.3f,us\n", delay, late[rounds / 2]);
    std::fflush(stdout);
  }
  char over = 0;
  (void)!write(sockets[waits ? 0 : 1], &over, 1);
  (void)!read(sockets[waits ? 0 : 1], &over, 1);
  tw_worker_destroy(side.worker);
  tw_context_destroy(side.context);
  int status = 0;
  if (waits) waitpid(child, &status, 0);
  return status;
}
