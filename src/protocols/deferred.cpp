// SPDX-License-Identifier: Apache-2.0
// The way of an operation that cannot be done at once: while its endpoint connects, while the import of its segment is under
// way (the owner's service thread answers, never its worker), or behind a fence. It waits in its place in the ordered queue;
// at the front it takes the way that needs no CPU of the target, and becomes frames only where there is none.
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

enum Stage : uint8_t { kWaiting, kSignal };

const Protocol& frames_of(Verb verb) {
  switch (verb) {
    case Verb::put:
      return kPutFrames;
    case Verb::get:
      return kGetFrames;
    case Verb::atomic:
      return kAtomicFrames;
    default:
      return kSignalFrames;
  }
}

Status become_frames(OpRun& run) {
  run.protocol = &frames_of(run.op->verb);
  run.stage = 0;
  return run.protocol->step(run);
}

/// The data, or a signal of its own, without the target's CPU. behind: a fence is out whose operations are not all applied.
/// TW_AGAIN: as frames.
Status move_data(const OpDesc& op, bool behind) {
  if (op.verb == Verb::signal) {
    const bool covers = (op.flags & TW_OP_AFTER_ALL) != 0 && !settled(*op.peer);
    return touch_now(op, behind || covers) ? Status{TW_OK} : Status{TW_AGAIN};
  }
  if (op.verb != Verb::atomic && op.length == 0) return behind ? Status{TW_AGAIN} : Status{TW_OK};
  Access access = access_of(op);
  access.fenced = behind;
  return move_at_once(op, access);
}

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  const OpDesc& op = *run.op;
  if (peer.link == nullptr) return TW_AGAIN;
  if (run.stage == kWaiting) {
    for (RemoteRegion* region : {op.remote, op.signal}) {
      const Status s = settle_import(region);
      if (s == TW_AGAIN) return s;
      if (is_error(s)) return s;
    }
    const bool all = (op.flags & TW_OP_AFTER_ALL) != 0;
    if (all && peer.one_sided.device != 0) return TW_AGAIN;  // a frame would overtake what devices still move
    const bool fence = (op.flags & kOpPart) == 0 && front_fenced(peer);
    const Status s = move_data(op, fence && !settled(peer));
    if (s == TW_AGAIN) return become_frames(run);
    if (is_error(s) || !tells(op) || op.verb == Verb::signal) return s;
    run.stage = kSignal;
  }
  return give_signal(run, false);
}

}  // namespace

Status settle_import(RemoteRegion* region) {
  if (region == nullptr) return TW_OK;
  const bool gone = region->revoked || (region->mapping != nullptr && region->mapping->revoked);
  if (gone || region->key.incarnation != region->peer->identity.incarnation) return map_region(*region);
  if (awaits_import(*region) && map_region(*region) == TW_IN_PROGRESS) return TW_AGAIN;
  return region->revoked ? TW_ERR_STALE : TW_OK;
}

const Protocol kDeferred = {"deferred", Verb::put, step, nullptr};

}  // namespace thalweg::impl
