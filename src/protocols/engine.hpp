// SPDX-License-Identifier: Apache-2.0
// The protocol engine of one worker: requests, matching, the frames' dispatch table. core/ wraps it in tw_worker.
//
// Call path of a small tagged send: tw_send (core/c_message.cpp) -> try_send (protocols/eager.cpp) -> Port::send
// (transports/). Call path of its arrival: tw_worker_progress -> Port::progress -> Engine::on_frame -> on_tagged -> Matcher ->
// complete.
//
// Parts with a class of their own: Receives (posted receives, unexpected messages), Completions (where every completion is delivered),
// RunPool (requests by number, runs by their names on the wire), Pusher (what waits for room), ActiveTable, DeviceQueues.
//
// Threads. Single: one thread at a time, no lock. Multi: every public call takes the engine's lock by itself (the static
// ones that take a request number too, where they must); test() and info() never do. Callbacks of requests run at the end of
// progress() outside the lock; handlers of active messages run inside it and may post (the lock is recursive).
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/peer_bytes.hpp"
#include "devices/persistent/options.hpp"
#include "protocols/completions.hpp"
#include "protocols/engine_lock.hpp"
#include "protocols/operation.hpp"
#include "protocols/peer.hpp"
#include "protocols/pusher.hpp"
#include "protocols/receives.hpp"
#include "protocols/run_pool.hpp"
#include "protocols/wire.hpp"
#include "routes/device_messages.hpp"
#include "routes/traffic.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

class Registry;
struct CostTable;
class DeviceTable;
class ActiveTable;
class DeviceQueues;

/// Where counters of an engine start: zero, but in tests that let them wrap or leave 32 bits soon.
struct FirstNumbers {
  uint32_t generation = 0;   // of requests; even
  uint64_t receive = 0;      // the order of posted receives
  uint64_t ticket = 0;       // calls of the queues of a device
  uint64_t stream_wait = 0;  // how often a StreamWait was armed
};

/// Of bounce buffers (bounce.hpp). Tests take less.
struct BounceSizes {
  uint64_t from = kNamedFrom;                   // payloads that are named
  uint64_t host = 2u << 20, device = 8u << 20;  // a chunk
  uint64_t by_cpu = 256u << 10;                 // the most of a piece that a CPU takes, in one turn: some twenty microseconds
  /// Two processes on one GPU have it in turns, in which each waits for its copies within it: some 80 us (H200). Copies over
  /// the bus do not wait, and take as long for so many bytes; but for managed memory, of which each copy waits.
  uint64_t shared_from = 8u << 20;
};

struct EngineOptions {
  Registry* registry = nullptr;
  const CostTable* costs = nullptr;     // outlives the engine; null: the defaults
  DeviceTable* device_costs = nullptr;  // as well
  uint64_t incarnation = 0;
  uint64_t unexpected_budget = 64u << 20;
  bool multi_threaded = false;
  bool imports = true;  // of peers' device memory, for single operations. Not where a device's queue may wait for one of them
  PersistentOptions persistent;  // copies by a kernel that stays; none by default
  Way way = Way::any;            // the only one beside frames, for measurements
  FirstNumbers first;
  BounceSizes bounces;
  uint64_t header_silence_ns = 30'000'000'000;  // flow.cpp. Tests take less
  uint64_t hidden_from = kHiddenFrom;           // device_messages.hpp. Tests take less
  Traffic* traffic = nullptr;                   // knows this engine's endpoints; outlives it. Null: nobody watches
  uint64_t worker = 0;                          // their owner's name in it, and in the timeline
  void* owner = nullptr;                        // core's worker; passed to `lost`
  void (*lost)(void* owner, Peer& peer, Status why) = nullptr;  // after the peer's runs were ended; once per peer
};

/// Payload that data frames are still to bring, of all peers.
class Incoming {
 public:
  uint64_t bytes() const { return bytes_; }
  void expect(uint64_t bytes) { bytes_ += bytes; }
  /// The run's phase is over, or never began.
  void end(OpRun& run) {
    if (run.pipeline.kind == Pipeline::in) bytes_ -= run.pipeline.end - run.pipeline.begin;
    run.pipeline.kind = Pipeline::none;
  }

 private:
  uint64_t bytes_ = 0;
};

