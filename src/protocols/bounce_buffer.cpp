// SPDX-License-Identifier: Apache-2.0
// Bounce buffers.
#include "protocols/bounce_buffer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "protocols/rendezvous.hpp"
#include "protocols/staging.hpp"

namespace thalweg::impl {
namespace {

void landed(Engine& engine, OpRun& run, Status status) {
  is_error(status) ? engine.complete(run, status) : engine.complete_received(run);
}

void move_on(Engine& engine, OpRun& run, Status status) {
  if (is_error(status) || wanted(run) == 0) return landed(engine, run, status);
  if ((run.op->flags & kOpDevice) != 0) return unload_bounce_buffer(engine, run, wanted(run), landed);
  LayoutCursor to(run.op->address, run.op->layout, run.op->length);
  unpack(to, run.bounce_buffer, wanted(run));
  landed(engine, run, TW_OK);
}

}  // namespace

void unload_bounce_buffer(Engine& engine, OpRun& run, uint64_t length, Then then) {
  stage(engine, run, Staging::Direction::in, 0, length);
  for (uint64_t at = 0; at < length;) {
    size_t n = 0;
    Status status = TW_OK;
    std::byte* room = run.staging->room(at, &n, &status);
    if (room == nullptr) return then(engine, run, status);
    std::memcpy(room, run.bounce_buffer + at, n);
    at += n;
    run.staging->filled(at, then);
  }
}

bool open_bounce_buffer(OpRun& run, uint64_t length) {
  const uint64_t n = std::min(length, run.op->length);
  run.bounce_buffer = static_cast<std::byte*>(std::malloc(std::max<uint64_t>(n, 1)));
  run.extras = true;
  run.cursor.reset(run.bounce_buffer, nullptr, n);
  return run.bounce_buffer != nullptr;
}

void deliver_bounce_buffer(Engine& engine, OpRun& run) {
  run.cancelable = false;
  run.stage = kHere;
  engine.devices().when_ready(run, move_on);
}

}  // namespace thalweg::impl
