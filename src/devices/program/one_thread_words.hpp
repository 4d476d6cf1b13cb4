// SPDX-License-Identifier: Apache-2.0
// The threads of an exchange of one word each, as one thread of the host: of an emulated device.
#pragma once
#include <deque>

#include "devices/program.hpp"
#include "devices/program/exchange_words.hpp"

namespace thalweg::impl {

/// One of a block's threads; all hear of what the first one tells.
struct ThreadInBlock {
  uint32_t number, threads;
  device::u64* told;
  uint32_t rank() const { return number; }
  uint32_t size() const { return threads; }
  void sync() const {}
  device::u64 tell(device::u64 value) const {
    if (number == 0) *told = value;
    return *told;
  }
};

template <class M>
class OneThreadWords {
 public:
  OneThreadWords(M m, const device::Program& program, const ProgramRun& run, uint32_t block)
      : exchange_(*run.exchange), program_(program) {
    const uint32_t threads = run.shape.threads;
    for (uint32_t i = 0; i < threads; ++i)
      threads_.emplace_back(m, ThreadInBlock{i, threads, &told_}, exchange_, program_, run.shape.blocks, block);
  }
  OneThreadWords(const OneThreadWords&) = delete;
  OneThreadWords& operator=(const OneThreadWords&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (!begun_) {
      begun_ = true;
      for (auto& thread : threads_) {
        thread.load();
        if (!thread.begin()) return end(true);
      }
      for (auto& thread : threads_) thread.push();
    }
    for (; done_ < threads_.size(); ++done_) {
      if (!threads_[done_].there()) return threads_[done_].timed_out() && end(true);
      threads_[done_].finish();
    }
    return end(false);
  }

 private:
  bool end(bool failed) {
    threads_.front().end(failed);
    return true;
  }
  const device::Exchange exchange_;
  const device::Program program_;
  device::u64 told_ = 0;
  std::deque<device::WordsRun<M, ThreadInBlock, device::kFirstAreas>> threads_;
  size_t done_ = 0;
  bool begun_ = false;
};

}  // namespace thalweg::impl
