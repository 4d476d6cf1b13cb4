// SPDX-License-Identifier: Apache-2.0
// Two threads are the two processes. Each measurement is an exchange, one message there and one back, each from a buffer of its own: the
// sender writes a word into each cache line of the source, then both go at once, and it takes as long as the slower one. For the first
// message, from 0 to 1:
//   hop      a word there and back, many times
//   copy     0 copies fragments into a ring as deep as the busy one of a connection, 1 out of it
//   wide     the same through a wide ring
//   streamed and into that by non-temporal stores: lines that the other core has read are slow to get back where the two share no cache,
//            and memory is not
//   mapped   1 copies from the source
//   kernel   process_vm_readv of the first half by 1, process_vm_writev of the other half by 0
// The stores into the source are measured, too. A direct reader of the source takes its lines out of the writer's cache, and the
// program pays for that when it writes the next message; two copies through a ring leave them there. For the same reason each exchange is
// done twice in a row, and the second one counts.
// The least of some rounds is taken: whatever disturbs makes it longer. A round in which the kernel took a processor from either thread
// does not count, so that a busy machine measures nothing instead of something else.
#include "routes/measure.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/platform/string_copy.hpp"
#include "routes/two_threads.hpp"
#include "routes/undisturbed.hpp"
#include "transports/shm/layout.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMiddle = kLarge, kWhole = 4u << 20;
constexpr uint64_t kTurns = 64;    // of a hop
constexpr double kFrameWork = 45;  // ns of a processor for a small frame at both ends, beside the hop
constexpr unsigned kRepeats = 2;   // of an exchange in a row: the last one counts
constexpr size_t kDeepFragments = shm::kDeepBytes / shm::kFragment, kWideFragments = shm::kWideBytes / shm::kFragment;
constexpr unsigned kRounds = 2, kMostRounds = 8;  // more than kRounds while a measurement has no undisturbed one yet
constexpr double kLeast = 1e-3, kMost = 10;       // ns per byte: anything else is no measurement

/// Pages of ordinary memory. Each belongs to the NUMA node of its first touch.
class Pages {
 public:
  explicit Pages(size_t length) : length_(length) {
    void* const got = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, length_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }
  void touch() {
    constexpr size_t kPage = 4096;
    for (size_t at = 0; at < length_; at += kPage) *static_cast<volatile std::byte*>(data_ + at) = std::byte{0};
  }

 private:
  std::byte* data_ = nullptr;
  size_t length_;
};

enum class Kind : uint8_t { hop, copy, wide, streamed, mapped, kernel, kernel_call };

bool through_ring(Kind kind) { return kind == Kind::copy || kind == Kind::wide || kind == Kind::streamed; }
size_t fragments_of(Kind kind) { return kind == Kind::copy ? kDeepFragments : kWideFragments; }

/// What the two threads share. Each counter in a line of its own. Those of messages: exchange n is message 2n - 1 from 0 to
/// 1, and 2n back.
struct Bench {
  std::array<Pages, 2> source{Pages(kWhole), Pages(kWhole)}, target{Pages(kWhole), Pages(kWhole)};  // of each direction
  std::array<Pages, 2> ring{Pages(shm::kWideBytes), Pages(shm::kWideBytes)};
  uint64_t deadline = 0;
  alignas(64) std::atomic<uint64_t> go{0};
  alignas(64) std::atomic<uint64_t> filled{0};
  alignas(64) std::atomic<uint64_t> emptied{0};
  alignas(64) std::atomic<uint64_t> done{0};
  alignas(64) std::atomic<uint64_t> judged{0};  // twice the number of the exchange, and 1: thread 1 was disturbed
  alignas(64) std::atomic<bool> failed{false}, over{false};

