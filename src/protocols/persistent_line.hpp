// SPDX-License-Identifier: Apache-2.0
// The copies of one device that its persistent kernel does: small and few. Many copies are batched for a copy engine instead,
// which takes them in one call.
#pragma once
#include <deque>
#include <memory>

#include "devices/persistent.hpp"
#include "protocols/device_queues.hpp"

namespace thalweg::impl {

class PersistentLine {
 public:
  PersistentLine(std::shared_ptr<PersistentCopier> persistent, uint64_t most)
      : persistent_(std::move(persistent)), most_(most) {}
  ~PersistentLine();
  PersistentLine(const PersistentLine&) = delete;
  PersistentLine& operator=(const PersistentLine&) = delete;

  bool has_room() const { return pending_.size() < kDepth && !is_error(broken_); }
  uint64_t most() const { return most_; }
  /// One row of at most most() bytes, while it has room. False: the kernel is gone; nothing was started.
  bool submit(const Copy& copy, DeviceQueues::Done done, void* token, std::shared_ptr<DeviceUse> visit = nullptr);
  /// The next one that is over; TW_AGAIN: it is to be copied otherwise. False: none.
  struct Ended {
    Copy copy;
    DeviceQueues::Done done;
    void* token;
    Status status;
    std::shared_ptr<DeviceUse> visit;  // as given to submit(): inside where it is to be copied otherwise
  };
  bool next(Ended* out);
  /// The same of the copies with this token, whatever is before them: waits.
  bool wait(const void* token, Ended* out);
  bool empty() const { return pending_.empty(); }

 private:
  static constexpr size_t kDepth = 4;
  struct UnderWay {
    PersistentCopier::Ticket ticket;
    Copy copy;
    DeviceQueues::Done done;
    void* token;
    std::shared_ptr<DeviceUse> visit;
    bool taken = false;  // by wait(): its place goes when it is the first
  };
  Status look(UnderWay& one);
  void take(UnderWay& one, Status status, Ended* out);
  const std::shared_ptr<PersistentCopier> persistent_;
  const uint64_t most_;  // bytes; from there on an engine costs less
  std::deque<UnderWay> pending_;
  BreakWatch watch_;
  Status broken_ = TW_OK;
};

}  // namespace thalweg::impl
