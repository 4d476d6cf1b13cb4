// SPDX-License-Identifier: Apache-2.0
// Packed messages: the flag travels beside the data, in the same store, so that there is no fence to wait for: the fastest way
// for up to some KiB. The room at the receiver is used again and again without being cleared: the flag is the message's
// generation, any number that the room did not hold yet; fresh memory holds 0; so count 1, 2, 3... (cyclically in 32 bits).
//
//   put_packed(Block(), window, peer, room, values, count, generation);
//   if (!take_packed(Block(), window, room, values, count, generation)) return;  // unpacked
//   if (!await_packed<float>(Block(), window, room, count, generation)) return;  // or in place:
//   const float x = packed_at<float>(window, room, i);
//
// Units of 16 bytes: 12 of data, then the generation. A room for n bytes takes packed_size(n), aligned to 16. Sender and
// receiver may use any levels. For more data see packed_lines.hpp.
//
// Flow: a room holds one message. It may be written again when the receiver has taken it and said so; with two rooms used in
// turn, every message may be the answer to the last one.
#pragma once
#include <thalweg/device/window.hpp>

namespace thalweg::device {

constexpr u64 kUnitData = 12;      // bytes of a unit that are data
constexpr u32 kUnitsInFlight = 4;  // that a thread looks at together

/// Bytes of a room for a message of so many bytes.
THALWEG_DEVICE u64 packed_size(u64 bytes) { return (bytes + kUnitData - 1) / kUnitData * sizeof(Word16); }

THALWEG_DEVICE u32 unit_generation(Word16 unit) { return static_cast<u32>(unit.high >> 32); }

/// `bytes` (1 to 12) from anywhere, in a unit.
template <class M>
THALWEG_DEVICE Word16 make_unit(M m, u64 from, u64 bytes, u32 generation) {
  u32 part[3] = {0, 0, 0};
  if (((from | bytes) & 3) == 0) {
    THALWEG_UNROLL
    for (u32 i = 0; i < 3; ++i) {
      if (i * 4 < bytes) part[i] = m.read(reinterpret_cast<const u32*>(from) + i);
    }
  } else {
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitData; ++i) {
      if (i < bytes) part[i / 4] |= u32{m.read(reinterpret_cast<const unsigned char*>(from) + i)} << (i % 4 * 8);
    }
  }
  return {part[0] | u64{part[1]} << 32, part[2] | u64{generation} << 32};
}

/// The first `bytes` of a unit's data, to anywhere.
template <class M>
THALWEG_DEVICE void open_unit(M m, u64 to, Word16 unit, u64 bytes) {
  const u32 part[3] = {static_cast<u32>(unit.low), static_cast<u32>(unit.low >> 32), static_cast<u32>(unit.high)};
  if (((to | bytes) & 3) == 0) {
    THALWEG_UNROLL
    for (u32 i = 0; i < 3; ++i) {
      if (i * 4 < bytes) m.write(reinterpret_cast<u32*>(to) + i, part[i]);
    }
  } else {
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitData; ++i) {
      if (i < bytes) m.write(reinterpret_cast<unsigned char*>(to) + i, static_cast<unsigned char>(part[i / 4] >> (i % 4 * 8)));
    }
  }
}

/// For await(): are up to kUnitsInFlight units of this generation? They are kept.
template <class M>
struct UnitsThere {
  M m;
  const Word16* first;
  u64 apart;  // units
  u32 count, generation;
  Word16* held;
  THALWEG_DEVICE bool agree(bool any) const { return any; }
  THALWEG_DEVICE bool operator()(u64* found) const {
    bool there = true;
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitsInFlight; ++i) {
      if (i < count) held[i] = m.load16(first + i * apart);
    }
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitsInFlight; ++i) {
      if (i >= count || unit_generation(held[i]) == generation) continue;
      *found = unit_generation(held[i]);
      there = false;
    }
    return there;
  }
};

