// SPDX-License-Identifier: Apache-2.0
// One run of an exchange in one kernel, for each of its protocols. Blocks of a power of two of whole warps, as many as on all ranks.
#pragma once
#include "devices/kernels/arguments.hpp"
#include "devices/program/exchange_run.hpp"

namespace thalweg::impl::kernels {

struct ThreadsOfBlock {
  THALWEG_DEVICE device::u32 rank() const { return device::machine::thread_x(); }
  THALWEG_DEVICE device::u32 size() const { return device::machine::threads_x(); }
  THALWEG_DEVICE void sync() const { device::machine::sync_block(); }
  THALWEG_DEVICE bool any(bool yes) const { return device::machine::any_of_block(yes); }
  THALWEG_DEVICE device::u64 tell(device::u64 value) const { return device::machine::from_first_of_block(value); }
};

/// Each thread its own words.
template <class Run>
THALWEG_DEVICE bool exchange_units(Run& run) {
  run.push_units();
  while (!run.take_units()) {
    if (run.timed_out()) return false;
  }
  return true;
}
template <class Run>
THALWEG_DEVICE bool exchange_pieces(Run& run) {
  while (run.next()) {
    bool there = false, failed = false;
    while (!there && !failed) {
      there = run.flags_there();
      failed = !there && run.timed_out();
    }
    if (device::machine::any_of_block(failed)) return false;
    run.act();
  }
  return true;
}

template <bool kLowLatency, class Elements>
THALWEG_DEVICE void run_exchange(const ExchangeArguments& arguments) {
  device::machine::start_early();
  using Run = device::ExchangeRun<device::DirectMachine, ThreadsOfBlock, Elements>;
  Run run({}, {}, arguments.exchange, arguments.program, arguments.blocks, device::machine::block_x());
  bool well = run.begin();
  if (well) well = kLowLatency ? exchange_units(run) : exchange_pieces(run);
  run.end(!device::machine::all_of_block(well));
}

}  // namespace thalweg::impl::kernels
