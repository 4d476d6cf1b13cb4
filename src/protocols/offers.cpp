// SPDX-License-Identifier: Apache-2.0
// Offers and claims; see offers.hpp.
#include "protocols/offers.hpp"

#include <cstring>
#include <utility>

#include "base/platform/cpu.hpp"
#include "memory/registry.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/local_device.hpp"
#include "protocols/match.hpp"
#include "protocols/reach_device.hpp"

namespace thalweg::impl {
namespace {

uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }
void store(uint64_t& word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELAXED); }

/// Made at the first use. Null: this link has none.
Offers* offers_of(Peer& peer) {
  if (peer.offers != nullptr) return peer.offers.get();
  Link* const link = peer.link;
  if (link == nullptr || peer.doomed || (link->features & kLinkMaps) == 0 || same_process(*link)) return nullptr;
  const OfferTables tables = link->port->offers(*link);
  if (tables.mine == nullptr) return nullptr;
  peer.offers = std::make_unique<Offers>(tables);
  return peer.offers.get();
}

void write(ReceiveOffer& offer, const OpRun& run, uint64_t segment, uint64_t segment_offset, uint64_t op, uint64_t taken) {
  store(offer.tag, run.op->tag);
  store(offer.mask, run.op->mask);
  store(offer.capacity, run.op->length);
  store(offer.segment, segment);
  store(offer.segment_offset, segment_offset);
  uint64_t uuid[2];
  std::memcpy(uuid, run.op->device->uuid().data(), sizeof uuid);
  for (unsigned i = 0; i < 2; ++i) store(offer.uuid[i], uuid[i]);
  store(offer.op, op);
  store(offer.taken, taken);
  store(offer.order, run.sequence);
}

/// A message of device memory here to the peer's, or from it.
DeviceMessage between_devices(const Engine& engine, const Peer& peer, const OpDesc& op) {
  DeviceMessage facts;
  facts.features = peer.link != nullptr ? peer.link->features : 0;
  facts.imports = engine.options().imports;
  facts.forced = engine.options().way;
  facts.length = op.length;
  facts.from.kind = facts.to.kind = MemoryKind::vmm;
  facts.from.late = (op.flags & kOpLate) != 0;
  facts.to.named = true;
  return facts;
}

void forget(Offers& offers, unsigned entry) { offers.entries[entry] = Offers::Entry{}; }

