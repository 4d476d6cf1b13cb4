// SPDX-License-Identifier: Apache-2.0
// A block of a symmetric exchange that is one thread of the host: of an emulated device.
#pragma once
#include "devices/program/exchange_symmetric.hpp"
#include "devices/program/one_thread_exchange.hpp"

namespace thalweg::impl {

template <class M>
class OneThreadSymmetric {
 public:
  OneThreadSymmetric(M m, const device::Program& program, const ProgramRun& run, uint32_t block)
      : exchange_(*run.exchange), program_(program), run_(m, {}, exchange_, program_, run.shape.blocks, block, peers_) {}
  OneThreadSymmetric(const OneThreadSymmetric&) = delete;
  OneThreadSymmetric& operator=(const OneThreadSymmetric&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (part_ == Part::begin) {
      if (!run_.begin()) return end(true);
      run_.push_offsets();
      part_ = Part::offsets;
    }
    if (part_ == Part::offsets) {
      if (!run_.offsets_there()) return run_.timed_out() && end(true);
      if (!run_.place()) return end(true);
      part_ = Part::moves;
    }
    while (run_.next()) {
      if (!run_.flags_there()) return run_.timed_out() && end(true);
      run_.act();
    }
    return end(false);
  }

 private:
  enum class Part : uint8_t { begin, offsets, moves };
  bool end(bool failed) {
    run_.end(failed);
    return true;
  }
  const device::Exchange exchange_;
  const device::Program program_;
  device::SymmetricPeers peers_{};
  device::SymmetricRun<M, AloneInBlock> run_;
  Part part_ = Part::begin;
};

}  // namespace thalweg::impl
