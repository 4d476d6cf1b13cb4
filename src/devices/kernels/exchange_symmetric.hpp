// SPDX-License-Identifier: Apache-2.0
// One run of a symmetric exchange, in one kernel. Blocks as exchange.hpp says.
#pragma once
#include "devices/kernels/exchange.hpp"
#include "devices/program/exchange_symmetric.hpp"

namespace thalweg::impl::kernels {

template <device::SymmetricForm kForm>
using BlockSymmetric = device::SymmetricRun<device::DirectMachine, ThreadsOfBlock, kForm>;
/// Of an allreduce: operands by slots, results into windows.
template <class Elements>
using BlockSlots = device::ExchangeRun<device::DirectMachine, ThreadsOfBlock, Elements,
                                       device::PlacedBlock<device::DirectMachine, ThreadsOfBlock>>;

template <class Run>
THALWEG_DEVICE void run_symmetric(const ExchangeArguments& arguments, device::SymmetricPeers& peers) {
  device::machine::start_early();
  Run run({}, {}, arguments.exchange, arguments.program, arguments.blocks, device::machine::block_x(), peers);
  run.prepare();
  bool well = run.begin();
  if (well) {
    run.push_offsets();
    well = exchange_pieces(run);
  }
  run.end(!device::machine::all_of_block(well));
}

}  // namespace thalweg::impl::kernels