  bool allocated() const {
    const auto there = [](const Pages& pages) { return pages.data() != nullptr; };
    return std::all_of(source.begin(), source.end(), there) && std::all_of(target.begin(), target.end(), there) &&
           std::all_of(ring.begin(), ring.end(), there);
  }
  bool late() const { return monotonic_ns() > deadline; }
  /// Until counter >= value. False: time is up.
  bool await(const std::atomic<uint64_t>& counter, uint64_t value) {
    for (unsigned turns = 0; counter.load(std::memory_order_acquire) < value; ++turns) {
      if (over.load(std::memory_order_relaxed)) return false;
      if ((turns & 1023) == 1023 && late()) {
        over = true;
        return false;
      }
    }
    return true;
  }
};

bool kernel_copy(bool reads, std::byte* here, std::byte* there, size_t length) {
  const iovec local{here, length}, remote{there, length};
  const ssize_t n =
      reads ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0) : process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
  return n == static_cast<ssize_t>(length);
}

/// The sender's part of one message, whose source it writes first.
void send(Bench& bench, Kind kind, size_t length, uint64_t message, uint64_t position) {
  std::byte* const from = bench.source[message % 2].data();
  for (size_t at = 0; at < length; at += 64) from[at] = static_cast<std::byte>(message + at);
  bench.go.store(message, std::memory_order_release);
  if (kind == Kind::hop) {
    const uint64_t before = bench.filled.load(std::memory_order_relaxed);
    for (uint64_t i = 1; i <= kTurns; ++i) {
      bench.filled.store(before + i, std::memory_order_release);
      if (!bench.await(bench.emptied, before + i)) return;
    }
  } else if (through_ring(kind)) {
    const auto copy = kind == Kind::streamed ? streaming_copy : copy_bulk;
    const uint64_t fragments = length / shm::kFragment, before = bench.filled.load(std::memory_order_relaxed);
    const size_t ring = fragments_of(kind);
    for (uint64_t i = 0; i < fragments; ++i) {
      if (!bench.await(bench.emptied, before + i + 1 > kDeepFragments ? before + i + 1 - kDeepFragments : 0)) return;
      std::byte* const slot = bench.ring[message % 2].data() + (position + i) % ring * shm::kFragment;
      copy(slot, from + i * shm::kFragment, shm::kFragment);
      bench.filled.store(before + i + 1, std::memory_order_release);
    }
  } else if (kind == Kind::kernel) {
    const size_t half = length / 2;
    if (!kernel_copy(false, from + half, bench.target[message % 2].data() + half, length - half)) bench.failed = true;
  }
  bench.await(bench.done, message);
}

/// The receiver's.
void receive(Bench& bench, Kind kind, size_t length, uint64_t message, uint64_t position) {
  std::byte* const to = bench.target[message % 2].data();
  std::byte* const from = bench.source[message % 2].data();
  if (!bench.await(bench.go, message)) return;
  if (kind == Kind::hop) {
    const uint64_t before = bench.emptied.load(std::memory_order_relaxed);
    for (uint64_t i = 1; i <= kTurns; ++i) {
      if (!bench.await(bench.filled, before + i)) return;
      bench.emptied.store(before + i, std::memory_order_release);
    }
  } else if (through_ring(kind)) {
    const uint64_t fragments = length / shm::kFragment, before = bench.emptied.load(std::memory_order_relaxed);
    const size_t ring = fragments_of(kind);
    for (uint64_t i = 0; i < fragments; ++i) {
      if (!bench.await(bench.filled, before + i + 1)) return;
      const std::byte* const slot = bench.ring[message % 2].data() + (position + i) % ring * shm::kFragment;
      copy_bulk(to + i * shm::kFragment, slot, shm::kFragment);
      bench.emptied.store(before + i + 1, std::memory_order_release);
    }
  } else if (kind == Kind::mapped) {
    copy_bulk(to, from, length);
  } else {
    const size_t part = kind == Kind::kernel ? length / 2 : length;
    if (!kernel_copy(true, to, from, part)) bench.failed = true;
  }
  bench.done.store(message, std::memory_order_release);
}

