// SPDX-License-Identifier: Apache-2.0
// A block of an exchange whose counts lie in device memory, that is one thread of the host: of an emulated device.
#pragma once
#include "devices/program/exchange_counted_run.hpp"
#include "devices/program/one_thread_exchange.hpp"

namespace thalweg::impl {

template <class M>
class OneThreadCounted {
 public:
  OneThreadCounted(M m, const device::Program& program, const ProgramRun& run, uint32_t block)
      : exchange_(*run.exchange),
        counts_(*run.counts),
        program_(program),
        run_(m, {}, exchange_, counts_, program_, run.shape.blocks, block, pairs_) {}
  OneThreadCounted(const OneThreadCounted&) = delete;
  OneThreadCounted& operator=(const OneThreadCounted&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (part_ == Part::begin) {
      if (!run_.begin() || !run_.push_counts()) return end(true);
      part_ = Part::counts;
    }
    if (part_ == Part::counts) {
      if (!run_.counts_there()) return run_.timed_out() && end(true);
      if (!run_.place_counts()) return end(true);
      part_ = Part::rounds;
    }
    const device::Round round = run_.round();
    if (round == device::Round::some) return false;
    if (round == device::Round::none) return run_.timed_out() && end(true);
    return end(round == device::Round::failed);
  }

 private:
  enum class Part : uint8_t { begin, counts, rounds };
  bool end(bool failed) {
    run_.end(failed);
    return true;
  }
  const device::Exchange exchange_;
  const device::ExchangeCounts counts_;
  const device::Program program_;
  device::CountedPairs pairs_{};
  device::CountedRun<M, AloneInBlock> run_;
  Part part_ = Part::begin;
};

}  // namespace thalweg::impl
