// SPDX-License-Identifier: Apache-2.0
// A block of a symmetric exchange that is one thread of the host: of an emulated device.
#pragma once
#include "devices/program/exchange_symmetric.hpp"
#include "devices/program/one_thread_exchange.hpp"

namespace thalweg::impl {

/// An allreduce by slots, results into windows.
template <class M, class Elements>
using PlacedExchange = device::ExchangeRun<M, AloneInBlock, Elements, device::PlacedBlock<M, AloneInBlock>>;

/// Run: device::SymmetricRun, or PlacedExchange.
template <class M, class Run>
class OneThreadSymmetric {
 public:
  OneThreadSymmetric(M m, const device::Program& program, const ProgramRun& run, uint32_t block)
      : exchange_(*run.exchange), program_(program), run_(m, {}, exchange_, program_, run.shape.blocks, block, peers_) {}
  OneThreadSymmetric(const OneThreadSymmetric&) = delete;
  OneThreadSymmetric& operator=(const OneThreadSymmetric&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (!begun_) {
      begun_ = true;
      run_.prepare();
      if (!run_.begin()) return end(true);
      run_.push_offsets();
    }
    while (run_.next()) {
      if (!run_.flags_there()) return run_.timed_out() && end(true);
      run_.act();
    }
    return end(false);
  }

 private:
  bool end(bool failed) {
    run_.end(failed);
    return true;
  }
  const device::Exchange exchange_;
  const device::Program program_;
  device::SymmetricPeers peers_{};
  Run run_;
  bool begun_ = false;
};

}  // namespace thalweg::impl
