// SPDX-License-Identifier: Apache-2.0
// One run of an alltoallv whose counts lie in device memory, in one kernel. Blocks as exchange.hpp says.
#pragma once
#include "devices/kernels/exchange.hpp"
#include "devices/program/exchange_counted_run.hpp"

namespace thalweg::impl::kernels {

using BlockCounted = device::CountedRun<device::DirectMachine, ThreadsOfBlock>;

THALWEG_DEVICE bool await_counts(BlockCounted& run) {
  bool there = false, failed = false;
  while (!there && !failed) {
    there = run.counts_there();
    failed = !there && run.timed_out();
  }
  return !device::machine::any_of_block(failed);
}
THALWEG_DEVICE bool move_rounds(BlockCounted& run) {
  for (;;) {
    const device::Round round = run.round();
    if (round == device::Round::over) return true;
    if (round == device::Round::failed) return false;
    if (round == device::Round::none && device::machine::any_of_block(run.timed_out())) return false;
  }
}

THALWEG_DEVICE void run_counted(const CountedArguments& arguments, device::CountedPairs& pairs) {
  device::machine::start_early();
  const ExchangeArguments& common = arguments.common;
  BlockCounted run({}, {}, common.exchange, arguments.counts, common.program, common.blocks, device::machine::block_x(), pairs);
  bool well = run.begin();
  if (well) well = run.push_counts() && await_counts(run) && run.place_counts() && move_rounds(run);
  run.end(!device::machine::all_of_block(well));
}

}  // namespace thalweg::impl::kernels
