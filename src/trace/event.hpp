// SPDX-License-Identifier: Apache-2.0
// What the timeline is made of: one record of one cache line for everything that is traced.
#pragma once
#include <cstdint>

namespace thalweg::impl::trace {

/// What happened. The first ones are the verbs of operations, in their order (protocols/operation.hpp).
enum class What : uint8_t {
  send,
  recv,
  am,
  am_recv,
  bytes_send,
  bytes_recv,
  put,
  get,
  atomic,
  signal,
  flush,
  put_blocks,
  get_blocks,
  local_copy,
  signal_wait,
  reduce,
  collective,
  sent,         // the first frame of a message has left
  announced,    // the same of one that goes by rendezvous
  arrived,      // that frame is here, and a receive waits for it
  unexpected,   // ... and none does
  wait,         // a blocking call, from its first look that found nothing
  sleep,        // ... asleep in the kernel
  copy,         // a piece, by this processor or by the kernel
  device_copy,  // work of a device's queue, as the host saw it
  handler,      // of an active message
  callback,     // of a request
  trigger,      // a plan's run is put on a queue, or begun by the host
  run,          // ... until it is over
  step,         // of a program
  count_
};
struct Name {
  const char* name;
  const char* category;
};
const Name& name_of(What what);

enum class Phase : uint8_t {
  instant,  // at
  span,     // of its thread, from `begin` to `at`
  begins,   // the activity `id`, which other threads may end
  ends,
  on_track,  // a span of the track `id`, from `begin` to `at`, which are times of that track's clock
};

struct Event {
  uint64_t at = 0;  // cpu_ticks()
  uint64_t begin = 0;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint64_t flow = 0;  // of a message: the same at both ends; 0: none
  uint64_t peer = 0;  // worker at the other end; 0: none
  uint64_t tag = 0;   // of what is on_track: its name, a text that stays; 0: as `what`
  int16_t status = 0;
  What what = What::send;
  Phase phase = Phase::instant;
  uint32_t number = 0;  // of a step: its index
  /// Is `tag` one?
  bool tagged() const { return what == What::send || what == What::recv || (what >= What::sent && what <= What::unexpected); }
};
static_assert(sizeof(Event) == 64);

}  // namespace thalweg::impl::trace
