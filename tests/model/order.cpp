// SPDX-License-Identifier: Apache-2.0
#include "model/order.hpp"

#include <algorithm>
#include <cstdio>

namespace thalweg::model {
namespace {

std::byte shown(const Order::Write& write, uint64_t at) {
  const uint64_t position = at + static_cast<uint64_t>(write.shift);
  return pattern(write.access == nullptr ? 0 : write.access->id, position);
}

bool all_shown(const Order::Write& write, uint64_t begin, uint64_t end, const std::byte* bytes) {
  for (uint64_t at = begin; at < end; ++at) {
    if (bytes[at - begin] != shown(write, at)) return false;
  }
  return true;
}

}  // namespace

/// Does `first` come before `second` in every order that is allowed?
bool Order::precedes(const Write& first, const Write& second) {
  if (second.access == nullptr) return false;
  if (first.access == nullptr) return true;
  if (first.sure != 0 && first.sure < second.access->posted) return true;
  return first.access->endpoint == second.access->endpoint && first.access->epoch < second.access->epoch;
}

size_t Order::split(uint64_t at) {
  size_t i = 0;
  while (i < cells_.size() && cells_[i].end <= at) ++i;
  if (i == cells_.size() || cells_[i].begin == at) return i;
  Cell behind = cells_[i];
  cells_[i].end = behind.begin = at;
  cells_.insert(cells_.begin() + static_cast<std::ptrdiff_t>(i + 1), std::move(behind));
  return i + 1;
}

void Order::write(uint64_t begin, uint64_t end, const Access& access, int64_t shift) {
  if (begin == end) return;
  const size_t first = split(begin), last = split(end);
  for (size_t i = first; i < last; ++i) {
    std::vector<Write>& writes = cells_[i].writes;
    if (writes.size() > 8)
      std::erase_if(writes, [&access](const Write& w) { return w.gone != 0 && w.gone + 4000 < access.posted; });
    writes.push_back({&access, shift, 0, 0});
  }
}

void Order::settle(Cell& cell, Write& write, uint32_t now) {
  if (write.sure != 0) return;
  write.sure = now;
  for (Write& other : cell.writes) {
    if (&other != &write && other.gone == 0 && precedes(other, write)) other.gone = now;
  }
}

void Order::sure(uint64_t begin, uint64_t end, const Access& access, uint32_t now) {
  if (begin == end) return;
  const size_t first = split(begin), last = split(end);
  for (size_t i = first; i < last; ++i) {
    for (Write& one : cells_[i].writes) {
      if (one.access == &access) settle(cells_[i], one, now);
    }
  }
}

void Order::forget(uint64_t begin, uint64_t end, const Access& access) {
  for (Cell& cell : cells_) {
    if (cell.begin >= end || cell.end <= begin) continue;
    std::erase_if(cell.writes, [&access](const Write& one) { return one.access == &access; });
  }
}

bool Order::allowed(const Cell& cell, const Write& write, const Access* reader, uint32_t since) const {
  if (write.gone != 0 && write.gone <= since) return false;
  if (reader == nullptr) return true;
  const bool same = write.access != nullptr && write.access->endpoint == reader->endpoint;
  if (same && write.access->epoch > reader->epoch) return false;  // the read comes before it
  // Is something between it and the read?
  for (const Write& other : cell.writes) {
    const bool before = other.access != nullptr && other.access->endpoint == reader->endpoint &&
                        other.access->epoch < reader->epoch && other.sure != 0;
    if (before && &other != &write && precedes(write, other)) return false;
  }
  return true;
}

bool Order::check(uint64_t begin, uint64_t end, const std::byte* bytes, const Access* reader, uint32_t since, uint32_t now,
                  std::vector<const Access*>* seen, std::string* why) {
  for (Cell& cell : cells_) {
    const uint64_t from = std::max(begin, cell.begin), to = std::min(end, cell.end);
    if (from >= to) continue;
    Write* only = nullptr;
    unsigned matching = 0;
    std::vector<Write*> may;
    for (Write& one : cell.writes) {
      if (!allowed(cell, one, reader, since)) continue;
      may.push_back(&one);
      if (!all_shown(one, from, to, bytes + (from - begin))) continue;
      ++matching;
      only = &one;
    }
    if (matching == 0) {  // parts of several, perhaps
      for (uint64_t at = from; at < to; ++at) {
        const std::byte byte = bytes[at - begin];
        if (std::any_of(may.begin(), may.end(), [&](const Write* one) { return shown(*one, at) == byte; })) continue;
        char text[200];
        std::string who;
        for (const Write& one : cell.writes) {
          if (shown(one, at) == byte) who += " " + std::to_string(one.access == nullptr ? 0 : one.access->id);
        }
        std::snprintf(text, sizeof text, "byte %llu is 0x%02x, which%s%s; allowed are", static_cast<unsigned long long>(at),
                      std::to_integer<unsigned>(byte), who.empty() ? " nobody wrote" : " is of operation", who.c_str());
        *why = text;
        for (const Write* one : may) *why += " " + std::to_string(one->access == nullptr ? 0 : one->access->id);
        return false;
      }
    } else if (matching == 1 && only->access != nullptr && to - from >= 4 && from == cell.begin && to == cell.end) {
      if (only->sure == 0 && only->gone == 0) {
        settle(cell, *only, now);
        seen->push_back(only->access);
      }
    }
  }
  return true;
}

}  // namespace thalweg::model
