// SPDX-License-Identifier: Apache-2.0
// The tests of programs: for each trigger, on two devices that reach each other, or on one twice.
#pragma once
#include "tests/gpu/contract.hpp"
#include "tests/gpu/program_tools.hpp"

namespace thalweg::impl::contract {

using namespace programs;

class Programs : public Contract, public ::testing::WithParamInterface<Trigger> {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (GetParam() == Trigger::device && !kernels()) GTEST_SKIP() << last_error();
    for (Device* const one : devices) {
      if (one != device && one->peer(device->uuid()).access && device->peer(one->uuid()).access) other = one;
    }
    if (other == nullptr) other = device;
  }
  Device* other = nullptr;  // with access in both directions
};

inline const auto kTriggers = ::testing::Values(Trigger::device, Trigger::host_queue, Trigger::caller);
inline const auto kQueues = ::testing::Values(Trigger::device, Trigger::host_queue);
inline std::string trigger_name(const ::testing::TestParamInfo<Trigger>& info) { return name_of(info.param); }

}  // namespace thalweg::impl::contract
