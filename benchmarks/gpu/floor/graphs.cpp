// SPDX-License-Identifier: Apache-2.0
// The library's work in a captured graph: what it costs, whether it is right; and whether our calls leave another thread's
// capture alone.
#include <thread>

#include "bench.hpp"
#include "devices/cuda/current.hpp"

namespace thalweg::floors {
namespace {

using Graph = struct GraphObject*;
using GraphExec = struct GraphExecObject*;

struct GraphApi {
  explicit GraphApi(Bench& bench)
      : begin(bench.symbol<int(cuda::CuStream, unsigned)>("cuStreamBeginCapture_v2")),
        end(bench.symbol<int(cuda::CuStream, Graph*)>("cuStreamEndCapture")),
        instantiate(bench.symbol<int(GraphExec*, Graph, unsigned long long)>("cuGraphInstantiateWithFlags")),
        launch(bench.symbol<int(GraphExec, cuda::CuStream)>("cuGraphLaunch")),
        destroy(bench.symbol<int(GraphExec)>("cuGraphExecDestroy")) {}
  int (*begin)(cuda::CuStream, unsigned);
  int (*end)(cuda::CuStream, Graph*);
  int (*instantiate)(GraphExec*, Graph, unsigned long long);
  int (*launch)(GraphExec, cuda::CuStream);
  int (*destroy)(GraphExec);
};

constexpr size_t kLength = size_t{256} << 10;
constexpr unsigned kGlobalMode = 0, kReplays = 50;

cuda::CuStream stream_of(Queue& queue) { return static_cast<cuda::CuStream>(queue.native()); }

double replay(Bench& bench, const GraphApi& api, Queue& capture, Queue& run, unsigned pieces,
              const std::function<void()>& enqueue) {
  must_raw(api.begin(stream_of(capture), cuda::kCaptureModeRelaxed), "beginning a capture");
  Graph graph = nullptr;
  GraphExec ready = nullptr;
  try {
    for (unsigned i = 0; i < pieces; ++i) enqueue();
  } catch (const std::exception&) {
    api.end(stream_of(capture), &graph);
    throw;
  }
  must_raw(api.end(stream_of(capture), &graph), "ending a capture");
  must_raw(api.instantiate(&ready, graph, 0), "making a graph");
  std::vector<double> taken;
  for (unsigned i = 0; i < bench.times(kReplays); ++i) {
    const double start = now_us();
    must_raw(api.launch(ready, stream_of(run)), "launching a graph");
    must(run.synchronize(), "waiting for a graph");
    taken.push_back((now_us() - start) / pieces);
  }
  must_raw(api.destroy(ready), "destroying a graph");
  return median(taken);
}

/// A thread captures in the strictest mode while another uses the library as a worker would.
void bystander(Bench& bench, const GraphApi& api, Device& near, const Memory& from, const Memory& to) {
  const auto captured = make_queue(near), queue = make_queue(near);
  const auto event = make_event(near);
  const Memory word(near, MemoryKind::pinned, 8), later(near, MemoryKind::device, 4096);
  must_raw(api.begin(stream_of(*captured), kGlobalMode), "beginning a capture");
  must(captured->launch(CopyKernel{{to.at(), from.at(), 4096}, {}}), "capturing");
  std::string failed;
  std::thread([&] {
    try {
      const Copy copy{to.at(), from.at(), 4096};
      must(queue->copy(&copy, 1), "copy");
      must(queue->write_value(word.at(), 1, false), "write_value");
      must(queue->wait_geq(word.at(), 1), "wait_geq");
      must(queue->launch(CopyKernel{copy, {}}), "launch");
      must(queue->record(*event), "record");
      must(queue->wait_event(*event), "wait_event");
      wait_for(*event);
      must(queue->query(), "query");
      must(queue->synchronize(), "synchronize");
      const Memory fresh(near, MemoryKind::device, 4096);
      must(queue->admit(Use::kernel, fresh.at(), 4096), "admit");
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }).join();
  Graph graph = nullptr;
  const int result = api.end(stream_of(*captured), &graph);
  bench.table.note("another thread's capture beside our calls: " +
                   (result == 0 ? std::string("whole") : "spoilt, CUDA error " + std::to_string(result)) +
                   (failed.empty() ? "; our calls: all accepted" : "; our call failed: " + failed));
}

}  // namespace

void graphs(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  const cuda::Current current(bench.driver, bench.context(near));  // the driver makes a graph in the current context
  must(current.status(), "making a context current");
  const GraphApi api(bench);
  const auto capture = make_queue(near), run = make_queue(near);
  const Memory from(near, MemoryKind::device, kLength), to(far, MemoryKind::device, kLength);
  const Memory count(near, MemoryKind::pinned, 4096), list(near, MemoryKind::pinned, 64 * sizeof(BlockPair));
  const Memory word(near, MemoryKind::device, 8);
  must(capture->admit(Use::kernel, to.at(), kLength), "admitting");
  for (size_t i = 0; i < 64; ++i)
    reinterpret_cast<BlockPair*>(list.host())[i] = {to.at() + i * (kLength / 64), from.at() + (63 - i) * (kLength / 64)};
  const Copy copy{to.at(), from.at(), kLength}, small{to.at(), from.at(), 8};
  const struct {
    const char* name;
    std::function<void()> enqueue;
    unsigned signals;
  } pieces[] = {
      {"engine copy 8 B", [&] { must(capture->copy(&small, 1), "capturing"); }, 0},
      {"engine copy 256 KiB", [&] { must(capture->copy(&copy, 1), "capturing"); }, 0},
      {"engine copy 8 B + written word",
       [&] { must(capture->copy(&small, 1), "c"), must(capture->write_value(count.at() + 64, 1, false), "c"); }, 0},
      {"copy kernel 8 B with signal", [&] { must(capture->launch(CopyKernel{small, {count.at(), 1, true}}), "capturing"); }, 1},
      {"copy kernel 256 KiB with signal (two launches)",
       [&] { must(capture->launch(CopyKernel{copy, {count.at(), 1, true}}), "capturing"); }, 1},
      {"blocks kernel 64 x 4 KiB", [&] { must(capture->launch(BlocksKernel{list.at(), 64, kLength / 64, {}}), "capturing"); },
       0},
      {"atomic kernel", [&] { must(capture->launch(AtomicKernel{word.at(), 1}), "capturing"); }, 0},
  };
  uint64_t expected = 0;
  for (const auto& one : pieces) {
    fill(near, from.at(), kLength);
    try {
      for (const unsigned times : {1u, 20u}) {
        const double each = replay(bench, api, *capture, *run, times, one.enqueue);
        bench.table.add("graph", std::string(one.name) + ", " + std::to_string(times) + " in a graph, each", 0, each, "us");
      }
    } catch (const std::exception& error) {
      bench.table.note(std::string("cannot be captured: ") + one.name + ": " + error.what());
      continue;
    }
    expected += uint64_t{one.signals} * 21 * bench.times(kReplays);
    if (*count.word() != expected) give_up(std::string("signals went astray in a graph: ") + one.name);
    if (std::string(one.name).find("256 KiB") != std::string::npos) expect_equal(near, from.at(), far, to.at(), kLength);
  }
  bystander(bench, api, near, from, to);
}

}  // namespace thalweg::floors