class Engine final : public Sink {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine() override;  // ends what is pending with TW_ERR_CLOSED (callbacks are called), closes links and ports
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Holds the engine's lock where there is one.
  class Guard {
   public:
    explicit Guard(Engine& engine) : lock_(engine.options_.multi_threaded ? &engine.lock_ : nullptr) {
      if (lock_ != nullptr) lock_->lock();
    }
    ~Guard() {
      if (lock_ != nullptr) lock_->unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    EngineLock* lock_;
  };

  // --- life of peers
  void add_port(std::unique_ptr<Port> port);
  const std::vector<std::unique_ptr<Port>>& ports() const { return ports_; }
  void add(Peer& peer);                                          // known, may be posted to; not connected yet
  void attach(Peer& peer, Link& link);                           // connected: what was queued starts
  void fail(Peer& peer, Status status, const std::string& why);  // every pending run of it ends, once; its link is closed
  void close(Peer& peer, bool graceful);                         // sends the peer a goodbye when graceful; then fail(CLOSED)
  void remove(Peer& peer);                                       // before the Peer is freed; fails it when still alive
  const std::vector<Peer*>& peers() const { return peers_; }
  bool idle(const Peer& peer) const;  // nothing waits for it: neither queued nor unanswered

  // --- posting. Checks of arguments were made by the caller (core); these choose a protocol and start it.
  // TW_OK: complete, no request, no callback, no entry. TW_IN_PROGRESS: *request or the sink reports completion; always so of receives.
  Status start(const OpDesc& op,
               const Completion& completion);  // send, am, bytes_send, bytes_recv, put, get, atomic, signal, flush
  Status post_receive(const OpDesc& op, const Completion& completion);  // tagged; op.peer: only from it
  /// The short form of a contiguous send without options: TW_OK when it was sent, TW_AGAIN: use start().
  Status try_send(Peer& peer, const void* buffer, size_t length, uint64_t tag, uint64_t immediate, uint8_t flags = 0);
  Status cancel(tw_request request);

  // --- progress
  /// looks: as Port::looks, where one port alone is in use and no other thread may wait for the lock.
  unsigned progress(unsigned looks = 1) { return looks == 1 && nothing_new() ? 0 : progress_all(looks); }
  /// The same, whatever nothing_new() says.
  unsigned progress_all(unsigned looks);
  /// No call has left anything to do since the last progress, and the only port in use shows no event: progress() would find nothing.
  /// Only now and then it says no without a reason, so that progress() does what is rare.
  bool nothing_new() {
    if (calm_ == 0 || !lone_->glance.nothing()) return false;
    --calm_;
    return true;
  }
  /// May this thread progress here? Not in a handler of this engine's, nor in a callback.
  bool may_progress();
  /// Does this thread run a handler of active messages of this engine's? What is not over then ends only behind it.
  bool in_handler() {
    const Guard guard(*this);
    return progressing_;
  }
  /// Before sleeping: TW_OK when every port is armed and nothing is left to do; TW_ERR_BUSY: progress first. told: callbacks that are due,
  /// and are another thread's to call, are no reason: when that thread has called one, it wakes this one.
  Status arm(bool told = false);

  Completions& completions() { return completions_; }

  // --- requests, by number, any engine
  static Status test(tw_request request) { return RunPool::test(request); }
  static Status info(tw_request request, tw_recv_info* out);
  static const char* text_of(const OpRun& run);    // why it failed
  static const char* message(tw_request request);  // valid until release
  static Status release(tw_request request);
  /// TW_OK: it had succeeded and is released now, with one look-up. TW_IN_PROGRESS: take the long way (test, release).
  static Status finish(tw_request request);
  static Engine* engine_of(tw_request request);  // null: not alive
  /// Is it alive, and has it ended, however?
  static bool over(tw_request request);
  void* owner() const { return options_.owner; }

  // --- Sink
  void on_frame(Link& link, const FrameHeader& header, const std::byte* body) override;
  std::byte* destination(Link& link, const FrameHeader& header, const std::byte* prefix, size_t prefix_length) override;
  void on_landed(Link& link, const FrameHeader& header) override;
  void on_sent(Link& link, void* token, Status status) override;
  void on_lost(Link& link, Status status, const char* why) override;
  void on_import(Link& link, uint64_t segment) override;

