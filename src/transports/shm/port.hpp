// SPDX-License-Identifier: Apache-2.0
// The shm port: rings that are polled (hot), rings that ring the doorbell (cold), sleep and wake, the ends of links.
//
// A ring is hot at first. One found empty for a long time while more than kHotMin are hot is demoted: its consumer_mode says
// "ring the doorbell", and the doorbell's bit makes it hot again. So an idle endpoint costs the poller nothing, and a lone
// active one costs one load and one compare. Demotion and sleep use the same asymmetric barrier (producer.hpp explains it).
//
// Life of a link: establish -> (frames) -> lost or closed. The service thread only posts events (Mailbox); everything else
// happens in the progress owner. A lost link's memory is given back at once; the Link object stays until close() or the
// port's end, because the engine may still hold it.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/event_loop.hpp"
#include "memory/registry.hpp"
#include "transports/link_count.hpp"
#include "transports/shm/consumer.hpp"
#include "transports/shm/control.hpp"
#include "transports/shm/deep_ring.hpp"
#include "transports/shm/doorbell.hpp"
#include "transports/shm/imports.hpp"
#include "transports/shm/producer.hpp"
#include "transports/shm/single_copy.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl::shm {

/// An import that was requested, or whose failure was not reported yet.
struct Wanted {
  uint64_t segment = 0;
  const Device* device = nullptr;  // of device memory
  Status status = TW_IN_PROGRESS;
  std::string why;
};

struct ShmLink final : Link {
  [[no_unique_address]] LinkCount counted;
  Producer out;
  Consumer in;
  DeepOut deep_out;
  DeepIn deep_in;
  OfferTables offers;
  uint32_t reserved = 0;               // of the reservation that is open
  uint64_t taken_before = UINT64_MAX;  // frames that had arrived at the last send
  uint32_t my_bit = 0;                 // of my doorbell, for frames that arrive here
  uint32_t peer_bit = 0;               // of the peer's doorbell
  uint32_t hot_index = kCold;          // place in the port's hot list
  bool ended = false;                  // lost or closed: no callback for it any more, its memory goes away
  bool starved = false;                // a send found no room since the last that did not
  bool listed = false;                 // in the port's starved_, until arm() finds it starved no more
  uint32_t starved_length = 0;
  Status state = TW_OK;      // why sends are refused; `why` its text
  uint64_t last_active = 0;  // sweep
  uint64_t id = 0;
  ShmLink* next_same_bit = nullptr;
  Segment segment;
  PeerDoorbell doorbell;
  pid_t pid = 0;  // for process_vm_*; 0: not possible
  Copier copier;
  std::shared_ptr<Control> control;
  std::vector<Wanted> wanted;
  std::string why = "the connection has ended";
  /// Nothing has come since the last send: the next frame may be the answer, and most often comes alone.
  bool exchanges() const { return taken_before == in.taken(); }
  static constexpr uint32_t kCold = UINT32_MAX;
};

/// A link before establish(): the service thread answers the peer's imports and watches for its end. Given up, it ends as a link
/// does: behind the copy that the peer is in the middle of.
struct EarlyLink final : Adopted {
  ~EarlyLink() override;
  bool trusted = true;    // its peer has broken no rule, so that its word of a copy counts
  Status status = TW_OK;  // of adopt(); `why` its text
  std::string why;
  uint64_t id = 0;
  pid_t seen = 0;  // the process at the socket's other end, from the kernel; 0: unknown
  Segment segment;
  Copier copier;
  uint64_t copy_limit = 0;  // ns
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<Control> control;
};

class ShmPort final : public Port, private SegmentListener {
 public:
  static Status open(const PortOptions& options, std::unique_ptr<Port>* port);
  ~ShmPort() override;
  const char* name() const override { return "shm"; }

  Status offer(const PeerIdentity& peer, SetupMessage& mine) override;
  Status answer(const PeerIdentity& peer, const SetupMessage& theirs, SetupMessage& mine) override;
  void adopt(LinkInit& init) override;
  Status establish(LinkInit&& init, Link** link) override;

  Status send(Link& link, const FrameHeader& header, const void* body) override;
  std::byte* reserve(Link& link, size_t n) override;
  void commit(Link& link, const FrameHeader& header) override;
  Status send_reference(Link& link, const FrameHeader& header, const iovec* pieces, size_t count, void* token) override;
  void withdraw(Link&, std::byte*) override {}

  Status import(Link& link, uint64_t segment, Mapping** mapping) override;
  Status import_device(Link& link, uint64_t segment, Device& device, Mapping** mapping) override;
  void watch_loss(Link& link, const std::shared_ptr<LossWatch>& watch) override {
    if (const auto& control = static_cast<ShmLink&>(link).control) control->watch(watch);
  }
  bool enter_peer(Link& link) override {
    return static_cast<ShmLink&>(link).state == TW_OK && static_cast<ShmLink&>(link).copier.enter();
  }
  void leave_peer(Link& link) override { static_cast<ShmLink&>(link).copier.leave(); }
  void ring(Link& link) override { static_cast<ShmLink&>(link).doorbell.wake(); }
  int64_t read_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override;
  int64_t write_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override;

  OfferTables offers(Link& link) override { return static_cast<ShmLink&>(link).offers; }
  uint64_t taken(const Link& link) override { return static_cast<const ShmLink&>(link).in.taken(); }
  uint64_t sent(const Link& link) override { return static_cast<const ShmLink&>(link).out.sent(); }
  bool any_behind(const Link& link, uint64_t taken, FrameTest test, const void* what) override;
  unsigned take(unsigned budget, FrameTest test) override;
  unsigned progress(unsigned budget) override;
  int fd() const override { return mailbox_->doorbell.event_fd(); }
  Status arm() override;
  void wake() override { mailbox_->doorbell.wake(); }

