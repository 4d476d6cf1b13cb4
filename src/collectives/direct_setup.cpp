// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group come to a DirectArea: two exchanges (groups/exchange.hpp), which take no numbers of collectives: what a
// callback posts meanwhile has the same number on all ranks. In the first each gives the key of its segment, in the second whether it
// has mapped all others'.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/platform/process.hpp"
#include "collectives/collectives.hpp"
#include "collectives/direct_area.hpp"
#include "core/c_checks.hpp"
#include "core/remote_map.hpp"
#include "groups/exchange.hpp"
#include "memory/remote.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kMagic = 0x7468616c64723032;  // of this form of the two messages

struct AreaOffer {
  uint64_t magic = kMagic;
  int32_t status = TW_OK;  // why this rank cannot
  uint32_t key_length = 0;
  uint32_t cores = 0;  // as many this rank sees
  uint32_t reserved = 0;
  unsigned char key[kKeySize] = {};
};
struct AreaOutcome {
  uint64_t magic = kMagic;
  int32_t status = TW_OK;
  uint32_t reads = 0;  // 1: the memory of all others
};

/// Of a group that fails while this rank waits. Under no lock.
Status failure_of(Collectives& owner) {
  const Engine::Guard guard(owner.engine());
  return owner.failed() ? owner.failure() : Status{TW_OK};
}

/// The set-up cannot go on here: the group fails, so that no other rank waits for this one.
Status give_up(Collectives& owner, Status status, uint32_t rank) {
  constexpr const char* kName = "the set-up of a group's shared memory";
  const std::string why = last_error();
  const Engine::Guard guard(owner.engine());
  if (status == TW_ERR_CANCELED) owner.fail_interrupted(status, kName);
  owner.fail(status, rank, std::string(kName) + ": " + why);
  return owner.failure();
}

/// Everyone's.
template <class Message>
Status gather(Collectives& owner, ExchangeCall& call, const Deadline& deadline, const Message& mine,
              std::vector<Message>* all) {
  all->resize(owner.group().size);
  ExchangeEnd end{deadline.left_ns(), [&] { return failure_of(owner); }};
  const Status status = exchange(call, &mine, sizeof mine, all->data(), end);
  return is_error(status) ? give_up(owner, status, end.rank) : Status{TW_OK};
}

template <class Message>
bool all_can(const std::vector<Message>& all, std::string* why_not) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].magic == kMagic && all[i].status == TW_OK) continue;
    *why_not = "rank " + std::to_string(i) + " does not share memory with all others";
    return false;
  }
  return true;
}

}  // namespace

DirectArea::DirectArea(Collectives& owner) : owner_(owner), worker_(owner.group().worker), ranks_(owner.group().size) {}

DirectArea::~DirectArea() {
  {
    const Engine::Guard guard(owner_.engine());
    for (RankArea& rank : ranks_) {
      if (rank.mapping != nullptr) --rank.mapping->users;
    }
  }
  for (RankArea& rank : ranks_) tw_remote_memory_release(rank.remote);
  if (memory_ != nullptr) memory_->registry->release_or_leave(memory_);
}

Status DirectArea::allocate(void* key, size_t* key_length) {
  if (Status s = tw_memory_allocate(&worker_.context, sizeof(Segment), nullptr, &memory_); is_error(s)) return s;
  bounce_ = allocate_aligned(kBuffer);  // pages that no call writes are not used
  if (bounce_ == nullptr) return impl::fail(TW_ERR_NO_MEMORY, "no memory for what goes to and from devices");
  mine_ = static_cast<Segment*>(tw_memory_address(memory_));
  for (Line& line : mine_->lines) std::memset(static_cast<void*>(&line), 0, sizeof line);
  RankArea& own = ranks_[owner_.group().rank];
  own.segment = mine_;
  own.seen = own.passed = UINT64_MAX;  // never waited for
  return tw_memory_export(memory_, key, key_length);
}

