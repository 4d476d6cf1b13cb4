// SPDX-License-Identifier: Apache-2.0
// Segments of peers mapped here, by the link that they came over and the segment's id. Bounded by count and bytes: least
// recently used first out, among those with Mapping.users 0. The cache is the progress owner's.
//
// An Import is made by the service thread, which keeps a weak pointer: it revokes the mapping itself when the owner releases
// the memory or is lost, because a worker that only stores into mapped memory never progresses. The progress owner takes it
// out of the cache and unmaps it later.
//
// A Mapping that import() returned with users == 0 stays valid until the next call of progress().
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "memory/segment.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::shm {

struct Import {
  explicit Import(Segment&& of) : memory(std::move(of)) {
    memory.close_fd();
    mapping.address = memory.data();
    mapping.length = memory.size();
  }
  ~Import();
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;
  Segment memory;
  Mapping mapping;
};

class ImportCache {
 public:
  static constexpr size_t kMaxCount = 1024;
  static constexpr uint64_t kMaxBytes = uint64_t(64) << 30;  // of address space; the memory is the owner's

  ~ImportCache();
  Mapping* find(uint64_t link, uint64_t segment);  // null: not here, or revoked
  Mapping* insert(uint64_t link, uint64_t segment, std::shared_ptr<Import> import);
  /// The owner released it: no longer found, unmapped when unused.
  void revoke(uint64_t link, uint64_t segment, Status why);
  void revoke_all(uint64_t link, Status why);
  /// Unmaps what is over the limits or revoked, and unused.
  void trim();
  bool wants_trim() const { return !revoked_.empty(); }
  size_t count() const { return entries_.size(); }

 private:
  Mapping* look(uint64_t link, uint64_t segment);
  struct Entry {
    uint64_t link = 0, segment = 0;
    std::shared_ptr<Import> import;
  };
  using Entries = std::list<Entry>;  // most recently used first
  Entries entries_;
  std::map<std::pair<uint64_t, uint64_t>, Entries::iterator> index_;
  Entries revoked_;
  uint64_t bytes_ = 0;
};

}  // namespace thalweg::impl::shm
