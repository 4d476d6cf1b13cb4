// SPDX-License-Identifier: Apache-2.0
// Two threads at the ends of a loopback connection send messages to and fro, as raw as the transport does: without blocking,
// read to where they belong. The least of the rounds that the kernel left undisturbed.
#include "routes/measure_tcp.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "routes/two_threads.hpp"
#include "routes/undisturbed.hpp"

namespace thalweg::impl {
namespace {

struct Job {
  size_t length;
  unsigned turns;  // round trips that are timed together
};
enum At : size_t { kHop, kOne, kMiddle, kWhole, kCount };
constexpr Job kJobs[kCount] = {{8, 16}, {64u << 10, 2}, {kLarge, 1}, {4u << 20, 1}};
constexpr unsigned kRounds = 3, kMostRounds = 12;
constexpr double kNone = std::numeric_limits<double>::max();
constexpr double kLeast = 1e-3, kMost = 10;  // ns per byte: anything else is no measurement

/// The ends of a connection from this process to itself.
Status connect_ends(std::array<UniqueFd, 2>* ends) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (!listener || bind(listener.get(), address, length) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), address, &length) != 0)
    return fail_errno(errno, "listening on the loopback");
  (*ends)[0] = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!(*ends)[0] || connect((*ends)[0].get(), address, length) != 0) return fail_errno(errno, "connecting over the loopback");
  sockaddr_in mine{}, theirs{};
  socklen_t mine_length = sizeof mine, their_length = sizeof theirs;
  (*ends)[1] = UniqueFd(accept4(listener.get(), reinterpret_cast<sockaddr*>(&theirs), &their_length, SOCK_CLOEXEC));
  if (!(*ends)[1] || getsockname((*ends)[0].get(), reinterpret_cast<sockaddr*>(&mine), &mine_length) != 0)
    return fail_errno(errno, "accepting over the loopback");
  if (mine.sin_port != theirs.sin_port) return fail(TW_ERR_IO, "another process connected first");
  const int on = 1;
  for (const UniqueFd& end : *ends) setsockopt(end.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return TW_OK;
}

/// One thread's end.
struct End {
  int fd;
  uint64_t deadline;
  std::atomic<bool>& over;
  std::vector<std::byte> out = std::vector<std::byte>(kJobs[kWhole].length), in = out;
  uint8_t marks = 0;

  bool late() {
    if (monotonic_ns() > deadline) over = true;
    return over.load(std::memory_order_relaxed);
  }
  template <class Move>
  bool all(std::byte* bytes, size_t length, Move move) {
    for (unsigned idle = 0; length != 0;) {
      const ssize_t n = move(bytes, length);
      if (n > 0) {
        bytes += n;
        length -= static_cast<size_t>(n);
        continue;
      }
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) over = true;
      if ((++idle & 63) == 0 && late()) return false;
      if (over.load(std::memory_order_relaxed)) return false;
    }
    return true;
  }
  bool send(size_t length) {
    ++marks;
    for (size_t at = 0; at < length; at += 64) out[at] = static_cast<std::byte>(marks + at);
    return all(out.data(), length,
               [this](std::byte* from, size_t n) { return ::send(fd, from, n, MSG_DONTWAIT | MSG_NOSIGNAL); });
  }
  bool receive(size_t length) {
    return all(in.data(), length, [this](std::byte* to, size_t n) { return ::recv(fd, to, n, MSG_DONTWAIT); });
  }
};

void at_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

using Times = std::array<double, kCount>;
bool complete(const Times& least) { return std::find(least.begin(), least.end(), kNone) == least.end(); }

/// A byte before each exchange: one more follows, or it was the last.
void answer(End& end, int core) {
  at_core(core);
  for (size_t which = 0;; which = (which + 1) % kCount) {
    if (!end.receive(1) || end.in[0] == std::byte{0}) return;
    for (unsigned turn = 0; turn < kJobs[which].turns; ++turn)
      if (!end.receive(kJobs[which].length) || !end.send(kJobs[which].length)) return;
  }
}

void lead(End& end, int core, Times* least) {
  at_core(core);
  Undisturbed undisturbed;
  for (unsigned round = 0; round < kMostRounds && (round < kRounds || !complete(*least)); ++round) {
    for (size_t which = 0; which < kCount; ++which) {
      const std::byte more{1};
      if (::send(end.fd, &more, 1, MSG_NOSIGNAL) != 1) return;
      (void)undisturbed.ask();
      const uint64_t start = monotonic_ns();
      for (unsigned turn = 0; turn < kJobs[which].turns; ++turn)
        if (!end.send(kJobs[which].length) || !end.receive(kJobs[which].length)) return;
      const double took = static_cast<double>(monotonic_ns() - start) / (2 * kJobs[which].turns);
      if (round > 0 && undisturbed.ask()) least->at(which) = std::min(least->at(which), took);
    }
  }
}

}  // namespace

Status measure_tcp(const TwoCores& cores, uint64_t limit_ns, LinkCosts* out) {
  std::array<UniqueFd, 2> ends;
  if (const Status status = connect_ends(&ends); is_error(status)) return status;
  std::atomic<bool> over{false};
  const uint64_t deadline = monotonic_ns() + limit_ns;
  End first{ends[0].get(), deadline, over}, second{ends[1].get(), deadline, over};
  Times least;
  least.fill(kNone);
  run_both([&] { lead(first, cores.first, &least); }, [&] { answer(second, cores.second); }, over);
  if (!complete(least)) return fail(TW_ERR_TIMED_OUT, "the processors are too busy to measure costs");
  const auto length = [](At at) { return static_cast<double>(kJobs[at].length); };
  LinkCosts costs = *out;
  costs.frame = least[kHop];  // what the library does beside the system calls is less than they differ by
  costs.copy = costs.serial_copy = (least[kOne] - least[kHop]) / length(kOne);
  costs.reference = (least[kMiddle] - least[kHop]) / length(kMiddle);
  costs.reference_large = (least[kWhole] - least[kMiddle]) / (length(kWhole) - length(kMiddle));
  for (const double cost : {costs.copy, costs.reference, costs.reference_large})
    if (!(cost >= kLeast && cost <= kMost)) return fail(TW_ERR_TIMED_OUT, "the processors are too busy to measure costs");
  *out = costs;
  return TW_OK;
}

}  // namespace thalweg::impl