/// Sends `count` elements to the room at `room` of the rank's part. False: as window.hpp says. Returns when the source may be
/// overwritten by the calling thread; others need a barrier.
template <class L, class T, class M = DirectMachine>
THALWEG_DEVICE bool put_packed(L level, const Window& window, u32 rank, u64 room, const T* from, u64 count, u32 generation,
                               M m = {}) {
  const u64 bytes = count * sizeof(T);
  Word16* const to = reinterpret_cast<Word16*>(reach_aligned(window, rank, room, packed_size(bytes), sizeof(Word16), m));
  if (to == nullptr) return false;
  const Part part = level.part(packed_size(bytes));
  for (u64 unit = part.begin / sizeof(Word16) + level.rank(); unit < part.end / sizeof(Word16); unit += level.size()) {
    const u64 left = bytes - unit * kUnitData;
    const u64 source = reinterpret_cast<u64>(from) + unit * kUnitData;
    m.store16(to + unit, make_unit(m, source, left < kUnitData ? left : kUnitData, generation));
  }
  return true;
}

/// Waits for all units of a message of `bytes`, and gives each to consume(number of the unit, unit) on some thread. No barrier.
template <class L, class Consume, class M>
THALWEG_DEVICE bool each_unit(L level, const Window& window, u64 room, u64 bytes, u32 generation, u64 what, Consume consume,
                              M m) {
  const Word16* const from =
      reinterpret_cast<const Word16*>(reach_aligned(window, window.rank, room, packed_size(bytes), sizeof(Word16), m));
  if (from == nullptr) return false;
  const Part part = level.part(packed_size(bytes));
  const u64 end = part.end / sizeof(Word16), apart = level.size();
  for (u64 unit = part.begin / sizeof(Word16) + level.rank(); unit < end; unit += apart * kUnitsInFlight) {
    const u64 left = (end - unit + apart - 1) / apart;
    Word16 held[kUnitsInFlight];
    const u32 count = left < kUnitsInFlight ? static_cast<u32>(left) : kUnitsInFlight;
    if (!await(m, window.guard, what, generation, UnitsThere<M>{m, from + unit, apart, count, generation, held})) return false;
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitsInFlight; ++i) {
      if (i < count) consume(unit + i * apart, held[i]);
    }
  }
  return true;
}

template <class M>
struct OpenUnits {
  M m;
  u64 to, bytes;
  THALWEG_DEVICE void operator()(u64 number, Word16 unit) const {
    const u64 left = bytes - number * kUnitData;
    open_unit(m, to + number * kUnitData, unit, left < kUnitData ? left : kUnitData);
  }
};
struct LeaveUnits {
  THALWEG_DEVICE void operator()(u64, Word16) const {}
};

/// Waits for the message of this generation in the room at `room` of this rank's own part, and unpacks `count` elements to
/// `to`, where all threads of the level may read them. Of Blocks, each block has its own part only.
template <class L, class T, class M = DirectMachine>
THALWEG_DEVICE bool take_packed(L level, const Window& window, u64 room, T* to, u64 count, u32 generation, u64 what = 0,
                                M m = {}) {
  const u64 bytes = count * sizeof(T);
  const OpenUnits<M> open{m, reinterpret_cast<u64>(to), bytes};
  return level.all(each_unit(level, window, room, bytes, generation, what, open, m));
}

/// Waits for the message and leaves it where it is, for packed_at().
template <class T, class L, class M = DirectMachine>
THALWEG_DEVICE bool await_packed(L level, const Window& window, u64 room, u64 count, u32 generation, u64 what = 0, M m = {}) {
  return level.all(each_unit(level, window, room, count * sizeof(T), generation, what, LeaveUnits(), m));
}

/// Element `index` of a message that is there. T: plain data of 1, 2, 4, 6 or 12 bytes, aligned to 4 at most.
template <class T, class M = DirectMachine>
THALWEG_DEVICE T packed_at(const Window& window, u64 room, u64 index, M m = {}) {
  static_assert(kUnitData % sizeof(T) == 0 && alignof(T) <= 4, "an element that does not lie within one unit: use take_packed");
  constexpr u64 in_unit = kUnitData / sizeof(T);
  const u64 offset = room + index / in_unit * sizeof(Word16);
  const u64 from = reach_aligned(window, window.rank, offset, sizeof(Word16), sizeof(Word16), m);
  union {
    u32 part[3];
    T element[in_unit];
  } unit = {{0, 0, 0}};
  if (from == 0) return unit.element[0];
  const Word16 word = m.load16(reinterpret_cast<const Word16*>(from));
  unit.part[0] = static_cast<u32>(word.low);
  unit.part[1] = static_cast<u32>(word.low >> 32);
  unit.part[2] = static_cast<u32>(word.high);
  return unit.element[index % in_unit];
}

}  // namespace thalweg::device
