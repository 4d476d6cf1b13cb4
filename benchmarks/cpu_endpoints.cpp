// SPDX-License-Identifier: Apache-2.0
// What endpoints cost. Connects N endpoints from P processes to one worker and measures: memory of an idle endpoint (both
// sides, the worker's process and shared memory), the one-way latency of one endpoint alone, with all others idle, and when all
// were active within the last second.
//   usage: cpu_endpoints [shm|tcp] [N] [P]      prints: test,value,unit
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::exit(1);
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// Proportional set size: shared pages count once over the processes that map them.
double pss_kib(pid_t pid) {
  FILE* f = std::fopen(("/proc/" + std::to_string(pid) + "/smaps_rollup").c_str(), "r");
  char line[256];
  double value = 0;
  while (f && std::fgets(line, sizeof line, f))
    if (std::sscanf(line, "Pss: %lf", &value) == 1) break;
  if (f) std::fclose(f);
  return value;
}

constexpr uint64_t kPing = 1, kPong = 2, kAll = 3, kDone = 4, kReady = 5, kPlayer = 6;

void wait(tw_worker* w, tw_request r) {
  if (r == TW_REQUEST_NONE) return;
  while (tw_request_test(r) == TW_IN_PROGRESS) tw_progress(w);
  tw_request_release(r);
}
void send(tw_endpoint* ep, uint64_t tag, uint64_t value = 0) {
  tw_request r = 0;
  must(tw_send(ep, &value, sizeof value, tag, nullptr, &r), "tw_send");
  wait(tw_endpoint_worker(ep), r);
}
void receive(tw_worker* w, uint64_t tag) {
  uint64_t value = 0;
  tw_request r = 0;
  must(tw_recv(w, &value, sizeof value, tag, ~0ull, nullptr, &r), "tw_recv");
  wait(w, r);
}

/// Holds `count` workers with one endpoint each to the center; the first one of the first process plays ping-pong.
void satellite(int socket, const char* transport, unsigned count, bool player) {
  unsigned char home[TW_ADDRESS_MAX];
  uint64_t length = 0;
  if (::read(socket, &length, 8) != 8 || ::read(socket, home, sizeof home) != static_cast<ssize_t>(sizeof home)) std::exit(1);
  pin(1);
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  tw_endpoint_options o = TW_ENDPOINT_OPTIONS_INIT;
  o.transport = transport;
  o.timeout_ns = 120000000000ull;
  std::vector<tw_worker*> workers(count);
  std::vector<tw_endpoint*> endpoints(count);
  char byte;
  for (unsigned i = 0; i < count; ++i) {
    must(tw_worker_create(context, nullptr, &workers[i]), "tw_worker_create");
    if (i == 0 && ::read(socket, &byte, 1) != 1) std::exit(1);  // memory is looked at before the first connection
    must(tw_connect(workers[i], home, length, &o, &endpoints[i]), "tw_connect");
    must(tw_endpoint_wait(endpoints[i], 120000000000ull), "connecting");
  }
  for (unsigned i = 0; i < count; ++i) send(endpoints[i], kReady, player && i == 0 ? kPlayer : kReady);
  for (char command = 0; ::read(socket, &command, 1) == 1 && command != 'q';) {
    if (command == 'a')
      for (unsigned i = 0; i < count; ++i) send(endpoints[i], kAll);
    if (command == 'p' && player) {
      for (;;) {
        uint64_t value = 0;
        tw_request r = 0;
        must(tw_recv(workers[0], &value, 8, kPing, ~0ull, nullptr, &r), "tw_recv");
        while (tw_request_test(r) == TW_IN_PROGRESS) tw_progress(workers[0]);
        tw_request_release(r);
        if (value == kDone) break;
        send(endpoints[0], kPong);
      }
    }
    if (::write(socket, &command, 1) != 1) break;
  }
  _exit(0);
}

