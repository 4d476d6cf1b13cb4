// SPDX-License-Identifier: Apache-2.0
// A program run by the host: in the caller's thread, which comes back to it until it is over, or by a host queue's. All of its
// addresses are ones that the host may use.
#pragma once
#include <optional>

#include "base/clock.hpp"
#include "devices/program.hpp"
#include "devices/program/carried_list.hpp"
#include "devices/program/one_thread.hpp"

namespace thalweg::impl {

/// One thread at a time.
class HostProgram {
 public:
  /// Steps, `after`, state and guard stay the caller's and live as long; `placed` and `shape` are a device's.
  explicit HostProgram(const ProgramRun& program);
  HostProgram(const HostProgram&) = delete;
  HostProgram& operator=(const HostProgram&) = delete;
  /// Begins a run. TW_ERR_BUSY: the last one is not over.
  Status start();
  /// Does what can be done and waits for nothing. TW_OK: no run is under way (any more); whether it went well is in Failure.
  Status advance();

 private:
  OneThreadSteps steps_;
  const device::Program program_;
  const std::shared_ptr<Carrier> carrier_;
  const bool carried_only_;             // every wait is for what the carrier carries
  std::optional<CarriedList> carried_;  // instead of the executor: that is all there is to do
  std::optional<device::ProgramExecutor<device::DirectMachine, OneThread>> executor_;
  bool begin();
  bool pass();
  Status idle();
  bool runs_ = false;
  std::optional<SpinDeadline> asks_;  // for the time and the abort word, at the latest then; from the first turn in vain on
  unsigned idle_ = 0;                 // turns in which the carrier had nothing, since the steps were looked at
};

}  // namespace thalweg::impl
