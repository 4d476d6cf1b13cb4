// SPDX-License-Identifier: Apache-2.0
// One way between two devices by programs, beside kernels written for just that.
#include <memory>

#include "prepared.hpp"

namespace thalweg::floors {
namespace {

constexpr unsigned kRounds = 200;

/// As in floors.cu.
struct Hop {
  uint64_t to, from, bytes, round, mine, theirs, arrived;
};

/// What both sides of an exchange have.
struct Pair {
  Pair(Bench& bench, uint64_t size)
      : out{{bench.near(), size}, {bench.far(), size}},
        in{{bench.near(), size}, {bench.far(), size}},
        words{{bench.near(), 4096}, {bench.far(), 4096}},
        size(size) {
    const auto here = make_queue(bench.near()), there = make_queue(bench.far());
    for (const DeviceMemory* const one : {&in[1], &words[1]})
      must(here->admit(Use::kernel, one->at(), one->length()), "admitting");
    for (const DeviceMemory* const one : {&in[0], &words[0]})
      must(there->admit(Use::kernel, one->at(), one->length()), "admitting");
    renew(bench);
  }
  void renew(Bench& bench) {
    fill(bench.near(), out[0].at(), size);
    fill(bench.far(), out[1].at(), size);
  }
  void verify(Bench& bench) {
    expect_equal(bench.near(), out[0].at(), bench.far(), in[1].at(), size);
    expect_equal(bench.far(), out[1].at(), bench.near(), in[0].at(), size);
    renew(bench);
  }
  DeviceMemory out[2], in[2], words[2];
  const uint64_t size;
};

Device& device_of(Bench& bench, int side) { return side == 0 ? bench.near() : bench.far(); }

void floors_of(Bench& bench, uint64_t size, unsigned blocks, unsigned threads) {
  Pair pair(bench, size);
  Hop hop[2];
  std::unique_ptr<FloorKernel> put[2], wait[2], both[2];
  for (int side = 0; side < 2; ++side) {
    const uint64_t words = pair.words[side].at();
    hop[side] = {pair.in[1 - side].at(),    pair.out[side].at(), size, words + 1024, words,
                 pair.words[1 - side].at(), words + 2048};
    put[side] = std::make_unique<FloorKernel>(bench, device_of(bench, side), "floor_put");
    wait[side] = std::make_unique<FloorKernel>(bench, device_of(bench, side), "floor_wait");
    both[side] = std::make_unique<FloorKernel>(bench, device_of(bench, side), "floor_wait_put");
  }
  const auto launch = [&](const FloorKernel& kernel, int side, Queue& queue, unsigned b, unsigned t) {
    void* parameters[] = {&hop[side]};
    kernel.launch(queue, b, t, parameters);
  };
  const double two = captured(
      bench,
      [&](Queue& q) {
        launch(*put[0], 0, q, blocks, threads);
        launch(*wait[0], 0, q, 1, 32);
      },
      // The count advances in the waits: here before the put, so that the put says the round that is over.
      [&](Queue& q) { launch(*both[1], 1, q, blocks, threads); }, kRounds, 2);
  pair.verify(bench);
  bench.table.add("hop", "floor: put + signal, wait | one kernel a hop there", size, two, "us");
}

void programs_of(Bench& bench, uint64_t size) {
  Pair pair(bench, size);
  std::vector<std::unique_ptr<Prepared>> put, wait, both, first;
  for (int side = 0; side < 2; ++side) {
    Device& device = device_of(bench, side);
    const uint64_t mine = pair.words[side].at(), theirs = pair.words[1 - side].at();
    const Step copy = copy_step(at(pair.in[1 - side].at()), at(pair.out[side].at()), size, theirs);
    put.push_back(std::make_unique<Prepared>(device, std::vector{copy}));
    wait.push_back(std::make_unique<Prepared>(device, std::vector{wait_step(mine)}));
    const Step later = copy_step(at(pair.in[1 - side].at()), at(pair.out[side].at()), size, theirs + 64);
    first.push_back(std::make_unique<Prepared>(device, std::vector{later, wait_step(mine + 64)}));
    both.push_back(std::make_unique<Prepared>(device, std::vector{wait_step(mine + 64), later},
                                              std::vector<std::vector<uint32_t>>{{}, {0}}));
  }
  const auto apart = captured(
      bench, [&](Queue& q) { put[0]->enqueue(q), wait[0]->enqueue(q); },
      [&](Queue& q) { wait[1]->enqueue(q), put[1]->enqueue(q); }, kRounds, 2);
  pair.verify(bench);
  bench.table.add("hop", "put with signal, wait: two programs", size, apart, "us", "thalweg");
  const auto fused =
      captured(bench, [&](Queue& q) { first[0]->enqueue(q); }, [&](Queue& q) { both[1]->enqueue(q); }, kRounds, 2);
  pair.verify(bench);
  bench.table.add("hop", "wait and put with signal: one program", size, fused, "us", "thalweg");
  for (int side = 0; side < 2; ++side) put[side]->check(), wait[side]->check(), both[side]->check(), first[side]->check();
}

}  // namespace

void hops(Bench& bench) {
  for (const auto& [size, blocks] :
       {std::pair{uint64_t{8}, 1u}, {4096, 1}, {uint64_t{64} << 10, 16}, {uint64_t{256} << 10, 16}, {uint64_t{1} << 20, 32}}) {
    floors_of(bench, size, blocks, size == 8 ? 32 : 512);
    programs_of(bench, size);
  }
}

void channels(Bench& bench) {
  for (const uint64_t size : {uint64_t{8}, uint64_t{4096}, uint64_t{64} << 10, uint64_t{1} << 20}) {
    Pair pair(bench, size);
    Channel there(bench.near(), bench.far(), at(pair.in[1].at()), size),
        back(bench.far(), bench.near(), at(pair.in[0].at()), size);
    const Channel* const out[] = {&there, &back};
    std::vector<std::unique_ptr<Prepared>> send, receive, exchange;
    for (int side = 0; side < 2; ++side) {
      Device& device = device_of(bench, side);
      const Step sending = channel_step(StepKind::send, out[side]->send(), at(pair.out[side].at()), size);
      const Step posting = channel_step(StepKind::post, out[1 - side]->recv());
      const Step taking = channel_step(StepKind::take, out[1 - side]->recv());
      send.push_back(std::make_unique<Prepared>(device, std::vector{sending}));
      receive.push_back(std::make_unique<Prepared>(device, std::vector{posting, taking}));
      using After = std::vector<std::vector<uint32_t>>;
      exchange.push_back(std::make_unique<Prepared>(device, std::vector{posting, taking, sending},
                                                    side == 0 ? After{{}, {}, {}} : After{{}, {}, {1}}));
    }
    const Round near = [&](Queue& q) { send[0]->enqueue(q), receive[0]->enqueue(q); };
    const Round far = [&](Queue& q) { receive[1]->enqueue(q), send[1]->enqueue(q); };
    const double graph = captured(bench, near, far, kRounds, 2);
    pair.verify(bench);
    bench.table.add("channel", "captured: send, receive: two programs", size, graph, "us", "thalweg");
    const double one =
        captured(bench, [&](Queue& q) { exchange[0]->enqueue(q); }, [&](Queue& q) { exchange[1]->enqueue(q); }, kRounds, 2);
    pair.verify(bench);
    bench.table.add("channel", "captured: receive and send: one program", size, one, "us", "thalweg");
    double call = 0;
    const double loose = uncaptured(bench, near, far, kRounds, 2, 2, &call);
    pair.verify(bench);
    bench.table.add("channel", "uncaptured", size, loose, "us", "thalweg");
    bench.table.add("channel_call", "host time a call", size, call, "us", "thalweg");
    for (int side = 0; side < 2; ++side) send[side]->check(), receive[side]->check(), exchange[side]->check();
  }
}

}  // namespace thalweg::floors
