// SPDX-License-Identifier: Apache-2.0
#include "groups/parts.hpp"

#include <algorithm>
#include <new>

#include "groups/exchange.hpp"

namespace thalweg::impl {
namespace {

struct Choice {
  uint64_t color;
  uint32_t key, none;
};

/// By the ids of what all ranks have made: a rank that tells others different colours or keys would have them take each other's numbers.
Status check_alike(const std::vector<uint32_t>& ranks, uint64_t id, const std::vector<uint64_t>& ids) {
  for (const uint32_t rank : ranks) {
    if (ids[rank] == id) continue;
    return fail(TW_ERR_PROTOCOL,
                "rank %u has come to a part of other ranks, or of another order, than this rank: a rank has told others "
                "different colours or keys",
                rank);
  }
  return TW_OK;
}

}  // namespace

uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9e3779b97f4a7c15 * (b + 1);  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return (x ^ (x >> 31)) | 1;  // never 0
}

Status make_part(tw_group& of, std::vector<uint32_t> ranks, uint64_t salt, std::unique_ptr<tw_group>* out) {
  const auto own = std::find(ranks.begin(), ranks.end(), of.rank);
  const uint64_t id = mixed(mixed(of.id, of.made), salt);
  auto* made = new (std::nothrow)
      tw_group(of.worker, static_cast<uint32_t>(own - ranks.begin()), static_cast<uint32_t>(ranks.size()), of.timeout_ns);
  if (made == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for a group");
  out->reset(made);
  for (uint32_t& rank : ranks) {
    made->hosts.push_back(of.hosts[rank]);
    rank = of.member(rank);
  }
  made->peers = of.peers;
  made->members = std::move(ranks);
  made->set_id(id);
  made->costs = of.costs;
  return TW_OK;
}

Status split(ExchangeCall& call, uint64_t color, uint32_t key, bool none, std::unique_ptr<tw_group>* out) {
  tw_group& group = call.group;
  const Choice mine{color, key, none};
  std::vector<Choice> all(group.size);
  if (Status s = exchange(call, &mine, sizeof mine, all.data()); is_error(s)) return s;
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < group.size; ++i) {
    if (all[i].none == 0 && all[i].color == color) ranks.push_back(i);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](uint32_t a, uint32_t b) { return all[a].key < all[b].key; });
  if (none) ranks.clear();
  uint64_t salt = color;
  for (const uint32_t rank : ranks) salt = mixed(salt, rank);  // messages of one list of ranks are never another one's
  const Status made = none ? Status{TW_OK} : make_part(group, ranks, salt, out);
  const uint64_t id = *out != nullptr ? (*out)->id : 0;
  std::vector<uint64_t> ids(group.size);
  Status agreed = agree(call, made, &id, sizeof id, ids.data());  // behind it others use the part
  if (!is_error(agreed)) agreed = check_alike(ranks, id, ids);
  if (!is_error(agreed)) return agreed;
  const std::string why = last_error();
  out->reset();
  return fail(agreed, "%s", why.c_str());
}

}  // namespace thalweg::impl
