// SPDX-License-Identifier: Apache-2.0
// Rendezvous with device memory at one end at least, or with an end that has to wait for a user's stream.
//
// The receiver chooses (routes/device_messages.hpp):
//   push    the sender's device copies into an import of the receiver's memory: between two devices, where the source is strided or
//           still waits for a stream, or is pinned host memory.
//           Also between pool or managed memory, which no other process can import: into a bounce buffer of the receiver's device (bounce.hpp),
//           from which that copies on. Also into host memory of the receiver that is mapped and pinned at the sender.
//   pull    its device (or, for a pinned buffer, the sender's device as this process sees it) copies from an import of the
//           sender's memory, or from library-allocated host memory of the sender that is mapped and pinned here. Within one process, the
//           source's device copies from the address itself.
//   copy    the source is host memory that this process can read: through staging, by this CPU.
//   frames  data frames, through staging at whichever end is a device. The receiver may take the sender's pieces where they are
//           (bounce.hpp).
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "devices/registry.hpp"
#include "memory/place.hpp"
#include "memory/registry.hpp"
#include "protocols/bounce.hpp"
#include "protocols/device_copy.hpp"
#include "protocols/local_device.hpp"
#include "protocols/offers.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/reach_device.hpp"
#include "protocols/rendezvous.hpp"
#include "protocols/staging.hpp"
#include "routes/device_messages.hpp"

