// SPDX-License-Identifier: Apache-2.0
// One run of a symmetric exchange, in one kernel. Blocks as exchange.hpp says.
#pragma once
#include "devices/kernels/exchange.hpp"
#include "devices/program/exchange_symmetric.hpp"

namespace thalweg::impl::kernels {

using BlockSymmetric = device::SymmetricRun<device::DirectMachine, ThreadsOfBlock>;

THALWEG_DEVICE bool await_offsets(BlockSymmetric& run) {
  bool there = false, failed = false;
  while (!there && !failed) {
    there = run.offsets_there();
    failed = !there && run.timed_out();
  }
  return !device::machine::any_of_block(failed);
}

THALWEG_DEVICE void run_symmetric(const ExchangeArguments& arguments, device::SymmetricPeers& peers) {
  device::machine::start_early();
  BlockSymmetric run({}, {}, arguments.exchange, arguments.program, arguments.blocks, device::machine::block_x(), peers);
  bool well = run.begin();
  if (well) {
    run.push_offsets();
    well = await_offsets(run) && run.place();
  }
  if (well) well = exchange_pieces(run);
  run.end(!device::machine::all_of_block(well));
}

}  // namespace thalweg::impl::kernels