  // --- for the protocols (lock held, or progress owner)
  /// A run in progress with a copy of op (layouts retained); null at the limit of requests.
  OpRun* acquire(const OpDesc& op);
  inline OpRun* acquire_blank();  // run.own is the last life's: the caller fills in what it needs, both layouts included
  OpRun* acquire(const OpDesc& op, const Completion& completion);
  /// From now on a loss of the peer ends this run.
  void bind(OpRun& run, Peer& peer);
  /// Ends the run, exactly once: out of every list, status stored, callback scheduled, or slot freed if it has no holder.
  void complete(OpRun& run, Status status) { complete_here(run, status); }
  /// As complete, with a text for tw_request_message.
  void complete(OpRun& run, Status status, const std::string& text);
  /// A receive whose message is here, run.info included: TW_OK, or TW_ERR_TRUNCATED with both lengths.
  void complete_received(OpRun& run) {
    if (run.info.length <= run.op->length) [[likely]]
      return complete_here(run, TW_OK);
    complete_truncated(run);
  }
  /// Gives a run back that never started, or was over at once: no completion is seen. status: for the timeline.
  void discard(OpRun& run, Status status = TW_OK);
  /// Hands out the request number; `done` runs are handed out too. Returns TW_IN_PROGRESS.
  Status hand_out(OpRun& run, const Completion& completion) {
    if (completion.request != nullptr) *completion.request = runs_->number(run);
    return TW_IN_PROGRESS;
  }
  /// Acquires a run for op, gives it `protocol`, and steps it now or queues it in peer.ordered behind what waits there.
  /// step's TW_AGAIN leaves it in the queue (TW_OP_NO_WAIT: nothing is queued). Returns what start() returns.
  Status launch(const OpDesc& op, const Completion& completion, const Protocol& protocol);
  /// A small frame (body <= ControlFrame::kBody) that never waits behind payload. Cannot fail: queued while there is no
  /// room.
  void send_control(Peer& peer, FrameHeader header, const void* body);
  /// The next progress looks at its ports.
  void end_calm() {
    if (calm_ != 0) calm_ = 0;  // never stored to where there is a lock: nothing_new() does not take it
  }
  /// Protocol violation: the peer is notified, and closed at the end of this progress. Its frames are ignored from now on.
  [[gnu::cold]] void violation(Peer& peer, const char* what);
  /// The same of a link that this worker does not want: both sides get `status` and the text.
  [[gnu::cold]] void turn_away(Peer& peer, Status status, const char* why);
  /// The connection ends with `status` at the end of this progress.
  [[gnu::cold]] void doom(Peer& peer, Status status, const std::string& why);
  Registry& registry() { return *options_.registry; }
  const EngineOptions& options() const { return options_; }
  /// Its operations are waited for by kernels and queues: no import for a single one, and no persistent kernel, whose copies a waiting
  /// kernel may leave no room for.
  void serve_kernels() {
    options_.imports = false;
    options_.persistent = {};
  }
  Receives& receives() { return receives_; }
  const Receives& receives() const { return receives_; }
  Pusher& pusher() { return pusher_; }
  ActiveTable& active() { return *active_; }
  /// Handles frames that run nothing of a user's, as a call that posts may; none within progress.
  void take_frames();
  /// Within a call that posts: there may be no progress for a while after it, here or at the peer.
  bool in_call() const { return in_call_; }
  class InCall;
  DeviceQueues& devices();  // made at the first use
  /// A piece of the run's device work is over. False: nothing more of the run: it was ended meanwhile, and is gone with its
  /// last piece, or it is about to be.
  bool work_over(OpRun& run);
  /// May a run that waited for a device, a stream or an import use its peer's link? False: it is lost, and the run ends with
  /// it.
  static bool goes_on(const OpRun& run) { return run.peer == nullptr || !run.peer->doomed; }
  RunPool& runs() { return *runs_; }
  const RunPool& runs() const { return *runs_; }
  Incoming incoming;
  uint64_t granted = 0;         // of unexpected_budget, to all peers; with what those that have ended left
  uint64_t left = 0;            // ... of that, in messages of peers whose link has ended
  uint64_t headers = 0;         // ... of that, for long headers of active messages
  uint64_t answers_cost = 0;    // of the answers that wait for room to any peer (answer.hpp)
  uint64_t control_frames = 0;  // that wait for room to any peer

