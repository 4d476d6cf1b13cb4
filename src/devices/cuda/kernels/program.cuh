// SPDX-License-Identifier: Apache-2.0
// One run of a program in one kernel. Each block is the Group of an Executor: its first warps look at steps, all of its warps
// copy. Blocks of a power of two of whole warps, all of which must find room at once.
#pragma once
// All in line: around a call the executor's state would be kept in memory, and each wait would pay for it.
#define THALWEG_DEVICE_CALL __host__ __device__ __forceinline__
#include <type_traits>

#include "arguments.hpp"
#include "devices/program/executor.hpp"
#include "thalweg/device/reduce.hpp"

namespace thalweg::impl::cuda {

using device::u32;
using device::u64;

constexpr u32 kStepWords = 4096 / 32;  // kMostSteps
constexpr u32 kMostParts = 512 / 32;   // warps of a block

/// What votes and shares say is written to one of two places in turn: a barrier lies between the reading of one and the next
/// writing to it.
template <u32 Parts>
struct ProgramShared {
  u64 found[2][32 * Parts];
  u32 ready[2][Parts], open[2][Parts], moving[2][Parts], stopped[2][Parts];
  u64 value[2];
  u32 done[kStepWords];
};

/// A warp's items of a step, as packed offsets. Item k goes to warp (k + the items of earlier steps) of all blocks' warps, so that
/// many small steps are under way at once, and every block takes the same items whenever it comes to the step.
struct Items {
  u64 first, stride, length, bytes;
};

__device__ __forceinline__ void copy_runs(Items items, u64 to, u64 from) {
  for (u64 at = items.first; at < items.bytes; at += items.stride) {
    const u64 left = items.bytes - at;
    device::copy_run(device::DirectMachine(), threadIdx.x % 32, 32, to + at, from + at,
                     left < items.length ? left : items.length);
  }
}
__device__ __forceinline__ void copy_items(Items items, const device::Side& to, const device::Side& from) {
  for (u64 at = items.first; at < items.bytes; at += items.stride) {
    const u64 end = items.bytes - at < items.length ? items.bytes : at + items.length;
    device::copy_sides(device::DirectMachine(), threadIdx.x % 32, 32, to, from, items.bytes, {at, end});
  }
}

/// Arguments: ProgramArguments or an InlineProgram, the kernel's parameter. Reduces: a step may be a reduction; in a kernel of its own,
/// because around its calls the others' state would be kept in memory.
template <class Arguments, bool Reduces>
class BlockGroup {
 public:
  static constexpr bool one_look = !std::is_same_v<Arguments, ProgramArguments>;  // the steps that come along are few
  using Shared = ProgramShared<one_look ? 1 : kMostParts>;
  __device__ BlockGroup(Shared& shared, const Arguments& arguments, u32 steps)
      : shared_(shared), arguments_(arguments), parts_(one_look ? 1 : min(blockDim.x / 32, (steps + 31) / 32)) {}
  __device__ u32 parts() const { return one_look ? 1 : parts_; }
  __device__ u32 lanes() const { return 32 * parts(); }
  __device__ u32 lane() const { return threadIdx.x; }
  __device__ bool leader() const { return threadIdx.x == 0; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool any(bool yes) const { return __syncthreads_or(yes) != 0; }
  __device__ u64 tell(u64 value) {
    turn_of_value_ ^= 1;
    if (leader()) shared_.value[turn_of_value_] = value;
    __syncthreads();
    return shared_.value[turn_of_value_];
  }

  __device__ void vote(bool ready, bool open, bool moving, u64 found, bool stop) {
    turn_ ^= 1;
    if (threadIdx.x < lanes()) {
      const u32 all_ready = __ballot_sync(~0u, ready), all_open = __ballot_sync(~0u, open);
      const u32 all_moving = __ballot_sync(~0u, moving);
      const bool stopped = __any_sync(~0u, stop) != 0;
      if (ready) shared_.found[turn_][threadIdx.x] = found;
      if (threadIdx.x % 32 == 0) {
        const u32 part = threadIdx.x / 32;
        shared_.ready[turn_][part] = all_ready;
        shared_.open[turn_][part] = all_open;
        shared_.moving[turn_][part] = all_moving;
        shared_.stopped[turn_][part] = stopped;
      }
    }
    __syncthreads();
  }
  __device__ bool any_ready() const { return first_ready() < lanes(); }
  __device__ bool all_ready() const {
    bool all = true;
    for (u32 part = 0; part < parts(); ++part) all = shared_.ready[turn_][part] == shared_.open[turn_][part] && all;
    return all;
  }
  __device__ u32 first_ready() const {
    for (u32 part = 0; part < parts(); ++part) {
      const u32 mask = shared_.ready[turn_][part];
      if (mask != 0) return part * 32 + static_cast<u32>(__ffs(static_cast<int>(mask)) - 1);
    }
    return lanes();
  }
  __device__ bool stopped() const {
    bool any = false;
    for (u32 part = 0; part < parts(); ++part) any = shared_.stopped[turn_][part] != 0 || any;
    return any;
  }
  __device__ u64 found(u32 lane) const { return shared_.found[turn_][lane]; }

  __device__ const device::Step& step(u32 i) const {
    if constexpr (one_look) {
      return arguments_.steps[i];
    } else {
      return arguments_.program.steps[i];
    }
  }
  __device__ u32 after(u32 i) const {
    if constexpr (one_look) {
      return arguments_.after[i];
    } else {
      return arguments_.program.after[i];
    }
  }
  /// Only those who look ask.
  __device__ bool done(u32 i) const { return (shared_.done[i / 32] >> (i % 32) & 1) != 0; }
  __device__ void mark(u32 base, bool yes) {
    if (threadIdx.x < lanes()) {
      const u32 mask = __ballot_sync(~0u, yes);
      if (threadIdx.x % 32 == 0) shared_.done[(base + threadIdx.x) / 32] |= mask;
    }
    if constexpr (one_look) {
      __syncwarp();
    } else {
      __syncthreads();  // whoever looks next asks for any of them
    }
  }

  /// Each lane of a warp asks for one step.
  __device__ u32 share(u32 base, u32 part, u32 role, u32 blocks, u32 item) const {
    const u32 lane = threadIdx.x % 32, moving = shared_.moving[turn_][part];
    if (moving == 0) return 0;
    bool some = false;
    if ((moving >> lane & 1) != 0) {
      const device::Step& one = step(base + part * 32 + lane);
      some = items_of(one, role, blocks, item).first < one.bytes;
    }
    return __ballot_sync(~0u, some);
  }
  /// Straight from the receive buffer's entry, which is this device's memory.
  __device__ void move(device::DirectMachine m, const device::Step& step, const device::RecvBuffer* recv_buffer, u32 role, u32 blocks,
                       u32 item) const {
    if constexpr (Reduces) {
      if (step.kind == device::StepKind::reduce) return reduce(m, step, role, blocks, item);
    }
    if (recv_buffer != nullptr && step.bytes > recv_buffer->capacity) return;
    const device::Side& to = recv_buffer != nullptr ? recv_buffer->to : step.to;
    const Items items = items_of(step, role, blocks, item);
    if (!device::contiguous(to) || !device::contiguous(step.from)) return copy_items(items, to, step.from);
    const u64 target = to.base, source = step.from.base, common = target | source | items.bytes;
    if (common % 16 == 0) {
      for (u64 at = items.first; at < items.bytes; at += items.stride) {
        const u64 left = items.bytes - at;
        device::copy_words<device::Word16>(m, threadIdx.x % 32, 32, target + at, source + at,
                                           (left < items.length ? left : items.length) / 16);
      }
    } else if (common % 8 == 0 && items.bytes == 8) {  // the payload of what waits for every nanosecond
      if (threadIdx.x % 32 == 0) *reinterpret_cast<u64*>(target) = *reinterpret_cast<const u64*>(source);
    } else {
      copy_runs(items, target, source);
    }
  }

 private:
  __device__ void reduce(device::DirectMachine m, const device::Step& step, u32 role, u32 blocks, u32 item) const {
    const Items items = items_of(step, role, blocks, item);
    const device::Reduction what = device::reduction_of(step);
    for (u64 at = items.first; at < items.bytes; at += items.stride) {
      const u64 end = items.bytes - at < items.length ? items.bytes : at + items.length;
      device::reduce_part(m, threadIdx.x % 32, 32, what, {at, end});
    }
  }
  static __device__ Items items_of(const device::Step& step, u32 role, u32 blocks, u32 item) {
    const u32 warps = blockDim.x / 32, all = warps * blocks;  // powers of two
    return {u64{(role * warps + threadIdx.x / 32 - step.recv_buffer) & (all - 1)} * item, u64{all} * item, item, step.bytes};
  }
  Shared& shared_;
  const Arguments& arguments_;
  const u32 parts_;
  u32 turn_ = 0, turn_of_value_ = 0;
};

template <bool Reduces, class Arguments>
__device__ inline void run_program(const Arguments& arguments, const ProgramArguments& common) {
  using Group = BlockGroup<Arguments, Reduces>;
  __shared__ typename Group::Shared shared;
  for (u32 i = threadIdx.x; i < (common.program.step_count + 31) / 32; i += blockDim.x) shared.done[i] = 0;
  device::Executor<device::DirectMachine, Group> block({}, Group(shared, arguments, common.program.step_count), common.program,
                                                       common.blocks, blockIdx.x, common.item);
  if (!block.begin()) return;
  while (!block.pass()) {
  }
}

extern "C" __global__ void __launch_bounds__(512) thalweg_program_small(const __grid_constant__ SmallProgram program) {
  run_program<false>(program, program.common);
}
extern "C" __global__ void __launch_bounds__(512) thalweg_program_large(const __grid_constant__ LargeProgram program) {
  run_program<false>(program, program.common);
}
extern "C" __global__ void __launch_bounds__(512) thalweg_program_placed(const __grid_constant__ ProgramArguments program) {
  run_program<false>(program, program);
}
extern "C" __global__ void __launch_bounds__(512) thalweg_reduce_large(const __grid_constant__ LargeProgram program) {
  run_program<true>(program, program.common);
}
extern "C" __global__ void __launch_bounds__(512) thalweg_reduce_placed(const __grid_constant__ ProgramArguments program) {
  run_program<true>(program, program);
}

}  // namespace thalweg::impl::cuda
