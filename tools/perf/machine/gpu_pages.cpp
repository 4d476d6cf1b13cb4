// SPDX-License-Identifier: Apache-2.0
// Page-fault service of GPUs: managed memory whose pages the host touched last, touched by a kernel; the same after they were asked for
// (cuMemPrefetchAsync); the way back by the host; and prefetching itself, both ways.
#include "machine/gpu_pages.hpp"

#include "driver.hpp"
#include "kernels/arguments.hpp"
#include "machine/memories.hpp"
#include "machine/repeat.hpp"
#include "machine/rows.hpp"
#include "report.hpp"

namespace perf {

using namespace cuda;

namespace {

constexpr size_t kPage = 4096, kBytes = 16u << 20;
constexpr int kHost = -1;  // CU_DEVICE_CPU

class ManagedPages {
 public:
  ManagedPages(const Options& o, tw_context* context, Gpu& gpu)
      : o_(o),
        gpu_(gpu),
        place_("managed:" + std::to_string(gpu.ordinal())),
        bytes_(std::max(kPage, (o.sizes.empty() ? kBytes : o.sizes[0]) / kPage * kPage)),
        memory_(context, place_, bytes_) {
    for (size_t p = 0; p < bytes_; p += kPage) *word(p) = seed_ + p;
  }
  void run() {
    measure(gpu_.place(), "touch", [&] { by_host(); }, [&] { by_device(); });
    measure("cpu", "touch", [&] { by_device(); }, [&] { by_host(); });
    if (driver().MemPrefetchAsync == nullptr) {
      row(gpu_.place(), "prefetch").unavailable("the CUDA driver has no cuMemPrefetchAsync").print(o_.format);
      return;
    }
    measure(gpu_.place(), "prefetch", [&] { by_host(); }, [&] { prefetch(static_cast<int>(gpu_.ordinal())); });
    measure(
        gpu_.place(), "touch_prefetched", [&] { by_host(), prefetch(static_cast<int>(gpu_.ordinal())); }, [&] { by_device(); });
    measure("cpu", "prefetch", [&] { by_device(); }, [&] { prefetch(kHost); });
  }

 private:
  volatile u64* word(size_t p) const { return reinterpret_cast<volatile u64*>(memory_.at(p)); }
  void by_host() {
    for (size_t p = 0; p < bytes_; p += kPage) *word(p) = *word(p) + 1;
    ++touched_;
  }
  void by_device() {
    gpu_.launch("perf_touches", std::max(1u, static_cast<unsigned>(bytes_ / kPage / 256)), 256,
                Touches{reinterpret_cast<u64*>(memory_.at()), bytes_ / kPage, kPage / sizeof(u64)});
    gpu_.finish();
    ++touched_;
  }
  void prefetch(int device) {
    check(driver().MemPrefetchAsync(reinterpret_cast<uint64_t>(memory_.at()), bytes_, device, gpu_.stream()),
          "cuMemPrefetchAsync");
    gpu_.finish();
  }
  Row row(const std::string& processor, const char* by) const {
    Row r("pages");
    return r.label("processor", processor).label("memory", place_).label("by", by).size(kPage, "page_bytes").size(bytes_);
  }
  /// `before` brings the pages to the other side.
  template <class Before, class Timed>
  void measure(const std::string& processor, const char* by, Before before, Timed what) {
    const std::vector<double> took = repeat(o_.seconds, [&] {
      before();
      return timed(what);
    });
    const double median = percentile(took, 50);
    bool right = true;
    for (size_t p = 0; p < bytes_; p += kPage) right &= *word(p) == seed_ + p + touched_;
    Row r = row(processor, by);
    r.label("iterations", took.size()).value("ns", median * 1e9 * static_cast<double>(kPage) / static_cast<double>(bytes_));
    r.value("bytes_per_s", static_cast<double>(bytes_) / median).verified(right).print(o_.format);
  }

  const Options& o_;
  Gpu& gpu_;
  const std::string place_;
  const size_t bytes_;
  const PlacedMemory memory_;
  const u64 seed_ = fresh_seed();
  u64 touched_ = 0;
};

}  // namespace

void run_gpu_pages(const Options& o) {
  if (o.memory[0] == "host") return;
  const OwnContext context;
  const std::vector<std::unique_ptr<Gpu>> gpus = all_gpus(o);
  if (gpus.empty()) Row("pages").label("processor", "cuda:0").unavailable(why_no_gpu()).print(o.format);
  for (const auto& gpu : gpus) {
    const Gpu::Turn turn(*gpu);
    if (attribute_of(gpu->ordinal(), kConcurrentManaged) != 0)
      ManagedPages(o, context, *gpu).run();
    else
      Row("pages")
          .label("processor", gpu->place())
          .label("memory", "managed")
          .unavailable("this device does not serve faults of managed memory")
          .print(o.format);
  }
}

}  // namespace perf
