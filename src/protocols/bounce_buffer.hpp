// SPDX-License-Identifier: Apache-2.0
// A payload that came in frames for a receive that cannot be written yet: its buffer is device memory, or a user's
// stream still uses it. It stays in host memory of the run (OpRun::bounce_buffer) and is moved on when that is possible.
#pragma once
#include "protocols/engine.hpp"

namespace thalweg::impl {

inline bool needs_bounce_buffer(const OpDesc& op) { return (op.flags & (kOpDevice | kOpLate)) != 0; }
/// Room for what the receive takes of a message of `length` bytes, with run.cursor at its start. False: no memory.
bool open_bounce_buffer(OpRun& run, uint64_t length);
/// All of run.info.length bytes are in the bounce buffer (as far as the receive takes them): completes the run in the end.
void deliver_bounce_buffer(Engine& engine, OpRun& run);

/// The first `length` bytes of the bounce buffer go to the run's device; `then` when they are there.
void unload_bounce_buffer(Engine& engine, OpRun& run, uint64_t length, Then then);

}  // namespace thalweg::impl
