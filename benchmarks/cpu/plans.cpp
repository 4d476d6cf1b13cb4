// SPDX-License-Identifier: Apache-2.0
// What a plan that the host runs costs beside the same messages by hand: two processes on two cores.
//
//   one_way   a message there and one back, half of the round trip: tw_send and tw_recv, or one plan of both
//   halo      two strided faces sent and two received, as in the README, cut along the fastest dimension of 32 x 32 x 34 doubles
//
// Prints lines "TEST,MEMORY,BYTES,WAY,microseconds": medians of batches, the ways in turns. Every face and message is checked.
//   usage: thalweg-plans [shm|tcp] [BATCHES]
#include <thalweg/plans.h>

#include <random>
#include <string>

#include "pair.hpp"

namespace {

using namespace bench;

constexpr unsigned kBatch = 50;  // rounds

/// `bytes` at a place; "ordinary": malloc's.
class Buffer {
 public:
  Buffer(tw_context* context, const std::string& kind, size_t bytes) : bytes_(bytes) {
    if (kind == "ordinary") {
      address_ = static_cast<unsigned char*>(std::calloc(1, bytes));
    } else {
      must(tw_memory_allocate(context, bytes, nullptr, &memory_), "tw_memory_allocate");
      address_ = static_cast<unsigned char*>(tw_memory_address(memory_));
    }
  }
  ~Buffer() {
    if (memory_ == nullptr)
      std::free(address_);
    else
      must(tw_memory_release(memory_), "tw_memory_release");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  unsigned char* address() const { return address_; }
  void fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < bytes_; ++i) address_[i] = static_cast<unsigned char>(random());
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  unsigned char* address_ = nullptr;
  tw_memory* memory_ = nullptr;
};

/// What one process does in a round, by hand or by a plan.
struct Way {
  virtual ~Way() = default;
  virtual void round() = 0;
};

struct Transfer {
  unsigned char* buffer;
  size_t bytes;
  const tw_layout* layout;
  uint64_t tag;
};

/// `first`, then `second`: of a ping-pong the answer; of a halo both at once.
class ByHand final : public Way {
 public:
  ByHand(Connected& at, std::vector<Transfer> receives, std::vector<Transfer> sends, bool answers)
      : at_(at), receives_(std::move(receives)), sends_(std::move(sends)), answers_(answers), requests_(8) {}
  void round() override {
    size_t posted = 0;
    for (const Transfer& one : receives_) {
      const tw_op_options options = of(one);
      must(tw_recv(at_.worker, one.buffer, one.layout != nullptr ? 0 : one.bytes, one.tag, UINT64_MAX, &options,
                   &requests_[posted++]),
           "tw_recv");
    }
    if (answers_) wait(posted);
    for (const Transfer& one : sends_) {
      const tw_op_options options = of(one);
      must(tw_send(at_.endpoint, one.buffer, one.layout != nullptr ? 0 : one.bytes, one.tag, &options, &requests_[posted++]),
           "tw_send");
    }
    wait(posted);
  }

 private:
  static tw_op_options of(const Transfer& one) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.layout = one.layout;
    return options;
  }
  void wait(size_t posted) {
    for (size_t i = 0; i < posted; ++i) {
      if (requests_[i] != TW_REQUEST_NONE) must(tw_request_finish(requests_[i]), "tw_request_finish");
      requests_[i] = TW_REQUEST_NONE;
    }
  }
  Connected& at_;
  std::vector<Transfer> receives_, sends_;
  bool answers_;
  std::vector<tw_request> requests_;
};

class ByPlan final : public Way {
 public:
  ByPlan(Connected& at, const std::vector<Transfer>& receives, const std::vector<Transfer>& sends, bool answers) {
    must(tw_plan_create(at.context, nullptr, &plan_), "tw_plan_create");
    std::vector<uint32_t> before;
    for (const Transfer& one : receives) {
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.layout = one.layout;
      before.push_back(0);
      must(tw_plan_recv(plan_, at.endpoint, one.buffer, one.layout != nullptr ? 0 : one.bytes, one.tag, &options,
                        &before.back()),
           "tw_plan_recv");
    }
    for (const Transfer& one : sends) {
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.layout = one.layout;
      options.after_steps = before.data();
      options.after_count = answers ? before.size() : 0;
      must(tw_plan_send(plan_, at.endpoint, one.buffer, one.layout != nullptr ? 0 : one.bytes, one.tag, &options, nullptr),
           "tw_plan_send");
    }
    must(tw_plan_prepare(plan_, kLong), "tw_plan_prepare");
  }
  ~ByPlan() override { must(tw_plan_destroy(plan_), "tw_plan_destroy"); }
  void round() override { must(tw_plan_run(plan_, kLong), "tw_plan_run"); }

 private:
  tw_plan* plan_ = nullptr;
};

struct Test {
  Connected& at;
  const Processes& both;
  unsigned batches;

