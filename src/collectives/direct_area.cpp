// SPDX-License-Identifier: Apache-2.0
// Steps and waits. How the area is made is in direct_setup.cpp.
#include "collectives/direct_area.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "collectives/call.hpp"
#include "collectives/called_text.hpp"
#include "collectives/collectives.hpp"
#include "core/c_checks.hpp"
#include "groups/parts.hpp"
#include "transports/shm/single_copy.hpp"

namespace thalweg::impl {
namespace {

constexpr unsigned kSpins = 4000;        // polls, some microseconds, before the worker is progressed
constexpr unsigned kEager = 2000;        // polls without a pause: in a guest of a hypervisor one may take a microsecond
constexpr unsigned kCrowdedSpins = 8;    // polls before the core goes to another rank
constexpr unsigned kLongSpins = 16'000;  // polls where the wait would sleep behind them: longer than another rank sleeps
constexpr unsigned kYields = 200;        // of those before the wait may sleep
constexpr unsigned kYieldsToProgress = 16;
constexpr uint64_t kLookNs = 5 * kMillisecond;  // between two looks for losses
constexpr uint64_t kNapNs = 50'000;             // a peer's store wakes no thread
constexpr uint32_t kProgressEvery = 16;         // collectives that never wait progress the worker, too

}  // namespace

/// A worker of one thread spares the locked instruction.
bool DirectArea::enter() {
  if (worker_.multi) return !busy_.exchange(true, std::memory_order_acquire);
  if (busy_.load(std::memory_order_relaxed)) return false;
  busy_.store(true, std::memory_order_relaxed);
  return true;
}

Status DirectArea::begin(uint64_t called, const char* name, uint64_t limit_ns) {
  if (!enter())
    return impl::fail(TW_ERR_BUSY,
                      "%s: a blocking collective of this group is under way here: in another thread, or it has called the "
                      "function that calls this one",
                      name);
  called_ = called ^ agreed_;
  goes_on_by_ = false;
  name_ = name;
  limit_ns_ = limit_ns;
  deadline_ = 0;
  if (++calls_ % kProgressEvery == 0) worker_.progress();
  return TW_OK;
}

void DirectArea::end() {
  prefetch_to_store(&mine_->lines[(published_ + 1) % kLines]);
  worker_.progressed();
  busy_.store(false, std::memory_order_release);
}

void DirectArea::go_by(bool crowded, bool all_readable) {
  crowded_ = crowded;
  all_readable_ = all_readable;
  const CollectiveCosts& costs = owner_.schedules().costs();
  std::vector<uint64_t> found = {crowded, all_readable, owner_.ranks_per_host()};
  for (const double one : {costs.message_ns, costs.byte_ns, costs.serial_byte_ns, costs.read_ns, costs.read_byte_ns,
                           costs.host_message_ns, costs.host_byte_ns})
    found.push_back(std::bit_cast<uint64_t>(one));
  agreed_ = checksum(found);
  mine_->agreed.store(agreed_, std::memory_order_relaxed);
}

void DirectArea::go_on_by(uint64_t value) {
  called_ = mixed(called_, value);
  goes_on_by_ = true;
}

Status DirectArea::await_all(uint64_t step) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (Status s = await(rank, step); is_error(s)) return s;
  }
  return TW_OK;
}

/// The newest line says more than the one that is needed, so that most calls need not look.
Status DirectArea::await_passed(uint64_t step) {
  uint64_t least = UINT64_MAX;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    RankArea& area = ranks_[rank];
    if (area.passed < step)
      area.passed = std::max(area.passed, area.segment->lines[published_ % kLines].step.load(std::memory_order_acquire));
    if (area.passed < step) {
      if (Status s = await_new(rank, step, true); is_error(s)) return s;
    }
    least = std::min(least, area.passed);
  }
  passed_ = least;
  return TW_OK;
}

