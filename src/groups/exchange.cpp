// SPDX-License-Identifier: Apache-2.0
// Bruck's allgather: in round k a rank gives what it has, up to 2^k values, to the one 2^k before it, and gets as many from the
// one 2^k behind it; after log2(size) rounds all have all. So a rank needs few connections. Values lie in turned order until
// the end: the own one first.
//
// A rank that cannot go on (its partner is lost) goes through its remaining rounds all the same, with the failure in place of
// values. So those who wait for it, and those who wait for them, end with the rank that is lost, long before their time is
// over.
//
// What it gave before stays with the others, and so one that is late may have all values of an exchange in which others have given
// up. So calls that make something end with one more exchange, and a rank that has failed in one gives its failure
// to the next: who comes there has the failure, and makes nothing.
#include "groups/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "groups/mailbox.hpp"
#include "plans/window.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMostValues = 16u << 20;

/// How long a rank whose time is over sees to what it tells of that. It is there for promptness: others wait for their own time at most.
constexpr uint64_t kLastWords = 100 * kMillisecond;

/// One exchange at one rank.
class Exchange {
 public:
  Exchange(ExchangeCall& call, size_t length, ExchangeEnd& end)
      : group_(call.group),
        end_(end),
        kind_(static_cast<uint32_t>(call.kind)),
        step_(call.next_step()),
        next_step_(call.step_ahead()),
        length_(length),
        values_(size_t{group_.size} * length) {}
  Status run(const void* mine, void* values);
  /// Takes part with this rank's failure, whose text is the last error, and waits for no other.
  Status refuse(Status status);

 private:
  void send(uint64_t round_step, uint32_t distance, const Letter& letter);
  void give(uint32_t round, uint32_t distance, uint32_t count);
  Status get(uint32_t round, uint32_t distance, uint32_t count);
  void take(Letter& letter, uint32_t from, uint32_t distance, uint32_t count);
  /// Waits for the letter or the loss of its sender.
  Status await(uint32_t from, uint64_t step, Letter* letter);
  /// The first failure is the one that counts.
  void record(Status status, uint32_t rank, const char* text);
  /// Nothing goes to that rank or comes from it, for the last error.
  void record_lost(Status status, uint32_t rank);
  /// The failure, in every round of the exchange of that first step.
  void tell(uint64_t first_step);

  tw_group& group_;
  ExchangeEnd& end_;
  const uint32_t kind_;
  const uint64_t step_, next_step_;
  const size_t length_;
  const Deadline deadline_{end_.limit_ns};
  std::vector<std::byte> values_;  // turned: [i] of rank (own + i) % size
  std::vector<tw_endpoint*> told_;
  Status stopped_ = TW_OK;  // by end_.failure
  Status failed_ = TW_OK;
  uint32_t failed_rank_ = 0;
  std::string why_;
};

/// What a rank that gives up in an exchange may tell: not that it was interrupted, which is nobody else's affair.
bool may_be_told(Status status) {
  return status == TW_ERR_PEER_LOST || status == TW_ERR_TIMED_OUT || status == TW_ERR_LIMIT || status == TW_ERR_INVALID ||
         status == TW_ERR_PROTOCOL || status == TW_ERR_NO_MEMORY;
}

/// Calls in which ranks that have all values of an exchange come to another one before they make anything.
bool goes_on(uint32_t kind) {
  const auto one = static_cast<ExchangeKind>(kind);
  return one == ExchangeKind::split || one == ExchangeKind::split_by || one == ExchangeKind::window ||
         one == ExchangeKind::registration;
}

const char* kind_text(uint32_t kind) {
  switch (static_cast<ExchangeKind>(kind)) {
    case ExchangeKind::values:
      return "tw_group_exchange";
    case ExchangeKind::split:
      return "tw_group_split";
    case ExchangeKind::split_by:
      return "tw_group_split_by";
    case ExchangeKind::window:
      return "tw_group_window, or the end of its window";
    case ExchangeKind::shared_memory:
      return "a group's first blocking collective";
    case ExchangeKind::kernels:
      return "a group's first collective on a queue";
    case ExchangeKind::registration:
      return "tw_window_register_on";
  }
  return "something unknown";
}

