// SPDX-License-Identifier: Apache-2.0
// A letter travels as headers of active messages, because those are copied where they are posted and arrive whole: no request,
// no buffer that must live, and no rendezvous.
#include "groups/mailbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/log.hpp"
#include "protocols/active.hpp"

namespace thalweg::impl {

/// Its head; its bytes follow. Pieces of a letter come in order.
struct LetterPiece {
  uint64_t group, step;
  int32_t status;
  uint32_t rank;
  uint32_t at, total;  // bytes
  uint32_t kind, reserved;
};
static_assert(sizeof(LetterPiece) == 40);

namespace {

constexpr size_t kPiece = 4096, kMostDropped = 16;
constexpr uint64_t kOverhead = 128;  // what keeping a letter costs besides its bytes

Status send_piece(tw_endpoint& to, const LetterPiece& head, const std::byte* bytes, size_t length) {
  std::byte header[sizeof head + kPiece];
  std::memcpy(header, &head, sizeof head);
  if (length != 0) std::memcpy(header + sizeof head, bytes, length);
  OpDesc op;
  op.verb = Verb::am;
  op.tag = ActiveTable::kGroups;
  op.peer = &*to.peer;
  op.header = header;
  op.header_length = static_cast<uint32_t>(sizeof head + length);
  return to.worker->engine->start(op, {});
}

}  // namespace

Mailbox& Mailbox::of(tw_worker& worker) {
  const Engine::Guard guard(*worker.engine);
  if (worker.mailbox == nullptr) {
    auto made = std::make_shared<Mailbox>();
    worker.engine->active().set_internal(ActiveTable::kGroups, keep, made.get());
    worker.mailbox = std::move(made);
  }
  return *static_cast<Mailbox*>(worker.mailbox.get());
}

Status Mailbox::send(tw_endpoint& to, uint64_t group, uint64_t step, const Letter& letter) {
  {
    const Engine::Guard guard(*to.worker->engine);
    if (is_error(to.peer->state)) return fail(to.peer->state, "%s", to.peer->why.c_str());
    LetterPiece head{group, step, letter.status, letter.rank, 0, static_cast<uint32_t>(letter.bytes.size()), letter.kind, 0};
    do {
      const size_t length = std::min(kPiece, letter.bytes.size() - head.at);
      if (Status s = send_piece(to, head, letter.bytes.data() + head.at, length); is_error(s)) return s;
      head.at += static_cast<uint32_t>(length);
    } while (head.at < head.total);
  }
  to.worker->posted();
  return TW_OK;
}

void Mailbox::deliver(tw_worker& worker, const std::vector<tw_endpoint*>& to, uint64_t timeout_ns) {
  (void)worker.wait_until(
      [&] {
        const Engine::Guard guard(*worker.engine);
        return std::all_of(to.begin(), to.end(), [](const tw_endpoint* one) {
          return is_error(one->peer->state) || (one->peer->state == TW_OK && one->peer->ordered.empty());
        });
      },
      timeout_ns);
}

/// Of the piece's letter, which may begin with it. Null: there is none, as it has no room, or its call is over.
Mailbox::Kept* Mailbox::find(const LetterPiece& piece, tw_endpoint& endpoint) {
  if (is_over(piece.group, piece.step)) return nullptr;
  const uint64_t from = sender_of(endpoint), call = call_of(piece.step);
  const Key key{piece.group, piece.step, from};
  if (const auto at = kept_.find(key); at != kept_.end()) return &at->second;
  if (piece.at != 0) return nullptr;
  Sender& sender = senders_[from];
  watch(endpoint, sender);
  if (sender.has_dropped(piece.group, call)) return nullptr;
  if (!has_room(sender, piece)) {
    drop(sender, piece.group, call);
    return nullptr;
  }
  const uint64_t bytes = piece.total + kOverhead;
  Kept kept;
  kept.letter.status = piece.status;
  kept.letter.rank = piece.rank;
  kept.letter.kind = piece.kind;
  kept.letter.bytes.resize(piece.total);
  Kept& made = kept_.emplace(key, std::move(kept)).first->second;
  sender.bytes += bytes;
  total_ += bytes;
  return &made;
}

bool Mailbox::has_room(const Sender& sender, const LetterPiece& piece) const {
  const uint64_t bytes = piece.total + kOverhead, all = total_ + bytes;
  if (all > kMostAtAll && !expected_.contains(piece.group)) return false;
  return sender.bytes + bytes <= (all <= kMost ? kMostOfOne : kAlways);
}

/// One watch for a sender, as long as that endpoint is there; moved where its letters come by another endpoint.
void Mailbox::watch(tw_endpoint& endpoint, Sender& sender) {
  if (sender.endpoint == &endpoint) return;
  std::erase_if(endpoint.watches, [](const auto& one) { return one.expired(); });
  sender.watch = std::make_shared<Watch>(*this, sender_of(endpoint));
  endpoint.watches.push_back(sender.watch);
  sender.endpoint = &endpoint;
}

/// Its connection is over: nobody may ever ask for what it sent to groups that do not exist here.
void Mailbox::lose(uint64_t from) {
  const auto at = senders_.find(from);
  if (at == senders_.end()) return;
  Sender& sender = at->second;
  sender.endpoint = nullptr;  // its watch is being called, and stays
  std::erase_if(sender.dropped, [&](const Dropped& one) { return !expected_.contains(one.group); });
  for (auto one = kept_.begin(); one != kept_.end() && sender.bytes != 0;) {
    const auto& [group, step, by] = one->first;
    if (by != from || expected_.contains(group)) {
      ++one;
      continue;
    }
    const uint64_t bytes = one->second.letter.bytes.size() + kOverhead;
    sender.bytes -= bytes;
    total_ -= bytes;
    one = kept_.erase(one);
  }
  if (sender.is_over()) senders_.erase(at);
}

bool Mailbox::is_over(uint64_t group, uint64_t step) const {
  const auto at = expected_.find(group);
  return at != expected_.end() && at->second.is_over(call_of(step));
}

/// What the sender sends to the call counts no more, so that its receiver does not wait for what was dropped.
void Mailbox::drop(Sender& sender, uint64_t group, uint64_t call) {
  warn_once("group_mail",
            "a message of a group was dropped: its sender is too far ahead of this rank, and the call that waits for it "
            "fails");
  for (Dropped& one : sender.dropped) {
    if (one.group == group && one.last + 1 == call) return void(one.last = call);
  }
  if (sender.dropped.size() == kMostDropped) sender.dropped.erase(sender.dropped.begin());
  sender.dropped.push_back({group, call, call});
}

void Mailbox::drop_kept(uint64_t group, uint64_t first, uint64_t last) {
  auto at = kept_.lower_bound(Key{group, first, 0});
  while (at != kept_.end() && std::get<0>(at->first) == group && std::get<1>(at->first) <= last) {
    give_back(std::get<2>(at->first), at->second.letter.bytes.size() + kOverhead);
    at = kept_.erase(at);
  }
}

void Mailbox::give_back(uint64_t from, uint64_t bytes) {
  const auto at = senders_.find(from);
  at->second.bytes -= bytes;
  total_ -= bytes;
  if (at->second.is_over()) senders_.erase(at);
}

/// In progress, under the lock. Untrusted bytes: a piece that does not fit is dropped, and the rank that waits for it times out.
tw_status Mailbox::keep(void* self, const tw_am_message* message) {
  auto& box = *static_cast<Mailbox*>(self);
  LetterPiece head;
  if (message->endpoint == nullptr || message->header_length < sizeof head) return TW_OK;
  std::memcpy(&head, message->header, sizeof head);
  const size_t length = message->header_length - sizeof head;
  try {
    Kept* const kept = box.find(head, *message->endpoint);
    if (kept == nullptr || head.at != kept->here) return TW_OK;
    if (head.total != kept->letter.bytes.size() || length > head.total - head.at) return TW_OK;
    if (length != 0)
      std::memcpy(kept->letter.bytes.data() + head.at, static_cast<const std::byte*>(message->header) + sizeof head, length);
    kept->here += length;
  } catch (const std::bad_alloc&) {
    log(LogLevel::warning, "a message of a group was dropped: no memory");
  }
  return TW_OK;
}

Status Mailbox::take(tw_worker& worker, uint64_t from, uint64_t group, uint64_t step, Letter* out) {
  const Engine::Guard guard(*worker.engine);
  const auto at = kept_.find(Key{group, step, from});
  if (at == kept_.end()) {
    const auto sender = senders_.find(from);
    if (sender == senders_.end() || !sender->second.has_dropped(group, call_of(step))) return TW_IN_PROGRESS;
    return fail(
        TW_ERR_LIMIT,
        "it has sent more than %llu MiB ahead of what this rank has asked for, or little less while other ranks had, too; let "
        "ranks meet before they go on (a barrier), or exchange less at once",
        static_cast<unsigned long long>(kMostOfOne >> 20));
  }
  if (!at->second.complete()) return TW_IN_PROGRESS;
  *out = std::move(at->second.letter);
  kept_.erase(at);
  give_back(from, out->bytes.size() + kOverhead);
  return TW_OK;
}

void Mailbox::expect(tw_worker& worker, uint64_t group) {
  const Engine::Guard guard(*worker.engine);
  expected_.try_emplace(group);
}

uint64_t Mailbox::total(tw_worker& worker) const {
  const Engine::Guard guard(*worker.engine);
  return total_;
}

void Mailbox::forget(tw_worker& worker, uint64_t group) {
  const Engine::Guard guard(*worker.engine);
  expected_.erase(group);
  drop_kept(group, 0, UINT64_MAX);
  for (auto& [from, sender] : senders_) std::erase_if(sender.dropped, [&](const Dropped& one) { return one.group == group; });
  std::erase_if(senders_, [](const auto& one) { return one.second.is_over(); });
}

void Mailbox::begin_call(tw_worker& worker, uint64_t group, uint64_t call) {
  const Engine::Guard guard(*worker.engine);
  const auto at = expected_.find(group);
  if (at == expected_.end()) return;
  uint64_t& next = at->second.next[call >= kShrinks];
  next = std::max(next, call + 1);
  at->second.live.push_back(call);
}

/// It may come behind forget(): of windows that end with their group.
void Mailbox::end_call(tw_worker& worker, uint64_t group, uint64_t call) {
  const Engine::Guard guard(*worker.engine);
  const auto at = expected_.find(group);
  if (at == expected_.end()) return;
  std::erase(at->second.live, call);
  drop_kept(group, first_step(call), first_step(call + 1) - 1);
}

}  // namespace thalweg::impl
