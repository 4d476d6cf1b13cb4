// SPDX-License-Identifier: Apache-2.0
// Copies by several threads: thread `rank` of `size` calls with the same arguments and moves its share. No barrier, no fence,
// no flag: the publisher of the data does that afterwards (thread_group.hpp, last). Source and target do not overlap.
//
// Three ways, chosen by what both sides have in common:
//   run    both sides contiguous: words of 16 bytes, several in flight for each thread, whatever the alignment of the source
//   words  short rows: threads take words of the packed order; the largest word that divides blocks, strides and addresses
//   walk   long rows, lists of pieces, odd sizes: groups of M::lanes threads walk along both sides and copy run by run
// On the host one thread moves all: runs, and rows of equal blocks by one loop each.
#pragma once
#include <thalweg/device/side.hpp>
#include <thalweg/device/thread_group.hpp>

namespace thalweg::device {

constexpr u32 kInFlight = 4;  // words that a thread loads before it stores the first

/// `count` words of type W.
template <class W, class M>
THALWEG_DEVICE void copy_words(M m, u32 rank, u32 size, u64 to, u64 from, u64 count) {
  W* target = reinterpret_cast<W*>(to) + rank;
  const W* source = reinterpret_cast<const W*>(from) + rank;
  u64 at = rank;
  const u64 batch = u64{size} * kInFlight;
  THALWEG_ROLLED
  for (; at + batch - size < count; at += batch, source += batch, target += batch) {
    W held[kInFlight];
    THALWEG_UNROLL
    for (u32 i = 0; i < kInFlight; ++i) held[i] = m.read(source + i * size);
    THALWEG_UNROLL
    for (u32 i = 0; i < kInFlight; ++i) m.write(target + i * size, held[i]);
  }
  if (at >= count) return;
  W held[kInFlight] THALWEG_HOST_ZERO;  // the rest: less than a batch for each thread
  THALWEG_UNROLL
  for (u32 i = 0; i < kInFlight; ++i) {
    if (at + i * size < count) held[i] = m.read(source + i * size);
  }
  THALWEG_UNROLL
  for (u32 i = 0; i < kInFlight; ++i) {
    if (at + i * size < count) m.write(target + i * size, held[i]);
  }
}

/// `count` words of 16 bytes to an aligned target, from a source that is aligned to Part only.
template <class Part, class M>
THALWEG_DEVICE void copy_assembled(M m, u32 rank, u32 size, u64 to, u64 from, u64 count) {
  constexpr u32 parts = sizeof(Word16) / sizeof(Part), in_half = parts / 2;
  THALWEG_ROLLED
  for (u64 at = rank; at < count; at += size) {
    const Part* const source = reinterpret_cast<const Part*>(from + at * sizeof(Word16));
    u64 half[2] = {0, 0};
    THALWEG_UNROLL
    for (u32 i = 0; i < parts; ++i) {
      half[i / in_half] |= static_cast<u64>(m.read(source + i)) << (i % in_half * sizeof(Part) * 8);
    }
    m.write(reinterpret_cast<Word16*>(to) + at, Word16{half[0], half[1]});
  }
}

/// `bytes` contiguous ones whose beginning, on either side, or number is odd: bytes to an aligned target, words, bytes.
template <class M>
THALWEG_DEVICE_CALL void copy_odd(M m, u32 rank, u32 size, u64 to, u64 from, u64 bytes) {
  u64 head = (16 - to % 16) % 16;
  if (head > bytes) head = bytes;
  const u64 words = (bytes - head) / 16, tail = head + words * 16;
  copy_words<unsigned char>(m, rank, size, to, from, head);
  copy_words<unsigned char>(m, rank, size, to + tail, from + tail, bytes - tail);
  to += head;
  from += head;
  if (from % 16 == 0) return copy_words<Word16>(m, rank, size, to, from, words);
  if (from % 8 == 0) return copy_assembled<u64>(m, rank, size, to, from, words);
  if (from % 4 == 0) return copy_assembled<u32>(m, rank, size, to, from, words);
  copy_assembled<unsigned char>(m, rank, size, to, from, words);
}

/// `bytes` contiguous ones.
template <class M>
THALWEG_DEVICE void copy_run(M m, u32 rank, u32 size, u64 to, u64 from, u64 bytes) {
  if constexpr (M::whole_runs) {
    if (rank == 0 && bytes > 0) m.copy(to, from, bytes);
  } else {
    const u64 common = to | from | bytes;
    if (common % 16 == 0) return copy_words<Word16>(m, rank, size, to, from, bytes / 16);
    if (common % 8 == 0 && bytes <= 512) return copy_words<u64>(m, rank, size, to, from, bytes / 8);
    copy_odd(m, rank, size, to, from, bytes);
  }
}

/// The packed bytes of `part` in words of type W, which divides all of both sides. Their indices fit 32 bits.
template <class W, class M>
THALWEG_DEVICE void copy_rows(M m, u32 rank, u32 size, const Side& to, const Side& from, Part part) {
  const WordSide target(to, sizeof(W)), source(from, sizeof(W));
  const u32 end = static_cast<u32>(part.end / sizeof(W));
  THALWEG_ROLLED
  for (u32 at = static_cast<u32>(part.begin / sizeof(W)) + rank; at < end; at += size * kInFlight) {
    W held[kInFlight] THALWEG_HOST_ZERO;
    THALWEG_UNROLL
    for (u32 i = 0; i < kInFlight; ++i) {
      if (at + i * size < end) held[i] = m.read(reinterpret_cast<const W*>(source.address(at + i * size)));
    }
    THALWEG_UNROLL
    for (u32 i = 0; i < kInFlight; ++i) {
      if (at + i * size < end) m.write(reinterpret_cast<W*>(target.address(at + i * size)), held[i]);
    }
  }
}

/// The packed bytes of `part`, run by run: each group of M::lanes threads has a share of them.
template <class M>
THALWEG_DEVICE void copy_walk(M m, u32 rank, u32 size, const Side& to, const Side& from, Part part) {
  const u32 width = size < M::lanes ? size : M::lanes;
  const u32 groups = size / width;  // threads of an incomplete group at the end have nothing to do
  if (rank / width >= groups) return;
  const u64 share = ((part.end - part.begin + groups - 1) / groups + 15) / 16 * 16;
  u64 at = part.begin + share * (rank / width);
  if (at >= part.end) return;
  const u64 end = part.end - at < share ? part.end : at + share;
  Cursor<M> target(m, to, at), source(m, from, at);
  while (at < end) {
    u64 run = end - at;
    if (target.left < run) run = target.left;
    if (source.left < run) run = source.left;
    copy_run(m, rank % width, width, target.address, source.address, run);
    at += run;
    target.advance(run);
    source.advance(run);
  }
}

/// `rows` blocks of type W, `to_step` and `from_step` bytes apart.
template <class W, class M>
THALWEG_DEVICE void copy_column(M m, u64 to, u64 to_step, u64 from, u64 from_step, u64 rows) {
  for (u64 i = 0; i < rows; ++i) {
    m.write(reinterpret_cast<W*>(to + i * to_step), m.read(reinterpret_cast<const W*>(from + i * from_step)));
  }
}

template <class M>
THALWEG_DEVICE void copy_blocks(M m, u64 block, u64 to, u64 to_step, u64 from, u64 from_step, u64 rows) {
  if (block == sizeof(Word16)) return copy_column<Word16>(m, to, to_step, from, from_step, rows);
  if (block == sizeof(u64)) return copy_column<u64>(m, to, to_step, from, from_step, rows);
  if (block == sizeof(u32)) return copy_column<u32>(m, to, to_step, from, from_step, rows);
  if (block == 1) return copy_column<unsigned char>(m, to, to_step, from, from_step, rows);
  for (u64 i = 0; i < rows; ++i) m.copy(to + i * to_step, from + i * from_step, block);
}

/// By one thread of a machine that moves whole runs: as many rows of equal blocks at a time as both sides have ahead.
template <class M>
THALWEG_DEVICE void copy_whole(M m, const Side& to, const Side& from, Part part) {
  if (part.begin >= part.end) return;  // an empty layout has no blocks
  Cursor<M> target(m, to, part.begin), source(m, from, part.begin);
  for (u64 at = part.begin; at < part.end;) {
    const u64 most = part.end - at;
    u64 run = target.left < source.left ? target.left : source.left;
    if (run == 0) {  // a piece of a list may be empty
      target.advance(0);
      source.advance(0);
      continue;
    }
    if (run >= most) return m.copy(target.address, source.address, most);
    u64 to_step = run, from_step = run, rows = target.rows(run, &to_step);
    if (const u64 there = source.rows(run, &from_step); there < rows) rows = there;
    if (rows > most / run) rows = most / run;
    copy_blocks(m, run, target.address, to_step, source.address, from_step, rows);
    target.skip(rows * run);
    source.skip(rows * run);
    at += rows * run;
  }
}

/// Sides by value: a reference would keep them in memory also where they are not needed.
template <class M>
THALWEG_DEVICE_CALL void copy_sides(M m, u32 rank, u32 size, Side to, Side from, u64 bytes, Part part) {
  if constexpr (M::whole_runs) {
    if (rank == 0) copy_whole(m, to, from, part);
  } else {
    const u64 word = common_word(to, from, bytes);
    if (word == 0) return copy_walk(m, rank, size, to, from, part);
    if (word == 16) return copy_rows<Word16>(m, rank, size, to, from, part);
    if (word == 8) return copy_rows<u64>(m, rank, size, to, from, part);
    if (word == 4) return copy_rows<u32>(m, rank, size, to, from, part);
    copy_rows<unsigned char>(m, rank, size, to, from, part);
  }
}

/// The packed bytes of `part` of a transfer of `bytes`. Begin and end of a part are multiples of 16, or the transfer's end.
template <class M>
THALWEG_DEVICE void copy_part(M m, u32 rank, u32 size, const Side& to, const Side& from, u64 bytes, Part part) {
  if (contiguous(to) && contiguous(from)) {
    copy_run(m, rank, size, to.base + part.begin, from.base + part.begin, part.end - part.begin);
  } else {
    copy_sides(m, rank, size, to, from, bytes, part);
  }
}

/// A whole transfer, by everyone of a thread group.
template <class ThreadGroup, class M = DirectMachine>
THALWEG_DEVICE void copy(ThreadGroup group, const Side& to, const Side& from, u64 bytes, M m = {}) {
  copy_part(m, group.crew_rank(), group.crew_size(), to, from, bytes, {0, bytes});
}

}  // namespace thalweg::device
