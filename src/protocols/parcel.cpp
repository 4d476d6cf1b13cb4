// SPDX-License-Identifier: Apache-2.0
// Parcels.
#include "protocols/parcel.hpp"

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
  if ((run.op->flags & kOpDevice) != 0) return unload_parcel(engine, run, wanted(run), landed);
  LayoutCursor to(run.op->address, run.op->layout, run.op->length);
  unpack(to, run.parcel, wanted(run));
  landed(engine, run, TW_OK);
}

}  // namespace

void unload_parcel(Engine& engine, OpRun& run, uint64_t length, Then then) {
  stage(engine, run, Staging::Direction::in, 0, length);
  for (uint64_t at = 0; at < length;) {
    size_t n = 0;
    Status status = TW_OK;
    std::byte* room = run.staging->room(at, &n, &status);
    if (room == nullptr) return then(engine, run, status);
    std::memcpy(room, run.parcel + at, n);
    at += n;
    run.staging->filled(at, then);
  }
}

bool open_parcel(OpRun& run, uint64_t length) {
  const uint64_t n = std::min(length, run.op->length);
  run.parcel = static_cast<std::byte*>(std::malloc(std::max<uint64_t>(n, 1)));
  run.extras = true;
  run.cursor.reset(run.parcel, nullptr, n);
  return run.parcel != nullptr;
}

void deliver_parcel(Engine& engine, OpRun& run) {
  run.cancelable = false;
  engine.devices().when_ready(run, move_on);
}

}  // namespace thalweg::impl
