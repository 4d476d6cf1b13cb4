// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedule_cache.hpp"

#include <bit>
#include <utility>

#include "base/cache_counts.hpp"
#include "collectives/explain.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kRootedGuess = 16u << 10;  // bytes of a block where only the root knows the counts

/// For the choice: the same on all ranks.
uint64_t shared_count(const Collective& what) { return what.counts_at_root ? kRootedGuess / what.element : what.count; }

uint16_t bits_of(const Collective& what) {
  return static_cast<uint16_t>(what.commutative | what.repeatable << 1 | what.has_counts() << 2 | what.counts_at_root << 3 |
                               what.direct << 4 | (what.kernel_room != 0) << 5 | what.symmetric << 6 | what.truths << 7 |
                               (what.line_room != 0) << 8 | what.rare << 9);
}

}  // namespace

/// By sizes that are powers of two, for any root, and as if nothing were in place: that may differ between ranks.
const Algorithm* ScheduleCache::choose_for(const Collective& what) {
  Collective like = what;
  like.in_place = false;
  like.root = 0;
  like.count = std::bit_ceil(shared_count(what));
  if (like.chunk != 0) like.chunk = std::bit_ceil(like.chunk);  // a plan's follows the count
  if (like.repeatable && !like.counts_at_root)  // by the longest: not by the counts of whichever call came first
    like.send_counts = like.send_offsets = like.recv_counts = like.recv_offsets = nullptr;
  const Choice choice{like.kind, like.count, like.element, like.root, bits_of(like), like.chunk};
  if (choices_.size() >= kMostChoices) choices_.clear();
  const Algorithm*& chosen = choices_[choice];
  if (chosen == nullptr) chosen = choose(like, costs_);
  if (chosen != nullptr && chosen->applies(what)) return chosen;
  like.count = shared_count(what);
  like.root = what.root;
  return choose(like, costs_);
}

Status ScheduleCache::pick(const Collective& what, const char* name, const Algorithm** out) {
  if (name != nullptr) return find_algorithm(what, name, out);
  *out = choose_for(what);
  return TW_OK;
}

Status ScheduleCache::choose_kernels(const Collective& what, const char* name, Kernels* out) {
  const Algorithm* algorithm = nullptr;
  if (Status s = pick(what, name, &algorithm); is_error(s)) return s;
  *out = algorithm->kernels;
  return TW_OK;
}

Status ScheduleCache::explain(const Collective& what, const char* name, std::string* text) {
  const Algorithm* algorithm = nullptr;
  if (Status s = pick(what, name, &algorithm); is_error(s)) return s;
  *text += candidates_text(what, costs_, algorithm);
  *text += std::string("chosen: ") + algorithm->name;
  if (algorithm->write == nullptr) {
    *text += algorithm->kernels != Kernels::none ? ", one kernel on each device\n"
                                                 : ", over memory that all ranks map, without messages\n";
    return TW_OK;
  }
  Schedule schedule;
  algorithm->write(what, &schedule);
  *text += "; rank " + std::to_string(what.rank) + " does:\n" + schedule_text(schedule);
  return TW_OK;
}

Status ScheduleCache::find(const Collective& what, const char* name, std::shared_ptr<const PreparedSchedule>* out) {
  const Algorithm* algorithm = nullptr;
  if (name == nullptr && what.direct) {
    algorithm = choose_for(what);
    if (algorithm->write == nullptr) return TW_OK;
  }
  const bool kept = !what.has_counts();
  const Key key{
      {what.kind, what.count, what.element, what.root, bits_of(what), what.chunk}, what.in_place, name != nullptr ? name : ""};
  if (kept) {
    if (const auto found = schedules_.find(key); CacheCounts::looked(Cache::schedules, found != schedules_.end())) {
      *out = found->second;
      return TW_OK;
    }
  }
  if (algorithm == nullptr) {
    if (Status s = pick(what, name, &algorithm); is_error(s)) return s;
  }
  if (algorithm->write == nullptr) return TW_OK;
  Schedule schedule;
  algorithm->write(what, &schedule);
  auto made = std::make_shared<const PreparedSchedule>(std::move(schedule));
  if (Status s = made->check(); is_error(s)) return s;
  if (kept) {
    if (schedules_.size() >= kMost) schedules_.clear();
    schedules_.emplace(key, made);
  }
  *out = std::move(made);
  return TW_OK;
}

}  // namespace thalweg::impl
