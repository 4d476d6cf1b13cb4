// SPDX-License-Identifier: Apache-2.0
// A step that is a collective of a group, done by one kernel on each rank's device (devices/program/exchange.hpp).
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "devices/program/exchange_counted.hpp"
#include "plans/executor.hpp"

struct tw_queue;

namespace thalweg::impl {

class Device;
class Queue;

/// What the kernels of all ranks store into: one rank's part, and how it reaches the others'. Any thread.
class ExchangeArea {
 public:
  virtual ~ExchangeArea() = default;
  virtual Device& device() const = 0;
  /// `word` gets a status when a rank is lost, until unwatch().
  virtual void watch(uint64_t* word) = 0;
  virtual void unwatch(uint64_t* word) = 0;
  /// TW_OK, or which rank was lost, or how a run failed: the ranks no longer agree on what the area holds.
  virtual Status check() = 0;
  virtual void fail(Status status, const std::string& why) = 0;
  /// One thread at a time enqueues a group's kernels: no other order could be the same on all ranks. TW_ERR_THREAD: another one
  /// does now. The same thread may enter again; it leaves as often.
  virtual Status enter() = 0;
  virtual void leave() = 0;
  // In between:
  /// A group's kernels run one after the other: what `queue` gets from now on comes behind those on other queues. `of`: it is that
  /// one's, which is known until it ends; null: a plan's own. Captured ones keep the graph's order. Makes nothing known: what comes
  /// next may fail.
  virtual Status order(Queue& queue, const tw_queue* of) = 0;
  /// A kernel was launched: what other queues get comes behind what `queue` has by now.
  virtual Status note(Queue& queue, const tw_queue* of) = 0;

  uint64_t line = 0;  // of the timeline, where all of the group's kernels are; 0: none yet. PlanTimes'
};

/// A thread's turn to enqueue kernels of these groups.
class EnqueueTurn {
 public:
  explicit EnqueueTurn(std::span<ExchangeArea* const> areas) : areas_(areas) {}
  ~EnqueueTurn() {
    while (entered_ != 0) areas_[--entered_]->leave();
  }
  EnqueueTurn(const EnqueueTurn&) = delete;
  EnqueueTurn& operator=(const EnqueueTurn&) = delete;
  [[nodiscard]] Status take() {
    for (; entered_ < areas_.size(); ++entered_) {
      if (Status s = areas_[entered_]->enter(); is_error(s)) return s;
    }
    return TW_OK;
  }

 private:
  const std::span<ExchangeArea* const> areas_;
  size_t entered_ = 0;
};

/// As bits of device::Exchange.
constexpr uint64_t rank_bit(uint32_t rank) { return uint64_t{1} << rank; }
constexpr uint64_t first_ranks(uint32_t count) { return count == 64 ? ~uint64_t{0} : rank_bit(count) - 1; }

/// Counts and places that the host knows, in the executor's memory.
class ExchangeTable {
 public:
  ExchangeTable(Executor& by, std::vector<uint64_t> words) : by_(by), words_(std::move(words)) {}
  ~ExchangeTable() {
    if (address_ != 0) by_.own().free(address_, bytes());
  }
  ExchangeTable(const ExchangeTable&) = delete;
  ExchangeTable& operator=(const ExchangeTable&) = delete;
  Status place() {
    if (Status s = by_.own().allocate(bytes(), &address_); is_error(s)) return s;
    return by_.store(address_, words_.data(), bytes());
  }
  const device::u64* at(size_t word) const { return reinterpret_cast<const device::u64*>(address_) + word; }

 private:
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }
  Executor& by_;
  const std::vector<uint64_t> words_;
  uint64_t address_ = 0;
};

struct ExchangeStep {
  device::Exchange what{};
  device::ExchangeCounts counts{};  // of blocks of several lengths, from rank to rank
  bool counted() const { return counts.send_counts != nullptr; }
  bool by_host() const { return table != nullptr; }  // it knows the counts
  const char* protocol() const {
    if (what.lines != 0) return what.slice != 0 ? "LL128 in two phases" : "LL128";
    if (what.low_latency != 0) return "LL";
    if (by_host()) return "Simple, blocks of several lengths";
    if (counted()) return "Simple, counts by device";
    if (what.by_slots != 0) return "symmetric, operands by Simple";
    if (what.symmetric != 0) return what.slice != 0 ? "symmetric in two phases" : "symmetric";
    return what.slice != 0 ? "Simple in two phases" : "Simple";
  }
  std::shared_ptr<ExchangeTable> table;
  bool apart = false;          // the output may not be what it writes to: that would still be read
  uint32_t blocks = 1;         // of threads; a power of two
  bool shares_device = false;  // several ranks of the group run on one device
  uint64_t input_bytes = 0, output_bytes = 0;
  std::shared_ptr<ExchangeArea> area;
  std::vector<std::weak_ptr<char>> windows;  // where a symmetric one's buffers lie: tw_window::alive
};

}  // namespace thalweg::impl
