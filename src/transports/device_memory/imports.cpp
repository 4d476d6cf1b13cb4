// SPDX-License-Identifier: Apache-2.0
// The bounded cache of imported device memory.
#include "transports/device_memory/imports.hpp"

#include <algorithm>
#include <utility>

#include "base/cache_counts.hpp"
#include "devices/device.hpp"

namespace thalweg::impl {

DeviceImports::Entries::iterator DeviceImports::look_up(uint64_t link, uint64_t segment, const Device& device) {
  const auto [first, last] = index_.equal_range(segment);
  const auto found = std::find_if(first, last, [&](const auto& item) { return item.second->is(link, segment, device); });
  return found == last ? open_.end() : found->second;
}

Mapping* DeviceImports::find(uint64_t link, uint64_t segment, const Device& device) {
  const std::lock_guard lock(mutex_);
  auto found = open_.begin();
  if (found == open_.end() || !found->is(link, segment, device)) {
    found = look_up(link, segment, device);
    if (!CacheCounts::looked(Cache::device_imports, found != open_.end())) return nullptr;
    open_.splice(open_.begin(), open_, found);
  } else {
    CacheCounts::looked(Cache::device_imports, true);
  }
  pinned_.store(&found->mapping, std::memory_order_relaxed);
  return &found->mapping;
}

void DeviceImports::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

void DeviceImports::insert(Source source, uint64_t link, Device& device, uint64_t address, uint64_t length) {
  const std::lock_guard lock(mutex_);
  const bool there = look_up(link, source.segment, device) != open_.end();
  Entries& entries = there ? closed_ : open_;
  Entry& entry = entries.emplace_front();
  entry.source = std::move(source);
  entry.link = link;
  entry.mapping.length = length;
  entry.mapping.device = &device;
  entry.mapping.device_address = address;
  if (!there) index_.emplace(entry.source.segment, open_.begin());
  evict();
}

void DeviceImports::close_entry(Entries::iterator entry) {
  const auto [first, last] = index_.equal_range(entry->source.segment);
  index_.erase(std::find_if(first, last, [&](const auto& item) { return item.second == entry; }));
  closed_.splice(closed_.begin(), open_, entry);
}

/// The newest stays: it is about to be used.
void DeviceImports::evict() {
  for (auto at = open_.end(); open_.size() > kMaxCount && at != std::next(open_.begin());) {
    const auto entry = std::prev(at);
    if (in_use(*entry))
      at = entry;
    else
      close_entry(entry);
  }
}

template <class Matches>
void DeviceImports::close_if(const Matches& matches, Status why) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : closed_) {
    if (matches(entry)) entry.mapping.revoke(why);
  }
  for (auto at = open_.begin(); at != open_.end();) {
    const auto entry = at++;
    if (!matches(*entry)) continue;
    entry->mapping.revoke(why);
    close_entry(entry);
  }
}

void DeviceImports::close(const Source& source) {
  close_if([&](const Entry& entry) { return entry.source == source; }, TW_ERR_STALE);
}

void DeviceImports::close_link(const DeviceSource& link) {
  close_if([&](const Entry& entry) { return entry.source.link.get() == &link; }, TW_ERR_PEER_LOST);
}

template <class Matches>
bool DeviceImports::any(const Matches& matches) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(open_.begin(), open_.end(), matches) || std::any_of(closed_.begin(), closed_.end(), matches);
}

bool DeviceImports::holds(const Source& source) const {
  return any([&](const Entry& entry) { return entry.source == source; });
}

bool DeviceImports::holds_any(const DeviceSource& link) const {
  return any([&](const Entry& entry) { return entry.source.link.get() == &link; });
}

std::vector<DeviceImports::Source> DeviceImports::take_unused() {
  Entries unused;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = closed_.begin(); at != closed_.end();) {
      const auto entry = at++;
      if (abandoned_ || !in_use(*entry)) unused.splice(unused.begin(), closed_, entry);
    }
  }
  for (const Entry& entry : unused) entry.mapping.device->release_import(entry.mapping.device_address);
  std::vector<Source> gone;
  for (Entry& entry : unused) {
    if (!holds(entry.source) && std::find(gone.begin(), gone.end(), entry.source) == gone.end())
      gone.push_back(std::move(entry.source));
  }
  return gone;
}

void DeviceImports::release_unused() {
  for (const Source& gone : take_unused()) gone.link->import_gone(gone.segment);
}

bool DeviceImports::closing() const {
  const std::lock_guard lock(mutex_);
  return !closed_.empty();
}

size_t DeviceImports::count() const {
  const std::lock_guard lock(mutex_);
  return open_.size() + closed_.size();
}

}  // namespace thalweg::impl
