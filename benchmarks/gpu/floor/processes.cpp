// SPDX-License-Identifier: Apache-2.0
// Memory of another process: what export, import and release cost, copies from it, both processes at once, and its death.
#include <chrono>
#include <thread>

#include "other.hpp"

namespace thalweg::floors {
namespace {

const char* name_of(MemoryKind kind) { return kind == MemoryKind::vmm ? "vmm" : "ipc"; }

void import_costs(Bench& bench, Other& other, MemoryKind kind, size_t length) {
  Device& near = bench.near();
  std::vector<double> exports, first, again, releases;
  for (unsigned i = 0; i < bench.times(10); ++i) {
    std::vector<ExportedMemory> pieces;
    exports.push_back(other.ask({Order::export_memory, kind, length}, &pieces).export_us);
    uint64_t address = 0, second = 0;
    std::vector<ExportedMemory> same(kind == MemoryKind::vmm ? 0 : 1);
    if (!same.empty()) same[0].handle = pieces[0].handle;
    double start = now_us();
    must(near.import_memory(pieces, &address), "importing");
    first.push_back(now_us() - start);
    if (!same.empty()) {
      start = now_us();
      must(near.import_memory(same, &second), "importing again");
      again.push_back(now_us() - start);
      must(near.release_import(second), "releasing");
    }
    start = now_us();
    must(near.release_import(address), "releasing");
    releases.push_back(now_us() - start);
  }
  const std::string what = name_of(kind);
  bench.table.add("sharing", what + ", export", length, median(exports), "us");
  bench.table.add("sharing", what + ", import", length, median(first), "us");
  if (!again.empty()) bench.table.add("sharing", what + ", import of what is imported", length, median(again), "us");
  bench.table.add("sharing", what + ", release", length, median(releases), "us");
}

/// Does an import wait behind a kernel that spins on the importing device?
void import_behind_a_kernel(Bench& bench, Other& other, MemoryKind kind) {
  Device& near = bench.near();
  const Memory words(near, MemoryKind::pinned, 4096);
  std::vector<ExportedMemory> pieces;
  other.ask({Order::export_memory, kind, size_t{64} << 20}, &pieces);
  const auto queue = make_queue(near);
  must(queue->launch(WaitKernel{words.at(), 1, 300'000'000, words.at() + 8}), "launching");
  uint64_t address = 0;
  double start = now_us();
  must(near.import_memory(pieces, &address), "importing");
  bench.table.add("sharing", std::string(name_of(kind)) + ", import while a kernel spins for 300 ms", size_t{64} << 20,
                  now_us() - start, "us");
  must(queue->synchronize(), "waiting");
  const auto waiting = make_queue(near);
  must(waiting->wait_geq(words.at() + 64, 1), "waiting");
  std::thread helper([&] {  // a release that waits for the queue would never end
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    __atomic_store_n(words.word() + 8, 1, __ATOMIC_RELEASE);
  });
  start = now_us();
  const Status released = near.release_import(address);
  const double took = now_us() - start;
  helper.join();
  must(released, "releasing");
  bench.table.add("sharing", std::string(name_of(kind)) + ", release while a queue waits for a word for 300 ms",
                  size_t{64} << 20, took, "us");
  must(waiting->synchronize(), "waiting");
}

void copies(Bench& bench, Other& other, MemoryKind kind) {
  Device& near = bench.near();
  const size_t largest = size_t{256} << 20;
  std::vector<ExportedMemory> pieces;
  const Reply reply = other.ask({Order::export_memory, kind, largest}, &pieces);
  uint64_t base = 0;
  must(near.import_memory(pieces, &base), "importing");
  const uint64_t there = base + reply.address;
  {
    const Memory here(near, MemoryKind::device, largest), word(near, MemoryKind::pinned, 8);
    const auto queue = make_queue(near);
    const auto event = make_event(near);
    uint64_t written = 0;
    for (const size_t size : {size_t{8}, size_t{64} << 10, size_t{1} << 20, largest}) {
      std::vector<Variant> ways;
      for (const bool push : {false, true}) {
        const Copy copy = push ? Copy{there, here.at(), size} : Copy{here.at(), there, size};
        const std::string what = std::string(name_of(kind)) + (push ? ", push, " : ", pull, ");
        ways.push_back({what + "library copy, event", [&, copy] {
                          const double start = now_us();
                          must(queue->copy(&copy, 1), "copying");
                          must(queue->record(*event), "recording");
                          wait_for(*event);
                          return now_us() - start;
                        }});
        ways.push_back({what + "library kernel, pinned word", [&, copy] {
                          const double start = now_us();
                          must(queue->launch(CopyKernel{copy, {word.at(), ++written, false}}), "launching");
                          wait_for(word.word(), written);
                          return now_us() - start;
                        }});
      }
      race(bench, "imported", size, bench.times(size <= (size_t{1} << 20) ? 300 : 10), ways, static_cast<double>(size));
      expect_equal(near, here.at(), near, there, size);
    }
  }
  must(near.release_import(base), "releasing");
}

/// Each process pulls the other's memory at the same time.
void both_at_once(Bench& bench, Other& other) {
  Device& near = bench.near();
  const size_t length = size_t{256} << 20;
  std::vector<ExportedMemory> theirs, ours;
  other.ask({Order::export_memory, MemoryKind::device, length}, &theirs);
  uint64_t there = 0;
  must(near.import_memory(theirs, &there), "importing");
  {
    const Memory mine(near, MemoryKind::device, length), here(near, MemoryKind::device, length);
    fill(near, mine.at(), length);
    must(near.export_memory(mine.at(), length, 0x1111, &ours), "exporting");
    const double seconds = bench.quick ? 0.3 : 1.0;
    Order order{Order::copy_for, MemoryKind::device, length, seconds};
    other.tell(order);
    other.give(ours);
    const auto queue = make_queue(near);
    const auto event = make_event(near);
    const Copy copy{here.at(), there, length};
    uint64_t done = 0;
    const double start = now_us();
    while (now_us() - start < (seconds + 0.2) * 1e6) {  // it starts a little later
      for (int i = 0; i < 4; ++i) must(queue->copy(&copy, 1), "copying");
      must(queue->record(*event), "recording");
      wait_for(*event);
      done += 4 * length;
    }
    const double speed = static_cast<double>(done) / (now_us() - start) / 1e3;
    const Reply reply = other.hear();
    bench.table.add("both_processes_pull", "one", length, speed, "GB/s");
    bench.table.add("both_processes_pull", "other", length, reply.gigabytes_per_s, "GB/s");
    expect_equal(near, here.at(), near, there, length);
  }
  must(near.release_import(there), "releasing");
}

}  // namespace

void processes(Bench& bench) {
  Other other;  // for all of it: a start with its contexts takes longer than what is measured
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::vmm}) {
    for (const size_t length : {size_t{2} << 20, size_t{64} << 20, size_t{1} << 30}) import_costs(bench, other, kind, length);
    import_behind_a_kernel(bench, other, kind);
    copies(bench, other, kind);
  }
  both_at_once(bench, other);
}

