// SPDX-License-Identifier: Apache-2.0
// Stream sockets between two processes on two processors: what unix and loopback TCP sockets allow. Latency is half a round trip;
// bandwidth is one way, with one byte of answer behind a megabyte or a thousand messages.
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "machine/alone.hpp"
#include "machine/numa.hpp"
#include "machine/repeat.hpp"
#include "machine/rows.hpp"
#include "machine/socket_link.hpp"
#include "processes.hpp"
#include "report.hpp"

namespace perf {
namespace {

const std::vector<size_t> kLatencySizes = {1, 8, 64, 512, 4096, 65536}, kBandwidthSizes = {4096, 65536, 1u << 20, 16u << 20};
constexpr size_t kBurst = 1u << 20, kMessages = 1024, kMost = size_t{1} << 30;

/// What rank 0 asks rank 1 for: `rounds` times `messages` of `bytes`, each burst answered by `answer` bytes.
struct Round {
  uint64_t bytes, messages, answer, rounds, seed;  // bytes 0: the end
};

void fill(std::vector<unsigned char>* to, uint64_t seed) {
  for (size_t i = 0; i < to->size(); ++i) (*to)[i] = static_cast<unsigned char>(random_at(seed, i));
}

/// One end.
class End {
 public:
  End(int fd, bool sleep) : fd_(fd), move_(sleep ? move_asleep : move_polled) {}
  ~End() { (void)::close(fd_); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  bool move(void* p, size_t n, bool out) { return move_(fd_, static_cast<unsigned char*>(p), n, out); }

  /// Rank 1, until rank 0 ends it or is gone.
  void obey() {
    for (Round r{}; move(&r, sizeof r, false) && r.bytes != 0 && r.bytes <= kMost && r.answer <= r.bytes;) {
      std::vector<unsigned char> in(r.bytes), expected(r.bytes);
      fill(&expected, r.seed);
      unsigned char right = 1;
      for (uint64_t i = 0; i < r.rounds; ++i) {
        for (uint64_t m = 0; m < r.messages; ++m) {
          if (!move(in.data(), in.size(), false)) return;
        }
        if (!move(in.data(), r.answer, true)) return;  // latency: the same bytes back
        if (i == 0 || i + 1 == r.rounds) right = right && in == expected;
      }
      if (!move(&right, 1, true)) return;
    }
  }
  /// Rank 0. Seconds of each round; empty: the other end is gone. `right`: both saw what was sent.
  std::vector<double> rounds(Round r, bool* right) {
    std::vector<unsigned char> out(r.bytes), back(r.answer);
    r.seed = fresh_seed();
    fill(&out, r.seed);
    std::vector<double> took;
    bool ok = move(&r, sizeof r, true);
    for (uint64_t i = 0; ok && i < r.rounds; ++i) {
      took.push_back(timed([&] {
        for (uint64_t m = 0; ok && m < r.messages; ++m) ok = move(out.data(), out.size(), true);
        ok = ok && move(back.data(), back.size(), false);
      }));
    }
    unsigned char theirs = 0;
    if (!ok || !move(&theirs, 1, false)) return {};
    *right = theirs == 1 && std::equal(back.begin(), back.end(), out.begin());
    return took;
  }
  void end() {
    Round none{};
    (void)move(&none, sizeof none, true);
  }

 private:
  int fd_;
  bool (*move_)(int, unsigned char*, size_t, bool);
};

void measure(End& end, const Options& o, const char* transport, bool latency, size_t bytes) {
  Row row("sockets");
  row.label("transport", transport).label("operation", latency ? "latency" : "bandwidth").size(bytes);
  Round r{bytes, latency ? 1 : std::clamp<uint64_t>(kBurst / bytes, 1, kMessages), latency ? bytes : 1, 3, 0};
  bool right = false;
  const std::vector<double> trial = end.rounds(r, &right);
  if (!trial.empty()) r.rounds = static_cast<uint64_t>(std::clamp(o.seconds / std::max(best_of(trial), 1e-7), 5.0, 100000.0));
  const std::vector<double> took = trial.empty() ? trial : end.rounds(r, &right);
  if (took.empty()) {
    row.unavailable("the connection ended").print(o.format);
    return;
  }
  const double median = percentile(took, 50);
  row.label("iterations", r.rounds);
  if (latency)
    row.value("ns", median * 1e9 / 2).value("p99_ns", percentile(took, 99) * 1e9 / 2);
  else
    row.value("bytes_per_s", static_cast<double>(bytes * r.messages) / median);
  row.verified(right).print(o.format);
}

void command(End& end, const Options& o, const char* transport) {
  for (const bool latency : {true, false}) {
    for (const size_t bytes : o.sizes.empty() ? (latency ? kLatencySizes : kBandwidthSizes) : o.sizes)
      measure(end, o, transport, latency, bytes);
  }
  end.end();
}

}  // namespace

void run_sockets(const Options& o) {
  if (std::any_of(o.sizes.begin(), o.sizes.end(), [](size_t n) { return n > kMost; })) end_with("sockets: --size up to 1G");
  const bool sleep = o.sleep || allowed_processors().size() < 2;  // two that poll on one processor would wait for their slices
  void* const memory = ::mmap(nullptr, sizeof(SharedPort), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) end_with(std::string("mmap: ") + std::strerror(errno));
  auto* const port = new (memory) SharedPort(0);
  int unix_sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, unix_sockets) != 0)
    end_with(std::string("socketpair: ") + std::strerror(errno));
  const pid_t child = start_child();
  const int rank = child == 0 ? 1 : 0;
  pin_to_core(static_cast<unsigned>(rank));
  (void)::close(unix_sockets[1 - rank]);
  {
    End end(unix_sockets[rank], sleep);
    rank == 0 ? command(end, o, "unix") : end.obey();
  }
  if (const int fd = tcp_link(rank, port); fd >= 0) {
    End end(fd, sleep);
    rank == 0 ? command(end, o, "tcp") : end.obey();
  } else if (rank == 0) {
    Row("sockets")
        .label("transport", "tcp")
        .unavailable(std::string("no loopback TCP here: ") + std::strerror(errno))
        .print(o.format);
  }
  if (child == 0) _exit(0);
  if (exit_code_of(child) != 0) end_with("the other process is gone");
  (void)::munmap(memory, sizeof(SharedPort));
}

}  // namespace perf
