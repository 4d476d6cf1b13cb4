// SPDX-License-Identifier: Apache-2.0
// Messages of the low-latency (LL) protocol: the flag travels beside the data, in the same store, so that there is no fence to wait for: the fastest way
// for up to some KiB. The room at the receiver is used again and again without being cleared: the flag is the message's
// generation, any number that the room does not hold; fresh memory holds 0; so count 1, 2, 3... (cyclically in 32 bits). What a
// shorter message does not write keeps its old generation: where messages of a room differ in length, one of the longest comes at
// least every 2^32 - 1 generations (or use ll128.hpp, whose generations have 64 bits).
//
//   put_ll(Block(), window, peer, room, values, count, generation);
//   if (!take_ll(Block(), window, room, values, count, generation)) return;  // unpacked
//   if (!await_ll<float>(Block(), window, room, count, generation)) return;  // or in place:
//   const float x = ll_at<float>(window, room, i);
//   put_ll_value(there, x, generation);                                      // up to 12 bytes, by one thread:
//   take_ll_value(window.guard, here, &x, generation);                       // there, here: addresses of rooms
//
// Units of 16 bytes: 12 of data, then the generation. A room for n bytes takes ll_size(n), aligned to 16. Sender and
// receiver may use any thread groups. For more data see ll128.hpp.
//
// Flow: a room holds one message. It may be written again when the receiver has taken and acknowledged it; with two rooms in
// turn, every message may be the answer to the last one.
#pragma once
#include <thalweg/device/window.hpp>

namespace thalweg::device {

constexpr u64 kUnitData = 12;      // bytes of a unit that are data
constexpr u32 kUnitsInFlight = 4;  // that a thread polls together

/// Bytes of a room for a message of so many bytes.
THALWEG_DEVICE u64 ll_size(u64 bytes) { return (bytes + kUnitData - 1) / kUnitData * sizeof(Word16); }

THALWEG_DEVICE u32 unit_generation(Word16 unit) { return static_cast<u32>(unit.high >> 32); }

THALWEG_DEVICE Word16 unit_of(const u32 (&part)[3], u32 generation) {
  return {part[0] | u64{part[1]} << 32, part[2] | u64{generation} << 32};
}
THALWEG_DEVICE void parts_of(Word16 unit, u32 (&part)[3]) {
  part[0] = static_cast<u32>(unit.low);
  part[1] = static_cast<u32>(unit.low >> 32);
  part[2] = static_cast<u32>(unit.high);
}
/// A value as a unit's data.
template <class T>
union UnitValue {
  u32 part[3];
  T value;
};

/// Data that is a number of words of 4 bytes, by its type: no need to check addresses and sizes.
template <class T>
constexpr bool kInWords = sizeof(T) % 4 == 0 && alignof(T) % 4 == 0;

/// Unit `number` of `bytes` from `from`.
template <bool InWords, class M>
THALWEG_DEVICE Word16 make_unit(M m, u64 from, u64 bytes, u32 number, u32 generation) {
  u32 part[3] = {0, 0, 0};
  if constexpr (InWords) {
    const u32 first = number * 3, words = static_cast<u32>(bytes / 4);
    THALWEG_UNROLL
    for (u32 i = 0; i < 3; ++i) {
      if (first + i < words) part[i] = m.read(reinterpret_cast<const u32*>(from) + first + i);
    }
  } else {
    const u64 first = number * kUnitData;
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitData; ++i) {
      if (first + i < bytes) {
        part[i / 4] |= u32{m.read(reinterpret_cast<const unsigned char*>(from) + first + i)} << (i % 4 * 8);
      }
    }
  }
  return unit_of(part, generation);
}

