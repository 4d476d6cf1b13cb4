// SPDX-License-Identifier: Apache-2.0
// What the one-sided protocols share: regions, checks, the ordered queue.
#include "protocols/one_sided.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "protocols/blocks.hpp"
#include "routes/peer_places.hpp"

namespace thalweg::impl {
namespace {

constexpr unsigned kPiecesPerTurn = 4;

Status refuse_bounds(const OpDesc& op) {
  return fail(TW_ERR_OUT_OF_BOUNDS, "%llu bytes at offset %llu reach outside the imported range of %llu bytes",
              static_cast<unsigned long long>(op.length), static_cast<unsigned long long>(op.remote_offset),
              static_cast<unsigned long long>(op.remote->key.length));
}

Status refuse_lost(const Peer& peer, Status why) {
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  return fail(
      why, "%s",
      why == TW_ERR_CLOSED ? "the peer closed the endpoint" : "the peer's process has ended, or it dropped the connection");
}

}  // namespace

// ------------------------------------------------------------------------------------------------ regions

Status import_region(Peer& peer, const KeyBody& key, RemoteRegion** out) {
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (peer.state == TW_OK && key.incarnation != peer.identity.incarnation) {
    return fail(TW_ERR_STALE,
                "the key was exported by another process or an earlier incarnation of this peer; export it again");
  }
  auto region = std::make_unique<RemoteRegion>();
  region->peer = &peer;
  region->key = key;
  if (peer.state == TW_OK) map_region(*region);
  *out = region.release();
  return TW_OK;
}

void unmap_region(RemoteRegion& region) {
  if (region.mapping != nullptr) --region.mapping->users;
  region.mapping = nullptr;
  region.mapped = nullptr;
}

void release_region(RemoteRegion* region) {
  if (region == nullptr || region->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  unmap_region(*region);
  delete region;
}

bool will_map(const RemoteRegion& region) { return awaits_import(region) && may_map(region.peer->engine->options().way); }

bool unmappable_now(RemoteRegion& region) {
  if (region.unmappable && region.ask_again != 0 && monotonic_ns() >= region.ask_again) {
    region.unmappable = false;
    region.ask_again = 0;
  }
  return region.unmappable;
}

Status map_region(RemoteRegion& region) {
  if (region.mapped != nullptr) {
    if (!region.mapping->revoked) return TW_OK;
    const Status why = region.mapping->why;
    // The service thread knows it before the endpoint does, which learns it by progress and unmaps then.
    if (why != TW_ERR_STALE) return refuse_lost(*region.peer, why);
    if (!region.held) unmap_region(region);
    region.revoked = true;
  }
  if (region.revoked) return fail(TW_ERR_STALE, "the peer has released this memory; import a new key");
  if (region.peer == nullptr) return fail(TW_ERR_PEER_LOST, "the endpoint of this memory has ended");
  Peer& peer = *region.peer;
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (peer.link == nullptr) return TW_IN_PROGRESS;
  if (region.key.incarnation != peer.identity.incarnation) {
    region.revoked = true;
    return fail(TW_ERR_STALE,
                "the key was exported by another process or an earlier incarnation of this peer; export it again");
  }
  const Place place = peer_place(region.key, peer.link->features & ~uint32_t{kLinkSameProcess});
  if (region.unmappable || of_device(region) || !place.reached(kByPort)) {
    return fail(TW_ERR_UNSUPPORTED, "only memory of tw_memory_allocate on this machine can be mapped");
  }
  if (!may_map(peer.engine->options().way)) {
    region.unmappable = true;
    return fail(TW_ERR_UNSUPPORTED, "THALWEG_WAY forces another way than mapped memory");
  }
  Mapping* mapping = nullptr;
  const Status s = peer.link->port->import(*peer.link, region.key.segment, &mapping);
  if (s != TW_OK) {
    region.unmappable = is_error(s);
    if (s == TW_ERR_NO_DESCRIPTORS || s == TW_ERR_LIMIT) region.ask_again = monotonic_ns() + kAskAgainNs;
    return s;
  }
  if (region.key.segment_offset > mapping->length || region.key.length > mapping->length - region.key.segment_offset) {
    region.unmappable = true;
    return fail(TW_ERR_OUT_OF_BOUNDS, "the key names a range outside of the peer's memory");
  }
  ++mapping->users;
  region.mapping = mapping;
  region.mapped = mapping->address + region.key.segment_offset;
  return TW_OK;
}

bool known_here(const RemoteRegion& region) {
  if (!in_process(region)) return false;
  const Registry& registry = region.peer->engine->registry();
  const Registry::Reading reading(registry);
  Target target;
  return registry.resolve(reading, region.key.rkey, 0, 0, 0, &target) == TW_OK;
}

std::byte* reach(const RemoteRegion& region, uint64_t offset, int64_t first, int64_t last, uint32_t access,
                 const Registry::Reading* reading, Status* status) {
  *status = TW_OK;
  if (region.mapped != nullptr) return region.mapped + offset;
  if (reading == nullptr || !in_process(region)) return nullptr;
  Target target;
  const Registry& registry = region.peer->engine->registry();
  *status = registry.resolve(*reading, region.key.rkey, offset + static_cast<uint64_t>(first),
                             static_cast<uint64_t>(last - first), access, &target);
  // Unknown here, it may still be alive in another context of this process: that one's progress decides.
  if (*status != TW_OK || !by_cpu(target.kind)) return nullptr;
  // The key's address, which the caller has looked at, is only what it says; a mapping's fits (parse_key).
  const bool word = (access & (TW_MEMORY_ATOMIC | kAccessSignal)) != 0;
  if (word && reinterpret_cast<uintptr_t>(target.address) % static_cast<uint64_t>(last - first) != 0) {
    *status = fail(TW_ERR_MISALIGNED, "the key's address is not that of its memory: import what the export wrote unchanged");
    return nullptr;
  }
  return target.address - first;
}

// ------------------------------------------------------------------------------------------------ checks

Status check_local(const OpDesc& op, const RemoteRegion& target) {
  if (!by_calls(op) || !of_device(target)) return TW_OK;
  return fail(
      TW_ERR_UNSUPPORTED,
      "a layout of callbacks is packed and unpacked by the host, and the target is memory of a device: put from, or get "
      "into, packed host memory");
}

Status check_range(const OpDesc& op, uint32_t access) {
  const RemoteRegion& region = *op.remote;
  if ((region.key.access & access) != access) {
    return fail(TW_ERR_PERMISSION, "the key does not allow this access; export it with the TW_MEMORY_* bits needed");
  }
  __int128 first = 0, last = static_cast<__int128>(op.length);
  if (op.remote_layout != nullptr) {
    if (op.remote_layout->bytes != op.length) {
      return fail(TW_ERR_INVALID, "the remote layout has %llu bytes, the local side %llu",
                  static_cast<unsigned long long>(op.remote_layout->bytes), static_cast<unsigned long long>(op.length));
    }
    first = op.remote_layout->first;
    last = op.remote_layout->last;
  }
  first += op.remote_offset;
  last += op.remote_offset;
  return first < 0 || last > static_cast<__int128>(region.key.length) ? refuse_bounds(op) : Status{TW_OK};
}

Status check_target(const OpDesc& op, uint32_t access) {
  Peer& peer = *op.peer;
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  RemoteRegion& region = *op.remote;
  if (const Status status = check_local(op, region); is_error(status)) return status;
  if (region.revoked || (region.mapping != nullptr && region.mapping->revoked)) return map_region(region);
  if (const Status status = check_range(op, access); is_error(status)) return status;
  if (peer.state == TW_OK && region.mapped == nullptr && !unmappable_now(region) && !of_device(region)) {
    if (region.key.incarnation != peer.identity.incarnation) return map_region(region);
    if (region.key.segment != 0) map_region(region);  // requests the import unless that was done
  }
  return TW_OK;
}

// ------------------------------------------------------------------------------------------------ starting

namespace {

/// Whether memory is of another context of this process is found when it is tried.
bool perhaps_mapped(const RemoteRegion& region) { return region.mapped != nullptr || in_process(region); }

Status move_by(AccessRoute route, const OpDesc& op) {
  const bool mapped = route == AccessRoute::mapped;
  switch (op.verb) {
    case Verb::put:
      return mapped ? put_mapped(op) : put_single_copy(op);
    case Verb::get:
      return mapped ? get_mapped(op) : get_single_copy(op);
    default:
      return atomic_mapped(op);
  }
}

}  // namespace

Access access_of(const OpDesc& op) { return access_of(op, perhaps_mapped(*op.remote)); }

Status move_at_once(const OpDesc& op, const Access& access) {
  uint32_t failed = 0;
  for (;;) {
    const AccessRoute route = access_route(access, failed);
    if (route == AccessRoute::frames) return TW_AGAIN;
    const Status status = move_by(route, op);
    if (!frames_decide(status) || op.remote->revoked) return status;
    failed |= bit_of(route);
  }
}

namespace {

Status start_data(Engine& engine, const OpDesc& op, const Completion& completion, const Protocol& frames) {
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  if (needs_device(op)) return launch_one_sided(engine, op, completion, op.verb == Verb::put ? kPutDevice : kGetDevice);
  if (op.peer->link == nullptr || behind_fence(op) || awaits_import(*op.remote)) {
    return launch_one_sided(engine, op, completion, kDeferred);
  }
  const Status status = move_at_once(op, access_of(op));
  if (status == TW_OK) return signal_after_data(op, completion);
  return status == TW_AGAIN ? launch_one_sided(engine, op, completion, frames) : status;
}

}  // namespace

Status start_put(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (Status s = check_target(op, TW_MEMORY_WRITE); is_error(s)) return s;
  if (op.remote_layout != nullptr) {
    if (Status s = check_receive(op.remote_layout); is_error(s)) return s;
  }
  if (op.signal != nullptr) {
    if (Status s = check_signal(op); is_error(s)) return s;
  }
  return start_data(engine, op, completion, kPutFrames);
}

Status start_get(Engine& engine, const OpDesc& op, const Completion& completion) {
  if (Status s = check_target(op, TW_MEMORY_READ); is_error(s)) return s;
  if (Status s = check_receive(op.layout); is_error(s)) return s;
  return start_data(engine, op, completion, kGetFrames);
}

// ------------------------------------------------------------------------------------------------ the ordered queue

void note_frames(Peer& peer, OpRun& run) {
  const OpDesc& op = *run.op;
  run.sequence = ++peer.one_sided.framed;
  const bool answered =
      op.verb == Verb::get || op.verb == Verb::get_blocks || op.result != nullptr || (op.flags & TW_OP_REMOTE) != 0;
  if (!answered) peer.one_sided.silent = run.sequence;
}

void count_in(OpRun& run, Counted as) {
  OneSided& state = run.peer->one_sided;
  run.counted = as;
  ++(as == Counted::device ? state.device : as == Counted::get ? state.gets : state.fences);
  if (as == Counted::fence_out) ++state.fences_out;
}

void count_out(OpRun& run) {
  OneSided& state = run.peer->one_sided;
  const Counted as = std::exchange(run.counted, Counted::no);
  if (as == Counted::no) return;
  --(as == Counted::device ? state.device : as == Counted::get ? state.gets : state.fences);
  if (as == Counted::fence_out) --state.fences_out;
}

/// Have frames of it gone? A put of no bytes has a frame, too.
static bool has_begun(const OpRun& run) { return run.moved != 0 || (run.protocol == &kPutFrames && run.stage != 0); }

void to_front(OpRun& run) {
  Peer& peer = *run.peer;
  RunList& queue = peer.one_sided.queue;
  const bool part = (run.op->flags & kOpPart) != 0;
  // One whose notification waits for earlier ones is passed by them.
  const bool stays = queue.front() != nullptr && has_begun(*queue.front()) && (part || !behind_notices(*queue.front()));
  OpRun* const begun = stays ? queue.pop_front() : nullptr;
  // Parts wait for nothing, and an operation that comes back may wait for theirs: they stay before it.
  RunList parts;
  while (!part && queue.front() != nullptr && (queue.front()->op->flags & kOpPart) != 0) parts.push_back(queue.pop_front());
  queue.push_front(&run);
  while (OpRun* const one = parts.back()) {
    parts.remove(one);
    queue.push_front(one);
  }
  if (begun != nullptr) queue.push_front(begun);
  peer.engine->pusher().wants(peer);
}

/// What waits may outlive its caller's handles: a region may be released behind a put.
void hold_regions(OpRun& run) {
  for (RemoteRegion* region : {run.own.remote, run.own.signal}) {
    if (region != nullptr) region->references.fetch_add(1, std::memory_order_relaxed);
  }
  if (run.own.blocks != nullptr) run.own.blocks->references.fetch_add(1, std::memory_order_relaxed);
  run.holds_regions = run.extras = true;
}

void note_failure(Peer& peer, const OpRun& run, Status status) {
  const bool told = !run.detached || (run.sink != SinkKind::none && run.sink != SinkKind::done) ||
                    run.op->verb == Verb::flush || run.op->verb == Verb::get || run.op->verb == Verb::get_blocks;
  if (!told && peer.one_sided.owed == TW_OK) peer.one_sided.owed = status;
}

namespace {

/// It ended where it was started.
void discard_one_sided(Engine& engine, OpRun& run) {
  if (run.holds_regions && run.own.blocks != nullptr) leave_notices(run);
  if (run.holds_regions) drop_regions(run);
  engine.discard(run);
}

}  // namespace

void drop_regions(OpRun& run) {
  release_region(run.own.remote);
  release_region(run.own.signal);
  release(run.own.blocks);
  run.own.remote = run.own.signal = nullptr;
  run.own.blocks = nullptr;
  run.holds_regions = false;
}

Status launch_one_sided(Engine& engine, const OpDesc& op, const Completion& completion, const Protocol& protocol) {
  Peer& peer = *op.peer;
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  const bool part = (op.flags & kOpPart) != 0;
  const OpRun* const first = peer.one_sided.queue.front();
  const bool turn = first == nullptr || (part && !has_begun(*first));  // not between the frames of another operation
  const bool may_step = peer.link != nullptr && turn && peer.control.empty();
  const bool no_wait = (op.flags & TW_OP_NO_WAIT) != 0;
  if (!may_step && no_wait) return TW_AGAIN;
  OpRun* run = engine.acquire(op, completion);
  if (run == nullptr) return TW_ERR_LIMIT;
  run->protocol = &protocol;
  ++peer.one_sided.issued;
  // A get looks at its region once more when the last answer has come.
  if (op.blocks != nullptr || op.verb == Verb::get) hold_regions(*run);
  engine.bind(*run, peer);
  const uint64_t name = engine.runs().number(*run);
  const Status status = may_step ? protocol.step(*run) : TW_AGAIN;
  if (status == TW_AGAIN) {
    if (no_wait && run->stage == 0 && run->moved == 0) {
      --peer.one_sided.issued;
      discard_one_sided(engine, *run);
      return TW_AGAIN;
    }
    if (!run->holds_regions) hold_regions(*run);
    if (part) {
      to_front(*run);
    } else {
      peer.one_sided.queue.push_back(run);
      engine.pusher().wants(peer);
    }
  } else if (status != TW_IN_PROGRESS) {
    discard_one_sided(engine, *run);
    return status;
  }
  if (completion.request != nullptr) *completion.request = name;
  return TW_IN_PROGRESS;
}

namespace {

/// The front's notification waits for an earlier one, whose run came back to the ordered queue while the front's frames were
/// going: that one is next.
bool let_earlier_pass(Peer& peer, const OpRun& front) {
  RunList& queue = peer.one_sided.queue;
  OpRun* const first = peer.one_sided.notices.first;
  if (!behind_notices(front) || first->list != &queue) return false;
  queue.remove(first);
  queue.push_front(first);
  return true;
}

}  // namespace

unsigned push_one_sided(Engine& engine, Peer& peer, bool room) {
  unsigned events = room ? push_notices(engine, peer) : 0;
  while (events < kPiecesPerTurn) {
    OpRun* run = peer.one_sided.queue.front();
    if (run == nullptr || peer.link == nullptr || peer.doomed || (!room && !in_window(*run))) break;
    const uint64_t moved = run->moved;
    const uint8_t stage = run->stage;
    const Status status = run->protocol->step(*run);
    if (status == TW_AGAIN) {
      if (run->moved == moved && run->stage == stage && !let_earlier_pass(peer, *run)) break;
    } else if (status == TW_IN_PROGRESS) {
      if (run->list == &peer.one_sided.queue) peer.one_sided.queue.remove(run);
    } else {
      if (is_error(status)) note_failure(peer, *run, status);
      engine.complete(*run, status);
    }
    ++events;
  }
  return events;
}

void on_confirmed(Engine& engine, OpRun& run, Status status) {
  if (run.peer != nullptr) confirm(*run.peer, run);
  if (run.peer != nullptr && is_error(status)) note_failure(*run.peer, run, status);
  engine.complete(run, status);
}

size_t queue_fragment(const Peer& peer) {
  constexpr size_t kOverhead = 64 + kWireLayout;  // prefixes of put_layout and get
  const size_t room = peer.link->copy_max > 2 * kOverhead ? peer.link->copy_max - kOverhead : kOverhead;
  return std::min<size_t>(room, std::max<uint32_t>(peer.limits.fragment, 1));
}

size_t encode_part(const Layout& layout, uint64_t position, uint64_t* length, uint64_t* skip, std::byte* wire) {
  if (layout.pieces.empty()) {
    *skip = position;
    return encode(layout, wire, kWireLayout);
  }
  // The pieces that the part touches: its first byte is `skip` bytes into the first of them.
  constexpr size_t kPieces = (kWireLayout - 4) / sizeof(tw_piece);
  const auto after = std::upper_bound(layout.before.begin(), layout.before.end(), position);
  const size_t first = static_cast<size_t>(after - layout.before.begin()) - 1;
  *skip = position - layout.before[first];
  size_t count = 0;
  uint64_t covered = 0;
  while (count < kPieces && first + count < layout.pieces.size() && covered < *skip + *length) {
    covered += layout.pieces[first + count++].length;
  }
  *length = std::min(*length, covered - *skip);
  return encode_pieces(layout, first, count, wire, kWireLayout);
}

Status resolve_layout(const Registry& registry, const Registry::Reading& reading, uint64_t rkey, uint64_t offset,
                      const Layout& layout, uint32_t access, Target* base) {
  const __int128 first = static_cast<__int128>(offset) + layout.first;
  if (first < 0 || first > static_cast<__int128>(UINT64_MAX)) return TW_ERR_OUT_OF_BOUNDS;
  Target target;
  const Status s = registry.resolve(reading, rkey, static_cast<uint64_t>(first),
                                    static_cast<uint64_t>(layout.last - layout.first), access, &target);
  if (s == TW_OK) target.address -= layout.first;
  if (s == TW_OK) *base = target;
  return s;
}

void conclude(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t op, Status status) {
  if ((header.flags & kFrameAck) != 0) {
    engine.send_control(peer, make_header(Frame::fin, 0, op, static_cast<uint64_t>(static_cast<int64_t>(status))), nullptr);
  } else if (is_error(status) && peer.one_sided.failed == TW_OK) {
    peer.one_sided.failed = status;
  }
}

}  // namespace thalweg::impl
