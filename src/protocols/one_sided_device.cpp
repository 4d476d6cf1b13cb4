// SPDX-License-Identifier: Apache-2.0
// Put and get with device memory at one end at least, or with a buffer that has to wait for a user's stream.
//
// Such an operation waits at the front of the ordered queue for its stream, its import and the fence before it; then it leaves the ordered queue
// and is counted in OneSided::device until its data is where it belongs. Three ways:
//   direct   a device of this process copies between the local side (its own, or pinned memory) and an import of the target, the
//            target itself within one process, or its device memory and the peer's host memory that is mapped and pinned here.
//   window   the local side is pageable: this CPU copies to or from pinned memory, the device from there.
//   relay    the target is other host memory, or device memory out of reach: the device copies to or from pinned memory, and parts of the
//            operation go on from there as operations on host memory, each by its best way.
// A remote layout cannot be cut into parts: a relay gathers the whole payload in host memory then.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "devices/registry.hpp"
#include "protocols/bounce.hpp"
#include "protocols/bounce_buffer.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"
#include "protocols/staging.hpp"
#include "routes/costs.hpp"

namespace thalweg::impl {
namespace {

bool local_device(const OpDesc& op) { return (op.flags & kOpDevice) != 0; }
bool is_put(const OpDesc& op) { return op.verb == Verb::put; }

/// OpRun::stage. A relay's last part brings the signal, unless that covers more than the put.
enum Stage : uint8_t { kWaiting, kMoving, kRelaying, kSignal };

/// OpRun::state of a relay or window.
struct Relay {
  uint64_t position;
  bool gathered;  // get with a remote layout: all of it is in the bounce buffer
  bool named;     // put: pieces are named to the target (bounce.hpp), which answers each when it has copied it
  Status failed;  // of a part
};
static_assert(sizeof(Relay) <= sizeof(OpRun::state));
Relay& relay_of(OpRun& run) { return *reinterpret_cast<Relay*>(run.state); }

// ------------------------------------------------------------------------------------------------ the end

/// One that covers all earlier puts waits for those that devices still move; some of these may be later ones.
Status signal_behind_devices(OpRun& run) {
  const bool all = (run.op->flags & TW_OP_AFTER_ALL) != 0;
  return all && run.peer->one_sided.device != 0 ? Status{TW_AGAIN} : give_signal(run, false);
}

/// The data is where it belongs, or the operation has failed. The signal is the put's last part: it goes before everything
/// in the ordered queue, flushes and fences among it.
void over(Engine& engine, OpRun& run, Status status) {
  const OpDesc& op = *run.op;
  if (run.list != nullptr) run.list->remove(&run);
  if (run.stage == kRelaying && run.staging != nullptr) run.staging->end();
  if (status == TW_OK) count_moved(op, run.stage == kRelaying ? Way::staging : is_put(op) ? Way::push : Way::pull);
  const bool own = run.stage == kMoving || relay_of(run).named || (op.flags & TW_OP_AFTER_ALL) != 0;
  const bool signals = tells(op) && own;
  run.stage = kSignal;
  count_out(run);
  engine.incoming.end(run);
  if (status == TW_OK && signals) {
    status = signal_behind_devices(run);
    if (status == TW_AGAIN) return to_front(run);
    if (status == TW_IN_PROGRESS) return;  // the peer answers the signal
  }
  if (is_error(status)) note_failure(*run.peer, run, status);
  engine.complete(run, status);
}

void leave_queue(OpRun& run, Stage stage) {
  run.stage = stage;
  if (!run.holds_regions) hold_regions(run);
  if (run.list != nullptr) run.list->remove(&run);
  count_in(run, Counted::device);
}

// ------------------------------------------------------------------------------------------------ reaching the target

struct Reached : DeviceReach {
  Device* device = nullptr;  // whose queue copies
};

/// TW_OK, TW_AGAIN while the import is under way, or an error: not this way.
Status reach_target(Peer& peer, const OpDesc& op, Reached* out) {
  const RemoteRegion& region = *op.remote;
  if (!of_device(region)) return TW_ERR_UNSUPPORTED;
  out->device = local_device(op) ? op.device : device_of(region);
  if (out->device == nullptr) {
    return fail(TW_ERR_UNREACHABLE, "the target's device is not visible in this process: let CUDA_VISIBLE_DEVICES name it");
  }
  const Status status = reach_region(peer, region, *out->device, out);
  if (status == TW_IN_PROGRESS) return TW_AGAIN;
  // Unknown here, it may still be alive in another context of this process: that one's progress decides.
  if (status == TW_ERR_STALE && in_process(region))
    return fail(TW_ERR_UNSUPPORTED, "it is device memory of another context of this process");
  return status;
}

/// The same for host memory too, and remembered. TW_OK; TW_ERR_UNREACHABLE: not by a device; TW_AGAIN, or an error of the
/// operation.
Status reach(Peer& peer, const OpDesc& op, Reached* out) {
  RemoteRegion& region = *op.remote;
  if (!of_device(region)) {
    out->device = op.device;
    const Status status = reach_host_region(peer, region, *op.device, op.length, out);
    return status == TW_ERR_UNSUPPORTED ? Status{TW_ERR_UNREACHABLE} : status;
  }
  const Status status = reach_target(peer, op, out);
  if (status == TW_OK || status == TW_AGAIN) return status;
  // Released, or its owner is closing: the target's answer to a frame, or the loss, tells which.
  if (status == TW_ERR_STALE) return TW_ERR_UNREACHABLE;
  if ((peer.link->features & kLinkMaps) != 0) {
    warn_once("device.relayed", std::string("a put or get of device memory goes through the host: ") + last_error());
  }
  region.unreached.add(out->device);
  return TW_ERR_UNREACHABLE;
}

}  // namespace

Access device_access_of(const OpDesc& op) {
  const bool target = op.remote != nullptr && of_device(*op.remote), local = local_device(op);
  Access access = access_of(op, false);
  access.fenced = false;  // devices wait for what is before a fence
  access.devices = true;
  access.staged = local;
  access.local = local || (op.verb != Verb::atomic && is_pinned(op.address));
  if (!target) {
    access.why_not_reached = local && op.remote != nullptr ? nullptr : "the target is host memory";
  } else if (!in_process(*op.remote) && (link_features(op) & kLinkMaps) == 0) {
    access.why_not_reached = "this link shares no device memory";
  } else if ((!op.remote->unreached.empty() && op.remote->unreached.has(local ? op.device : device_of(*op.remote))) ||
             (!in_process(*op.remote) && op.remote->key.segment == 0)) {
    access.why_not_reached = "the target cannot be imported: pool or managed memory, or no access between the devices";
  } else if (op.verb == Verb::atomic && !op.remote->unlaunched.empty() && op.remote->unlaunched.has(device_of(*op.remote))) {
    access.why_not_reached = "kernels of the word's device do not reach it, or this build has none";
  }
  return access;
}

namespace {

// ------------------------------------------------------------------------------------------------ direct and window

Status start_direct(Engine& engine, OpRun& run, const Reached& target) {
  const OpDesc& op = *run.op;
  CopySide there = copy_side(target.address + op.remote_offset, op.remote_layout, target.kernels);
  there.far = of_device(*op.remote) && target.device->uuid() != uuid_of(op.remote->key.device_uuid);
  const Status status =
      device_move(engine, run, *target.device, there, op.length, !is_put(op), target.mapping, over, target.users);
  if (is_error(status)) return status;
  leave_queue(run, kMoving);
  return TW_IN_PROGRESS;
}

/// The run takes turns from here on.
Status take_turns(Engine& engine, OpRun& run, Stage stage) {
  leave_queue(run, stage);
  relay_of(run) = Relay{0, false, false, TW_OK};
  run.pipeline.kind = Pipeline::relay;
  (stage == kMoving ? run.peer->windows : run.peer->pipelines).push_back(&run);
  engine.pusher().wants(*run.peer);
  return TW_IN_PROGRESS;
}

Status start_window(Engine& engine, OpRun& run, const Reached& target) {
  const OpDesc& op = *run.op;
  const CopySide there = copy_side(target.address + op.remote_offset, op.remote_layout, target.kernels);
  const Staging::Direction direction = is_put(op) ? Staging::Direction::in : Staging::Direction::out;
  run.staging = new Staging(engine, run, *target.device, there, direction, 0, op.length, target.users);
  run.extras = true;
  run.holding = target.mapping;
  if (target.mapping != nullptr) ++target.mapping->users;
  run.cursor.reset(op.address, op.layout, op.length);
  return take_turns(engine, run, kMoving);
}

/// One piece between the local side and pinned memory.
Status window_turn(Engine& engine, OpRun& run) {
  uint64_t& position = relay_of(run).position;
  const OpDesc& op = *run.op;
  size_t n = 0;
  Status status = TW_OK;
  if (is_put(op)) {
    std::byte* room = run.staging->room(position, &n, &status);
    if (room != nullptr) pack(run.cursor, room, n);
  } else {
    const std::byte* bytes = run.staging->look(position, &n, &status);
    if (bytes != nullptr) unpack(run.cursor, bytes, n);
  }
  if (is_error(status)) return over(engine, run, status), TW_OK;
  if (n == 0) return TW_IN_PROGRESS;
  position += n;
  const bool last = position == op.length;
  if (is_put(op)) {
    if (last) run.list->remove(&run);
    run.staging->filled(position, over);
  } else {
    run.staging->taken(position);
    if (last) over(engine, run, TW_OK);
  }
  return last ? TW_OK : TW_IN_PROGRESS;
}

// ------------------------------------------------------------------------------------------------ relay

/// The target has copied the oldest named piece, or could not.
void piece_applied(Engine& engine, OpRun& run, Status status) {
  if (run.pipeline.in_flight == 0) return engine.violation(*run.peer, "an end of a piece that was not sent");
  --run.pipeline.in_flight;
  run.staging->taken_oldest();
  if (is_error(status)) relay_of(run).failed = status;
  if (run.list != nullptr) return;
  run.peer->pipelines.push_back(&run);
  engine.pusher().wants(*run.peer);
}

Status start_relay(Engine& engine, OpRun& run) {
  const OpDesc& op = *run.op;
  stage(engine, run, is_put(op) ? Staging::Direction::out : Staging::Direction::in, 0, op.length);
  if (op.remote_layout != nullptr && !open_bounce_buffer(run, op.length))
    return fail(TW_ERR_NO_MEMORY, "no memory to gather a layout");
  const bool named = is_put(op) && name_put(engine, *run.peer, run);
  const Status status = take_turns(engine, run, kRelaying);
  relay_of(run).named = named;
  if (named) run.fin = piece_applied;
  return status;
}

/// A part has ended after its call. `arg` is the number of the relay, which may be gone.
void part_over(void* arg, tw_request, tw_status status, const tw_recv_info*) {
  RunPool* pool = nullptr;
  OpRun* run = RunPool::find_any(reinterpret_cast<uint64_t>(arg), &pool);
  if (run == nullptr) return;
  Engine& engine = *pool->engine();
  const Engine::Guard guard(engine);
  if (run->peer == nullptr || run->pipeline.kind != Pipeline::relay) return;
  if (is_error(status)) relay_of(*run).failed = status;
  run->peer->pipelines.push_back(run);
  engine.pusher().wants(*run->peer);
}

/// Bytes at `host` to or from the target, as an operation on host memory. TW_OK, TW_IN_PROGRESS (the relay takes no turns
/// until it has ended, so that the worker may sleep) or an error.
Status start_part(Engine& engine, OpRun& run, const std::byte* host, uint64_t position, uint64_t length) {
  const OpDesc& whole = *run.op;
  OpDesc op;
  op.verb = whole.verb;
  op.flags = (whole.flags & TW_OP_REMOTE) | kOpPart;
  op.peer = run.peer;
  op.address = const_cast<std::byte*>(host);
  op.length = length;
  op.remote = whole.remote;
  op.remote_offset = whole.remote_offset + position;
  op.remote_layout = whole.remote_layout;
  if (tells(whole) && (whole.flags & TW_OP_AFTER_ALL) == 0) {
    if (position + length == whole.length) {
      take_signal(whole, &op);
    } else {
      op.flags |= TW_OP_REMOTE;  // to the target each part is a put, and the signal vouches for the last one only
    }
  }
  const Completion completion = calls(part_over, reinterpret_cast<void*>(engine.runs().number(run)));
  Status status = TW_OK;
  if (of_device(*op.remote)) {
    status = launch_one_sided(engine, op, completion, is_put(op) ? kPutFrames : kGetFrames);
  } else {
    status = is_put(op) ? start_put(engine, op, completion) : start_get(engine, op, completion);
  }
  if (status == TW_IN_PROGRESS) run.list->remove(&run);
  return status;
}

/// Names the next bytes from the device. It ends when the target has answered all pieces, which it reads until then.
Status relay_named(Engine& engine, OpRun& run) {
  Relay& state = relay_of(run);
  const OpDesc& op = *run.op;
  size_t n = 0;
  Status status = state.failed;
  if (!is_error(status) && state.position != op.length) {
    const std::byte* const bytes = run.staging->look(state.position, &n, &status);
    if (bytes != nullptr) {
      const FrameHeader header = make_header(Frame::put_at, 0, op.remote->key.rkey, op.remote_offset + state.position);
      status = send_named(engine, *run.peer, run, header, bytes, n);
      if (status == TW_OK) state.position += n;
    }
    const bool waits = bytes == nullptr && run.work == 0;
    const bool lacks_chunk = waits && run.pipeline.in_flight == 0;
    if (!is_error(status) && lacks_chunk) {
      run.list->remove(&run);
      run.staging->wait_for_chunk();
    }
    if (!is_error(status) && (lacks_chunk || !waits)) return TW_OK;
    state.failed = status;
  }
  if (run.pipeline.in_flight != 0) {
    run.list->remove(&run);  // piece_applied() brings it back
  } else {
    over(engine, run, status);
  }
  return TW_OK;
}

/// The next bytes from the device go on to the target.
Status relay_put(Engine& engine, OpRun& run) {
  uint64_t& position = relay_of(run).position;
  const uint64_t at = position;
  if (at == run.op->length) return over(engine, run, TW_OK), TW_OK;
  run.staging->taken(at);
  size_t n = 0;
  Status status = TW_OK;
  const std::byte* bytes = run.staging->look(at, &n, &status);
  if (bytes == nullptr) return status;
  position += n;
  if (run.bounce_buffer == nullptr) return start_part(engine, run, bytes, at, n);
  std::memcpy(run.bounce_buffer + at, bytes, n);
  return position == run.op->length ? start_part(engine, run, run.bounce_buffer, 0, position) : Status{TW_OK};
}

/// What has come from the target goes on to the device, and more of it is asked for.
Status relay_get(Engine& engine, OpRun& run) {
  Relay& state = relay_of(run);
  const uint64_t length = run.op->length, at = state.position;
  if (run.bounce_buffer != nullptr && !std::exchange(state.gathered, true))
    return start_part(engine, run, run.bounce_buffer, 0, length);
  if (run.bounce_buffer != nullptr) {
    run.list->remove(&run);
    return unload_bounce_buffer(engine, run, length, over), TW_OK;
  }
  if (at != 0) {
    if (at == length) run.list->remove(&run);
    run.staging->filled(at, over);
    if (at == length) return TW_OK;
  }
  size_t n = 0;
  Status status = TW_OK;
  std::byte* room = run.staging->room(at, &n, &status);
  if (room == nullptr) return status;
  state.position += n;
  return start_part(engine, run, room, at, n);
}

// ------------------------------------------------------------------------------------------------ the protocols

/// Host memory at both ends after all, or frames as the only way.
Status go_on_as(OpRun& run, const Protocol& protocol) {
  run.protocol = &protocol;
  return protocol.step(run);
}

Status step(OpRun& run) {
  Peer& peer = *run.peer;
  Engine& engine = *peer.engine;
  const OpDesc& op = *run.op;
  RemoteRegion& region = *op.remote;
  if (peer.link == nullptr) return TW_AGAIN;
  if (run.stage == kSignal) return signal_behind_devices(run);
  if (region.revoked || region.key.incarnation != peer.identity.incarnation) return TW_ERR_STALE;
  if ((op.flags & kOpLate) != 0) {
    const Status status = op.after->event->query();
    if (status == TW_IN_PROGRESS) engine.devices().note_awaited();
    if (status != TW_OK) return status == TW_IN_PROGRESS ? Status{TW_AGAIN} : status;
  }
  if (op.length == 0 || !has_device_end(op)) return go_on_as(run, kDeferred);
  if (front_fenced(peer) && !settled(peer)) return TW_AGAIN;
  const Access access = device_access_of(op);
  AccessRoute route = access_route(access);
  Reached target;
  if (asks_device(route)) {
    const Status status = reach(peer, op, &target);
    if (status != TW_OK && status != TW_ERR_UNREACHABLE) return status;
    if (status != TW_OK) route = access_route(access, bit_of(AccessRoute::direct) | bit_of(AccessRoute::window));
  }
  switch (route) {
    case AccessRoute::direct:
      return start_direct(engine, run, target);
    case AccessRoute::window:
      return start_window(engine, run, target);
    case AccessRoute::relay:
      return start_relay(engine, run);
    default:
      return go_on_as(run, is_put(op) ? kPutFrames : kGetFrames);
  }
}

}  // namespace

Status relay_turn(Engine& engine, Peer& peer, OpRun& run) {
  Relay& state = relay_of(run);
  if (run.stage == kMoving) return window_turn(engine, run);
  if (state.named) return relay_named(engine, run), run.list == &peer.pipelines ? TW_IN_PROGRESS : TW_OK;
  Status status = state.failed;
  if (!is_error(status)) status = is_put(*run.op) ? relay_put(engine, run) : relay_get(engine, run);
  if (is_error(status)) over(engine, run, status);
  return run.list == &peer.pipelines ? TW_IN_PROGRESS : TW_OK;
}

const Protocol kPutDevice = {"put_device", Verb::put, step, nullptr};
const Protocol kGetDevice = {"get_device", Verb::get, step, nullptr};

// ------------------------------------------------------------------------------------------------ the target of frames

namespace {

/// Bytes [skip, skip + length) of the target's packed order, in pieces through pinned memory.
template <class Piece>
Status by_chunks(Engine& engine, const Target& target, const Layout* layout, uint64_t skip, uint64_t length, bool store,
                 const Piece& piece) {
  DeviceQueues& queues = engine.devices();
  std::byte* chunk = queues.take_chunk(*target.device);
  if (chunk == nullptr) return TW_ERR_NO_MEMORY;
  const CopySide there = copy_side(reinterpret_cast<uint64_t>(target.address), layout);
  const uint64_t total = layout != nullptr ? layout->bytes : length;
  std::vector<Copy> copies;
  Status status = TW_OK;
  for (uint64_t at = 0; at < length && status == TW_OK;) {
    const uint64_t n = std::min<uint64_t>(length - at, DeviceQueues::kChunk), begin = skip + at;
    const CopySide here{reinterpret_cast<uint64_t>(chunk) - begin, nullptr};
    if (store) piece(chunk, at, n);
    status = plan_copies(store ? there : here, store ? here : there, total, begin, begin + n, &copies);
    if (status == TW_OK) status = run_copies(queues, *target.device, copies);
    if (!store && status == TW_OK) piece(chunk, at, n);
    at += n;
  }
  queues.give_chunk(*target.device, chunk);
  return status;
}

}  // namespace

Status store_to_device(Engine& engine, const Target& target, const Layout* layout, uint64_t skip, const std::byte* from,
                       uint64_t length) {
  return by_chunks(engine, target, layout, skip, length, true,
                   [&](std::byte* chunk, uint64_t at, uint64_t n) { std::memcpy(chunk, from + at, n); });
}

Status load_from_device(Engine& engine, const Target& target, const Layout* layout, uint64_t skip, std::byte* to,
                        uint64_t length) {
  return by_chunks(engine, target, layout, skip, length, false,
                   [&](const std::byte* chunk, uint64_t at, uint64_t n) { std::memcpy(to + at, chunk, n); });
}

}  // namespace thalweg::impl
