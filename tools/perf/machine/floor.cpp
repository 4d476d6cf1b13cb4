// SPDX-License-Identifier: Apache-2.0
// What this machine allows, measured without the library between two processes on two cores: a cache line there and back,
// memcpy in and out of cache and from the other core's cache, process_vm_readv, a busy-polled TCP socket.
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "machine/alone.hpp"
#include "machine/rows.hpp"
#include "machine/socket_link.hpp"
#include "processes.hpp"
#include "tests.hpp"

namespace perf {
namespace {

struct Shared {  // between the two processes
  alignas(64) std::atomic<uint64_t> line;
  alignas(64) std::atomic<uint64_t> turn;  // 2k: ours, 2k+1: the other's
  alignas(64) SharedPort port;
  std::atomic<int> refused;  // of process_vm_readv: its errno; 0: it may; kUnknown: rank 0 has yet to find out
  alignas(4096) unsigned char data[16u << 20];
};

constexpr int kUnknown = -1;

/// Rank 1 ends with rank 0, which has to look now and then.
template <class T>
void await_other(const std::atomic<T>& word, bool (*there)(T, T), T value) {
  constexpr unsigned kPolls = 65536;
  for (unsigned polls = 1; !there(word.load(std::memory_order_acquire), value); ++polls) {
    if (polls % kPolls == 0 && a_child_ended()) end_with("the other process is gone");
    relax();
  }
}

void await(const std::atomic<uint64_t>& word, uint64_t value) {
  await_other<uint64_t>(word, [](uint64_t seen, uint64_t wanted) { return seen == wanted; }, value);
}

Result row(const char* test, size_t size, std::vector<double> us, bool verified) {
  Result r;
  r.test = test;
  r.transport = "none";
  r.size = size;
  r.iterations = us.size();
  r.bandwidth = static_cast<double>(size) / percentile(us, 50) / 1e3;
  r.rate = 1 / percentile(us, 50);
  r.latency_us = std::move(us);
  r.verified = verified;
  r.route = "floor";
  return r;
}

void cache_line(Shared* s, int rank, Format format) {
  constexpr int kBatches = 2000, kBatch = 50;
  std::vector<double> us;
  uint64_t v = 0;
  for (int b = 0; b < kBatches; ++b) {
    uint64_t start = now_ns();
    for (int i = 0; i < kBatch; ++i, v += 2) {
      if (rank == 0) {
        s->line.store(v + 1, std::memory_order_release);
        await(s->line, v + 2);
      } else {
        await(s->line, v + 1);
        s->line.store(v + 2, std::memory_order_release);
      }
    }
    us.push_back(static_cast<double>(now_ns() - start) / 2e3 / kBatch);
  }
  if (rank == 0) print(format, row("cache_line", 8, us, s->line.load() == v));
}

constexpr size_t kSizes[] = {4096, 65536, 1u << 20, 16u << 20};
int repeats(size_t n) { return n <= 65536 ? 200 : n <= 1u << 20 ? 50 : 10; }

/// The other process rewrites the data (it is then in its cache); this one copies it.
template <class Copy>
void copies(Shared* s, int rank, Format format, const char* test, bool from_other, uint64_t* turn, Copy copy) {
  static unsigned char to[16u << 20];
  for (size_t n : kSizes) {
    std::vector<double> us;
    bool verified = true;
    for (int r = 0; r < repeats(n); ++r) {
      auto fill = static_cast<unsigned char>(r * 31 + 7);
      if (rank == 1) {
        await(s->turn, *turn + 1);
        if (from_other) std::memset(s->data, fill, n);
        s->turn.store(*turn + 2, std::memory_order_release);
        *turn += 2;
        continue;
      }
      if (!from_other) std::memset(s->data, fill, n);
      s->turn.store(*turn + 1, std::memory_order_release);
      await(s->turn, *turn + 2);
      *turn += 2;
      std::memset(to, 0, n);
      uint64_t start = now_ns();
      copy(to, n);
      us.push_back(static_cast<double>(now_ns() - start) / 1e3);
      verified &= to[0] == fill && to[n / 2] == fill && to[n - 1] == fill;
    }
    if (rank == 0) print(format, row(test, n, us, verified));
  }
}

/// May rank 0 read rank 1's memory by the kernel? It finds out for both; else its row says why not.
bool can_read(Shared* s, int rank, pid_t other, Format format) {
  if (rank == 0) {
    unsigned char byte = 0;
    iovec local{&byte, 1}, remote{s->data, 1};
    s->refused.store(::process_vm_readv(other, &local, 1, &remote, 1, 0) == 1 ? 0 : errno, std::memory_order_release);
  }
  await_other<int>(s->refused, [](int seen, int unknown) { return seen != unknown; }, kUnknown);
  const int refused = s->refused.load();
  if (refused != 0 && rank == 0) {
    Row("readv")
        .label("transport", "none")
        .size(kSizes[0], "size")
        .unavailable(std::string("process_vm_readv: ") + std::strerror(refused) +
                     ". Remedy: sysctl kernel.yama.ptrace_scope=0, or the container capability SYS_PTRACE")
        .print(format);
  }
  return refused == 0;
}

void raw_tcp(Shared* s, int rank, Format format) {
  const int fd = tcp_link(rank, &s->port);
  if (fd < 0) {
    if (rank == 0) std::fprintf(stderr, "thalweg perf: no loopback TCP here: %s\n", std::strerror(errno));
    return;
  }
  static unsigned char out[1u << 20], in[1u << 20];
  for (size_t n : {size_t{8}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
    std::vector<double> us;
    std::memset(out, rank + 1, n);
    bool ok = true;
    for (int r = 0; ok && r < (n <= 4096 ? 2000 : 300); ++r) {
      uint64_t start = now_ns();
      ok = rank == 0 ? move_polled(fd, out, n, true) && move_polled(fd, in, n, false)
                     : move_polled(fd, in, n, false) && move_polled(fd, out, n, true);
      us.push_back(static_cast<double>(now_ns() - start) / 2e3);
    }
    if (!ok) end_with("raw TCP: the connection ended");
    if (rank == 0) print(format, row("raw_tcp", n, us, in[0] == 2 && in[n - 1] == 2));
  }
  ::close(fd);
}

void run_rank(Shared* s, int rank, pid_t other, Format format) {
  uint64_t turn = 0;
  cache_line(s, rank, format);
  copies(s, rank, format, "memcpy", false, &turn, [&](unsigned char* to, size_t n) { std::memcpy(to, s->data, n); });
  copies(s, rank, format, "memcpy_other", true, &turn, [&](unsigned char* to, size_t n) { std::memcpy(to, s->data, n); });
  const auto read = [&](unsigned char* to, size_t n) {
    for (size_t done = 0; done < n;) {
      iovec local{to + done, n - done}, remote{s->data + done, n - done};
      ssize_t k = ::process_vm_readv(other, &local, 1, &remote, 1, 0);
      if (k <= 0) end_with(std::string("process_vm_readv: ") + std::strerror(errno));
      done += static_cast<size_t>(k);
    }
  };
  if (can_read(s, rank, other, format)) copies(s, rank, format, "readv", true, &turn, read);
  raw_tcp(s, rank, format);
}

}  // namespace

void run_floor(const Options& options) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap", TW_ERR_NO_MEMORY);
  auto* shared = new (memory) Shared;
  shared->refused = kUnknown;
  print_header(options.format, "floors of this machine: two processes, no library");
  std::fflush(stdout);
  const pid_t starter = ::getpid(), child = start_child();
  pin_to_core(child == 0 ? 1 : 0);
  if (child == 0) {
    run_rank(shared, 1, starter, options.format);
    _exit(0);
  }
  run_rank(shared, 0, child, options.format);
  if (exit_code_of(child) != 0) end_with("the other process is gone");
}

}  // namespace perf
