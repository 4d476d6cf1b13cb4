// SPDX-License-Identifier: Apache-2.0
// Bounce buffers that both processes reach; see bounce.hpp.
#include "protocols/bounce.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "memory/placement.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/reach_device.hpp"
#include "protocols/rendezvous.hpp"
#include "protocols/staging.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMost = 64;  // bounce buffers that one peer may name

Bounces& bounces_of(Peer& peer) {
  if (peer.bounces == nullptr) peer.bounces = std::make_unique<Bounces>();
  return *peer.bounces;
}

/// May pieces for this peer be named at all?
bool names(Engine& engine, const Peer& peer) {
  return peer.link != nullptr && may_name(peer.link->features, engine.options().way);
}

void tell(Engine& engine, Peer& peer, const Bounce& bounce) {
  BounceBody body{};
  body.offset = bounce.offset();
  body.length = bounce.length();
  if (bounce.device() != nullptr) std::memcpy(body.uuid, bounce.device()->uuid().data(), sizeof body.uuid);
  body.on_device = bounce.on_device() ? 1 : 0;
  engine.send_control(peer, make_header(Frame::bounce, sizeof body, bounce.segment(), 0), &body);
}

Bounces::Theirs* told_of(Peer& peer, uint64_t segment) {
  if (peer.bounces == nullptr) return nullptr;
  const auto same = [segment](const Bounces::Theirs& one) { return one.segment == segment; };
  const auto found = std::find_if(peer.bounces->theirs.begin(), peer.bounces->theirs.end(), same);
  return found != peer.bounces->theirs.end() ? &*found : nullptr;
}

Bounces::Theirs* told_of(Peer& peer, const Uuid& device, bool on_device) {
  if (peer.bounces == nullptr) return nullptr;
  const auto same = [&](const Bounces::Theirs& one) { return one.on_device == on_device && one.uuid == device; };
  const auto found = std::find_if(peer.bounces->theirs.begin(), peer.bounces->theirs.end(), same);
  return found != peer.bounces->theirs.end() ? &*found : nullptr;
}

/// The bytes of a piece in host memory that is mapped here; null: a protocol violation, handled.
const std::byte* mapped_piece(Engine& engine, Peer& peer, const Bounces::Theirs& theirs, const PieceBody& piece) {
  if (theirs.mapping != nullptr) return theirs.mapping->address + piece.offset;
  engine.violation(peer, "a piece in memory that is not mapped here");
  return nullptr;
}

/// The bounce buffer that a piece lies in. Null: a protocol violation, handled; or it has released that memory, as it does
/// once it ends the connection, whose end is behind this frame.
Bounces::Theirs* find_piece(Engine& engine, Peer& peer, PeerBytes& body, PieceBody* piece) {
  if (!body.take(piece)) return engine.violation(peer, "a short piece"), nullptr;
  Bounces::Theirs* theirs = told_of(peer, piece->segment);
  const bool inside = theirs != nullptr && piece->length != 0 && piece->offset >= theirs->offset &&
                      piece->offset - theirs->offset <= theirs->length &&
                      piece->length <= theirs->length - (piece->offset - theirs->offset);
  if (!inside) return engine.violation(peer, "a piece outside of the memory that it has told of"), nullptr;
  const bool released = theirs->released || (theirs->mapping != nullptr && theirs->mapping->revoked);
  return released ? nullptr : theirs;
}

Pieces pieces_of(Engine& engine, const Peer& peer, const OpRun& run, const Uuid& from, bool from_managed) {
  Pieces facts = pieces_to(peer, wanted(run));
  facts.to_device = (run.op->flags & kOpDevice) != 0;
  facts.from_device = from != Uuid{};
  if (!names(engine, peer) || !facts.to_device) return facts;
  facts.same_device = from == run.op->device->uuid();
  facts.managed = from_managed || run.op->kind == MemoryKind::managed;
  facts.reaches = facts.from_device && engine.devices().reaches(*run.op->device, from);
  return facts;
}

