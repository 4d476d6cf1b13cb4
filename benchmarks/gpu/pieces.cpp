// SPDX-License-Identifier: Apache-2.0
// Plans of two steps, of which the second one reads what the first one writes, whole and by pieces (decision 0035): a local copy with a
// put to another place, and a get from there with a reduction. Two contexts of this process; each plan is verified first.
//   usage: thalweg-gpu-pieces [PLACE] [OTHER] [TRANSPORTS] [MOST_MIB]   (cuda:0, cuda:1, shm, 256)
// A line of JSON for each size and chunk_bytes (0: chosen; -1: whole); whole and by pieces take turns. us: the least and the median of 9
// times of one run, in a row of 10.
#include <thalweg/plans.h>
#include <thalweg/thalweg.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t kWhole = ~uint64_t{0}, kLong = 20'000'000'000;
constexpr int kTimes = 9, kRow = 10;

void must(tw_status s, const char* what) {
  if (s >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, tw_status_name(s), tw_last_error());
  std::_Exit(1);
}

struct Side {
  tw_context* context = nullptr;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  explicit Side(const char* transports) {
    tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
    options.job_key = "thalweg-gpu-pieces-job-key-of-32b";
    options.job_key_length = 32;
    options.transports = transports;
    must(tw_context_create(&options, &context), "tw_context_create");
    must(tw_worker_create(context, nullptr, &worker), "tw_worker_create");
  }
  void connect(const Side& to) {
    unsigned char address[4096];
    size_t length = sizeof address;
    must(tw_worker_address(to.worker, address, &length), "tw_worker_address");
    must(tw_connect(worker, address, length, nullptr, &endpoint), "tw_connect");
  }
  unsigned char* memory(const char* place, size_t length, tw_memory** out) const {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place;
    must(tw_memory_allocate(context, length, &options, out), "tw_memory_allocate");
    return static_cast<unsigned char*>(tw_memory_address(*out));
  }
};

std::vector<uint32_t> random_words(size_t bytes) {
  static std::mt19937 random(std::random_device{}());
  std::vector<uint32_t> words(bytes / sizeof(uint32_t));
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

class Bench {
 public:
  Bench(const char* place, const char* other, const char* transports, size_t most)
      : place_(place), a_(transports), b_(transports) {
    a_.connect(b_);
    b_.connect(a_);
    progress_ = std::thread([this] {
      while (!over_) tw_worker_progress(b_.worker);
    });
    must(tw_endpoint_wait(a_.endpoint, kLong), "tw_endpoint_wait");
    for (unsigned char** each : {&from_, &between_, &out_}) *each = a_.memory(place, most, &memory_);
    there_ = b_.memory(other, most, &memory_);
    unsigned char key[4096];
    size_t size = sizeof key;
    must(tw_memory_export_range(memory_, 0, most, 0, key, &size), "tw_memory_export_range");
    must(tw_memory_import(a_.endpoint, key, size, &remote_), "tw_memory_import");
    must(tw_queue_create(a_.context, place, nullptr, &queue_), "tw_queue_create");
  }
  ~Bench() {
    over_ = true;
    progress_.join();
  }

  void measure(const char* name, size_t bytes, uint64_t chunk) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = place_;
    options.chunk_bytes = chunk;
    tw_plan* plan = nullptr;
    must(tw_plan_create(a_.context, &options, &plan), "tw_plan_create");
    const bool puts = std::strcmp(name, "copy_put") == 0;
    add(plan, puts, bytes);
    must(tw_plan_prepare(plan, kLong), "tw_plan_prepare");
    verify(plan, puts, bytes);
    std::vector<double> us;
    for (int i = 0; i < kTimes; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < kRow; ++k) must(tw_plan_trigger(plan, queue_), "tw_plan_trigger");
      must(tw_queue_synchronize(queue_), "tw_queue_synchronize");
      us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kRow);
    }
    std::sort(us.begin(), us.end());
    std::printf("{\"plan\": \"%s\", \"bytes\": %zu, \"chunk_bytes\": %lld, \"us_least\": %.2f, \"us_median\": %.2f}\n", name,
                bytes, static_cast<long long>(chunk), us.front(), us[kTimes / 2]);
    std::fflush(stdout);
    must(tw_plan_destroy(plan), "tw_plan_destroy");
  }

 private:
  void add(tw_plan* plan, bool puts, size_t bytes) {
    uint32_t first = 0;
    tw_op_options after = TW_OP_OPTIONS_INIT;
    after.after_steps = &first;
    after.after_count = 1;
    if (puts) {
      must(tw_plan_copy(plan, between_, from_, bytes, nullptr, &first), "tw_plan_copy");
      return must(tw_plan_put(plan, a_.endpoint, between_, bytes, remote_, 0, &after, nullptr), "tw_plan_put");
    }
    must(tw_plan_get(plan, a_.endpoint, between_, bytes, remote_, 0, nullptr, &first), "tw_plan_get");
    const tw_source sources[] = {{from_, nullptr, 0}, {between_, nullptr, 0}};
    must(tw_plan_reduce(plan, out_, sources, 2, bytes / sizeof(uint32_t), TW_TYPE_INT32, TW_REDUCE_SUM, &after, nullptr),
         "tw_plan_reduce");
  }

  void verify(tw_plan* plan, bool puts, size_t bytes) {
    const std::vector<uint32_t> here = random_words(bytes), there = random_words(bytes);
    must(tw_memory_copy(a_.context, from_, here.data(), bytes), "tw_memory_copy");
    must(tw_memory_copy(b_.context, there_, there.data(), bytes), "tw_memory_copy");
    must(tw_plan_trigger(plan, queue_), "tw_plan_trigger");
    must(tw_queue_synchronize(queue_), "tw_queue_synchronize");
    std::vector<uint32_t> got(here.size());
    must(tw_memory_copy(a_.context, got.data(), puts ? there_ : out_, bytes), "tw_memory_copy");
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == here[i] + (puts ? 0 : there[i])) continue;
      std::fprintf(stderr, "word %zu of %zu is wrong\n", i, got.size());
      std::_Exit(1);
    }
  }

  const char* const place_;
  Side a_, b_;
  std::thread progress_;
  std::atomic<bool> over_{false};
  unsigned char *from_ = nullptr, *between_ = nullptr, *out_ = nullptr, *there_ = nullptr;
  tw_memory* memory_ = nullptr;
  tw_remote_memory* remote_ = nullptr;
  tw_queue* queue_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) { return argc > i ? argv[i] : otherwise; };
  const size_t most = std::strtoull(argument(4, "256"), nullptr, 10) << 20;
  {
    Bench bench(argument(1, "cuda:0"), argument(2, "cuda:1"), argument(3, "shm"), most);
    for (const char* const name : {"copy_put", "get_reduce"}) {
      for (size_t bytes = 1 << 20; bytes <= most; bytes *= 4) {
        for (const uint64_t chunk :
             {kWhole, uint64_t{0}, kWhole, uint64_t{bytes / 2}, uint64_t{bytes / 4}, uint64_t{bytes / 16}})
          bench.measure(name, bytes, chunk);
      }
    }
  }
  std::_Exit(0);  // the system takes the rest back
}
