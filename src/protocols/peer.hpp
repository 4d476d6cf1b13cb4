// SPDX-License-Identifier: Apache-2.0
// One endpoint as the protocols see it: its link, what waits for room, flow control, one-sided accounting.
// Owned by core's Endpoint; touched by the worker's progress owner (or under the worker's lock).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocols/operation.hpp"
#include "routes/limits.hpp"
#include "routes/traffic.hpp"
#include "transports/transport.hpp"

struct tw_message;
struct tw_am_data;

namespace thalweg::impl {

class Engine;
struct ByteStream;  // bytes.hpp
class Bounces;      // bounce.hpp
struct Offers;      // offers.hpp

/// Small frames that must not wait behind payload: queued only while the link has no room.
struct ControlFrame {
  static constexpr size_t kBody = 144;
  FrameHeader header;
  std::byte body[kBody];
};
class ControlQueue {
 public:
  static constexpr size_t kLimit = 1u << 19;  // to all peers
  static constexpr size_t kShare = 1u << 12;  // of each, however many there are: who lets more pile up is not reading at all
  bool empty() const { return frames_.empty(); }  // pop() clears after the last
  size_t size() const { return frames_.size() - head_; }
  const ControlFrame& front() const { return frames_[head_]; }
  void pop() {
    if (++head_ == frames_.size()) clear();
  }
  void push(const ControlFrame& frame) {
    if (head_ > 1024 && head_ > frames_.size() / 2) {  // sent ones in front are cut off now and then
      frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    frames_.push_back(frame);
  }
  void clear() {
    frames_.clear();
    if (frames_.capacity() > 4096) frames_.shrink_to_fit();
    head_ = 0;
  }

 private:
  std::vector<ControlFrame> frames_;
  size_t head_ = 0;
};

/// The message that is arriving in several frames: at most one per peer and time.
struct Assembly {
  enum class Kind : uint8_t { none, receive, message, active, discard };  // discard: its receive has ended
  Kind kind = Kind::none;
  uint64_t op = 0;      // FirstBody.op
  uint64_t length = 0;  // FirstBody.length
  uint64_t arrived = 0;
  OpRun* run = nullptr;           // receive
  tw_message* message = nullptr;  // not matched yet
  tw_am_data* active = nullptr;
};

/// A long header of an active message that the peer has asked this side to take: at most one per peer and time.
struct AskedHeader {
  uint64_t op = 0;
  uint64_t length = 0;   // 0: none
  bool granted = false;  // counted in Engine::headers; as its message's once it is here
  uint64_t since = 0;    // when it was granted: nanoseconds
};

/// Runs of block transfers with a notification, linked through their BlockTransfer (blocks_notify.cpp).
struct NoticeList {
  OpRun *first = nullptr, *last = nullptr;
};

/// One-sided operations of an endpoint that travel as frames. The ordered queue is in order, so a signal, an atomic or a
/// flush behind a put in it needs no more than its place. Frames are numbered as they go: `framed` is the last one, and the
/// target has applied all up to `confirmed` for sure (answers of flushes and acknowledged operations). What has left the
/// ordered queue and is not all in frames is counted instead (count_in): nothing else reports its end.
struct OneSided {
  RunList queue;
  uint64_t framed = 0, confirmed = 0;
  uint64_t silent = 0, reported = 0;  // last frame without an answer of its own; last one that a flush reported
  uint64_t issued = 0, fence = 0;     // operations that came into the ordered queue; their number at the last tw_endpoint_fence
  uint32_t fences = 0;                // of which something before them may not be applied
  uint32_t fences_out = 0;            // ... and that have left the ordered queue: those in it are behind what is at its front
  uint32_t device = 0;                // operations that devices move, or that this process relays for them
  uint32_t gets = 0;                  // gets whose answers are not all here (the target may still read for them), and
                                      // notifications that wait for earlier ones
  Status owed = TW_OK;                // a failure that a fence's own flush got: the user's next flush reports it
  NoticeList notices;                 // block transfers whose notification was not sent yet, in the order of the operations
  // As target, of what came from this peer.
  Status put_failed = TW_OK;    // of the put whose frames are being applied
  Status failed = TW_OK;        // first unreported failure since the last flush
  bool put_remembered = false;  // `failed` is that of the put whose frames are being applied
};

struct Peer {
  Engine* engine = nullptr;
  Link* link = nullptr;             // null while connecting and after loss
  tw_endpoint* endpoint = nullptr;  // reported in tw_recv_info
  Status state = TW_IN_PROGRESS;    // connecting; TW_OK connected; an error when lost or closed
  std::string why;                  // text of that error
  PeerIdentity identity;
  Limits limits;
  CpuDistance distance = CpuDistance::count_;  // of the two processes' processors, when it was connected

  // Sending. `control` goes first. Order matters in `ordered` (messages, RTS messages); `pipelines` are large transfers that
  // take turns, one fragment each, so that a small message never waits for a large one. `bytes` is the byte stream out.
  // `windows` are between this CPU and devices here: they hold imports of the peer's memory, whose owner may wait for them
  // to end before it learns of a loss, so they take turns also when the link takes nothing.
  ControlQueue control;
  RunList ordered, pipelines, bytes, windows;
  bool busy = false;    // linked in the engine's list of peers with something to push
  bool doomed = false;  // to be closed at the end of this progress; its frames are ignored
  Peer* next_busy = nullptr;
  uint64_t next_first = 1;  // names messages in several frames

  // Flow control (flow.hpp). Sender: what may still be sent. Receiver: what was consumed and not yet returned, what is
  // held unmatched, what was granted in all.
  int64_t eager_credit = 0, rts_credit = 0, bytes_credit = 0;
  uint64_t consumed_bytes = 0, consumed_messages = 0, consumed_stream = 0;
  uint64_t held_bytes = 0, held_messages = 0, granted_bytes = 0, granted_stream = 0;
  AskedHeader header;

  Assembly assembly;
  OpRun* destination = nullptr;             // a `tagged` body is being read into this receive
  std::unique_ptr<ByteStream> byte_stream;  // bytes received; made at first use

  uint32_t answers_cost = 0;         // of the answers that wait
  RunList answers;                   // owed for gets; they wait for room and for nothing of this side (answer.hpp)
  bool queue_first = false;          // of the ordered queue and the answers, at the next push
  std::unique_ptr<Bounces> bounces;  // made at first use
  std::unique_ptr<Offers> offers;    // the same; of this link
  RunList importing;                 // runs that wait for an import of device memory
  OneSided one_sided;                // one_sided.hpp
  PeerRunList waiting;               // every run that a loss of this peer must end
  EndpointTally tally;               // read by any thread, once the engine's Traffic has it
  uint64_t connection = 0;           // of this link, the same at both ends; 0: it has no name. For the timeline

  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
};

/// The operation's payload has moved by this way. Parts are not counted: the operation that they belong to is.
inline void count_moved(const OpDesc& op, Way way) {
  if ((op.flags & kOpPart) == 0 && op.length != 0) op.peer->tally.moved.count(way, op.length);
}
/// The same of an eager message, of which one without bytes counts, too.
inline void count_sent(const OpDesc& op) {
  if ((op.flags & kOpPart) == 0 && (op.length != 0 || op.verb == Verb::send)) op.peer->tally.moved.count(Way::eager, op.length);
}

}  // namespace thalweg::impl
