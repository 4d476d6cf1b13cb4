// SPDX-License-Identifier: Apache-2.0
#include "plans/wait_rows.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "plans/queue.hpp"

namespace thalweg::impl {
namespace {

/// Of the pinned words: how far the queue is; what the bar is set from, and owner words; what looks found; what lets them go.
enum Word : size_t { kBegun, kEnded, kUp, kDown, kShutOwners, kFound = kShutOwners + kMostBlocks };
constexpr size_t kGiven = kFound + WaitsAhead::kMostSteps, kWords = kGiven + WaitsAhead::kMostSteps;
constexpr uint64_t kAbove = uint64_t{1} << 62;  // every row's number
constexpr uint64_t kAgainNs = 10'000'000;       // it should have gone through

static_assert(2 * WaitsAhead::kMostSteps + 3 <= kMostWordOps);

uint64_t at(const uint64_t* word) { return reinterpret_cast<uint64_t>(word); }
uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
bool reached(uint64_t word, uint64_t value) { return static_cast<int64_t>(word - value) >= 0; }

}  // namespace

bool WaitRows::ended_badly(const PlanRuns& plan) { return load(plan.failure_.abort_word()) != 0 || plan.failure_.recorded(); }

Status WaitRows::open() {
  uint64_t pinned = 0;
  if (Status s = executor_.pinned().allocate(kWords * sizeof(uint64_t), &pinned); is_error(s)) return s;
  words_ = reinterpret_cast<uint64_t*>(pinned);
  words_[kUp] = kAbove;
  std::fill_n(words_ + kShutOwners, kMostBlocks, device::kClosed | 1);
  if (Status s = executor_.own().allocate(sizeof(uint64_t), &bar_); is_error(s)) return s;
  if (Status s = executor_.store(bar_, words_ + kUp, sizeof(uint64_t)); is_error(s)) return s;
  queues_ = executor_.queues();
  proxy_.watch(this);
  return TW_OK;
}

WaitRows::~WaitRows() {
  if (words_ == nullptr) return;
  proxy_.unwatch(this);
  executor_.settle();
  forget_ended();
  for (const Row& row : rows_) row.plan->rows_.fetch_sub(1);  // the queue is broken: nothing runs there any more
  executor_.own().free(bar_, sizeof(uint64_t));
  executor_.pinned().free(at(words_), kWords * sizeof(uint64_t));
}

/// Under the lock.
void WaitRows::forget_ended() {
  for (; !rows_.empty() && reached(load(words_ + kEnded), rows_.front().number); rows_.pop_front())
    rows_.front().plan->rows_.fetch_sub(1);
}

bool WaitRows::pending() {
  const std::lock_guard lock(mutex_);
  forget_ended();
  return !rows_.empty();
}

Status WaitRows::enqueue(PlanRuns& plan) {
  using Kind = WordOp::Kind;
  if (words_ == nullptr) {
    if (Status s = open(); is_error(s)) return s;
  }
  Row row{&plan, last_ + 1, {}};
  std::vector<WordOp> ops{{Kind::store, at(words_ + kBegun), row.number}};
  for (const uint32_t step : plan.ahead_.posts) {
    const Resolved& how = plan.resolved_[step];
    const uint64_t n = plan.message_of(step);
    ops.push_back({Kind::store, how.channel->credit(n), device::slot_word(n, static_cast<uint32_t>(how.recv_buffer))});
  }
  for (const uint32_t step : plan.ahead_.looks) {
    const uint64_t n = plan.message_of(step);
    row.looks.push_back({step, plan.resolved_[step].channel->awaited(n), device::slot_word(n, 0)});
    ops.push_back({Kind::wait, row.looks.back().word, row.looks.back().wanted});
  }
  ops.push_back({Kind::wait, bar_, row.number});
  ops.push_back({Kind::store, at(words_ + kEnded), row.number});
  plan.rows_.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
    rows_.push_back(std::move(row));
  }
  const Status status = queue_.words(ops);
  if (!is_error(status)) {
    ++last_;
    return status;
  }
  const std::lock_guard lock(mutex_);
  plan.rows_.fetch_sub(1);
  rows_.pop_back();
  return status;
}

// ------------------------------------------------------------------------------------------------ the proxy's thread

