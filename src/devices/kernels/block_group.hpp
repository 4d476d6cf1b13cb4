// SPDX-License-Identifier: Apache-2.0
// One run of a program in one kernel. Each block is the Group of a ProgramExecutor: its first warps poll steps, all of its
// warps copy. Blocks of a power of two of whole warps, all of which must find room at once. All is in line: around a call the
// executor's state would be kept in memory, and each wait would pay for it.
#pragma once

#include "devices/kernels/arguments.hpp"
#include "devices/kernels/items.hpp"
#include "devices/program/program_executor.hpp"
#include "thalweg/device/reduce.hpp"

namespace thalweg::impl::kernels {

namespace machine = device::machine;
using device::u32;
using device::u64;

constexpr u32 kStepWords = 4096 / machine::kLanes;  // kMostSteps
constexpr u32 kMostParts = 512 / machine::kLanes;   // warps of a block

/// Results of votes and shares are written to one of two places in turn: a barrier separates the reads of one from the next
/// write to it.
template <u32 Parts>
struct ProgramShared {
  u64 found[2][machine::kLanes * Parts];
  machine::LaneMask ready[2][Parts], open[2][Parts], moving[2][Parts];
  u32 stopped[2][Parts];
  u64 value[2];
  machine::LaneMask done[kStepWords];
};

/// Where a kernel's parameter, ProgramArguments or an InlineProgram, has its steps. few: a warp polls all of them at once.
template <class Arguments>
struct StepsIn;
template <>
struct StepsIn<ProgramArguments> {
  static constexpr bool few = false;
  static THALWEG_DEVICE const device::Step& step(const ProgramArguments& arguments, u32 i) {
    return arguments.program.steps[i];
  }
  static THALWEG_DEVICE u32 after(const ProgramArguments& arguments, u32 i) { return arguments.program.after[i]; }
};
template <unsigned Steps, unsigned Numbers>
struct StepsIn<InlineProgram<Steps, Numbers>> {
  using Arguments = InlineProgram<Steps, Numbers>;
  static constexpr bool few = Steps <= machine::kLanes;
  static THALWEG_DEVICE const device::Step& step(const Arguments& arguments, u32 i) { return arguments.steps[i]; }
  static THALWEG_DEVICE u32 after(const Arguments& arguments, u32 i) { return arguments.after[i]; }
};

/// Reduces: a step may be a reduction; a separate kernel, because around its calls the others' state would be in memory.
template <class Arguments, bool Reduces>
class BlockGroup {
 public:
  static constexpr bool one_poll = StepsIn<Arguments>::few;
  using Shared = ProgramShared<one_poll ? 1 : kMostParts>;
  THALWEG_DEVICE BlockGroup(Shared& shared, const Arguments& arguments, u32 steps)
      : shared_(shared), arguments_(arguments), parts_(one_poll ? 1 : parts_for(steps)) {}
  THALWEG_DEVICE u32 parts() const { return one_poll ? 1 : parts_; }
  THALWEG_DEVICE u32 lanes() const { return machine::kLanes * parts(); }
  THALWEG_DEVICE u32 lane() const { return machine::thread_x(); }
  THALWEG_DEVICE bool leader() const { return machine::thread_x() == 0; }
  THALWEG_DEVICE void sync() const { machine::sync_block(); }
  THALWEG_DEVICE bool any(bool yes) const { return machine::any_of_block(yes); }
  THALWEG_DEVICE u64 tell(u64 value) {
    turn_of_value_ ^= 1;
    if (leader()) shared_.value[turn_of_value_] = value;
    machine::sync_block();
    return shared_.value[turn_of_value_];
  }

  THALWEG_DEVICE void vote(bool ready, bool open, bool moving, u64 found, bool stop) {
    turn_ ^= 1;
    if (machine::thread_x() < lanes()) {
      const machine::LaneMask all_ready = machine::lanes_with(ready), all_open = machine::lanes_with(open);
      const machine::LaneMask all_moving = machine::lanes_with(moving);
      const bool stopped = machine::any_lane(stop);
      if (ready) shared_.found[turn_][machine::thread_x()] = found;
      if (machine::thread_x() % machine::kLanes == 0) {
        const u32 part = machine::thread_x() / machine::kLanes;
        shared_.ready[turn_][part] = all_ready;
        shared_.open[turn_][part] = all_open;
        shared_.moving[turn_][part] = all_moving;
        shared_.stopped[turn_][part] = stopped;
      }
    }
    machine::sync_block();
  }
  THALWEG_DEVICE bool any_ready() const { return first_ready() < lanes(); }
  THALWEG_DEVICE bool all_ready() const {
    bool all = true;
    for (u32 part = 0; part < parts(); ++part) all = shared_.ready[turn_][part] == shared_.open[turn_][part] && all;
    return all;
  }
  THALWEG_DEVICE u32 first_ready() const {
    for (u32 part = 0; part < parts(); ++part) {
      const machine::LaneMask mask = shared_.ready[turn_][part];
      if (mask != 0) return part * machine::kLanes + machine::lowest(mask);
    }
    return lanes();
  }
  THALWEG_DEVICE bool stopped() const {
    bool any = false;
    for (u32 part = 0; part < parts(); ++part) any = shared_.stopped[turn_][part] != 0 || any;
    return any;
  }
  THALWEG_DEVICE u64 found(u32 lane) const { return shared_.found[turn_][lane]; }

