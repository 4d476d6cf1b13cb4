// SPDX-License-Identifier: Apache-2.0
// Copies as matrices: between the host's pinned and ordinary memory and each GPU, and between any two GPUs, one way and both ways at
// once; by copy engines, by a kernel that loads from the other memory or stores into it, and through pinned memory of the host, without a
// path between the devices. The latency of the smallest copy is from the call to its end. Emulated devices copy by their engine.
#include <algorithm>
#include <functional>

#include "machine/alone.hpp"
#include "machine/copy_ways.hpp"
#include "machine/memories.hpp"
#include "machine/repeat.hpp"
#include "machine/rows.hpp"
#include "report.hpp"

namespace perf {
namespace {

const std::vector<size_t> kSizes = {8, 64u << 20};
constexpr size_t kSmall = 4096;         // below it counts the time of one
constexpr size_t kEnough = 256u << 20;  // bytes that are timed together

/// A copy that is under way with others, from one memory to another.
struct Lane {
  CopyWay* way;
  PlacedMemory *from, *to;
};

/// How a row is called.
struct Names {
  std::string from, to, by, memory;
  int p2p = -1;  // not between two devices
};

class Copies {
 public:
  Copies(const Options& o, tw_context* context, std::vector<std::unique_ptr<Gpu>> gpus)
      : o_(o), context_(context), gpus_(std::move(gpus)), sizes_(o.sizes.empty() ? kSizes : o.sizes) {
    const size_t most = *std::max_element(sizes_.begin(), sizes_.end());
    for (const std::string place : {"pinned", PlacedMemory::kOrdinary}) host_.push_back(both(place, most));
    staging_ = std::make_unique<PlacedMemory>(context, "pinned", 4 * StagedCopy::kPiece);
    for (const auto& gpu : gpus_) {
      const Gpu::Turn turn(*gpu);
      second_.push_back(std::make_unique<Gpu>(gpu->ordinal()));
      memory_.push_back(both(gpu->place(), most));
    }
  }

  void run() {
    for (size_t d = 0; d < gpus_.size(); ++d) with_host(d);
    for (size_t from = 0; from < gpus_.size(); ++from) {
      for (size_t to = 0; to < gpus_.size(); ++to) from == to ? within(from) : between(from, to);
    }
  }

 private:
  struct Both {
    std::unique_ptr<PlacedMemory> source, target;
  };
  Both both(const std::string& place, size_t most) const {
    return {std::make_unique<PlacedMemory>(context_, place, most), std::make_unique<PlacedMemory>(context_, place, most)};
  }

  void with_host(size_t d) {
    const std::string device = gpus_[d]->place();
    EngineCopy in(*gpus_[d]), out(*second_[d]);
    KernelCopy loads(*gpus_[d]), stores(*second_[d]);
    for (const Both& host : host_) {
      const std::string memory = &host == &host_[0] ? "pinned" : PlacedMemory::kOrdinary;
      const Lane to_device{&in, host.source.get(), memory_[d].target.get()},
          to_host{&out, memory_[d].source.get(), host.target.get()};
      measure({"host", device, "engine", memory}, {to_device});
      measure({device, "host", "engine", memory}, {to_host});
      measure({"host", device, "engine", memory}, {to_device, to_host});
    }
    const Lane loaded{&loads, host_[0].source.get(), memory_[d].target.get()},
        stored{&stores, memory_[d].source.get(), host_[0].target.get()};
    measure({"host", device, "kernel_load", "pinned"}, {loaded});
    measure({device, "host", "kernel_store", "pinned"}, {stored});
    measure({"host", device, "kernel", "pinned"}, {loaded, stored});
  }

  void within(size_t d) {
    EngineCopy engine(*gpus_[d]);
    KernelCopy kernel(*gpus_[d]);
    const std::string device = gpus_[d]->place();
    measure({device, device, "engine", device}, {{&engine, memory_[d].source.get(), memory_[d].target.get()}});
    measure({device, device, "kernel", device}, {{&kernel, memory_[d].source.get(), memory_[d].target.get()}});
  }

  /// Kernels load what comes to their device, or store what leaves it.
  void between(size_t from, size_t to) {
    Gpu &here = *gpus_[from], &there = *gpus_[to];
    const bool reached = here.reach(there) && there.reach(here);
    const auto lanes = [&](CopyWay* one, CopyWay* other) {
      return std::vector<Lane>{{one, memory_[from].source.get(), memory_[to].target.get()},
                               {other, memory_[to].source.get(), memory_[from].target.get()}};
    };
    const auto measure_all = [&](const char* by, CopyWay* one, CopyWay* other) {
      const Names names{here.place(), there.place(), by, "", reached};
      measure(names, {lanes(one, other)[0]});
      if (from < to) measure(names, lanes(one, other));
    };
    EngineCopy engine(here), other_engine(there);
    measure_all("engine", &engine, &other_engine);
    KernelCopy by_here(here), by_there(there);
    if (reached) {
      measure_all("kernel_load", &by_there, &by_here);
      measure_all("kernel_store", &by_here, &by_there);
    } else {
      for (const char* by : {"kernel_load", "kernel_store"})
        row({here.place(), there.place(), by, "", 0}, "one")
            .unavailable("the devices have no path that kernels may use (P2P)")
            .print(o_.format);
    }
    StagedCopy staged(here, there, staging_->at()), back(*second_[to], *second_[from], staging_->at(2 * StagedCopy::kPiece));
    measure_all("host", &staged, &back);
  }

