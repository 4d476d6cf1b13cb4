// SPDX-License-Identifier: Apache-2.0
// What endpoints cost. One worker (the center) listens; P processes (satellites) make N endpoints to it, and one of them, the
// player, plays ping-pong. Every payload is checked. Prints lines "test,endpoints,value,unit":
//   endpoint_lat_alone    one way, 8 bytes, over the only endpoint
//   endpoint_lat_idle     the same with N endpoints, all others idle
//   endpoint_lat_active   the same in the tenth of a second after every endpoint was active
//   endpoint_memory       user memory of an idle endpoint, both sides: the growth of the proportional set sizes (shared pages
//                         count once) of all processes over N
//   endpoint_kernel       what the kernel spends on it beside: slab and page tables, of the whole machine
//   usage: thalweg-endpoints [shm|tcp] [N] [P]
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr uint64_t kAny = ~0ull, kLong = 120'000'000'000ull;
constexpr uint64_t kPing = 1, kPong = 2, kHello = 3, kActive = 4;
constexpr unsigned kRounds = 7, kBatch = 20;
constexpr double kRoundSeconds = 0.1;

void fail_with(const char* what) {
  std::fprintf(stderr, "thalweg-endpoints: %s\n", what);
  _exit(1);
}
void must(tw_status s, const char* what) {
  if (s < 0) fail_with((std::string(what) + ": " + tw_status_name(s) + ": " + tw_last_error()).c_str());
}

/// What is expected of a number that both sides know: another word each time, so that an old message is seen.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
  return x ^ (x >> 29);
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

cpu_set_t allowed;  // what the program was started with

/// To the first or second core of those.
void pin(int which) {
  cpu_set_t one;
  which %= CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || which-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
}

/// The sum of the fields of a file of "Name: number kB" lines.
double kib_in(const std::string& path, std::initializer_list<const char*> fields) {
  FILE* f = std::fopen(path.c_str(), "r");
  if (f == nullptr) fail_with(("no " + path).c_str());
  char line[256], name[64];
  double sum = 0, value = 0;
  while (std::fgets(line, sizeof line, f) != nullptr) {
    if (std::sscanf(line, "%63[^:]: %lf", name, &value) != 2) continue;
    for (const char* field : fields) sum += std::strcmp(name, field) == 0 ? value : 0;
  }
  std::fclose(f);
  return sum;
}
double kernel_kib() { return kib_in("/proc/meminfo", {"Slab", "PageTables"}); }

void finish(tw_worker* worker, tw_request request) {
  if (request == TW_REQUEST_NONE) return;
  tw_status status;
  while ((status = tw_request_test(request)) == TW_IN_PROGRESS) tw_worker_progress(worker);
  must(status, "a request");
  (void)tw_request_release(request);
}
void send(tw_endpoint* endpoint, uint64_t tag, uint64_t value) {
  tw_request request = TW_REQUEST_NONE;
  must(tw_send(endpoint, &value, sizeof value, tag, nullptr, &request), "tw_send");
  finish(tw_endpoint_worker(endpoint), request);
}
uint64_t receive(tw_worker* worker, uint64_t tag) {
  uint64_t value = 0;
  tw_request request = TW_REQUEST_NONE;
  must(tw_recv(worker, &value, sizeof value, tag, kAny, nullptr, &request), "tw_recv");
  finish(worker, request);
  return value;
}

void tell(int socket, const void* data, size_t length) {
  if (::send(socket, data, length, MSG_NOSIGNAL) != static_cast<ssize_t>(length)) fail_with("a process is gone");
}
void hear(int socket, void* data, size_t length) {
  if (::recv(socket, data, length, MSG_WAITALL) != static_cast<ssize_t>(length)) fail_with("a process is gone");
}

// ------------------------------------------------------------------------------------------------ satellites

struct Order {
  char command;       // 'c'onnect, 'a'ctive: one message over each endpoint, 'p'lay, 'q'uit
  uint64_t number;    // of the round
  char address[128];  // of the center, for 'c'
};

struct Satellite {
  uint64_t first, count;  // the numbers of its endpoints
  tw_worker* worker;
  std::vector<tw_endpoint*> endpoints;
};

