// SPDX-License-Identifier: Apache-2.0
// Connection events from the service thread to a worker: a queue whose emptiness test costs progress one relaxed load.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "transports/transport.hpp"

struct tw_connection_request;

namespace thalweg::impl {

/// One event of connection set-up.
struct ConnectionEvent {
  enum class Kind { linked, failed, retry, request, request_gone };
  Kind kind = Kind::failed;
  uint64_t key = 0;             // linked, failed: of the attempt (Setup::next_key); 0: by worker address, see init.peer
  uint64_t token = 0;           // linked, failed, by worker address: of the attempt, as the directory knows it
  WorkerId peer = 0;            // retry: the worker to connect to
  Port* port = nullptr;         // linked
  LinkInit init;                // linked
  Status status = TW_OK;        // failed
  std::string text;             // failed
  std::vector<std::byte> data;  // private data
  uint64_t listener = 0;        // request
  std::unique_ptr<tw_connection_request> connection_request;

  ConnectionEvent();
  ConnectionEvent(ConnectionEvent&&) noexcept;
  ConnectionEvent& operator=(ConnectionEvent&&) noexcept;
  ~ConnectionEvent();
};

class Inbox {
 public:
  Inbox();
  Status open();
  /// Any thread.
  void post(ConnectionEvent&& event);
  bool empty() const { return !flag_.load(std::memory_order_relaxed); }
  /// Progress owner.
  std::vector<ConnectionEvent> take();
  /// Readable after post() or wake(). Owned by the inbox.
  int fd() const { return event_.get(); }
  /// Any thread, async-signal-safe. Kept until take_wake().
  void wake();
  /// Makes fd() readable, and nothing else.
  void ring();
  /// Makes fd() unreadable until the next post() or wake(); true when an event is here already. Race-free: drains first. A wait
  /// that wake() is to end asks woken() behind it.
  bool disarm_and_poll();
  /// Was there a wake() since the last take_wake()?
  bool woken() const { return woken_.load(std::memory_order_seq_cst); }
  bool take_wake() { return woken_.exchange(false, std::memory_order_acq_rel); }

 private:
  std::mutex mutex_;
  std::vector<ConnectionEvent> events_;
  std::atomic<bool> flag_{false}, woken_{false};
  UniqueFd event_;
};

}  // namespace thalweg::impl
