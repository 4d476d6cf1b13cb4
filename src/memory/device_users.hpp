// SPDX-License-Identifier: Apache-2.0
// Memory of this process that devices work on for others than its owner: registered memory that is the target of another worker
// of this process, or of a frame, whose worker waits for the device; or the buffer of a message into or out of which the other
// side's device copies. Between processes an import stands for this; within one there are only addresses.
//
// Work enters before it is enqueued and leaves when it is over. To take the memory back, its owner closes it: no work enters
// any more, and work inside is waited for by the words that the device itself writes, so that no progress is needed. A frame's
// has no such word: its thread waits for the device and leaves.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "devices/persistent.hpp"

namespace thalweg::impl {

class DeviceUsers {
 public:
  DeviceUsers() = default;
  ~DeviceUsers();
  DeviceUsers(const DeviceUsers&) = delete;
  DeviceUsers& operator=(const DeviceUsers&) = delete;

  /// The name sent to the other side of a message in this process instead of a pointer; never 0.
  static std::shared_ptr<DeviceUsers> make_named(uint64_t* name);
  static std::shared_ptr<DeviceUsers> find(uint64_t name);  // null: it has ended

  /// Any thread. The number of a piece of work, or 0: closed.
  uint64_t enter();
  /// It is over when *word has reached `value`; the word is good until leave().
  void enqueued(uint64_t number, const uint64_t* word, uint64_t value);
  /// It is over when the persistent kernel has done it, or returned it: what is returned enters again before it is copied otherwise.
  /// Both are good until leave().
  void enqueued(uint64_t number, PersistentCopier* persistent, PersistentCopier::Ticket* ticket);
  void leave(uint64_t number);
  /// True: no work is inside. May be called again.
  bool close();
  /// The same, waited for.
  bool close(const Deadline& deadline);
  /// Waits for the work that is inside now and that a thread is to leave: frames. Others enter meanwhile.
  void await_threads();

 private:
  struct Inside {
    bool over() const;
    bool by_thread() const { return word == nullptr && ticket == nullptr; }
    uint64_t number;
    const uint64_t* word = nullptr;  // without word and ticket only leave() ends it
    uint64_t value = 0;
    PersistentCopier* persistent = nullptr;
    PersistentCopier::Ticket* ticket = nullptr;
  };
  Inside* find_inside(uint64_t number);
  std::mutex mutex_;
  std::vector<Inside> inside_;
  uint64_t last_ = 0, name_ = 0;
  bool closed_ = false;
};

using DeviceUserLists = std::vector<std::shared_ptr<DeviceUsers>>;

/// One piece of work at all memory that it touches.
class DeviceUse {
 public:
  explicit DeviceUse(const DeviceUserLists& lists);
  ~DeviceUse() { leave(); }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;
  bool enter();  // false: one of them is closed, and it is in none
  void enqueued(const uint64_t* word, uint64_t value);
  void enqueued(PersistentCopier& persistent, PersistentCopier::Ticket& ticket);
  void leave();

 private:
  struct Entry {
    std::shared_ptr<DeviceUsers> users;
    uint64_t number = 0;
  };
  std::vector<Entry> lists_;
};

}  // namespace thalweg::impl
