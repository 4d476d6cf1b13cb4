// SPDX-License-Identifier: Apache-2.0
// What calls cost the host: asking what a pointer is, enqueuing, asking an event.
#include <numeric>

#include "bench.hpp"

namespace thalweg::floors {
namespace {

constexpr unsigned kLoops = 20000;

/// Nanoseconds of one call, median of rounds.
double cost_ns(Bench& bench, const std::function<void()>& call) {
  std::vector<double> taken;
  const unsigned loops = bench.times(kLoops);
  for (int round = 0; round < 9; ++round) {
    const double start = now_us();
    for (unsigned i = 0; i < loops; ++i) call();
    taken.push_back((now_us() - start) * 1e3 / loops);
  }
  return median(taken);
}

/// The same where each call enqueues: a few at a time, the queue empty before.
double enqueue_ns(Bench& bench, Queue& queue, const std::function<void()>& call) {
  std::vector<double> taken;
  for (unsigned round = 0; round < bench.times(300); ++round) {
    const double start = now_us();
    call();
    taken.push_back((now_us() - start) * 1e3);
    must(queue.synchronize(), "waiting");
  }
  return median(taken);
}

void raw_questions(Bench& bench, const char* kind, uint64_t address) {
  unsigned type = 0, managed = 0, legacy = 0;
  int ordinal = 0;
  uint64_t id = 0, base = 0, length = 0, types = 0, context = 0, pool = 0;
  using cuda::PointerAttribute;
  struct One {
    const char* name;
    PointerAttribute attribute;
    void* data;
  } all[] = {{"type", cuda::kMemoryType, &type},          {"managed", cuda::kIsManaged, &managed},
             {"ordinal", cuda::kDeviceOrdinal, &ordinal}, {"buffer_id", cuda::kBufferId, &id},
             {"range_start", cuda::kRangeStart, &base},   {"range_size", cuda::kRangeSize, &length},
             {"context", cuda::kContext, &context},       {"pool", cuda::kPool, &pool},
             {"legacy_ipc", cuda::kLegacyIpc, &legacy},   {"handle_types", cuda::kHandleTypes, &types}};
  unsigned attributes[std::size(all)];
  void* data[std::size(all)];
  for (size_t i = 0; i < std::size(all); ++i) {
    attributes[i] = all[i].attribute;
    data[i] = all[i].data;
  }
  const auto ask = [&](unsigned first, unsigned count) {
    return cost_ns(bench,
                   [&, first, count] { bench.driver.PointerGetAttributes(count, attributes + first, data + first, address); });
  };
  for (const unsigned count : {4u, 6u, 8u, 10u})
    bench.table.add("question", std::string("raw ") + std::to_string(count) + " attributes, " + kind, 0, ask(0, count), "ns");
  for (unsigned i = 0; i < std::size(all); ++i)
    bench.table.add("question", std::string("raw ") + all[i].name + ", " + kind, 0, ask(i, 1), "ns");
}

}  // namespace

void identify_costs(Bench& bench) {
  const std::pair<const char*, MemoryKind> kinds[] = {{"device", MemoryKind::device},
                                                      {"pinned", MemoryKind::pinned},
                                                      {"managed", MemoryKind::managed},
                                                      {"pool", MemoryKind::pool},
                                                      {"vmm", MemoryKind::vmm}};
  BufferInfo info;
  for (const auto& [name, kind] : kinds) {
    const Memory memory(bench.near(), kind, 1 << 20);
    must(bench.backend->identify(memory.at() + 12345, &info), "identifying");
    bench.table.add("identify", name, 0, cost_ns(bench, [&] { bench.backend->identify(memory.at() + 12345, &info); }), "ns");
    if (kind == MemoryKind::device || kind == MemoryKind::vmm) raw_questions(bench, name, memory.at() + 12345);
  }
  const std::vector<std::byte> pageable(1 << 20);
  const auto address = reinterpret_cast<uintptr_t>(pageable.data());
  bench.table.add("identify", "pageable", 0, cost_ns(bench, [&] { bench.backend->identify(address, &info); }), "ns");
  raw_questions(bench, "pageable", address);
}

void call_costs(Bench& bench) {
  Device& near = bench.near();
  const Memory from(near, MemoryKind::device, 4096), to(bench.far(), MemoryKind::device, 4096);
  const Memory word(near, MemoryKind::pinned, 4096);
  const auto queue = make_queue(near);
  const auto event = make_event(near);
  must(queue->admit(Use::kernel, to.at(), to.length()), "admitting");
  const auto stream = static_cast<cuda::CuStream>(queue->native());
  const auto native_event = static_cast<cuda::CuEvent>(event->native());
  const cuda::CuContext context = bench.context(near);
  auto* const dtod = bench.symbol<int(uint64_t, uint64_t, size_t, cuda::CuStream)>("cuMemcpyDtoDAsync_v2");
  const Copy copy{to.at(), from.at(), 8};
  const CopyKernel kernel{copy, {}};
  const CopyKernel signalled{copy, {word.at(), 1, false}};
  const auto& raw = bench.driver;
  cuda::CuContext popped = nullptr;
  for (const bool current : {true, false}) {
    if (current) must_raw(raw.CtxPushCurrent(context), "pushing");
    const std::string where = current ? "" : ", no context current";
    const auto enqueue = [&](const char* name, const std::function<void()>& call) {
      bench.table.add("call", name + where, 8, enqueue_ns(bench, *queue, call), "ns");
    };
    enqueue("library copy", [&] { queue->copy(&copy, 1); });
    enqueue("library copy + record", [&] { queue->copy(&copy, 1), queue->record(*event); });
    enqueue("library record", [&] { queue->record(*event); });
    enqueue("library write_value to pinned", [&] { queue->write_value(word.at(), 1, false); });
    enqueue("library copy kernel", [&] { queue->launch(kernel); });
    enqueue("library copy kernel with signal", [&] { queue->launch(signalled); });
    bench.table.add("call", "library event query, done" + where, 0, cost_ns(bench, [&] { event->query(); }), "ns");
    bench.table.add("call", "library queue query, idle" + where, 0, cost_ns(bench, [&] { queue->query(); }), "ns");
    if (!current) continue;
    enqueue("raw cuMemcpyDtoDAsync", [&] { dtod(to.at(), from.at(), 8, stream); });
    enqueue("raw cuMemcpyAsync", [&] { raw.MemcpyAsync(to.at(), from.at(), 8, stream); });
    enqueue("raw cuMemcpyAsync + cuEventRecord",
            [&] { raw.MemcpyAsync(to.at(), from.at(), 8, stream), raw.EventRecord(native_event, stream); });
    enqueue("raw cuEventRecord", [&] { raw.EventRecord(native_event, stream); });
    enqueue("raw cuStreamWriteValue64 to pinned", [&] { raw.StreamWriteValue64(stream, word.at(), 1, 0); });
    cuda::CuContext now = nullptr;
    unsigned mode = cuda::kCaptureModeRelaxed;
    bench.table.add("call", "raw cuEventQuery, done", 0, cost_ns(bench, [&] { raw.EventQuery(native_event); }), "ns");
    bench.table.add("call", "raw cuStreamQuery, idle", 0, cost_ns(bench, [&] { raw.StreamQuery(stream); }), "ns");
    bench.table.add("call", "raw cuCtxGetCurrent", 0, cost_ns(bench, [&] { raw.CtxGetCurrent(&now); }), "ns");
    bench.table.add("call", "raw cuCtxPushCurrent + pop", 0,
                    cost_ns(bench, [&] { raw.CtxPushCurrent(context), raw.CtxPopCurrent(&popped); }), "ns");
    bench.table.add(
        "call", "raw capture mode, twice", 0,
        cost_ns(bench, [&] { raw.ThreadExchangeStreamCaptureMode(&mode), raw.ThreadExchangeStreamCaptureMode(&mode); }), "ns");
    must_raw(raw.CtxPopCurrent(&popped), "popping");
  }
}

}  // namespace thalweg::floors
