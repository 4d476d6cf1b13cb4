// SPDX-License-Identifier: Apache-2.0
// The service thread's part of a link: the set-up socket after set-up. It detects the peer's death, asks for segments and
// hands out ours. It posts events to the port; the port's progress owner does the rest.
//
// Messages (SetupChannel): kImport {u64 segment} -> kImported {u64 segment, i32 status, u64 length} + descriptor;
// kReleased {u64 segment}: the owner has released it. Device memory (transports/device_memory/exchange.hpp): kImportDevice
// {u64 segment} -> kDevicePieces, several where one has no room; kDropped {u64 segment}. kClosed {u64 0}: the end that follows was
// meant. kRing {u64 bytes} + descriptor: a deep ring of the sender's direction (deep_ring.hpp) -> kRingTaken {u64 0: taken, 1: not}.
//
// What a peer may cost here is bounded: the messages of a turn, the answers that it does not read (its further requests wait), the
// events that its messages post. A lack of descriptors, of ours or between processes, fails what needed them and ends no link.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/event_loop.hpp"
#include "memory/registry.hpp"
#include "memory/segment.hpp"
#include "security/handshake.hpp"
#include "transports/device_memory/exchange.hpp"
#include "transports/shm/copying.hpp"
#include "transports/shm/doorbell.hpp"
#include "transports/shm/imports.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::shm {

enum MessageType : uint16_t {
  kImport = 1,
  kImported = 2,
  kReleased = 3,
  kImportDevice = 4,
  kDevicePieces = 5,
  kDropped = 6,
  kClosed = 7,
  kRing = 8,
  kRingTaken = 9,
};

struct Event {
  enum class Kind { lost, imported, released, ring_offered, ring_taken };
  Kind kind = Kind::lost;
  uint64_t link = 0;
  uint64_t segment = 0;
  Status status = TW_OK;
  std::string why;
  std::shared_ptr<Import> import;
  Device* device = nullptr;       // imported device memory
  std::shared_ptr<Segment> ring;  // a deep one; of ring_taken null: the peer has none
};

class Control;

/// From the service thread to a port. Outlives the port while callbacks hold it.
struct Mailbox {
  static constexpr pid_t kOurs = -1;  // this process, whose word always counts
  OwnDoorbell doorbell;
  std::atomic<bool> full{false};
  void post(Event&& event);   // any thread
  std::vector<Event> take();  // progress owner
  void add(std::shared_ptr<Control> control);
  void remove(const std::shared_ptr<Control>& control);
  void send_release(uint64_t segment);   // any thread: to all peers
  bool await_copies(uint64_t limit_ns);  // any thread: Control::await_copy of all, within the limit
  /// Any thread: returns when no peer has this device memory (0: any) imported any more; false: the limit has passed.
  bool await_dropped(uint64_t segment, uint64_t limit_ns);
  /// Any thread: a process that was stopped in the middle of a copy is not waited for at each of its links. It is again after as
  /// long as it was waited for. Processes that cannot be seen from here (another pid namespace: 0) count as one.
  void waited_in_vain(pid_t process, uint64_t for_ns);
  bool waits_in_vain(pid_t process);
  DeviceImports imports;

 private:
  std::vector<std::shared_ptr<Control>> controls();
  std::mutex mutex_;
  std::unordered_map<pid_t, Deadline> in_vain_;
  std::vector<Event> events_;
  std::vector<std::shared_ptr<Control>> controls_;
};