Status DirectArea::await_new(uint32_t rank, uint64_t step, bool later) {
  const Line& line = ranks_[rank].segment->lines[step % kLines];
  const auto there = [&] {
    const uint64_t found = line.step.load(std::memory_order_acquire);
    return found == step || (later && found > step);
  };
  // To another rank, which yields it back; a thread that computes would keep the core for a time slice at every step.
  const bool busy = Crowd::of_process().there(), yields = crowded_ || (busy && !Crowd::of_process().costs_slice());
  const unsigned spins = yields ? kCrowdedSpins : busy ? kLongSpins : kSpins;
  for (unsigned i = 0; i < spins; ++i) {
    if (there()) return arrived(rank, step, later);
    if (i >= kEager) cpu_pause();
  }
  for (unsigned i = 0; yields && i < kYields; ++i) {
    Crowd::of_process().yielded(timed_yield());
    if (there()) return arrived(rank, step, later);
    if (i % kYieldsToProgress == kYieldsToProgress - 1) worker_.progress();
  }
  return await_long(rank, step, later);
}

Status DirectArea::arrived(uint32_t rank, uint64_t step, bool later) {
  RankArea& area = ranks_[rank];
  area.passed = std::max(area.passed, step);
  if (later) return TW_OK;
  const uint64_t called = const_cast<const volatile Line&>(area.segment->lines[step % kLines]).called;
  area.seen = step;
  const uint64_t here = called_at_[step % kLines];
  if (called == here) [[likely]]
    return TW_OK;
  if (ranks_[rank].segment->agreed.load(std::memory_order_relaxed) != agreed_)
    return fail(TW_ERR_PROTOCOL, kNoRank,
                std::string(name_) + ": rank " + std::to_string(rank) +
                    " was told other things than this rank when the group's shared memory was set up (costs, cores, whose "
                    "memory can be read): a rank has told others different things");
  if (goes_on_by_)
    return fail(
        TW_ERR_PROTOCOL, kNoRank,
        std::string(name_) + ": rank " + std::to_string(rank) +
            " goes on by other lengths or ways than this rank, although all have read the same: a rank has changed what "
            "it had published");
  return fail(TW_ERR_INVALID, rank, "rank " + std::to_string(rank) + ": " + called_otherwise(called ^ agreed_, here ^ agreed_));
}

Status DirectArea::await_long(uint32_t rank, uint64_t step, bool later) {
  const Line& line = ranks_[rank].segment->lines[step % kLines];
  const auto over = [&] {
    return line.step.load(std::memory_order_acquire) >= step || stopped_.load(std::memory_order_relaxed);
  };
  for (;;) {
    worker_.wait_until(over, kLookNs, kNapNs);
    const uint64_t found = line.step.load(std::memory_order_acquire);
    if (found == step || (later && found > step)) return arrived(rank, step, later);
    if (found > step)
      return fail(TW_ERR_PROTOCOL, rank, "rank " + std::to_string(rank) + ": it published a step that it cannot have come to");
    if (Status s = look_after(rank, step); is_error(s)) return s;
  }
}

uint64_t DirectArea::clock() {
  const uint64_t now = monotonic_ns();
  if (deadline_ == 0) deadline_ = limit_ns_ >= kForever - now ? kForever : now + limit_ns_;
  return now;
}

Status DirectArea::failure(Status interrupt) {
  if (!owner_.failed() && is_error(interrupt)) owner_.fail_interrupted(interrupt, name_);
  return owner_.failed() ? owner_.failure() : Status{TW_OK};
}

Status DirectArea::look_around() {
  worker_.progress();
  const uint64_t now = clock();
  const Status interrupt = interrupted();  // not under the lock: an interpreter's may be waited for
  const Engine::Guard guard(owner_.engine());
  if (Status s = failure(interrupt); is_error(s)) return s;
  if (now < deadline_) return TW_OK;
  owner_.fail(TW_ERR_TIMED_OUT, kNoRank,
              std::string(name_) + ": it is not over within " + std::to_string(limit_ns_ / kMillisecond) + " ms");
  return owner_.failure();
}