namespace thalweg::impl {
namespace {

bool on_device(const OpDesc& op) { return (op.flags & kOpDevice) != 0; }

/// OpRun::state of a receive.
struct Receiving {
  RtsBody rts;
  DeviceBody source;
};
static_assert(sizeof(Receiving) <= sizeof(OpRun::state));
Receiving& receiving(OpRun& run) { return *reinterpret_cast<Receiving*>(run.state); }
bool from_device(const Receiving& state) { return !by_cpu(static_cast<MemoryKind>(state.source.kind)); }

/// OpRun::state of a sender that serves a cts.
struct Serving {
  CtsBody cts;
  Uuid uuid;
};
static_assert(sizeof(Serving) <= sizeof(OpRun::state));
Serving& serving(OpRun& run) { return *reinterpret_cast<Serving*>(run.state); }

/// The device of this process that can copy between op's local side and memory of device `there`; null: none.
Device* copier(Engine& engine, const OpDesc& op, const Uuid& there) {
  if (on_device(op)) return engine.devices().reaches(*op.device, there) ? op.device : nullptr;
  return !by_calls(op) && is_pinned(op.address) ? find_device(there) : nullptr;
}

/// Within one process: the other side's buffer, which is lent by this name. False: its operation has ended.
bool use_loan(uint64_t loan, DeviceUserLists* lists) {
  std::shared_ptr<DeviceUsers> users = DeviceUsers::find(loan);
  if (users == nullptr) return false;
  lists->push_back(std::move(users));
  return true;
}

void wait_for_import(Peer& peer, OpRun& run, Then then) {
  run.then = then;
  peer.importing.push_back(&run);
}

// ------------------------------------------------------------------------------------------------ the receiver

void take_frames(Engine& engine, OpRun& run) {
  Peer& peer = *run.peer;
  const Receiving& state = receiving(run);
  const bool from = from_device(state), to = on_device(*run.op);
  const Uuid there = from ? uuid_of(state.source.uuid) : Uuid{};
  if (from && to && (peer.link->features & kLinkMaps) != 0 && !engine.devices().reaches(*run.op->device, there)) {
    warn_once("device.staged",
              "device memory is moved through the host, because neither device can reach the other one's "
              "(tw_endpoint_explain_buffer says more): use GPUs with peer access");
  }
  const bool managed = static_cast<MemoryKind>(state.source.kind) == MemoryKind::managed;
  const uint64_t forms = piece_forms(engine, peer, run, there, managed);
  ask_for_frames(engine, peer, run, state.rts.op, 0, wanted(run), from || to, forms);
}

void pulled(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) return take_frames(engine, run);
  send_fin(engine, *run.peer, receiving(run).rts.op, TW_OK);
  received_by(engine, run, static_cast<Way>(receiving(run).source.way));
}

void choose(Engine& engine, OpRun& run, Status status);

/// A sender that has pushed everything is done with it.
void pushed(Engine& engine, OpRun& run, Status status) {
  run.fin = nullptr;
  run.stage = kChosen;
  is_error(status) ? choose(engine, run, TW_OK) : received_by(engine, run, static_cast<Way>(receiving(run).source.way));
}

constexpr size_t kPushLayout = 4 + 16 + 3 * 16;  // wire form of a strided layout of up to three dimensions
struct PushBody {
  CtsBody cts;
  Uuid uuid;
  std::byte layout[kPushLayout];
};
static_assert(sizeof(PushBody) <= ControlFrame::kBody);

void send_push(Engine& engine, Peer& peer, OpRun& run, PushBody& body, size_t layout) {
  body.cts.op = engine.runs().wire_op(run);
  body.cts.length = wanted(run);
  run.stage = kAsked;
  const size_t size = offsetof(PushBody, layout) + layout;
  engine.send_control(peer, make_header(Frame::cts, size, receiving(run).rts.op, 0, kFrameDevice), &body);
}

/// ... into its library-allocated host memory.
bool ask_for_push_to_host(Engine& engine, Peer& peer, OpRun& run) {
  PushBody body{};
  if (!engine.registry().find_segment(run.op->address, wanted(run), &body.cts.segment, &body.cts.segment_offset)) return false;
  run.fin = pushed;
  receiving(run).source.asked = 1;
  send_push(engine, peer, run, body, 0);
  return true;
}

/// Asks the sender's device to copy into this one's memory. False: it cannot.
bool ask_for_push(Engine& engine, Peer& peer, OpRun& run) {
  const OpDesc& op = *run.op;
  PushBody body{};
  const size_t layout = op.layout != nullptr ? encode(*op.layout, body.layout, sizeof body.layout) : 0;
  if (op.layout != nullptr && (layout == 0 || layout > sizeof body.layout)) return false;
  const int64_t first = op.layout != nullptr ? op.layout->first : 0;
  const int64_t last = op.layout != nullptr ? op.layout->last : static_cast<int64_t>(op.length);
  const uint64_t zero = reinterpret_cast<uint64_t>(op.address), start = zero + static_cast<uint64_t>(first);
  if (same_process(*peer.link)) {
    body.cts.address = zero;
    body.cts.segment = engine.devices().lend(run);
  } else {
    if (engine.registry().name_device_memory(info_of(op), start, static_cast<uint64_t>(last - first), &body.cts.segment,
                                             &body.cts.segment_offset) != TW_OK) {
      return false;
    }
    body.cts.segment_offset -= static_cast<uint64_t>(first);
  }
  body.uuid = op.device->uuid();
  run.fin = pushed;
  receiving(run).source.asked = 1;
  send_push(engine, peer, run, body, layout);
  return true;
}

/// Its bytes are in the bounce buffer.
void bounced(Engine& engine, OpRun& run, Status status) {
  run.fin = nullptr;
  run.stage = is_error(status) ? kChosen : kHere;
  if (is_error(status)) {
    run.staging->end();
    return choose(engine, run, TW_OK);
  }
  run.staging->filled(wanted(run), [](Engine& e, OpRun& r, Status copied) {
    r.staging->end();
    is_error(copied) ? e.complete(r, copied, last_error()) : received_by(e, r, static_cast<Way>(receiving(r).source.way));
  });
}

/// Asks the sender's device to copy into a bounce buffer of this one. False: there is none (yet), or others have all its
/// chunks.
bool ask_for_bounced_push(Engine& engine, Peer& peer, OpRun& run) {
  receiving(run).source.bounced = 1;
  std::shared_ptr<Bounce> bounce = bounce_for(engine, peer, run.op->device, true);
  if (bounce == nullptr) return false;
  stage(engine, run, Staging::Direction::in, 0, wanted(run));
  const std::byte* const chunk = run.staging->whole(bounce);
  if (chunk == nullptr) return false;
  PushBody body{};
  body.cts.segment = bounce->segment();
  body.cts.segment_offset = bounce->offset_of(chunk);
  body.uuid = run.op->device->uuid();
  run.fin = bounced;
  send_push(engine, peer, run, body, 0);
  return true;
}

/// Within one process: by the source's device, which writes.
Status copy_in_process(Engine& engine, OpRun& run) {
  const OpDesc& op = *run.op;
  const Receiving& state = receiving(run);
  const uint64_t from = state.rts.address, to = reinterpret_cast<uint64_t>(op.address);
  const Uuid source = uuid_of(state.source.uuid);
  Device* device = from_device(state) ? find_device(source) : op.device;
  if (device == nullptr) return TW_ERR_UNREACHABLE;
  bool reads = true, writes = true;
  DeviceUserLists users;
  if (from_device(state) && !use_loan(state.rts.segment, &users)) return TW_ERR_STALE;
  Status status = engine.devices().admit(*device, from, wanted(run), &reads);
  if (status == TW_OK) status = engine.devices().admit(*device, to, 1, &writes);
  if (is_error(status)) return status;
  return device_move(engine, run, *device, CopySide{from, nullptr, reads && writes}, wanted(run), true, nullptr, pulled, users);
}

/// The peer's library-allocated host memory, for this process's device: mapped and pinned here. TW_IN_PROGRESS: it is being
/// mapped.
Status reach_host(Peer& peer, Device& device, uint64_t segment, uint64_t offset, uint64_t length, Mapping** mapping,
                  uint64_t* address) {
  if (const Status status = peer.link->port->import(*peer.link, segment, mapping); status != TW_OK) return status;
  Mapping& found = **mapping;
  if (found.revoked) return TW_ERR_STALE;
  if (offset > found.length || length > found.length - offset) return TW_ERR_OUT_OF_BOUNDS;
  if (!pin_once_worth(device, found, length)) return TW_ERR_UNSUPPORTED;
  *address = reinterpret_cast<uint64_t>(found.address) + offset;
  return TW_OK;
}

/// From the sender's, without waiting for its mapping.
Status pull_from_host(Engine& engine, Peer& peer, OpRun& run) {
  const RtsBody& rts = receiving(run).rts;
  Device& device = *run.op->device;
  Mapping* mapping = nullptr;
  uint64_t from = 0;
  const Status status = reach_host(peer, device, rts.segment, rts.segment_offset, wanted(run), &mapping, &from);
  if (status != TW_OK) return status;
  return device_move(engine, run, device, CopySide{from, nullptr}, wanted(run), true, mapping, pulled);
}

/// Starts a pull from an import. TW_OK: it runs, or waits for the import.
Status pull(Engine& engine, Peer& peer, OpRun& run) {
  const OpDesc& op = *run.op;
  const Receiving& state = receiving(run);
  if (!from_device(state)) return pull_from_host(engine, peer, run);
  Device* device = copier(engine, op, uuid_of(state.source.uuid));
  if (device == nullptr) return TW_ERR_UNREACHABLE;
  Mapping* mapping = nullptr;
  const Status status = import_range(peer, state.rts.segment, state.rts.segment_offset, wanted(run), *device, &mapping);
  if (status == TW_IN_PROGRESS) wait_for_import(peer, run, choose);
  if (status != TW_OK) return status == TW_IN_PROGRESS ? TW_OK : status;
  const uint64_t from = mapping->device_address + state.rts.segment_offset;
  const bool far = device->uuid() != uuid_of(state.source.uuid);
  return device_move(engine, run, *device, CopySide{from, nullptr, true, far}, wanted(run), true, mapping, pulled);
}

/// What both ends have described of the message.
DeviceMessage facts_of(Engine& engine, const Peer& peer, OpRun& run) {
  const OpDesc& op = *run.op;
  const Receiving& state = receiving(run);
  const bool same = same_process(*peer.link);
  DeviceMessage facts;
  facts.features = peer.link->features;
  facts.imports = engine.options().imports;
  facts.length = wanted(run);
  facts.eager = peer.limits.eager;
  facts.forced = engine.options().way;
  facts.from.kind = static_cast<MemoryKind>(state.source.kind);
  facts.from.named = same ? state.rts.address != 0 : state.rts.segment != 0;
  facts.from.library = !from_device(state) && !same && state.rts.segment != 0;
  facts.from.late = state.source.late != 0;
  facts.from.readable = state.rts.address != 0 || state.rts.segment != 0;
  facts.by_kernel = state.rts.segment == 0 && !same;
  facts.costs = &costs_of(peer);
  facts.named_from = engine.options().bounces.from;
  const bool pinned = !on_device(op) && !by_calls(op) && is_pinned(op.address);
  facts.to.kind = on_device(op) ? op.kind : pinned ? MemoryKind::pinned : MemoryKind::host;
  facts.to.named = state.source.asked == 0;
  uint64_t segment = 0, offset = 0;
  facts.to.library =
      !on_device(op) && op.layout == nullptr && engine.registry().find_segment(op.address, wanted(run), &segment, &offset);
  facts.to.bounced = on_device(op) && from_device(state) && state.source.bounced == 0 &&
                     wanted(run) <= engine.options().bounces.device &&
                     engine.devices().reaches(*op.device, uuid_of(state.source.uuid));
  facts.second = state.source.second != 0;
  facts.hidden_from = engine.options().hidden_from;
  facts.same_device = on_device(op) && uuid_of(state.source.uuid) == op.device->uuid();
  return facts;
}

/// Takes this way. False: it is not possible after all.
bool take(Engine& engine, Peer& peer, OpRun& run, DeviceRoute route) {
  Elsewhere other;
  receiving(run).source.way = static_cast<uint8_t>(way_of(route));
  switch (route) {
    case DeviceRoute::in_process:
      return copy_in_process(engine, run) == TW_OK;
    case DeviceRoute::push:
      return on_device(*run.op) ? ask_for_push(engine, peer, run) : ask_for_push_to_host(engine, peer, run);
    case DeviceRoute::push_bounce:
      return ask_for_bounced_push(engine, peer, run);
    case DeviceRoute::pull:
      return pull(engine, peer, run) == TW_OK;
    case DeviceRoute::copy:
      if (!on_device(*run.op)) return receive_by_cpu(engine, peer, run, receiving(run).rts);
      if (!choose_pull(peer, *run.op, receiving(run).rts, &other)) return false;
      pipeline_pull(engine, peer, run, other, 0, wanted(run), pulled);
      return true;
    default:
      break;
  }
  take_frames(engine, run);
  return true;
}

void choose(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) return engine.complete(run, status, last_error());  // the stream to wait for is broken
  Peer& peer = *run.peer;
  const DeviceMessage facts = facts_of(engine, peer, run);
  for (uint32_t failed = 0;;) {
    const DeviceRoute route = device_route(facts, failed);
    if (take(engine, peer, run, route)) return;
    failed |= bit_of(route);
  }
}