 private:
  [[gnu::cold]] bool may_queue(Peer& peer);
  unsigned progress_locked();
  unsigned progress_ports();
  unsigned progress_waiting();
  unsigned turn(unsigned looks);
  /// The next progress looks at all ports.
  void look_everywhere() {
    lone_ = nullptr;
    calm_turns_ = 0;
    end_calm();
  }
  static void tell_end(Peer& peer, Status status, const std::string& text);
  void close_doomed();
  void end_runs(Peer& peer, Status status, const std::string& why);
  [[gnu::cold]] void complete_truncated(OpRun& run);
  /// complete(), for where a call is worth saving.
  [[gnu::always_inline]] void complete_here(OpRun& run, Status status) {
    // In no list, and either a request that only its holder can test, or a receive whose callback is due.
    const bool called = run.sink == SinkKind::callback;
    if (run.posted || run.list != nullptr || run.peer != nullptr || run.extras ||
        (called ? run.op->verb != Verb::recv : run.sink != SinkKind::none || run.detached)) [[unlikely]]
      return complete_any(run, status);
    run.cancelable = false;
    run.pipeline.kind = Pipeline::none;
    completions_.deliver_short(run, status, called);
  }
  void complete_any(OpRun& run, Status status);  // whatever holds it
  static Status settle_calls(OpRun& run, Status status);
  void unlink(OpRun& run);
  void start_devices();

  EngineOptions options_;
  EngineLock lock_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Peer*> peers_;
  RunPool* runs_ = nullptr;
  std::unique_ptr<ActiveTable> active_;
  std::unique_ptr<DeviceQueues> devices_;
  Pusher pusher_;
  std::vector<std::pair<Peer*, Status>> doomed_;
  bool progressing_ = false;
  bool in_call_ = false;
  Port* lone_ = nullptr;  // the only port in use
  // So many calls of progress may ask nothing_new(), from the next one on and behind each that looks everywhere. Not 0 only with
  // lone_, without a lock and without devices, while no peer is busy and no callback is due.
  unsigned calm_ = 0, calm_turns_ = 0;
  Receives receives_;
  Completions completions_;
};

/// A call that posts a receive into device memory, unless a handler in progress makes it. What devices can begin has begun
/// when it ends.
class Engine::InCall {
 public:
  explicit InCall(Engine& engine)
      : engine_(engine), outer_(std::exchange(engine.in_call_, engine.in_call_ || !engine.progressing_)) {}
  ~InCall() {
    engine_.in_call_ = outer_;
    if (engine_.devices_ != nullptr) engine_.start_devices();
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  Engine& engine_;
  const bool outer_;
};

inline OpRun* Engine::acquire_blank() {
  OpRun* run = runs_->acquire();
  if (run == nullptr) [[unlikely]]
    return nullptr;
  run->detached = run->cancelable = run->posted = false;
  run->stage = 0;
  run->list = nullptr;
  run->peer = nullptr;
  run->op = &run->own;
  run->protocol = nullptr;
  run->then = run->fin = nullptr;
  run->moved = run->peer_op = 0;
  run->sink = SinkKind::none;
  run->has_sink = false;
  run->pipeline.kind = Pipeline::none;
  run->pipeline.in_flight = 0;
  return run;
}

inline Matcher& Receives::matcher(uint8_t frame_flags) { return *matchers_[frame_flags / kFrameGroup & 1]; }

inline void Pusher::wants(Peer& peer) {
  if (peer.busy) return;
  peer.busy = true;
  peer.next_busy = busy_;
  busy_ = &peer;
  engine_.end_calm();
}

inline void Completions::call_later(OpRun& run) {
  callbacks_.push_back(&run);
  engine_.end_calm();
}

/// Type byte of a header: all frames of this version must be understood.
constexpr uint8_t frame_type(Frame frame) { return static_cast<uint8_t>(frame) | kMustUnderstand; }
inline FrameHeader make_header(Frame frame, size_t length, uint64_t a, uint64_t b, uint8_t flags = 0, uint16_t id = 0) {
  // In one store: ports load these fields as one word, which would wait for several.
  static_assert(std::endian::native == std::endian::little);
  const uint64_t word =
      static_cast<uint32_t>(length) | uint64_t{frame_type(frame)} << 32 | uint64_t{flags} << 40 | uint64_t{id} << 48;
  FrameHeader header;
  std::memcpy(&header, &word, sizeof word);
  header.a = a;
  header.b = b;
  return header;
}

/// The run outlives the call that posted it; its header is the caller's only until then. False: no memory for a copy.
[[gnu::cold]] bool keep_header(OpRun& run);

}  // namespace thalweg::impl