/// One link's control channel. Public functions: any thread; the rest runs on the service thread.
class Control : public std::enable_shared_from_this<Control>, private DeviceChannel {
 public:
  /// `incarnation`: of the peer's process, `process`: its number, 0 where it cannot be seen from here, Mailbox::kOurs.
  Control(std::shared_ptr<Mailbox> mailbox, EventLoop* loop, Registry* registry, uint64_t link, uint64_t incarnation,
          pid_t process);
  ~Control();
  /// Takes the set-up socket and its session. pidfd may be empty: then only the socket reports the peer's end.
  void start(LinkInit& init, UniqueFd pidfd);
  void request(uint64_t segment);
  void request_device(uint64_t segment, Device& device) { devices_.request(segment, device); }
  void send_release(uint64_t segment);
  /// Makes a deep ring of kDeepBytes or kWideBytes and offers it to the peer; the event ring_taken brings it once the peer has it,
  /// or nothing.
  void offer_ring(uint64_t bytes);
  /// Answers the peer's offer, which the event ring_offered has brought.
  void take_ring();
  /// The event ring_offered again, if the peer's offer waits: it may have come when there was no link to take it.
  void tell_ring();
  /// The end of the link here. The peer learns of it when nothing of its device memory is in use here any more; while it may
  /// use ours, the mailbox keeps this. graceful: the peer is sent a goodbye.
  void stop(bool graceful);
  bool lends() { return devices_.refuse(); }  // after stop()
  bool await_dropped(uint64_t segment, const Deadline& deadline) { return devices_.await_dropped(segment, deadline); }
  void watch(const std::shared_ptr<LossWatch>& watch);
  bool peer_ended() const { return ended_.load(std::memory_order_relaxed) != TW_OK; }
  void tell_end();  // to the port
  /// Returns when the copy of our memory that the peer is in the middle of, if any, has ended or the peer is gone; false
  /// when it takes longer than the limit: the peer is stopped.
  bool await_copy(const Deadline& deadline, uint64_t limit_ns);
  PeerCopying copying;

 private:
  void begin();
  void readable();
  void read_turn();
  bool read_message();  // false: none is there
  void read_rest();     // of a process that has ended
  /// came: TW_OK, or TW_ERR_NO_DESCRIPTORS: without its descriptors.
  void handle(SetupChannel::Message& message, Status came);
  void asked(uint16_t type, uint64_t segment);
  void serve();
  void writable();
  void hand_out(uint64_t segment);
  void take_in(SetupChannel::Message& message, Status came);
  void ring_offered(SetupChannel::Message& message, uint64_t bytes, Status came);
  void ring_taken(bool refused);
  void tell_ring_taken(std::shared_ptr<Segment> ring);
  bool attached() const override { return attached_; }
  void send(DeviceMemoryMessage message, const void* bytes, size_t length, std::vector<UniqueFd>&& fds) override;
  void imported(uint64_t segment, Device& device, Status status, std::string why) override;
  void violated(const char* why) override { end(TW_ERR_PROTOCOL, why); }
  std::shared_ptr<DeviceChannel> self() override { return {shared_from_this(), this}; }
  void import_gone(uint64_t segment) override;
  void finish();
  void queue(uint16_t type, const void* bytes, size_t length, std::vector<UniqueFd>&& fds = {});
  void flush();
  void end(Status status, const char* why);
  void lost();  // the peer's side has ended, gracefully or not
  void detach();
  void tell_watches(Status status, const char* why);
  bool revoke(uint64_t segment, Status why);  // 0: all of this link. False: there was none

  std::shared_ptr<Mailbox> mailbox_;
  EventLoop* loop_;
  Registry* registry_;
  uint64_t link_;
  const pid_t process_;
  std::unique_ptr<SetupChannel> channel_;
  UniqueFd pidfd_;
  bool attached_ = false;
  bool watching_pidfd_ = false;
  bool reading_again_ = false;                          // the next turn of this loop reads on
  bool flushing_again_ = false;                         // too many descriptors are on their way: a timer tries again
  bool reading_rest_ = false;                           // the peer's process has ended
  bool closed_ = false;                                 // the peer has sent its goodbye
  std::deque<std::pair<uint16_t, uint64_t>> requests_;  // of the peer, behind answers that it has not read
  std::vector<uint64_t> asked_;                         // imports without an answer
  std::vector<uint64_t> handed_out_;                    // segments the peer may have mapped
  struct Imported {
    uint64_t segment;
    std::weak_ptr<Import> import;
  };
  std::vector<Imported> imported_;  // of the peer's memory, as long as the port has it
  DeviceExchange devices_;
  Segment ring_;                           // offered, not taken
  std::shared_ptr<Segment> offered_;       // the peer's, until the port takes it
  std::atomic<bool> offered_ring_{false};  // the same, for the port
  std::mutex watching_;
  std::vector<std::weak_ptr<LossWatch>> watches_;
  std::atomic<Status> ended_{TW_OK};  // how
  std::string why_;                   // written before ended_
  std::atomic<bool> gone_{false};     // the peer's process, or its side of the link: it copies no more
  std::atomic<bool> stopped_{false};
};

}  // namespace thalweg::impl::shm