// ------------------------------------------------------------------------------------------------ the sender

void push_over(Engine& engine, OpRun& run, Status status) {
  run.stage = kRtsSent;
  send_fin(engine, *run.peer, serving(run).cts.op, status);
  if (status == TW_OK) engine.complete(run, TW_OK);
}

/// The receiver's.
Status reach_receivers_host(OpRun& run, Device** device, CopySide* to, Mapping** mapping) {
  const CtsBody& cts = serving(run).cts;
  if (!on_device(*run.op) || (run.peer->link->features & kLinkMaps) == 0) return TW_ERR_UNREACHABLE;
  *device = run.op->device;
  uint64_t address = 0;
  const Status status = reach_host(*run.peer, **device, cts.segment, cts.segment_offset, cts.length, mapping, &address);
  if (status == TW_OK) *to = CopySide{address, nullptr};
  return status;
}

/// Where the receiver's packed bytes go: TW_OK, TW_IN_PROGRESS or an error.
Status reach_receiver(Engine& engine, OpRun& run, Device** device, CopySide* to, Mapping** mapping, DeviceUserLists* users) {
  Peer& peer = *run.peer;
  const CtsBody& cts = serving(run).cts;
  const Layout* const layout = run.own.remote_layout;
  if (serving(run).uuid == Uuid{}) return reach_receivers_host(run, device, to, mapping);
  *device = copier(engine, *run.op, serving(run).uuid);
  if (*device == nullptr) return TW_ERR_UNREACHABLE;
  if (same_process(*peer.link) && cts.address != 0) {
    if (!use_loan(cts.segment, users)) return TW_ERR_STALE;
    *to = copy_side(cts.address, layout);
    return engine.devices().admit(**device, cts.address, 1, &to->kernels);
  }
  const int64_t first = layout != nullptr ? layout->first : 0;
  const int64_t last = layout != nullptr ? layout->last : static_cast<int64_t>(cts.length);
  const Status status = import_range(peer, cts.segment, cts.segment_offset + static_cast<uint64_t>(first),
                                     static_cast<uint64_t>(last - first), **device, mapping);
  if (status == TW_OK) *to = copy_side((*mapping)->device_address + cts.segment_offset, layout);
  to->far = (*device)->uuid() != serving(run).uuid;
  return status;
}

