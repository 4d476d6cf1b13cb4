// SPDX-License-Identifier: Apache-2.0
#include "machine/arena.hpp"

namespace perf {

Arena::Arena(tw_context* context, const std::string& place, const Problem& p) : context_(context) {
  uint64_t end = uint64_t{counters} * kLine;
  const auto room = [&](size_t words) {
    const Extent made{end, words * sizeof(u32)};
    end += (made.length + 255) / 256 * 256;
    return made;
  };
  in_ = room(p.in.size());
  edges_ = room(p.edges.size());
  out_ = room(std::max(p.expected.size(), p.pattern == Pattern::compaction ? p.in.size() : 0));
  for (Extent& frontier : frontiers_) frontier = room(p.pattern == Pattern::search ? p.elements : 0);
  tw_memory_options o = TW_MEMORY_OPTIONS_INIT;
  o.place = place.c_str();
  must(tw_memory_allocate(context, end, &o, &memory_), "tw_memory_allocate");
  base_ = static_cast<unsigned char*>(tw_memory_address(memory_));
}

void Arena::release() {
  if (memory_ != nullptr) must(tw_memory_release(memory_), "tw_memory_release");
  memory_ = nullptr;
}

void Arena::write(Extent part, const void* from) {
  if (part.length != 0) must(tw_memory_copy(context_, base_ + part.offset, from, part.length), "tw_memory_copy");
}
void Arena::read(Extent part, void* to) const {
  if (part.length != 0) must(tw_memory_copy(context_, to, base_ + part.offset, part.length), "tw_memory_copy");
}
void Arena::take(const Arena& from, Extent part) { write(part, from.base_ + part.offset); }

void Arena::fill(const Problem& p) {
  write(in_, p.in.data());
  write(edges_, p.edges.data());
  const bool adds = p.out_each == 0 && p.pattern != Pattern::compaction && p.pattern != Pattern::search;
  const std::vector<uint32_t> before(out_.length / sizeof(u32), adds ? 0 : kUnreached);
  write(out_, before.data());
  zero_all();
}

void Arena::zero(Counter counter) {
  const u64 none = 0;
  write({uint64_t{kLine} * counter, sizeof none}, &none);
}

void Arena::zero_all() {
  const unsigned char none[uint64_t{counters} * kLine] = {};
  write({0, sizeof none}, none);
}

uint64_t Arena::read(Counter counter) const {
  u64 value = 0;
  read({uint64_t{kLine} * counter, sizeof value}, &value);
  return value;
}

Collaboration Arena::view(const Problem& p) const {
  Collaboration c{};
  c.pattern = p.pattern;
  c.last_bin = kBins;
  c.last = p.elements;
  c.tile = p.tile;
  c.next = counter_at(next_host);
  c.tiles = counter_at(tiles_host);
  c.found = counter_at(found);
  c.in = words_at(in_.offset);
  c.edges = words_at(edges_.offset);
  c.out = out();
  c.capacity = out_.length / sizeof(u32);
  c.width = p.width;
  c.padded = p.padded;
  return c;
}

std::vector<uint32_t> Arena::output() const {
  std::vector<uint32_t> all(out_.length / sizeof(u32));
  read(out_, all.data());
  return all;
}

Extent Arena::in_part(const Problem& p, uint64_t from, uint64_t to) const {
  return {in_.offset + from * p.in_each * sizeof(u32), (to - from) * p.in_each * sizeof(u32)};
}
Extent Arena::out_words(uint64_t from, uint64_t to) const {
  return {out_.offset + from * sizeof(u32), (to - from) * sizeof(u32)};
}

}  // namespace perf
