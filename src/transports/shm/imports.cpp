// SPDX-License-Identifier: Apache-2.0
// The bounded cache of imported segments.
#include "transports/shm/imports.hpp"

#include "base/cache_counts.hpp"
#include "memory/pinning.hpp"

namespace thalweg::impl::shm {

Import::~Import() {
  if (mapping.pinned == nullptr && mapping.pinning == nullptr) return;
  release_pinned(std::move(memory), std::move(mapping.pinned), std::move(mapping.pinning));
}

ImportCache::~ImportCache() = default;

Mapping* ImportCache::find(uint64_t link, uint64_t segment) {
  Mapping* const found = look(link, segment);
  CacheCounts::looked(Cache::imports, found != nullptr);
  return found;
}

Mapping* ImportCache::look(uint64_t link, uint64_t segment) {
  // The last one asked for is at the front: the common case is one compare.
  if (entries_.empty() || entries_.front().segment != segment || entries_.front().link != link) {
    const auto found = index_.find({link, segment});
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
  }
  Mapping& mapping = entries_.front().import->mapping;
  return mapping.revoked ? nullptr : &mapping;  // the port's progress takes it out
}

Mapping* ImportCache::insert(uint64_t link, uint64_t segment, std::shared_ptr<Import> import) {
  if (Mapping* there = look(link, segment)) return there;
  revoke(link, segment, TW_ERR_STALE);  // one that is no longer found
  entries_.push_front({link, segment, std::move(import)});
  index_[{link, segment}] = entries_.begin();
  Mapping& mapping = entries_.front().import->mapping;
  bytes_ += mapping.length;
  return &mapping;
}

void ImportCache::revoke(uint64_t link, uint64_t segment, Status why) {
  const auto found = index_.find({link, segment});
  if (found == index_.end()) return;
  Mapping& mapping = found->second->import->mapping;
  bytes_ -= mapping.length;
  mapping.revoke(why);
  revoked_.splice(revoked_.begin(), entries_, found->second);
  index_.erase(found);
}

void ImportCache::revoke_all(uint64_t link, Status why) {
  for (auto at = index_.lower_bound({link, 0}); at != index_.end() && at->first.first == link;) {
    const uint64_t segment = at->first.second;
    ++at;
    revoke(link, segment, why);
  }
}

void ImportCache::trim() {
  revoked_.remove_if([](const Entry& entry) { return entry.import->mapping.users == 0; });
  for (auto at = entries_.end(); at != entries_.begin() && (entries_.size() > kMaxCount || bytes_ > kMaxBytes);) {
    --at;
    // The newest stays: it is about to be used.
    if (at->import->mapping.users != 0 || at == entries_.begin()) continue;
    bytes_ -= at->import->mapping.length;
    index_.erase({at->link, at->segment});
    at = entries_.erase(at);
  }
}

}  // namespace thalweg::impl::shm
