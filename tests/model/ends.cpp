// SPDX-License-Identifier: Apache-2.0
// How endpoints end: closed, cut, or with their process.
#include "model/world.hpp"

namespace thalweg::model {

void World::break_pair(unsigned a, unsigned b) {
  end(a, b).broken = true;
  end(b, a).broken = true;
}

/// Within one process nothing but the end of an operation keeps a device of the other side from its memory: devices are to be at
/// work when a connection ends.
void World::put_devices_to_work() {
  for (unsigned round = 0; net_.one_process && round < 6 && failure_.empty(); ++round) {
    for (unsigned i = 0; i < 4; ++i) net_.carry();
    for (unsigned i = 0; i < program_.workers; ++i) {
      if (!dead(i) && !asleep(workers_[i])) progress(workers_[i]);
    }
  }
}

void World::close(const Op& op) {
  put_devices_to_work();
  End& one = end(op.worker, op.peer);
  if (one.lost || dead(op.worker)) return;
  Engine& engine = *workers_[op.worker].engine;
  const Engine::Guard guard(engine);  // as core's
  const bool graceful = (op.flags & kGraceful) != 0 && one.attached && !one.broken && engine.idle(one.peer);
  one.closed = true;
  one.graceful = graceful;
  break_pair(op.worker, op.peer);
  for (unsigned i = 0; i < 1000 && net_.lends(*one.link) && !dead(op.peer);
       ++i) {  // a close waits for devices of the other side
    device().step(i);
    progress(workers_[op.peer]);
  }
  if (dead(op.worker)) return;
  engine.close(one.peer, graceful);
  if (!one.attached) {
    one.attached = true;
    net_.cut(*one.link);
  }
  poll(workers_[op.worker]);
}

void World::cut(const Op& op) {
  End& one = end(op.worker, op.peer);
  if (one.broken || !one.attached) return;
  put_devices_to_work();
  if (one.broken || dead(op.worker) || dead(op.peer)) return;
  break_pair(op.worker, op.peer);
  if ((op.flags & kInside) != 0) {
    net_.cut_later(*one.link, op.offset);
  } else {
    net_.cut(*one.link);
  }
}

void World::kill(const Op& op) {
  put_devices_to_work();
  if (dead(op.worker)) return;
  for (unsigned i = 0; i < program_.workers; ++i) {
    if (i != op.worker) break_pair(op.worker, i);
  }
  if ((op.flags & kInside) != 0) {
    net_.kill_later(*workers_[op.worker].port, op.offset);
  } else {
    net_.kill(*workers_[op.worker].port);
  }
}

}  // namespace thalweg::model
