// SPDX-License-Identifier: Apache-2.0
// Kinds that combine: straight from all ranks' parts, by one pass over all operands in the order of ranks.
#include <algorithm>
#include <cstring>

#include "collectives/direct_steps.hpp"

namespace thalweg::impl {
namespace {

uint64_t steps_for(uint64_t bytes, uint64_t piece) { return std::max<uint64_t>(1, (bytes + piece - 1) / piece); }

}  // namespace

Status DirectRun::allreduce() {
  const ReductionWay way = way_of(what_, costs_, area_.crowded());
  if (way.group != 0) return combine_by_groups(way.group);
  return way.by_shares ? combine_by_shares(kAll) : combine_at_readers(kAll, what_.size);
}

Status DirectRun::reduce() {
  const bool by_shares = way_of(what_, costs_, area_.crowded()).by_shares;
  return by_shares ? combine_by_shares(what_.root) : combine_at_readers(what_.root, what_.size);
}

Status DirectRun::scan() {
  const bool exclusive = what_.kind == CollectiveKind::exclusive_scan;
  return combine_at_readers(kAll, what_.rank + (exclusive ? 0 : 1));
}

Status DirectRun::combine_at_readers(uint32_t reader, uint32_t ranks) {
  const uint64_t bytes = what_.bytes();
  const Room room = DirectArea::room_for(bytes);
  const bool reads = reader == kAll || reader == what_.rank;
  const auto fill = [&](uint64_t k, std::byte* to) {
    const bool others_read = reader != what_.rank || task_.bound.input.on_device;
    return others_read ? take(to, k * kPiece, piece_at(bytes, k * kPiece, kPiece)) : Status{TW_OK};
  };
  const auto drain = [&](uint64_t k, uint64_t step) {
    if (ranks == 0) return Status{TW_OK};
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const std::byte* const part = area_.part(rank, step, room);
      sources_[rank] = reinterpret_cast<uint64_t>(rank == what_.rank ? own(k * kPiece, part) : part);
    }
    return combine_out(k * kPiece, ranks, piece_at(bytes, k * kPiece, kPiece));
  };
  return steps(steps_for(bytes, kPiece), reads ? kAll : kNoRank, room, fill, drain);
}

/// In one step a rank copies a piece, combines its share of the piece before, into the place of its own copy of that, which no other
/// rank reads, and takes the shares of the piece before that one.
Status DirectRun::combine_by_shares(uint32_t reader) {
  const uint64_t bytes = what_.bytes(), piece = DirectArea::kBuffer, count = steps_for(bytes, piece), first = area_.next();
  const bool reads = reader == kAll || reader == what_.rank;
  const auto share = [&](uint64_t k, uint32_t rank) {  // of the k-th piece
    const uint64_t length = piece_at(bytes, k * piece, piece), elements = length / what_.element;
    const uint64_t each = (elements + what_.size - 1) / what_.size * what_.element;
    const uint64_t begin = std::min(length, rank * each);
    return Block{begin, std::min(each, length - begin)};
  };
  const auto combine_share = [&](uint64_t k) {
    const Block mine = share(k, what_.rank);
    if (mine.length == 0) return Status{TW_OK};
    std::byte* const to = area_.part(what_.rank, first + k, Room::large) + mine.offset;
    for (uint32_t rank = 0; rank < what_.size; ++rank)
      sources_[rank] = reinterpret_cast<uint64_t>(area_.part(rank, first + k, Room::large) + mine.offset);
    sources_[what_.rank] = reinterpret_cast<uint64_t>(own(k * piece + mine.offset, to));
    return combine(to, what_.size, mine.length);
  };
  const auto copy_piece = [&](uint64_t k) {
    std::byte* const to = area_.part(what_.rank, first + k, Room::large);
    const uint64_t length = piece_at(bytes, k * piece, piece);
    if (task_.bound.input.on_device) return take(to, k * piece, length);
    const Block mine = share(k, what_.rank);
    if (Status s = take(to, k * piece, mine.offset); is_error(s)) return s;
    const uint64_t after = mine.offset + mine.length;
    return take(to + after, k * piece + after, length - after);
  };
  for (uint64_t k = 0; k < count + 2; ++k) {
    if (Status s = area_.look_around(k, count); is_error(s)) return s;
    if (k <= count || reads) {  // the piece before is there
      if (Status s = k == 0 ? area_.reserve(Room::large) : area_.await_all(first + k - 1); is_error(s)) return s;
    }
    if (k < count) {
      if (Status s = copy_piece(k); is_error(s)) return s;
    }
    if (k >= 1 && k <= count) {
      if (Status s = combine_share(k - 1); is_error(s)) return s;
    }
    for (uint32_t i = 0; k >= 2 && reads && i < what_.size; ++i) {
      const uint32_t rank = (what_.rank + i) % what_.size;
      const Block taken = share(k - 2, rank);
      if (Status s =
              give((k - 2) * piece + taken.offset, area_.part(rank, first + k - 2, Room::large) + taken.offset, taken.length);
          is_error(s))
        return s;
    }
    if (k <= count) area_.publish();  // two steps behind what has just been read
  }
  return TW_OK;
}

