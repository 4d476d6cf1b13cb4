// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.hpp"

#include <thalweg/views.h>

#include "base/clock.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kAskNs = 10 * kMillisecond;
constexpr int kNapMs = 20;

struct Interrupt {
  tw_interrupt asked = nullptr;
  void* arg = nullptr;
  uint64_t at = 0;  // of the last question
};
thread_local Interrupt interrupt;

}  // namespace

bool may_be_interrupted() { return interrupt.asked != nullptr; }

Status interrupted() {
  if (interrupt.asked == nullptr) return TW_OK;
  const uint64_t now = monotonic_ns();
  if (now - interrupt.at < kAskNs) return TW_OK;
  interrupt.at = now;
  if (interrupt.asked(interrupt.arg) == 0) return TW_OK;
  return fail(TW_ERR_CANCELED, "the wait was interrupted");
}

int interruptible_ms(int left_ms) {
  if (interrupt.asked == nullptr || (left_ms >= 0 && left_ms < kNapMs)) return left_ms;
  return kNapMs;
}

}  // namespace thalweg::impl

extern "C" void tw_set_interrupt(tw_interrupt asked, void* arg) { thalweg::impl::interrupt = {asked, arg, 0}; }
