// SPDX-License-Identifier: Apache-2.0
// Kinds that combine nothing: each block is copied into a part by its sender, and from there by its receivers.
#include <algorithm>
#include <cstring>

#include "collectives/direct_steps.hpp"
#include "collectives/group_wire.hpp"

namespace thalweg::impl {
namespace {

uint64_t steps_for(uint64_t bytes, uint64_t piece) { return std::max<uint64_t>(1, (bytes + piece - 1) / piece); }

}  // namespace

Status DirectRun::broadcast() {
  const uint64_t bytes = what_.bytes(), piece = piece_of(1, kPiece);
  const bool root = what_.rank == what_.root;
  const Room room = DirectArea::room_for(bytes);
  const auto fill = [&](uint64_t k, std::byte* to) {
    return root ? take(to, k * piece, piece_at(bytes, k * piece, piece)) : Status{TW_OK};
  };
  const auto drain = [&](uint64_t k, uint64_t step) {
    return give(k * piece, area_.part(what_.root, step, room), piece_at(bytes, k * piece, piece));
  };
  return steps(steps_for(bytes, piece), root ? kNoRank : what_.root, room, fill, drain);
}

Status DirectRun::allgather() {
  uint64_t longest = 0;
  for (uint32_t rank = 0; rank < what_.size; ++rank) longest = std::max(longest, output_block(rank).length);
  const uint64_t piece = piece_of(1, kPiece), own_bytes = output_block(what_.rank).length;
  const Room room = DirectArea::room_for(longest);
  const auto fill = [&](uint64_t k, std::byte* to) { return take(to, k * piece, piece_at(own_bytes, k * piece, piece)); };
  const auto drain = [&](uint64_t k, uint64_t step) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      const Block block = output_block(rank);
      if (rank == what_.rank && what_.in_place) continue;
      if (Status s = give(block.offset + k * piece, area_.part(rank, step, room), piece_at(block.length, k * piece, piece));
          is_error(s))
        return s;
    }
    return Status{TW_OK};
  };
  return steps(steps_for(longest, piece), kAll, room, fill, drain);
}

Status DirectRun::gather() {
  uint64_t longest = what_.bytes();
  const bool root = what_.rank == what_.root;
  if (what_.counts_at_root) {
    std::array<uint64_t, DirectArea::kMostRanks> sent;
    const uint64_t own = root ? output_block(what_.rank).length : what_.bytes();
    if (Status s = agree_on_most(own, &longest, &sent); is_error(s)) return s;
    for (uint32_t rank = 0; rank < what_.size && root; ++rank) {
      if (sent[rank] != output_block(rank).length) return refuse_length(rank, sent[rank], output_block(rank).length);
    }
  }
  const uint64_t piece = piece_of(1, kPiece), own_bytes = root ? output_block(what_.rank).length : what_.bytes();
  const Room room = DirectArea::room_for(longest);
  const auto fill = [&](uint64_t k, std::byte* to) {
    return root ? Status{TW_OK} : take(to, k * piece, piece_at(own_bytes, k * piece, piece));
  };
  const auto drain = [&](uint64_t k, uint64_t step) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      const Block block = output_block(rank);
      if (rank == what_.rank) continue;
      if (Status s = give(block.offset + k * piece, area_.part(rank, step, room), piece_at(block.length, k * piece, piece));
          is_error(s))
        return s;
    }
    return Status{TW_OK};
  };
  if (root && !what_.in_place) {
    if (Status s = move_own(output_block(what_.rank).offset, 0, own_bytes); is_error(s)) return s;
  }
  return steps(steps_for(longest, piece), root ? kAll : kNoRank, room, fill, drain);
}

Status DirectRun::scatter() {
  uint64_t longest = what_.bytes();
  const bool root = what_.rank == what_.root;
  if (what_.counts_at_root) {
    std::array<uint64_t, DirectArea::kMostRanks> expected;
    const uint64_t own = root ? input_block(what_.rank).length : what_.bytes();
    if (Status s = agree_on_most(own, &longest, &expected); is_error(s)) return s;
    for (uint32_t rank = 0; rank < what_.size && root; ++rank) {
      if (expected[rank] != input_block(rank).length) return refuse_length(rank, expected[rank], input_block(rank).length);
    }
  }
  const Room room = DirectArea::room_for(longest * what_.size);
  const uint64_t piece = room != Room::large ? longest : piece_of(what_.size), own_bytes = what_.bytes();
  const auto fill = [&](uint64_t k, std::byte* to) {
    for (uint32_t rank = 0; rank < what_.size && root; ++rank) {
      const Block block = input_block(rank);
      if (rank == what_.rank) continue;
      if (Status s = take(to + rank * piece, block.offset + k * piece, piece_at(block.length, k * piece, piece)); is_error(s))
        return s;
    }
    return Status{TW_OK};
  };
  const auto drain = [&](uint64_t k, uint64_t step) {
    return give(k * piece, area_.part(what_.root, step, room) + what_.rank * piece, piece_at(own_bytes, k * piece, piece));
  };
  if (root && !what_.in_place) {
    const Block own_block = input_block(what_.rank);
    if (Status s = move_own(0, own_block.offset, own_block.length); is_error(s)) return s;
  }
  return steps(piece == 0 ? 1 : steps_for(longest, piece), root ? kNoRank : what_.root, room, fill, drain);
}