const char* told_text(const Letter& letter, uint32_t own) {
  if (letter.status != TW_ERR_TIMED_OUT || letter.rank != own) return "another rank has told so";
  return "this rank came when another one's time was over: all ranks make the call again";
}

void Exchange::record(Status status, uint32_t rank, const char* text) {
  if (is_error(failed_)) return;
  failed_ = status;
  failed_rank_ = end_.rank = rank;
  why_ = text;
}

void Exchange::record_lost(Status status, uint32_t rank) {
  record(status_of_loss(status), is_of_this_rank(status) ? group_.rank : rank, last_error());
}

void Exchange::give(uint32_t round, uint32_t distance, uint32_t count) {
  Letter letter{failed_, failed_rank_, kind_, {}};
  if (!is_error(failed_)) letter.bytes.assign(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(count * length_));
  send(step_ + round, distance, letter);
}

void Exchange::send(uint64_t round_step, uint32_t distance, const Letter& letter) {
  const uint32_t to = (group_.rank + group_.size - distance) % group_.size;
  tw_endpoint* endpoint = nullptr;
  Status status = group_.endpoint(to, &endpoint);
  if (!is_error(status)) status = Mailbox::send(*endpoint, group_.id, round_step, letter);
  if (is_error(status)) record_lost(status, to);
  if (!is_error(status)) told_.push_back(endpoint);
}

Status Exchange::await(uint32_t from, uint64_t step, Letter* letter) {
  Mailbox& box = Mailbox::of(group_.worker);
  const uint64_t sender = group_.peers->sender(group_.member(from));
  Status here = TW_IN_PROGRESS;
  const auto look = [&] {  // it may be asked again after a yes
    if (here == TW_IN_PROGRESS) here = box.take(group_.worker, sender, group_.id, step, letter);
    return here != TW_IN_PROGRESS;
  };
  if (look()) return here;
  tw_endpoint* endpoint = nullptr;
  Status status = group_.endpoint(from, &endpoint);
  if (endpoint == nullptr) {
    record_lost(status, from);
    return status;
  }
  Status ended = TW_OK;
  status = group_.worker.wait_until(
      [&] {
        if (look()) return true;
        ended = tw_endpoint_state(endpoint);
        if (!is_error(ended)) ended = interrupted();
        if (!is_error(ended) && end_.failure) ended = stopped_ = end_.failure();
        if (!is_error(ended)) return false;
        look();  // what came before the loss counts
        return true;
      },
      deadline_.left_ns());
  if (here != TW_IN_PROGRESS) return here;
  return is_error(ended) ? ended : status;
}

/// TW_ERR_CANCELED, or what stopped it: at once. Else the failure is recorded.
Status Exchange::get(uint32_t round, uint32_t distance, uint32_t count) {
  const uint32_t from = (group_.rank + distance) % group_.size;
  Letter letter;
  const Status status = await(from, step_ + round, &letter);
  if (status == TW_ERR_CANCELED || is_error(stopped_)) return status;
  if (status == TW_ERR_TIMED_OUT) {
    record(status, from, "it has not come, or waits for another one");
  } else if (is_error(status)) {
    record(status == TW_ERR_LIMIT ? status : Status{TW_ERR_PEER_LOST}, from, last_error());
  } else {
    take(letter, from, distance, count);
  }
  return TW_OK;
}

void Exchange::take(Letter& letter, uint32_t from, uint32_t distance, uint32_t count) {
  constexpr const char* kSame = ": all ranks call the same functions of a group in the same order";
  if (letter.kind != kind_) {
    const std::string calls = std::string("it is in ") + kind_text(letter.kind) + ", and this rank in " + kind_text(kind_);
    record(TW_ERR_INVALID, from, (calls + kSame).c_str());
  } else if (letter.status != TW_OK && (!may_be_told(letter.status) || letter.rank >= group_.size)) {
    record(TW_ERR_PROTOCOL, from, "it tells of a failure that makes no sense");
  } else if (letter.status != TW_OK) {
    record(letter.status, letter.rank, told_text(letter, group_.rank));
  } else if (letter.bytes.size() != count * length_) {
    record(TW_ERR_INVALID, from, (std::string("it gives values of another length") + kSame).c_str());
  } else if (!letter.bytes.empty() && !is_error(failed_)) {
    std::memcpy(values_.data() + distance * length_, letter.bytes.data(), letter.bytes.size());
  }
}

