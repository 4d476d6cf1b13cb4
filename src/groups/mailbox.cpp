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
namespace {

/// Of a piece; its bytes follow. Pieces of a letter come in order.
struct PieceHead {
  uint64_t group, step;
  int32_t status;
  uint32_t rank;
  uint32_t at, total;  // bytes
};
static_assert(sizeof(PieceHead) == 32);

constexpr size_t kPiece = 4096;
constexpr uint64_t kOverhead = 128;  // what keeping a letter costs besides its bytes

Status send_piece(tw_endpoint& to, const PieceHead& head, const std::byte* bytes, size_t length) {
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
    PieceHead head{group, step, letter.status, letter.rank, 0, static_cast<uint32_t>(letter.bytes.size())};
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

/// In progress, under the lock. Untrusted bytes: a piece that does not fit is dropped, and the rank that waits for it times out.
tw_status Mailbox::keep(void* self, const tw_am_message* message) {
  auto& box = *static_cast<Mailbox*>(self);
  PieceHead head;
  if (message->endpoint == nullptr || message->header_length < sizeof head) return TW_OK;
  std::memcpy(&head, message->header, sizeof head);
  const size_t length = message->header_length - sizeof head;
  try {
    const auto [at, fresh] = box.kept_.try_emplace(Key{head.group, head.step, sender_of(*message->endpoint)});
    Kept& kept = at->second;
    if (fresh) {
      if (head.at != 0 || box.total_ + head.total + kOverhead > kMost) {
        box.kept_.erase(at);
        warn_once("group_mail", "a message of a group was dropped: it is damaged, or 64 MiB of such wait to be asked for");
        return TW_OK;
      }
      kept.letter.status = std::min(head.status, 0);
      kept.letter.rank = head.rank;
      kept.letter.bytes.resize(head.total);
      box.total_ += head.total + kOverhead;
    }
    if (head.at != kept.here || head.total != kept.letter.bytes.size() || length > head.total - head.at) return TW_OK;
    if (length != 0)
      std::memcpy(kept.letter.bytes.data() + head.at, static_cast<const std::byte*>(message->header) + sizeof head, length);
    kept.here += length;
  } catch (const std::bad_alloc&) {
    log(LogLevel::warning, "a message of a group was dropped: no memory");
  }
  return TW_OK;
}

bool Mailbox::take(tw_worker& worker, uint64_t from, uint64_t group, uint64_t step, Letter* out) {
  const Engine::Guard guard(*worker.engine);
  const auto at = kept_.find(Key{group, step, from});
  if (at == kept_.end() || !at->second.complete()) return false;
  *out = std::move(at->second.letter);
  total_ -= out->bytes.size() + kOverhead;
  kept_.erase(at);
  return true;
}

void Mailbox::forget(tw_worker& worker, uint64_t group) {
  const Engine::Guard guard(*worker.engine);
  auto at = kept_.lower_bound(Key{group, 0, 0});
  while (at != kept_.end() && std::get<0>(at->first) == group) {
    total_ -= at->second.letter.bytes.size() + kOverhead;
    at = kept_.erase(at);
  }
}

}  // namespace thalweg::impl