/// The data of unit `number` of `bytes`, to `to`.
template <bool InWords, class M>
THALWEG_DEVICE void open_unit(M m, u64 to, Word16 unit, u64 bytes, u32 number) {
  u32 part[3];
  parts_of(unit, part);
  if constexpr (InWords) {
    const u32 first = number * 3, words = static_cast<u32>(bytes / 4);
    THALWEG_UNROLL
    for (u32 i = 0; i < 3; ++i) {
      if (first + i < words) m.write(reinterpret_cast<u32*>(to) + first + i, part[i]);
    }
  } else {
    const u64 first = number * kUnitData;
    THALWEG_UNROLL
    for (u32 i = 0; i < kUnitData; ++i) {
      const auto byte = static_cast<unsigned char>(part[i / 4] >> (i % 4 * 8));
      if (first + i < bytes) m.write(reinterpret_cast<unsigned char*>(to) + first + i, byte);
    }
  }
}

/// For await(): are a thread's next units of this generation? They are kept. They are `apart` units from each other.
template <class M, u32 InFlight = kUnitsInFlight>
struct UnitsThere {
  M m;
  const Word16* first;
  u32 left, apart;  // units from the first one to the message's end
  u32 generation;
  bool leads;
  Word16* held;
  THALWEG_DEVICE bool asks() const { return leads; }
  THALWEG_DEVICE bool agree(bool any) const { return any; }
  THALWEG_DEVICE bool operator()(u64* found) const {
    bool there = true;
    THALWEG_UNROLL
    for (u32 i = 0; i < InFlight; ++i) {
      if (i == 0 || i * apart < left) held[i] = m.load16(first + i * apart);
    }
    THALWEG_UNROLL
    for (u32 i = 0; i < InFlight; ++i) {
      if ((i != 0 && i * apart >= left) || unit_generation(held[i]) == generation) continue;
      *found = unit_generation(held[i]);
      there = false;
    }
    return there;
  }
};

/// Sends `count` elements to a room, an address: pointer<Word16>(window, rank, offset, ll_size(bytes) / 16). The source
/// may be overwritten by the calling thread when it returns, by others after a barrier. At most 16 GiB.
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE void put_ll(ThreadGroup group, Word16* room, const T* from, u64 count, u32 generation, M m = {}) {
  const u64 bytes = count * sizeof(T);
  const u32 units = static_cast<u32>(ll_size(bytes) / sizeof(Word16));
  THALWEG_ROLLED
  for (u32 unit = group.crew_rank(); unit < units; unit += group.crew_size()) {
    m.store16(room + unit, make_unit<kInWords<T>>(m, reinterpret_cast<u64>(from), bytes, unit, generation));
  }
}
/// The same to the room at `room` of the rank's part. False: as in window.hpp.
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool put_ll(ThreadGroup group, const Window& window, u32 rank, u64 room, const T* from, u64 count,
                           u32 generation, M m = {}) {
  Word16* const to = pointer<Word16>(window, rank, room, ll_size(count * sizeof(T)) / sizeof(Word16), m);
  if (to == nullptr) return false;
  put_ll(group, to, from, count, generation, m);
  return true;
}

/// InFlight units of each thread at a time.
template <u32 InFlight, class ThreadGroup, class Consume, class M>
THALWEG_DEVICE bool each_unit_of(ThreadGroup group, const Guard& guard, const Word16* room, u32 units, u32 generation, u64 what,
                                 Consume consume, M m) {
  const u32 apart = group.crew_size();
  THALWEG_ROLLED
  for (u32 unit = group.crew_rank(); unit < units; unit += apart * InFlight) {
    Word16 held[InFlight] THALWEG_HOST_ZERO;
    const UnitsThere<M, InFlight> there{m, room + unit, units - unit, apart, generation, group.rank() == 0, held};
    if (!await(m, guard, what, generation, there)) return false;
    THALWEG_UNROLL
    for (u32 i = 0; i < InFlight; ++i) {
      if (i == 0 || unit + i * apart < units) consume(unit + i * apart, held[i]);
    }
  }
  return true;
}
/// Waits for all units of a message of `bytes`, and gives each to consume(number of the unit, unit) on some thread. No barrier.
template <class ThreadGroup, class Consume, class M>
THALWEG_DEVICE bool each_unit(ThreadGroup group, const Guard& guard, const Word16* room, u64 bytes, u32 generation, u64 what,
                              Consume consume, M m) {
  const u32 units = static_cast<u32>(ll_size(bytes) / sizeof(Word16));
  if (units <= group.crew_size()) return each_unit_of<1>(group, guard, room, units, generation, what, consume, m);
  return each_unit_of<kUnitsInFlight>(group, guard, room, units, generation, what, consume, m);
}

