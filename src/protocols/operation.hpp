// SPDX-License-Identifier: Apache-2.0
// The record of a host-triggered operation. OpDesc: what moves; OpRun: one activation of it; Protocol: how it moves. What
// queues, graphs and kernels trigger is prepared as device::Step (plans/, thalweg/device/types.hpp), because those run where
// no protocol can; a step that needs one is handed to the host and becomes such a record.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "devices/memory_kind.hpp"
#include "memory/layout.hpp"

namespace thalweg::impl {

struct Peer;          // protocols/peer.hpp: one endpoint as the protocols see it
struct RemoteRegion;  // memory/remote.hpp: an imported key
struct OpRun;
struct OpDesc;
struct Protocol;
struct BlockTransfer;  // protocols/blocks.hpp
class Engine;          // protocols/engine.hpp
class Device;          // devices/device.hpp
class Staging;         // protocols/staging.hpp
struct Ordering;       // protocols/device_queues.hpp
struct StreamWait;     // protocols/stream_waits.hpp
struct Loan;           // protocols/device_queues.hpp
struct Mapping;        // transports/transport.hpp

enum class Verb : uint8_t {
  send,
  recv,
  am,
  am_recv,
  bytes_send,
  bytes_recv,
  put,
  get,
  atomic,
  signal,
  flush,
  put_blocks,
  get_blocks,
  copy,        // within this process
  wait,        // for a signal of this process
  reduce,      // sources into one destination
  collective,  // of a group (collectives/run.hpp): many of the above
  count_
};
const char* name_of(Verb verb);  // dispatch.cpp

/// In OpDesc.flags beside TW_OP_*: the local side is memory that only device queues touch.
inline constexpr uint32_t kOpDevice = 1u << 31;
/// ... or its bytes may be touched only when OpDesc.after has happened.
inline constexpr uint32_t kOpLate = 1u << 30;
/// A part of a one-sided operation that has left the ordered queue: it goes before everything that waits there.
inline constexpr uint32_t kOpPart = 1u << 29;
/// put, signal: the peer is notified of `immediate` behind it. tag: the handler's id, or kNotifyQueue.
inline constexpr uint32_t kOpNotify = 1u << 28;
/// send, recv: a message of a group's collective. It matches apart from users' messages, whatever tags and masks those use.
inline constexpr uint32_t kOpGroup = 1u << 27;
inline constexpr uint32_t kOpInternal = kOpDevice | kOpLate | kOpPart | kOpNotify | kOpGroup;  // none of a user's
inline constexpr uint16_t kNotifyQueue = UINT16_MAX;

/// What. Plain data; copied by value into a host-triggered OpRun, kept by plans. The first 64 bytes are all that a
/// contiguous message needs.
struct alignas(64) OpDesc {
  Verb verb = Verb::send;
  uint8_t atomic_op = 0, signal_op = 0,
          word = 0;                // word: 4 or 8. atomic_op of a signal: Verb::put, whose end it is; of a wait:
                                   // TW_COMPARE_*; of a reduction: TW_REDUCE_*, and word TW_TYPE_*
  uint32_t flags = 0;              // TW_OP_*
  Peer* peer = nullptr;            // receive: the wanted source or null
  uint64_t tag = 0, mask = 0;      // match; am: tag = handler id
  std::byte* address = nullptr;    // local side
  uint64_t length = 0;             // bytes moved (receive: capacity)
  const Layout* layout = nullptr;  // of the local side, retained
  uint64_t immediate = 0;
  RemoteRegion* remote = nullptr;         // one-sided target; null: of this process
  uint64_t remote_offset = 0;             // ... and this its address (copy, reduce)
  const Layout* remote_layout = nullptr;  // retained
  RemoteRegion* signal = nullptr;         // the signal word's region
  uint64_t signal_value = 0;
  uint64_t operand = 0, compare = 0;  // atomics
  void* result = nullptr;             // fetching atomics
  const std::byte* header = nullptr;  // active message
  uint32_t header_length = 0;
  MemoryKind kind = MemoryKind::host;  // of the local side. kOpDevice: this and the next five are its BufferInfo
  uint8_t exportable = 0;
  Device* device = nullptr;
  uint64_t buffer_id = 0, allocation = 0, allocated = 0;
  Ordering* after = nullptr;        // kOpLate; counted
  BlockTransfer* blocks = nullptr;  // put_blocks, get_blocks; counted like the regions
};
/// A layout of one piece becomes an address.
void drop_dense_layout(OpDesc& op);
static_assert(sizeof(OpDesc) == 192);
/// Is the local side packed or unpacked by a user's functions? Its address is not one of bytes then.
inline bool by_calls(const OpDesc& op) { return op.layout != nullptr && op.layout->calls != nullptr; }

/// Intrusive lists of runs, through `link` (where it is queued) or through `by_peer` (the peer it waits for).
struct RunLink {
  OpRun* next = nullptr;
  OpRun* previous = nullptr;
};
template <bool kByPeer>
class BasicRunList {
 public:
  bool empty() const { return head_ == nullptr; }
  OpRun* front() const { return head_; }
  OpRun* back() const { return tail_; }
  inline void push_back(OpRun* run);
  inline void push_front(OpRun* run);
  inline void remove(OpRun* run);
  inline OpRun* pop_front();
  /// Of a list with no other run, which needs no links: into it, and out of it.
  inline void push_only(OpRun* run);
  inline void remove_only(OpRun* run);

