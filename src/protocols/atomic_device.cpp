// SPDX-License-Identifier: Apache-2.0
// Atomics on words of device memory by the word's own device, where this process reaches it: over an import, or within one
// process. Nothing is needed of the target then.
//
// Every way to such a word is a kernel of the word's device with system scope: this one, the one that the target's progress
// runs (atomic.cpp), plans' and windows' ones of a device with native atomics to it. So all of them are atomic against each
// other, and the ways may be mixed. The CPU never touches the word.
#include <cstring>
#include <utility>

#include "protocols/device_queues.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"

namespace thalweg::impl {
namespace {

/// OpRun::state while the kernel is under way.
struct Launched {
  Device* device;
  std::byte* chunk;  // gets the old value; null: not requested
};
static_assert(sizeof(Launched) <= sizeof(OpRun::state));
Launched& launched_of(OpRun& run) { return *reinterpret_cast<Launched*>(run.state); }

void over(Engine& engine, void* token, Status status) {
  OpRun& run = *static_cast<OpRun*>(token);
  const Launched launched = launched_of(run);
  uint64_t old = 0;
  if (launched.chunk != nullptr) {
    std::memcpy(&old, launched.chunk, sizeof old);
    engine.devices().give_chunk(*launched.device, launched.chunk);
  }
  if (run.holding != nullptr) --std::exchange(run.holding, nullptr)->users;
  if (!engine.work_over(run)) return;
  if (status == TW_OK) {
    deliver_old(*run.op, old);
    count_moved(*run.op, Way::push);
  }
  engine.complete(run, status);
}

/// TW_IN_PROGRESS, TW_AGAIN: enough are under way, or an error: nothing was launched.
Status launch(Engine& engine, OpRun& run, Device& device, const DeviceReach& reached) {
  constexpr uint32_t kUnderWay =
      8;  // old values at a time: each has a chunk. What is under way ends by itself, so this does too
  const OpDesc& op = *run.op;
  DeviceQueues& queues = engine.devices();
  AtomicKernel kernel = atomic_kernel(op.atomic_op, op.word, op.operand, op.compare);
  kernel.word = reached.address + op.remote_offset;
  std::byte* chunk = nullptr;
  if (op.result != nullptr) {
    if (run.peer->one_sided.device >= kUnderWay) return TW_AGAIN;
    chunk = queues.take_chunk(device);
    if (chunk == nullptr) return fail(TW_ERR_NO_MEMORY, "no pinned memory for the old value of an atomic");
    kernel.old = reinterpret_cast<uint64_t>(chunk);
  }
  launched_of(run) = {&device, chunk};
  if (const Status status = queues.submit(device, Kernel{kernel}, over, &run, reached.users); is_error(status)) {
    if (chunk != nullptr) queues.give_chunk(device, chunk);
    return status;
  }
  run.holding = reached.mapping;
  if (run.holding != nullptr) ++run.holding->users;
  ++run.work;
  run.cancelable = false;
  if (!run.holds_regions) hold_regions(run);
  if (run.list != nullptr) run.list->remove(&run);
  count_in(run, Counted::device);
  return TW_IN_PROGRESS;
}

Status reach_word(OpRun& run, Device** device, DeviceReach* out) {
  const RemoteRegion& region = *run.op->remote;
  *device = device_of(region);
  if (*device == nullptr) return TW_ERR_UNREACHABLE;
  return reach_region(*run.peer, region, **device, out);
}

/// By the word's device. TW_IN_PROGRESS, TW_AGAIN, or an error: not this way.
Status start_direct(OpRun& run) {
  RemoteRegion& region = *run.op->remote;
  Device* device = nullptr;
  DeviceReach reached;
  Status status = reach_word(run, &device, &reached);
  if (status == TW_IN_PROGRESS) return TW_AGAIN;
  // Released, or of another context of this process: the target's answer tells which. Else it stays like this.
  if (is_error(status) && status != TW_ERR_STALE) region.unreached.add(device);
  if (is_error(status)) return status;
  // The key's address is only what it says: the target's answer tells.
  if ((reached.address + run.op->remote_offset) % run.op->word != 0) return TW_ERR_MISALIGNED;
  // Where only engines get there, and in a build without kernels, the target's progress does it.
  status = reached.kernels ? launch(*run.peer->engine, run, *device, reached) : Status{TW_ERR_UNSUPPORTED};
  if (status == TW_ERR_UNSUPPORTED) region.unlaunched.add(device);
  return status;
}

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  RemoteRegion& region = *run.op->remote;
  if (peer.link == nullptr) return TW_AGAIN;
  if (region.revoked || region.key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;
  if (front_fenced(peer) && !settled(peer)) return TW_AGAIN;  // a kernel cannot follow frames
  const Access access = device_access_of(*run.op);
  for (uint32_t failed = 0; access_route(access, failed) == AccessRoute::direct; failed |= bit_of(AccessRoute::direct)) {
    if (const Status status = start_direct(run); !is_error(status)) return status;
  }
  run.protocol = &kAtomicFrames;
  return run.protocol->step(run);
}

}  // namespace

const Protocol kAtomicDevice = {"atomic_device", Verb::atomic, step, nullptr};

}  // namespace thalweg::impl