/// The other dies while our queue copies out of its memory.
void killed_exporter(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  const size_t length = size_t{256} << 20;
  const uint64_t before_near = free_memory(bench, near), before_far = free_memory(bench, far);
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::vmm}) {
    for (unsigned round = 0; round < 2; ++round) {
      Other other;
      std::vector<ExportedMemory> pieces;
      const Reply reply = other.ask({Order::export_memory, kind, length}, &pieces);
      uint64_t base = 0;
      must(near.import_memory(pieces, &base), "importing");
      const Memory here(near, MemoryKind::device, length);
      const auto queue = make_queue(near);
      const auto event = make_event(near);
      const Copy copy{here.at(), base + reply.address, length};
      for (int i = 0; i < 40; ++i) must(queue->copy(&copy, 1), "copying");
      must(queue->record(*event), "recording");
      const bool under_way = event->query() == TW_IN_PROGRESS;
      const double start = now_us();
      other.kill();
      const double killed = now_us();
      const Status waited = event->synchronize();
      const double done = now_us();
      const Status more = queue->copy(&copy, 1), after = is_error(more) ? more : queue->synchronize();
      const Status released = near.release_import(base);
      char text[200];
      std::snprintf(text, sizeof text,
                    "killed exporter, %s, round %u: copies %s when it died; gone after %.1f ms; event %d after %.1f ms more; "
                    "another copy %d; release %d",
                    name_of(kind), round, under_way ? "under way" : "done", (killed - start) / 1e3, waited,
                    (done - killed) / 1e3, after, released);
      bench.table.note(text);
    }
    const Memory mine(near, MemoryKind::device, 1 << 20), theirs(far, MemoryKind::device, 1 << 20);
    fill(far, theirs.at(), 1 << 20);
    const auto queue = make_queue(near);
    const Copy copy{mine.at(), theirs.at(), 1 << 20};
    must(queue->copy(&copy, 1), "a copy after the other's death");
    must(queue->synchronize(), "a copy after the other's death");
    expect_equal(near, mine.at(), far, theirs.at(), 1 << 20);
  }
  const auto lost = [](uint64_t before, uint64_t after) {
    return (static_cast<double>(before) - static_cast<double>(after)) / 1048576;
  };
  bench.table.add("killed_exporter", "memory that did not come back, own GPU", length,
                  lost(before_near, free_memory(bench, near)), "MiB");
  bench.table.add("killed_exporter", "memory that did not come back, its GPU", length,
                  lost(before_far, free_memory(bench, far)), "MiB");
}

}  // namespace thalweg::floors
