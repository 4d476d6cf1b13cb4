// SPDX-License-Identifier: Apache-2.0
// A block of an exchange by LL128 that is one thread of the host: of an emulated device.
#pragma once
#include "devices/program/exchange_lines.hpp"
#include "devices/program/one_thread_exchange.hpp"

namespace thalweg::impl {

template <class M>
class OneThreadLines {
 public:
  OneThreadLines(M m, const device::Program& program, const ProgramRun& run, uint32_t block)
      : exchange_(*run.exchange), program_(program), run_(m, {}, exchange_, program_, run.shape.blocks, block) {}
  OneThreadLines(const OneThreadLines&) = delete;
  OneThreadLines& operator=(const OneThreadLines&) = delete;

  /// Does what can be done and waits for nothing. True: the run is over for this block.
  bool over() {
    if (!begun_) {
      begun_ = true;
      run_.load();
      if (!run_.begin()) return end(true);
      while (run_.push()) run_.load();
    }
    if (run_.take()) return end(false);
    return run_.timed_out() && end(true);
  }

 private:
  bool end(bool failed) {
    run_.end(failed);
    return true;
  }
  const device::Exchange exchange_;
  const device::Program program_;
  device::LinesRun<M, AloneInBlock, device::kFirstAreas> run_;
  bool begun_ = false;
};

}  // namespace thalweg::impl