  static Row row(const Names& names, const char* direction) {
    Row r("copies");
    r.label("from", names.from).label("to", names.to).label("by", names.by).label("direction", direction);
    if (!names.memory.empty()) r.label("memory", names.memory);
    if (names.p2p >= 0) r.flag("p2p", names.p2p != 0);
    return r;
  }

  /// All lanes at once.
  void measure(const Names& names, const std::vector<Lane>& lanes) const {
    for (const size_t size : sizes_) {
      const bool kernel = names.by.rfind("kernel", 0) == 0;
      const size_t bytes = kernel ? std::max<size_t>(8, size / 8 * 8) : size;
      Row r = row(names, lanes.size() == 1 ? "one" : "both");
      r.size(bytes);
      std::vector<uint64_t> seeds;
      for (const Lane& lane : lanes) {
        seeds.push_back(fresh_seed());
        lane.from->fill(seeds.back(), bytes);
        lane.to->poison(bytes);
      }
      const auto run = [&](size_t times) {
        return timed([&] {
          for (size_t i = 0; i < times; ++i) {
            for (const Lane& lane : lanes) lane.way->start(lane.to->at(), lane.from->at(), bytes);
          }
          for (const Lane& lane : lanes) lane.way->finish();
        });
      };
      (void)run(1);
      const auto fit = static_cast<size_t>(o_.seconds / (8 * std::max(run(1), 1e-7)));
      const size_t together = bytes <= kSmall ? 1 : std::clamp<size_t>(std::min(kEnough / bytes, fit), 1, 32);
      const std::vector<double> took = repeat(o_.seconds, [&] { return run(together); });
      bool right = true;
      for (size_t i = 0; i < lanes.size(); ++i) right = right && lanes[i].to->holds(seeds[i], bytes);
      const double each = percentile(took, 50) / static_cast<double>(together);
      r.label("iterations", took.size() * together).value("bytes_per_s", static_cast<double>(bytes * lanes.size()) / each);
      r.value("ns", each * 1e9).verified(right).print(o_.format);
    }
  }

  const Options& o_;
  tw_context* const context_;
  std::vector<std::unique_ptr<Gpu>> gpus_, second_;  // a further stream each
  const std::vector<size_t> sizes_;
  std::vector<Both> host_, memory_;
  std::unique_ptr<PlacedMemory> staging_;
};

/// By the library, which waits for the end.
void measure_emulated(const Options& o, tw_context* context, const std::vector<std::string>& devices) {
  std::vector<std::string> places = devices;
  places.insert(places.begin(), "host");
  for (const std::string& from : places) {
    for (const std::string& to : places) {
      if (from == "host" && to == "host") continue;
      for (const size_t bytes : o.sizes.empty() ? std::vector<size_t>{8, 1u << 20} : o.sizes) {
        PlacedMemory source(context, from, bytes), target(context, to, bytes);
        const uint64_t seed = fresh_seed();
        source.fill(seed, bytes);
        target.poison(bytes);
        const std::vector<double> took = repeat(o.seconds, [&] {
          return timed([&] { must(tw_memory_copy(context, target.at(), source.at(), bytes), "tw_memory_copy"); });
        });
        const double median = percentile(took, 50);
        Row r("copies");
        r.label("from", from)
            .label("to", to)
            .label("by", "engine")
            .label("direction", "one")
            .size(bytes)
            .label("iterations", took.size());
        r.value("bytes_per_s", static_cast<double>(bytes) / median)
            .value("ns", median * 1e9)
            .verified(target.holds(seed, bytes))
            .print(o.format);
      }
    }
  }
}

}  // namespace

void run_copies(const Options& o) {
  const OwnContext context;
  std::vector<std::unique_ptr<Gpu>> gpus = all_gpus(o);
  const std::vector<std::string> emulated = emulated_places(context);
  if (gpus.empty()) Row("copies").label("to", "cuda:0").unavailable(why_no_gpu()).print(o.format);
  if (!gpus.empty()) Copies(o, context, std::move(gpus)).run();
  if (o.memory[0].empty()) measure_emulated(o, context, emulated);
}

}  // namespace perf