  void close(Link& link, bool graceful) override;
  size_t queued(const Link&) const override { return 0; }  // accepted means in the ring

  size_t hot_rings() const { return hot_.size(); }  // for tests and info
  size_t starved_links() const { return starved_.size(); }
  size_t device_imports() const { return mailbox_->imports.count(); }

 private:
  /// Below this many hot rings polling all of them is cheaper than any bookkeeping.
  static constexpr size_t kHotMin = 8;
  /// Sweeps between two checks for rings to demote and imports to unmap.
  static constexpr uint64_t kHouseSweeps = 256;
  /// How often rings that ring the doorbell are polled all the same, and how long a port sleeps at most, while there are links to
  /// other processes: all of them write to the doorbell, and one may take away what another rang (layout.hpp).
  static constexpr uint64_t kDistrustNs = 100 * kMillisecond;
  /// A busy port does rare work only every so many sweeps.
  static constexpr uint64_t kAroundMask = 15;
  static constexpr unsigned kIdleTurns = 32;
  /// Imports of one link in flight; further ones wait.
  static constexpr size_t kMaxWanted = 256;

  struct Hot : Arrival {
    ShmLink* link;
  };

  ShmPort(const PortOptions& options, std::shared_ptr<Mailbox> mailbox);
  Status start_setup(SetupMessage& mine);
  Status check_setup(const SetupMessage& theirs, size_t fds, SetupBody* out) const;
  Status open_link(ShmLink& link, LinkInit& init);
  Status open_early(LinkInit& init, EarlyLink& early);
  Status find_features(ShmLink& link, const SetupBody& theirs, pid_t seen);
  void watch(EarlyLink& early, LinkInit& init);

  int64_t copy_peer(ShmLink& link, CopyDirection direction, const iovec* local, size_t locals, const iovec* remote,
                    size_t remotes);
  Status send_slowly(ShmLink& link, const FrameHeader& header, const void* body);
  Status make_room(ShmLink& link, uint32_t length);
  void deepen(ShmLink& link, bool full);
  void turn_back_idle();
  void ring_peer(ShmLink& link);
  void published(ShmLink& link);
  /// What import_device() found last may go, unless it is counted: the owner of the memory may be waiting for it.
  void unpin() {
    if (!pinned_) [[likely]]
      return;
    pinned_ = false;
    mailbox_->imports.unpin();
  }
  void linger() const;
  unsigned poll(const Hot& hot, unsigned budget);
  unsigned poll_all(unsigned budget);
  void look_around(unsigned* done);
  unsigned progress_all(unsigned budget);
  unsigned take_shown(ShmLink& link, unsigned budget);
  unsigned take_frames(ShmLink& link, unsigned budget);
  unsigned drain(ShmLink& link, unsigned budget);
  unsigned drain_rest(ShmLink& link);
  unsigned drain_while(ShmLink& link, unsigned budget, FrameTest test);
  void heat(ShmLink& link);
  void cool(ShmLink& link);
  void refresh_hot(ShmLink& link);
  void set_glance();
  void keep_house();
  void demote_idle();
  void poll_cold();
  void give_rest();
  void answer_doorbell();
  void disarm();
  bool anything_there() const;
  unsigned handle_events();
  Status start_import(ShmLink& link, uint64_t segment, Device* device);
  void handle_import(ShmLink& link, Event& event);
  void doom(ShmLink& link, Status status, const char* why);
  void finish_lost(ShmLink& link, Status status, const char* why);
  void retire(ShmLink& link, bool graceful, const Deadline& deadline);
  void bury();
  void barrier() const;
  void on_segment_released(uint64_t segment) override;
  bool on_keys_revoked(bool waits) override { return mailbox_->await_copies(waits ? copy_limit() : 0); }
  bool await_dropped(uint64_t segment, bool waits) override {
    return mailbox_->await_dropped(segment, waits ? copy_limit() : 0);
  }
  /// How long a peer that is in the middle of a copy is waited for: it can only be stopped.
  uint64_t copy_limit() const { return options_.silent_timeout_ns != 0 ? options_.silent_timeout_ns : 5'000'000'000; }

  PortOptions options_;
  Sink* sink_;
  std::shared_ptr<Mailbox> mailbox_;  // shared with the service thread's callbacks
  std::vector<Hot> hot_;
  uint64_t sweep_ = 0;
  uint64_t next_house_ = kHouseSweeps;
  unsigned idle_ = 0;  // turns in a row without a frame
  size_t start_ = 0;   // where the next sweep begins, when the budget ran out
  bool armed_ = false;
  bool rung_ = false;  // while it slept: perhaps for a signal, which is no frame but an event all the same
  bool progressing_ = false;
  bool pinned_ = false;           // an import of device memory was found since the last progress
  std::vector<ShmLink*> by_bit_;  // heads; as many as links have needed, at most kDoorbellBits
  std::unordered_map<uint64_t, std::unique_ptr<ShmLink>> links_;
  std::vector<std::unique_ptr<ShmLink>> graveyard_;  // closed during progress
  std::vector<uint64_t> unmapping_;                  // lost during progress: ids
  std::vector<uint64_t> starved_;                    // link ids
  std::vector<uint64_t> deep_;                       // ids of links whose deep_out is in use
  unsigned wide_ = 0;                                // wide rings of links that have not ended
  uint64_t next_turn_back_ = 0;                      // when they are checked
  uint64_t next_cold_ = 0;                           // when rings that are not hot are polled
  size_t live_ = 0, foreign_ = 0;                    // links that have not ended; of them to other processes
  ImportCache imports_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint32_t> next_bit_{0};
};

}  // namespace thalweg::impl::shm
