// SPDX-License-Identifier: Apache-2.0
// C interface: groups.
#include <new>
#include <vector>

#include "base/platform/process.hpp"
#include "base/told_status.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"
#include "groups/given_peers.hpp"
#include "groups/group.hpp"
#include "groups/mailbox.hpp"
#include "plans/window.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_group_options kGroupDefaults = TW_GROUP_OPTIONS_INIT;
constexpr uint64_t kMagic = 0x7468616c67727033;  // of this form of the exchange

/// What each rank gives. The group's id is rank 0's.
struct Contribution {
  uint64_t magic, id;
  uint32_t rank, size;
  int32_t status;
  uint32_t reserved;
  RankPlace place;
};

/// All ranks read the same, so all come to the same end.
Status check_contributions(const std::vector<Contribution>& all) {
  const auto size = static_cast<uint32_t>(all.size());
  for (uint32_t i = 0; i < size; ++i) {
    const Contribution& one = all[i];
    if (one.magic != kMagic)
      return fail(TW_ERR_INVALID, "the exchange gave something else than what rank %u sent: create groups in the same order",
                  i);
    if (const Status told = told_status(one.status); told != TW_OK)
      return fail(told, "rank %u cannot take part in the group (%s): its own error text says why", i, tw_status_name(told));
    if (one.size != size || one.rank != i)
      return fail(TW_ERR_INVALID, "in place %u the exchange gave rank %u of %u, instead of rank %u of %u", i, one.rank,
                  one.size, i, size);
  }
  return TW_OK;
}

Status exchange_ids(Status so_far, tw_exchange exchange, void* arg, tw_group& group) {
  const std::string own_text = is_error(so_far) ? last_error() : "";
  const Contribution mine{kMagic, random_id(), group.rank, group.size, so_far, 0, place_of(group.worker)};
  std::vector<Contribution> all(group.size);
  const Status status = exchange == nullptr ? tw_store_exchange(static_cast<tw_store*>(arg), &mine, sizeof mine, all.data())
                                            : exchange(arg, &mine, sizeof mine, all.data());
  if (is_error(so_far)) return fail(so_far, "%s", own_text.c_str());
  if (is_error(status)) return status;
  if (status > TW_OK) return fail(TW_ERR_INVALID, "the exchange of the group returned %d instead of a status", status);
  if (Status s = check_contributions(all); is_error(s)) return s;
  group.set_id(all[0].id);
  group.take_places(all);
  return TW_OK;
}

}  // namespace

extern "C" {

tw_status tw_group_create(tw_worker* worker, tw_endpoint* const* endpoints, uint32_t size, uint32_t rank, tw_exchange exchange,
                          void* arg, const tw_group_options* given, tw_group** out) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the group is NULL");
  *out = nullptr;
  if (rank >= size) return fail(TW_ERR_INVALID, "rank %u of %u: ranks are numbered from 0", rank, size);
  if (exchange == nullptr && arg == nullptr)
    return fail(TW_ERR_INVALID, "a group needs an exchange among its ranks: a function, or a store as its argument");
  const Options<tw_group_options> options(given, kGroupDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  std::unique_ptr<tw_group> group(
      new (std::nothrow) tw_group(*worker, rank, size, options->timeout_ns != 0 ? options->timeout_ns : 30 * kSecond));
  if (group == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for a group");
  (void)Mailbox::of(*worker);  // other ranks may write as soon as they have the id
  const Status fits = check_endpoints("group", *worker, endpoints, rank, size);
  if (Status s = exchange_ids(fits, exchange, arg, *group); is_error(s)) return s;
  std::vector<tw_endpoint*> all(size);
  if (size > 1) all.assign(endpoints, endpoints + size);
  group->peers = std::make_shared<GivenPeers>(*worker, std::move(all), rank);
  *out = group.release();
  return TW_OK;
}

tw_status tw_group_destroy(tw_group* group) {
  if (group == nullptr) return TW_OK;
  if (Status s = check(group); is_error(s)) return s;
  if (const Enter enter(&group->worker); is_error(enter.status())) return enter.status();
  {
    const Engine::Guard guard(*group->worker.engine);
    if (group->running != 0)
      return fail(TW_ERR_BUSY, "%llu collectives of the group are under way here: wait for them",
                  static_cast<unsigned long long>(group->running));
  }
  if (group->world != nullptr && group->peers.use_count() > 1)
    return fail(TW_ERR_BUSY, "%ld groups that were made of the world exist: destroy them first", group->peers.use_count() - 1);
  delete group;
  return TW_OK;
}

uint32_t tw_group_rank(const tw_group* group) { return group != nullptr ? group->rank : 0; }
uint32_t tw_group_size(const tw_group* group) { return group != nullptr ? group->size : 0; }
tw_worker* tw_group_worker(const tw_group* group) { return group != nullptr ? &group->worker : nullptr; }
tw_context* tw_group_context(const tw_group* group) { return group != nullptr ? &group->worker.context : nullptr; }

tw_status tw_group_endpoint(tw_group* group, uint32_t rank, tw_endpoint** endpoint) {
  if (Status s = check(group); is_error(s)) return s;
  if (endpoint == nullptr) return fail(TW_ERR_INVALID, "the place for the endpoint is NULL");
  *endpoint = nullptr;
  if (rank >= group->size) return fail(TW_ERR_INVALID, "there is no rank %u: the group has %u ranks", rank, group->size);
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Occupied here(*group);
  return group->await_endpoint(rank, endpoint);
}

}  // extern "C"
