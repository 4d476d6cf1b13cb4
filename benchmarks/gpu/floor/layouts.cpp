// SPDX-License-Identifier: Apache-2.0
// Faces of a cube of doubles by engine and by kernel; blocks chosen by index; copies between a GPU and pinned host memory.
#include <algorithm>
#include <numeric>
#include <random>

#include "bench.hpp"

namespace thalweg::floors {
namespace {

struct Idle {
  explicit Idle(Device& device) : queue(make_queue(device)), event(make_event(device)) {}
  double run(const std::function<Status()>& enqueue, double* host_us = nullptr) {
    const double start = now_us();
    must(enqueue(), "enqueuing");
    if (host_us != nullptr) *host_us = now_us() - start;
    must(queue->record(*event), "recording");
    wait_for(*event);
    return now_us() - start;
  }
  double stream(const std::function<Status()>& enqueue, unsigned count) {
    const double start = now_us();
    for (unsigned i = 0; i < count; ++i) must(enqueue(), "enqueuing");
    must(queue->record(*event), "recording");
    wait_for(*event);
    return (now_us() - start) / count;
  }
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Event> event;
};

/// What the face should have become, gathered by single 8-byte engine copies of rows: slow, so only some of them.
void check_face(Device& near, uint64_t from, Device& far, uint64_t to, const Copy& copy) {
  std::mt19937_64 rng(std::random_device{}());
  for (int i = 0; i < 20; ++i) {
    const uint64_t row = rng() % copy.rows;
    expect_equal(near, from + row * static_cast<uint64_t>(copy.from_row), far, to + row * copy.width, copy.width);
  }
}

}  // namespace

void faces(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  Idle push(near), pull(far);
  for (const uint64_t n : {uint64_t{128}, uint64_t{256}}) {
    const size_t cube = n * n * n * 8, face = n * n * 8;
    const Memory from(near, MemoryKind::device, cube), to(far, MemoryKind::device, face);
    must(push.queue->admit(Use::kernel, to.at(), face), "admitting");
    must(pull.queue->admit(Use::kernel, from.at(), cube), "admitting");
    fill(near, from.at(), cube);
    const auto row = static_cast<int64_t>(n * 8);
    const std::pair<const char*, Copy> shapes[] = {
        {"jk", {to.at(), from.at(), face}},
        {"ik", {to.at(), from.at(), n * 8, n, 1, row, row * static_cast<int64_t>(n)}},
        {"ij", {to.at(), from.at(), 8, n * n, 1, 8, row}}};
    for (const auto& [name, shape] : shapes) {
      const Copy& copy = shape;
      std::vector<Variant> ways;
      for (Idle* const side : {&push, &pull}) {
        const std::string what = std::string(name) + (side == &push ? ", push, " : ", pull, ");
        ways.push_back(
            {what + "engine, idle", [side, &copy] { return side->run([&] { return side->queue->copy(&copy, 1); }); }});
        ways.push_back({what + "engine, in stream",
                        [side, &copy] { return side->stream([&] { return side->queue->copy(&copy, 1); }, 20); }});
        for (const unsigned blocks : {16u, 64u, 128u, 264u}) {
          const auto launch = [side, &copy, blocks] { return side->queue->launch(CopyKernel{copy, {}, 0, blocks}); };
          const std::string kernel = what + std::to_string(blocks) + " blocks, ";
          ways.push_back({kernel + "idle", [side, launch] { return side->run(launch); }});
          ways.push_back({kernel + "in stream", [side, launch] { return side->stream(launch, 20); }});
        }
      }
      race(bench, "face", n, bench.times(100), ways);
      check_face(near, from.at(), far, to.at(), copy);
    }
  }
}

void blocks(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  const std::pair<size_t, size_t> sorts[] = {{4096, size_t{64} << 10}, {65536, size_t{4} << 10}};
  for (const auto& [count, size] : sorts) {
    const size_t all = count * size;
    const Memory from(near, MemoryKind::device, all), to(far, MemoryKind::device, all);
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(std::random_device{}()));
    std::vector<Copy> copies(count);
    for (size_t i = 0; i < count; ++i) copies[i] = {to.at() + i * size, from.at() + order[i] * size, size};
    for (const bool is_push : {true, false}) {
      fill(near, from.at(), all);
      Device& device = is_push ? near : far;
      const Memory pinned(device, MemoryKind::pinned, count * sizeof(BlockPair));
      const Memory own(device, MemoryKind::device, count * sizeof(BlockPair));
      for (size_t i = 0; i < count; ++i) reinterpret_cast<BlockPair*>(pinned.host())[i] = {copies[i].to, copies[i].from};
      Idle side(device);
      must(side.queue->admit(Use::kernel, is_push ? to.at() : from.at(), all), "admitting");
      const Copy list{own.at(), pinned.at(), own.length()};
      must(side.queue->copy(&list, 1), "copying the list");
      must(side.queue->synchronize(), "copying the list");
      double host_us = 0;
      std::vector<Variant> ways;
      const std::string prefix = is_push ? "push, " : "pull, ";
      for (const unsigned grid : {8u, 16u, 24u, 32u, 64u, 132u, 264u}) {
        for (const Memory* const where : {&pinned, &own}) {
          ways.push_back({prefix + std::to_string(grid) + " blocks, list " + (where == &pinned ? "pinned" : "on device"),
                          [&side, where, grid, n = count, length = size] {
                            return side.run(
                                [&] { return side.queue->launch(BlocksKernel{where->at(), n, length, {}, 0, grid}); });
                          }});
        }
      }
      ways.push_back({prefix + "engine, batched calls",
                      [&] { return side.run([&] { return side.queue->copy(copies.data(), copies.size()); }, &host_us); }});
      race(bench, "blocks", size, bench.times(10), ways, static_cast<double>(all));
      bench.table.add("blocks_host", prefix + "engine, batched calls", size, host_us * 1e3 / static_cast<double>(count), "ns");
      std::mt19937_64 rng(std::random_device{}());
      for (int i = 0; i < 50; ++i) {
        const size_t which = rng() % count;
        expect_equal(near, copies[which].from, far, copies[which].to, size);
      }
    }
  }
}

void host_copies(Bench& bench) {
  Device& near = bench.near();
  for (const size_t size : {size_t{8}, size_t{64} << 10, size_t{1} << 20, size_t{4} << 20, size_t{64} << 20}) {
    const Memory device(near, MemoryKind::device, size), host(near, MemoryKind::pinned, size);
    Idle side(near);
    fill(near, device.at(), size);
    std::vector<Variant> ways;
    const Copy down{host.at(), device.at(), size}, up{device.at(), host.at(), size};
    for (const Copy* const copy : {&down, &up}) {
      const std::string what = copy == &down ? "to pinned, " : "from pinned, ";
      ways.push_back({what + "engine", [&side, copy] { return side.run([&] { return side.queue->copy(copy, 1); }); }});
      for (const unsigned grid : {16u, 64u}) {
        ways.push_back({what + std::to_string(grid) + " blocks", [&side, copy, grid] {
                          return side.run([&] { return side.queue->launch(CopyKernel{*copy, {}, 0, grid}); });
                        }});
      }
    }
    race(bench, "host", size, bench.times(30), ways, static_cast<double>(size));
    expect_equal(near, host.at(), near, device.at(), size);
  }
}

}  // namespace thalweg::floors