/// In memory of the sender's device. TW_IN_PROGRESS: not named by the sender, or not imported yet; do not wait for it.
Status take_in_device(Peer& peer, Device& device, const Uuid& from) {
  const Bounces::Theirs* const theirs = told_of(peer, from, true);
  if (theirs == nullptr) return TW_IN_PROGRESS;
  Mapping* mapping = nullptr;
  return import_range(peer, theirs->segment, theirs->offset, theirs->length, device, &mapping);
}

}  // namespace

Pieces pieces_to(const Peer& peer, uint64_t length) {
  const EngineOptions& options = peer.engine->options();
  Pieces facts;
  facts.features = peer.link != nullptr ? peer.link->features : 0;
  facts.imports = options.imports;
  facts.forced = options.way;
  facts.length = length;
  facts.named_from = options.bounces.from;
  facts.shared_from = options.bounces.shared_from;
  return facts;
}

// ------------------------------------------------------------------------------------------------ the memory

Bounce::Bounce(Engine& engine, Device* device, bool on_device, uint64_t chunk, tw_memory* memory)
    : engine_(engine), device_(device), on_device_(on_device), chunk_(chunk), memory_(memory) {
  for (unsigned i = kChunks; i-- != 0;) free_.push_back(memory->address + i * chunk);
}

Status Bounce::make(Engine& engine, Device* device, bool on_device, uint64_t chunk, std::shared_ptr<Bounce>* out) {
  MemoryPlace place{device != nullptr ? MemoryKind::pinned : MemoryKind::host, device};
  if (on_device) {
    const std::string name = device->name() + (":" + std::to_string(device->ordinal()));
    if (const Status status = parse_place(name.c_str(), &place); is_error(status)) return status;
  }
  tw_memory* memory = nullptr;
  if (const Status status = allocate_at(engine.registry(), place, kChunks * chunk, 0, false, &memory); is_error(status))
    return status;
  if (memory->segment_id == 0) {
    engine.registry().release(memory);
    return fail(TW_ERR_UNSUPPORTED, "this device's memory cannot be shared");
  }
  out->reset(new Bounce(engine, device, on_device, chunk, memory));
  return TW_OK;
}

/// Within progress, which waits for no peer: what one keeps imported goes later, when another bounce buffer is made.
Bounce::~Bounce() { engine_.registry().release_or_leave(memory_); }

std::byte* Bounce::take() {
  if (free_.empty()) return nullptr;
  std::byte* const chunk = free_.back();
  free_.pop_back();
  return chunk;
}

void Bounce::give(std::byte* chunk) {
  free_.push_back(chunk);
  OpRun* const run = waiting_.pop_front();
  if (run == nullptr) return;
  run->peer->pipelines.push_back(run);
  engine_.pusher().wants(*run->peer);
}

Bounces::~Bounces() {
  for (const Theirs& one : theirs) {
    if (one.mapping != nullptr) --one.mapping->users;
  }
}

// ------------------------------------------------------------------------------------------------ the sender

namespace {

Bounces::Ours* made_for(Bounces& bounces, const Device* device, bool on_device) {
  const auto same = [&](const Bounces::Ours& one) { return one.device == device && one.on_device == on_device; };
  const auto found = std::find_if(bounces.ours.begin(), bounces.ours.end(), same);
  return found != bounces.ours.end() ? &*found : nullptr;
}

}  // namespace

void make_bounce(Engine& engine, Peer& peer, Device* device, bool on_device) {
  if (!names(engine, peer) || made_for(bounces_of(peer), device, on_device) != nullptr) return;
  engine.registry().release_left();
  Bounces::Ours ours{nullptr, device, on_device, false};
  const BounceSizes& sizes = engine.options().bounces;
  const uint64_t chunk = on_device ? sizes.device : sizes.host;
  if (is_error(Bounce::make(engine, device, on_device, chunk, &ours.bounce))) {
    warn_once("bounce", std::string("pieces of device memory are not named to peers, but sent: ") + last_error());
  } else {
    tell(engine, peer, *ours.bounce);
  }
  bounces_of(peer).ours.push_back(std::move(ours));
}