/// Answers pings until the one that ends the game, which is answered too.
void play(Satellite& own) {
  for (bool last = false; !last;) {
    const uint64_t ping = receive(own.worker, kPing);
    last = ping == 0;
    send(own.endpoints[0], kPong, mix(ping));
  }
}

[[noreturn]] void satellite(int socket, const char* transport, uint64_t first, uint64_t count) {
  pin(1);
  Satellite own{first, count, nullptr, {}};
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  must(tw_worker_create(context, nullptr, &own.worker), "tw_worker_create");
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.transport = transport;
  options.timeout_ns = kLong;
  char ready = 'r';
  for (Order order{};;) {
    tell(socket, &ready, 1);
    hear(socket, &order, sizeof order);
    if (order.command == 'q') _exit(0);
    if (order.command == 'c') {
      own.endpoints.resize(count);
      for (tw_endpoint*& endpoint : own.endpoints) {
        must(tw_connect_to(own.worker, order.address, &options, &endpoint), "tw_connect_to");
        must(tw_endpoint_wait(endpoint, kLong), "connecting");
        if (std::strcmp(tw_endpoint_transport(endpoint), transport) != 0) fail_with("not the transport that was asked for");
      }
      for (uint64_t i = 0; i < count; ++i) send(own.endpoints[i], kHello, first + i);
    }
    if (order.command == 'a')
      for (uint64_t i = 0; i < count; ++i) send(own.endpoints[i], kActive, mix(order.number + first + i));
    if (order.command == 'p') play(own);
    while (tw_worker_progress(own.worker) != 0) continue;  // what was accepted leaves the process before it waits outside
  }
}

// ------------------------------------------------------------------------------------------------ the center

struct Child {
  pid_t pid;
  int socket;
};

struct Center {
  std::vector<Child> children;
  tw_worker* worker = nullptr;
  tw_endpoint* player = nullptr;
  std::unordered_map<tw_endpoint*, uint64_t> numbers;
};

/// All children have done what they were told; the center progresses meanwhile.
void await_all(Center& center) {
  for (Child& child : center.children) {
    char ready = 0;
    ssize_t n;
    while ((n = ::recv(child.socket, &ready, 1, MSG_DONTWAIT)) < 0) {
      if (center.worker != nullptr) tw_worker_progress(center.worker);
    }
    if (n == 0) fail_with("a process is gone");
  }
}
void order_all(Center& center, const Order& order) {
  for (Child& child : center.children) tell(child.socket, &order, sizeof order);
}

double memory_kib(const Center& center) {
  double sum = kib_in("/proc/self/smaps_rollup", {"Pss"});
  for (const Child& child : center.children) sum += kib_in("/proc/" + std::to_string(child.pid) + "/smaps_rollup", {"Pss"});
  return sum;
}

void start_children(Center& center, const char* transport, uint64_t endpoints, uint64_t processes) {
  uint64_t first = 0;
  for (uint64_t p = 0; p < processes; ++p) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail_with("no socketpair");
    const uint64_t share = endpoints / processes + (p < endpoints % processes);
    const pid_t pid = ::fork();
    if (pid < 0) fail_with("no fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(sockets[0]);
      satellite(sockets[1], transport, first, share);
    }
    ::close(sockets[1]);
    center.children.push_back({pid, sockets[0]});
    first += share;
  }
}

/// Endpoint by number, learned from the first message of each.
void meet(Center& center, uint64_t endpoints) {
  for (uint64_t i = 0; i < endpoints; ++i) {
    uint64_t number = 0;
    tw_recv_info info{};
    must(tw_recv_blocking(center.worker, &number, sizeof number, kHello, kAny, &info), "tw_recv_blocking");
    if (number >= endpoints || !center.numbers.emplace(info.endpoint, number).second) fail_with("a wrong first message");
    if (number == 0) center.player = info.endpoint;
  }
  if (center.player == nullptr) fail_with("the player is missing");
}

