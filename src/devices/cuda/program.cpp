// SPDX-License-Identifier: Apache-2.0
// Programs: one launch each, with the steps where they are few.
#include <algorithm>
#include <bit>

#include "devices/cuda/kernels/arguments.hpp"
#include "devices/cuda/queue.hpp"

namespace thalweg::impl::cuda {
namespace {

constexpr unsigned kWarp = 32, kMostThreads = 512;

static_assert(std::size(LargeProgram().steps) == kInlineSteps && std::size(LargeProgram().after) == kInlineAfter);

/// A thread for each 32 bytes of a block's share.
unsigned threads_for(const ProgramRun& program) {
  uint64_t bytes = 0;
  for (const device::Step& step : program.steps) {
    if (step.kind == device::StepKind::copy || step.kind == device::StepKind::send) bytes += step.bytes;
  }
  return static_cast<unsigned>(std::bit_ceil(std::clamp<uint64_t>(bytes / program.shape.blocks / 32, kWarp, kMostThreads)));
}

template <unsigned Steps, unsigned Numbers>
InlineProgram<Steps, Numbers> inlined(const ProgramArguments& common, const ProgramRun& program) {
  InlineProgram<Steps, Numbers> out;  // what is not used stays undefined
  out.common = common;
  std::copy(program.steps.begin(), program.steps.end(), out.steps);
  std::copy(program.after.begin(), program.after.end(), out.after);
  return out;
}

template <unsigned Steps, unsigned Numbers>
bool fits(const InlineProgram<Steps, Numbers>*, const ProgramRun& program) {
  return program.steps.size() <= Steps && program.after.size() <= Numbers;
}

}  // namespace

Status CudaQueue::run(const ProgramRun& program) {
  const Current current(driver(), context_, ready());
  const Relaxed relaxed(driver(), current.status());
  if (is_error(current.status())) return current.status();
  const auto* const placed = reinterpret_cast<const device::Step*>(program.placed);
  const ProgramArguments common{
      {placed, static_cast<unsigned>(program.steps.size()), reinterpret_cast<const unsigned*>(placed + program.steps.size()),
       reinterpret_cast<device::ProgramState*>(program.state), program.guard},
      program.shape.blocks,
      program.shape.item};
  if (fits(static_cast<SmallProgram*>(nullptr), program))
    return launch_program(KernelName::program_small, program, inlined<2, 8>(common, program));
  if (fits(static_cast<LargeProgram*>(nullptr), program))
    return launch_program(KernelName::program_large, program, inlined<kInlineSteps, kInlineAfter>(common, program));
  if (placed == nullptr)
    return fail(TW_ERR_INVALID, "a program of %zu steps must be placed where the device reads it", program.steps.size());
  return launch_program(KernelName::program_placed, program, common);
}

template <class Arguments>
Status CudaQueue::launch_program(KernelName name, const ProgramRun& program, const Arguments& arguments) {
  CuFunction function = nullptr;
  if (Status s = device_.backend().kernels().get(name, &function); is_error(s)) return s;
  void* parameters[] = {const_cast<Arguments*>(&arguments)};
  return check(
      driver().LaunchKernel(function, program.shape.blocks, 1, 1, threads_for(program), 1, 1, 0, stream_, parameters, nullptr),
      "launching a program");
}

}  // namespace thalweg::impl::cuda