/// The only peer with a link, or null.
Peer* only_peer(const Engine& engine) {
  Peer* only = nullptr;
  for (Peer* peer : engine.peers()) {
    if (peer->link == nullptr) continue;
    if (only != nullptr) return nullptr;
    only = peer;
  }
  return only;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ the receiver

bool make_offer(Engine& engine, OpRun& run) {
  const OpDesc& op = *run.op;
  const bool shared = op.layout == nullptr && (op.flags & kOpGroup) == 0 && info_of(op).exportable != ExportForm::none;
  Peer* const peer = op.peer != nullptr ? op.peer : only_peer(engine);
  if (!shared || peer == nullptr || !pushes_unasked(between_devices(engine, *peer, op))) return false;
  Offers* const offers = offers_of(*peer);
  if (offers == nullptr) return false;
  unsigned entry = 0;
  while (entry < kOffers && offers->entries[entry].run != nullptr) ++entry;
  if (entry == kOffers || !engine.receives().matcher().earlier_are_offered(run, *peer, offers->posted)) return false;
  uint64_t segment = 0, offset = 0;
  if (engine.registry().name_device_memory(info_of(op), reinterpret_cast<uint64_t>(op.address), op.length, &segment, &offset) !=
      TW_OK) {
    return false;
  }
  OfferTable& table = *offers->tables.mine;
  write(table.offers[entry], run, segment, offset, engine.runs().wire_op(run), peer->link->port->taken(*peer->link));
  offers->entries[entry] = {&run, ++offers->number, false};
  ++offers->posted;
  offered_to(run) = peer;
  run.offer = static_cast<uint8_t>(entry + 1);
  // release: a reader that sees `offered` sees the offer
  __atomic_store_n(&table.states[entry], offer_word(offers->number, OfferState::offered), __ATOMIC_RELEASE);
  return true;
}

bool end_offer(Engine& engine, OpRun& run) {
  Peer& peer = *offered_to(run);
  Offers& offers = *peer.offers;
  const unsigned index = std::exchange(run.offer, uint8_t{0}) - 1u;
  Offers::Entry& entry = offers.entries[index];
  uint64_t& word = offers.tables.mine->states[index];
  --offers.posted;
  if (swap_state(word, offer_word(entry.number, OfferState::offered), offer_word(entry.number, OfferState::free))) {
    forget(offers, index);
    return true;
  }
  if (load_state(word) != offer_word(entry.number, OfferState::claimed)) {
    engine.violation(peer, "a state that no offer of a receive has");
  }
  entry.claimed = true;
  if (run.posted) engine.receives().matcher().withdraw(run);
  run.cancelable = false;
  engine.bind(run, peer);
  return false;
}

bool withdraw_offers(Engine& engine, Peer& peer, uint64_t tag, OpRun** run) {
  while (*run != nullptr && (*run)->offer != 0 && !end_offer(engine, **run)) {
    if ((*run)->peer == &peer) {
      engine.violation(peer, "a message that comes before the claim of its receive");
      return false;
    }
    *run = engine.receives().to_match().match(tag, &peer);
  }
  return true;
}

void end_offers(Engine& engine, Peer& peer) {
  if (peer.offers == nullptr) return;
  for (Offers::Entry& entry : peer.offers->entries) {
    if (entry.run != nullptr && !entry.claimed) end_offer(engine, *entry.run);
  }
  peer.offers.reset();
}

OpRun* take_claimed(Engine& engine, Peer& peer, const FrameHeader& header, uint64_t length) {
  const auto refuse = [&](const char* what) -> OpRun* {
    engine.violation(peer, what);
    return nullptr;
  };
  const unsigned index = header.id - 1u;
  Offers* const offers = peer.offers.get();
  if (offers == nullptr || index >= kOffers || offers->entries[index].run == nullptr) return refuse("a claim of no receive");
  const Offers::Entry entry = offers->entries[index];
  OpRun& run = *entry.run;
  uint64_t& word = offers->tables.mine->states[index];
  if (load_state(word) != offer_word(entry.number, OfferState::claimed)) return refuse("a claim that was not made");
  if (((run.op->tag ^ header.a) & run.op->mask) != 0 || length == 0 || length > run.op->length) {
    return refuse("a claim of a receive that takes another message");
  }
  if (!entry.claimed) {
    if (engine.receives().to_match().peek(header.a, &peer) != &run)
      return refuse("a claim of a receive that is not the first one");
    engine.receives().matcher().withdraw(run);
    --offers->posted;
    run.offer = 0;
  }
  forget(*offers, index);
  __atomic_store_n(&word, offer_word(entry.number, OfferState::free), __ATOMIC_RELEASE);
  return &run;
}

void await_rts(Peer& peer) {
  constexpr unsigned kPolls = 1000;  // 25 to 40 us: more only where the peer's thread is not running
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  const uint64_t& word = peer.offers->tables.theirs->sending_rts;
  for (unsigned polls = 0; polls < kPolls && __atomic_load_n(&word, __ATOMIC_ACQUIRE) != 0; ++polls) cpu_pause();
}

// ------------------------------------------------------------------------------------------------ the sender

namespace {

bool fits(const FrameHeader& header, const void* what) {
  const auto& claim = *static_cast<const Claim*>(what);
  switch (static_cast<Frame>(header.type & kFrameTypeMask)) {
    case Frame::tagged_rts:
      if (header.id != 0) return false;  // it has claimed another one
      [[fallthrough]];
    case Frame::tagged:
    case Frame::tagged_first:
      return ((header.a ^ claim.tag) & claim.mask) == 0;
    default:
      return false;
  }
}

/// The earliest offer that takes this tag, as one walk sees it.
bool find_offer(const OfferTable& table, uint64_t tag, Claim* out) {
  bool found = false;
  for (unsigned i = 0; i < kOffers; ++i) {
    const uint64_t word = load_state(table.states[i]);
    if (!is_offered(word)) continue;
    const ReceiveOffer& offer = table.offers[i];
    const uint64_t order = load(offer.order);
    if (((load(offer.tag) ^ tag) & load(offer.mask)) != 0 || (found && order > out->order)) continue;
    found = true;
    out->entry = i;
    out->word = word;
    out->order = order;
  }
  return found;
}

void copy_out(const ReceiveOffer& offer, Claim* out) {
  out->tag = load(offer.tag);
  out->mask = load(offer.mask);
  out->capacity = load(offer.capacity);
  out->segment = load(offer.segment);
  out->segment_offset = load(offer.segment_offset);
  const uint64_t uuid[2] = {load(offer.uuid[0]), load(offer.uuid[1])};
  std::memcpy(out->uuid.data(), uuid, sizeof uuid);
  out->op = load(offer.op);
  out->taken = load(offer.taken);
}

}  // namespace

bool find_claim(Engine& engine, Peer& peer, const OpDesc& op, Claim* out) {
  if ((op.flags & kOpDevice) == 0 || op.length == 0 || !pushes_unasked(between_devices(engine, peer, op))) return false;
  const Offers* const offers = offers_of(peer);
  if (offers == nullptr) return false;
  const OfferTable& table = *offers->tables.theirs;
  // What was offered before the first walk's find is visible to the second one: an earlier receive that the first one has
  // missed, too.
  Claim first;
  if (!find_offer(table, op.tag, &first) || !find_offer(table, op.tag, out)) return false;
  if (first.entry != out->entry || first.word != out->word) return false;
  copy_out(table.offers[out->entry], out);
  if (out->capacity < op.length || ((out->tag ^ op.tag) & out->mask) != 0) return false;
  if (peer.link->port->any_behind(*peer.link, out->taken, fits, out)) return false;
  return engine.devices().reaches(*op.device, out->uuid) &&
         import_range(peer, out->segment, out->segment_offset, op.length, *op.device, &out->mapping) == TW_OK;
}

bool take_claim(Peer& peer, const Claim& claim) {
  return peer.offers != nullptr && swap_state(peer.offers->tables.theirs->states[claim.entry], claim.word,
                                              offer_word(claim.word >> 2, OfferState::claimed));
}

SendingRts::SendingRts(Peer& peer, const OpDesc& op, bool tagged) {
  if (!tagged || (op.flags & kOpDevice) == 0 || !worth_hiding(op.length, peer.engine->options().hidden_from)) return;
  const Offers* const offers = offers_of(peer);
  if (offers == nullptr) return;
  word_ = &offers->tables.mine->sending_rts;
  __atomic_store_n(word_, 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);  // before the table is read
}

SendingRts::~SendingRts() {
  if (word_ != nullptr) __atomic_store_n(word_, 0, __ATOMIC_RELEASE);  // release: a reader that sees it finds the RTS
}

}  // namespace thalweg::impl
