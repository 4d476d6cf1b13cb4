// SPDX-License-Identifier: Apache-2.0
// Device memory of peers, imported here: by link, the segment's name and the device that reaches it. Bounded,
// least recently used first out.
//
// The progress owner finds and uses; the service thread inserts, closes and releases, since drivers may block. So a release
// that the memory's owner waits for needs no progress here, unless work is under way: an entry is released when it is closed
// (its owner took it back, its link ended, or it was evicted) and nobody counts in Mapping.users, nor was it the last one found
// since the progress owner last unpinned. The mutex is never held over a driver's call.
#pragma once
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transports/transport.hpp"

namespace thalweg::impl {

/// The end of a link over which segments came: what its transport makes of it. Service thread.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;
  /// The last import of a segment that came so was released.
  virtual void import_gone(uint64_t segment) = 0;
};

class DeviceImports {
 public:
  static constexpr size_t kMaxCount = 1024;

  /// Through which link a segment came.
  struct Source {
    std::shared_ptr<DeviceSource> link;
    uint64_t segment = 0;
    bool operator==(const Source&) const = default;
  };

  // ---- progress owner
  /// The mapping is pinned until unpin() or the next find.
  Mapping* find(uint64_t link, uint64_t segment, const Device& device);
  void unpin() {
    if (pinned_.load(std::memory_order_relaxed) != nullptr) pinned_.store(nullptr, std::memory_order_release);
  }
  /// Nobody uses anything any more: the port ends.
  void abandon();

  // ---- service thread
  /// What device.import_memory() gave; released by release_unused(). A second one of the same memory is released next time.
  void insert(Source source, uint64_t link, Device& device, uint64_t address, uint64_t length);
  void close(const Source& source);           // its owner takes it back
  void close_link(const DeviceSource& link);  // ... or is lost
  bool holds(const Source& source) const;
  bool holds_any(const DeviceSource& link) const;
  /// Releases what is closed and unused, and tells the sources of which nothing is left.
  void release_unused();
  bool closing() const;  // something is closed and still used: call release_unused() again
  size_t count() const;
  bool looking_again = false;  // service thread: a timer for what is closed and still used

 private:
  struct Entry {
    Source source;
    uint64_t link = 0;
    Mapping mapping;
    bool is(uint64_t of, uint64_t segment, const Device& device) const {
      return source.segment == segment && mapping.device == &device && link == of;
    }
  };
  using Entries = std::list<Entry>;
  /// The pin is looked at first: who takes it away has counted itself in users before.
  bool in_use(const Entry& entry) const { return pinned_.load() == &entry.mapping || entry.mapping.users.load() != 0; }
  Entries::iterator look_up(uint64_t link, uint64_t segment, const Device& device);
  void close_entry(Entries::iterator entry);
  template <class Matches>
  void close_if(const Matches& matches, Status why);
  template <class Matches>
  bool any(const Matches& matches) const;
  void evict();
  std::vector<Source> take_unused();

  mutable std::mutex mutex_;
  Entries open_;  // most recently used first
  Entries closed_;
  std::unordered_multimap<uint64_t, Entries::iterator> index_;  // of open_, by segment
  std::atomic<const Mapping*> pinned_{nullptr};                 // set under the mutex
  bool abandoned_ = false;
};

}  // namespace thalweg::impl