void push(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) return give_up(engine, run, serving(run).cts.op, status);
  Device* device = nullptr;
  Mapping* mapping = nullptr;
  CopySide to{};
  DeviceUserLists users;
  Status reached = reach_receiver(engine, run, &device, &to, &mapping, &users);
  if (reached == TW_IN_PROGRESS) return wait_for_import(*run.peer, run, push);
  if (reached == TW_OK) {
    reached = device_move(engine, run, *device, to, serving(run).cts.length, false, mapping, push_over, users);
  }
  if (is_error(reached)) push_over(engine, run, TW_ERR_UNSUPPORTED);
}

template <bool kLast>
void frames(Engine& engine, OpRun& run, Status status) {
  if (is_error(status)) return give_up(engine, run, serving(run).cts.op, status);
  run.stage = kRtsSent;
  start_frames(engine, *run.peer, run, serving(run).cts, kLast);
}

}  // namespace

bool describe_device(Engine& engine, OpRun& run, RtsBody* rts, DeviceBody* device) {
  const OpDesc& op = *run.op;
  const uint64_t address = reinterpret_cast<uint64_t>(op.address);
  BufferInfo info;
  if (!on_device(op) || (op.flags & kOpLate) != 0 || op.layout != nullptr) {
    if (!on_device(op) && (op.layout != nullptr || find_device(address, &info) != TW_OK)) return false;
  } else if (same_process(*op.peer->link)) {
    rts->address = address;
    rts->segment = engine.devices().lend(run);
  } else if ((op.peer->link->features & kLinkMaps) != 0) {
    // Without a name the receiver's memory is pushed into, or it goes through a bounce buffer.
    static_cast<void>(
        engine.registry().name_device_memory(info_of(op), address, op.length, &rts->segment, &rts->segment_offset));
  }
  const Device* of = on_device(op) ? op.device : info.device;
  if (of == nullptr) return false;
  std::memcpy(device->uuid, of->uuid().data(), sizeof device->uuid);
  device->kind = static_cast<uint8_t>(on_device(op) ? op.kind : info.kind);
  device->late = (op.flags & kOpLate) != 0 ? 1 : 0;
  return true;
}

