// SPDX-License-Identifier: Apache-2.0
// Programs: one launch each, with the steps where they are few.
#include <algorithm>

#include "devices/cuda/queue.hpp"
#include "devices/kernels/arguments.hpp"
#include "devices/program/exchange_kernel.hpp"

namespace thalweg::impl::cuda {
namespace {

using namespace kernels;

constexpr unsigned kEarlyThreads = 512, kEarlyBlocks = 16;  // of a kernel that may begin before the one ahead has ended
/// first: of those for two, four and eight ranks, in this order.
KernelName of_ranks(KernelName first, unsigned ranks) {
  return static_cast<KernelName>(static_cast<unsigned>(first) + (ranks <= 2 ? 0 : ranks <= 4 ? 1 : 2));
}
KernelName name_of(device::ExchangeKernel kernel, unsigned ranks) {
  using device::ExchangeKernel;
  switch (kernel) {
    case ExchangeKernel::counted:
      return KernelName::exchange_counted;
    case ExchangeKernel::slots_sums:
      return KernelName::exchange_slots_sums;
    case ExchangeKernel::slots:
      return KernelName::exchange_slots;
    case ExchangeKernel::symmetric:
      return KernelName::exchange_symmetric;
    case ExchangeKernel::symmetric_stores:
      return KernelName::exchange_symmetric_stores;
    case ExchangeKernel::symmetric_broadcasts:
      return KernelName::exchange_symmetric_broadcasts;
    case ExchangeKernel::symmetric_sums:
      return KernelName::exchange_symmetric_sums;
    case ExchangeKernel::lines_one_phase:
      return of_ranks(KernelName::exchange_lines_2, ranks);
    case ExchangeKernel::lines_two_phases:
      return of_ranks(KernelName::exchange_lines_two_2, ranks);
    case ExchangeKernel::lines_any:
      return KernelName::exchange_lines_any;
    case ExchangeKernel::words:
      return of_ranks(KernelName::exchange_words_2, ranks);
    case ExchangeKernel::ll_any:
      return KernelName::exchange_ll_any;
    case ExchangeKernel::ll:
      return KernelName::exchange_ll;
    case ExchangeKernel::simple_any:
      return KernelName::exchange_simple_any;
    case ExchangeKernel::simple_sums:
      return KernelName::exchange_simple_sums;
    default:
      return KernelName::exchange_simple;
  }
}
bool starts_small(const ProgramShape& shape) { return shape.blocks * shape.threads <= kEarlyBlocks * kEarlyThreads; }

static_assert(std::size(LargeProgram().steps) == kInlineSteps && std::size(LargeProgram().after) == kInlineAfter);

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

/// Which kernel runs a program whose arguments are of a size: small, large, placed.
KernelName kernel_for(const ProgramShape& shape, unsigned size) {
  const device::Specialised& specialised = shape.specialised;
  if (shape.reduces) return size == 2 ? KernelName::reduce_placed : KernelName::reduce_large;
  const auto after = [](KernelName first, unsigned n) { return static_cast<KernelName>(static_cast<unsigned>(first) + n); };
  const auto poll = static_cast<unsigned>(specialised.poll);
  switch (specialised.move) {
    case device::Move::none:
      return specialised.known() ? after(KernelName::specialised_wait, poll - 1) : after(KernelName::program_small, size);
    case device::Move::aligned:
      return after(KernelName::specialised_aligned, poll);
    case device::Move::rows4:
      return after(KernelName::specialised_rows4, poll);
    case device::Move::rows8:
      return after(KernelName::specialised_rows8, poll);
    case device::Move::rows16:
      return after(KernelName::specialised_rows16, poll);
    case device::Move::sides:
      return after(KernelName::specialised_sides, poll);
    case device::Move::send:
      return after(KernelName::specialised_send, poll);
    case device::Move::independent:
      return size == 2 ? KernelName::specialised_independent_placed : KernelName::specialised_independent_large;
    default:
      return after(KernelName::specialised_list_small, 3 * poll + size);
  }
}

}  // namespace

Status CudaQueue::run(const ProgramRun& program) {
  const Current current(driver(), context_, ready());
  const Relaxed relaxed(driver(), current.status());
  if (is_error(current.status())) return current.status();
  if (program.exchange != nullptr) return run_exchange(program);
  const auto* const placed = reinterpret_cast<const device::Step*>(program.placed);
  const ProgramShape& shape = program.shape;
  ProgramArguments common{program_of(program), shape.blocks, shape.item, shape.specialised, nullptr};
  common.program.steps = placed;
  common.program.after = reinterpret_cast<const unsigned*>(placed + program.steps.size());
  common.numbers = common.program.after + program.after.size();
  const bool small = shape.specialised.known() && shape.blocks == 1 && shape.threads <= kEarlyThreads;
  const bool may_be_small = !shape.reduces && shape.specialised.move != device::Move::independent;
  if (may_be_small && fits(static_cast<SmallProgram*>(nullptr), program))
    return launch_program(kernel_for(shape, 0), shape, small, inlined<kSmallSteps, kSmallAfter>(common, program));
  if (fits(static_cast<LargeProgram*>(nullptr), program))
    return launch_program(kernel_for(shape, 1), shape, small, inlined<kInlineSteps, kInlineAfter>(common, program));
  if (placed == nullptr)
    return fail(TW_ERR_INVALID, "a program of %zu steps must be placed where the device reads it", program.steps.size());
  return launch_program(kernel_for(shape, 2), shape, small, common);
}

Status CudaQueue::run_exchange(const ProgramRun& program) {
  const device::Exchange& exchange = *program.exchange;
  const kernels::ExchangeArguments arguments{program_of(program), program.shape.blocks, 0, exchange};
  const KernelName name = name_of(device::kernel_of(exchange, program.counts != nullptr), exchange.size);
  if (program.counts != nullptr)
    return launch_program(name, program.shape, false, kernels::CountedArguments{arguments, *program.counts});
  // One that starts early holds its multiprocessors while the kernel before it still waits for other ranks: not those that another
  // rank's kernel needs, which is waited for.
  const bool waits_little = exchange.low_latency != 0 || exchange.symmetric != 0;
  return launch_program(name, program.shape, waits_little && starts_small(program.shape) && !program.shares_device, arguments);
}

template <class Arguments>
Status CudaQueue::launch_program(KernelName name, const ProgramShape& shape, bool early_start, const Arguments& arguments) {
  CuFunction function = nullptr;
  if (Status s = device_.backend().kernels().get(name, &function); is_error(s)) return s;
  void* parameters[] = {const_cast<Arguments*>(&arguments)};
  // Only what is small: it sits on a multiprocessor while it waits for the kernel before it.
  LaunchAttribute early{kProgrammaticSerialization, 0, {}};
  early.allowed = 1;
  const LaunchConfig config{
      shape.blocks, 1, 1, shape.threads, 1, 1, 0, stream_, &early, early_start && device_.starts_early() ? 1u : 0u};
  const Turn turn(device_);
  return check(driver().LaunchKernelEx(&config, function, parameters, nullptr), "launching a program");
}

}  // namespace thalweg::impl::cuda