  /// Microseconds of a round, of each way, which take turns.
  std::vector<double> time(const std::vector<Way*>& ways) const {
    std::vector<std::vector<double>> each(ways.size());
    for (unsigned batch = 0; batch <= batches; ++batch) {
      for (size_t way = 0; way < ways.size(); ++way) {
        both.pipe.meet();
        const uint64_t begin = now_ns();
        for (unsigned i = 0; i < kBatch; ++i) ways[way]->round();
        const double us = static_cast<double>(now_ns() - begin) / 1e3 / kBatch;
        if (batch != 0) each[way].push_back(us);  // the first one warms up
      }
    }
    std::vector<double> medians;
    for (const auto& one : each) medians.push_back(median(one));
    return medians;
  }

  void say(const char* test, const std::string& kind, size_t bytes, const std::vector<double>& us, double parts) const {
    if (both.rank != 0) return;
    static const char* const kWays[] = {"by hand", "plan"};
    for (size_t i = 0; i < us.size(); ++i)
      std::printf("%s,%s,%zu,%s,%.4f\n", test, kind.c_str(), bytes, kWays[i], us[i] / parts);
    std::fflush(stdout);
  }

  void expect(bool good, const char* what) const {
    if (good) return;
    std::fprintf(stderr, "thalweg-plans: rank %d: %s: wrong bytes\n", both.rank, what);
    std::_Exit(1);
  }

  void one_way(const std::string& kind, size_t bytes) const {
    Buffer out(at.context, kind, bytes), in(at.context, kind, bytes), theirs(at.context, "ordinary", bytes);
    const std::vector<Transfer> sends{{out.address(), bytes, nullptr, static_cast<uint64_t>(both.rank)}};
    const std::vector<Transfer> receives{{in.address(), bytes, nullptr, static_cast<uint64_t>(1 - both.rank)}};
    const bool answers = both.rank == 1;
    ByHand hand(at, receives, sends, answers);
    ByPlan plan(at, receives, sends, answers);
    theirs.fill(1000 + bytes + static_cast<uint64_t>(1 - both.rank));
    for (Way* const way : {static_cast<Way*>(&hand), static_cast<Way*>(&plan)}) {
      out.fill(1000 + bytes + static_cast<uint64_t>(both.rank));
      std::memset(in.address(), 0, bytes);
      both.pipe.meet();
      way->round();
      expect(std::memcmp(in.address(), theirs.address(), bytes) == 0, "one_way");
    }
    say("one_way", kind, bytes, time({&hand, &plan}), 2);
  }

  void halo(const std::string& kind) const {
    constexpr size_t kEdge = 32, kWidth = kEdge + 2, kCells = kEdge * kEdge * kWidth;
    Buffer cube(at.context, kind, kCells * sizeof(double)), theirs(at.context, "ordinary", kCells * sizeof(double));
    const uint64_t shape[3] = {kEdge, kEdge, kWidth}, extent[3] = {kEdge, kEdge, 1};
    tw_layout* face[4];
    const uint64_t at_x[4] = {0, kWidth - 1, 1, kWidth - 2};
    for (int i = 0; i < 4; ++i) {
      const uint64_t start[3] = {0, 0, at_x[i]};
      must(tw_layout_subarray(3, shape, extent, start, sizeof(double), TW_ORDER_C, &face[i]), "tw_layout_subarray");
    }
    const std::vector<Transfer> receives{{cube.address(), 0, face[0], 11}, {cube.address(), 0, face[1], 12}};
    const std::vector<Transfer> sends{{cube.address(), 0, face[2], 12}, {cube.address(), 0, face[3], 11}};
    ByHand hand(at, receives, sends, false);
    ByPlan plan(at, receives, sends, false);
    theirs.fill(77 + static_cast<uint64_t>(1 - both.rank));
    for (Way* const way : {static_cast<Way*>(&hand), static_cast<Way*>(&plan)}) {
      cube.fill(77 + static_cast<uint64_t>(both.rank));
      both.pipe.meet();
      way->round();
      const auto* const here = reinterpret_cast<const double*>(cube.address());
      const auto* const there = reinterpret_cast<const double*>(theirs.address());
      for (size_t row = 0; row < kEdge * kEdge; ++row) {
        const auto same = [&](size_t mine, size_t other) {
          return std::memcmp(here + row * kWidth + mine, there + row * kWidth + other, sizeof(double)) == 0;
        };
        expect(same(0, kWidth - 2) && same(kWidth - 1, 1), "halo");
      }
      both.pipe.meet();
    }
    say("halo", kind, 4 * kEdge * kEdge * sizeof(double), time({&hand, &plan}), 1);
    for (tw_layout* const one : face) tw_layout_destroy(one);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string transport = argc > 1 ? argv[1] : "shm";
  const unsigned batches = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 100;
  setenv("THALWEG_LOG", "error", 0);  // that the host carries steps is what is measured
  const Processes both;
  {
    Connected at(both.pipe, ("self," + transport).c_str());
    const Test test{at, both, batches};
    for (const char* const kind : {"ordinary", "library"})
      for (const size_t bytes : {size_t{8}, size_t{65536}}) test.one_way(kind, bytes);
    for (const char* const kind : {"ordinary", "library"}) test.halo(kind);
    both.pipe.meet();
  }
  return both.end();
}
