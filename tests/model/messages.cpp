// SPDX-License-Identifier: Apache-2.0
// Messages, active messages and byte streams: posting, and what the reference says of their ends.
#include <algorithm>

#include "memory/layout.hpp"
#include "model/world.hpp"
#include "protocols/active.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/local_device.hpp"
#include "protocols/offers.hpp"
#include "protocols/wire.hpp"

namespace thalweg::model {
namespace {

constexpr uint32_t kHeaderSalt = 91;  // headers of active messages differ from their payloads

}  // namespace

void World::give_buffer(Posted& posted, const Op& op, uint64_t size, bool fill) {
  Host* const library = (posted.flags & kLibrary) != 0 ? workers_[posted.worker].host : nullptr;
  posted.buffer = &buffers_.take(library, Shape(size, (posted.flags & kLayout) != 0), kKinds[op.kind % std::size(kKinds)]);
  posted.length = size;
  posted.fills = fill;
  if (size == 0) posted.flags &= ~uint32_t{kLate};
  if (fill && (posted.flags & kLate) == 0) posted.buffer->fill(posted.id);
}

/// Its bytes may be touched only when the worker's stream has gone on, which fills what is sent.
void World::order_behind_stream(Posted& posted, OpDesc& desc) {
  if ((posted.flags & kLate) == 0) return;
  Worker& worker = workers_[posted.worker];
  if (worker.held_stream == nullptr) worker.held_stream = std::make_unique<HeldStream>();
  worker.held_stream->close();
  if (make_ordering(device(), worker.held_stream->stream(), TW_AFTER_STREAM, &desc.after) != TW_OK || desc.after == nullptr) {
    return wrong(posted, "a stream that waits cannot be waited for");
  }
  desc.flags |= kOpLate;
  worker.late.push_back(&posted);
}

Status World::start(Posted& posted, OpDesc& desc) {
  order_behind_stream(posted, desc);
  const Status status = workers_[posted.worker].engine->start(desc, completion(posted));
  release(desc.after);
  return status;
}

/// What the stream was to do happens, and it goes on.
void World::release_stream(Worker& worker) {
  if (worker.held_stream == nullptr) return;
  for (Posted* one : worker.late) {
    if (one->ended || one->over) continue;
    if (one->fills) {
      one->buffer->fill(one->id);
    } else if (!one->buffer->untouched_but(0)) {
      wrong(*one, "its buffer was written to before its stream had come to it");
    }
  }
  worker.late.clear();
  worker.held_stream->open();
}

OpDesc World::local(const Posted& posted, Verb verb) {
  OpDesc desc;
  desc.verb = verb;
  if (posted.peer != kAnyone) desc.peer = &end(posted.worker, posted.peer).peer;
  desc.tag = posted.tag;
  desc.mask = posted.mask;
  if (posted.buffer != nullptr) {
    desc.address = posted.buffer->address();
    desc.length = posted.length;
    desc.layout = posted.buffer->shape.layout;
    const BufferInfo& info = posted.buffer->info;
    if (info.device != nullptr && info.kind != MemoryKind::pinned && posted.length != 0) {
      set_device(desc, info);
    }
  }
  constexpr std::pair<uint32_t, uint32_t> kPairs[] = {
      {kSync, TW_OP_SYNC},        {kNoWait, TW_OP_NO_WAIT}, {kRemote, TW_OP_REMOTE},        {kAfterAll, TW_OP_AFTER_ALL},
      {kWaitAll, TW_OP_WAIT_ALL}, {kEager, TW_OP_EAGER},    {kRendezvous, TW_OP_RENDEZVOUS}};
  for (const auto& [ours, theirs] : kPairs) {
    if ((posted.flags & ours) != 0) desc.flags |= theirs;
  }
  return desc;
}

/// The first that still goes.
Posted* World::next_of(std::deque<Posted*>& queue) {
  while (!queue.empty() && vanished(*queue.front())) queue.pop_front();
  return queue.empty() ? nullptr : queue.front();
}

/// What start() said, of something that was put into `queue` before.
void World::refused_post(Posted& posted, std::deque<Posted*>& queue, Status status) {
  if (dead(posted.worker)) {
    posted.over = true;
    return;
  }
  if (status >= TW_OK && status != TW_AGAIN) return this->posted(posted, status);
  const bool lost = is_loss(status) && may_be_lost(posted, posted.peer);
  if (lost) {  // its first frames may have gone
    posted.over = posted.ended = true;
    posted.status = status;
    return buffers_.retire(*posted.buffer);
  }
  queue.pop_back();
  drop(posted);
  if (status != TW_AGAIN || (posted.flags & kNoWait) == 0) wrong(posted, std::string("it is refused: ") + status_text(status));
}

// ------------------------------------------------------------------------------------------------ tagged messages

void World::send(const Op& op) {
  Posted& posted = post(op);
  give_buffer(posted, op, op.size, true);
  OpDesc desc = local(posted, Verb::send);
  desc.immediate = posted.id;
  End& to = end(op.worker, op.peer);
  to.sends.push_back(&posted);
  refused_post(posted, to.sends, start(posted, desc));
}

void World::end_send(Posted& posted, Status status) {
  if (status == TW_OK) {
    if (posted.what != What::send || (posted.flags & kSync) == 0 || posted.partner != 0) return;
    posted.claimed = posted.buffer->info.device != nullptr && !posted.arrived;
    if (!posted.claimed) wrong(posted, "it was never matched, and is complete");
    return;
  }
  if (status == TW_ERR_CANCELED && posted.canceled) return;
  if (!is_loss(status) || !may_be_lost(posted, posted.peer))
    wrong(posted, std::string("it ended with: ") + status_text(status));
}

void World::match(Posted& receive, Posted& message) {
  receive.partner = message.id;
  message.partner = receive.id;
}

void World::receive(const Op& op) {
  Worker& worker = workers_[op.worker];
  Posted& posted = post(op);
  give_buffer(posted, op, op.size, false);
  OpDesc desc = local(posted, Verb::recv);
  order_behind_stream(posted, desc);
  const bool lost = op.peer != kAnyone && end(op.worker, op.peer).lost;
  const KnownMessage message = worker.matching.post({posted.id, op.peer, posted.tag, posted.mask});
  if (message.id != 0) match(posted, *by_id_[message.id]);
  const bool plain =
      op.peer == kAnyone && desc.layout == nullptr && (posted.flags & kLate) == 0 && (desc.flags & kOpDevice) == 0;
  const auto post = [&] {
    if (!plain || (op.seed & 1) == 0) return worker.engine->post_receive(desc, completion(posted));
    if ((posted.flags & kCallback) != 0)
      return impl::post_short(*worker.engine, desc.address, desc.length, desc.tag, desc.mask, completion(posted));
    return impl::post_short(*worker.engine, desc.address, desc.length, desc.tag, desc.mask, &posted.request);
  };
  const Status status = post();
  release(desc.after);
  if (status == TW_IN_PROGRESS) return this->posted(posted, status);
  worker.matching.withdraw(posted.id);
  drop(posted);
  if (dead(op.worker)) return;
  if (!lost || message.id != 0 || !is_loss(status)) wrong(posted, std::string("it is refused: ") + status_text(status));
}

/// The peer whose device may be writing into this receive, whose message has not come: it is matched. Null: none.
const Peer* World::claimant(const Posted& receive) {
  OpRun* const run = workers_[receive.worker].engine->runs().find(receive.request);
  if (run == nullptr || Engine::test(receive.request) != TW_IN_PROGRESS) return nullptr;
  for (unsigned i = 0; i < program_.workers; ++i) {
    if (i == receive.worker || end(receive.worker, i).peer.offers == nullptr) continue;
    const Offers& offers = *end(receive.worker, i).peer.offers;
    for (unsigned entry = 0; entry < kOffers; ++entry) {
      if (offers.entries[entry].run != run) continue;
      const uint64_t word = load_state(offers.tables.mine->states[entry]);
      return word == offer_word(offers.entries[entry].number, OfferState::claimed) ? &end(receive.worker, i).peer : nullptr;
    }
  }
  return nullptr;
}

/// Was there a message that a device wrote into this receive ahead of its RTS, which has been lost with its sender?
bool World::may_have_been_claimed(const Posted& receive) const {
  const auto on_device = [](const Posted& one) { return one.buffer != nullptr && one.buffer->info.device != nullptr; };
  return on_device(receive) && std::any_of(by_id_.begin(), by_id_.end(), [&](const Posted* one) {
           return one != nullptr && one->what == What::send && one->peer == receive.worker && !one->arrived &&
                  on_device(*one) && ((one->tag ^ receive.tag) & receive.mask) == 0 && one->length <= receive.length &&
                  (receive.peer == kAnyone || receive.peer == one->worker) && ends_[receive.worker][one->worker]->broken;
         });
}

void World::end_receive(Posted& posted, Status status, const tw_recv_info& info) {
  if (posted.partner == 0) {
    const bool withdrawn = workers_[posted.worker].matching.withdraw(posted.id);
    if (status == TW_ERR_CANCELED && posted.canceled) return;
    if (is_loss(status) && (may_be_lost(posted, posted.peer) || may_have_been_claimed(posted))) return;
    return wrong(posted, std::string(withdrawn ? "nothing came for it" : "it") + " and it ended with: " + status_text(status));
  }
  const Posted& message = *by_id_[posted.partner];
  const bool waits = (posted.flags & kLate) != 0 || posted.buffer->info.device != nullptr;  // ends with its peer
  if (is_loss(status) && end(posted.worker, message.worker).broken && (!message.here || waits)) return;
  const Status expected = message.length <= posted.length ? TW_OK : TW_ERR_TRUNCATED;
  const std::string of = "the message of operation " + std::to_string(message.id);
  if (status != expected) return wrong(posted, of + " is for it, and it ended with: " + status_text(status));
  const bool active = message.what == What::active;
  const uint64_t tag = active ? 1 : message.tag, immediate = active ? 0 : message.id;
  const auto* from = &end(posted.worker, message.worker).handle;
  if (info.length != message.length || info.tag != tag || info.immediate != immediate || info.endpoint != from) {
    return wrong(posted, of + " is for it, and its info is of another one (tag " + std::to_string(info.tag) + ", immediate " +
                             std::to_string(info.immediate) + ", length " + std::to_string(info.length) + ")");
  }
  const uint64_t n = std::min(message.length, posted.length);
  if (!posted.buffer->shows(message.id, 0, n))
    return wrong(posted, "its bytes are not those of operation " + std::to_string(message.id));
  if (!posted.buffer->untouched_but(n)) wrong(posted, "memory beside its bytes was written to");
}

void World::probe(const Op& op) {
  Worker& worker = workers_[op.worker];
  const uint64_t mask = mask_of(op);
  const Peer* source = op.peer == kAnyone ? nullptr : &end(op.worker, op.peer).peer;
  tw_recv_info info{};
  tw_message* message = nullptr;
  const Status status = impl::probe(*worker.engine, op.tag, mask, source, &info, op.what == What::take ? &message : nullptr);
  const KnownMessage* known = worker.matching.find(op.tag, mask, op.peer);
  const std::string who = "the probe of operation " + std::to_string(op.id);
  if ((status == TW_OK) != (known != nullptr))
    return wrong(who + (known != nullptr ? " misses a message" : " finds a message that nobody sent"));
  if (known == nullptr) return;
  if (info.immediate != known->id || info.tag != known->tag || info.length != known->length)
    return wrong(who + " finds another message than the first one");
  if (op.what != What::take) return;
  worker.taken.emplace_back(message, *known);
  worker.matching.take(KnownMessage(*known).id);
}

void World::take_receive(const Op& op) {
  Worker& worker = workers_[op.worker];
  if (worker.taken.empty()) return;
  const auto [message, known] = worker.taken.front();
  worker.taken.pop_front();
  Op receive = op;
  receive.what = What::take_receive;
  receive.peer = kAnyone;
  Posted& posted = post(receive);
  give_buffer(posted, op, op.size, false);
  match(posted, *by_id_[known.id]);
  OpDesc desc = local(posted, Verb::recv);
  order_behind_stream(posted, desc);
  const Status status = impl::receive_message(message, desc, completion(posted));
  release(desc.after);
  this->posted(posted, status);
}

void World::cancel(const Op& op) {
  Posted* const posted = op.of < by_id_.size() ? by_id_[op.of] : nullptr;
  if (posted == nullptr || posted->ended || posted->over || posted->request == TW_REQUEST_NONE || dead(posted->worker)) return;
  stir(workers_[posted->worker]);
  const Status status = workers_[posted->worker].engine->cancel(posted->request);
  if (dead(posted->worker)) return;
  if (posted->what == What::receive) {
    const bool waits = workers_[posted->worker].matching.posted(posted->id);
    // A callback may be on its way.
    const bool claimed = status == TW_ERR_BUSY && waits && claimant(*posted) != nullptr;
    if ((status == TW_OK) != waits && !claimed && !(status == TW_ERR_BUSY && is_loss(Engine::test(posted->request)))) {
      return wrong(*posted, waits ? "it is not matched, and cannot be canceled" : "it is matched, and could be canceled");
    }
  }
  if (status == TW_OK) {
    posted->canceled = true;
    workers_[posted->worker].matching.withdraw(posted->id);
  } else if (status != TW_ERR_BUSY) {
    return wrong(*posted, std::string("it cannot be canceled: ") + status_text(status));
  }
  poll(workers_[posted->worker]);
}

// ------------------------------------------------------------------------------------------------ arrivals

void World::on_arrival(unsigned from, unsigned to, const FrameHeader& header, const std::byte* body) {
  if (dead(to)) return;
  End& here = end(to, from);
  const bool whole = here.link->destination == nullptr;
  const auto theirs = [&header] { return (header.flags & kFrameGroup) != 0 || (header.a & kTheirs) != 0; };  // of a tag
  switch (static_cast<Frame>(header.type & kFrameTypeMask)) {
    case Frame::tagged: {
      if (theirs()) return;
      const uint64_t length = header.length - ((header.flags & kFrameSync) != 0 ? 8 : 0);
      return message_arrives(from, to, header.b, header.a, length, whole);
    }
    case Frame::tagged_first: {
      FirstBody first;
      std::memcpy(&first, body, sizeof first);
      here.assembling = theirs() ? 0 : static_cast<uint32_t>(header.b);
      if (theirs()) return;
      here.assembly_left = first.length - (header.length - sizeof first);
      return message_arrives(from, to, header.b, header.a, first.length, here.assembly_left == 0);
    }
    case Frame::tagged_rts: {
      if (theirs()) return;
      RtsBody rts;
      std::memcpy(&rts, body, sizeof rts);
      return message_arrives(from, to, header.b, header.a, rts.length, false);
    }
    case Frame::am_first:
      here.assembling = 0;
      return;
    case Frame::data:
      if ((header.flags & kFrameMore) == 0 || here.assembling == 0) return;
      here.assembly_left -= header.length;
      if (here.assembly_left == 0 && whole) {
        by_id_[here.assembling]->here = true;
        workers_[to].matching.here(here.assembling);
        here.assembling = 0;
      }
      return;
    default:
      return;
  }
}

void World::message_arrives(unsigned from, unsigned to, uint64_t id, uint64_t tag, uint64_t length, bool whole) {
  Posted* const next = next_of(end(from, to).sends);
  if (next == nullptr || next->id != id) {
    return wrong("the message of operation " + std::to_string(id) + " comes to " + std::to_string(to) + " instead of that of " +
                 std::to_string(next == nullptr ? 0 : next->id));
  }
  end(from, to).sends.pop_front();
  next->arrived = true;
  next->here = whole;
  if (next->tag != tag || next->length != length) return wrong(*next, "its message comes with another tag or length");
  const auto other = [&](uint32_t id) {
    const Peer* const by = claimant(*by_id_[id]);
    return by != nullptr && by != &end(to, from).peer;
  };
  const uint32_t receive = workers_[to].matching.arrive({next->id, from, tag, length, whole}, other);
  if (receive != 0) match(*by_id_[receive], *next);
  if (next->claimed && receive == 0) wrong(*next, "it matches nothing, and was complete before it came");
}

// ------------------------------------------------------------------------------------------------ active messages

void World::active(const Op& op) {
  Posted& posted = post(op);
  posted.header_length = std::min<uint32_t>(op.offset, TW_AM_HEADER_SHORT);
  const bool late = op.kind % std::size(kKinds) != 0 || (op.flags & kLate) != 0;
  if (late || op.size + posted.header_length + 256 > 65536) posted.flags &= ~uint32_t{kEager};
  give_buffer(posted, op, op.size, true);
  std::byte header[TW_AM_HEADER_SHORT];
  fill_pattern(header, posted.id + kHeaderSalt, 0, posted.header_length);
  OpDesc desc = local(posted, Verb::am);
  desc.tag = 1;
  desc.header = header;
  desc.header_length = posted.header_length;
  End& to = end(op.worker, op.peer);
  to.actives.push_back(&posted);
  if (to.lost) {  // core looks at this before it starts one
    to.actives.pop_back();
    return drop(posted);
  }
  refused_post(posted, to.actives, start(posted, desc));
  std::memset(header, 0, sizeof header);
}

tw_status World::handler(void* arg, const tw_am_message* message) {
  Worker& worker = *static_cast<Worker*>(arg);
  return worker.world->handle(worker, *message);
}

tw_status World::handle(Worker& worker, const tw_am_message& message) {
  if (worker.port->dead || !failure_.empty()) return TW_OK;
  const End& back = End::of(message.endpoint);
  Posted* const posted = next_of(end(back.to, worker.index).actives);
  if (posted == nullptr) {
    wrong("an active message that nobody sent came to worker " + std::to_string(worker.index));
    return TW_OK;
  }
  end(back.to, worker.index).actives.pop_front();
  posted->arrived = true;
  posted->here = message.data != nullptr || message.length == 0;
  const auto* header = static_cast<const std::byte*>(message.header);
  const auto* data = static_cast<const std::byte*>(message.data);
  if (message.length != posted->length || message.header_length != posted->header_length || message.id != 1 ||
      !shows_pattern(header, posted->id + kHeaderSalt, 0, posted->header_length) ||
      (data != nullptr && !shows_pattern(data, posted->id, 0, posted->length))) {
    wrong(*posted, "another header or payload than its own came to the handler");
    return TW_OK;
  }
  if ((posted->flags & kReply) != 0) reply(worker, *posted);
  if ((posted->flags & kAtOnce) != 0) {
    Posted& receive = fresh(extra_id_++, What::active_receive, 0, worker.index, kAnyone);
    give_buffer(receive, posted->id % 3 == 0 ? posted->length / 2 : posted->length, false);
    receive_active(worker, message.descriptor, *posted, receive);
    return TW_OK;
  }
  if ((posted->flags & kKeep) == 0) return TW_OK;
  worker.kept.emplace_back(message.descriptor, posted);
  return TW_IN_PROGRESS;
}

/// A small message back, from within the handler.
void World::reply(Worker& worker, const Posted& message) {
  End& back = end(worker.index, message.worker);
  if (back.lost) return;
  Posted& posted = fresh(extra_id_++, What::send, 0, worker.index, message.worker);
  posted.tag = message.id % 3;
  give_buffer(posted, 8, true);
  OpDesc desc = local(posted, Verb::send);
  desc.immediate = posted.id;
  back.sends.push_back(&posted);
  const Status status = worker.engine->start(desc, completion(posted));
  if (status == TW_IN_PROGRESS) return worker.pending.push_back(&posted);  // not looked at within progress
  refused_post(posted, back.sends, status);
}

void World::receive_active(Worker& worker, tw_am_data* data, Posted& message, Posted& receive) {
  match(receive, message);
  OpDesc desc = local(receive, Verb::am_recv);
  order_behind_stream(receive, desc);
  const Status status = impl::active_receive(data, desc, completion(receive));
  release(desc.after);
  if (status != TW_IN_PROGRESS) return wrong(receive, std::string("it is refused: ") + status_text(status));
  worker.pending.push_back(&receive);
}

void World::active_receive(const Op& op) {
  Worker& worker = workers_[op.worker];
  if (worker.kept.empty()) return;
  const auto [data, message] = worker.kept.front();
  worker.kept.pop_front();
  Op receive = op;
  receive.peer = kAnyone;
  Posted& posted = post(receive);
  give_buffer(posted, op, op.size, false);
  receive_active(worker, data, *message, posted);
  poll(worker);
}

void World::active_release(const Op& op) {
  Worker& worker = workers_[op.worker];
  if (worker.kept.empty()) return;
  tw_am_data* const data = worker.kept.front().first;
  worker.kept.pop_front();
  if (impl::active_release(data) != TW_OK) wrong("a kept payload cannot be released");
}

// ------------------------------------------------------------------------------------------------ byte streams

void World::bytes(const Op& op) {
  End& one = end(op.worker, op.peer);
  Posted& posted = post(op);
  const bool sends = op.what == What::bytes_send;
  give_buffer(posted, op.size, sends);
  const OpDesc desc = local(posted, sends ? Verb::bytes_send : Verb::bytes_recv);
  std::deque<Posted*>& queue = sends ? one.stream : one.stream_receives;
  queue.push_back(&posted);
  refused_post(posted, queue, workers_[op.worker].engine->start(desc, completion(posted)));
}

uint64_t World::stream_left(unsigned from, unsigned to) {
  End& one = end(from, to);
  uint64_t left = 0;
  for (const Posted* posted : one.stream) left += vanished(*posted) ? 0 : posted->length;
  return left - std::min(left, one.stream_read);
}

void World::end_bytes(Posted& posted, Status status, const tw_recv_info& info) {
  End& mine = end(posted.worker, posted.peer);
  End& theirs = end(posted.peer, posted.worker);
  const bool all = (posted.flags & kWaitAll) != 0;
  if (status == TW_OK) {
    const uint64_t n = info.length;
    if (n > posted.length || (all ? n != posted.length : n == 0 && posted.length != 0)) {
      return wrong(posted, "it ended with " + std::to_string(n) + " bytes");
    }
    posted.got.assign(posted.buffer->data(), posted.buffer->data() + n);
    if (!posted.buffer->untouched_but(n)) return wrong(posted, "memory beside its bytes was written to");
  } else if (is_loss(status) && may_be_lost(posted, posted.peer)) {
    theirs.stream_unknown = true;
  } else if (status != TW_ERR_CANCELED || !posted.canceled) {
    return wrong(posted, std::string("it ended with: ") + status_text(status));
  }
  while (!mine.stream_receives.empty() && (mine.stream_receives.front()->ended || mine.stream_receives.front()->canceled)) {
    read_stream(*mine.stream_receives.front());
    mine.stream_receives.pop_front();
  }
}

/// Its bytes are the next ones of the stream.
void World::read_stream(Posted& receive) {
  End& from = end(receive.peer, receive.worker);
  if (from.stream_unknown) return;
  uint64_t at = 0;
  while (at < receive.got.size()) {
    Posted* const next = next_of(from.stream);
    if (next == nullptr) return wrong(receive, "it has more bytes than were sent");
    if (from.stream_read == next->length) {
      from.stream.pop_front();
      from.stream_read = 0;
      continue;
    }
    const uint64_t n = std::min(next->length - from.stream_read, receive.got.size() - at);
    if (!shows_pattern(receive.got.data() + at, next->id, from.stream_read, n)) {
      return wrong(receive, "its bytes are not those of operation " + std::to_string(next->id));
    }
    from.stream_read += n;
    at += n;
  }
}

}  // namespace thalweg::model