struct Job {
  Kind kind;
  size_t length;
};
enum At : size_t {
  kHop,
  kOne,
  kCopy,
  kCopyLarge,
  kWideLarge,
  kWideOne,
  kWide,
  kStreamed,
  kStreamedLarge,
  kMapped,
  kMappedLarge,
  kKernel,
  kKernelLarge,
  kCall,
  kCount
};
constexpr Job kJobs[kCount] = {{Kind::hop, 0},          {Kind::copy, shm::kFragment}, {Kind::copy, kMiddle},
                               {Kind::copy, kWhole},    {Kind::wide, kWhole},         {Kind::wide, shm::kFragment},
                               {Kind::wide, kMiddle},   {Kind::streamed, kMiddle},    {Kind::streamed, kWhole},
                               {Kind::mapped, kMiddle}, {Kind::mapped, kWhole},       {Kind::kernel, kMiddle},
                               {Kind::kernel, kWhole},  {Kind::kernel_call, 8}};
/// How far each direction's ring has moved on behind it.
uint64_t fragments_in(const Job& job) { return through_ring(job.kind) ? job.length / shm::kFragment : 0; }
const Job& job_of(uint64_t number) { return kJobs[(number - 1) / kRepeats % kCount]; }
using Times = std::array<double, kCount>;  // ns, the least

constexpr double kNone = std::numeric_limits<double>::max();
bool complete(const Times& least) { return std::find(least.begin(), least.end(), kNone) == least.end(); }

bool at_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

/// Thread 1: answers.
void answer(Bench& bench, int core) {
  if (!at_core(core)) bench.failed = true;
  for (Pages* const mine : {&bench.source[0], &bench.target[1]}) mine->touch();
  Undisturbed undisturbed;
  uint64_t position = 0;
  for (uint64_t number = 1; !bench.over.load(std::memory_order_relaxed); ++number) {
    const Job& job = job_of(number);
    receive(bench, job.kind, job.length, 2 * number - 1, position);
    send(bench, job.kind, job.length, 2 * number, position);
    position += fragments_in(job);
    bench.judged.store(2 * number + (undisturbed.ask() ? 0 : 1), std::memory_order_release);
  }
}

/// Thread 0: leads and measures.
void lead(Bench& bench, int core, Times* least) {
  if (!at_core(core)) bench.failed = true;
  for (Pages* const mine : {&bench.source[1], &bench.target[0], &bench.ring[0], &bench.ring[1]}) mine->touch();
  Undisturbed undisturbed;
  uint64_t number = 0, position = 0;
  for (unsigned round = 0; round < kMostRounds && (round < kRounds || !complete(*least)); ++round) {
    for (size_t i = 0; i < kCount * kRepeats; ++i) {
      const Job& job = job_of(++number);
      const uint64_t start = monotonic_ns();
      send(bench, job.kind, job.length, 2 * number - 1, position);
      receive(bench, job.kind, job.length, 2 * number, position);
      position += fragments_in(job);
      const double took = static_cast<double>(monotonic_ns() - start) / 2;
      const bool mine = undisturbed.ask();
      if (!bench.await(bench.judged, 2 * number)) return;
      const bool theirs = bench.judged.load(std::memory_order_acquire) == 2 * number;
      double& time = least->at(i / kRepeats);
      if (i % kRepeats == kRepeats - 1 && mine && theirs) time = std::min(time, took);
    }
  }
}

/// Per byte of a message of 1 MiB, without the hops of its handshake, so that predictions are exact there.
double each(const Times& times, At at, double asking) { return (times[at] - asking) / static_cast<double>(kJobs[at].length); }
/// Per byte of what is beyond that.
double beyond(const Times& times, At at, At large) {
  return (times[large] - times[at]) / static_cast<double>(kWhole - kMiddle);
}

bool sane(double cost) { return cost >= kLeast && cost <= kMost; }

}  // namespace