Status DirectArea::look_after(uint32_t rank, uint64_t step) {
  const uint64_t now = clock();
  const Status interrupt = interrupted();  // not under the lock
  const Engine::Guard guard(owner_.engine());
  if (Status s = failure(interrupt); is_error(s)) return s;
  const auto published = [&] {
    return ranks_[rank].segment->lines[step % kLines].step.load(std::memory_order_acquire) >= step;
  };
  tw_endpoint* endpoint = nullptr;
  Status state = owner_.group().endpoint(rank, &endpoint);
  std::string why = is_error(state) ? last_error() : "";
  if (!is_error(state) && endpoint != nullptr && is_error(endpoint->peer->state)) {
    state = endpoint->peer->state;
    why = "rank " + std::to_string(rank) + ": " + endpoint->peer->why;
  }
  if (is_error(state)) {
    if (published()) return TW_OK;  // its last act
    owner_.fail(status_of_loss(state), rank, why);
    return owner_.failure();
  }
  if (now < deadline_ || published()) return TW_OK;
  uint32_t only = kNoRank;
  const std::string ranks = missing(step, &only);
  owner_.fail(
      TW_ERR_TIMED_OUT, only,
      std::string(name_) + ": nothing came from " + ranks + " within " + std::to_string(limit_ns_ / kMillisecond) + " ms");
  return owner_.failure();
}

Status DirectArea::hear() {
  worker_.progress();
  const Engine::Guard guard(owner_.engine());
  return owner_.failed() ? owner_.failure() : Status{TW_OK};
}

Status DirectArea::read(uint32_t rank, std::byte* to, uint64_t from, uint64_t length) {
  constexpr uint64_t kPart = 4u << 20;  // bytes under the engine's lock
  for (uint64_t at = 0; at < length;) {
    worker_.progress();  // hears of a failure, behind which the others take their buffers back
    const Engine::Guard guard(owner_.engine());
    if (owner_.failed()) return owner_.failure();
    const int64_t moved = read_part(rank, to + at, from + at, std::min(kPart, length - at));
    if (moved <= 0) {
      const std::string why = "rank " + std::to_string(rank) + ": ";
      if (moved == 0 || moved == TW_ERR_PEER_LOST) {
        owner_.fail(TW_ERR_PEER_LOST, rank, why + "its process is gone, or has ended the connection");
      } else {
        owner_.fail(static_cast<Status>(moved), rank, why + "its buffer cannot be read: " + last_error());
      }
      return owner_.failure();
    }
    at += static_cast<uint64_t>(moved);
  }
  return TW_OK;
}

/// Bytes, or an error.
int64_t DirectArea::read_part(uint32_t rank, std::byte* to, uint64_t from, uint64_t length) {
  tw_endpoint* endpoint = nullptr;
  if (Status s = owner_.group().endpoint(rank, &endpoint); is_error(s)) return status_of_loss(s);
  Link* const link = endpoint != nullptr ? endpoint->peer->link : nullptr;
  if (link == nullptr || !link->port->enter_peer(*link)) return TW_ERR_PEER_LOST;
  const iovec here{to, length}, there{reinterpret_cast<void*>(from), length};
  // Also in one process by the kernel: the address may be a lie of any rank that maps the segment, or of a buffer that is gone.
  const int64_t moved = same_process(*link) ? shm::copy_between(shm::CopyDirection::from_peer, getpid(), &here, 1, &there, 1)
                                            : link->port->read_peer(*link, &here, 1, &there, 1);
  link->port->leave_peer(*link);
  return moved;
}

std::string DirectArea::missing(uint64_t step, uint32_t* rank) const {
  std::string text;
  uint32_t found = 0;
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].seen >= step || ranks_[i].segment->lines[step % kLines].step.load(std::memory_order_acquire) >= step)
      continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(i);
    *rank = found++ == 0 ? i : kNoRank;
  }
  return text;
}

Status DirectArea::fail(Status status, uint32_t rank, const std::string& why) {
  const Engine::Guard guard(owner_.engine());
  owner_.fail(status, rank, why);
  return owner_.failure();
}

}  // namespace thalweg::impl
