// SPDX-License-Identifier: Apache-2.0
// Atomic adds on one word of 64 bits, of system scope: by the host alone, by a GPU alone, by both at once. The sum tells whether each is
// atomic for the other. First between two threads of the host.
#include <algorithm>
#include <atomic>
#include <thread>

#include "driver.hpp"
#include "kernels/arguments.hpp"
#include "machine/alone.hpp"
#include "machine/memories.hpp"
#include "machine/numa.hpp"
#include "machine/repeat.hpp"
#include "machine/rows.hpp"
#include "report.hpp"

namespace perf {
namespace {

constexpr uint64_t kBetween = 512;  // adds of the host between looks at whether to end: asking a driver takes as long as many

struct Rate {
  uint64_t adds = 0;
  double seconds = 0;
  double per_second() const { return seconds > 0 ? static_cast<double>(adds) / seconds : 0; }
};

/// Until `over`, at least once; a minute at most, as other waits for a GPU.
template <class Over>
Rate add_by_host(u64* word, Over over) {
  constexpr uint64_t kLimit = 60'000'000'000;
  const uint64_t limit = now_ns() + kLimit;
  Rate rate;
  rate.seconds = timed([&] {
    do {
      for (uint64_t i = 0; i < kBetween; ++i) (void)__atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
      rate.adds += kBetween;
    } while (!over() && now_ns() < limit);
  });
  return rate;
}
Rate add_for(u64* word, double seconds) {
  const uint64_t end = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  return add_by_host(word, [&] { return now_ns() > end; });
}

void report(const Options& o, const std::string& memory, const std::string& device, const char* who, int native, Rate host,
            Rate there, bool right) {
  Row r("atomics");
  r.label("memory", memory).label("device", device).label("who", who);
  if (native >= 0) r.flag("native", native != 0);
  if (host.adds != 0) r.value("host_adds_per_s", host.per_second());
  if (there.adds != 0) r.value("device_adds_per_s", there.per_second());
  r.verified(right).print(o.format);
}

/// Two threads of the host, each in the other's way.
void by_threads(const Options& o, tw_context* context) {
  const std::vector<unsigned> processors = allowed_processors();
  const PlacedMemory memory(context, "host", 64);
  auto* const word = reinterpret_cast<u64*>(memory.at());
  *word = 0;
  const Rate alone = add_for(word, o.seconds);
  report(o, "host", "threads", "host", -1, alone, {}, *word == alone.adds);
  *word = 0;
  Rate first, second;
  std::atomic<unsigned> ready{0};
  const auto add = [&](Rate* rate, unsigned processor) {
    (void)run_on(processor);
    ++ready;
    while (ready.load() < 2) std::this_thread::yield();
    *rate = add_for(word, o.seconds);
  };
  std::thread other(add, &second, processors.back()), one(add, &first, processors.front());
  one.join();
  other.join();
  report(o, "host", "threads", "both", -1, first, second, *word == first.adds + second.adds);
}

class WithGpu {
 public:
  WithGpu(const Options& o, tw_context* context, Gpu& gpu, const std::string& place)
      : o_(o), gpu_(gpu), place_(place), memory_(context, place, 64), word_(reinterpret_cast<u64*>(memory_.at())) {
    native_ = cuda::attribute_of(gpu.ordinal(), cuda::kHostNativeAtomics);
  }
  void run() {
    store(0);
    const Rate host = add_for(word_, o_.seconds / 3);
    report(o_, place_, gpu_.place(), "host", native_, host, {}, load() == host.adds);
    (void)by_device(1);                    // the first launch of a kernel loads it
    for (u64 each = kFirst;; each *= 4) {  // until it takes long enough to be timed, and to meet the host
      store(0);
      const Rate device = by_device(each);
      each_ = each;
      const u64 most = place_ == "pinned" ? kMostEach : kMostManaged;
      if (device.seconds < std::min(o_.seconds / 3, 1.0) && each < most) continue;
      report(o_, place_, gpu_.place(), "device", native_, {}, device, load() == device.adds);
      break;
    }
    store(0);
    const uint64_t start = now_ns();
    launch(each_);
    uint64_t over = 0;
    const Rate beside = add_by_host(word_, [&] { return gpu_.idle() ? (over = now_ns(), true) : false; });
    gpu_.finish();
    const Rate device{adds(each_), static_cast<double>(over - start) / 1e9};
    const bool right = load() == beside.adds + device.adds;
    if (right || native_ != 0)
      report(o_, place_, gpu_.place(), "both", native_, beside, device, right);
    else
      Row("atomics")
          .label("memory", place_)
          .label("device", gpu_.place())
          .label("who", "both")
          .flag("native", false)
          .unavailable("the device's atomic operations there are not atomic for the host: the sum was wrong")
          .print(o_.format);
  }

 private:
  static constexpr unsigned kBlocks = 4, kThreadsEach = 64;
  static constexpr u64 kFirst = 16, kMostEach = 1u << 16, kMostManaged = 1u << 10;  // managed: a page goes there and back
  static uint64_t adds(u64 each) { return each * kBlocks * kThreadsEach; }
  void launch(u64 each) { gpu_.launch("perf_adds", kBlocks, kThreadsEach, Adds{word_, each}); }
  Rate by_device(u64 each) {
    const double seconds = timed([&] {
      launch(each);
      gpu_.finish();
    });
    return {adds(each), seconds};
  }
  void store(u64 value) { __atomic_store_n(word_, value, __ATOMIC_RELEASE); }
  u64 load() const { return __atomic_load_n(word_, __ATOMIC_ACQUIRE); }

  const Options& o_;
  Gpu& gpu_;
  const std::string place_;
  const PlacedMemory memory_;
  u64* const word_;
  int native_ = 0;
  u64 each_ = kFirst;
};

}  // namespace

void run_atomics(const Options& o) {
  const OwnContext context;
  const std::vector<std::unique_ptr<Gpu>> gpus = all_gpus(o);
  by_threads(o, context);
  if (gpus.empty()) Row("atomics").label("device", "cuda:0").unavailable(why_no_gpu()).print(o.format);
  for (const auto& gpu : gpus) {
    const Gpu::Turn turn(*gpu);
    WithGpu(o, context, *gpu, "pinned").run();
    const std::string managed = "managed:" + std::to_string(gpu->ordinal());
    if (cuda::attribute_of(gpu->ordinal(), cuda::kConcurrentManaged) != 0)
      WithGpu(o, context, *gpu, managed).run();
    else
      Row("atomics")
          .label("memory", managed)
          .label("device", gpu->place())
          .unavailable("host and device may not touch this device's managed memory at once")
          .print(o.format);
  }
}

}  // namespace perf
