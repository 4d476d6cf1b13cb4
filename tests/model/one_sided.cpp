// SPDX-License-Identifier: Apache-2.0
// One-sided operations: posting, and what the reference says of what was seen.
#include "protocols/one_sided.hpp"

#include "model/world.hpp"

namespace thalweg::model {

// ------------------------------------------------------------------------------------------------ posting

RemoteRegion* World::region(End& end, unsigned memory) {
  if (end.handle_gone[memory] || end.lost) return nullptr;
  const Engine::Guard guard(*workers_[end.worker].engine);
  if (end.regions[memory] == nullptr) {
    const Status s = import_region(end.peer, workers_[end.to].exports->memories[memory].key, &end.regions[memory]);
    if (s != TW_OK) return nullptr;
  }
  return end.regions[memory];
}

RemoteRegion* World::signal_region(End& end, unsigned signal) {
  const Engine::Guard guard(*workers_[end.worker].engine);
  if (end.signals[signal] == nullptr && !end.lost) {
    import_region(end.peer, workers_[end.to].exports->signal_keys[signal], &end.signals[signal]);
  }
  return end.signals[signal];
}

void World::enter_order(Posted& posted) {
  End& one = end(posted.worker, posted.peer);
  posted.access.endpoint = posted.worker * kWorkers + posted.peer;
  posted.access.epoch = one.epoch;
  one.one_sided.push_back(&posted);
}

/// Adds a bit of the signal's word to the operation. False: it has no more.
bool World::with_signal(Posted& posted, OpDesc& desc, unsigned signal) {
  WordState& state = workers_[posted.peer].signals[signal];
  RemoteRegion* const region = signal_region(end(posted.worker, posted.peer), signal);
  if (region == nullptr || state.bits.size() >= 62) return false;
  posted.signal = signal;
  posted.signal_bit = static_cast<int>(state.bits.size());
  state.bits.push_back(&posted);
  desc.signal = region;
  desc.signal_op = TW_SIGNAL_ADD;
  desc.signal_value = uint64_t{1} << posted.signal_bit;
  return true;
}

void World::put_or_get(const Op& op) {
  End& to = end(op.worker, op.peer);
  RemoteRegion* const remote = region(to, op.memory);
  if (remote == nullptr) return;
  Worker& target = workers_[op.peer];
  const uint64_t room = target.exports->memories[op.memory].length;
  const uint64_t offset = op.offset < room ? op.offset : 0;
  uint64_t size = std::min<uint64_t>(op.size, room - offset);
  Shape far(size, (op.flags & kFarLayout) != 0);
  if (far.span > room - offset) {
    size /= 2;
    far = Shape(size, (op.flags & kFarLayout) != 0);
  }
  Posted& posted = post(op);
  const bool put = op.what == What::put;
  posted.memory = op.memory;
  give_buffer(posted, op, size, put);
  enter_order(posted);
  uint64_t position = 0;
  for (const Shape::Piece& piece : far.pieces) {
    const uint64_t begin = offset + piece.offset;
    posted.ranges.push_back({begin, begin + piece.length, static_cast<int64_t>(position) - static_cast<int64_t>(begin)});
    position += piece.length;
  }
  target.used[op.memory] = true;
  OpDesc desc = local(posted, put ? Verb::put : Verb::get);
  desc.remote = remote;
  desc.remote_offset = offset;
  desc.remote_layout = far.layout;
  if (put) {
    for (const Range& one : posted.ranges) target.orders[op.memory].write(one.begin, one.end, posted.access, one.shift);
    if ((op.flags & kSignalled) != 0) with_signal(posted, desc, op.signal);
    if (desc.signal == nullptr) desc.flags &= ~uint32_t{TW_OP_AFTER_ALL};
  }
  const Status status = start(posted, desc);
  if (dead(op.worker)) {
    posted.over = true;
    return;
  }
  if (status == TW_AGAIN && (op.flags & kNoWait) != 0) {
    if (posted.signal_bit >= 0) target.signals[op.signal].bits.pop_back();
    for (const Range& one : posted.ranges) target.orders[op.memory].forget(one.begin, one.end, posted.access);
    to.one_sided.pop_back();
    return drop(posted);
  }
  this->posted(posted, status);
}

void World::signal(const Op& op) {
  Posted& posted = post(op);
  OpDesc desc = local(posted, Verb::signal);
  if (!with_signal(posted, desc, op.signal)) {
    posted.over = posted.ended = true;
    return;
  }
  enter_order(posted);
  this->posted(posted, workers_[op.worker].engine->start(desc, completion(posted)));
}

void World::atomic(const Op& op) {
  if (op.seed % 4 == 0) return replace(op);
  End& to = end(op.worker, op.peer);
  RemoteRegion* const remote = region(to, op.memory);
  const bool narrow = (op.flags & kNarrow) != 0;
  const unsigned word = (narrow ? 3 : 0) + op.tag;
  WordState& state = workers_[op.peer].words[op.memory][word];
  if (remote == nullptr || state.bits.size() >= (narrow ? 30u : 62u)) return;
  Posted& posted = post(op);
  if ((op.flags & kFetch) != 0) posted.flags &= ~uint32_t{kDetached};  // the value has to be read
  posted.memory = op.memory;
  posted.word = word;
  posted.word_bit = static_cast<int>(state.bits.size());
  state.bits.push_back(&posted);
  enter_order(posted);
  OpDesc desc = local(posted, Verb::atomic);
  desc.remote = remote;
  desc.remote_offset = workers_[op.peer].exports->memories[op.memory].length + (narrow ? 32u + 4u * op.tag : 8u * op.tag);
  desc.word = narrow ? 4 : 8;
  desc.length = desc.word;
  desc.atomic_op = TW_ATOMIC_ADD;
  desc.operand = uint64_t{1} << posted.word_bit;
  if ((op.flags & kFetch) != 0) desc.result = &posted.result;
  this->posted(posted, workers_[op.worker].engine->start(desc, completion(posted)));
}

void World::fence(const Op& op) {
  End& to = end(op.worker, op.peer);
  const Engine::Guard guard(*workers_[op.worker].engine);
  const Status status = fence_one_sided(*workers_[op.worker].engine, to.peer);
  if (status == TW_OK) {
    ++to.epoch;
  } else if (!to.broken) {
    wrong(std::string("a fence is refused: ") + status_text(status));
  }
}

void World::flush(const Op& op) {
  Op flush = op;
  if (op.what == What::flush_worker) flush.peer = kAnyone;
  Posted& posted = post(flush);
  this->posted(posted, workers_[op.worker].engine->start(local(posted, Verb::flush), completion(posted)));
}

// ------------------------------------------------------------------------------------------------ ends

bool World::any_released(unsigned worker) const {
  for (const bool released : workers_[worker].released) {
    if (released) return true;
  }
  return false;
}

bool World::may_have_failed(const Posted& posted) const {
  const bool failed = posted.over || (posted.ended && posted.status != TW_OK);
  // What covers all puts before it is not given when one of them failed.
  if ((posted.flags & kAfterAll) != 0 && any_released(posted.peer)) return true;
  return failed || ends_[posted.worker][posted.peer]->broken ||
         (posted.what != What::signal && workers_[posted.peer].released[posted.memory]);
}

void World::end_one_sided(Posted& posted, Status status) {
  if (posted.what == What::flush || posted.what == What::flush_worker) return end_flush(posted, status);
  bool released = posted.what != What::signal && workers_[posted.peer].released[posted.memory];
  if ((posted.flags & kAfterAll) != 0) released |= any_released(posted.peer);
  if (status != TW_OK) {
    if ((is_loss(status) && may_be_lost(posted, posted.peer)) || (status == TW_ERR_STALE && released)) return;
    return wrong(posted, std::string("it ended with: ") + status_text(status));
  }
  const bool remote = (posted.flags & kRemote) != 0;
  if (is_get(posted)) return end_get(posted);
  if (posted.what == What::atomic && (posted.flags & kFetch) != 0) {
    return posted.replaces != nullptr ? end_replace(posted) : end_atomic(posted);
  }
  if (!remote || may_have_failed(posted)) return;
  // What acknowledges a put's data does not acknowledge its signal.
  if (is_put(posted)) {
    make_data_sure(posted);
  } else {
    make_sure(posted);
  }
  evidence(posted);
}

void World::end_get(Posted& posted) {
  if (workers_[posted.peer].released[posted.memory] || end(posted.worker, posted.peer).broken) return;
  posted.data_sure = posted.sure = true;
  evidence(posted);
  std::vector<std::byte> packed;
  posted.buffer->pack(packed);
  std::vector<const Access*> shown;
  std::string why;
  for (const Range& one : posted.ranges) {
    const auto* bytes = packed.data() + static_cast<int64_t>(one.begin) + one.shift;
    Order& order = workers_[posted.peer].orders[posted.memory];
    if (!order.check(one.begin, one.end, bytes, &posted.access, posted.access.posted, ++clock_, &shown, &why)) {
      return wrong(posted, "it brings what it may not: " + why);
    }
  }
  if (!posted.buffer->untouched_but(posted.length)) return wrong(posted, "memory beside its bytes was written to");
  seen(shown);
}

void World::end_atomic(Posted& posted) {
  WordState& state = workers_[posted.peer].words[posted.memory][posted.word];
  if (workers_[posted.peer].released[posted.memory] || end(posted.worker, posted.peer).broken) return;
  posted.data_sure = true;
  evidence(posted);
  check_bits(state, posted.result, posted.word >= 3 ? 32 : 64, &posted, "the value that an atomic found");
  make_sure(posted);
}

void World::end_flush(Posted& posted, Status status) {
  const bool all = posted.what == What::flush_worker;
  bool broken = false, released = false;
  for (unsigned to = 0; to < program_.workers; ++to) {
    if (to == posted.worker || (!all && to != posted.peer)) continue;
    broken |= end(posted.worker, to).broken;
    for (const bool one : workers_[to].released) released |= one;
  }
  if (status != TW_OK) {
    if ((is_loss(status) && broken) || (status == TW_ERR_STALE && released)) return;
    return wrong(posted, std::string("it ended with: ") + status_text(status));
  }
  for (unsigned to = 0; to < program_.workers && failure_.empty(); ++to) {
    if (to == posted.worker || (!all && to != posted.peer)) continue;
    const std::vector<Posted*> before = end(posted.worker, to).one_sided;
    for (Posted* one : before) {
      if (one->access.posted < posted.access.posted) make_sure(*one);
    }
  }
}

// ------------------------------------------------------------------------------------------------ what follows from what was seen

void World::evidence(const Posted& posted) {
  const bool moves = posted.word_bit >= 0 || posted.signal_bit >= 0 || posted.replaces != nullptr || posted.length != 0;
  if (!moves) return;  // nothing of it can be seen
  End& one = end(posted.worker, posted.peer);
  while (one.settled < one.one_sided.size() && one.one_sided[one.settled]->sure) ++one.settled;
  for (size_t i = one.settled; i < one.one_sided.size() && failure_.empty(); ++i) {
    Posted& before = *one.one_sided[i];
    if (before.access.epoch >= posted.access.epoch) return;
    make_sure(before);
  }
}

void World::make_data_sure(Posted& posted) {
  if (posted.data_sure || !is_put(posted) || may_have_failed(posted)) return;
  posted.data_sure = true;
  Worker& target = workers_[posted.peer];
  std::vector<const Access*> shown;
  std::string why;
  for (const Range& one : posted.ranges) {
    Order& order = target.orders[posted.memory];
    order.sure(one.begin, one.end, posted.access, ++clock_);
    const std::byte* bytes = target.exports->memories[posted.memory].address() + one.begin;
    if (!order.check(one.begin, one.end, bytes, nullptr, clock_, clock_, &shown, &why)) {
      return wrong(posted, "its bytes must be at the target now: " + why);
    }
  }
  seen(shown);
}

void World::make_sure(Posted& posted) {
  if (posted.sure || may_have_failed(posted)) return;
  posted.sure = true;
  posted.sure_at = ++clock_;
  make_data_sure(posted);
  if (!failure_.empty()) return;
  if (posted.signal_bit >= 0) look_at_signals(posted.peer);
  if (posted.word_bit >= 0 || posted.replaces != nullptr) look_at_words(posted.peer, posted.memory);
  evidence(posted);
}

void World::seen(const std::vector<const Access*>& accesses) {
  for (const Access* one : accesses) {
    if (failure_.empty()) evidence(*by_id_[one->id]);
  }
}

/// Its signal was given: its data is there, and with TW_OP_AFTER_ALL that of all puts before it.
void World::signal_seen(Posted& posted) {
  if (end(posted.worker, posted.peer).broken || posted.over) return;
  if (is_put(posted) && posted.ended && posted.status == TW_ERR_STALE)
    return wrong(posted, "it failed, and its signal was given");
  make_data_sure(posted);
  if ((posted.flags & kAfterAll) != 0) {
    const std::vector<Posted*> before = end(posted.worker, posted.peer).one_sided;
    for (Posted* one : before) {
      if (one->access.posted < posted.access.posted && failure_.empty()) make_data_sure(*one);
    }
  }
  evidence(posted);
}

/// A word to which every operation adds a bit of its own: which ones may be in `value`?
void World::check_bits(WordState& state, uint64_t value, unsigned bits, const Posted* reader, const char* what) {
  uint64_t set = value - state.initial;
  if (bits == 32) set = static_cast<uint32_t>(set);
  const std::vector<Posted*> all = state.bits;
  if (all.size() < 64 && set >> all.size() != 0) return wrong(std::string(what) + " has bits that nobody added, or one twice");
  for (size_t i = 0; i < all.size() && failure_.empty(); ++i) {
    Posted& one = *all[i];
    const bool is = (set >> i & 1) != 0;
    const bool same = reader != nullptr && one.worker == reader->worker;
    if (is) {
      if (&one == reader) return wrong(one, "its own value is there before it");
      if (one.over && one.status == TW_AGAIN) return wrong(one, "it never began, and was applied");
      if (same && one.access.epoch > reader->access.epoch)
        return wrong(one, std::string("it comes behind a fence, and is in ") + what);
      if (one.signal_bit >= 0 && !one.sure) signal_seen(one);
      if (one.word_bit >= 0 && !one.sure) {
        one.data_sure = true;
        evidence(one);
      }
      continue;
    }
    if (&one == reader || may_have_failed(one)) continue;
    const bool before = reader == nullptr ? one.sure : one.sure && one.sure_at < reader->access.posted;
    if (before || (same && one.access.epoch < reader->access.epoch))
      return wrong(one, std::string("it must be applied, and is not in ") + what);
  }
}

// ------------------------------------------------------------------------------------------------ looks

void World::look(unsigned index, unsigned memory) {
  Worker& worker = workers_[index];
  if (worker.released[memory]) return;
  const Exports::Memory& mine = worker.exports->memories[memory];
  std::vector<const Access*> shown;
  std::string why;
  ++clock_;
  if (!worker.orders[memory].check(0, mine.length, mine.address(), nullptr, clock_, clock_, &shown, &why)) {
    return wrong("memory " + std::to_string(memory) + " of worker " + std::to_string(index) + " shows what it may not: " + why);
  }
  seen(shown);
}

void World::look_at_signals(unsigned index) {
  Worker& worker = workers_[index];
  for (unsigned s = 0; s < kSignals && failure_.empty(); ++s) {
    check_bits(worker.signals[s], signal_read(*worker.exports->signals[s]), 64, nullptr, "a signal's word");
  }
}

void World::look_at_words(unsigned index, unsigned memory) {
  Worker& worker = workers_[index];
  for (unsigned w = 0; w < 6 && failure_.empty() && !worker.released[memory]; ++w) {
    WordState& state = worker.words[memory][w];
    if (state.bits.empty()) continue;
    const std::byte* at = worker.exports->memories[memory].words() + (w >= 3 ? 32 + 4 * (w - 3) : 8 * w);
    uint64_t value = 0;
    std::memcpy(&value, at, w >= 3 ? 4 : 8);
    check_bits(state, value, w >= 3 ? 32 : 64, nullptr, "a word of atomics");
  }
  for (unsigned r = 0; r < 2 && failure_.empty() && !worker.released[memory]; ++r) {
    ReplacedWord& word = worker.replaced[memory][r];
    if (word.all.empty()) continue;
    uint64_t value = 0;
    std::memcpy(&value, worker.exports->memories[memory].words() + (r == 0 ? kReplaced : kReplacedNarrow), r == 0 ? 8 : 4);
    check_replaced(word, value, nullptr, "a word that is replaced");
  }
}

// ------------------------------------------------------------------------------------------------ releases

void World::release_region_of(const Op& op) {
  End& one = end(op.worker, op.peer);
  if (one.regions[op.memory] == nullptr) return;
  one.handle_gone[op.memory] = true;
  const Engine::Guard guard(*workers_[op.worker].engine);
  release_region(std::exchange(one.regions[op.memory], nullptr));
}

void World::release_memory_of(const Op& op) {
  Worker& worker = workers_[op.worker];
  if (worker.released[op.memory]) return;
  if (worker.used[op.memory]) look(op.worker, op.memory);
  if (!failure_.empty()) return;
  worker.released[op.memory] = true;
  Exports::Memory& memory = worker.exports->memories[op.memory];
  const size_t length = memory.length + kWords;
  const Status status = worker.host->release(memory);
  if (status == TW_ERR_BUSY && op.memory == 3) return;  // a device is at work on it, or on a peer's import
  if (status != TW_OK) return wrong(std::string("its owner cannot release memory: ") + status_text(status));
  if (memory.plain != nullptr) std::memset(memory.plain.get(), 0xdb, length);  // what the owner keeps there next
}

}  // namespace thalweg::model
