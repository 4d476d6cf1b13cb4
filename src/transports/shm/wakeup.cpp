// SPDX-License-Identifier: Apache-2.0
// Hot and cold rings, sleep and wake.
//
// Going cold or to sleep is always: set a flag in shared memory; full barrier here and, by the kernel, on the producers'
// cores; poll once more. A producer stores its frame and then loads the flag. Either its load sees it and it rings, or its
// frame was stored before our barrier and our second poll sees it.
#include <algorithm>

#include "base/platform/membarrier.hpp"
#include "transports/shm/port.hpp"

namespace thalweg::impl::shm {

void ShmPort::heat(ShmLink& link) {
  if (link.hot_index != ShmLink::kCold) return;
  link.in.set_mode(armed_ ? kWantsDoorbell : kPolled);  // a producer that still sees the old mode rings once too often
  link.hot_index = uint32_t(hot_.size());
  link.last_active = sweep_;
  glance.next = nullptr;
  hot_.push_back({{link.in.next_word(), link.in.next_parity()}, &link});
}

/// Takes a ring out of the hot list; its mode is the caller's business.
void ShmPort::cool(ShmLink& link) {
  if (link.hot_index == ShmLink::kCold) return;
  glance.next = nullptr;
  hot_[link.hot_index] = hot_.back();
  hot_[link.hot_index].link->hot_index = link.hot_index;
  hot_.pop_back();
  link.hot_index = ShmLink::kCold;
}

void ShmPort::barrier() const {
  membarrier::global();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

[[gnu::cold, gnu::noinline]] void ShmPort::keep_house() {
  next_house_ = sweep_ + kHouseSweeps;
  give_rest();
  if (hot_.size() > kHotMin) demote_idle();
  if (hot_.size() < live_) poll_cold();
  if (imports_.wants_trim()) imports_.trim();
  if (!deep_.empty()) turn_back_idle();
}

/// Less than a batch of credit stays here while frames move. A producer that has stopped needs all of it, to turn back from a deep
/// ring that it uses no more.
[[gnu::cold]] void ShmPort::give_rest() {
  for (const Hot& hot : hot_)
    if (hot.link->in.give_rest()) ring_peer(*hot.link);
}

/// What rang for them may have been taken away.
[[gnu::cold]] void ShmPort::poll_cold() {
  const uint64_t now = monotonic_ns();
  if (now < next_cold_) return;
  next_cold_ = now + kDistrustNs;
  for (auto& [id, link] : links_)
    if (link->state == TW_OK && !link->ended && link->in.ready()) heat(*link);
}

/// Deep rings that nothing has moved through for a while.
[[gnu::cold]] void ShmPort::turn_back_idle() {
  const uint64_t now = monotonic_ns();
  if (now < next_turn_back_) return;
  next_turn_back_ = now + DeepOut::kIdleNs / 4;
  std::erase_if(deep_, [this, now](uint64_t id) {
    const auto found = links_.find(id);
    if (found == links_.end() || found->second->out.stopped()) return true;
    ShmLink& link = *found->second;
    if (!link.deep_out.turn_back(link.out, now)) return false;
    wide_ -= link.deep_out.give_back();
    if (link.out.must_ring()) ring_peer(link);
    return true;
  });
}

/// One barrier for all that go cold together.
[[gnu::cold]] void ShmPort::demote_idle() {
  // The more rings are polled, the sooner an idle one is in the way of the others.
  const uint64_t patience = std::max<uint64_t>(kHouseSweeps, 32768 / hot_.size());
  std::vector<ShmLink*> batch;
  for (const Hot& hot : hot_)
    if (sweep_ - hot.link->last_active >= patience) batch.push_back(hot.link);
  if (batch.empty()) return;
  for (ShmLink* link : batch) {
    cool(*link);
    link->in.set_mode(kWantsDoorbell);
  }
  barrier();
  for (ShmLink* link : batch)
    if (link->in.ready()) heat(*link);
}

[[gnu::cold, gnu::noinline]] void ShmPort::answer_doorbell() {
  mailbox_->doorbell.collect([this](unsigned bit) {
    if (bit >= by_bit_.size()) return;  // any holder of the job key can ring any bit
    for (ShmLink* link = by_bit_[bit]; link != nullptr; link = link->next_same_bit)
      if (link->state == TW_OK) heat(*link);
  });
}

bool ShmPort::anything_there() const {
  if (mailbox_->doorbell.rung() || mailbox_->full.load(std::memory_order_acquire)) return true;
  for (const Hot& hot : hot_)
    if (hot.arrived()) return true;
  return false;
}

Status ShmPort::arm() {
  quiet = false;
  glance.next = nullptr;
  armed_ = true;
  longest_sleep.store(foreign_ != 0 ? kDistrustNs : UINT64_MAX, std::memory_order_relaxed);
  unpin();
  if (!progressing_) give_rest();
  bool waiting = false;
  for (const Hot& hot : hot_) hot.link->in.set_mode(kWantsDoorbell);
  // Ids, not pointers: a starved link may have been closed since.
  std::erase_if(starved_, [this](uint64_t id) {
    const auto found = links_.find(id);
    if (found == links_.end()) return true;
    ShmLink& link = *found->second;
    link.listed = link.starved && !link.out.stopped();
    return !link.listed;
  });
  for (uint64_t id : starved_) links_[id]->out.set_waiting(true);
  mailbox_->doorbell.set_sleeping();
  barrier();
  for (uint64_t id : starved_) {
    ShmLink& link = *links_[id];
    if (!link.out.refresh() || !link.out.has_room(link.starved_length)) continue;
    link.starved = false;  // said once: the send may have been given up, or may see the room and ask for none
    waiting = true;
  }
  if (!waiting && !anything_there()) return TW_OK;
  disarm();
  return TW_ERR_BUSY;
}

[[gnu::cold, gnu::noinline]] void ShmPort::disarm() {
  armed_ = false;
  next_house_ = sweep_;  // a sleeper makes few sweeps
  rung_ |= mailbox_->doorbell.end_sleep();
  mailbox_->doorbell.drain_event();
  for (const Hot& hot : hot_) hot.link->in.set_mode(kPolled);
  for (uint64_t id : starved_)
    if (const auto found = links_.find(id); found != links_.end() && !found->second->out.stopped())
      found->second->out.set_waiting(false);
}

}  // namespace thalweg::impl::shm
