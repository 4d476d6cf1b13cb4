// SPDX-License-Identifier: Apache-2.0
// One run of an exchange in one kernel, for each of its protocols. Blocks of a power of two of whole warps, as many as on all ranks.
#pragma once
#include "devices/kernels/arguments.hpp"
#include "devices/program/exchange_lines.hpp"
#include "devices/program/exchange_run.hpp"
#include "devices/program/exchange_words.hpp"

namespace thalweg::impl::kernels {

struct ThreadsOfBlock {
  THALWEG_DEVICE device::u32 rank() const { return device::machine::thread_x(); }
  THALWEG_DEVICE device::u32 size() const { return device::machine::threads_x(); }
  THALWEG_DEVICE void sync() const { device::machine::sync_block(); }
  THALWEG_DEVICE bool any(bool yes) const { return device::machine::any_of_block(yes); }
  template <class T>
  THALWEG_DEVICE T tell(T value) const {
    return device::machine::from_first_of_block(value);
  }
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
THALWEG_DEVICE bool await_flags(Run& run) {
  bool there = false, failed = false;
  while (!there && !failed) {
    there = run.flags_there();
    failed = !there && run.timed_out();
  }
  return !device::machine::any_of_block(failed);
}
template <class Run>
THALWEG_DEVICE bool exchange_pieces(Run& run) {
  while (run.next()) {
    // Without one to wait for, the other warps go on while the first one announces what came before.
    if (run.awaits() && !await_flags(run)) return false;
    run.act();
  }
  return true;
}

/// A block of one warp needs no barrier to hear of the run.
struct ThreadsOfWords : ThreadsOfBlock {
  THALWEG_DEVICE device::u64 tell(device::u64 value) const {
    return size() == device::machine::kLanes ? device::machine::from_lane(value, 0)
                                             : device::machine::from_first_of_block(value);
  }
};

template <device::u32 kRanks>
THALWEG_DEVICE void run_words(const ExchangeArguments& arguments) {
  device::machine::start_next();
  device::WordsRun<device::DirectMachine, ThreadsOfWords, kRanks> run({}, {}, arguments.exchange, arguments.program,
                                                                      arguments.blocks, device::machine::block_x());
  device::machine::await_previous();
  run.load();
  bool well = run.begin();
  if (well) {
    run.push();
    while (well && !run.there()) well = !run.timed_out();
    if (well) run.finish();
  }
  run.end(!device::machine::all_of_block(well));
}

template <device::u32 kRanks, device::LinesForm kForm>
THALWEG_DEVICE void run_lines(const ExchangeArguments& arguments) {
  device::machine::start_next();
  device::LinesRun<device::DirectMachine, ThreadsOfWords, kRanks, kForm> run({}, {}, arguments.exchange, arguments.program,
                                                                             arguments.blocks, device::machine::block_x());
  device::machine::await_previous();
  bool well = true, first = true, more = true;
  while (more && well) {
    run.load();
    if (first) well = run.begin();
    first = false;
    if (well) more = run.push();
  }
  while (well && !run.take()) well = !run.timed_out();
  run.end(!device::machine::all_of_block(well));
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
