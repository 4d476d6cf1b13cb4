// SPDX-License-Identifier: Apache-2.0
// A block of an exchange that is one thread of the host: of an emulated device.
#pragma once
#include "devices/program.hpp"
#include "devices/program/exchange_run.hpp"

namespace thalweg::impl {

struct AloneInBlock {
  static constexpr uint32_t rank() { return 0; }
  static constexpr uint32_t size() { return 1; }
  void sync() const {}
  template <class T>
  T tell(T value) const {
    return value;
  }
  bool any(bool yes) const { return yes; }
};

template <class M, class Elements>
class OneThreadExchange {
 public:
  OneThreadExchange(M m, const device::Program& program, const ProgramRun& run, uint32_t block)
      : exchange_(*run.exchange), program_(program), run_(m, {}, exchange_, program_, run.shape.blocks, block) {}
  OneThreadExchange(const OneThreadExchange&) = delete;
  OneThreadExchange& operator=(const OneThreadExchange&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (!begun_) {
      begun_ = true;
      if (!run_.begin()) return end(true);
      if (exchange_.low_latency != 0) run_.push_units();
    }
    if (exchange_.low_latency != 0) {
      if (run_.take_units()) return end(false);
      return run_.timed_out() && end(true);
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
  device::ExchangeRun<M, AloneInBlock, Elements> run_;
  bool begun_ = false;
};

}  // namespace thalweg::impl
