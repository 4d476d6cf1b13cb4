// SPDX-License-Identifier: Apache-2.0
// Rounds of two sides, captured and enqueued; repetitions on one.
#include <thread>

#include "prepared.hpp"

namespace thalweg::floors {
namespace {

std::unique_ptr<Graph> capture(Queue& queue, const Round& round, unsigned rounds) {
  std::unique_ptr<Graph> graph;
  must(queue.begin_capture(), "beginning a capture");
  for (unsigned i = 0; i < rounds; ++i) round(queue);
  must(queue.end_capture(&graph), "ending a capture");
  return graph;
}

}  // namespace

double captured(Bench& bench, const Round& near, const Round& far, unsigned rounds, unsigned hops) {
  const auto here = make_queue(bench.near()), there = make_queue(bench.far());
  const auto graph_here = capture(*here, near, rounds), graph_there = capture(*there, far, rounds);
  std::vector<double> taken;
  for (unsigned turn = 0; turn < bench.times(20) + 2; ++turn) {
    must(graph_there->launch(*there), "launching a graph");
    const double start = now_us();
    must(graph_here->launch(*here), "launching a graph");
    must(here->synchronize(), "waiting for a graph");
    must(there->synchronize(), "waiting for a graph");
    if (turn >= 2) taken.push_back((now_us() - start) / rounds / hops);
  }
  return median(taken);
}

double uncaptured(Bench& bench, const Round& near, const Round& far, unsigned rounds, unsigned hops, unsigned calls,
                  double* call) {
  const auto here = make_queue(bench.near()), there = make_queue(bench.far());
  std::vector<double> taken, called;
  for (unsigned turn = 0; turn < bench.times(10) + 1; ++turn) {
    std::string failed;
    std::thread other([&] {
      try {
        for (unsigned i = 0; i < rounds; ++i) far(*there);
      } catch (const std::exception& error) {
        failed = error.what();
      }
    });
    const double start = now_us();
    for (unsigned i = 0; i < rounds; ++i) near(*here);
    const double enqueued = now_us();
    other.join();
    if (!failed.empty()) give_up(failed);
    must(here->synchronize(), "waiting");
    must(there->synchronize(), "waiting");
    if (turn == 0) continue;
    taken.push_back((now_us() - start) / rounds / hops);
    called.push_back((enqueued - start) / rounds / calls);
  }
  *call = median(called);
  return median(taken);
}

double repeated(Bench& bench, const Round& work, unsigned times) {
  const auto queue = make_queue(bench.near());
  const auto graph = capture(*queue, work, times);
  std::vector<double> taken;
  for (unsigned turn = 0; turn < bench.times(20) + 2; ++turn) {
    const double start = now_us();
    must(graph->launch(*queue), "launching a graph");
    must(queue->synchronize(), "waiting for a graph");
    if (turn >= 2) taken.push_back((now_us() - start) / times);
  }
  return median(taken);
}

}  // namespace thalweg::floors