std::shared_ptr<Bounce> bounce_for(Engine& engine, Peer& peer, Device* device, bool on_device) {
  if (!names(engine, peer)) return nullptr;
  const Bounces::Ours* const made = made_for(bounces_of(peer), device, on_device);
  if (made != nullptr) return on_device || made->mapped ? made->bounce : nullptr;
  if (device == nullptr || engine.options().imports) make_bounce(engine, peer, device, on_device);
  return nullptr;
}

void name_pieces(Engine& engine, Peer& peer, OpRun& run, uint64_t forms) {
  Device* const device = (run.op->flags & kOpDevice) != 0 ? run.op->device : nullptr;
  if ((device != nullptr) != (run.staging != nullptr)) return;  // blocks
  if (device != nullptr && (forms & kTellOfDevice) != 0) bounce_for(engine, peer, device, true);
  if ((forms & kTellOfHost) != 0) bounce_for(engine, peer, device, false);
  std::shared_ptr<Bounce> bounce;
  if (device != nullptr && (forms & kPiecesInDevice) != 0) bounce = bounce_for(engine, peer, device, true);
  if (bounce == nullptr && (forms & kPiecesInHost) != 0) bounce = bounce_for(engine, peer, device, false);
  if (bounce == nullptr) return;
  const bool as_long = bounce->on_device() || (forms & kLongPieces) != 0;
  if (device == nullptr) {
    run.staging = new Staging(engine, run, run.pipeline.begin, run.pipeline.end);
    run.extras = true;
  }
  const uint64_t longest = as_long ? bounce->chunk() : std::min(bounce->chunk(), engine.options().bounces.by_cpu);
  if (run.staging->use(std::move(bounce), longest) || device != nullptr) return;
  delete run.staging;  // frames, from where it lies
  run.staging = nullptr;
}

Pieces put_pieces(const OpDesc& op) {
  Pieces facts = pieces_to(*op.peer, op.length);
  facts.put = facts.from_device = true;
  facts.to_device = of_device(*op.remote);
  facts.strided = op.remote_layout != nullptr;
  OpDesc part = op;  // from pinned memory
  part.flags &= ~(kOpDevice | kOpLate);
  Access access = access_of(part);
  access.fenced = false;
  facts.reached = access_route(access) != AccessRoute::frames;
  return facts;
}

bool name_put(Engine& engine, Peer& peer, OpRun& run) {
  if (piece_route(put_pieces(*run.op)) != PieceRoute::in_host) return false;
  std::shared_ptr<Bounce> bounce = bounce_for(engine, peer, run.op->device, false);
  if (bounce == nullptr) return false;  // as if it had been tried in vain
  const uint64_t longest = std::min(bounce->chunk(), engine.options().bounces.by_cpu);
  return run.staging->use(std::move(bounce), longest);
}

Status send_named(Engine& engine, Peer& peer, OpRun& run, FrameHeader header, const std::byte* bytes, size_t length) {
  const Bounce& bounce = *run.staging->bounce();
  const PieceBody piece{bounce.segment(), bounce.offset_of(bytes), length, engine.runs().wire_op(run)};
  header.length = sizeof piece;
  const Status status = peer.link->port->send(*peer.link, header, &piece);
  if (status == TW_OK) {
    ++run.pipeline.in_flight;
    peer.tally.moved.count_named(length);
  }
  return status;
}

void on_taken(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes) {
  OpRun* const run = engine.runs().answered(header.a, peer);
  if (run == nullptr) return;
  const bool waits = run->pipeline.kind == Pipeline::out && run->pipeline.in_flight != 0 && run->staging != nullptr &&
                     run->staging->bounce() != nullptr;
  if (!waits) return engine.violation(peer, "an end of a piece that was not sent");
  run->staging->taken_oldest();
  piece_sent(engine, *run, TW_OK);
}

// ------------------------------------------------------------------------------------------------ the receiver

