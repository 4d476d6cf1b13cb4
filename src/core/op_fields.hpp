// SPDX-License-Identifier: Apache-2.0
// Which options a call takes. What makes no sense for it is refused by name, and nothing is ignored.
#pragma once
#include <thalweg/thalweg.h>

#include <cstddef>
#include <cstring>

#include "base/status.hpp"

namespace thalweg::impl {

/// Bits: options that turn something on.
namespace fields {
inline constexpr uint32_t layout = 1u << 0, remote_layout = 1u << 1, immediate = 1u << 2, signal = 1u << 3, source = 1u << 4,
                          callback = 1u << 5, queue = 1u << 6, counter = 1u << 7, record = 1u << 8, done = 1u << 9,
                          after = 1u << 10, notify = 1u << 11, increment = 1u << 12, after_steps = 1u << 13;
inline constexpr uint32_t told = callback | queue | counter | record | done;
/// Those of no call: they say how another one is meant, which is missing.
inline constexpr uint32_t no_kind = 1u << 14, no_signal = 1u << 15, no_handler = 1u << 16, reserved = 1u << 17;
}  // namespace fields

struct Takes {
  const char* call;
  uint32_t fields, flags;
  bool step;  // of a plan, or on a queue
};

inline uint32_t fields_of(const tw_op_options& o) {
  const auto bit = [](bool on, uint32_t field) { return on ? field : 0u; };
  return bit(o.layout != nullptr, fields::layout) | bit(o.remote_layout != nullptr, fields::remote_layout) |
         bit(o.immediate != 0 && o.notify == TW_NOTIFY_NONE, fields::immediate) | bit(o.signal != nullptr, fields::signal) |
         bit(o.source != nullptr, fields::source) | bit(o.callback != nullptr, fields::callback) |
         bit(o.queue != nullptr, fields::queue) | bit(o.counter != nullptr, fields::counter) |
         bit(o.record != nullptr, fields::record) | bit(o.done != nullptr, fields::done) |
         bit(o.after_kind != TW_AFTER_NONE, fields::after) | bit(o.notify != TW_NOTIFY_NONE, fields::notify) |
         bit(o.increment != 0, fields::increment) | bit(o.after_count != 0, fields::after_steps) |
         bit(o.after != nullptr && o.after_kind == TW_AFTER_NONE, fields::no_kind) |
         bit((o.signal_value | o.signal_op) != 0 && o.signal == nullptr, fields::no_signal) |
         bit(o.handler != 0 && o.notify == TW_NOTIFY_NONE, fields::no_handler) | bit(o.reserved != 0, fields::reserved);
}

/// Two neighbours of 32 bits by one load: not of what callers have just stored, which such a load would wait for.
inline uint64_t pair_at(const tw_op_options& o, size_t offset) {
  uint64_t both;
  std::memcpy(&both, reinterpret_cast<const std::byte*>(&o) + offset, sizeof both);
  return both;
}

/// Nothing but where the end is told: no call refuses that, and it changes nothing of what moves.
inline bool only_sinks(const tw_op_options& o) {
  static_assert(offsetof(tw_op_options, reserved) == offsetof(tw_op_options, after_kind) + 4 &&
                offsetof(tw_op_options, handler) == offsetof(tw_op_options, notify) + 4);
  const auto word = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const uint64_t numbers =
      (o.flags | o.signal_op) | pair_at(o, offsetof(tw_op_options, after_kind)) | pair_at(o, offsetof(tw_op_options, notify));
  const uint64_t pointers = word(o.layout) | word(o.remote_layout) | word(o.signal) | word(o.source) | word(o.after);
  return o.size >= sizeof o && (numbers | pointers | o.immediate | o.signal_value | o.increment | o.after_count) == 0;
}

/// Nothing but a callback.
inline bool only_calls(const tw_op_options& o) {
  const auto word = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  return (word(o.queue) | word(o.counter) | word(o.record) | word(o.done)) == 0 && o.callback != nullptr && only_sinks(o);
}

[[gnu::cold]] Status refuse_options(const tw_op_options& options, const Takes& takes);

/// TW_ERR_INVALID: the options say what the call cannot do.
inline Status check_options(const tw_op_options& options, const Takes& takes) {
  if (((fields_of(options) & ~takes.fields) | (options.flags & ~takes.flags)) == 0) [[likely]]
    return TW_OK;
  return refuse_options(options, takes);
}

}  // namespace thalweg::impl
