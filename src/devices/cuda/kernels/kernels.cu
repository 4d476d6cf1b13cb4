// SPDX-License-Identifier: Apache-2.0
// The library's kernels, as CUDA launches them; what they do stands in devices/kernel.hpp, and how in devices/kernels/. All of them
// run on one-dimensional grids, any number of blocks, whole warps.
#define THALWEG_DEVICE_CALL __host__ __device__ __forceinline__  // all in line, as devices/kernels/ wants it
#include "devices/kernels/block_group.hpp"
#include "devices/kernels/copies.hpp"
#include "devices/kernels/exchange.hpp"
#include "devices/kernels/exchange_counted.hpp"
#include "devices/kernels/exchange_symmetric.hpp"
#include "devices/kernels/independent.hpp"
#include "devices/kernels/persistent.hpp"
#include "devices/kernels/specialised.hpp"
#include "devices/kernels/words.hpp"

namespace thalweg::impl::kernels {

constexpr unsigned kThreads = 512;  // of a block, at most

#define THALWEG_KERNEL(name) extern "C" __global__ void __launch_bounds__(kThreads) name

THALWEG_KERNEL(thalweg_copy_wide)(const __grid_constant__ CopyArguments copy) { copy_wide(copy); }
THALWEG_KERNEL(thalweg_copy_narrow)(const __grid_constant__ CopyArguments copy) { copy_narrow(copy); }
THALWEG_KERNEL(thalweg_copy_blocks)(const __grid_constant__ BlocksArguments blocks) { copy_blocks(blocks); }
extern "C" __global__ void thalweg_signal(const __grid_constant__ Ends ends) { give_signal(ends); }
extern "C" __global__ void thalweg_atomic(const __grid_constant__ AtomicArguments atomic) { change(atomic); }
extern "C" __global__ void thalweg_wait_ahead(const __grid_constant__ device::WaitAhead waits) { wait_ahead(waits); }
extern "C" __global__ void thalweg_clock(device::u64* to) { machine::release(to, machine::nanoseconds()); }
extern "C" __global__ void thalweg_wait(const __grid_constant__ WaitArguments arguments) { wait(arguments); }

THALWEG_KERNEL(thalweg_persistent)(const __grid_constant__ persistent::Arguments arguments) {
  __shared__ PersistentShared shared;
  stay<kThreads>(arguments, shared);
}

// Two blocks find room on a multiprocessor: kernels of two groups, of as many blocks as there are multiprocessors, do so together.
#define THALWEG_EXCHANGE(name) extern "C" __global__ void __launch_bounds__(kThreads, 2) name
#define THALWEG_PROTOCOL(name, low_latency, Elements)                           \
  THALWEG_EXCHANGE(name)(const __grid_constant__ ExchangeArguments arguments) { \
    run_exchange<low_latency, device::Elements>(arguments);                     \
  }
#define THALWEG_WORDS(name, ranks) \
  THALWEG_EXCHANGE(name)(const __grid_constant__ ExchangeArguments arguments) { run_words<ranks>(arguments); }
THALWEG_WORDS(thalweg_exchange_words_2, 2)
THALWEG_WORDS(thalweg_exchange_words_4, 4)
THALWEG_WORDS(thalweg_exchange_words_8, 8)
// Half as many threads, with registers for the lines of all ranks.
#define THALWEG_LINES(name, ranks, form)                                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads / 2, 2) name(const __grid_constant__ ExchangeArguments arguments) { \
    run_lines<ranks, device::LinesForm::form>(arguments);                                                                   \
  }
THALWEG_LINES(thalweg_exchange_lines_2, 2, one_phase)
THALWEG_LINES(thalweg_exchange_lines_4, 4, one_phase)
THALWEG_LINES(thalweg_exchange_lines_8, 8, one_phase)
THALWEG_LINES(thalweg_exchange_lines_two_2, 2, two_phases)
THALWEG_LINES(thalweg_exchange_lines_two_4, 4, two_phases)
THALWEG_LINES(thalweg_exchange_lines_two_8, 8, two_phases)
THALWEG_LINES(thalweg_exchange_lines_any, 8, any)
THALWEG_PROTOCOL(thalweg_exchange_ll, true, CommonElements)
THALWEG_PROTOCOL(thalweg_exchange_simple, false, CommonElements)
THALWEG_PROTOCOL(thalweg_exchange_simple_sums, false, SumElements)
THALWEG_PROTOCOL(thalweg_exchange_ll_any, true, AnyElements)
THALWEG_PROTOCOL(thalweg_exchange_simple_any, false, AnyElements)
#define THALWEG_SYMMETRIC(name, ...)                                            \
  THALWEG_EXCHANGE(name)(const __grid_constant__ ExchangeArguments arguments) { \
    __shared__ device::SymmetricPeers peers;                                    \
    run_symmetric<__VA_ARGS__>(arguments, peers);                               \
  }
