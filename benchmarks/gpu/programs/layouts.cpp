// SPDX-License-Identifier: Apache-2.0
// Calls; faces of a cube and chains of pieces to the other device.
#include <algorithm>
#include <memory>

#include "prepared.hpp"

namespace thalweg::floors {

void calls(Bench& bench) {
  const FloorKernel empty(bench, bench.near(), "floor_empty");
  const DeviceMemory words(bench.near(), 4096);
  const Prepared nothing(bench.near(), {signal_step(words.at())});
  Step set = wait_step(words.at() + 64);
  set.signal = {reinterpret_cast<device::u64*>(words.at() + 64), 0, 0, 0};
  const Prepared fulfilled(bench.near(), {set});
  const auto queue = make_queue(bench.near());
  const auto timed = [&](const Round& call) {
    constexpr unsigned kCalls = 100;
    const double start = now_us();
    for (unsigned i = 0; i < kCalls; ++i) call(*queue);
    const double taken = (now_us() - start) / kCalls;
    must(queue->synchronize(), "waiting");
    return taken;
  };
  race(bench, "call", 0, bench.times(50),
       {{"floor: a bare launch of an empty kernel", [&] { return timed([&](Queue& q) { empty.launch(q, 1, 32, nullptr); }); }},
        {"run of a program of one step", [&] { return timed([&](Queue& q) { nothing.enqueue(q); }); }}});
  const auto node = [&](const char* name, const Round& work, const char* peer) {
    bench.table.add("node", name, 0, repeated(bench, work, 500), "us", peer);
  };
  node("floor: an empty kernel in a graph", [&](Queue& q) { empty.launch(q, 1, 32, nullptr); }, "floor");
  node("a fulfilled wait in a graph", [&](Queue& q) { fulfilled.enqueue(q); }, "thalweg");
  node("a signal in a graph", [&](Queue& q) { nothing.enqueue(q); }, "thalweg");
  nothing.check();
  fulfilled.check();
}

void faces(Bench& bench) {
  for (const uint64_t n : {uint64_t{64}, uint64_t{128}, uint64_t{256}, uint64_t{384}}) {
    const DeviceMemory cube(bench.near(), n * n * n * 8), target(bench.far(), n * n * n * 8), back(bench.near(), n * n * 8);
    const auto queue = make_queue(bench.near());
    must(queue->admit(Use::kernel, target.at(), target.length()), "admitting");
    fill(bench.near(), cube.at(), cube.length());
    const uint64_t bytes = n * n * 8;
    const auto pitch = static_cast<int64_t>(n * 8);
    const Prepared gather(bench.near(), {copy_step(at(target.at()), rows(cube.at(), 8, pitch), bytes)});
    const Prepared strided(bench.near(), {copy_step(rows(target.at(), 8, pitch), rows(cube.at(), 8, pitch), bytes)});
    const Prepared local(bench.near(), {copy_step(at(back.at()), rows(cube.at(), 8, pitch), bytes)});
    const Prepared whole(bench.near(), {copy_step(at(target.at()), at(cube.at()), bytes)});
    const FloorKernel face(bench, bench.near(), "floor_face");
    uint64_t to = target.at(), from = cube.at(), count = n * n, one = 1, stride = n;
    const auto blocks = static_cast<unsigned>(std::min<uint64_t>(264, (count + 255) / 256));
    const auto floor = [&](uint64_t* to_stride, uint64_t* from_stride) {
      return repeated(
          bench,
          [&](Queue& q) {
            void* parameters[] = {&to, &from, &count, to_stride, from_stride};
            face.launch(q, blocks, 256, parameters);
          },
          50);
    };
    bench.table.add("face", "floor: to contiguous", n, floor(&one, &stride), "us");
    bench.table.add("face", "floor: to strided", n, floor(&stride, &stride), "us");
    const auto ours = [&](const char* name, const Prepared& program) {
      bench.table.add("face", name, n, repeated(bench, [&](Queue& q) { program.enqueue(q); }, 50), "us", "thalweg");
      program.check();
    };
    ours("to strided", strided);
    ours("to contiguous", gather);
    ours("to contiguous, local", local);
    expect_equal(bench.near(), back.at(), bench.far(), target.at(), bytes);  // two ways to the same bytes
    ours("the same bytes contiguous", whole);
    expect_equal(bench.near(), cube.at(), bench.far(), target.at(), bytes);
  }
}

/// 64 pieces of rows, and what they are together.
void chains(Bench& bench) {
  constexpr uint64_t kPieces = 64;
  for (const uint64_t piece : {uint64_t{1} << 10, uint64_t{4} << 10, uint64_t{16} << 10, uint64_t{64} << 10}) {
    const uint64_t row = std::min<uint64_t>(piece / 4, 2048), all = kPieces * piece;
    const DeviceMemory from(bench.near(), 2 * all), to(bench.far(), all), word(bench.far(), 64);
    const auto queue = make_queue(bench.near());
    must(queue->admit(Use::kernel, to.at(), all), "admitting");
    must(queue->admit(Use::kernel, word.at(), 64), "admitting");
    fill(bench.near(), from.at(), 2 * all);
    std::vector<Step> steps;
    std::vector<std::vector<uint32_t>> after(kPieces);
    for (uint64_t i = 0; i < kPieces; ++i)
      steps.push_back(
          copy_step(at(to.at() + i * piece), rows(from.at() + 2 * i * piece, row, static_cast<int64_t>(2 * row)), piece));
    steps.push_back(signal_step(word.at()));
    std::vector<uint32_t>& everything = after.emplace_back();
    for (uint32_t i = 0; i < kPieces; ++i) everything.push_back(i);
    const Prepared chain(bench.near(), steps, after);
    const Prepared whole(bench.near(), {copy_step(at(to.at()), at(from.at()), all, word.at() + 8)});
    const Prepared rectangle(
        bench.near(), {copy_step(at(to.at()), rows(from.at(), row, static_cast<int64_t>(2 * row)), all, word.at() + 16)});
    const auto timed = [&](const char* name, const Prepared& program) {
      bench.table.add("chain", name, all, repeated(bench, [&](Queue& q) { program.enqueue(q); }, 50), "us", "thalweg");
      program.check();
    };
    timed("the same bytes contiguous", whole);
    timed("one strided copy", rectangle);
    const DeviceMemory packed(bench.near(), all);
    const Prepared local(bench.near(), {copy_step(at(packed.at()), rows(from.at(), row, static_cast<int64_t>(2 * row)), all)});
    local.enqueue(*queue);
    must(queue->synchronize(), "packing");
    expect_equal(bench.near(), packed.at(), bench.far(), to.at(), all);
    fill(bench.near(), from.at(), 2 * all);
    timed("64 strided steps, one signal", chain);
    local.enqueue(*queue);
    must(queue->synchronize(), "packing");
    expect_equal(bench.near(), packed.at(), bench.far(), to.at(), all);
  }
}

}  // namespace thalweg::floors