template <bool InWords, class M>
struct OpenUnits {
  M m;
  u64 to, bytes;
  THALWEG_DEVICE void operator()(u32 number, Word16 unit) const { open_unit<InWords>(m, to, unit, bytes, number); }
};
struct LeaveUnits {
  THALWEG_DEVICE void operator()(u32, Word16) const {}
};

/// Waits for the message of this generation in a room of this rank's own part, and unpacks `count` elements to `to`, where all
/// threads of the group may read them. Of Blocks, each block has some of it only.
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool take_ll(ThreadGroup group, const Guard& guard, const Word16* room, T* to, u64 count, u32 generation,
                            u64 what = 0, M m = {}) {
  const u64 bytes = count * sizeof(T);
  const OpenUnits<kInWords<T>, M> open{m, reinterpret_cast<u64>(to), bytes};
  return group.all(each_unit(group, guard, room, bytes, generation, what, open, m));
}
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool take_ll(ThreadGroup group, const Window& window, u64 room, T* to, u64 count, u32 generation, u64 what = 0,
                            M m = {}) {
  const Word16* const from = pointer<Word16>(window, window.rank, room, ll_size(count * sizeof(T)) / sizeof(Word16), m);
  return from != nullptr && take_ll(group, window.guard, from, to, count, generation, what, m);
}

/// Waits for the message and leaves it where it is, for ll_at().
template <class T, class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE bool await_ll(ThreadGroup group, const Window& window, u64 room, u64 count, u32 generation, u64 what = 0,
                             M m = {}) {
  const u64 bytes = count * sizeof(T);
  const Word16* const from = pointer<Word16>(window, window.rank, room, ll_size(bytes) / sizeof(Word16), m);
  return from != nullptr && group.all(each_unit(group, window.guard, from, bytes, generation, what, LeaveUnits(), m));
}

/// A message of one value of at most 12 bytes, by one thread: nothing is read or written but the unit. The room is an address,
/// as above: found out once, it costs nothing in a loop.
template <class T, class M = DirectMachine>
THALWEG_DEVICE void put_ll_value(Word16* room, T value, u32 generation, M m = {}) {
  static_assert(sizeof(T) <= kUnitData, "a value of more than a unit: use put_ll");
  UnitValue<T> unit{};
  unit.value = value;
  m.store16(room, unit_of(unit.part, generation));
}
template <class T, class M = DirectMachine>
THALWEG_DEVICE bool take_ll_value(const Guard& guard, const Word16* room, T* value, u32 generation, u64 what = 0, M m = {}) {
  Word16 held{};
  if (!await(m, guard, what, generation, UnitsThere<M, 1>{m, room, 1, 1, generation, true, &held})) return false;
  UnitValue<T> unit{};
  parts_of(held, unit.part);
  *value = unit.value;
  return true;
}

/// Element `index` of a message that is there. T: plain data of 1, 2, 4, 6 or 12 bytes, aligned to 4 at most.
template <class T, class M = DirectMachine>
THALWEG_DEVICE T ll_at(const Window& window, u64 room, u64 index, M m = {}) {
  static_assert(kUnitData % sizeof(T) == 0 && alignof(T) <= 4, "an element that does not lie within one unit: use take_ll");
  constexpr u64 in_unit = kUnitData / sizeof(T);
  const u64 offset = room + index / in_unit * sizeof(Word16);
  const u64 from = reach_aligned(window, window.rank, offset, sizeof(Word16), sizeof(Word16), m);
  union {
    u32 part[3];
    T element[in_unit];
  } unit = {{0, 0, 0}};
  if (from == 0) return unit.element[0];
  const Word16 word = m.load16(reinterpret_cast<const Word16*>(from));
  parts_of(word, unit.part);
  return unit.element[index % in_unit];
}

}  // namespace thalweg::device
