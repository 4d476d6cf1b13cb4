// SPDX-License-Identifier: Apache-2.0
// Programs in the caller's thread.
#include "devices/program/host.hpp"

#include <algorithm>

namespace thalweg::impl {

HostProgram::HostProgram(const ProgramRun& program)
    : steps_{program.steps.data(), program.after.data(), std::vector<uint8_t>(program.steps.size())},
      program_{program.steps.data(), static_cast<uint32_t>(program.steps.size()), program.after.data(),
               reinterpret_cast<device::ProgramState*>(program.state), program.guard},
      carrier_(program.carrier) {}

Status HostProgram::start() {
  if (runs_) return fail(TW_ERR_BUSY, "the plan's last run is not over; test or finish it first");
  std::fill(steps_.done.begin(), steps_.done.end(), uint8_t{0});
  executor_.emplace(device::DirectMachine(), OneThread(steps_), program_, 1, 0, 0);
  runs_ = executor_->begin();
  return TW_OK;
}

Status HostProgram::advance() {
  constexpr unsigned kMostRounds = 4;  // an operation that ends lets the next steps begin; but this waits for nothing
  for (unsigned round = 0; runs_; ++round) {
    runs_ = !executor_->pass();
    if (runs_ && (carrier_ == nullptr || round == kMostRounds || !carrier_->drive())) return TW_IN_PROGRESS;
  }
  return TW_OK;
}

}  // namespace thalweg::impl