Status DirectRun::combine_by_groups(uint32_t each) {
  const uint64_t bytes = what_.kind == CollectiveKind::barrier ? 0 : what_.bytes();
  const Room room = DirectArea::room_for(bytes);
  const uint32_t first = what_.rank / each * each, here = std::min(each, what_.size - first);
  const auto begin = [&](std::byte** to, uint64_t* step) {
    *step = area_.next();
    const Status s = area_.reserve(room);
    *to = area_.part(what_.rank, *step, room);
    return s;
  };
  std::byte* to = nullptr;
  uint64_t step = 0;
  if (Status s = begin(&to, &step); is_error(s)) return s;
  if (Status s = take(to, 0, bytes); is_error(s)) return s;
  area_.publish();
  for (uint32_t i = 0; i < here; ++i) {
    if (Status s = area_.await(first + i, step); is_error(s)) return s;
    sources_[i] = reinterpret_cast<uint64_t>(area_.part(first + i, step, room));
  }
  if (Status s = begin(&to, &step); is_error(s)) return s;
  if (bytes != 0) {
    if (Status s = combine(to, here, bytes, false); is_error(s)) return s;
  }
  area_.publish();
  const uint32_t groups = (what_.size + each - 1) / each;
  for (uint32_t group = 0; group < groups; ++group) {
    const uint32_t members = std::min(each, what_.size - group * each);
    const uint32_t rank = group * each + std::min(what_.rank - first, members - 1);  // each of its members has the result
    if (Status s = area_.await(rank, step); is_error(s)) return s;
    sources_[group] = reinterpret_cast<uint64_t>(area_.part(rank, step, room));
  }
  return combine_out(0, groups, bytes);
}

Status DirectRun::reduce_scatter() {
  const uint64_t* const counts = what_.recv_counts;
  uint64_t longest = 0, before = 0, own_offset = 0;
  std::array<Block, DirectArea::kMostRanks> blocks;
  for (uint32_t rank = 0; rank < what_.size; ++rank) {
    blocks[rank] = {before, counts != nullptr ? counts[rank] * what_.element : what_.bytes()};
    if (rank == what_.rank) own_offset = before;
    before += blocks[rank].length;
    longest = std::max(longest, blocks[rank].length);
  }
  const Room room = DirectArea::room_for(longest * what_.size);
  const uint64_t piece = room != Room::large ? longest : piece_of(what_.size);
  const bool own_copied = what_.in_place || task_.bound.input.on_device;  // the result may overwrite it
  const auto fill = [&](uint64_t k, std::byte* to) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      if (rank == what_.rank && !own_copied) continue;
      if (Status s = take(to + rank * piece, blocks[rank].offset + k * piece, piece_at(blocks[rank].length, k * piece, piece));
          is_error(s))
        return s;
    }
    return Status{TW_OK};
  };
  const auto drain = [&](uint64_t k, uint64_t step) {
    const uint64_t length = piece_at(blocks[what_.rank].length, k * piece, piece);
    if (length == 0) return Status{TW_OK};
    for (uint32_t rank = 0; rank < what_.size; ++rank)
      sources_[rank] = reinterpret_cast<uint64_t>(area_.part(rank, step, room) + what_.rank * piece);
    if (!own_copied) sources_[what_.rank] = reinterpret_cast<uint64_t>(task_.bound.input.address + own_offset + k * piece);
    return combine_out(k * piece, what_.size, length);
  };
  return steps(piece == 0 ? 1 : steps_for(longest, piece), kAll, room, fill, drain);
}

}  // namespace thalweg::impl
