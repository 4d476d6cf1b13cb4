// SPDX-License-Identifier: Apache-2.0
// What a step of a program waits for: a word of its own.
#pragma once
#include <thalweg/device/channel_steps.hpp>
#include <thalweg/device/wait.hpp>

namespace thalweg::device {

constexpr u32 kSlotWord = 3;  // beside Compare: a word of a channel's slot

/// What a step waits for; word null: nothing.
struct Watch {
  const u64* word;
  u64 value;
  u32 how;  // Compare, or kSlotWord: value is the number of the operation

  THALWEG_DEVICE bool reached(u64 found) const {
    return how == kSlotWord ? slot_reached(found, value) : holds(found, static_cast<Compare>(how), value);
  }
  /// Slots' words as numbers of messages, for a Failure.
  THALWEG_DEVICE u64 expected() const { return how == kSlotWord ? value + 1 : value; }
  THALWEG_DEVICE u64 shown(u64 found) const { return how == kSlotWord ? found >> 16 : found; }
};

/// The slot of the n-th operation.
THALWEG_DEVICE Watch watch_slot(const u64* slots, u64 n) { return {slots + n % kSlots, n, kSlotWord}; }

/// The count of the channel's end that a step belongs to: what it was before a run of the program. Null: another kind of step.
THALWEG_DEVICE u64* count_of(const Step& step) {
  static_assert(__builtin_offsetof(SendEnd, count) == __builtin_offsetof(RecvEnd, posted));  // no branch for each kind
  const bool in_channel = step.kind == StepKind::send || step.kind == StepKind::post || step.kind == StepKind::take;
  const u64 at = step.kind == StepKind::take ? __builtin_offsetof(RecvEnd, taken) : __builtin_offsetof(RecvEnd, posted);
  return in_channel ? reinterpret_cast<u64*>(reinterpret_cast<u64>(step.end) + at) : nullptr;
}

}  // namespace thalweg::device
