// SPDX-License-Identifier: Apache-2.0
// The service thread's part of a link: the set-up socket after set-up. It learns of the peer's death, asks for segments and
// hands out ours. It tells the port by events; the port's progress owner does the rest.
//
// Messages (SetupChannel): kImport {u64 segment} -> kImported {u64 segment, i32 status, u64 length} + descriptor;
// kReleased {u64 segment}: the owner has released it. Device memory (transports/device_memory/exchange.hpp): kImportDevice
// {u64 segment} -> kDevicePieces, several where one has no room; kDropped {u64 segment}. kClosed {u64 0}: the end that follows was meant. kRing {u64 bytes} + descriptor: a deep ring of the sender's
// direction (deep_ring.hpp) -> kRingTaken {u64 0}.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
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
  std::shared_ptr<Segment> ring;  // a deep one
};

class Control;

/// From the service thread to a port. Outlives the port while callbacks hold it.
struct Mailbox {
  OwnDoorbell doorbell;
  std::atomic<bool> full{false};
  void post(Event&& event);   // any thread
  std::vector<Event> take();  // progress owner
  void add(std::shared_ptr<Control> control);
  void remove(const std::shared_ptr<Control>& control);
  void announce_release(uint64_t segment);  // any thread: to all peers
  bool await_copies(uint64_t limit_ns);     // any thread: Control::await_copy of all
  /// Any thread: returns when no peer has this device memory (0: any) imported any more; false: the limit has passed.
  bool await_dropped(uint64_t segment, uint64_t limit_ns);
  DeviceImports imports;

 private:
  std::vector<std::shared_ptr<Control>> controls();
  std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<std::shared_ptr<Control>> controls_;
};

/// One link's control channel. Public functions: any thread; the rest runs on the service thread.
class Control : public std::enable_shared_from_this<Control>, private DeviceChannel {
 public:
  /// `incarnation`: of the peer's process.
  Control(std::shared_ptr<Mailbox> mailbox, EventLoop* loop, Registry* registry, uint64_t link, uint64_t incarnation);
  ~Control();
  /// Takes the set-up socket and its session. pidfd may be empty: then the socket alone tells of the peer's end.
  void start(LinkInit& init, UniqueFd pidfd);
  void request(uint64_t segment);
  void request_device(uint64_t segment, Device& device) { devices_.request(segment, device); }
  void announce_release(uint64_t segment);
  /// Makes a deep ring of kDeepBytes or kWideBytes and offers it to the peer; the event ring_taken brings it once the peer has it.
  void offer_ring(uint64_t bytes);
  /// Answers the peer's offer, which the event ring_offered has brought.
  void take_ring();
  /// The end of the link here. The peer learns of it when nothing of its device memory is in use here any more; while it may
  /// use ours, the mailbox keeps this. graceful: the peer is told that this is no crash.
  void stop(bool graceful);
  bool lends() { return devices_.refuse(); }  // after stop()
  bool await_dropped(uint64_t segment, const Deadline& deadline) { return devices_.await_dropped(segment, deadline); }
  void watch(const std::shared_ptr<LossWatch>& watch);
  bool peer_ended() const { return ended_.load(std::memory_order_relaxed) != TW_OK; }
  void tell_end();  // to the port
  /// Returns when the copy of our memory that the peer is in the middle of, if any, has ended or the peer is gone; false when it
  /// takes longer than the limit: the peer is stopped.
  bool await_copy(uint64_t limit_ns);
  PeerCopying copying;

 private:
  void begin();
  void readable();
  void handle(SetupChannel::Message& message);
  void hand_out(uint64_t segment);
  void take_in(SetupChannel::Message& message);
  void ring_offered(SetupChannel::Message& message, uint64_t bytes);
  void ring_taken();
  bool attached() const override { return attached_; }
  void send(DeviceMemoryMessage message, const void* bytes, size_t length, std::span<const int> fds) override;
  void imported(uint64_t segment, Device& device, Status status, std::string why) override;
  void violated(const char* why) override { end(TW_ERR_PROTOCOL, why); }
  std::shared_ptr<DeviceChannel> self() override { return {shared_from_this(), this}; }
  void import_gone(uint64_t segment) override;
  void finish();
  void queue(uint16_t type, const void* bytes, size_t length, std::span<const int> fds);
  void flush();
  void end(Status status, const char* why);
  void lost();  // the peer's side has ended, as it said or without a word
  void detach();
  void tell_watches(Status status, const char* why);
  void revoke(uint64_t segment, Status why);  // 0: all of this link

  std::shared_ptr<Mailbox> mailbox_;
  EventLoop* loop_;
  Registry* registry_;
  uint64_t link_;
  std::unique_ptr<SetupChannel> channel_;
  UniqueFd pidfd_;
  bool attached_ = false;
  bool watching_pidfd_ = false;
  bool closed_ = false;               // the peer has said that it ends the link
  std::vector<uint64_t> asked_;       // imports without an answer
  std::vector<uint64_t> handed_out_;  // segments the peer may have mapped
  struct Imported {
    uint64_t segment;
    std::weak_ptr<Import> import;
  };
  std::vector<Imported> imported_;  // of the peer's memory, as long as the port has it
  DeviceExchange devices_;
  Segment ring_;             // offered, not taken
  bool ring_waits_ = false;  // the peer's, until the port takes it
  std::mutex watching_;
  std::vector<std::weak_ptr<LossWatch>> watches_;
  std::atomic<Status> ended_{TW_OK};  // how
  std::string why_;                   // written before ended_
  std::atomic<bool> gone_{false};     // the peer's process, or its side of the link: it copies no more
  std::atomic<bool> stopped_{false};
};

}  // namespace thalweg::impl::shm
