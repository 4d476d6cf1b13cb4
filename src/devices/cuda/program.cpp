// SPDX-License-Identifier: Apache-2.0
// Programs: one launch each, with the steps where they are few.
#include <algorithm>

#include "devices/cuda/queue.hpp"
#include "devices/kernels/arguments.hpp"
#include "devices/program/exchange_lines.hpp"
#include "devices/program/exchange_symmetric.hpp"

namespace thalweg::impl::cuda {
namespace {

using namespace kernels;

constexpr unsigned kEarlyThreads = 512, kEarlyBlocks = 16;  // of a kernel that may begin before the one ahead has ended
/// first: of those for two, four and eight ranks, in this order.
KernelName of_ranks(KernelName first, unsigned ranks) {
  return static_cast<KernelName>(static_cast<unsigned>(first) + (ranks <= 2 ? 0 : ranks <= 4 ? 1 : 2));
}
KernelName lines_kernel(const device::Exchange& exchange) {
  switch (device::form_of(exchange)) {
    case device::LinesForm::one_phase:
      return of_ranks(KernelName::exchange_lines_2, exchange.size);
    case device::LinesForm::two_phases:
      return of_ranks(KernelName::exchange_lines_two_2, exchange.size);
    default:
      return KernelName::exchange_lines_any;
  }
}
KernelName symmetric_kernel(const device::Exchange& exchange) {
  if (exchange.by_slots != 0)
    return device::SumElements::suffice(exchange) ? KernelName::exchange_slots_sums : KernelName::exchange_slots;
  const auto form = static_cast<unsigned>(device::form_of_symmetric(exchange));
  return static_cast<KernelName>(static_cast<unsigned>(KernelName::exchange_symmetric) + form);
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
  common.pieces = common.program.after + program.after.size();
  const bool small = shape.specialised.known() && shape.blocks == 1 && shape.threads <= kEarlyThreads;
  if (!shape.reduces && fits(static_cast<SmallProgram*>(nullptr), program))
    return launch_program(kernel_for(shape, 0), shape, small, inlined<kSmallSteps, kSmallAfter>(common, program));
  if (fits(static_cast<LargeProgram*>(nullptr), program))
    return launch_program(kernel_for(shape, 1), shape, small, inlined<kInlineSteps, kInlineAfter>(common, program));
  if (placed == nullptr)
    return fail(TW_ERR_INVALID, "a program of %zu steps must be placed where the device reads it", program.steps.size());
  return launch_program(kernel_for(shape, 2), shape, small, common);
}

Status CudaQueue::run_exchange(const ProgramRun& program) {
  const kernels::ExchangeArguments arguments{program_of(program), program.shape.blocks, 0, *program.exchange};
  if (program.counts != nullptr)
    return launch_program(KernelName::exchange_counted, program.shape, false,
                          kernels::CountedArguments{arguments, *program.counts});
  // One that starts early holds its multiprocessors while the kernel before it still waits for other ranks: not those that another
  // rank's kernel needs, which is waited for.
  const bool early = starts_small(program.shape) && !program.shares_device;
  if (program.exchange->symmetric != 0)
    return launch_program(symmetric_kernel(*program.exchange), program.shape, early, arguments);
  if (program.exchange->one_word != 0)
    return launch_program(of_ranks(KernelName::exchange_words_2, program.exchange->size), program.shape, early, arguments);
  if (program.exchange->lines != 0) return launch_program(lines_kernel(*program.exchange), program.shape, early, arguments);
  const bool low_latency = program.exchange->low_latency != 0, any = program.exchange->any != 0;
  const KernelName ll = any ? KernelName::exchange_ll_any : KernelName::exchange_ll;
  const KernelName simple = any                                               ? KernelName::exchange_simple_any
                            : device::SumElements::suffice(*program.exchange) ? KernelName::exchange_simple_sums
                                                                              : KernelName::exchange_simple;
  return launch_program(low_latency ? ll : simple, program.shape, low_latency && early, arguments);
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
  return check(driver().LaunchKernelEx(&config, function, parameters, nullptr), "launching a program");
}

}  // namespace thalweg::impl::cuda
