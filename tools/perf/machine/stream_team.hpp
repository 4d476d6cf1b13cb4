// SPDX-License-Identifier: Apache-2.0
// STREAM: threads on processors of their own that copy, scale, add, and multiply and add long arrays together. Where the arrays are is
// the caller's business. Operands are random integers, so that each result is exact, and all of it is verified.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "machine/repeat.hpp"

namespace perf {

/// Threads that stay, one bound to each processor in turn.
class StreamTeam {
 public:
  StreamTeam(const std::vector<unsigned>& processors, unsigned threads);
  ~StreamTeam();
  StreamTeam(const StreamTeam&) = delete;
  StreamTeam& operator=(const StreamTeam&) = delete;
  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }
  /// Each thread calls `part` with its share of [0, count), a multiple of eight but for the last one's. Seconds from the first one's begin
  /// to the last one's end: they start together.
  using Part = std::function<void(unsigned thread, size_t from, size_t to)>;
  double run(size_t count, const Part& part);
  /// Did every thread get to its processor?
  bool bound();

 private:
  void work(unsigned thread, unsigned processor);
  struct Times {
    alignas(64) uint64_t begin;
    uint64_t end;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t turn_ = 0;  // counts runs
  unsigned ended_ = 0;
  std::atomic<unsigned> ready_{0};
  bool over_ = false, bound_ = true;
  const Part* part_ = nullptr;
  size_t count_ = 0;
  std::vector<Times> times_;
  std::vector<std::thread> threads_;
};

enum class StreamKind { copy, scale, add, triad, read, write };
struct StreamOperation {
  StreamKind operation;
  const char* name;
  unsigned arrays;  // that move: bytes are this times those of an array
};
extern const StreamOperation kStreamOperations[6];

/// What three arrays of doubles gave.
struct StreamResult {
  double best_seconds = 0, median_seconds = 0;
  bool verified = false;
};

/// Arrays of `count` doubles: x and y are operands, z takes the result.
class StreamArrays {
 public:
  StreamArrays(double* x, double* y, double* z, size_t count) : x_(x), y_(y), z_(z), count_(count), seed_(fresh_seed()) {}
  /// By these threads, which so touch the memory first where it is new.
  void fill(StreamTeam& team);
  StreamResult measure(StreamTeam& team, StreamKind operation, double seconds);
  /// Elements of z that are not what the operation makes of x and y.
  uint64_t wrong(StreamTeam& team, StreamKind operation) const;
  bool right_operands(StreamTeam& team) const;

 private:
  template <class Wrong>
  uint64_t count_wrong(StreamTeam& team, Wrong wrong) const;
  double *x_, *y_, *z_;
  size_t count_;
  uint64_t seed_;
};

}  // namespace perf
