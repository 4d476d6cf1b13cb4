// SPDX-License-Identifier: Apache-2.0
#include "collectives/collectives.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/printable.hpp"
#include "base/told_status.hpp"
#include "collectives/group_listener.hpp"
#include "collectives/repeated_call.hpp"
#include "collectives/run.hpp"
#include "groups/exchange.hpp"
#include "groups/mailbox.hpp"

namespace thalweg::impl {

namespace {

/// The same on all ranks: what rank 0 has measured. Where hosts have ranks unevenly, all messages are as between hosts.
CollectiveCosts costs_of(const tw_group& group) {
  const bool uneven = group.ranks_per_host() == 0;
  const RankPlace& known = group.costs;
  CollectiveCosts costs;
  costs.message_ns = uneven ? known.host_message_ns : known.message_ns;
  costs.byte_ns = uneven ? known.host_byte_ns : known.byte_ns;
  costs.serial_byte_ns = known.serial_byte_ns;
  costs.read_ns = known.read_ns;
  costs.read_byte_ns = known.read_byte_ns;
  costs.host_message_ns = known.host_message_ns;
  costs.host_byte_ns = known.host_byte_ns;
  return costs;
}

}  // namespace

Collectives::Collectives(tw_group& group)
    : group_(group), ranks_per_host_(group.ranks_per_host()), schedules_(costs_of(group)), answers_(group.size) {}

Collectives::~Collectives() {
  if (device_ != nullptr) device_->end();
  const Engine::Guard guard(engine());
  for (GroupListener* listener : {listener_, drain_}) {
    if (listener != nullptr) listener->close();
  }
}

Status Collectives::of(tw_group& group, Collectives** out) {
  if (group.collectives == nullptr) {
    auto made = std::make_shared<Collectives>(group);
    if (Status s = made->listen(); is_error(s)) return s;
    group.collectives = std::move(made);
  }
  *out = group.collectives.get();
  return TW_OK;
}

Status Collectives::listen() {
  if (group_.size == 1) return TW_OK;
  listener_ = GroupListener::open(*this, give_up_tag(group_.id), false);
  return listener_ != nullptr ? Status{TW_OK} : impl::fail(TW_ERR_NO_MEMORY, "no memory for a group's collectives");
}

Status Collectives::check() const {
  if (!is_error(failed_)) return TW_OK;
  return impl::fail(failed_, "the group has failed: %s. Make another one of the ranks that are left", why_.c_str());
}

Status Collectives::failure() const { return impl::fail(failed_, "%s", why_.c_str()); }

Status Collectives::begin_direct(const char* name, bool* finds) {
  if (finding_direct_)
    return impl::fail(
        TW_ERR_BUSY,
        "%s: another thread is in the group's first blocking collective, which finds out for all how they go: call this "
        "one when that is over",
        name);
  *finds = finding_direct_ = !direct_tried();
  return TW_OK;
}

Status Collectives::find_direct(uint64_t limit_ns) {
  static_assert(DirectArea::kMostRanks == 64);
  std::string why_not = group_.size == 1 ? "the group has one rank" : "for at most 64 ranks";
  std::unique_ptr<DirectArea> made;
  const bool may = group_.size > 1 && group_.size <= DirectArea::kMostRanks;
  const Status status = may ? DirectArea::agree(*this, limit_ns, &made, &why_not) : Status{TW_OK};
  const Engine::Guard guard(engine());
  direct_ = std::move(made);
  why_not_direct_ = std::move(why_not);
  finding_direct_ = false;
  return status;
}

Status Collectives::find_device(Executor& by) {
  if (device_ != nullptr || !why_no_device_.empty()) return TW_OK;
  const char* const given = std::getenv("THALWEG_COSTS");
  const bool wanted = given == nullptr || std::strcmp(given, "off") != 0;
  const bool measures = wanted && by.device() != nullptr && std::strcmp(by.device()->name(), "emulated") != 0;
  std::shared_ptr<DeviceArea> made;
  std::string why_not;
  ExchangeEnd end{group_.timeout_ns, [&] {
                    const Engine::Guard guard(engine());
                    return failed() ? failure() : Status{TW_OK};
                  }};
  finding_device_ = true;
  const Status status = DeviceArea::agree(group_, by, enqueue_order_, measures, end, &made, &why_not);
  finding_device_ = false;
  const std::string why = is_error(status) ? last_error() : "";
  const Engine::Guard guard(engine());
  if (is_error(status)) {  // others may be further, or behind: no call of the group can be in step again
    constexpr const char* kName = "the set-up of a group's collectives on queues";
    if (status == TW_ERR_CANCELED) fail_interrupted(status, kName);
    fail(status, end.rank, std::string(kName) + ": " + why);
    return failure();
  }
  device_ = std::move(made);
  why_no_device_ = std::move(why_not);
  if (device_ != nullptr) device_->set_costs(&schedules_.costs());
  return TW_OK;
}

DeviceReducer& Collectives::reducer(Device& device) {
  for (auto& one : reducers_) {
    if (&one->device() == &device) return *one;
  }
  return *reducers_.emplace_back(std::make_unique<DeviceReducer>(device));
}

CollectiveRun& Collectives::take_run() {
  if (idle_.empty()) return *runs_.emplace_back(std::make_unique<CollectiveRun>(*this));
  CollectiveRun& run = *idle_.back();
  idle_.pop_back();
  return run;
}

void Collectives::begin(CollectiveRun& run) {
  under_way_.push_back(&run);
  ++group_.running;
}

void Collectives::end(CollectiveRun& run) {
  std::erase(under_way_, &run);
  idle_.push_back(&run);
  --group_.running;
}

void Collectives::fail(Status status, uint32_t rank, const std::string& why) {
  if (is_error(failed_)) return;
  const std::string text = why;                            // may be last_error()
  if (status == TW_ERR_CLOSED) status = TW_ERR_PEER_LOST;  // a rank that has ended its world is lost, too
  fail_here(status, text);
  tell_others(status, rank, text);
}

void Collectives::fail_interrupted(Status status, const char* name) {
  fail(status, group_.rank, std::string(name) + ": rank " + std::to_string(group_.rank) + " was interrupted in it");
}

void Collectives::fail_here(Status status, const std::string& why) {
  failed_ = status;
  why_ = why;
  if (direct_ != nullptr) direct_->stop();
  failing_.store(true, std::memory_order_release);
  const std::vector<CollectiveRun*> ending = under_way_;
  for (CollectiveRun* run : ending) run->give_up(status, why_);
  if (group_.size > 1) drain_ = GroupListener::open(*this, group_tag(group_.id, 0, 0), true);
}

void Collectives::tell_others(Status status, uint32_t rank, const std::string& why) {
  GiveUp message{group_.rank, status, rank, 0, {}};
  message.length = static_cast<uint32_t>(std::min(why.size(), sizeof message.why));
  std::memcpy(message.why, why.data(), message.length);
  for (uint32_t i = 0; i < group_.size; ++i) {
    tw_endpoint* endpoint = nullptr;
    if (i == group_.rank || is_error(group_.endpoint(i, &endpoint)) || endpoint == nullptr) continue;
    if (i != rank && answers_[i] == Answer::none) {
      answers_[i] = Answer::asked;
      ++open_;
    }
    send_give_up(engine(), *endpoint->peer, give_up_tag(group_.id), message, telling_);
  }
}

uint32_t Collectives::heard(const tw_endpoint* from) {
  if (from == nullptr) return kNoRank;
  const uint64_t sender = sender_of(*from);
  for (uint32_t i = 0; i < group_.size; ++i) {
    if (i == group_.rank || group_.peers->sender(group_.member(i)) != sender) continue;
    if (std::exchange(answers_[i], Answer::given) == Answer::asked) --open_;
    return i;
  }
  return kNoRank;
}

/// The sender is who its connection says. One whose endpoint is gone meanwhile is lost, as every wait for it finds.
bool Collectives::given_up(GiveUp message, size_t length, const tw_endpoint* from) {
  const uint32_t sender = heard(from);
  if (sender == kNoRank) return false;
  if (is_error(failed_)) return true;
  const std::string named = "rank " + std::to_string(sender);
  if (length != sizeof message || message.rank != sender || message.status >= TW_OK || message.length > sizeof message.why) {
    fail(TW_ERR_PROTOCOL, sender, named + " gave up with a message that makes no sense");
    return true;
  }
  std::string why = printable({message.why, message.length});
  // What a rank says of itself and of others is the same text on all ranks.
  if (message.lost == sender) why = named + " gave up: " + why;
  fail(told_status(message.status), message.lost < group_.size ? message.lost : kNoRank, why);
  return true;
}

}  // namespace thalweg::impl
