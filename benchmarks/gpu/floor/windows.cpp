// SPDX-License-Identifier: Apache-2.0
// Bandwidth of many copies under way: distinct buffers, one or several queues, engines or kernels; both directions at once.
#include <algorithm>

#include "bench.hpp"

namespace thalweg::floors {
namespace {

constexpr size_t kWindow = 16;

/// Queues of one device with an event each.
struct Lanes {
  Lanes(Device& device, size_t count, uint64_t other, size_t length) {
    for (size_t i = 0; i < count; ++i) {
      queues.push_back(make_queue(device));
      events.push_back(make_event(device));
    }
    must(queues[0]->admit(Use::kernel, other, length), "admitting");
  }
  /// Waits until everything that was enqueued is done.
  void drain() {
    for (size_t i = 0; i < queues.size(); ++i) must(queues[i]->record(*events[i]), "recording");
    for (const auto& event : events) wait_for(*event);
  }
  std::vector<std::unique_ptr<Queue>> queues;
  std::vector<std::unique_ptr<Event>> events;
};

std::vector<Copy> window_of(uint64_t to, uint64_t from, size_t size) {
  std::vector<Copy> copies;
  for (size_t i = 0; i < kWindow; ++i) copies.push_back({to + i * size, from + i * size, size});
  return copies;
}

/// `rounds` windows, waited for each, or only at the end.
double run_window(Lanes& lanes, const std::vector<Copy>& copies, size_t used, unsigned blocks, unsigned rounds, bool each) {
  const double start = now_us();
  for (unsigned round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < copies.size(); ++i) {
      Queue& queue = *lanes.queues[i % used];
      must(blocks == 0 ? queue.copy(&copies[i], 1) : queue.launch(CopyKernel{copies[i], {}, 0, blocks}), "enqueuing");
    }
    if (each) lanes.drain();
  }
  if (!each) lanes.drain();
  return (now_us() - start) / rounds;
}

void add_ways(Lanes& lanes, const std::vector<Copy>& copies, const std::string& prefix, unsigned rounds, const Memory& list,
              std::vector<Variant>* ways) {
  for (const bool each : {true, false}) {
    const std::string when = each ? ", waited for" : ", flowing";
    for (const size_t used : {size_t{1}, size_t{2}, size_t{3}, size_t{4}}) {
      ways->push_back({prefix + "engine, " + std::to_string(used) + " queues" + when,
                       [&lanes, &copies, used, rounds, each] { return run_window(lanes, copies, used, 0, rounds, each); }});
    }
    for (const unsigned blocks : {8u, 16u, 32u}) {
      for (const size_t used : {size_t{1}, size_t{2}}) {
        ways->push_back(
            {prefix + std::to_string(blocks) + " blocks, " + std::to_string(used) + " queues" + when,
             [&lanes, &copies, used, blocks, rounds, each] { return run_window(lanes, copies, used, blocks, rounds, each); }});
      }
    }
  }
  ways->push_back({prefix + "engine, one batched call, waited for", [&lanes, &copies, rounds] {
                     const double start = now_us();
                     for (unsigned round = 0; round < rounds; ++round) {
                       must(lanes.queues[0]->copy(copies.data(), copies.size()), "enqueuing");
                       lanes.drain();
                     }
                     return (now_us() - start) / rounds;
                   }});
  for (const unsigned blocks : {16u, 32u, 64u}) {
    ways->push_back({prefix + "one kernel of " + std::to_string(blocks) + " blocks for all, waited for",
                     [&lanes, &copies, &list, rounds, blocks] {
                       const double start = now_us();
                       for (unsigned round = 0; round < rounds; ++round) {
                         must(lanes.queues[0]->launch(BlocksKernel{list.at(), copies.size(), copies[0].width, {}, 0, blocks}),
                              "launching");
                         lanes.drain();
                       }
                       return (now_us() - start) / rounds;
                     }});
  }
}

}  // namespace

void windows(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  for (const size_t size : {size_t{64} << 10, size_t{256} << 10, size_t{1} << 20, size_t{4} << 20, size_t{16} << 20}) {
    const size_t all = kWindow * size;
    const Memory from(near, MemoryKind::device, all), to(far, MemoryKind::device, all);
    const std::vector<Copy> copies = window_of(to.at(), from.at(), size);
    const Memory list(near, MemoryKind::pinned, kWindow * sizeof(BlockPair));
    for (size_t i = 0; i < kWindow; ++i) reinterpret_cast<BlockPair*>(list.host())[i] = {copies[i].to, copies[i].from};
    const unsigned rounds = size <= (size_t{1} << 20) ? 8 : 2;
    for (const bool push : {true, false}) {
      fill(near, from.at(), all);
      Lanes lanes(push ? near : far, 4, push ? to.at() : from.at(), all);
      std::vector<Variant> ways;
      add_ways(lanes, copies, push ? "push, " : "pull, ", rounds, list, &ways);
      race(bench, "window_16", size, bench.times(15), ways, static_cast<double>(all));
      expect_equal(near, from.at(), far, to.at(), all);
    }
  }
}

void both_ways(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  for (const size_t size : {size_t{1} << 20, size_t{16} << 20, size_t{256} << 20}) {
    const size_t count = size > (size_t{16} << 20) ? 1 : kWindow, all = count * size;
    const Memory a(near, MemoryKind::device, all), b(far, MemoryKind::device, all);
    const Memory to_far(far, MemoryKind::device, all), to_near(near, MemoryKind::device, all);
    fill(near, a.at(), all);
    fill(far, b.at(), all);
    Lanes at_near(near, 2, to_far.at(), all), at_far(far, 2, to_near.at(), all);
    must(at_near.queues[0]->admit(Use::kernel, b.at(), all), "admitting");
    must(at_far.queues[0]->admit(Use::kernel, a.at(), all), "admitting");
    std::vector<Copy> forth, back;
    for (size_t i = 0; i < count; ++i) {
      forth.push_back({to_far.at() + i * size, a.at() + i * size, size});
      back.push_back({to_near.at() + i * size, b.at() + i * size, size});
    }
    std::vector<Variant> ways;
    for (const bool push : {true, false}) {
      for (const size_t used : {size_t{1}, size_t{2}}) {
        ways.push_back({std::string(push ? "push, " : "pull, ") + std::to_string(used) + " queues each", [&, push, used] {
                          Lanes &one = push ? at_near : at_far, &other = push ? at_far : at_near;
                          const double start = now_us();
                          for (int round = 0; round < 4; ++round) {
                            for (size_t i = 0; i < count; ++i) {
                              must(one.queues[i % used]->copy(&forth[i], 1), "enqueuing");
                              must(other.queues[i % used]->copy(&back[i], 1), "enqueuing");
                            }
                          }
                          one.drain();
                          other.drain();
                          return (now_us() - start) / 4;
                        }});
      }
    }
    race(bench, "both_ways", size, bench.times(15), ways, 2.0 * static_cast<double>(all));
    expect_equal(near, a.at(), far, to_far.at(), all);
    expect_equal(far, b.at(), near, to_near.at(), all);
  }
}

}  // namespace thalweg::floors
