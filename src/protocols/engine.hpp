// SPDX-License-Identifier: Apache-2.0
// The protocol engine of one worker: requests, matching, the frames' dispatch table. core/ wraps it in tw_worker.
//
// Call path of a small tagged send: tw_send (core/c_message.cpp) -> try_send (protocols/eager.cpp) -> Port::send
// (transports/). Call path of its arrival: tw_worker_progress -> Port::progress -> Engine::on_frame -> on_tagged -> Matcher ->
// complete.
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
#include "protocols/run_pool.hpp"
#include "protocols/wire.hpp"
#include "routes/device_messages.hpp"
#include "routes/traffic.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

class Registry;
struct CostTable;
class DeviceTable;
class Matcher;
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

/// A receive on the stack of a caller that waits for it. While it is the only posted one, a whole message goes straight from
/// its frame to the buffer (the short form of a receive). As soon as anything else could match, it becomes an OpRun.
struct WaitedReceive {
  std::byte* address = nullptr;
  uint64_t length = 0, tag = 0, mask = 0;
  tw_recv_info info{};
  Status status = TW_IN_PROGRESS;
  OpRun* run = nullptr;
  bool done() const {
    // acquire: pairs with complete(); what was received is visible
    return (run == nullptr ? status : Status(run->status.load(std::memory_order_acquire))) != TW_IN_PROGRESS;
  }
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
  /// The short form of a contiguous receive into host memory, from any source. request must not be null.
  Status post_short(void* buffer, size_t length, uint64_t tag, uint64_t mask, tw_request* request);
  /// The same with a sink, with or without a request.
  Status post_short(void* buffer, size_t length, uint64_t tag, uint64_t mask, const Completion& completion);
  /// The same for a blocking caller: progress() until receive.done(), then end_wait(), which returns its status.
  void post_wait(WaitedReceive& receive);
  Status end_wait(WaitedReceive& receive);
  /// on_tagged's first question: is this whole message for the receive that a thread waits for? Then it is delivered.
  bool deliver_waited(Peer& peer, const FrameHeader& header, PeerBytes& body);
  /// ... and the second: is it for the only receive that is posted?
  bool deliver_sole(Peer& peer, const FrameHeader& header, PeerBytes& body);
  static const char* text_of(const OpRun& run) {
    return run.text != nullptr ? run.text->c_str() : status_text(run.status.load(std::memory_order_relaxed));
  }
  /// The short form of a contiguous send without options: TW_OK when it was sent, TW_AGAIN: use start().
  Status try_send(Peer& peer, const void* buffer, size_t length, uint64_t tag, uint64_t immediate, uint8_t flags = 0);
  /// TW_OK with info (and the message taken out when asked), or TW_ERR_NO_MATCH.
  Status probe(uint64_t tag, uint64_t mask, const Peer* source, tw_recv_info* info, tw_message** message);
  Status receive_message(tw_message* message, const OpDesc& op, const Completion& completion);  // ends the message
  Status cancel(tw_request request);
  /// tw_request_before (stream_waits.cpp).
  Status before(tw_request request, const void* stream);

  // --- active messages
  Status set_handler(uint16_t id, tw_am_handler handler, void* arg);
  Status active_receive(tw_am_data* data, const OpDesc& op, const Completion& completion);  // ends the descriptor
  Status active_release(tw_am_data* data);
  static Engine* engine_of(tw_am_data* data);
  static Engine* engine_of(tw_message* message);

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
  /// Before sleeping: TW_OK when every port is armed and nothing is left to do; TW_ERR_BUSY: progress first.
  Status arm();

  /// Where completions are delivered, beside requests.
  Completions& completions() { return completions_; }

