// SPDX-License-Identifier: Apache-2.0
// Progress: one round flushes, reads, reports; arm() makes a sleep without a lost wake-up possible.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "transports/tcp/port.hpp"
#include "transports/tcp/silence.hpp"

namespace thalweg::impl::tcp {

unsigned TcpPort::progress(unsigned budget) {
  const Round open(*this);
  ++round_;
  unsigned events = dirty_.empty() ? 0 : flush_dirty();
  if (!resume_.empty()) events += resume(budget);
  events += poll_hot(budget);
  if (links_.size() > poller_.hot_count() || look_everywhere_) {
    if (poller_.hot_count() == 0 || look_everywhere_ || round_ % kColdRounds == 0) events += poll_cold(budget);
  }
  if (!dirty_.empty()) events += flush_dirty();
  if (!lost_.empty()) events += report_lost();
  if (round_ % 16 == 0 && !(watched_.empty() && lingering_.empty())) check_silence(false);
  poller_.age(round_);
  quiet = links_.empty() && dirty_.empty() && lost_.empty() && resume_.empty();
  return events;
}

unsigned TcpPort::flush_dirty() {
  unsigned events = 0;
  scratch_.swap(dirty_);
  for (TcpLink* link : scratch_) {
    link->dirty = false;
    if (link->gone) continue;
    if (!link->blocked && !link->out.empty()) flush(*link);
    events += report_finished(*link);
  }
  scratch_.clear();
  return events;
}

unsigned TcpPort::report_finished(TcpLink& link) {
  unsigned events = 0;
  while (!link.gone && link.out.has_finished()) {
    options_.sink->on_sent(link, link.out.finished(), TW_OK);
    ++events;
  }
  return events;
}

void TcpPort::read_again(TcpLink& link) {
  if (link.resume || link.gone) return;
  link.resume = true;
  resume_.push_back(&link);
}

unsigned TcpPort::resume(unsigned budget) {
  unsigned events = 0;
  scratch_.swap(resume_);
  for (TcpLink* link : scratch_) {
    link->resume = false;
    if (!link->gone) events += read(*link, budget);
  }
  scratch_.clear();
  return events;
}

unsigned TcpPort::poll_hot(unsigned budget) {
  unsigned events = 0;
  const unsigned count = poller_.hot_count();
  TcpLink* hot[kHot];
  for (unsigned i = 0; i < count; ++i) hot[i] = poller_.hot(i);
  for (unsigned i = 0; i < count; ++i) {
    if (!hot[i]->gone) events += serve(*hot[i], budget);
  }
  return events;
}

unsigned TcpPort::poll_cold(unsigned budget) {
  look_everywhere_ = false;
  epoll_event ready[64];
  const Poller::Ready found = poller_.collect(ready, 64);
  unsigned events = 0;
  for (size_t i = 0; i < found.links; ++i) {
    TcpLink& link = *static_cast<TcpLink*>(ready[i].data.ptr);
    if (!link.gone && !link.hot) events += serve(link, budget);
  }
  if (found.timer) check_silence(true);
  // All that were asked for were ready: more may be.
  if (found.links >= 60) look_everywhere_ = true;
  return events;
}

unsigned TcpPort::serve(TcpLink& link, unsigned budget) {
  unsigned events = 0;
  if (link.blocked) {
    const size_t before = link.out.bytes();
    flush(link);
    if (link.out.bytes() != before) {
      poller_.touch(link, round_);
      ++events;
    }
  }
  return events + read(link, budget);
}

unsigned TcpPort::read(TcpLink& link, unsigned budget) {
  if (link.lost) return 0;
  if (link.lingering) {
    read_lingering(link);
    return 0;
  }
  unsigned frames = 0;
  size_t bytes = 0;
  while (true) {
    iovec places[2];
    const size_t count = link.reader.places(places, read_buffer_);
    const IoResult result = link.socket.receive(places, count);
    if (result.moved > 0) {
      bytes += result.moved;
      const Status status = link.reader.taken(result.moved, read_buffer_, link.silent, &frames);
      if (link.silent || link.lost) return frames + 1;
      if (status != TW_OK) {
        lose(link, status, link.reader.why());
        return frames + 1;
      }
    }
    if (result.end) {
      lose(link, TW_ERR_PEER_LOST,
           link.reader.partial() ? "the peer's end of the connection closed in the middle of a frame"
                                 : "the peer's end of the connection closed");
      return frames + 1;
    }
    if (result.error == EAGAIN) break;
    if (result.error != 0) {
      lose_errno(link, "receiving", result.error);
      return frames + 1;
    }
    if (bytes >= kReadTurn || frames >= budget) {
      read_again(link);
      break;
    }
  }
  if (bytes > 0) {
    poller_.touch(link, round_);
  } else if (link.write_error != 0) {
    lose_errno(link, "sending", link.write_error);
  }
  if (link.write_error != 0 && !link.lost) read_again(link);
  return frames + (bytes > 0 ? 1 : 0);
}

/// A closed link: what still comes is thrown away until the peer has closed too. Closing with unread bytes would reset the
/// connection and could take our last frames from the peer.
void TcpPort::read_lingering(TcpLink& link) {
  size_t bytes = 0;
  while (bytes < kReadTurn) {
    const iovec place{read_buffer_.fresh(), kReadBuffer};
    const IoResult result = link.socket.receive(&place, 1);
    bytes += result.moved;
    if (result.end || (result.error != 0 && result.error != EAGAIN)) {
      lose(link, TW_ERR_PEER_LOST, "");
      return;
    }
    if (result.error == EAGAIN) break;
  }
  if (link.write_error != 0) lose(link, TW_ERR_PEER_LOST, "");
}

unsigned TcpPort::report_lost() {
  unsigned events = 0;
  for (size_t i = 0; i < lost_.size(); ++i) {  // callbacks may lose more
    TcpLink& link = *lost_[i];
    if (!link.gone) abandon(link, link.status);
    if (!link.gone) options_.sink->on_lost(link, link.status, link.why.c_str());
    if (!link.gone) bury(link);
    ++events;
  }
  lost_.clear();
  return events;
}

/// Checks the links whose data the peer's kernel has not acknowledged, and those that take too long to close.
void TcpPort::check_silence(bool due) {
  const uint64_t now = monotonic_ns();
  if (next_watch_ns_ == 0) next_watch_ns_ = now + watch_period_ns_;
  if (!due && now < next_watch_ns_) return;
  next_watch_ns_ = now + watch_period_ns_;
  const auto settled = [this](TcpLink* link) {
    if (link->gone || link->lost) return true;
    const Silence silence = listen_for(link->socket.fd(), options_.silent_timeout_ns);
    if (silence == Silence::waiting) return false;
    if (silence == Silence::lost) scratch_.push_back(link);
    link->watched = false;
    return true;
  };
  watched_.erase(std::remove_if(watched_.begin(), watched_.end(), settled), watched_.end());
  for (TcpLink* link : scratch_) {
    lose(*link, TW_ERR_PEER_LOST,
         "the network to the peer is silent: nothing was acknowledged within the time-out (silent_timeout_ns)");
  }
  scratch_.clear();
  for (size_t i = 0; i < lingering_.size(); ++i) {
    if (!lingering_[i]->gone && now >= lingering_[i]->linger_until) lose(*lingering_[i], TW_ERR_TIMED_OUT, "");
  }
  std::erase_if(lingering_, [](const TcpLink* link) { return link->gone; });
}

Status TcpPort::arm() {
  quiet = false;
  const auto busy = [this] {
    look_everywhere_ = true;
    return TW_ERR_BUSY;
  };
  for (TcpLink* link : dirty_) {
    if (!link->gone && !link->blocked && !link->out.empty()) flush(*link);
    if (link->out.has_finished()) return busy();
  }
  if (!lost_.empty() || !resume_.empty() || std::exchange(starved_, false)) return busy();
  for (TcpLink* link : dirty_) link->dirty = false;
  dirty_.clear();
  if (!poller_.prepare_sleep()) return busy();
  if (!(watched_.empty() && lingering_.empty()) && !poller_.timer_set()) poller_.set_timer(watch_period_ns_);
  epoll_event ready[8];
  const Poller::Ready found = poller_.collect(ready, 8);
  if (found.timer) next_watch_ns_ = 1;  // the next round checks
  if (found.links > 0 || found.woken || found.timer) return busy();
  look_everywhere_ = true;
  return TW_OK;
}

}  // namespace thalweg::impl::tcp
