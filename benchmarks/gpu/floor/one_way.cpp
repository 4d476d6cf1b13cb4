// SPDX-License-Identifier: Apache-2.0
// One copy on idle queues, from the enqueue until the host knows that it is done; by every way of learning it.
#include "bench.hpp"
#include "persistent.hpp"

namespace thalweg::floors {
namespace {

/// Everything that one way of copying needs, on the device whose queue does it.
struct Way {
  Way(Bench& bench, Device& device)
      : queue(make_queue(device)),
        event(make_event(device)),
        word(device, MemoryKind::pinned, 4096),
        dtod(bench.symbol<int(uint64_t, uint64_t, size_t, cuda::CuStream)>("cuMemcpyDtoDAsync_v2")) {}
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Event> event;
  Memory word;
  uint64_t written = 0;
  int (*dtod)(uint64_t, uint64_t, size_t, cuda::CuStream);
};

void add_ways(Bench& bench, Way& way, const std::string& prefix, const Copy& copy, std::vector<Variant>* out) {
  const auto& raw = bench.driver;
  const auto stream = static_cast<cuda::CuStream>(way.queue->native());
  const auto event = static_cast<cuda::CuEvent>(way.event->native());
  out->push_back({prefix + "raw DtoD, cuStreamQuery", [&raw, &way, copy, stream] {
                    const double start = now_us();
                    way.dtod(copy.to, copy.from, copy.width, stream);
                    while (raw.StreamQuery(stream) == cuda::result::not_ready) {
                    }
                    return now_us() - start;
                  }});
  out->push_back({prefix + "raw DtoD, event", [&raw, &way, copy, stream, event] {
                    const double start = now_us();
                    way.dtod(copy.to, copy.from, copy.width, stream);
                    raw.EventRecord(event, stream);
                    while (raw.EventQuery(event) == cuda::result::not_ready) {
                    }
                    return now_us() - start;
                  }});
  out->push_back({prefix + "library copy, event", [&way, copy] {
                    const double start = now_us();
                    way.queue->copy(&copy, 1);
                    way.queue->record(*way.event);
                    wait_for(*way.event);
                    return now_us() - start;
                  }});
  out->push_back({prefix + "library copy, pinned word", [&way, copy] {
                    const double start = now_us();
                    way.queue->copy(&copy, 1);
                    way.queue->write_value(way.word.at(), ++way.written, false);
                    wait_for(way.word.word(), way.written);
                    return now_us() - start;
                  }});
  for (const unsigned blocks : {1u, 16u, 32u, 64u}) {
    if (blocks > 1 && copy.width < (blocks << 11)) continue;
    out->push_back({prefix + "library kernel of " + std::to_string(blocks) + " blocks, pinned word", [&way, copy, blocks] {
                      const double start = now_us();
                      must(way.queue->launch(CopyKernel{copy, {way.word.at(), ++way.written, false}, 0, blocks}), "launching");
                      wait_for(way.word.word(), way.written);
                      return now_us() - start;
                    }});
  }
}

}  // namespace

void one_way(Bench& bench) {
  Device &near = bench.near(), &far = bench.far();
  const size_t largest = size_t{256} << 20;
  const Memory from(near, MemoryKind::device, largest), to(far, MemoryKind::device, largest);
  Way push(bench, near), pull(bench, far);
  must(push.queue->admit(Use::kernel, to.at(), largest), "admitting");
  must(pull.queue->admit(Use::kernel, from.at(), largest), "admitting");
  cuda::CuContext popped = nullptr;
  for (const size_t size : {size_t{8}, size_t{512}, size_t{4} << 10, size_t{64} << 10, size_t{256} << 10, size_t{512} << 10,
                            size_t{1} << 20, size_t{16} << 20, largest}) {
    fill(near, from.at(), size);
    fill(far, to.at(), size);
    const Copy copy{to.at(), from.at(), size};
    const unsigned turns = bench.times(size <= (size_t{1} << 20) ? 400 : size < largest ? 60 : 10);
    for (const bool is_push : {true, false}) {
      Device& device = is_push ? near : far;
      must_raw(bench.driver.CtxPushCurrent(bench.context(device)), "pushing");  // as in a worker of a CUDA program
      std::vector<Variant> ways;
      add_ways(bench, is_push ? push : pull, is_push ? "push, " : "pull, ", copy, &ways);
      std::unique_ptr<PersistentCopier> persistent;  // for no longer than needed: frees wait behind it
      if (size <= (size_t{64} << 10)) {
        persistent = std::make_unique<PersistentCopier>(bench, device);
        ways.push_back({is_push ? "push, persistent kernel" : "pull, persistent kernel", [&persistent, copy] {
                          const double start = now_us();
                          persistent->copy(copy.to, copy.from, copy.width);
                          return now_us() - start;
                        }});
      }
      race(bench, "one_way", size, turns, ways, static_cast<double>(size));
      must_raw(bench.driver.CtxPopCurrent(&popped), "popping");
    }
    expect_equal(near, from.at(), far, to.at(), size);
  }
}

}  // namespace thalweg::floors
