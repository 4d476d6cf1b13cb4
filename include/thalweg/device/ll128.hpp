// SPDX-License-Identifier: Apache-2.0
// Messages of the low-latency (LL) protocol in whole lines of 128 bytes: 120 of data, then a generation of 8. Eight neighbouring threads of a warp store
// a line by one instruction. That such a line arrives as a whole is no promise of the language: it is what a test found for
// the GPUs and links that docs/kernels.md names. Elsewhere use ll.hpp.
//
// Thread groups: Warp(), Block(), and Blocks() of whole warps. The rest is as in ll.hpp; a room takes ll128_size() bytes,
// aligned to 128; elements have 8 bytes, or data is aligned to 8 and a multiple of it.
#pragma once
#include <thalweg/device/ll.hpp>

namespace thalweg::device {

constexpr u64 kLine = 128, kLineData = 120;  // bytes; of a line, that are data
constexpr u32 kLineWords = 8;
constexpr u32 kLineThreads = machine::kLanes < kLineWords ? machine::kLanes : kLineWords;  // that share a line
constexpr u32 kWordsOfThread = kLineWords / kLineThreads;

THALWEG_DEVICE u64 ll128_size(u64 bytes) { return (bytes + kLineData - 1) / kLineData * kLine; }

/// For await(): is a line of this generation? This thread's words of it are kept.
template <class M>
struct LineThere {
  M m;
  const Word16* line;
  u32 first;  // of this thread's words
  u64 generation;
  Word16* held;
  THALWEG_DEVICE bool asks() const { return true; }
  THALWEG_DEVICE bool agree(bool any) const { return machine::any_neighbour<kLineThreads>(any); }
  THALWEG_DEVICE u64 of_last(u64 flag) const { return machine::from_last_neighbour<kLineThreads>(flag); }
  THALWEG_DEVICE bool operator()(u64* found) const {
    machine::sync_neighbours<kLineThreads>();
    THALWEG_UNROLL
    for (u32 i = kWordsOfThread; i-- > 0;) held[i] = m.load16(line + first + i);  // where one thread has all: the flag first
    *found = of_last(held[kWordsOfThread - 1].high);
    return *found == generation;
  }
};

/// One word of 8 bytes of a message, or 0 past its end.
template <class M>
THALWEG_DEVICE u64 line_half(M m, u64 from, u64 offset, u64 bytes) {
  return offset < bytes ? m.read(reinterpret_cast<const u64*>(from + offset)) : 0;
}

/// Is data (address | bytes) of whole words of 8 bytes, and are blocks that share it of whole warps?
template <class ThreadGroup, class M>
THALWEG_DEVICE bool aligned_data(ThreadGroup group, const Window& window, u64 data, M m) {
  const bool in_step = kLineThreads == 1 || !group.shared() || group.size() % machine::kLanes == 0;
  if (data % 8 == 0 && in_step) return true;
  fail(m, window.guard, kMisaligned, window.rank, 8, data);
  return false;
}

/// As put_ll.
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool put_ll128(ThreadGroup group, const Window& window, u32 rank, u64 room, const T* from, u64 count,
                              u64 generation, M m = {}) {
  static_assert(ThreadGroup::whole_warps, "a line is stored by eight threads: call with Warp(), Block() or Blocks()");
  const u64 bytes = count * sizeof(T), source = reinterpret_cast<u64>(from);
  const u64 to = reach_aligned(window, rank, room, ll128_size(bytes), kLine, m);
  if (to == 0 || !aligned_data(group, window, source | bytes, m)) return false;
  const u32 groups = group.crew_size() / kLineThreads, first = group.rank() % kLineThreads * kWordsOfThread;
  if (group.crew_rank() / kLineThreads >= groups) return true;
  const u64 end = ll128_size(bytes);
  THALWEG_ROLLED
  for (u64 at = group.crew_rank() / kLineThreads * kLine; at < end; at += groups * kLine) {
    Word16 word[kWordsOfThread] THALWEG_HOST_ZERO;
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) {
      const u64 offset = at / kLine * kLineData + (first + i) * sizeof(Word16);
      const bool last = first + i == kLineWords - 1;
      word[i] = {line_half(m, source, offset, bytes), last ? generation : line_half(m, source, offset + 8, bytes)};
    }
    machine::sync_neighbours<kLineThreads>();
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) m.store16(reinterpret_cast<Word16*>(to + at) + first + i, word[i]);
  }
  return true;
}

/// As take_ll.
template <class ThreadGroup, class T, class M = DirectMachine>
THALWEG_DEVICE bool take_ll128(ThreadGroup group, const Window& window, u64 room, T* to, u64 count, u64 generation,
                               u64 what = 0, M m = {}) {
  static_assert(ThreadGroup::whole_warps, "a line is read by eight threads: call with Warp(), Block() or Blocks()");
  const u64 bytes = count * sizeof(T), target = reinterpret_cast<u64>(to);
  const u64 from = reach_aligned(window, window.rank, room, ll128_size(bytes), kLine, m);
  bool ok = from != 0 && aligned_data(group, window, target | bytes, m);
  const u32 groups = group.crew_size() / kLineThreads, first = group.rank() % kLineThreads * kWordsOfThread;
  const u64 end = group.crew_rank() / kLineThreads < groups ? ll128_size(bytes) : 0;
  THALWEG_ROLLED
  for (u64 at = group.crew_rank() / kLineThreads * kLine; ok && at < end; at += groups * kLine) {
    Word16 held[kWordsOfThread] THALWEG_HOST_ZERO;
    const Word16* const line = reinterpret_cast<const Word16*>(from + at);
    ok = await(m, window.guard, what, generation, LineThere<M>{m, line, first, generation, held});
    THALWEG_UNROLL
    for (u32 i = 0; i < kWordsOfThread; ++i) {
      const u64 offset = at / kLine * kLineData + (first + i) * sizeof(Word16);
      if (ok && offset < bytes) m.write(reinterpret_cast<u64*>(target + offset), held[i].low);
      if (ok && offset + 8 < bytes && first + i != kLineWords - 1)
        m.write(reinterpret_cast<u64*>(target + offset + 8), held[i].high);
    }
  }
  return group.all(ok);
}

}  // namespace thalweg::device
