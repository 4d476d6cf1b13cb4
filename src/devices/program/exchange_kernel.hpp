// SPDX-License-Identifier: Apache-2.0
// Which kernel runs an exchange: one choice for GPUs (cuda/program.cpp) and emulated devices (one_thread_run.hpp).
#pragma once
#include "devices/program/exchange_lines.hpp"
#include "devices/program/exchange_reduce.hpp"
#include "devices/program/exchange_symmetric.hpp"

namespace thalweg::device {

enum class ExchangeKernel : u32 {
  counted,
  slots_sums,  // of nothing but SumElements
  slots,
  symmetric,  // as SymmetricForm has them
  symmetric_stores,
  symmetric_broadcasts,
  symmetric_sums,
  lines_one_phase,
  lines_two_phases,
  lines_any,
  words,
  ll_any,  // of any type, scaled, of parts
  ll,
  simple_any,
  simple_sums,
  simple,
};

constexpr ExchangeKernel kernel_of(const Exchange& x, bool counted) {
  if (counted) return ExchangeKernel::counted;
  const bool sums = SumElements::suffice(x);
  if (x.by_slots != 0) return sums ? ExchangeKernel::slots_sums : ExchangeKernel::slots;
  if (x.symmetric != 0)
    return static_cast<ExchangeKernel>(static_cast<u32>(ExchangeKernel::symmetric) + static_cast<u32>(form_of_symmetric(x)));
  if (x.one_word != 0) return ExchangeKernel::words;
  if (x.lines != 0) {
    const LinesForm form = form_of(x);
    return form == LinesForm::one_phase    ? ExchangeKernel::lines_one_phase
           : form == LinesForm::two_phases ? ExchangeKernel::lines_two_phases
                                           : ExchangeKernel::lines_any;
  }
  if (x.low_latency != 0) return x.any != 0 ? ExchangeKernel::ll_any : ExchangeKernel::ll;
  return x.any != 0 ? ExchangeKernel::simple_any : sums ? ExchangeKernel::simple_sums : ExchangeKernel::simple;
}
static_assert(static_cast<u32>(SymmetricForm::sums) ==
              static_cast<u32>(ExchangeKernel::symmetric_sums) - static_cast<u32>(ExchangeKernel::symmetric));

}  // namespace thalweg::device