Status DirectRun::alltoall() {
  uint64_t longest = what_.bytes();
  if (what_.send_counts != nullptr) {
    if (Status s = agree_on_lengths(&longest); is_error(s)) return s;
  }
  if (area_.all_readable() && reading_is_faster(what_.size, longest, costs_)) {
    bool done = false;
    if (Status s = alltoall_by_reading(&done); is_error(s) || done) return s;
  }
  const Room room = DirectArea::room_for(longest * what_.size);
  const uint64_t piece = room != Room::large ? longest : std::min(kBlockPiece, piece_of(what_.size));
  const bool own_moves = !what_.in_place;  // past the part
  const auto fill = [&](uint64_t k, std::byte* to) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      const Block block = what_.in_place ? output_block(rank) : input_block(rank);
      if (rank == what_.rank) continue;
      if (Status s = take(to + rank * piece, block.offset + k * piece, piece_at(block.length, k * piece, piece)); is_error(s))
        return s;
    }
    if (!own_moves) return Status{TW_OK};
    const Block from = input_block(what_.rank), there = output_block(what_.rank);
    return move_own(there.offset + k * piece, from.offset + k * piece, piece_at(from.length, k * piece, piece));
  };
  const auto drain = [&](uint64_t k, uint64_t step) {
    for (uint32_t i = 1; i < what_.size; ++i) {
      const uint32_t rank = (what_.rank + i) % what_.size;  // not all from the same one
      const Block block = output_block(rank);
      if (Status s = give(block.offset + k * piece, area_.part(rank, step, room) + what_.rank * piece,
                          piece_at(block.length, k * piece, piece));
          is_error(s))
        return s;
    }
    return Status{TW_OK};
  };
  return steps(piece == 0 ? 1 : steps_for(longest, piece), kAll, room, fill, drain);
}

/// Where a rank has what another one reads.
struct Readable {
  uint64_t address, length;
};

Status DirectRun::alltoall_by_reading(bool* done) {
  std::array<Readable, DirectArea::kMostRanks> theirs;
  static_assert(sizeof(uint64_t) + sizeof theirs <= DirectArea::kSmall);
  uint64_t all = 0;  // 1: all ranks' buffers can be read
  const auto fill = [&](uint64_t, std::byte* to) {
    all = what_.in_place || task_.bound.input.on_device || task_.bound.output.on_device ? 0 : 1;
    std::memcpy(to, &all, sizeof all);
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      const Block block = input_block(rank);
      const Readable mine{reinterpret_cast<uint64_t>(task_.bound.input.address + block.offset), block.length};
      std::memcpy(to + sizeof all + rank * sizeof mine, &mine, sizeof mine);
    }
    return Status{TW_OK};
  };
  const auto drain = [&](uint64_t, uint64_t step) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      const std::byte* const part = area_.part(rank, step, Room::small);
      uint64_t can = 0;
      std::memcpy(&can, part, sizeof can);
      std::memcpy(&theirs[rank], part + sizeof can + what_.rank * sizeof(Readable), sizeof(Readable));  // once
      all &= can;
    }
    return Status{TW_OK};
  };
  if (Status s = steps(1, kAll, Room::small, fill, drain); is_error(s)) return s;
  *done = all == 1;
  area_.go_on_by(*done ? 1 : 0);
  if (!*done) return TW_OK;
  for (uint32_t i = 1; i < what_.size; ++i) {
    const uint32_t rank = (what_.rank + i) % what_.size;  // not all from the same one
    const Block block = output_block(rank);
    if (theirs[rank].length != block.length) return refuse_length(rank, theirs[rank].length, block.length);
    std::byte* const to = task_.bound.output.address + block.offset;
    if (Status s = area_.read(rank, to, theirs[rank].address, block.length); is_error(s)) return s;
  }
  if (Status s = area_.hear(); is_error(s)) return s;
  const Block own = input_block(what_.rank);
  if (Status s = move_own(output_block(what_.rank).offset, own.offset, own.length); is_error(s)) return s;
  return meet();  // all have read
}

Status DirectRun::move_own(uint64_t to, uint64_t from, uint64_t length) const {
  const Buffer &input = task_.bound.input, &output = task_.bound.output;
  if (length == 0 || input.address + from == output.address + to) return TW_OK;
  if (!input.on_device) return copy_out(to, input.address + from, length);
  return copier_.copy(reinterpret_cast<uint64_t>(output.address + to), reinterpret_cast<uint64_t>(input.address + from),
                      length);
}

/// Each rank tells all others what it sends to them, and all learn the longest.
Status DirectRun::agree_on_lengths(uint64_t* longest) {
  uint64_t own = 0;
  for (uint32_t rank = 0; rank < what_.size; ++rank) own = std::max(own, input_block(rank).length);
  std::array<uint64_t, DirectArea::kMostRanks> lengths;
  const auto fill = [&](uint64_t, std::byte* to) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) lengths[rank] = input_block(rank).length;
    std::memcpy(to, lengths.data(), what_.size * sizeof(uint64_t));
    return Status{TW_OK};
  };
  const auto drain = [&](uint64_t, uint64_t step) {
    for (uint32_t rank = 0; rank < what_.size; ++rank) {
      uint64_t sent = 0;
      std::memcpy(&sent, area_.part(rank, step, Room::small) + what_.rank * sizeof sent, sizeof sent);
      if (sent != output_block(rank).length) return refuse_length(rank, sent, output_block(rank).length);
    }
    return Status{TW_OK};
  };
  if (Status s = steps(1, kAll, Room::small, fill, drain); is_error(s)) return s;
  std::array<uint64_t, DirectArea::kMostRanks> all;
  return agree_on_most(own, longest, &all);
}

}  // namespace thalweg::impl