bool two_cores(TwoCores* cores) {
  const cpu_set_t allowed = measuring_processors();
  int here = sched_getcpu();
  if (here < 0 || !CPU_ISSET(static_cast<size_t>(here), &allowed)) here = 0;
  std::string siblings;
  char path[96];
  std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_cpus", here);
  cpu_set_t same;  // a mask of hexadecimal words, the last one first
  CPU_ZERO(&same);
  if (std::ifstream file(path); std::getline(file, siblings)) {
    size_t bit = 0;
    for (auto digit = siblings.rbegin(); digit != siblings.rend(); ++digit) {
      if (*digit == ',') continue;
      const unsigned value = *digit <= '9' ? static_cast<unsigned>(*digit - '0') : static_cast<unsigned>(*digit - 'a') + 10;
      for (unsigned i = 0; i < 4; ++i, ++bit)
        if (value >> i & 1 && bit < CPU_SETSIZE) CPU_SET(bit, &same);
    }
  }
  int other = -1;
  for (int i = 1; i < CPU_SETSIZE; ++i) {
    const int core = (here + i) % CPU_SETSIZE;
    if (!CPU_ISSET(static_cast<size_t>(core), &allowed)) continue;
    if (other < 0) other = core;
    if (CPU_ISSET(static_cast<size_t>(core), &same)) continue;
    other = core;
    break;
  }
  *cores = {here, other};
  return other >= 0;
}

Status measure_shm(const TwoCores& cores, uint64_t limit_ns, LinkCosts* out) {
  auto bench = std::make_unique<Bench>();
  if (!bench->allocated()) return fail(TW_ERR_NO_MEMORY, "no memory to measure with");
  bench->deadline = monotonic_ns() + limit_ns;
  Times least{};
  least.fill(kNone);
  run_both([&] { lead(*bench, cores.first, &least); }, [&] { answer(*bench, cores.second); }, bench->over);
  if (!complete(least)) return fail(TW_ERR_TIMED_OUT, "the processors are too busy to measure costs");
  LinkCosts costs = *out;
  const double hop = least[kHop] / (2 * kTurns);
  costs.frame = hop + kFrameWork;
  constexpr double kClearly = 0.9;
  const double plain = std::min(least[kCopy], least[kWide]);
  costs.streamed = least[kStreamed] < kClearly * plain ? 1 : 0;
  costs.stream_copy = each(least, kStreamed, 2 * hop);
  // Streaming goes through a wide ring as fast, and plain stores, which are taken when these two cores come near, go faster.
  costs.wide = costs.streamed != 0 || least[kWide] < kClearly * least[kCopy] ? 1 : 0;
  const bool wide = costs.wide != 0;
  const At copied = costs.streamed != 0 ? kStreamed : wide ? kWide : kCopy;
  costs.serial_copy = each(least, wide ? kWideOne : kOne, 2 * hop);
  costs.copy = each(least, copied, 2 * hop);
  costs.copy_large = beyond(least, copied, costs.streamed != 0 ? kStreamedLarge : wide ? kWideLarge : kCopyLarge);
  costs.mapped = each(least, kMapped, 2 * hop);
  costs.mapped_large = beyond(least, kMapped, kMappedLarge);
  if (!bench->failed) {
    costs.kernel_fixed = std::max(1.0, least[kCall] - 2 * hop);
    costs.kernel = each(least, kKernel, 2 * hop + costs.kernel_fixed);
    costs.kernel_large = beyond(least, kKernel, kKernelLarge);
  }
  for (const double cost :
       {costs.serial_copy, costs.copy, costs.copy_large, costs.mapped, costs.mapped_large, costs.stream_copy})
    if (!sane(cost)) return fail(TW_ERR_TIMED_OUT, "the processors are too busy to measure costs");
  if (!sane(costs.kernel) || !sane(costs.kernel_large))
    return fail(TW_ERR_TIMED_OUT, "the processors are too busy to measure costs");
  *out = costs;
  return TW_OK;
}

}  // namespace thalweg::impl
