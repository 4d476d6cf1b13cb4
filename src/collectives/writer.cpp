// SPDX-License-Identifier: Apache-2.0
#include "collectives/writer.hpp"

#include <algorithm>

namespace thalweg::impl {
namespace {

/// More chunks of a message cost more than they hide.
constexpr uint64_t kMostChunks = 256;

uint64_t total(std::span<const Part> parts) {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.length;
  return sum;
}

}  // namespace

bool adjacent(std::span<const Part> parts, Part* whole) {
  *whole = {};
  for (const Part& part : parts) {
    if (part.length == 0) continue;
    if (whole->length == 0) {
      *whole = part;
    } else if (part.where == whole->where && part.offset == whole->offset + whole->length) {
      whole->length += part.length;
    } else {
      return false;
    }
  }
  return true;
}

Writer::Writer(const Collective& collective, Schedule* schedule, Cut cut)
    : schedule_(schedule), element_(std::max<uint64_t>(collective.element, 1)), truths_(collective.truths) {
  chunk_ = cut == Cut::whole || collective.chunk == 0 ? 0 : std::max(collective.chunk / element_, uint64_t{1}) * element_;
  for (Buffer& each : buffers_) each.emplace(0, Bytes{});
}

template <class Each>
void Writer::each_chunk(uint64_t length, Each&& each) const {
  if (length == 0) return;
  if (chunk_ == 0 || length <= chunk_) return each(0, length);
  const uint64_t chunks = std::min((length + chunk_ - 1) / chunk_, kMostChunks);
  const uint64_t elements = length / element_;
  for (uint64_t i = 0, at = 0; i < chunks; ++i) {
    const uint64_t bytes = (elements / chunks + (i < elements % chunks ? 1 : 0)) * element_;
    each(at, bytes);
    at += bytes;
  }
}

Writer::Buffer::iterator Writer::split(Buffer& buffer, uint64_t at) {
  auto next = buffer.lower_bound(at);
  if (next != buffer.end() && next->first == at) return next;
  return buffer.emplace_hint(next, at, std::prev(next)->second);
}

void Writer::reads(const Part& part) {
  Buffer& bytes = buffer(part);
  const auto last = split(bytes, part.offset + part.length);
  for (auto at = split(bytes, part.offset); at != last; ++at) {
    if (at->second.writer != kNone) after_.push_back(at->second.writer);
    at->second.readers.push_back(steps());
  }
}

void Writer::writes(const Part& part) {
  Buffer& bytes = buffer(part);
  const auto last = split(bytes, part.offset + part.length), first = split(bytes, part.offset);
  for (auto at = first; at != last; ++at) {
    const Bytes& was = at->second;
    if (was.readers.empty() && was.writer != kNone) after_.push_back(was.writer);  // else the readers waited for it
    for (uint32_t reader : was.readers) {
      if (reader != steps()) after_.push_back(reader);
    }
  }
  first->second = Bytes{steps()};
  bytes.erase(std::next(first), last);
}

std::span<const uint32_t> Writer::waits() {
  for (uint32_t i = follow_first_; i < follow_last_; ++i) after_.push_back(i);
  std::ranges::sort(after_);
  after_.erase(std::unique(after_.begin(), after_.end()), after_.end());
  return after_;
}

void Writer::send(uint32_t peer, const Part& from) {
  each_chunk(from.length, [&](uint64_t offset, uint64_t length) {
    const Part chunk = slice(from, offset, length);
    after_.clear();
    reads(chunk);
    schedule_->send(peer, chunk, waits());
  });
}

void Writer::recv(uint32_t peer, const Part& to) {
  each_chunk(to.length, [&](uint64_t offset, uint64_t length) {
    const Part chunk = slice(to, offset, length);
    after_.clear();
    writes(chunk);
    schedule_->recv(peer, chunk, waits());
  });
}

void Writer::copy(const Part& to, const Part& from) {
  if (to == from) return;
  each_chunk(to.length, [&](uint64_t offset, uint64_t length) {
    after_.clear();
    reads(slice(from, offset, length));
    writes(slice(to, offset, length));
    schedule_->copy(slice(to, offset, length), slice(from, offset, length), waits());
  });
}

void Writer::reduce(const Part& to, std::span<const Part> from) {
  if (from.size() == 1 && !truths_) return copy(to, from[0]);
  std::vector<Part> chunks(from.size());
  each_chunk(to.length, [&](uint64_t offset, uint64_t length) {
    after_.clear();
    for (size_t i = 0; i < from.size(); ++i) {
      chunks[i] = slice(from[i], offset, length);
      reads(chunks[i]);
    }
    writes(slice(to, offset, length));
    schedule_->reduce(slice(to, offset, length), chunks, waits());
  });
}

std::vector<Part> Writer::scratch_like(std::span<const Part> like) {
  const Part all = scratch(total(like));
  std::vector<Part> parts;
  uint64_t at = 0;
  for (const Part& part : like) {
    parts.push_back(slice(all, at, part.length));
    at += part.length;
  }
  return parts;
}

void Writer::send(uint32_t peer, std::span<const Part> from) {
  Part whole;
  if (adjacent(from, &whole)) return send(peer, whole);
  const std::vector<Part> packed = scratch_like(from);
  for (size_t i = 0; i < from.size(); ++i) copy(packed[i], from[i]);
  send(peer, Part{Where::scratch, packed[0].offset, total(from)});
}

void Writer::recv(uint32_t peer, std::span<const Part> to) {
  Part whole;
  if (adjacent(to, &whole)) return recv(peer, whole);
  const std::vector<Part> packed = scratch_like(to);
  recv(peer, Part{Where::scratch, packed[0].offset, total(to)});
  for (size_t i = 0; i < to.size(); ++i) copy(to[i], packed[i]);
}

}  // namespace thalweg::impl