void device_receive(Engine& engine, Peer& peer, OpRun& run, const ReceivedRts& received_rts) {
  receiving(run) = Receiving{received_rts.rts, received_rts.device};
  if (!received_rts.near_device) receiving(run).source = DeviceBody{};
  receiving(run).source.asked = receiving(run).source.way = receiving(run).source.bounced = 0;
  receiving(run).source.second = engine.in_call() ? 1 : 0;
  engine.bind(run, peer);
  engine.devices().when_ready(run, choose);
}

void device_claimed(Engine& engine, Peer& peer, OpRun& run, const ReceivedRts& received_rts) {
  run.cancelable = false;
  engine.bind(run, peer);
  receiving(run) = Receiving{received_rts.rts, received_rts.device};
  receiving(run).source.way = static_cast<uint8_t>(Way::push);
  receiving(run).source.asked = 1;
  receiving(run).source.second = 0;
  run.fin = pushed;
  run.stage = kAsked;
}

void device_push_claimed(Engine& engine, OpRun& run, const Claim& claim) {
  serving(run) = Serving{};
  serving(run).cts.op = claim.op;
  run.stage = kServing;
  const uint64_t to = claim.mapping->device_address + claim.segment_offset;
  const CopySide there{to, nullptr, true, run.op->device->uuid() != claim.uuid};
  const Status status = device_move(engine, run, *run.op->device, there, run.op->length, false, claim.mapping, push_over);
  if (is_error(status)) return push_over(engine, run, TW_ERR_UNSUPPORTED);
  engine.devices().start();
}

void device_serve(Engine& engine, Peer& peer, OpRun& run, const CtsBody& cts, PeerBytes* body, bool last) {
  // Packed bytes from the first on: a part in the middle is asked for as frames only.
  if (body != nullptr && cts.offset != 0) return engine.violation(peer, "a push of a part into a device");
  Uuid uuid{};
  if (body != nullptr && !body->take(&uuid)) return engine.violation(peer, "a short cts frame");
  serving(run) = Serving{cts, uuid};
  release(std::exchange(run.own.remote_layout, nullptr));  // of an earlier push, which was refused
  if (body != nullptr && body->left() != 0) {
    Layout* layout = nullptr;
    const bool fits = decode(*body, &layout) == TW_OK && layout->bytes >= cts.length;
    if (!fits) release(layout);
    if (!fits) return engine.violation(peer, "a push into a layout that does not fit");
    run.own.remote_layout = layout;  // released with the run
    run.extras = true;
  }
  run.stage = kServing;
  engine.devices().when_ready(run, body != nullptr ? push : last ? frames<true> : frames<false>);
}

}  // namespace thalweg::impl