Status DirectArea::map(uint32_t rank, const void* key, size_t key_length, const Deadline& deadline) {
  tw_endpoint* endpoint = nullptr;
  if (Status s = owner_.group().await_endpoint(rank, &endpoint, deadline.left_ns()); is_error(s)) return s;
  if (std::strcmp(tw_endpoint_transport(endpoint), "shm") != 0) return impl::fail(TW_ERR_UNSUPPORTED, "not reached by shm");
  RankArea& area = ranks_[rank];
  if (Status s = tw_memory_import(endpoint, key, key_length, &area.remote); is_error(s)) return s;
  if (tw_remote_memory_length(area.remote) < sizeof(Segment)) return impl::fail(TW_ERR_PROTOCOL, "its segment is too short");
  void* address = nullptr;
  const auto failure = [&] { return failure_of(owner_); };
  if (Status s = map_remote(area.remote, deadline.left_ns(), failure, &address); is_error(s)) return s;
  if (reinterpret_cast<uintptr_t>(address) % alignof(Segment) != 0) return impl::fail(TW_ERR_MISALIGNED, "mapped askew");
  const Engine::Guard guard(owner_.engine());
  Mapping* const mapping = reinterpret_cast<RemoteRegion*>(area.remote)->mapping;
  if (mapping == nullptr) return impl::fail(TW_ERR_PEER_LOST, "lost while its segment was mapped");
  ++mapping->users;
  area.mapping = mapping;
  area.segment = static_cast<Segment*>(address);
  return TW_OK;
}

bool DirectArea::can_read(uint32_t rank) {
  tw_endpoint* endpoint = nullptr;
  const Engine::Guard guard(owner_.engine());
  if (is_error(owner_.group().endpoint(rank, &endpoint)) || endpoint == nullptr || endpoint->peer->link == nullptr)
    return false;
  const Link& link = *endpoint->peer->link;
  return same_process(link) ? may_access_process(getpid()) : (link.features & kLinkSingleCopy) != 0;
}

Status DirectArea::agree(Collectives& owner, uint64_t limit_ns, std::unique_ptr<DirectArea>* out, std::string* why_not) {
  tw_group& group = owner.group();
  ExchangeCall call(group, ExchangeKind::shared_memory);
  const Deadline deadline(limit_ns);
  auto area = std::make_unique<DirectArea>(owner);
  AreaOffer offer;
  size_t key_length = sizeof offer.key;
  offer.status = area->allocate(offer.key, &key_length);
  offer.key_length = static_cast<uint32_t>(key_length);
  offer.cores = static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  std::vector<AreaOffer> offers;
  if (Status s = gather(owner, call, deadline, offer, &offers); is_error(s)) return s;
  if (!all_can(offers, why_not)) return TW_OK;
  const bool crowded = std::ranges::any_of(offers, [&](const AreaOffer& one) { return one.cores < group.size; });
  AreaOutcome outcome;
  outcome.reads = 1;
  for (uint32_t rank = 0; rank < group.size && outcome.status == TW_OK; ++rank) {
    if (rank == group.rank) continue;
    const bool fits = offers[rank].key_length <= sizeof offers[rank].key;
    outcome.status = fits ? area->map(rank, offers[rank].key, offers[rank].key_length, deadline) : Status{TW_ERR_PROTOCOL};
    outcome.reads &= area->can_read(rank) ? 1 : 0;
    if (outcome.status == TW_ERR_CANCELED) return give_up(owner, outcome.status, group.rank);
  }
  std::vector<AreaOutcome> outcomes;
  if (Status s = gather(owner, call, deadline, outcome, &outcomes); is_error(s)) return s;
  if (!all_can(outcomes, why_not)) return TW_OK;
  area->go_by(crowded, std::ranges::all_of(outcomes, [](const AreaOutcome& one) { return one.reads == 1; }));
  *out = std::move(area);
  return TW_OK;
}

}  // namespace thalweg::impl
