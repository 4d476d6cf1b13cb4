// SPDX-License-Identifier: Apache-2.0
// Devices, medians, verified payload.
#include "bench.hpp"

#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace thalweg::floors {

double now_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void give_up(const std::string& why) { throw std::runtime_error(why); }
void must(Status status, const char* what) {
  if (is_error(status)) give_up(std::string(what) + ": " + last_error());
}
void must_raw(cuda::CuResult result, const char* what) {
  if (result != cuda::result::success) give_up(std::string(what) + ": CUDA error " + std::to_string(result));
}

Memory::Memory(Device& device, MemoryKind kind, size_t length) : device_(device), length_(length) {
  must(device.allocate(kind, length, &address_), "allocating");
  if (kind == MemoryKind::pinned || kind == MemoryKind::managed) std::memset(host(), 0, length);
}
Memory::~Memory() { device_.free(address_); }

Bench::Bench() {
  must(cuda::load_driver(cuda::kDriverLibrary, &driver), "loading the driver");
  library = dlopen(cuda::kDriverLibrary, RTLD_NOW);
  backend = std::make_unique<cuda::CudaBackend>(driver);
  must(backend->devices(&devices), "finding GPUs");
  for (Device* const one : devices) must(one->load_kernels(), "loading kernels");
}
void* Bench::raw_symbol(const char* name) { return dlsym(library, name); }

cuda::CuContext Bench::context(Device& device) {
  cuda::CuContext context = nullptr;
  must(static_cast<cuda::CudaDevice&>(device).context(&context), "opening a context");
  return context;
}

std::unique_ptr<Queue> make_queue(Device& device) {
  std::unique_ptr<Queue> queue;
  must(device.make_queue(&queue), "making a queue");
  return queue;
}
std::unique_ptr<Event> make_event(Device& device) {
  std::unique_ptr<Event> event;
  must(device.make_event(&event), "making an event");
  return event;
}

namespace {

constexpr double kPatience = 3e6;  // microseconds

}  // namespace

void wait_for(Event& event) {
  const double end = now_us() + kPatience;
  for (unsigned turn = 1;; ++turn) {
    const Status status = event.query();
    if (status == TW_OK) return;
    must(status, "asking an event");
    if (turn % 1024 == 0 && now_us() > end) give_up("an event is not done after 3 s");
  }
}

void wait_for(const uint64_t* word, uint64_t value) {
  const double end = now_us() + kPatience;
  for (unsigned turn = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; ++turn) {
    if (turn % 4096 == 0 && now_us() > end) give_up("a word is not written after 3 s");
  }
}

void fill(Device& device, uint64_t address, size_t length) {
  const size_t piece = std::min<size_t>(length, size_t{16} << 20);
  const Memory source(device, MemoryKind::pinned, piece);
  std::mt19937_64 rng(std::random_device{}());
  for (size_t i = 0; i < piece; i += 8) {
    const uint64_t word = rng();
    std::memcpy(source.host() + i, &word, std::min<size_t>(8, piece - i));
  }
  const auto queue = make_queue(device);
  for (size_t at = 0, turn = 0; at < length; at += piece, ++turn) {
    source.word()[0] = turn ^ rng();  // no two pieces alike
    const Copy copy{address + at, source.at(), std::min(piece, length - at)};
    must(queue->copy(&copy, 1), "filling");
    must(queue->synchronize(), "filling");
  }
}

void expect_equal(Device& left_device, uint64_t left, Device& right_device, uint64_t right, size_t length) {
  const size_t piece = std::min<size_t>(length, size_t{64} << 20);
  const Memory first(left_device, MemoryKind::pinned, piece), second(left_device, MemoryKind::pinned, piece);
  const auto queue = make_queue(left_device), other = make_queue(right_device);
  for (size_t at = 0; at < length; at += piece) {
    const size_t n = std::min(piece, length - at);
    const Copy one{first.at(), left + at, n}, two{second.at(), right + at, n};
    must(queue->copy(&one, 1), "reading back");
    must(other->copy(&two, 1), "reading back");
    must(queue->synchronize(), "reading back");
    must(other->synchronize(), "reading back");
    if (std::memcmp(first.host(), second.host(), n) != 0) give_up("the payload is wrong");
  }
}

void race(Bench& bench, const std::string& test, uint64_t size, unsigned turns, const std::vector<Variant>& variants,
          double bytes) {
  std::vector<std::vector<double>> taken(variants.size());
  const unsigned warm = turns > 20 ? 5 : 1;
  for (unsigned turn = 0; turn < turns + warm; ++turn) {
    for (size_t i = 0; i < variants.size(); ++i) {
      const double value = variants[i].run();
      if (turn >= warm) taken[i].push_back(value);
    }
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    const double value = median(taken[i]);
    bench.table.add(test, variants[i].name, size, value, "us");
    if (bytes > 0) bench.table.add(test + "_bw", variants[i].name, size, bytes / value / 1e3, "GB/s");
  }
}

}  // namespace thalweg::floors
