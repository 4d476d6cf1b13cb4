// SPDX-License-Identifier: Apache-2.0
// Many at once: eight threads with a worker each, one worker posted to by eight threads, two hundred endpoints, and a sender
// that outruns an idle receiver. THALWEG_STRESS_SECONDS (default 2) and THALWEG_STRESS_BYTES (default 200 MB per size) make
// it long; the long runs' results are in docs/testing.md.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <thalweg/thalweg.h>

#include "../fixtures/rooms.hpp"

namespace {

double option(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : otherwise;
}

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::abort();
}

unsigned char pattern(uint64_t seed, size_t i) {
  return static_cast<unsigned char>((seed * 0x9E3779B97F4A7C15ull >> 32) + i * 131);
}

using Address = std::vector<unsigned char>;
Address address_of(tw_worker* worker) {
  Address a(kAddressRoom);
  size_t n = a.size();
  must(tw_worker_address(worker, a.data(), &n), "tw_worker_address");
  a.resize(n);
  return a;
}

/// Exchanges messages of random sizes with one peer at a time; the payload names sender and number.
struct Talker {
  tw_worker* worker;
  std::mt19937_64 random;
  std::vector<std::vector<unsigned char>> buffers;

  void round(const std::vector<tw_endpoint*>& peers, uint64_t number, unsigned me, unsigned all) {
    std::vector<tw_request> requests;
    std::vector<std::vector<unsigned char>> in(peers.size()), out(peers.size());
    for (size_t p = 0; p < peers.size(); ++p) {
      if (peers[p] == nullptr) continue;
      size_t n = size_of(number, static_cast<unsigned>(p), me, all), m = size_of(number, me, static_cast<unsigned>(p), all);
      in[p].assign(n + 1, 0xEE);
      out[p].resize(m);
      for (size_t i = 0; i < m; ++i) out[p][i] = pattern(number * all + me, i);
      requests.push_back(0);
      must(tw_recv(worker, in[p].data(), n, tag(number, static_cast<unsigned>(p), me), ~0ull, nullptr, &requests.back()),
           "tw_recv");
      requests.push_back(0);
      must(tw_send(peers[p], out[p].data(), m, tag(number, me, static_cast<unsigned>(p)), nullptr, &requests.back()),
           "tw_send");
    }
    must(tw_request_finish_all(requests.data(), requests.size()), "tw_request_finish_all");
    for (size_t p = 0; p < peers.size(); ++p) {
      if (peers[p] == nullptr) continue;
      size_t n = in[p].size() - 1;
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(in[p][i], pattern(number * all + p, i)) << "byte " << i << " of " << n;
      ASSERT_EQ(in[p][n], 0xEE);
    }
  }
  static uint64_t tag(uint64_t number, unsigned from, unsigned to) { return number << 20 | from << 10 | to; }
  static size_t size_of(uint64_t number, unsigned from, unsigned to, unsigned all) {
    uint64_t x = (number * all * all + from * all + to) * 0xBF58476D1CE4E5B9ull >> 33;
    return x % 16 == 0 ? x % 300000 : x % 3 == 0 ? x % 20000 : x % 200;
  }
};

TEST(Stress, EightThreadsWithAWorkerEach) {
  constexpr unsigned kThreads = 8;
  double seconds = option("THALWEG_STRESS_SECONDS", 2);
  for (const char* transport : {"shm", "tcp"}) {
    tw_context* context = nullptr;
    must(tw_context_create(nullptr, &context), "tw_context_create");
    std::vector<tw_worker*> workers(kThreads);
    std::vector<Address> addresses;
    for (auto& w : workers) {
      must(tw_worker_create(context, nullptr, &w), "tw_worker_create");
      addresses.push_back(address_of(w));
    }
    std::atomic<unsigned> ready{0};
    std::atomic<uint64_t> last{~0ull}, rounds{0};
    auto life = [&](unsigned me) {
      std::vector<tw_endpoint*> peers(kThreads, nullptr);
      tw_endpoint_options o = TW_ENDPOINT_OPTIONS_INIT;
      o.transport = transport;
      for (unsigned p = 0; p < kThreads; ++p) {
        if (p != me) must(tw_connect(workers[me], addresses[p].data(), addresses[p].size(), &o, &peers[p]), "tw_connect");
      }
      Talker talker{workers[me], std::mt19937_64(me), {}};
      auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds / 2);
      for (uint64_t number = 0; number < last.load(); ++number) {
        talker.round(peers, number, me, kThreads);
        if (me == 0 && last.load() == ~0ull && std::chrono::steady_clock::now() > end) last = number + 3;
        rounds = number;
      }
      ++ready;
      while (ready < kThreads) tw_worker_progress(workers[me]);
      for (tw_endpoint* ep : peers)
        if (ep) (void)tw_endpoint_close(ep, TW_CLOSE_FORCE, nullptr);
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(life, t);
    for (std::thread& t : threads) t.join();
    EXPECT_GT(rounds.load(), 1u);
    for (tw_worker* w : workers) tw_worker_destroy(w);
    tw_context_destroy(context);
  }
}