/// Every endpoint sends one message with a word that only it sends in this round.
void all_active(Center& center, uint64_t round) {
  const size_t n = center.numbers.size();
  std::vector<tw_request> requests(n);
  std::vector<uint64_t> words(n);
  for (size_t i = 0; i < n; ++i)
    must(tw_recv(center.worker, &words[i], sizeof words[i], kActive, kAny, nullptr, &requests[i]), "tw_recv");
  order_all(center, {'a', round, {}});
  await_all(center);
  for (size_t i = 0; i < n; ++i) {
    tw_recv_info info{};
    while (tw_request_test(requests[i]) == TW_IN_PROGRESS) tw_worker_progress(center.worker);
    must(tw_request_info(requests[i], &info), "tw_request_info");
    if (words[i] != mix(round + center.numbers.at(info.endpoint))) fail_with("a wrong word arrived");
    (void)tw_request_release(requests[i]);
  }
}

/// Microseconds one way, one value per batch, for kRoundSeconds.
void ping_pong(Center& center, uint64_t word, std::vector<double>* us) {
  const Order order{'p', 0, {}};
  tell(center.children[0].socket, &order, sizeof order);
  const auto turn = [&](uint64_t ping) {
    send(center.player, kPing, ping);
    if (receive(center.worker, kPong) != mix(ping)) fail_with("a wrong answer");
  };
  for (double start = now(), end = start + kRoundSeconds, last = start; last < end;) {
    for (unsigned i = 0; i < kBatch; ++i) turn(++word | 1);
    const double t = now();
    us->push_back((t - last) * 1e6 / 2 / kBatch);
    last = t;
  }
  turn(0);
  char ready = 0;
  hear(center.children[0].socket, &ready, 1);
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void print(const char* test, uint64_t endpoints, double value, const char* unit) {
  std::printf("%s,%llu,%.4g,%s\n", test, static_cast<unsigned long long>(endpoints), value, unit);
  std::fflush(stdout);
}

void measure(Center& center, uint64_t endpoints) {
  std::random_device random;
  std::vector<double> idle, active;
  for (unsigned round = 0; round < kRounds; ++round) {
    ping_pong(center, random(), &idle);
    if (endpoints == 1) continue;
    all_active(center, random());
    ping_pong(center, random(), &active);
    // Until nothing is young any more.
    for (double end = now() + 0.05; now() < end;) tw_worker_progress(center.worker);
  }
  print(endpoints == 1 ? "endpoint_lat_alone" : "endpoint_lat_idle", endpoints, median(idle), "us");
  if (endpoints != 1) print("endpoint_lat_active", endpoints, median(active), "us");
}

void run(const char* transport, uint64_t endpoints, uint64_t processes) {
  Center center;
  start_children(center, transport, endpoints, processes);
  pin(0);
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  must(tw_worker_create(context, nullptr, &center.worker), "tw_worker_create");
  tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
  options.on_request = [](void*, tw_connection_request* request) {
    tw_endpoint* endpoint = nullptr;
    must(tw_accept(request, nullptr, &endpoint), "tw_accept");
  };
  tw_listener* listener = nullptr;
  must(tw_listen(center.worker, "127.0.0.1:0", &options, &listener), "tw_listen");
  await_all(center);
  const double user = memory_kib(center), kernel = kernel_kib();
  Order order{'c', 0, {}};
  std::snprintf(order.address, sizeof order.address, "127.0.0.1:%u", tw_listener_port(listener));
  order_all(center, order);
  meet(center, endpoints);
  await_all(center);
  if (endpoints != 1) {
    const double n = static_cast<double>(endpoints);
    print("endpoint_memory", endpoints, (memory_kib(center) - user) / n, "KiB");
    print("endpoint_kernel", endpoints, (kernel_kib() - kernel) / n, "KiB");
  }
  measure(center, endpoints);
  order_all(center, {'q', 0, {}});
  for (Child& child : center.children) {
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    ::close(child.socket);
    if (status != 0) fail_with("a process ended badly");
  }
  tw_worker_destroy(center.worker);
  tw_context_destroy(context);
}

}  // namespace

int main(int argc, char** argv) {
  const char* transport = argc > 1 ? argv[1] : "shm";
  const uint64_t endpoints = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000;
  const uint64_t processes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 8;
  if (endpoints < 2 || processes == 0 || processes > endpoints) fail_with("usage: thalweg-endpoints [shm|tcp] [N > 1] [P]");
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail_with("no affinity");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  run(transport, 1, 1);
  run(transport, endpoints, processes);
  return 0;
}