double ping_pong(tw_worker* w, tw_endpoint* ep) {
  constexpr int kBatches = 1500, kBatch = 20;
  std::vector<double> us;
  for (int b = 0; b < kBatches; ++b) {
    double start = now();
    for (int i = 0; i < kBatch; ++i) {
      send(ep, kPing);
      receive(w, kPong);
    }
    us.push_back((now() - start) * 1e6 / 2 / kBatch);
  }
  uint64_t end = kDone;
  tw_request r = 0;
  must(tw_send(ep, &end, 8, kPing, nullptr, &r), "tw_send");
  wait(w, r);
  std::nth_element(us.begin(), us.begin() + kBatches / 2, us.end());
  return us[kBatches / 2];
}

struct Child {
  pid_t pid;
  int socket;
  unsigned endpoints;
};

void command(std::vector<Child>& children, tw_worker* w, char c, bool progress) {
  for (Child& child : children)
    if (::write(child.socket, &c, 1) != 1) std::exit(1);
  for (Child& child : children) {
    char answer = 0;
    while (::recv(child.socket, &answer, 1, MSG_DONTWAIT) != 1)
      if (progress) tw_progress(w);
  }
}

double run(const char* transport, unsigned endpoints, unsigned processes, bool report_memory) {
  std::vector<Child> children;
  for (unsigned p = 0; p < processes; ++p) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) std::exit(1);
    unsigned share = endpoints / processes + (p < endpoints % processes);
    pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(sockets[0]);
      satellite(sockets[1], transport, share, p == 0);
    }
    ::close(sockets[1]);
    children.push_back({pid, sockets[0], share});
  }
  pin(0);
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  must(tw_worker_create(context, nullptr, &worker), "tw_worker_create");
  unsigned char address[TW_ADDRESS_MAX] = {};
  size_t n = sizeof address;
  must(tw_worker_address(worker, address, &n), "tw_worker_address");
  uint64_t length = n;
  for (Child& c : children)
    if (::write(c.socket, &length, 8) != 8 || ::write(c.socket, address, sizeof address) < 0) std::exit(1);
  ::usleep(500000);
  auto memory = [&] {
    double sum = pss_kib(::getpid());
    for (Child& c : children) sum += pss_kib(c.pid);
    return sum;
  };
  double before = memory();
  for (Child& c : children)
    if (::write(c.socket, "g", 1) != 1) std::exit(1);
  tw_endpoint* player = nullptr;
  for (unsigned i = 0; i < endpoints; ++i) {
    uint64_t value = 0;
    tw_recv_info info{};
    must(tw_recv_blocking(worker, &value, 8, kReady, ~0ull, &info), "tw_recv_blocking");
    if (value == kPlayer) player = info.endpoint;
  }
  double after = memory();
  if (report_memory) std::printf("%s_idle_endpoint,%.1f,KiB\n", transport, (after - before) / endpoints);
  char p = 'p';
  if (::write(children[0].socket, &p, 1) != 1) std::exit(1);
  double latency = ping_pong(worker, player);
  char answer = 0;
  if (::read(children[0].socket, &answer, 1) != 1) std::exit(1);
  if (endpoints > 1) {
    std::printf("%s_latency_others_idle,%.4f,us\n", transport, latency);
    std::vector<tw_request> requests(endpoints, 0);
    std::vector<uint64_t> values(endpoints, 0);
    for (unsigned i = 0; i < endpoints; ++i)
      must(tw_recv(worker, &values[i], 8, kAll, ~0ull, nullptr, &requests[i]), "tw_recv");
    command(children, worker, 'a', true);
    must(tw_wait_all(requests.data(), requests.size()), "tw_wait_all");
    if (::write(children[0].socket, &p, 1) != 1) std::exit(1);
    latency = ping_pong(worker, player);
    std::printf("%s_latency_all_active_last_second,%.4f,us\n", transport, latency);
  } else {
    std::printf("%s_latency_alone,%.4f,us\n", transport, latency);
  }
  std::fflush(stdout);
  for (Child& c : children) {
    ::kill(c.pid, SIGKILL);
    ::waitpid(c.pid, nullptr, 0);
    ::close(c.socket);
  }
  tw_worker_destroy(worker);
  tw_context_destroy(context);
  return latency;
}

}  // namespace

int main(int argc, char** argv) {
  const char* transport = argc > 1 ? argv[1] : "shm";
  unsigned endpoints = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1000;
  unsigned processes = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 8;
  run(transport, 1, 1, false);
  run(transport, endpoints, processes, true);
  return 0;
}
