// SPDX-License-Identifier: Apache-2.0
// A copy kernel that stays: it takes commands from pinned host memory and answers there, so a small copy needs no call of the
// driver and no launch. One per device and process, opt-in: it holds a part of a multiprocessor, and synchronising with
// the whole device waits until it ends.
//
// Life: nothing runs at first. A copy that finds no kernel running is refused (TW_AGAIN: take an engine), and the second one
// within `idle_ns` has it launched; what is taken is only ever given to a kernel that runs, so no copy depends on there being room
// for a kernel. The kernel ends by itself when nothing came for idle_ns, or after sixteen times that in any case, so
// it never blocks others for good, nor does it outlive a killed process by more. Commands that it has not done by then are
// returned (poll() returns TW_AGAIN), for their owner to copy otherwise.
//
// Drivers' calls that wait for the device (allocating, freeing, importing, loading) would wait for it too: back ends hold a
// PersistentPause around theirs, which ends all persistent kernels of the process and starts none meanwhile.
//
// Threads: any. One lock for each device, held for a command's few stores, or for a launch.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "devices/device.hpp"
#include "devices/persistent/block.hpp"
#include "devices/persistent/options.hpp"

namespace thalweg::impl {

class PersistentCopier {
 public:
  /// Of a copy that is under way; stays where it is until poll() has answered something else than TW_IN_PROGRESS.
  struct Ticket {
    uint64_t position = 0;
    unsigned blocks = 0;
    std::atomic<bool> returned{false};
  };

  /// The device's, shared by all its holders; the first one's options count. It ends with the last of them.
  static Status open(Device& device, const PersistentOptions& options, std::shared_ptr<PersistentCopier>* out);
  ~PersistentCopier();
  PersistentCopier(const PersistentCopier&) = delete;
  PersistentCopier& operator=(const PersistentCopier&) = delete;

  /// `length` bytes, at most persistent::kLongest, between addresses that kernels of the device may use. TW_OK: taken.
  /// TW_AGAIN: not now, copy otherwise; nothing was started.
  Status copy(uint64_t to, uint64_t from, uint64_t length, Ticket* ticket);
  /// TW_OK: the bytes are copied, visible to all. TW_IN_PROGRESS. TW_AGAIN: returned, none or some of it done.
  Status poll(Ticket& ticket);
  /// The ticket goes, whatever becomes of its copy.
  void forget(const Ticket& ticket);
  /// After long silence: has the kernel's queue failed? An error: it has, and nothing will be finished any more.
  Status ask();
  uint64_t taken();  // copies so far
  unsigned blocks() const { return options_.blocks; }
  const Device& device() const { return device_; }

 private:
  friend class PersistentPause;
  enum class State : uint8_t { none, launched, running, ending };  // of the generation's kernel, as far as the host has seen
  struct Taken {
    Ticket* ticket = nullptr;
    unsigned blocks = 0;
  };
  PersistentCopier(Device& device, const PersistentOptions& options) : device_(device), options_(options) {}
  Status make();
  void catch_up();
  bool ready();
  void launch();
  bool all(const device::u64* words) const;
  uint64_t slowest() const;
  bool done(uint64_t position, unsigned blocks) const;
  void post(const persistent::Command& command);
  void take_back();
  void pause();
  void tell_to_end();

  Device& device_;
  const PersistentOptions options_;
  std::mutex mutex_;  // guards the rest
  std::unique_ptr<Queue> queue_;
  persistent::Shared* shared_ = nullptr;
  State state_ = State::none;
  bool told_ = false;  // this generation's kernel finds the command to end
  unsigned pauses_ = 0;
  Status broken_ = TW_OK;
  std::atomic<uint64_t> generation_{0};
  uint64_t head_ = 0, first_ = 0;  // the next position; where this generation began
  uint64_t asked_at_ = 0;          // when a copy last found no kernel
  Taken taken_[persistent::kSlots];
  uint64_t taken_count_ = 0;
};

/// While it lives, no persistent kernel of the process is started, and those that run end as soon as they have done what they
/// were given. Waits for nothing. Costs a load where there is none.
class PersistentPause {
 public:
  PersistentPause();
  ~PersistentPause();
  PersistentPause(const PersistentPause&) = delete;
  PersistentPause& operator=(const PersistentPause&) = delete;

 private:
  std::vector<std::shared_ptr<PersistentCopier>> held_;
};

}  // namespace thalweg::impl
