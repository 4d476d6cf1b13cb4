// SPDX-License-Identifier: Apache-2.0
// The reduction of a part of a block by all threads of a block: from places of several ranks, into one or all of them.
//
// Places: source(rank), target(i): addresses; targets(): how many.
#pragma once
#include "devices/program/exchange_fold.hpp"

namespace thalweg::device {

/// kAtOnce: ranks' words under way together; 1: and the next one's. Called functions are of that, because each has a room of its own for
/// its words in the kernel's frame: with two, 1.8 KB a thread. What is more than the 1 KiB that a context has for each makes the first
/// launch wait until the device is idle.
template <class M, class Elements, class Places, u32 kAtOnce>
struct ReducePlaces {
  M m;
  Places places;
  u32 rank, size;  // of the thread
  u32 count;       // sources: of the first ranks
  u64 bytes;
  typename Elements::Last last;

  template <class Element, ReduceOp Op>
  THALWEG_DEVICE int run() const {
    using Stored = typename Element::Stored;
    if constexpr (M::whole_runs) {
      for (u64 at = 0; at < bytes; at += kBatch * sizeof(Stored)) {
        const u64 left = (bytes - at) / sizeof(Stored);
        one_run<Element, Op>(at, left < kBatch ? static_cast<u32>(left) : kBatch);
      }
    } else {
      const u64 whole = alignment() % sizeof(Word16) == 0 ? bytes / sizeof(Word16) : 0;
      words<Element, Op, Word16>(0, whole);
      words<Element, Op, Stored>(whole * sizeof(Word16) / sizeof(Stored), bytes / sizeof(Stored));
    }
    return 0;
  }

 private:
  template <class Word>
  THALWEG_DEVICE Word read(u32 from, u64 offset) const {
    return m.read(reinterpret_cast<const Word*>(places.source(from) + offset));
  }
  template <class Word>
  THALWEG_DEVICE void write(u64 offset, Word word) const {
    THALWEG_ROLLED
    for (u32 i = 0; i < places.targets(); ++i) m.write(reinterpret_cast<Word*>(places.target(i) + offset), word);
  }
  THALWEG_DEVICE u64 alignment() const {
    u64 all = 0;
    THALWEG_ROLLED
    for (u32 from = 0; from < count; ++from) all |= places.source(from);
    THALWEG_ROLLED
    for (u32 i = 0; i < places.targets(); ++i) all |= places.target(i);
    return all;
  }

  template <class Element, ReduceOp Op, class Word>
  THALWEG_DEVICE void words(u64 first, u64 end) const {
    THALWEG_ROLLED
    for (u64 at = first + rank; at < end; at += size) {
      const u64 offset = at * sizeof(Word);
      if constexpr (kAtOnce > 1)
        write(offset, together<Folded<Element, Op, Word>, Word>(offset));
      else
        write(offset, one_ahead<Folded<Element, Op, Word>, Word>(offset));
    }
  }
  template <class Sum, class Word>
  THALWEG_DEVICE Word together(u64 offset) const {
    Word held[kAtOnce];
    THALWEG_UNROLL
    for (u32 i = 0; i < kAtOnce; ++i) {
      if (i < count) held[i] = read<Word>(i, offset);
    }
    Sum sum(held[0]);
    THALWEG_UNROLL
    for (u32 i = 1; i < kAtOnce; ++i) {
      if (i < count) sum.take(held[i]);
    }
    THALWEG_ROLLED
    for (u32 base = kAtOnce; base < count; base += kAtOnce) {
      THALWEG_UNROLL
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (base + i < count) held[i] = read<Word>(base + i, offset);
      }
      THALWEG_UNROLL
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (base + i < count) sum.take(held[i]);
      }
    }
    return sum.result(last);
  }
  template <class Sum, class Word>
  THALWEG_DEVICE Word one_ahead(u64 offset) const {
    Sum sum(read<Word>(0, offset));
    Word next = count > 1 ? read<Word>(1, offset) : Word{};
    THALWEG_ROLLED
    for (u32 from = 1; from < count; ++from) {
      const Word now = next;
      if (from + 1 < count) next = read<Word>(from + 1, offset);
      sum.take(now);
    }
    return sum.result(last);
  }
  /// By one thread that moves whole runs: `number` elements.
  template <class Element, ReduceOp Op>
  THALWEG_DEVICE void one_run(u64 offset, u32 number) const {
    using Stored = typename Element::Stored;
    Stored held[kBatch];
    typename Element::Accumulated sum[kBatch] THALWEG_HOST_ZERO;
    for (u32 from = 0; from < count; ++from) {
      const Stored* const next = m.view(reinterpret_cast<const Stored*>(places.source(from) + offset), number, held);
      for (u32 i = 0; i < number; ++i) {
        const auto wide = Element::widen(next[i]);
        sum[i] = from == 0 ? wide : Apply<Op>::to(sum[i], wide);
      }
    }
    for (u32 to = 0; to < places.targets(); ++to) {
      Stored* const at = reinterpret_cast<Stored*>(places.target(to) + offset);
      Stored* const room = m.room(at, held);
      for (u32 i = 0; i < number; ++i) room[i] = last.template of<Element>(Element::narrow(sum[i]));
      m.put(at, room, number);
    }
  }
};

/// The same by a function for each type and operation, passed by value: what calls it stays in registers.
template <class Element, ReduceOp Op, class Work>
THALWEG_DEVICE_COLD void reduce_called(Work work) {
  work.template run<Element, Op>();
}
template <class Work>
struct CalledReduce {
  Work work;
  template <class Element, ReduceOp Op>
  THALWEG_DEVICE int run() const {
    reduce_called<Element, Op>(work);
    return 0;
  }
};

}  // namespace thalweg::device
