// SPDX-License-Identifier: Apache-2.0
// The host's side of the persistent kernel: the ring, and whether host or kernel owns it.
//
//   none      no kernel: the host owns all of it
//   launched  ... until every block has stored `started`
//   running   commands are posted. One that comes when the kernel is about to leave may stay undone
//   ending    it set `leaving`, or got `end`: nothing is posted. When every block has stored `gone`, what is not done
//             is returned, and the next generation begins after it
#include "devices/persistent.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"

namespace thalweg::impl {
namespace {

using persistent::Command;
using persistent::kSlots;
using persistent::Shared;

static_assert(PersistentOptions::kMostBlocks == persistent::kMostBlocks);
constexpr uint64_t kLives = 16;             // x idle_ns: the longest life of one kernel
constexpr uint64_t kBlockBytes = 16 << 10;  // less for each block is not worth its answer

struct List {
  std::mutex mutex;
  std::vector<std::weak_ptr<PersistentCopier>> persistents;
  std::atomic<unsigned> count{0};
};
List& list() {
  static auto* const all = new List;  // devices are used until exit
  return *all;
}

uint64_t load(const device::u64* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

std::shared_ptr<PersistentCopier> find(List& all, const Device& device) {
  for (const std::weak_ptr<PersistentCopier>& one : all.persistents) {
    if (std::shared_ptr<PersistentCopier> found = one.lock(); found != nullptr && &found->device() == &device) return found;
  }
  return nullptr;
}

}  // namespace

Status PersistentCopier::open(Device& device, const PersistentOptions& options, std::shared_ptr<PersistentCopier>* out) {
  List& all = list();
  {
    const std::lock_guard lock(all.mutex);
    *out = find(all, device);
  }
  if (*out != nullptr) return TW_OK;
  std::shared_ptr<PersistentCopier> made(new PersistentCopier(device, options));
  if (Status s = made->make(); is_error(s)) return s;
  const std::lock_guard lock(all.mutex);
  *out = find(all, device);  // another thread's, which was faster; `made` ends after the lock
  if (*out != nullptr) return TW_OK;
  std::erase_if(all.persistents, [](const std::weak_ptr<PersistentCopier>& one) { return one.expired(); });
  all.persistents.push_back(made);
  all.count.store(static_cast<unsigned>(all.persistents.size()), std::memory_order_release);
  *out = std::move(made);
  return TW_OK;
}

Status PersistentCopier::make() {
  if (options_.blocks == 0 || options_.blocks > persistent::kMostBlocks || options_.idle_ns < PersistentOptions::kShortest ||
      options_.idle_ns > PersistentOptions::kLongest) {
    return fail(TW_ERR_INVALID, "a persistent kernel has 1 to %u blocks and ends when idle for 10 us to 100 ms",
                persistent::kMostBlocks);
  }
  if (Status s = device_.load_kernels(); is_error(s)) return s;
  if (Status s = device_.make_queue(&queue_, QueueUse::persistent); is_error(s)) return s;
  uint64_t address = 0;
  if (Status s = device_.allocate(MemoryKind::pinned, sizeof(Shared), &address); is_error(s)) return s;
  shared_ = reinterpret_cast<Shared*>(address);
  std::memset(shared_, 0, sizeof *shared_);
  return TW_OK;
}

/// What the kernel may still access is not freed: one that has not started yet for want of room would use it.
PersistentCopier::~PersistentCopier() {
  constexpr uint64_t kPatience = 2 * kSecond;
  if (shared_ == nullptr) return;
  const Deadline limit(kPatience);
  bool over = state_ == State::none;
  {
    const std::lock_guard lock(mutex_);
    tell_to_end();
  }
  while (!over && !limit.passed()) {
    over = all(shared_->gone) || queue_->query() != TW_IN_PROGRESS;
    sched_yield();
  }
  queue_.reset();
  if (over) {
    device_.free(reinterpret_cast<uintptr_t>(shared_));
  } else {
    warn_once("persistent.stuck", "a persistent copy kernel did not end; its pinned memory is kept until exit");
  }
}

/// Have all blocks of this generation stored it?
bool PersistentCopier::all(const device::u64* words) const {
  for (unsigned b = 0; b < options_.blocks; ++b) {
    if (load(&words[b]) != generation_.load(std::memory_order_relaxed)) return false;
  }
  return true;
}

bool PersistentCopier::done(uint64_t position, unsigned blocks) const {
  for (unsigned b = 0; b < blocks; ++b) {
    if (load(&shared_->done[b]) <= position) return false;
  }
  return true;
}

/// The first position that not all blocks have passed.
uint64_t PersistentCopier::slowest() const {
  uint64_t position = head_;
  for (unsigned b = 0; b < options_.blocks; ++b) position = std::min(position, load(&shared_->done[b]));
  return std::max(position, first_);
}

/// Release: with what the host wrote to the bytes before. The words may show in any order.
void PersistentCopier::post(const Command& command) {
  device::u64* const words = shared_->slots[head_ % kSlots].words;
  const uint32_t tag = persistent::tag_of(head_++);
  for (unsigned i = 0; i < persistent::kWords; ++i)
    __atomic_store_n(&words[i], persistent::word_of(command, i, tag), __ATOMIC_RELEASE);
}

void PersistentCopier::launch() {
  const uint64_t next = generation_.load(std::memory_order_relaxed) + 1;
  first_ = head_;
  told_ = false;
  const PersistentKernel kernel{
      reinterpret_cast<uintptr_t>(shared_), next, first_, options_.idle_ns, kLives * options_.idle_ns, options_.blocks};
  if (const Status status = queue_->launch(kernel); is_error(status)) {
    broken_ = status;
    warn_once("persistent",
              std::string("small copies go by engines, as the persistent kernel cannot be launched: ") + last_error());
    return;
  }
  generation_.store(next, std::memory_order_relaxed);
  state_ = State::launched;
}

/// Every block is gone: what it has not done stays undone.
void PersistentCopier::take_back() {
  for (uint64_t position = slowest(); position < head_; ++position) {
    Taken& taken = taken_[position % kSlots];
    if (taken.ticket != nullptr && !done(position, taken.blocks)) taken.ticket->returned.store(true, std::memory_order_release);
    taken.ticket = nullptr;
  }
  state_ = State::none;
}

/// What the kernel has stored since the last poll.
void PersistentCopier::catch_up() {
  if (is_error(broken_)) return;
  if (state_ == State::launched && all(shared_->started)) state_ = State::running;
  if (state_ == State::running && (told_ || load(&shared_->leaving) == generation_.load(std::memory_order_relaxed)))
    state_ = State::ending;
  if ((state_ == State::ending || told_) && state_ != State::none && all(shared_->gone)) take_back();
}

/// Can a command be posted? Starts what has to be started for a later one.
bool PersistentCopier::ready() {
  catch_up();
  if (state_ == State::running) return true;
  if (state_ != State::none || pauses_ != 0) return false;
  const uint64_t now = monotonic_ns();
  if (now - std::exchange(asked_at_, now) < options_.idle_ns) launch();
  return false;
}

Status PersistentCopier::copy(uint64_t to, uint64_t from, uint64_t length, Ticket* ticket) {
  const std::lock_guard lock(mutex_);
  if (is_error(broken_) || length == 0 || length > persistent::kLongest || !ready()) return TW_AGAIN;
  if (head_ - slowest() >= kSlots - 1) return TW_AGAIN;  // one slot is kept for the command to end
  const uint64_t worth = (length + kBlockBytes - 1) / kBlockBytes;
  ticket->position = head_;
  ticket->blocks = static_cast<unsigned>(std::min<uint64_t>(worth, options_.blocks));
  ticket->returned.store(false, std::memory_order_relaxed);
  taken_[head_ % kSlots] = {ticket, ticket->blocks};
  post({to, from, static_cast<uint32_t>(length), ticket->blocks});
  ++taken_count_;
  return TW_OK;
}

uint64_t PersistentCopier::taken() {
  const std::lock_guard lock(mutex_);
  return taken_count_;
}

/// What a later generation counts is ignored: it was launched after the return.
Status PersistentCopier::poll(Ticket& ticket) {
  const bool here = done(ticket.position, ticket.blocks);
  if (ticket.returned.load(std::memory_order_acquire)) return TW_AGAIN;
  if (here) return TW_OK;
  if (load(&shared_->leaving) == generation_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex_);
    catch_up();
  }
  return TW_IN_PROGRESS;
}

void PersistentCopier::forget(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  Taken& taken = taken_[ticket.position % kSlots];
  if (taken.ticket == &ticket) taken.ticket = nullptr;
}

Status PersistentCopier::ask() {
  const std::lock_guard lock(mutex_);
  if (is_error(broken_)) return broken_;
  const Status status = queue_->query();
  if (!is_error(status)) return TW_OK;
  return broken_ = status;
}

/// At most one such command for a kernel; without room for it, the kernel has enough to do and ends when it is idle.
void PersistentCopier::tell_to_end() {
  if (told_ || state_ == State::none || head_ - slowest() >= kSlots) return;
  told_ = true;
  taken_[head_ % kSlots] = {};
  post({});
}

void PersistentCopier::pause() {
  const std::lock_guard lock(mutex_);
  ++pauses_;
  tell_to_end();
}

PersistentPause::PersistentPause() {
  List& all = list();
  if (all.count.load(std::memory_order_acquire) == 0) return;
  {
    const std::lock_guard lock(all.mutex);
    for (const std::weak_ptr<PersistentCopier>& one : all.persistents) {
      if (std::shared_ptr<PersistentCopier> persistent = one.lock(); persistent != nullptr)
        held_.push_back(std::move(persistent));
    }
  }
  for (const auto& one : held_) one->pause();
}

PersistentPause::~PersistentPause() {
  for (const auto& one : held_) {
    const std::lock_guard lock(one->mutex_);
    --one->pauses_;
  }
}

}  // namespace thalweg::impl