namespace {

uint64_t forms_meanwhile(Peer& peer, const Uuid& from, const Pieces& facts) {
  const Bounces::Theirs* const theirs = told_of(peer, from, false);
  const bool ready = theirs != nullptr && theirs->mapping != nullptr && theirs->mapping->pinned != nullptr;
  return piece_route_meanwhile(facts, ready) == PieceRoute::in_host ? uint64_t{kPiecesInHost | kLongPieces} : 0;
}

}  // namespace

uint64_t piece_forms(Engine& engine, Peer& peer, OpRun& run, const Uuid& from, bool from_managed) {
  const Pieces facts = pieces_of(engine, peer, run, from, from_managed);
  PieceRoute route = piece_route(facts);
  if (route == PieceRoute::in_device) {
    const Status status = take_in_device(peer, *run.op->device, from);
    if (status == TW_OK) return kPiecesInDevice;
    if (status == TW_IN_PROGRESS) return kTellOfDevice | forms_meanwhile(peer, from, facts);
    route = piece_route(facts, bit_of(PieceRoute::in_device));
  }
  if (route == PieceRoute::in_frames) return 0;
  const Bounces::Theirs* const theirs = told_of(peer, from, false);
  if (theirs == nullptr) return kTellOfHost;
  if (theirs->mapping == nullptr) return 0;
  if (!facts.to_device) return kPiecesInHost;
  return pin_mapping(*run.op->device, *theirs->mapping) ? uint64_t{kPiecesInHost | kLongPieces} : 0;
}

namespace {

void map_host_memory(Engine& engine, Peer& peer) {
  for (Bounces::Theirs& one : peer.bounces->theirs) {
    if (one.on_device || one.mapping != nullptr || one.failed) continue;
    Mapping* mapping = nullptr;
    const Status status = peer.link->port->import(*peer.link, one.segment, &mapping);
    if (status == TW_IN_PROGRESS) continue;
    one.failed =
        status != TW_OK || mapping->revoked || one.offset > mapping->length || one.length > mapping->length - one.offset;
    if (one.failed) continue;
    one.mapping = mapping;
    ++mapping->users;
    engine.send_control(peer, make_header(Frame::bounce, 0, one.segment, 0, kFrameAck), nullptr);
  }
}

/// For a receive in host memory: now.
void take_by_cpu(Engine& engine, Peer& peer, OpRun& run, const Bounces::Theirs& theirs, const FrameHeader& header,
                 const PieceBody& piece) {
  if (theirs.on_device) return engine.violation(peer, "a piece in device memory for a receive in host memory");
  const std::byte* const bytes = mapped_piece(engine, peer, theirs, piece);
  if (bytes == nullptr) return;
  store_data(engine, run, header.b, bytes, piece.length);
  send_taken(engine, peer, piece.op);
  data_arrived(engine, run, piece.length);
}

/// For a receive in a device's memory, by it. TW_IN_PROGRESS: the piece's memory is being imported again.
Status take_by_device(Engine& engine, Peer& peer, OpRun& run, Bounces::Theirs& theirs, const PieceBody& piece) {
  if (!theirs.on_device) {
    const std::byte* const bytes = mapped_piece(engine, peer, theirs, piece);
    if (bytes == nullptr) return TW_OK;
    if (theirs.mapping->pinned == nullptr)
      return engine.violation(peer, "a piece in host memory that was not asked for"), TW_OK;
    named_arrived(engine, run, reinterpret_cast<uint64_t>(bytes), *theirs.mapping, piece);
    return TW_OK;
  }
  Mapping* mapping = nullptr;
  const Status status = import_range(peer, piece.segment, piece.offset, piece.length, *run.op->device, &mapping);
  if (status == TW_OK) {
    named_arrived(engine, run, mapping->device_address + piece.offset, *mapping, piece);
  } else if (status == TW_ERR_STALE) {
    theirs.released = true;
  } else if (is_error(status)) {
    send_taken(engine, peer, piece.op);
    fail_arrival(engine, run, status);
  }
  return status == TW_IN_PROGRESS ? status : Status{TW_OK};
}

Status take_piece(Engine& engine, Peer& peer, Bounces::Theirs& theirs, const FrameHeader& header, const PieceBody& piece) {
  OpRun* const run = data_target(engine, peer, header, piece.length);
  if (run == nullptr) {
    send_taken(engine, peer, piece.op);  // it has ended, or the peer broke the rules
    return TW_OK;
  }
  if (run->staging != nullptr) return take_by_device(engine, peer, *run, theirs, piece);
  take_by_cpu(engine, peer, *run, theirs, header, piece);
  return TW_OK;
}

void take_waiting(Engine& engine, Peer& peer) {
  std::vector<Bounces::Waiting> waiting;
  waiting.swap(peer.bounces->waiting);
  for (const Bounces::Waiting& one : waiting) {
    Bounces::Theirs* const theirs = told_of(peer, one.piece.segment);
    const bool behind = !peer.bounces->waiting.empty();
    if (theirs->released) continue;
    if (behind || take_piece(engine, peer, *theirs, one.header, one.piece) == TW_IN_PROGRESS) {
      peer.bounces->waiting.push_back(one);
    }
    if (peer.doomed || peer.link == nullptr) return;
  }
}

}  // namespace

