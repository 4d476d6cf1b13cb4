// SPDX-License-Identifier: Apache-2.0
// Agreement of the ranks that are left of a group.
//
// Each proposes itself, and the ranks that it knows to be lost. In rounds, every rank sends all that it knows to all ranks it
// has not seen fail, and waits for theirs, or for the end of their connection. A rank that misses the same ranks in two rounds
// after each other knows all that anyone left knows: it decides, tells all others so, and is done. One that is told a decision
// takes it over, and tells it, too. (Early deciding FloodSet; a rank that fails while it tells makes the others miss one more,
// so they go another round.) The new group: those who have proposed themselves, and whom no one knows to be lost.
#include <algorithm>
#include <cstring>

#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "groups/mailbox.hpp"
#include "groups/parts.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kDecision = first_step(1) - 1;  // its step; before it rounds

class Shrink {
 public:
  explicit Shrink(tw_group& group)
      : group_(group),
        letters_(group.worker, group.id, kShrinks + group.made),
        here_(group.size),
        lost_(group.size),
        silent_(group.size) {}
  Status run(std::unique_ptr<tw_group>* out);

 private:
  using Set = std::vector<uint8_t>;  // by rank: 0 or 1
  void tell(uint64_t step);
  Status hear(uint32_t from, uint64_t round);
  void add(const Letter& letter);
  Status conclude(std::unique_ptr<tw_group>* out);

  tw_group& group_;
  const LetterCall letters_;
  const uint64_t step_ = letters_.first_step();
  const Deadline deadline_{group_.timeout_ns};
  Set here_, lost_;  // known: has proposed itself; some rank has lost it
  Set silent_;       // its connection with this rank is over
  bool decided_ = false;
};

/// Whether it arrives shows by what comes back.
void Shrink::tell(uint64_t step) {
  Letter letter;
  std::vector<tw_endpoint*> told;
  letter.bytes.resize(2 * size_t{group_.size});
  std::memcpy(letter.bytes.data(), here_.data(), group_.size);
  std::memcpy(letter.bytes.data() + group_.size, lost_.data(), group_.size);
  for (uint32_t to = 0; to < group_.size; ++to) {
    tw_endpoint* endpoint = nullptr;
    if (to == group_.rank || silent_[to] != 0 || is_error(group_.endpoint(to, &endpoint))) continue;
    if (!is_error(Mailbox::send(*endpoint, group_.id, step, letter))) told.push_back(endpoint);
  }
  if (step == step_ + kDecision) Mailbox::deliver(group_.worker, told, deadline_.left_ns());
}

void Shrink::add(const Letter& letter) {
  if (letter.bytes.size() != 2 * size_t{group_.size}) return;
  for (uint32_t i = 0; i < group_.size; ++i) {
    here_[i] |= letter.bytes[i] != std::byte{0};
    lost_[i] |= letter.bytes[group_.size + i] != std::byte{0};
  }
}

/// A decision replaces what this rank knows.
Status Shrink::hear(uint32_t from, uint64_t round) {
  tw_endpoint* endpoint = nullptr;
  const Status made = group_.endpoint(from, &endpoint);
  if (endpoint == nullptr) return made;
  const uint64_t sender = group_.peers->sender(group_.member(from));
  Mailbox& box = Mailbox::of(group_.worker);
  Letter letter;
  Status ended = TW_OK;
  const auto take = [&] {
    decided_ = box.take(group_.worker, sender, group_.id, step_ + kDecision, &letter) == TW_OK;
    return decided_ ? Status{TW_OK} : box.take(group_.worker, sender, group_.id, step_ + round, &letter);
  };
  Status came = TW_IN_PROGRESS;
  const Status waited = group_.worker.wait_until(
      [&] {
        if (came == TW_IN_PROGRESS) came = take();  // it may be asked again after a yes
        if (came != TW_IN_PROGRESS) return true;
        ended = tw_endpoint_state(endpoint);
        if (!is_error(ended)) ended = interrupted();
        if (is_error(ended)) came = take();
        return is_error(ended);
      },
      deadline_.left_ns());
  if (came == TW_OK) {
    if (decided_) here_.assign(group_.size, 0), lost_ = here_;
    add(letter);
    return TW_OK;
  }
  if (ended == TW_ERR_CANCELED) return ended;
  if (waited == TW_ERR_BUSY) return waited;
  if (is_error(came)) {
    const std::string why = last_error();
    if (!is_error(tw_endpoint_state(endpoint)))
      return fail(came, "rank %u: %s", from, why.c_str());  // it is there, and not silent
  }
  if (!is_error(ended) && came == TW_IN_PROGRESS)
    return fail(waited, "rank %u does not shrink the group: all ranks that are left call it", from);
  silent_[from] = 1;
  return TW_OK;
}

Status Shrink::conclude(std::unique_ptr<tw_group>* out) {
  std::vector<uint32_t> left;
  uint64_t salt = kShrinks;
  for (uint32_t i = 0; i < group_.size; ++i) {
    if (here_[i] == 0 || lost_[i] != 0) continue;
    left.push_back(i);
    salt = mixed(salt, i);
  }
  if (std::find(left.begin(), left.end(), group_.rank) != left.end()) return make_part(group_, std::move(left), salt, out);
  return fail(TW_ERR_PEER_LOST, "another rank has lost this one (rank %u): it is in no group of those that are left",
              group_.rank);
}

Status Shrink::run(std::unique_ptr<tw_group>* out) {
  here_[group_.rank] = 1;
  for (uint32_t i = 0; i < group_.size; ++i) lost_[i] = silent_[i] = i != group_.rank && group_.is_lost(i);
  for (uint64_t round = 0; round < kDecision && !decided_; ++round) {
    const Set before = silent_;
    tell(step_ + round);
    for (uint32_t from = 0; from < group_.size && !decided_; ++from) {
      if (from == group_.rank || silent_[from] != 0) continue;
      if (Status s = hear(from, round); is_error(s)) return s;
    }
    decided_ = decided_ || (round != 0 && silent_ == before);
  }
  tell(step_ + kDecision);
  return conclude(out);
}

}  // namespace

Status shrink(tw_group& group, std::unique_ptr<tw_group>* out) { return Shrink(group).run(out); }

}  // namespace thalweg::impl
