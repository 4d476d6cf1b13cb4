// SPDX-License-Identifier: Apache-2.0
// One run of a program of independent steps: each warp by itself (devices/program/independent_run.hpp), and the block around its warps.
#pragma once
#include "devices/kernels/items.hpp"
#include "devices/kernels/specialised.hpp"
#include "devices/program/independent_run.hpp"

namespace thalweg::impl::kernels {

struct IndependentShared {
  u64 run;                                // kRefused: the block is turned away
  u32 arrived[device::kMostIndependent];  // of the block's warps, by move
};

/// Not in line: it has most of the instructions and registers, and what waits for it has to be fetched first.
THALWEG_DEVICE_COLD void move_apart(Items items, const Side* to, const Side* from) { move_items(items, *to, *from); }

struct WarpMover {
  u32* arrived;
  THALWEG_DEVICE u32 arrive(u32 move) const { return machine::arrive_in_block(arrived + move); }
  THALWEG_DEVICE void move(device::DirectMachine, const Step& step, const Side& to, device::ItemShare share) const {
    move_apart(items_of_step(step, share), &to, &step.from);
  }
};

template <class Arguments>
THALWEG_DEVICE void run_independent(const Arguments& arguments, const ProgramArguments& common, IndependentShared& shared) {
  machine::start_early();
  using Steps = SpecialisedSteps<Arguments>;
  const device::DirectMachine m;
  const Steps steps{arguments};
  const WarpMover mover{shared.arrived};
  for (u32 k = machine::thread_x(); k < device::kMostIndependent; k += machine::threads_x()) shared.arrived[k] = 0;
  const bool first = machine::block_x() == 0 && machine::thread_x() < machine::kLanes;
  device::SpecialisedRun<device::FixedSpecialised<Poll::none, Move::independent>, device::DirectMachine, Steps> run(
      m, {}, steps, common.program, common.specialised, common.blocks, machine::block_x());
  device::IndependentRun<device::DirectMachine, Steps, WarpMover> warp(
      m, steps, mover, common.program, common.specialised, warp_share(machine::block_x(), common.blocks, common.item), first);
  // Not the first warp, which has the most to find out.
  if (machine::thread_x() == machine::threads_x() - machine::kLanes) shared.run = run.begin() ? run.run() : device::kRefused;
  warp.prepare();
  machine::sync_block();
  if (shared.run == device::kRefused) return turn_away(common.program.state, common.program.step_count);
  warp.begin(shared.run);
  while (!warp.move_pass()) {
  }
  if (first && !warp.failed()) {
    warp.begin_ends();
    while (!warp.end_pass()) {
    }
  }
  if (warp.failed()) warp.fail();
  const bool failed = machine::any_of_block(warp.failed());
  if (machine::thread_x() >= machine::kLanes) return;
  run.join(shared.run, 0);
  end_block<true>(run, common, failed, [&] {
    warp.advance_channels();
    return true;
  });
}

}  // namespace thalweg::impl::kernels
