// SPDX-License-Identifier: Apache-2.0
// What the kinds share: copies between users' buffers and parts, and how long all takes.
#include "collectives/direct_run.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/direct_steps.hpp"

namespace thalweg::impl {

Status DirectRun::run() {
  switch (what_.kind) {
    case CollectiveKind::barrier:
      return barrier();
    case CollectiveKind::broadcast:
      return broadcast();
    case CollectiveKind::reduce:
      return reduce();
    case CollectiveKind::allreduce:
      return allreduce();
    case CollectiveKind::reduce_scatter:
      return reduce_scatter();
    case CollectiveKind::allgather:
      return allgather();
    case CollectiveKind::gather:
      return gather();
    case CollectiveKind::scatter:
      return scatter();
    case CollectiveKind::alltoall:
      return alltoall();
    default:
      return scan();
  }
}

uint64_t DirectRun::piece_of(uint64_t blocks, uint64_t room) const { return room / blocks / 64 * 64; }

Status DirectRun::copy_in(std::byte* to, const Buffer& from, uint64_t offset, uint64_t length) const {
  if (length == 0) return TW_OK;
  if (from.on_device)
    return copier_.copy(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from.address + offset), length);
  std::memcpy(to, from.address + offset, length);
  return TW_OK;
}

Status DirectRun::copy_out(uint64_t offset, const std::byte* from, uint64_t length) const {
  const Buffer& to = task_.bound.output;
  if (length == 0 || to.address + offset == from) return TW_OK;
  if (to.on_device)
    return copier_.copy(reinterpret_cast<uint64_t>(to.address + offset), reinterpret_cast<uint64_t>(from), length);
  std::memcpy(to.address + offset, from, length);
  return TW_OK;
}

Status DirectRun::barrier() {
  if (const ReductionWay way = way_of(what_, costs_, area_.crowded()); way.group != 0) return combine_by_groups(way.group);
  return meet();
}

Status DirectRun::meet() {
  const auto nothing = [](uint64_t, auto) { return Status{TW_OK}; };
  return steps(1, kAll, Room::line, nothing, nothing);
}

Status DirectRun::combine(std::byte* to, uint32_t ranks, uint64_t length, bool last) {
  const uint64_t count = length / what_.element;
  if (Status s = reduce_host(task_.operation, to, std::span(sources_).first(ranks), count, area_.room()); is_error(s))
    return area_.fail(s, what_.rank, "rank " + std::to_string(what_.rank) + ": " + last_error());
  if (last && scales(task_.operation)) scale_host(task_.operation, to, count, what_.size);
  return TW_OK;
}

Status DirectRun::combine_out(uint64_t offset, uint32_t ranks, uint64_t length) {
  if (length == 0) return TW_OK;
  if (!task_.bound.output.on_device) return combine(task_.bound.output.address + offset, ranks, length);
  if (Status s = combine(area_.bounce(), ranks, length); is_error(s)) return s;
  return copy_out(offset, area_.bounce(), length);
}

Status DirectRun::agree_on_most(uint64_t own, uint64_t* most, std::array<uint64_t, DirectArea::kMostRanks>* all) {
  const auto fill = [&](uint64_t, std::byte* to) {
    std::memcpy(to, &own, sizeof own);
    return Status{TW_OK};
  };
  const auto drain = [&](uint64_t, uint64_t step) {
    *most = 0;
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      std::memcpy(&(*all)[rank], area_.part(rank, step, Room::line), sizeof own);  // once
      *most = std::max(*most, (*all)[rank]);
    }
    return Status{TW_OK};
  };
  if (Status s = steps(1, kAll, Room::line, fill, drain); is_error(s)) return s;
  area_.go_on_by(*most);
  if (*most <= UINT64_MAX / 2 / what_.size) return TW_OK;
  const auto rank = static_cast<uint32_t>(std::ranges::find(*all, *most) - all->begin());
  return area_.fail(TW_ERR_PROTOCOL, rank, "rank " + std::to_string(rank) + ": it published a length that no buffer has");
}

Status DirectRun::refuse_length(uint32_t rank, uint64_t sent, uint64_t expected) {
  return area_.fail(TW_ERR_TRUNCATED, rank,
                    "rank " + std::to_string(rank) + ": it sent " + std::to_string(sent) + " bytes where " +
                        std::to_string(expected) + " were expected: its counts are others than this rank's");
}

}  // namespace thalweg::impl
