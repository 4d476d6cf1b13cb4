// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.hpp"

#include <thalweg/views.h>

#include <utility>

#include "base/clock.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kAskNs = 10 * kMillisecond;
constexpr int kNapMs = 20;

struct Interrupt {
  tw_interrupt asked = nullptr;
  void* arg = nullptr;
};
thread_local Interrupt interrupt;
thread_local WaitWatch* watch = nullptr;
thread_local uint64_t asked_at = 0;  // of the last question
thread_local bool asking = false;    // a watch's progress may itself wait

}  // namespace

WaitWatch::WaitWatch(Look look, void* arg) : look_(look), arg_(arg), outer_(std::exchange(watch, this)) {}
WaitWatch::~WaitWatch() { watch = outer_; }

Status WaitWatch::ask() const {
  const Status status = look_(arg_);
  return is_error(status) || outer_ == nullptr ? status : outer_->ask();
}

bool may_be_interrupted() { return interrupt.asked != nullptr || watch != nullptr; }

Status interrupted() {
  if (!may_be_interrupted() || asking) return TW_OK;
  const uint64_t now = monotonic_ns();
  if (now - asked_at < kAskNs) return TW_OK;
  asked_at = now;
  if (interrupt.asked != nullptr && interrupt.asked(interrupt.arg) != 0)
    return fail(TW_ERR_CANCELED, "the wait was interrupted");
  if (watch == nullptr) return TW_OK;
  asking = true;
  const Status status = watch->ask();
  asking = false;
  return is_error(status) ? status : Status{TW_OK};
}

int interruptible_ms(int left_ms) {
  if (!may_be_interrupted() || (left_ms >= 0 && left_ms < kNapMs)) return left_ms;
  return kNapMs;
}

}  // namespace thalweg::impl

extern "C" void tw_set_interrupt(tw_interrupt asked, void* arg) {
  thalweg::impl::interrupt = {asked, arg};
  thalweg::impl::asked_at = 0;
}