  // --- requests, by number, any engine
  static Status test(tw_request request) { return RunPool::test(request); }
  static Status info(tw_request request, tw_recv_info* out);
  static const char* message(tw_request request);  // valid until release
  static Status release(tw_request request);
  /// TW_OK: it had succeeded and is released now, with one look-up. TW_IN_PROGRESS: take the long way (test, release).
  static Status finish(tw_request request);
  static Engine* engine_of(tw_request request);  // null: not alive
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
  [[gnu::cold]] static std::string truncated_text(uint64_t message, uint64_t buffer);
  /// Gives a run back that never started, or was over at once: no completion is seen. status: for the timeline.
  void discard(OpRun& run, Status status = TW_OK);
  /// Hands out the request number; `done` runs are handed out too. Returns TW_IN_PROGRESS.
  Status hand_out(OpRun& run, const Completion& completion) {
    if (completion.request != nullptr) *completion.request = number(run);
    return TW_IN_PROGRESS;
  }
  /// Acquires a run for op, gives it `protocol`, and steps it now or queues it in peer.ordered behind what waits there.
  /// step's TW_AGAIN leaves it in the queue (TW_OP_NO_WAIT: nothing is queued). Returns what start() returns.
  Status launch(const OpDesc& op, const Completion& completion, const Protocol& protocol);
  /// A small frame (body <= ControlFrame::kBody) that never waits behind payload. Cannot fail: queued while there is no
  /// room.
  void send_control(Peer& peer, FrameHeader header, const void* body);
  uint64_t number(const OpRun& run) const { return runs_->number(run); }  // the request number; never on the wire
  OpRun* find(uint64_t number) { return runs_->find(number); }
  /// The same, where it is still under way with this peer.
  OpRun* find(uint64_t number, const Peer& peer) { return under_way(runs_->find(number), peer); }
  /// The run's name on the wire, drawn when a frame first carries it.
  uint64_t wire_op(OpRun& run) { return runs_->wire_op(run); }
  /// The run that `peer` answers: null if this op was never sent to it, or the run has ended.
  OpRun* answered(uint64_t op, const Peer& peer) { return under_way(runs_->named(op), peer); }
  /// The peer has something queued: progress pushes.
  void wants_push(Peer& peer) {
    if (peer.busy) return;
    peer.busy = true;
    peer.next_busy = busy_;
    busy_ = &peer;
    end_calm();
  }
  /// The next progress looks at its ports.
  void end_calm() {
    if (calm_ != 0) calm_ = 0;  // never stored to where there is a lock: nothing_new() does not take it
  }
  /// Protocol violation: the peer is notified, and closed at the end of this progress. Its frames are ignored from now on.
  [[gnu::cold]] void violation(Peer& peer, const char* what);
  /// The connection ends with `status` at the end of this progress.
  [[gnu::cold]] void doom(Peer& peer, Status status, const std::string& why);
  Registry& registry() { return *options_.registry; }
  const EngineOptions& options() const { return options_; }
  void forbid_imports() { options_.imports = false; }
  void forbid_persistent() { options_.persistent = {}; }
  /// Where a message with these flags of its frame is matched: users' messages and those of groups never meet.
  Matcher& matcher(uint8_t frame_flags = 0) { return *matchers_[frame_flags / kFrameGroup & 1]; }
  Matcher& matcher(const OpDesc& op) { return *matchers_[op.flags / kOpGroup & 1]; }
  /// To match or to post users' receives: the waited or the sole one is among the posted ones from here on.
  Matcher& receives(uint8_t frame_flags = 0) {
    if (!nothing_posted()) [[unlikely]]
      post_sole();
    return matcher(frame_flags);
  }
  ActiveTable& active() { return *active_; }
  /// The same for a receive that was just taken out of matching for a message of this peer: where it is offered to a peer
  /// (offers.hpp), it is withdrawn there, or the next one is taken (null: none). False: a violation.
  bool free_to_match(Peer& peer, uint64_t tag, OpRun** run) {
    return *run == nullptr || (*run)->offer == 0 || withdraw_offers(peer, tag, run);
  }
  /// The only peer with a link, or null.
  Peer* only_peer() const;
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
  /// Payload that data frames are still to bring, of all peers.
  uint64_t incoming() const { return incoming_; }
  void expect(uint64_t bytes) { incoming_ += bytes; }
  void end_pipeline(OpRun& run) {
    if (run.pipeline.kind == Pipeline::in) incoming_ -= run.pipeline.end - run.pipeline.begin;
    run.pipeline.kind = Pipeline::none;
  }
  /// The operation's payload has moved by this way. Parts are not counted: the operation that they belong to is.
  static void count_moved(const OpDesc& op, Way way) {
    if ((op.flags & kOpPart) == 0 && op.length != 0) op.peer->tally.moved.count(way, op.length);
  }
  /// The same of an eager message, of which one without bytes counts, too.
  static void count_sent(const OpDesc& op) {
    if ((op.flags & kOpPart) == 0 && (op.length != 0 || op.verb == Verb::send))
      op.peer->tally.moved.count(Way::eager, op.length);
  }
  /// By the endpoints that it has now.
  Moved::Count moved(Way way) const;
  uint64_t named() const;
  /// Receives that wait for a message, and messages that wait for a receive. Any thread.
  struct Held {
    uint64_t posted = 0, unexpected = 0;
  };
  Held held() const;
  uint64_t granted = 0;  // of unexpected_budget, to all peers
  uint64_t headers = 0;  // ... of that, for long headers of active messages

