// SPDX-License-Identifier: Apache-2.0
// The bounded cache of imported segments.
#include "transports/shm/imports.hpp"

namespace thalweg::impl::shm {

ImportCache::~ImportCache() = default;

Mapping* ImportCache::find(uint64_t link, uint64_t segment) {
  // The last one asked for is at the front: the common case is one compare.
  if (!entries_.empty() && entries_.front().segment == segment && entries_.front().link == link)
    return &entries_.front().mapping;
  const auto found = index_.find({link, segment});
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->mapping;
}

Mapping* ImportCache::insert(uint64_t link, uint64_t segment, Segment&& memory) {
  if (Mapping* there = find(link, segment)) return there;
  Entry& entry = entries_.emplace_front();
  entry.link = link;
  entry.segment = segment;
  entry.memory = std::move(memory);
  entry.memory.close_fd();
  entry.mapping.address = entry.memory.data();
  entry.mapping.length = entry.memory.size();
  index_[{link, segment}] = entries_.begin();
  bytes_ += entry.memory.size();
  return &entry.mapping;
}

void ImportCache::revoke(uint64_t link, uint64_t segment) {
  const auto found = index_.find({link, segment});
  if (found == index_.end()) return;
  bytes_ -= found->second->memory.size();
  found->second->mapping.revoked = true;
  revoked_.splice(revoked_.begin(), entries_, found->second);
  index_.erase(found);
}

void ImportCache::revoke_all(uint64_t link) {
  for (auto at = index_.lower_bound({link, 0}); at != index_.end() && at->first.first == link;) {
    const uint64_t segment = at->first.second;
    ++at;
    revoke(link, segment);
  }
}

void ImportCache::trim() {
  revoked_.remove_if([](const Entry& entry) { return entry.mapping.users == 0; });
  for (auto at = entries_.end(); at != entries_.begin() && (entries_.size() > kMaxCount || bytes_ > kMaxBytes);) {
    --at;
    // The newest stays: somebody is about to use it.
    if (at->mapping.users != 0 || at == entries_.begin()) continue;
    bytes_ -= at->memory.size();
    index_.erase({at->link, at->segment});
    at = entries_.erase(at);
  }
}

}  // namespace thalweg::impl::shm