void Exchange::tell(uint64_t first_step) {
  if (!may_be_told(failed_)) return;
  const Letter letter{failed_, failed_rank_, kind_, {}};
  for (uint32_t distance = 1; distance < group_.size; distance *= 2) send(first_step++, distance, letter);
  Mailbox::deliver(group_.worker, told_, std::max(deadline_.left_ns(), kLastWords));
}

Status Exchange::refuse(Status status) {
  record(status, group_.rank, last_error());
  tell(step_);
  return fail(failed_, "%s", why_.c_str());
}

Status Exchange::run(const void* mine, void* values) {
  const uint32_t size = group_.size, rank = group_.rank;
  if (length_ != 0) std::memcpy(values_.data(), mine, length_);
  uint32_t round = 0;
  for (uint32_t distance = 1; distance < size; distance *= 2, ++round) {
    const uint32_t count = std::min(distance, size - distance);
    give(round, distance, count);
    if (Status s = get(round, distance, count); is_error(s)) return s;
  }
  if (is_error(failed_) && goes_on(kind_)) {
    tell(next_step_);
  } else {
    Mailbox::deliver(group_.worker, told_, deadline_.left_ns());
  }
  if (is_error(failed_)) return fail(failed_, "rank %u: %s", failed_rank_, why_.c_str());
  for (uint32_t i = 0; i < size && length_ != 0; ++i) {
    auto* to = static_cast<std::byte*>(values) + size_t{(rank + i) % size} * length_;
    std::memcpy(to, values_.data() + i * length_, length_);
  }
  return TW_OK;
}

}  // namespace

Status check_exchange(tw_group& group, size_t length) {
  if (length > kMostValues / group.size)
    return fail(TW_ERR_LIMIT, "an exchange of %zu bytes a rank among %u: at most 16 MiB in all", length, group.size);
  return group.worker.check_waits_for_ranks();
}

Status exchange(ExchangeCall& call, const void* mine, size_t length, void* values) {
  ExchangeEnd end{call.group.timeout_ns, {}};
  return exchange(call, mine, length, values, end);
}

Status exchange(ExchangeCall& call, const void* mine, size_t length, void* values, ExchangeEnd& end) {
  if (Status s = check_exchange(call.group, length); is_error(s)) return s;
  const Occupied here(call.group);
  return Exchange(call, length, end).run(mine, values);
}

Status agree(ExchangeCall& call, Status so_far, const void* mine, size_t length, void* values) {
  ExchangeEnd end{call.group.timeout_ns, {}};
  const Occupied here(call.group);
  Exchange last(call, length, end);
  return is_error(so_far) ? last.refuse(so_far) : last.run(mine, values);
}

/// Its creation's exchanges and its end's are of one call, so that ranks on which windows end in another order, or not at all, take
/// nothing of each other's.
Status make_window(std::shared_ptr<ExchangeCall> call, tw_memory* memory, const tw_window_options* options, tw_window** out) {
  tw_group& group = call->group;
  std::vector<tw_endpoint*> endpoints(group.size);
  for (uint32_t i = 0; i < group.size; ++i) {
    // One that is lost makes the creation fail on all ranks, with its number.
    if (i != group.rank) (void)group.endpoint(i, &endpoints[i]);
  }
  const auto by_call = [](void* arg, const void* mine, size_t length, void* values) {
    return exchange(*static_cast<ExchangeCall*>(arg), mine, length, values);
  };
  const Status made =
      tw_window_create(&group.worker, endpoints.data(), group.size, group.rank, memory, by_call, call.get(), options, out);
  if (made != TW_OK) return made;
  (*out)->group = &group;
  (*out)->exchanges = std::move(call);
  return TW_OK;
}

}  // namespace thalweg::impl