 private:
  static inline RunLink& of(OpRun* run);
  static inline void note(OpRun* run, BasicRunList* list);
  OpRun* head_ = nullptr;
  OpRun* tail_ = nullptr;
};
using RunList = BasicRunList<false>;
using PeerRunList = BasicRunList<true>;

/// Called when a phase that a protocol started (a pipeline in or out, a pull) has ended.
using Then = void (*)(Engine& engine, OpRun& run, Status status);

/// Contiguous memory of the other side: where its packed offset 0 is, and how to reach it.
struct Elsewhere {
  uint64_t address = 0;  // here (mapped, same process), or the peer's when by_kernel
  uint64_t segment = 0;  // not 0: library-allocated memory of the peer; looked up again for every piece
  uint64_t segment_offset = 0;
  bool by_kernel = false;  // read_peer / write_peer
};

/// What is notified of an operation's completion, beside its request (completions.hpp).
enum class SinkKind : uint8_t { none, callback, queue, counter, record, done };
union SinkTarget {
  tw_callback callback = nullptr;
  tw_completion_queue* queue;
  tw_counter* counter;
  tw_completion* record;
  tw_signal* done;
};

/// Progress of a transfer of this run's local side; see pipeline.hpp.
struct Pipeline {
  enum Kind : uint8_t { none, out, in, pull, push, relay };
  Kind kind = none;
  uint8_t flags = 0;                          // FrameFlag of the data frames
  bool contiguous = false;                    // the local side is one piece: base + offset
  uint32_t in_flight = 0;                     // pieces sent by reference and not yet reported
  uint64_t dest_op = 0;                       // out: the receiver's op of the data frames
  uint64_t begin = 0, position = 0, end = 0;  // packed offsets
  uint64_t arrived = 0;                       // in: bytes
  Elsewhere other;                            // pull, push: the other side
};

/// As what a one-sided operation that has left its ordered queue is counted in OneSided, until it ends or comes back.
enum class Counted : uint8_t { no, device, get, fence, fence_out };

/// One activation. Lives in the engine's pool; its request number is (pool, slot, generation).
/// Life: acquire -> step (maybe many) -> complete (exactly once) -> released by its holder -> slot reused.
/// In order of use: a short message touches the first two cache lines, `info` and the first of `own`.
struct alignas(64) OpRun {
  std::atomic<int32_t> status{TW_OK};   // TW_IN_PROGRESS until complete; release store, acquire load
  std::atomic<uint32_t> generation{0};  // odd while alive
  uint32_t slot = 0;
  bool detached = false;  // the request has no holder: freed when complete
  bool cancelable = false;
  bool posted = false;         // a receive that waits in the matcher
  uint8_t stage = 0;           // the protocol's own
  bool owns_header = false;    // own.header is a copy
  bool holds_regions = false;  // own.remote and own.signal are counted (one_sided.cpp), until it ends
  bool extras = false;         // holds layouts, a header, regions or a text: freed with it (RunPool::free)
  Counted counted = Counted::no;
  uint8_t offer = 0;  // a posted receive that is offered (offers.hpp): 1 + its entry
  SinkKind sink = SinkKind::none;
  bool has_sink = false;    // it names a sink, which may have been notified
  bool traced = false;      // its end belongs into the timeline (tracing.hpp)
  RunList* list = nullptr;  // where it is queued now
  RunLink link;             // for that list
  Peer* peer = nullptr;     // whose `waiting` it is in (Engine::bind)
  uint64_t sequence = 0;    // receives: order of posting. One-sided: number of its last frame
  // --- the second line
  const OpDesc* op = nullptr;  // &own, or a plan's
  const Protocol* protocol = nullptr;
  Then then = nullptr;     // what the current phase ends with
  Then fin = nullptr;      // called when a fin frame names this run; null: ignored
  uint64_t moved = 0;      // bytes done
  uint64_t peer_op = 0;    // the other side's op number
  SinkTarget sink_target;  // by `sink`
  Pipeline pipeline;       // its first 8 bytes
  // --- seldom
  RunLink by_peer;      // for peer->waiting: every run that a loss of the peer must end
  LayoutCursor cursor;  // position in the local layout
  void* arg = nullptr;
  uint64_t sink_value = 0;             // of SinkKind::done
  std::string* text = nullptr;         // why it failed; freed on release
  Staging* staging = nullptr;          // pinned memory between a device and frames; freed on release
  std::byte* bounce_buffer = nullptr;  // bounce buffer.hpp; freed on release
  StreamWait* stream_wait = nullptr;   // streams wait for its end; stream_waits.hpp
  Mapping* holding = nullptr;          // the import that its device work uses, counted
  Loan* loan = nullptr;                // its buffer is lent to devices of the other side; freed when it completes
  uint16_t work = 0;                   // pieces of device work under way: the run completes after them
  bool ended = false;                  // ... with `ending`; nothing else happens to it
  bool late_end = false;               // it waited for a device behind its end, until it is told: op->peer may be gone
  uint32_t wire_generation = 0;        // of the life that wire_op belongs to
  uint64_t wire_op = 0;                // its name on the wire: RunPool::wire_op()
  Status ending = TW_OK;
  alignas(8) std::byte state[64];  // the protocol's own
  // --- messages
  alignas(64) tw_recv_info info{};
  OpDesc own;
};
static_assert(offsetof(OpRun, op) == 64 && offsetof(OpRun, pipeline) == 120);

template <bool kByPeer>
inline RunLink& BasicRunList<kByPeer>::of(OpRun* run) {
  if constexpr (kByPeer) {
    return run->by_peer;
  } else {
    return run->link;
  }
}
template <bool kByPeer>
inline void BasicRunList<kByPeer>::note(OpRun* run, BasicRunList* list) {
  if constexpr (!kByPeer) run->list = list;
}
template <bool kByPeer>
inline void BasicRunList<kByPeer>::push_back(OpRun* run) {
  of(run) = {nullptr, tail_};
  (tail_ != nullptr ? of(tail_).next : head_) = run;
  tail_ = run;
  note(run, this);
}
template <bool kByPeer>
inline void BasicRunList<kByPeer>::push_front(OpRun* run) {
  of(run) = {head_, nullptr};
  (head_ != nullptr ? of(head_).previous : tail_) = run;
  head_ = run;
  note(run, this);
}
template <bool kByPeer>
inline void BasicRunList<kByPeer>::remove(OpRun* run) {
  RunLink& link = of(run);
  (link.previous != nullptr ? of(link.previous).next : head_) = link.next;
  (link.next != nullptr ? of(link.next).previous : tail_) = link.previous;
  link = {};
  note(run, nullptr);
}
template <bool kByPeer>
inline OpRun* BasicRunList<kByPeer>::pop_front() {
  OpRun* run = head_;
  if (run != nullptr) remove(run);
  return run;
}

template <bool kByPeer>
inline void BasicRunList<kByPeer>::push_only(OpRun* run) {
  head_ = tail_ = run;
  note(run, this);
}
template <bool kByPeer>
inline void BasicRunList<kByPeer>::remove_only(OpRun* run) {
  head_ = tail_ = nullptr;
  note(run, nullptr);
}

/// How the host carries an operation out.
struct Protocol {
  const char* name;
  Verb verb;
  /// Host trigger: moves forward. TW_OK: complete (the caller completes the run), TW_IN_PROGRESS: frames will complete it,
  /// TW_AGAIN: call again when there is room, or an error.
  Status (*step)(OpRun& run);
  /// The peer is lost or the run cancelled: gives back what the protocol holds. The caller completes the run.
  void (*abort)(OpRun& run, Status why);
};

}  // namespace thalweg::impl
