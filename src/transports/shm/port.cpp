// SPDX-License-Identifier: Apache-2.0
// The shm port's hot path: send, reserve, commit, progress. Sleep and demotion are in wakeup.cpp, links' ends in life.cpp,
// set-up in setup.cpp.
#include "transports/shm/port.hpp"

#include <cstring>

#include "base/platform/cpu.hpp"

namespace thalweg::impl::shm {

// --- sending

/// Not in an exchange of single frames: there the consumer polls the line that is brought here.
inline void ShmPort::published(ShmLink& link) {
  if (std::exchange(link.taken_before, link.in.taken()) == link.in.taken()) link.out.prefetch_slot();
  if (link.out.must_ring()) [[unlikely]]
    ring_peer(link);
}

Status ShmPort::send(Link& base, const FrameHeader& header, const void* body) {
  auto& link = static_cast<ShmLink&>(base);
  if (header.length > kInlineMax || !link.out.has_slot()) [[unlikely]]
    return send_slowly(link, header, body);
  link.out.put_inline(header, body);
  published(link);
  return TW_OK;
}

/// A body that does not fit into a slot, or no slot was seen free.
[[gnu::noinline]] Status ShmPort::send_slowly(ShmLink& link, const FrameHeader& header, const void* body) {
  if (!link.out.has_slot()) [[unlikely]] {
    if (Status s = make_room(link, header.length); s != TW_OK) return s;
  }
  if (header.length <= kInlineMax) {
    link.out.put_inline(header, body);
  } else {
    std::byte* to = header.length <= kCopyMax ? link.out.bulk_place(header.length) : nullptr;
    if (to == nullptr) [[unlikely]] {
      if (Status s = make_room(link, header.length); s != TW_OK) return s;
      to = link.out.bulk_place(header.length);
    }
    link.body_copy.copy(to, static_cast<const std::byte*>(body), header.length);
    link.out.put_bulk(header);
  }
  published(link);
  return TW_OK;
}

std::byte* ShmPort::reserve(Link& base, size_t n) {
  auto& link = static_cast<ShmLink&>(base);
  if (!link.out.has_slot() || (n > kInlineMax && (n > kCopyMax || link.out.bulk_place(uint32_t(n)) == nullptr))) [[unlikely]] {
    const uint32_t length = n > kCopyMax ? kCopyMax + 1 : uint32_t(n);
    if (make_room(link, length) != TW_OK) return nullptr;
  }
  link.reserved = uint32_t(n);
  return n <= kInlineMax ? link.out.inline_place() : link.out.bulk_place(uint32_t(n));
}

void ShmPort::commit(Link& base, const FrameHeader& header) {
  auto& link = static_cast<ShmLink&>(base);
  if (link.out.stopped()) [[unlikely]]
    return;
  if (header.length > kInlineMax) {
    std::byte* filled = link.out.bulk_place(link.reserved);
    std::byte* to = link.out.bulk_place(header.length);
    // A shorter body than reserved may belong before the end where the longer one had to wrap.
    if (to != filled) [[unlikely]]
      std::memmove(to, filled, header.length);
    link.out.put_bulk(header);
  } else if (link.reserved > kInlineMax) {
    link.out.put_inline(header, link.out.bulk_place(link.reserved));
  } else {
    link.out.put_filled(header);
  }
  published(link);
}

/// No room was seen: reads the credit that the consumer has returned. TW_OK: the frame fits now.
[[gnu::cold]] Status ShmPort::make_room(ShmLink& link, uint32_t length) {
  if (link.out.stopped()) return fail(link.state, "%s", link.why.c_str());
  if (length > kCopyMax) return fail(TW_ERR_INVALID, "a shm frame of %u bytes: at most %u", length, kCopyMax);
  if (!link.out.refresh()) {
    doom(link, TW_ERR_PROTOCOL, "the peer gave back room in the shared ring that it never had");
    return fail(link.state, "%s", link.why.c_str());
  }
  if (length > kInlineMax && !link.deep_out.deep()) deepen(link, !link.out.has_room(length));
  if (link.out.has_room(length)) {
    link.starved = false;
    return TW_OK;
  }
  link.starved_length = length;
  link.starved = true;
  if (!link.listed) {
    link.listed = true;
    starved_.push_back(link.id);
  }
  if (!armed_) return TW_AGAIN;
  // The progress owner sleeps and another thread posts: as in arm(), ask to be woken and poll once more.
  link.out.set_waiting(true);
  barrier();
  if (!link.out.refresh() || !link.out.has_room(length)) return TW_AGAIN;
  link.starved = false;
  return TW_OK;
}

/// Bodies find no room, or much moves where a wide ring makes it faster: to the deep ring, or soon.
[[gnu::cold]] void ShmPort::deepen(ShmLink& link, bool full) {
  if (!link.control) return;
  if (link.deep_out.ready()) {
    if (!link.out.has_slot()) return;
    link.deep_out.turn(link.out);
    deep_.push_back(link.id);
    glance.next = nullptr;
    return;
  }
  const bool wide = link.wide && wide_ < kMostWide;
  if (!(full && link.deep_out.starved()) && !(wide && link.deep_out.busy(link.out))) return;
  link.deep_out.offered(wide);
  wide_ += wide;
  link.control->offer_ring(wide ? kWideBytes : kDeepBytes);
}

[[gnu::cold]] void ShmPort::ring_peer(ShmLink& link) { link.doorbell.ring(link.peer_bit); }

Status ShmPort::send_reference(Link&, const FrameHeader&, const iovec*, size_t, void*) {
  return fail(TW_ERR_UNSUPPORTED, "shm has no sends by reference");
}

// --- receiving

[[gnu::always_inline]] inline unsigned ShmPort::take_frames(ShmLink& link, unsigned budget) {
  unsigned done = 0;
  FrameHeader header;
  const std::byte* body;
  if (budget != 1) sink_->pause = false;  // where one frame is taken, nobody looks at it
  while (done < budget) {
    const Consumer::Take take = link.in.take(&header, &body);
    if (take != Consumer::Take::frame) [[unlikely]] {
      if (take == Consumer::Take::nothing) break;
      if (take == Consumer::Take::turn && link.deep_in.turn(link.in)) {
        ++done;
        if (link.in.consumed()) ring_peer(link);
        continue;
      }
      finish_lost(link, TW_ERR_PROTOCOL,
                  "the peer announced a frame longer than the shared ring can hold, or a ring that is not there");
      return done + 1;
    }
    ++done;
    // The next frame's slot comes from the producer's cache while this body is copied, or this frame handled.
    if (header.length > kInlineMax) __builtin_prefetch(link.in.next_word());
    if (done > 1) link.in.prefetch_slot();
    sink_->on_frame(link, header, body);
    if (link.ended) [[unlikely]]
      return done;
    if (link.in.consumed()) [[unlikely]]
      ring_peer(link);
    // In an exchange of single frames: the answer's line comes while the user is told. Not before the frame is handled: the consumer,
    // which polls that line, would have it back.
    if (budget == 1) {
      link.out.prefetch_next();
    } else if (sink_->pause) [[unlikely]] {
      break;
    }
  }
  return done;
}

[[gnu::noinline]] unsigned ShmPort::drain(ShmLink& link, unsigned budget) { return take_frames(link, budget); }

/// What the peer published before it ended still counts; a live one may go on writing, so at most a ringful.
unsigned ShmPort::drain_rest(ShmLink& link) {
  unsigned done = 0;
  while (done < kSlots && !link.ended) {
    const unsigned taken = drain(link, kSlots - done);
    if (taken == 0) break;
    done += taken;
  }
  return done;
}

inline void ShmPort::refresh_hot(ShmLink& link) {
  Hot& hot = hot_[link.hot_index];
  hot.word = link.in.next_word();
  hot.parity = link.in.next_parity();
}

/// Of a port with one hot ring: waits a little for the next frame. The shortest way from an arrival to its handling.
inline void ShmPort::linger() const {
  const Hot& hot = hot_[0];
  // Without the pauses the loads of a tight loop hold up the very line they wait for.
  for (unsigned left = looks; left > 1 && !hot.arrived(); --left) cpu_pause();
}

inline unsigned ShmPort::poll(const Hot& hot, unsigned budget) {
  if (!hot.arrived()) return 0;
  ShmLink& link = *hot.link;
  const unsigned done = drain(link, budget);
  link.last_active = sweep_;
  if (link.hot_index != ShmLink::kCold) refresh_hot(link);
  return done;
}

/// The frame that the glance shows, and nothing behind it, in an exchange of single frames: a receiver that answers does so
/// first. Where it is not there: all. Where there is a glance, the port is not armed, nothing is pinned, and one ring alone is hot.
[[gnu::noinline]] unsigned ShmPort::take_shown(ShmLink& link, unsigned budget) {
  progressing_ = true;
  ++sweep_;
  unsigned done = take_frames(link, 1);
  if (done == 0) [[unlikely]] {
    progressing_ = false;
    return progress_all(budget);
  }
  link.last_active = sweep_;
  if (link.hot_index != ShmLink::kCold) [[likely]]
    refresh_hot(link);
  if ((sweep_ & kAroundMask) == 0) [[unlikely]] {
    unsigned all = done;
    look_around(&all);
    done = all;
  }
  progressing_ = false;
  idle_ = 0;
  return done;
}

[[gnu::noinline]] unsigned ShmPort::poll_all(unsigned budget) {
  unsigned done = 0;
  sink_->pause = false;
  // Links may be closed (hot_ shrinks) or made (it grows) by callbacks: indices are checked anew each time.
  const size_t count = hot_.size();
  size_t index = start_;
  for (size_t i = 0; i < count && done < budget && !sink_->pause; ++i, ++index) {
    if (index >= hot_.size()) index = 0;
    if (hot_.empty()) [[unlikely]]
      break;
    done += poll(hot_[index], budget - done);
  }
  start_ = done < budget && !sink_->pause ? 0 : index;
  return done;
}

/// Unless there is more to do than to wait for a frame.
inline void ShmPort::set_glance() {
  const bool waits = hot_.size() == 1 && deep_.empty() && !imports_.wants_trim() && idle_ <= kIdleTurns;
  glance = {waits ? &hot_[0] : nullptr, mailbox_->doorbell.summary(), &mailbox_->full};
}

/// Rare work: doorbells of cold rings, the service thread's events, idle rings, links that ended.
[[gnu::noinline]] void ShmPort::look_around(unsigned* done) {
  if (mailbox_->doorbell.rung()) [[unlikely]]
    answer_doorbell();
  if (mailbox_->full.load(std::memory_order_relaxed)) [[unlikely]]
    *done += handle_events();
  if (sweep_ >= next_house_) [[unlikely]]
    keep_house();
  if (!graveyard_.empty() || !unmapping_.empty()) [[unlikely]]
    bury();
  quiet = links_.empty();
  if (rung_) [[unlikely]] {
    rung_ = false;
    if (*done == 0) *done = 1;  // nothing in a ring: a signal
  }
}

unsigned ShmPort::progress(unsigned budget) {
  if (glance.next == nullptr || progressing_) return progress_all(budget);
  ShmLink& link = *hot_[0].link;
  return link.exchanges() ? take_shown(link, budget) : progress_all(budget);
}

[[gnu::noinline]] unsigned ShmPort::progress_all(unsigned budget) {
  const bool woken = armed_;
  if (woken) [[unlikely]]
    disarm();
  if (progressing_) [[unlikely]]
    return 0;
  progressing_ = true;
  unpin();
  ++sweep_;
  unsigned done;
  if (hot_.size() == 1) [[likely]] {
    linger();
    done = poll(hot_[0], hot_[0].link->exchanges() ? 1 : budget);
  } else {
    done = poll_all(budget);
  }
  if (done == 0 || woken || (sweep_ & kAroundMask) == 0) look_around(&done);
  progressing_ = false;
  if (done != 0) {
    idle_ = 0;
  } else {
    // A pause delays the next poll by 25 ns: only once nothing has come for a while.
    if (++idle_ > kIdleTurns) [[unlikely]]
      cpu_pause();
    set_glance();
  }
  return done;
}

// --- within a call that posts

bool ShmPort::any_behind(const Link& base, uint64_t taken, FrameTest test, const void* what) {
  const auto& link = static_cast<const ShmLink&>(base);
  return link.out.stopped() || link.out.any_behind(taken, [=](const FrameHeader& header) { return test(header, what); });
}

unsigned ShmPort::drain_while(ShmLink& link, unsigned budget, FrameTest test) {
  unsigned done = 0;
  FrameHeader header;
  const std::byte* body;
  while (done < budget && link.in.peek(&header) && (header.length == kTurn || test(header, nullptr))) {
    const Consumer::Take take = link.in.take(&header, &body);
    const bool turned = take == Consumer::Take::turn && link.deep_in.turn(link.in);
    if (!turned && (take != Consumer::Take::frame || !test(header, nullptr))) {
      finish_lost(link, TW_ERR_PROTOCOL,
                  "the peer changed a frame in the shared ring after it was published, or it is too long");
      return done + 1;
    }
    ++done;
    if (!turned) sink_->on_frame(link, header, body);
    if (link.ended) return done;
    if (link.in.consumed()) ring_peer(link);
  }
  return done;
}

unsigned ShmPort::take(unsigned budget, FrameTest test) {
  if (progressing_) return 0;
  progressing_ = true;
  unsigned done = 0;
  if (mailbox_->doorbell.rung()) answer_doorbell();
  for (size_t i = 0; i < hot_.size() && done < budget; ++i) {
    if (!hot_[i].arrived()) continue;
    ShmLink& link = *hot_[i].link;
    const unsigned taken = drain_while(link, budget - done, test);
    if (taken == 0) continue;
    done += taken;
    link.last_active = sweep_;
    if (link.hot_index != ShmLink::kCold) refresh_hot(link);
  }
  progressing_ = false;
  return done;
}

}  // namespace thalweg::impl::shm