 private:
  OpRun* post_run(void* buffer, size_t length, uint64_t tag, uint64_t mask, const Completion* completion = nullptr);
  static void name_completion(OpRun& run, const Completion& completion) {
    name_sink(run, completion);
    run.detached = !keeps_run(completion.kind) && completion.request == nullptr;
  }
  bool nothing_posted() const {
    return waited_.load(std::memory_order_relaxed) == nullptr && sole_.load(std::memory_order_relaxed) == nullptr;
  }
  void post_waited(WaitedReceive& receive);
  void post_sole();
  unsigned progress_locked();
  unsigned progress_ports();
  unsigned progress_waiting();
  unsigned turn(unsigned looks);
  unsigned run_callback();
  /// ... at all of them.
  void look_everywhere() {
    lone_ = nullptr;
    calm_turns_ = 0;
    end_calm();
  }
  static OpRun* under_way(OpRun* run, const Peer& peer) {
    const bool is = run != nullptr && run->peer == &peer && run->status.load(std::memory_order_relaxed) == TW_IN_PROGRESS;
    return is ? run : nullptr;
  }
  unsigned push(Peer& peer);
  unsigned push_queue(Peer& peer, RunList& queue);
  unsigned push_pipelines(Peer& peer);
  unsigned push_windows(Peer& peer);
  unsigned push_all();
  void close_doomed();
  void end_runs(Peer& peer, Status status, const std::string& why);
  /// The request has no holder any more.
  void end(OpRun& run) {
    if (run.status.load(std::memory_order_relaxed) == TW_IN_PROGRESS || completions_.is_due(run)) {
      run.detached = true;
    } else {
      release_run(run);
    }
  }
  void release_run(OpRun& run) { runs_->free(run); }
  [[gnu::cold]] void complete_truncated(OpRun& run) {
    complete(run, TW_ERR_TRUNCATED, truncated_text(run.info.length, run.op->length));
  }
  /// complete(), for where a call is worth saving.
  [[gnu::always_inline]] void complete_here(OpRun& run, Status status) {
    // In no list, and either a request that only its holder can test, or a receive whose callback is due.
    const bool called = run.sink == SinkKind::callback;
    if (run.posted || run.list != nullptr || run.peer != nullptr || run.extras ||
        (called ? run.op->verb != Verb::recv : run.sink != SinkKind::none || run.detached)) [[unlikely]]
      return complete_any(run, status);
    run.cancelable = false;
    run.pipeline.kind = Pipeline::none;
    run.status.store(status, std::memory_order_release);  // with the bytes and run.info
    if (called) completions_.call_later(run);
  }
  void complete_any(OpRun& run, Status status);  // whatever holds it
  static Status settle_calls(OpRun& run, Status status);
  void unlink(OpRun& run);
  Status place_receive(OpRun& run);
  bool take_unexpected(OpRun& run);
  Status post_device(OpRun& run);
  void take_frames();
  void start_devices();
  [[gnu::cold]] bool withdraw_offers(Peer& peer, uint64_t tag, OpRun** run);

  EngineOptions options_;
  EngineLock lock_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Peer*> peers_;
  RunPool* runs_ = nullptr;
  std::unique_ptr<Matcher> matchers_[2];  // of users, of groups
  std::unique_ptr<ActiveTable> active_;
  std::unique_ptr<DeviceQueues> devices_;
  Peer* busy_ = nullptr;
  std::vector<std::pair<Peer*, Status>> doomed_;
  bool progressing_ = false;
  bool in_call_ = false;
  Port* lone_ = nullptr;  // the only port in use
  // So many calls of progress may ask nothing_new(), from the next one on and behind each that looks everywhere. Not 0 only with
  // lone_, without a lock and without devices, while no peer is busy and no callback is due.
  unsigned calm_ = 0, calm_turns_ = 0;
  // Both relaxed: written by the progress owner, read by held() in any thread.
  std::atomic<WaitedReceive*> waited_{nullptr};
  std::atomic<OpRun*> sole_{
      nullptr};  // a short receive that was posted while nothing was to match: not in the matcher, until receives()
  uint64_t incoming_ = 0;
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
