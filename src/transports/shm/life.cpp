// SPDX-License-Identifier: Apache-2.0
// How links end, and what the service thread's events do to them.
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "transports/shm/port.hpp"

namespace thalweg::impl::shm {

/// Outside progress no callback may be made: sends are refused from now on, the next progress reports it.
void ShmPort::doom(ShmLink& link, Status status, const char* why) {
  link.state = status;
  link.why = why;
  link.out.stop();
  Event event;
  event.kind = Event::Kind::lost;
  event.link = link.id;
  event.status = status;
  event.why = why;
  mailbox_->post(std::move(event));
}

/// In progress only. The link stays an object until close().
void ShmPort::finish_lost(ShmLink& link, Status status, const char* why) {
  if (link.ended) return;
  link.state = status;
  link.why = why;
  retire(link, false, Deadline(copy_limit()));
  unmapping_.push_back(link.id);
  sink_->on_lost(link, status, why);
}

/// Takes a link out of everything that polls or sends. Its memory may still be in use by a caller up the stack.
void ShmPort::retire(ShmLink& link, bool graceful, const Deadline& deadline) {
  cool(link);
  --live_;
  if (!same_process(link)) --foreign_;
  link.ended = true;
  link.sleeping = nullptr;  // the doorbell's memory goes away
  link.out.stop();
  if (link.state == TW_OK) link.state = TW_ERR_CLOSED;
  ShmLink** at = &by_bit_[link.my_bit];
  while (*at != nullptr && *at != &link) at = &(*at)->next_same_bit;
  if (*at != nullptr) *at = link.next_same_bit;
  link.copier.close();
  wide_ -= link.deep_out.give_back();
  if (link.control) {
    // A peer that has violated a protocol is not trusted here either, and one that has said goodbye copies no more.
    const bool awaited = link.state != TW_ERR_PROTOCOL && !link.parted;
    if (awaited && !link.control->await_copy(deadline, copy_limit())) {
      warn_once("shm.copy", "shm: a peer is stopped in the middle of a copy; its link ends without it");
    }
    link.control->copying.forget();
    link.control->stop(graceful);
    if (!link.control->lends()) mailbox_->remove(link.control);
    link.control.reset();
  }
  imports_.revoke_all(link.id, link.state);
}

/// At the end of progress: no caller up the stack uses the memory any more.
[[gnu::noinline]] void ShmPort::bury() {
  graveyard_.clear();
  for (uint64_t id : unmapping_) {
    const auto found = links_.find(id);
    if (found == links_.end()) continue;
    found->second->segment = Segment();
    found->second->deep_out.forget();
    found->second->deep_in.forget();
    found->second->doorbell = PeerDoorbell();
  }
  unmapping_.clear();
}

void ShmPort::close(Link& base, bool graceful) {
  // What was accepted is in the ring already: the peer drains it when it sees the socket's end.
  auto& link = static_cast<ShmLink&>(base);
  if (!link.ended) retire(link, graceful, Deadline(copy_limit()));
  const auto found = links_.find(link.id);
  if (found == links_.end()) return;
  std::unique_ptr<ShmLink> owned = std::move(found->second);
  links_.erase(found);
  if (owned->listed) std::erase(starved_, owned->id);
  std::erase(deep_, owned->id);
  if (progressing_) graveyard_.push_back(std::move(owned));
}

ShmPort::~ShmPort() {
  mailbox_->imports.abandon();
  const Deadline deadline(copy_limit());  // of all together
  for (auto& [id, link] : links_)
    if (!link->ended) retire(*link, false, deadline);
  // A later release of device memory finds no port to ask.
  if (!mailbox_->await_dropped(0, copy_limit()))
    warn_once("shm.drop", "shm: a stopped peer still has device memory of this process imported; let it end before freeing it");
  if (options_.registry != nullptr) options_.registry->remove_listener(this);
  // The imports of links that ended while something used them: the timer that looks again may never come, and they hold their
  // control, which holds the mailbox, which holds them.
  if (options_.service != nullptr) options_.service->post([mailbox = mailbox_] { mailbox->imports.release_unused(); });
}

[[gnu::noinline]] unsigned ShmPort::handle_events() {
  unsigned done = 0;
  for (Event& event : mailbox_->take()) {
    const auto found = links_.find(event.link);
    if (found == links_.end() || found->second->ended) continue;
    ShmLink& link = *found->second;
    ++done;
    switch (event.kind) {
      case Event::Kind::lost:
        if (link.state == TW_OK) done += drain_rest(link);
        finish_lost(link, event.status, event.why.c_str());
        break;
      case Event::Kind::imported:
        handle_import(link, event);
        break;
      case Event::Kind::ring_offered:
        if (event.ring->data() == nullptr) break;  // told twice (Control::tell_ring)
        if (link.deep_in.offered(std::move(*event.ring)))
          link.control->take_ring();
        else
          finish_lost(link, TW_ERR_PROTOCOL, "the peer offers one deep ring after the other");
        break;
      case Event::Kind::ring_taken:
        if (event.ring != nullptr) {
          link.deep_out.taken(std::move(*event.ring));
        } else {
          wide_ -= link.deep_out.give_back();
          link.deep_out.refused();
        }
        break;
      case Event::Kind::released:
        imports_.revoke(link.id, event.segment, TW_ERR_STALE);
        break;
    }
  }
  imports_.trim();
  return done;
}

void ShmPort::handle_import(ShmLink& link, Event& event) {
  std::erase_if(link.wanted, [&event](const Wanted& w) {
    return w.segment == event.segment && w.device == event.device && w.status == TW_IN_PROGRESS;
  });
  if (event.status != TW_OK)
    link.wanted.push_back({event.segment, event.device, event.status, std::move(event.why)});
  else if (event.device == nullptr)  // device memory is in its cache already
    imports_.insert(link.id, event.segment, std::move(event.import));
  sink_->on_import(link, event.segment);
}

Status ShmPort::import(Link& base, uint64_t segment, Mapping** mapping) {
  auto& link = static_cast<ShmLink&>(base);
  if (link.state != TW_OK) [[unlikely]]
    return link.state;
  *mapping = imports_.find(link.id, segment);
  if (*mapping != nullptr) [[likely]]
    return TW_OK;
  return start_import(link, segment, nullptr);
}

Status ShmPort::import_device(Link& base, uint64_t segment, Device& device, Mapping** mapping) {
  auto& link = static_cast<ShmLink&>(base);
  if (link.state != TW_OK) [[unlikely]]
    return link.state;
  *mapping = mailbox_->imports.find(link.id, segment, device);
  pinned_ = true;
  glance.next = nullptr;
  if (*mapping != nullptr) [[likely]]
    return TW_OK;
  if ((link.features & kLinkSameProcess) != 0)
    return fail(TW_ERR_UNSUPPORTED, "device memory of this process needs no import: its addresses are ours");
  return start_import(link, segment, &device);
}

/// `device`: null for host memory.
[[gnu::cold]] Status ShmPort::start_import(ShmLink& link, uint64_t segment, Device* device) {
  const auto found = std::find_if(link.wanted.begin(), link.wanted.end(),
                                  [&](const Wanted& w) { return w.segment == segment && w.device == device; });
  if (found != link.wanted.end()) {
    if (found->status == TW_IN_PROGRESS) return TW_IN_PROGRESS;
    const Wanted failed = std::move(*found);  // reported once; the next call asks the peer again
    link.wanted.erase(found);
    return fail(failed.status, "%s", failed.why.c_str());
  }
  if (!link.control) return fail(TW_ERR_UNSUPPORTED, "this link has no control channel: its peer's memory cannot be mapped");
  // Refusals that were not collected are dropped.
  if (link.wanted.size() >= kMaxWanted) std::erase_if(link.wanted, [](const Wanted& w) { return w.status != TW_IN_PROGRESS; });
  if (link.wanted.size() >= kMaxWanted) return TW_IN_PROGRESS;
  link.wanted.push_back({segment, device, TW_IN_PROGRESS, {}});
  if (device == nullptr)
    link.control->request(segment);
  else
    link.control->request_device(segment, *device);
  return TW_IN_PROGRESS;
}

void ShmPort::on_segment_released(uint64_t segment) { mailbox_->send_release(segment); }

}  // namespace thalweg::impl::shm