/// One row at a time, the one that the queue is at: earlier runs, which may use the same words, are over.
unsigned WaitRows::watch() {
  const std::lock_guard lock(mutex_);
  forget_ended();
  if (rows_.empty() && asked_ == 0) return 0;
  if (executor_.idle() != TW_OK) return 0;
  if (queues_ != executor_.queues()) {  // the queue broke, and with it what was on its way
    if (is_error(set_bar(words_ + kUp))) return 0;
    queues_ = executor_.queues();
    asked_ = 0;
    return 1;
  }
  const bool at_one = !rows_.empty() && reached(load(words_ + kBegun), rows_.front().number);
  if (asked_ != 0 && (!at_one || rows_.front().number != asked_)) {  // that one had passed
    if (!is_error(set_bar(words_ + kUp))) asked_ = 0;
    return 1;
  }
  if (!at_one) return 0;
  Row& row = rows_.front();
  const uint64_t now = monotonic_ns();
  if (row.limit == 0) row.limit = now + row.plan->limit_ns_;
  if (asked_ != 0) {
    answer(row, now);
  } else if (now < row.next_look || (now < row.limit && !ended_badly(*row.plan)) || is_error(ask(row))) {
    return 0;
  } else {
    asked_ = row.number;
  }
  proxy_.hurry();  // there is an answer soon; or another row may have to be let go, too
  return 1;
}

void WaitRows::answer(Row& row, uint64_t now) {
  row.next_look = now + kAgainNs;
  size_t first = 0;
  while (first < row.looks.size() && !missing(row, first)) ++first;
  if (!is_error(first == row.looks.size() ? set_bar(words_ + kUp) : let_go(row, first))) asked_ = 0;
}

/// Copies of one call have no order; one call comes after the other.
Status WaitRows::set_bar(uint64_t* from) {
  const Copy copy{bar_, at(from), sizeof(uint64_t)};
  return executor_.enqueue({&copy, 1});
}

Status WaitRows::ask(const Row& row) {
  if (Status s = set_bar(words_ + kDown); is_error(s)) return s;
  std::vector<Copy> copies;
  for (const Look& look : row.looks) copies.push_back({at(words_ + kFound + copies.size()), look.word, sizeof(uint64_t)});
  return executor_.enqueue(copies);
}

bool WaitRows::missing(const Row& row, size_t look) const {
  return !reached(load(words_ + kFound + look), row.looks[look].wanted);
}

Status WaitRows::let_go(const Row& row, size_t first) {
  fail_channels(row, first);
  if (Status s = close_programs(*row.plan); is_error(s)) return s;
  std::vector<Copy> copies;
  for (size_t i = 0; i < row.looks.size(); ++i) {
    words_[kGiven + i] = row.looks[i].wanted;
    if (missing(row, i)) copies.push_back({row.looks[i].word, at(words_ + kGiven + i), sizeof(uint64_t)});
  }
  if (Status s = executor_.enqueue(copies); is_error(s)) return s;
  return set_bar(words_ + kUp);
}

/// Tells all plans that use them, and the peers. A channel that has failed already keeps its reason.
void WaitRows::fail_channels(const Row& row, size_t missing) {
  const PlanRuns& plan = *row.plan;
  auto status = static_cast<Status>(static_cast<int64_t>(load(plan.failure_.abort_word())));
  std::string why = "a plan that uses the channel has failed";
  const uint32_t step = row.looks[missing].step;
  if (!is_error(status)) {
    device::Failure failure = *plan.failure_.record();
    if (!plan.failure_.recorded()) {
      failure = {0,
                 TW_ERR_TIMED_OUT,
                 plan.resolved_[step].first,
                 row.looks[missing].wanted >> 16,
                 load(words_ + kFound + missing) >> 16,
                 {}};
    }
    status = static_cast<Status>(failure.code);
    why = plan.failure_.text_of(failure);
  }
  for (const ChannelUse& use : plan.channels_.uses()) use.channel->fail_end(use.epoch, status, why);
}

Status WaitRows::close_programs(const PlanRuns& plan) {
  std::vector<Copy> copies;
  for (const ChannelUse& use : plan.channels_.uses()) {
    for (const Channel::User* user : use.channel->users()) {
      if (const Channel::OwnerWords owners = user->owner_words(); owners.count != 0)
        copies.push_back({owners.words, at(words_ + kShutOwners), owners.count * sizeof(uint64_t)});
    }
  }
  return executor_.enqueue(copies);
}

}  // namespace thalweg::impl