TEST(Stress, OneWorkerPostedToByEightThreads) {
  constexpr unsigned kThreads = 8;
  double seconds = option("THALWEG_STRESS_SECONDS", 2);
  tw_context* context = nullptr;
  must(tw_context_create(nullptr, &context), "tw_context_create");
  tw_worker_options wo = TW_WORKER_OPTIONS_INIT;
  wo.progress = TW_PROGRESS_THREAD;
  tw_worker *left = nullptr, *right = nullptr;
  must(tw_worker_create(context, &wo, &left), "tw_worker_create");
  must(tw_worker_create(context, &wo, &right), "tw_worker_create");
  tw_endpoint *to_right = nullptr, *to_left = nullptr;
  Address a = address_of(left), b = address_of(right);
  must(tw_connect(left, b.data(), b.size(), nullptr, &to_right), "tw_connect");
  must(tw_connect(right, a.data(), a.size(), nullptr, &to_left), "tw_connect");
  std::atomic<uint64_t> messages{0};
  auto life = [&](unsigned me) {
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::mt19937_64 random(me);
    for (uint64_t n = 0; std::chrono::steady_clock::now() < end; ++n) {
      size_t size = random() % (n % 10 == 0 ? 100000 : 2000);
      std::vector<unsigned char> out(size), in(size + 1, 0xEE);
      for (size_t i = 0; i < size; ++i) out[i] = pattern(n * kThreads + me, i);
      tw_request r[2] = {0, 0};
      must(tw_recv(me & 1 ? left : right, in.data(), size, me, ~0ull, nullptr, &r[0]), "tw_recv");
      must(tw_send(me & 1 ? to_left : to_right, out.data(), size, me, nullptr, &r[1]), "tw_send");
      must(tw_request_finish_all(r, 2), "tw_request_finish_all");
      in.resize(size);
      ASSERT_EQ(in, out);
      ++messages;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(life, t);
  for (std::thread& t : threads) t.join();
  EXPECT_GT(messages.load(), 100u);
  (void)tw_endpoint_close(to_right, TW_CLOSE_FORCE, nullptr);
  (void)tw_endpoint_close(to_left, TW_CLOSE_FORCE, nullptr);
  tw_worker_destroy(left);
  tw_worker_destroy(right);
  tw_context_destroy(context);
}

TEST(Stress, TwoHundredEndpoints) {
  constexpr unsigned kWorkers = 200;
  for (const char* transport : {"shm", "tcp"}) {
    tw_context* context = nullptr;
    must(tw_context_create(nullptr, &context), "tw_context_create");
    tw_worker* center = nullptr;
    must(tw_worker_create(context, nullptr, &center), "tw_worker_create");
    Address home = address_of(center);
    std::vector<tw_worker*> workers(kWorkers);
    std::vector<tw_endpoint*> out(kWorkers);
    tw_endpoint_options o = TW_ENDPOINT_OPTIONS_INIT;
    o.transport = transport;
    for (unsigned i = 0; i < kWorkers; ++i) {
      must(tw_worker_create(context, nullptr, &workers[i]), "tw_worker_create");
      must(tw_connect(workers[i], home.data(), home.size(), &o, &out[i]), "tw_connect");
    }
    std::vector<uint64_t> values(kWorkers, 0);
    std::vector<tw_request> receives(kWorkers), sends(kWorkers);
    for (unsigned i = 0; i < kWorkers; ++i) must(tw_recv(center, &values[i], 8, i, ~0ull, nullptr, &receives[i]), "tw_recv");
    std::vector<uint64_t> numbers(kWorkers);
    for (unsigned i = 0; i < kWorkers; ++i) {
      numbers[i] = i * 1000003ull + 1;
      must(tw_send(out[i], &numbers[i], 8, i, nullptr, &sends[i]), "tw_send");
    }
    for (bool done = false; !done;) {
      done = true;
      tw_worker_progress(center);
      for (unsigned i = 0; i < kWorkers; ++i) {
        tw_worker_progress(workers[i]);
        done &=
            tw_request_test(receives[i]) != TW_IN_PROGRESS && (sends[i] == 0 || tw_request_test(sends[i]) != TW_IN_PROGRESS);
      }
    }
    for (unsigned i = 0; i < kWorkers; ++i) {
      EXPECT_EQ(values[i], i * 1000003ull + 1);
      (void)tw_request_release(receives[i]);
      if (sends[i]) (void)tw_request_release(sends[i]);
    }
    for (tw_worker* w : workers) tw_worker_destroy(w);
    tw_worker_destroy(center);
    tw_context_destroy(context);
  }
}

size_t resident_bytes(pid_t pid) {
  size_t total = 0, resident = 0;
  FILE* f = std::fopen(("/proc/" + std::to_string(pid) + "/statm").c_str(), "r");
  if (f == nullptr) return 0;
  if (std::fscanf(f, "%zu %zu", &total, &resident) != 2) resident = 0;
  std::fclose(f);
  return resident * 4096;
}

void swap_addresses(int socket, const Address& mine, Address* theirs) {
  uint64_t n = mine.size();
  ASSERT_EQ(::write(socket, &n, 8), 8);
  ASSERT_EQ(::write(socket, mine.data(), n), static_cast<ssize_t>(n));
  ASSERT_EQ(::read(socket, &n, 8), 8);
  theirs->resize(n);
  ASSERT_EQ(::read(socket, theirs->data(), n), static_cast<ssize_t>(n));
}

struct FlowSide {
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  FlowSide(int socket, const char* transport) {
    must(tw_context_create(nullptr, &context), "tw_context_create");
    must(tw_worker_create(context, nullptr, &worker), "tw_worker_create");
    Address theirs;
    swap_addresses(socket, address_of(worker), &theirs);
    tw_endpoint_options o = TW_ENDPOINT_OPTIONS_INIT;
    o.transport = transport;
    must(tw_connect(worker, theirs.data(), theirs.size(), &o, &endpoint), "tw_connect");
    must(tw_endpoint_wait(endpoint, 20000000000ull), "connecting");
  }
};

/// Sends `count` messages, blocking; number and size are in the payload.
[[noreturn]] void outrun(int socket, const char* transport, size_t size, uint64_t count) {
  FlowSide side(socket, transport);
  std::vector<unsigned char> data(size);
  for (uint64_t n = 0; n < count; ++n) {
    std::memcpy(data.data(), &n, 8);
    if (size > 8) data[size - 1] = pattern(n, size);
    must(tw_send_blocking(side.endpoint, data.data(), size, 1), "tw_send_blocking");
  }
  (void)tw_endpoint_close(side.endpoint, TW_CLOSE_GRACEFUL, nullptr);
  _exit(0);
}

class Outrun : public testing::TestWithParam<std::tuple<const char*, size_t>> {};

TEST_P(Outrun, AnIdleReceiverStaysSmallAndEverythingArrives) {
  auto [transport, size] = GetParam();
  double bytes = option("THALWEG_STRESS_BYTES", size == 8 ? 8e6 : 200e6);
  auto count = static_cast<uint64_t>(bytes / static_cast<double>(size));
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string fd = std::to_string(::dup(sockets[1])), n = std::to_string(size), c = std::to_string(count);
    ::execl("/proc/self/exe", "stress", "--outrun", fd.c_str(), transport, n.c_str(), c.c_str(), nullptr);
    _exit(127);
  }
  ::close(sockets[1]);
  FlowSide side(sockets[0], transport);
  size_t peak = 0;
  auto look = [&] { peak = std::max(peak, resident_bytes(::getpid()) + resident_bytes(child)); };
  auto idle = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < idle) {  // progresses, but receives nothing
    (void)tw_worker_wait(side.worker, 10000000);
    look();
  }
  std::vector<unsigned char> in(size);
  for (uint64_t n = 0; n < count; ++n) {
    tw_recv_info info{};
    must(tw_recv_blocking(side.worker, in.data(), size, 1, ~0ull, &info), "tw_recv_blocking");
    uint64_t number = 0;
    std::memcpy(&number, in.data(), 8);
    ASSERT_EQ(number, n);
    ASSERT_EQ(info.length, size);
    if (size > 8) {
      ASSERT_EQ(in[size - 1], pattern(n, size));
    }
    if (n % 65536 == 0) look();
  }
  look();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak, 256u << 20);
#endif
  std::printf("%s, %zu B: %llu messages, both processes together at most %.0f MB\n", transport, size, (unsigned long long)count,
              static_cast<double>(peak) / 1e6);
  (void)tw_endpoint_close(side.endpoint, TW_CLOSE_GRACEFUL, nullptr);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  tw_worker_destroy(side.worker);
  tw_context_destroy(side.context);
}

INSTANTIATE_TEST_SUITE_P(
    Flow, Outrun, testing::Combine(testing::Values("shm", "tcp"), testing::Values(size_t{8}, size_t{65536}, size_t{1} << 20)),
    [](const auto& info) { return std::string(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param)); });

}  // namespace

int main(int argc, char** argv) {
  if (argc == 6 && std::strcmp(argv[1], "--outrun") == 0)
    outrun(std::atoi(argv[2]), argv[3], std::strtoull(argv[4], nullptr, 10), std::strtoull(argv[5], nullptr, 10));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
