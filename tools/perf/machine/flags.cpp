// SPDX-License-Identifier: Apache-2.0
// Flags: how long until a kernel sees what the host stores and the host what a kernel stores, half of there and back; the same between
// kernels of two GPUs; and how long after the host's call a stream acts: until its kernel runs, and until it has stored a word.
#include <algorithm>
#include <thread>

#include "driver.hpp"
#include "kernels/arguments.hpp"
#include "machine/alone.hpp"
#include "machine/memories.hpp"
#include "machine/repeat.hpp"
#include "machine/rows.hpp"
#include "report.hpp"

namespace perf {

using namespace cuda;

namespace {

constexpr uint64_t kLimit = 5'000'000'000;  // ns of a wait; the host's ends behind it, too
constexpr size_t kLine = 128;               // bytes between flags

/// Words on lines of their own in a memory: two flags, and what a kernel says at its end.
struct Words {
  enum { to_kernel, to_host, done, took, count };
};
u64* word_at(const PlacedMemory& memory, unsigned which) { return reinterpret_cast<u64*>(memory.at(which * kLine)); }

void put(u64* word, u64 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
u64 seen(const u64* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/// False: not within the limit. meanwhile: what the host may have to do now and then.
template <class Meanwhile>
bool await_host(const u64* word, u64 value, Meanwhile meanwhile) {
  constexpr unsigned kLooks = 256;  // a microsecond or so
  const uint64_t end = now_ns() + kLimit;
  for (unsigned turn = 1;; ++turn) {
    for (unsigned i = 0; i < kLooks; ++i) {
      if (seen(word) == value) return true;
    }
    meanwhile();
    if (turn % 64 == 0) std::this_thread::yield();  // what it waits for may need this processor
    if (now_ns() > end) return false;
  }
}
bool await_host(const u64* word, u64 value) {
  return await_host(word, value, [] {});
}

constexpr u32 kTrial = 20;
/// Rounds that are timed together, where a flag takes this many seconds.
u32 rounds_for(const Options& o, double flag) {
  return static_cast<u32>(std::clamp(o.seconds / (8 * std::max(flag, 1e-7)), double{kTrial}, 2000.0));
}

/// Seconds of a flag, each the mean of `each`.
void print_flag(const Options& o, Row r, const std::vector<double>& took, uint64_t each, bool right) {
  if (!right || took.empty())
    r.unavailable("a flag was not seen within " + std::to_string(kLimit / 1'000'000'000) + " s");
  else
    r.label("iterations", took.size() * each)
        .value("ns", percentile(took, 50) * 1e9)
        .value("p99_ns", percentile(took, 99) * 1e9)
        .verified(true);
  r.print(o.format);
}

class FlagTests {
 public:
  FlagTests(const Options& o, tw_context* context, Gpu& gpu)
      : o_(o), gpu_(gpu), pinned_(context, "pinned", Words::count * kLine) {}

  void run() {
    with_kernel();
    launch();
    if (attribute_of(gpu_.ordinal(), kStreamMemoryOps64) != 0) {
      stream_write();
      stream_wait();
      return;
    }
    for (const char* by : {"stream_write", "stream_wait"})
      row("host", gpu_.place(), by).unavailable("this device's streams have no memory operations of 64 bits").print(o_.format);
  }

 private:
  u64* word(unsigned which) const { return word_at(pinned_, which); }
  void clear() const {
    for (unsigned w = 0; w < Words::count; ++w) put(word(w), 0);
  }
  Row row(const char* from, const std::string& to, const char* by) const {
    Row r("flags");
    return r.label("from", from).label("to", to).label("by", by).label("memory", "pinned");
  }
  void print(const Row& r, const std::vector<double>& took, bool right, uint64_t each = 1) const {
    print_flag(o_, r, took, each, right);
  }

  /// The host leads.
  void with_kernel() {
    bool right = true;
    const double trial = rounds_with_kernel(kTrial, &right);
    const u32 rounds = rounds_for(o_, trial);
    std::vector<double> took;
    if (right) took = repeat(o_.seconds, [&] { return right ? rounds_with_kernel(rounds, &right) : 1; });
    print(row("host", gpu_.place(), "kernel"), took, right, rounds);
  }
  /// Seconds of a flag; the first round, which waits for the kernel's begin, does not count.
  double rounds_with_kernel(u32 rounds, bool* right) {
    clear();
    gpu_.launch(
        "perf_flags", 1, 1,
        Flags{word(Words::to_kernel), word(Words::to_host), kLimit, word(Words::done), word(Words::took), rounds + 1, false});
    const auto there_and_back = [&](u64 round) {
      put(word(Words::to_kernel), round);
      *right = *right && await_host(word(Words::to_host), round);
    };
    there_and_back(1);
    const double seconds = timed([&] {
      for (u64 round = 2; *right && round <= rounds + 1; ++round) there_and_back(round);
    });
    gpu_.finish();
    *right = *right && seen(word(Words::done)) == rounds + 1;
    return seconds / (2.0 * rounds);
  }

  /// From the call until the kernel's first store is seen.
  void launch() {
    bool right = true;
    const std::vector<double> took = repeat(o_.seconds, [&] {
      clear();
      const double seconds = timed([&] {
        gpu_.launch("perf_flags", 1, 1, first_store());
        right = right && await_host(word(Words::to_host), 1, [&] { wake(); });
      });
      gpu_.finish();
      return seconds;
    });
    print(row("host", gpu_.place(), "launch"), took, right);
  }
  Flags first_store() const {
    return {word(Words::to_kernel), word(Words::to_host), kLimit, word(Words::done), word(Words::took), 0, true};
  }
  /// A driver may keep work back until it is asked for.
  void wake() const { (void)gpu_.idle(); }

  /// From the call until the word is there.
  void stream_write() {
    bool right = true;
    clear();
    u64 value = 0;
    const std::vector<double> took = repeat(o_.seconds, [&] {
      return timed([&] {
        check(driver().StreamWriteValue64(gpu_.stream(), reinterpret_cast<uint64_t>(word(Words::to_host)), ++value, 0),
              "cuStreamWriteValue64");
        right = right && await_host(word(Words::to_host), value, [&] { wake(); });
      });
    });
    gpu_.finish();
    print(row("host", gpu_.place(), "stream_write"), took, right);
  }

  /// A stream that waits for a word, with a kernel behind it: from the host's store until the kernel's is seen.
  void stream_wait() {
    bool right = true;
    u64 value = 0;
    clear();
    const std::vector<double> took = repeat(o_.seconds, [&] {
      put(word(Words::to_host), 0);
      check(driver().StreamWaitValue64(gpu_.stream(), reinterpret_cast<uint64_t>(word(Words::to_kernel)), ++value, kWaitGeq),
            "cuStreamWaitValue64");
      gpu_.launch("perf_flags", 1, 1, first_store());
      for (const uint64_t settled = now_ns() + 20'000; now_ns() < settled;) wake();  // until the device waits
      const double seconds = timed([&] {
        put(word(Words::to_kernel), value);
        right = right && await_host(word(Words::to_host), 1, [&] { wake(); });
      });
      gpu_.finish();
      return seconds;
    });
    print(row("host", gpu_.place(), "stream_wait"), took, right);
  }

  const Options& o_;
  Gpu& gpu_;
  const PlacedMemory pinned_;
};

/// Kernels of two GPUs: each waits in its own device's memory and stores into the other's. Times are the first one's.
class BetweenGpus {
 public:
  BetweenGpus(tw_context* context, Gpu& first, Gpu& second)
      : context_(context),
        first_(first),
        second_(second),
        here_(context, first.place(), kBytes),
        there_(context, second.place(), kBytes),
        said_(context, "pinned", Words::count * kLine) {}

  /// Seconds of a flag, of so many rounds; 0: one was not seen.
  double once(u32 rounds) {
    const std::vector<unsigned char> zeros(kBytes);
    for (const PlacedMemory* memory : {&here_, &there_})
      must(tw_memory_copy(context_, memory->at(), zeros.data(), zeros.size()), "tw_memory_copy");
    for (unsigned w = 0; w < Words::count; ++w) put(word_at(said_, w), 0);
    launch(second_, {word_at(there_, 0), word_at(here_, 0), kLimit, word_at(said_, 0), word_at(said_, 1), rounds, false});
    launch(first_, {word_at(here_, 0), word_at(there_, 0), kLimit, word_at(said_, 2), word_at(said_, 3), rounds, true});
    first_.finish();
    second_.finish();
    if (seen(word_at(said_, 0)) != rounds || seen(word_at(said_, 2)) != rounds) return 0;
    return static_cast<double>(seen(word_at(said_, 3))) / (2e9 * rounds);
  }

 private:
  static constexpr size_t kBytes = Words::count * kLine;
  static void launch(Gpu& gpu, Flags flags) {
    const Gpu::Turn turn(gpu);
    gpu.launch("perf_flags", 1, 1, flags);
  }
  tw_context* const context_;
  Gpu &first_, &second_;
  const PlacedMemory here_, there_, said_;
};

void between(const Options& o, tw_context* context, Gpu& first, Gpu& second) {
  Row r("flags");
  r.label("from", first.place()).label("to", second.place()).label("by", "kernel").label("memory", "device");
  if (!first.reach(second) || !second.reach(first)) {
    r.unavailable("the devices have no path that kernels may use (P2P)").print(o.format);
    return;
  }
  BetweenGpus test(context, first, second);
  const double trial = test.once(kTrial);
  bool right = trial > 0;
  std::vector<double> took;
  const u32 rounds = rounds_for(o, trial);
  if (right) {
    took = repeat(o.seconds, [&] {
      const double each = test.once(rounds);
      right = right && each > 0;
      return each;
    });
  }
  print_flag(o, r, took, rounds, right);
}

}  // namespace

void run_flags(const Options& o) {
  const OwnContext context;
  const std::vector<std::unique_ptr<Gpu>> gpus = all_gpus(o);
  if (gpus.empty()) Row("flags").label("to", "cuda:0").unavailable(why_no_gpu()).print(o.format);
  for (const auto& gpu : gpus) {
    const Gpu::Turn turn(*gpu);
    FlagTests(o, context, *gpu).run();
  }
  for (const auto& from : gpus) {
    for (const auto& to : gpus) {
      if (from != to) between(o, context, *from, *to);
    }
  }
}

}  // namespace perf