THALWEG_SYMMETRIC(thalweg_exchange_symmetric, BlockSymmetric<device::SymmetricForm::any>)
THALWEG_SYMMETRIC(thalweg_exchange_symmetric_stores, BlockSymmetric<device::SymmetricForm::stores>)
THALWEG_SYMMETRIC(thalweg_exchange_symmetric_broadcasts, BlockSymmetric<device::SymmetricForm::broadcasts>)
THALWEG_SYMMETRIC(thalweg_exchange_symmetric_sums, BlockSymmetric<device::SymmetricForm::sums>)
THALWEG_SYMMETRIC(thalweg_exchange_slots, BlockSlots<device::CommonElements>)
THALWEG_SYMMETRIC(thalweg_exchange_slots_sums, BlockSlots<device::SumElements>)
THALWEG_EXCHANGE(thalweg_exchange_counted)(const __grid_constant__ CountedArguments arguments) {
  __shared__ device::CountedPairs pairs;
  run_counted(arguments, pairs);
}

#define THALWEG_PROGRAM(name, reduces, Arguments, common)              \
  THALWEG_KERNEL(name)(const __grid_constant__ Arguments arguments) {  \
    __shared__ typename BlockGroup<Arguments, reduces>::Shared shared; \
    run_program<reduces>(arguments, common, shared);                   \
  }
THALWEG_PROGRAM(thalweg_program_small, false, SmallProgram, arguments.common)
THALWEG_PROGRAM(thalweg_program_large, false, LargeProgram, arguments.common)
THALWEG_PROGRAM(thalweg_program_placed, false, ProgramArguments, arguments)
THALWEG_PROGRAM(thalweg_reduce_large, true, LargeProgram, arguments.common)
THALWEG_PROGRAM(thalweg_reduce_placed, true, ProgramArguments, arguments)

#define THALWEG_SPECIALISED(name, poll, move, Arguments, common)        \
  THALWEG_KERNEL(name)(const __grid_constant__ Arguments arguments) {   \
    __shared__ SpecialisedShared shared;                                \
    run_specialised<Poll::poll, Move::move>(arguments, common, shared); \
  }
#define THALWEG_LISTS(name, poll)                                               \
  THALWEG_SPECIALISED(name##_small, poll, list, SmallProgram, arguments.common) \
  THALWEG_SPECIALISED(name##_large, poll, list, LargeProgram, arguments.common) \
  THALWEG_SPECIALISED(name##_placed, poll, list, ProgramArguments, arguments)
#define THALWEG_MOVE(move)                                                                         \
  THALWEG_SPECIALISED(thalweg_specialised_##move, none, move, SmallProgram, arguments.common)      \
  THALWEG_SPECIALISED(thalweg_specialised_wait_##move, wait, move, SmallProgram, arguments.common) \
  THALWEG_SPECIALISED(thalweg_specialised_take_##move, take, move, SmallProgram, arguments.common)

THALWEG_SPECIALISED(thalweg_specialised_wait, wait, none, SmallProgram, arguments.common)
THALWEG_SPECIALISED(thalweg_specialised_take, take, none, SmallProgram, arguments.common)
THALWEG_MOVE(aligned)
THALWEG_MOVE(rows4)
THALWEG_MOVE(rows8)
THALWEG_MOVE(rows16)
THALWEG_MOVE(sides)
THALWEG_MOVE(send)
THALWEG_LISTS(thalweg_specialised_list, none)
THALWEG_LISTS(thalweg_specialised_wait_list, wait)
THALWEG_LISTS(thalweg_specialised_take_list, take)
#define THALWEG_INDEPENDENT(name, Arguments, common)                  \
  THALWEG_KERNEL(name)(const __grid_constant__ Arguments arguments) { \
    __shared__ IndependentShared shared;                              \
    run_independent(arguments, common, shared);                       \
  }
THALWEG_INDEPENDENT(thalweg_specialised_independent_large, LargeProgram, arguments.common)
THALWEG_INDEPENDENT(thalweg_specialised_independent_placed, ProgramArguments, arguments)

}  // namespace thalweg::impl::kernels
