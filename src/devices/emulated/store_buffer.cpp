// SPDX-License-Identifier: Apache-2.0
// Delayed stores, newest first.
#include "devices/emulated/store_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace thalweg::impl::emulated {

constexpr size_t kMost = 512;  // stores that wait: a processor has room for few, and each one is compared with all of them

void StoreBuffer::store(std::byte* to, const std::byte* from, size_t length) {
  overtake(to, length);
  const size_t piece = std::max<size_t>(1, (length + 7) / 8);  // a payload never shows all at once
  for (size_t at = 0; at < length; at += piece) {
    const size_t n = std::min(piece, length - at);
    pending_.push_back({to + at, {from + at, from + at + n}, 0, false});
  }
}

void StoreBuffer::store_word(uint64_t* to, uint64_t value, bool add) {
  auto* const at = reinterpret_cast<std::byte*>(to);
  overtake(at, sizeof value);
  pending_.push_back({at, {}, value, add});
}

void StoreBuffer::load(const std::byte* from, std::byte* to, size_t length) const {
  std::memcpy(to, from, length);
  for (const Pending& one : pending_) {
    const std::byte* const first = std::max<const std::byte*>(from, one.to);
    const std::byte* const last = std::min<const std::byte*>(from + length, one.to + one.bytes.size());
    if (first < last) std::memcpy(to + (first - from), one.bytes.data() + (first - one.to), static_cast<size_t>(last - first));
  }
}

void StoreBuffer::overtake(const std::byte* to, size_t length) {
  if (pending_.size() >= kMost) drain();
  const bool beside = pending_.empty() || to >= last_ || to + length <= first_;  // as rows of a rectangle lie
  first_ = pending_.empty() ? to : std::min(first_, to);
  last_ = pending_.empty() ? to + length : std::max(last_, to + length);
  if (beside) return;
  std::erase_if(pending_, [&](const Pending& one) {
    const size_t bytes = one.bytes.empty() ? sizeof one.value : one.bytes.size();
    if (one.to + bytes <= to || to + length <= one.to) return false;
    show(one);
    return true;
  });
}

void StoreBuffer::show(const Pending& one) {
  auto* const word = reinterpret_cast<uint64_t*>(one.to);
  if (!one.bytes.empty()) {
    std::memcpy(one.to, one.bytes.data(), one.bytes.size());
  } else if (one.add) {
    __atomic_fetch_add(word, one.value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(word, one.value, __ATOMIC_RELEASE);
  }
}

void StoreBuffer::drain() {
  for (; !pending_.empty(); pending_.pop_back()) {
    show(pending_.back());
    if (watcher_) watcher_();
  }
}

}  // namespace thalweg::impl::emulated