  THALWEG_DEVICE const device::Step& step(u32 i) const { return StepsIn<Arguments>::step(arguments_, i); }
  THALWEG_DEVICE u32 after(u32 i) const { return StepsIn<Arguments>::after(arguments_, i); }
  /// Only polling threads call it.
  THALWEG_DEVICE bool done(u32 i) const { return (shared_.done[i / machine::kLanes] >> (i % machine::kLanes) & 1) != 0; }
  THALWEG_DEVICE void mark(u32 base, bool yes) {
    if (machine::thread_x() < lanes()) {
      const machine::LaneMask mask = machine::lanes_with(yes);
      if (machine::thread_x() % machine::kLanes == 0) shared_.done[(base + machine::thread_x()) / machine::kLanes] |= mask;
    }
    if constexpr (one_poll) {
      machine::sync_lanes();
    } else {
      machine::sync_block();  // the next poll may read any of them
    }
  }

  /// Each lane of a warp tests one step.
  THALWEG_DEVICE machine::LaneMask share(u32 base, u32 part, u32 block, u32 blocks, u32 item) const {
    const u32 lane = machine::thread_x() % machine::kLanes;
    const machine::LaneMask moving = shared_.moving[turn_][part];
    if (moving == 0) return 0;
    bool some = false;
    if ((moving >> lane & 1) != 0) {
      const device::Step& one = step(base + part * machine::kLanes + lane);
      some = items_of(one, block, blocks, item).first < one.bytes;
    }
    return machine::lanes_with(some);
  }
  /// Straight from the receive buffer's entry, which is this device's memory; its room, which is written last, is read first.
  THALWEG_DEVICE void move(device::DirectMachine m, const device::Step& step, const device::RecvBuffer* recv_buffer, u32 block,
                           u32 blocks, u32 item) const {
    if constexpr (Reduces) {
      if (step.kind == device::StepKind::reduce) return reduce(m, step, block, blocks, item);
    }
    if (recv_buffer != nullptr && !device::fits_receive(step, m.acquire(&recv_buffer->capacity))) return;
    const device::Side& to = recv_buffer != nullptr ? recv_buffer->to : step.to;
    Items items = items_of(step, block, blocks, item);
    if (step.word != nullptr) {
      if (const u64 there = m.load(step.word); there < items.bytes) items.bytes = there;
    }
    move_items(items, to, step.from);
  }

 private:
  THALWEG_DEVICE void reduce(device::DirectMachine m, const device::Step& step, u32 block, u32 blocks, u32 item) const {
    const Items items = items_of(step, block, blocks, item);
    const device::Reduction what = device::reduction_of(step);
    for (u64 at = items.first; at < items.bytes; at += items.stride) {
      const u64 end = items.bytes - at < items.length ? items.bytes : at + items.length;
      device::reduce_part(m, machine::thread_x() % machine::kLanes, machine::kLanes, what, {at, end});
    }
  }
  static THALWEG_DEVICE u32 parts_for(u32 steps) {
    const u32 warps = machine::threads_x() / machine::kLanes, wanted = (steps + machine::kLanes - 1) / machine::kLanes;
    return warps < wanted ? warps : wanted;
  }
  static THALWEG_DEVICE Items items_of(const device::Step& step, u32 block, u32 blocks, u32 item) {
    return items_of_step(step, warp_share(block, blocks, item));
  }
  Shared& shared_;
  const Arguments& arguments_;
  const u32 parts_;
  u32 turn_ = 0, turn_of_value_ = 0;
};

template <bool Reduces, class Arguments>
THALWEG_DEVICE void run_program(const Arguments& arguments, const ProgramArguments& common,
                                typename BlockGroup<Arguments, Reduces>::Shared& shared) {
  using Group = BlockGroup<Arguments, Reduces>;
  const u32 masks = (common.program.step_count + machine::kLanes - 1) / machine::kLanes;
  for (u32 i = machine::thread_x(); i < masks; i += machine::threads_x()) shared.done[i] = 0;
  device::ProgramExecutor<device::DirectMachine, Group> block({}, Group(shared, arguments, common.program.step_count),
                                                              common.program, common.blocks, machine::block_x(), common.item);
  if (!block.begin()) return;
  while (!block.pass()) {
  }
}

}  // namespace thalweg::impl::kernels
