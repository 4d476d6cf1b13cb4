// SPDX-License-Identifier: Apache-2.0
// What this machine allows, measured without the library between two processes on two cores: a cache line there and back,
// memcpy in and out of cache and from the other core's cache, process_vm_readv, a busy-polled TCP socket.
#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "machine/alone.hpp"
#include "machine/socket_link.hpp"
#include "tests.hpp"

namespace perf {
namespace {

struct Shared {  // between the two processes
  alignas(64) std::atomic<uint64_t> line;
  alignas(64) std::atomic<uint64_t> turn;  // 2k: ours, 2k+1: the other's
  alignas(64) SharedPort port;
  alignas(4096) unsigned char data[16u << 20];
};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void await(const std::atomic<uint64_t>& word, uint64_t value) {
  while (word.load(std::memory_order_acquire) != value) relax();
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
    if (rank == 0) print(format, row("raw_tcp", n, us, ok && in[0] == 2 && in[n - 1] == 2));
  }
  ::close(fd);
}

void run_rank(Shared* s, int rank, pid_t other, Format format) {
  uint64_t turn = 0;
  cache_line(s, rank, format);
  copies(s, rank, format, "memcpy", false, &turn, [&](unsigned char* to, size_t n) { std::memcpy(to, s->data, n); });
  copies(s, rank, format, "memcpy_other", true, &turn, [&](unsigned char* to, size_t n) { std::memcpy(to, s->data, n); });
  copies(s, rank, format, "readv", true, &turn, [&](unsigned char* to, size_t n) {
    for (size_t done = 0; done < n;) {
      iovec local{to + done, n - done}, remote{s->data + done, n - done};
      ssize_t k = ::process_vm_readv(other, &local, 1, &remote, 1, 0);
      if (k <= 0) return;  // not allowed here (see `info`): the row is marked as not verified
      done += static_cast<size_t>(k);
    }
  });
  raw_tcp(s, rank, format);
}

}  // namespace

void run_floor(const Options& options) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap", TW_ERR_NO_MEMORY);
  auto* shared = new (memory) Shared;
  print_header(options.format, "floors of this machine: two processes, no library");
  std::fflush(stdout);
  pid_t starter = ::getpid(), child = ::fork();
  if (child < 0) die("fork", TW_ERR_IO);
  pin_to_core(child == 0 ? 1 : 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_rank(shared, 1, starter, options.format);
    _exit(0);
  }
  run_rank(shared, 0, child, options.format);
  int status = 0;
  ::waitpid(child, &status, 0);
}

}  // namespace perf
