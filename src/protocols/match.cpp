// SPDX-License-Identifier: Apache-2.0
// The matcher's tables.
#include "protocols/match.hpp"

#include "protocols/offers.hpp"

#include <cstdlib>
#include <new>

namespace thalweg::impl {

namespace {
constexpr unsigned kFirstBits = 8;
}  // namespace

Matcher::Matcher(uint64_t first_receive)
    : exact_(1u << kFirstBits),
      sequence_(first_receive),
      exact_shift_(64 - kFirstBits),
      chain_shift_(64 - kFirstBits),
      chains_(1u << kFirstBits) {}

Matcher::~Matcher() {
  for (tw_message* list : {first_, first_taken_}) {
    while (list != nullptr) {
      tw_message* next = list->next;
      destroy(list);
      list = next;
    }
  }
}

OpRun* Matcher::any_posted(size_t* from) const {
  if (posted_.get() == 0) return nullptr;
  for (size_t looked = 0; looked < exact_.size(); ++looked, ++*from) {
    if (*from >= exact_.size()) *from = 0;
    if (!exact_[*from].empty()) return exact_[*from].front();
  }
  return wild_.front();
}

OpRun* Matcher::earlier(OpRun* exact, uint64_t tag, const Peer* peer) const {
  for (OpRun* run = wild_.front(); run != nullptr; run = run->link.next) {
    if (exact != nullptr && exact->sequence < run->sequence) return exact;
    const OpDesc& op = *run->op;
    if (((op.tag ^ tag) & op.mask) == 0 && (op.peer == nullptr || op.peer == peer)) return run;
  }
  return exact;
}

bool Matcher::earlier_are_offered(const OpRun& run, const Peer& peer, size_t offered) const {
  if (posted_.get() - 1 == offered) return true;
  const uint64_t tag = run.op->tag;
  if (run.op->mask != ~uint64_t{0}) return false;  // it could take messages of any of them
  const auto told = [&peer](OpRun& one) { return one.offer != 0 && offered_to(one) == &peer; };
  for (OpRun* one = exact_[bucket(tag, exact_shift_)].front(); one != &run; one = one->link.next) {
    if (takes_exactly(*one, tag, &peer) && !told(*one)) return false;
  }
  for (OpRun* one = wild_.front(); one != nullptr; one = one->link.next) {
    const OpDesc& op = *one->op;
    if (((op.tag ^ tag) & op.mask) == 0 && (op.peer == nullptr || op.peer == &peer) && !told(*one)) return false;
  }
  return true;
}

void Matcher::grow_exact() {
  std::vector<RunList> old(exact_.size() * 8);
  old.swap(exact_);
  exact_shift_ -= 3;
  // Receives for one tag share their old and their new bucket: moving front to back keeps their order.
  for (RunList& list : old) {
    while (OpRun* run = list.pop_front()) exact_[bucket(run->op->tag, exact_shift_)].push_back(run);
  }
}

tw_message* Matcher::make(uint64_t payload) {
  void* memory = std::malloc(sizeof(tw_message) + payload);
  return memory == nullptr ? nullptr : new (memory) tw_message();
}

void Matcher::destroy(tw_message* message) { std::free(message); }

void Matcher::link_bucket(tw_message& message) {
  Chain& chain = chains_[bucket(message.info.tag, chain_shift_)];
  message.bucket_next = nullptr;
  message.bucket_previous = chain.last;
  (chain.last != nullptr ? chain.last->bucket_next : chain.first) = &message;
  chain.last = &message;
}

void Matcher::keep(tw_message& message) {
  unmatched_.add();
  if (unmatched_.get() > chains_.size() * 4) grow_unmatched();
  message.next = nullptr;
  message.previous = last_;
  (last_ != nullptr ? last_->next : first_) = &message;
  last_ = &message;
  link_bucket(message);
}

void Matcher::grow_unmatched() {
  chains_.assign(chains_.size() * 8, Chain{});
  chain_shift_ -= 3;
  for (tw_message* message = first_; message != nullptr; message = message->next) link_bucket(*message);
}

tw_message* Matcher::search(uint64_t tag, uint64_t mask, const Peer* source) const {
  if (mask == ~uint64_t{0}) {
    for (tw_message* m = chains_[bucket(tag, chain_shift_)].first; m != nullptr; m = m->bucket_next) {
      if (m->info.tag == tag && (source == nullptr || source == m->peer)) return m;
    }
    return nullptr;
  }
  for (tw_message* m = first_; m != nullptr; m = m->next) {
    if (((m->info.tag ^ tag) & mask) == 0 && (source == nullptr || source == m->peer)) return m;
  }
  return nullptr;
}

void Matcher::unlink_list(tw_message& message, tw_message*& first, tw_message*& last) {
  (message.previous != nullptr ? message.previous->next : first) = message.next;
  (message.next != nullptr ? message.next->previous : last) = message.previous;
  message.next = message.previous = nullptr;
}

void Matcher::take_out(tw_message& message) {
  unmatched_.sub();
  unlink_list(message, first_, last_);
  Chain& chain = chains_[bucket(message.info.tag, chain_shift_)];
  (message.bucket_previous != nullptr ? message.bucket_previous->bucket_next : chain.first) = message.bucket_next;
  (message.bucket_next != nullptr ? message.bucket_next->bucket_previous : chain.last) = message.bucket_previous;
}

void Matcher::hold(tw_message& message) {
  message.taken = true;
  message.next = nullptr;
  message.previous = last_taken_;
  (last_taken_ != nullptr ? last_taken_->next : first_taken_) = &message;
  last_taken_ = &message;
}

void Matcher::unhold(tw_message& message) {
  message.taken = false;
  unlink_list(message, first_taken_, last_taken_);
}

uint64_t Matcher::drop(const Peer& peer, bool here) {
  uint64_t cost = 0;
  for (tw_message* m = first_; m != nullptr;) {
    tw_message* next = m->next;
    if (m->peer == &peer && (here || m->kind != tw_message::Kind::here)) {
      cost += m->cost;
      take_out(*m);
      destroy(m);
    }
    m = next;
  }
  return cost;
}

uint64_t Matcher::lose(const Peer& peer) {
  const uint64_t cost = drop(peer, false);
  for (tw_message* m = first_taken_; m != nullptr; m = m->next) {
    if (m->peer == &peer && m->kind != tw_message::Kind::here) m->kind = tw_message::Kind::lost;
  }
  return cost;
}

void Matcher::orphan(const Peer& peer) {
  for (tw_message* list : {first_, first_taken_}) {
    for (tw_message* m = list; m != nullptr; m = m->next) {
      if (m->peer != &peer) continue;
      m->peer = nullptr;
      m->info.endpoint = nullptr;
    }
  }
}

}  // namespace thalweg::impl