void settle_bounces(Engine& engine, Peer& peer) {
  if (peer.bounces == nullptr) return;
  map_host_memory(engine, peer);
  if (!peer.bounces->waiting.empty()) take_waiting(engine, peer);
}

void on_bounce(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  Bounces& bounces = bounces_of(peer);
  if ((header.flags & kFrameAck) != 0) {
    for (Bounces::Ours& one : bounces.ours) {
      if (one.bounce != nullptr && one.bounce->segment() == header.a) one.mapped = true;
    }
    return;
  }
  BounceBody told;
  if (!body.take(&told)) return engine.violation(peer, "a short bounce frame");
  if (!names(engine, peer)) return;  // it will see no cts that asks for names
  if (bounces.theirs.size() >= kMost || told_of(peer, header.a) != nullptr) {
    return engine.violation(peer, "more bounce buffers than a peer may have");
  }
  if (told.length == 0 || told.offset + told.length < told.offset) return engine.violation(peer, "a bounce buffer of no size");
  Bounces::Theirs theirs;
  theirs.segment = header.a;
  theirs.offset = told.offset;
  theirs.length = told.length;
  theirs.on_device = told.on_device != 0;
  theirs.uuid = uuid_of(told.uuid);
  bounces.theirs.push_back(theirs);
  settle_bounces(engine, peer);
}

void send_taken(Engine& engine, Peer& peer, uint64_t op) {
  engine.send_control(peer, make_header(Frame::taken, 0, op, 0), nullptr);
}

void on_data_at(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  PieceBody piece;
  Bounces::Theirs* const theirs = find_piece(engine, peer, body, &piece);
  if (theirs == nullptr) return;
  std::vector<Bounces::Waiting>& waiting = peer.bounces->waiting;
  if (waiting.empty() && take_piece(engine, peer, *theirs, header, piece) != TW_IN_PROGRESS) return;
  if (waiting.size() >= kMost) return engine.violation(peer, "more pieces at a time than it has chunks");
  waiting.push_back({header, piece});
}

void on_put_at(Engine& engine, Peer& peer, const FrameHeader& header, PeerBytes body) {
  PieceBody piece;
  const Bounces::Theirs* const theirs = find_piece(engine, peer, body, &piece);
  if (theirs == nullptr) return;
  if (theirs->on_device) return engine.violation(peer, "a put from a piece in device memory");
  const std::byte* const bytes = mapped_piece(engine, peer, *theirs, piece);
  if (bytes == nullptr) return;
  Status status;
  {
    Registry::Reading reading(engine.registry());
    Target target;
    status = engine.registry().resolve(reading, header.a, header.b, piece.length, TW_MEMORY_WRITE, &target);
    if (status == TW_OK && target.device != nullptr) {
      status = at_device(engine.registry(), reading, header.a,
                         [&] { return store_to_device(engine, target, nullptr, 0, bytes, piece.length); });
    } else if (status == TW_OK) {
      std::memcpy(target.address, bytes, piece.length);
    }
  }
  send_fin(engine, peer, piece.op, status);
}

}  // namespace thalweg::impl
