// SPDX-License-Identifier: Apache-2.0
// One run of a program: engines in this process joined by the model's network, and beside them what the reference says.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "model/buffers.hpp"
#include "model/coverage.hpp"
#include "model/devices.hpp"
#include "model/host.hpp"
#include "model/matching.hpp"
#include "model/order.hpp"
#include "model/port.hpp"
#include "model/program.hpp"
#include "model/threads.hpp"
#include "protocols/engine.hpp"

namespace thalweg::model {

/// Runs the program. What went wrong, or "".
std::string run(const Program& program, Coverage* coverage = nullptr);

class Groups;
class World;
struct Posted;

/// A word that operations replace, each by its own number.
struct ReplacedWord {
  std::vector<Posted*> all;
  std::map<uint64_t, Posted*> by;  // the operation known to have replaced each number
};

/// A stream of the user waits for `posted`, and writes `mark` behind that.
struct AwaitedBefore {
  Posted* posted;
  uint64_t mark;
};

/// A range of the target's memory, and where in the packed payload it comes from.
struct Range {
  uint64_t begin, end;
  int64_t shift;
};

/// An operation that was posted.
struct Posted {
  World* world = nullptr;
  uint32_t id = 0;
  What what = What::turns;
  uint32_t flags = 0;
  unsigned worker = 0, peer = 0;
  tw_request request = TW_REQUEST_NONE;
  Status status = TW_IN_PROGRESS;
  bool ended = false;
  bool fills = false;                                          // its payload is what its stream writes
  bool at_once = false, unconnected = false, refused = false;  // how it began
  bool over = false;                                           // never began, or the worker is dead: nothing is expected of it
  bool canceled = false;                                       // cancel() said so
  Buffer* buffer = nullptr;
  uint64_t length = 0, tag = 0, mask = 0;
  // Messages.
  bool claimed = false;  // a send that is complete before its RTS has come: its receive is matched
  bool arrived = false, here = false;
  uint32_t partner = 0;  // of a send its receive, of a receive its message
  uint32_t header_length = 0;
  std::vector<std::byte> got;  // from a byte stream
  // One-sided.
  Access access;
  unsigned memory = 0, signal = 0, word = 0;
  std::vector<Range> ranges;
  int signal_bit = -1, word_bit = -1;
  bool data_sure = false, sure = false;
  uint32_t sure_at = 0;
  uint64_t result = 0;
  ReplacedWord* replaces = nullptr;
  bool conditional = false, replaced = false, found = false;  // found: `result` is what it found
  uint64_t compare = 0;
  uint32_t collective = 0;  // which call of Groups
};

class World final : Watcher {
 public:
  World(const Program& program, Coverage* coverage);
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  std::string run();

 private:
  friend class Groups;
  friend class Threads;
  friend class Owns;
  /// A worker's endpoint to another one.
  struct End {
    End() : peer(handle.peer.emplace()) { handle.user = this; }
    static End& of(const tw_endpoint* handle) { return *static_cast<End*>(handle->user); }
    tw_endpoint handle;  // as core's
    Peer& peer;
    ModelLink* link = nullptr;
    unsigned worker = 0, to = 0;
    bool attached = false;
    bool broken = false;    // something happened that may end its operations with an error
    bool lost = false;      // the engine said so
    bool closed = false;    // here
    bool graceful = false;  // ... with nothing under way
    RemoteRegion* regions[kMemories] = {};
    RemoteRegion* signals[kSignals] = {};
    bool handle_gone[kMemories] = {};
    uint32_t epoch = 0;
    std::vector<Posted*> one_sided;              // in the order of posting
    size_t settled = 0;                          // of them, from the front, are sure
    std::deque<Posted*> sends, actives, stream;  // in order, not arrived
    std::deque<Posted*> stream_receives;         // of this side, in order
    uint64_t stream_read = 0;                    // of the front of `stream`, by the other side
    bool stream_unknown = false;
    std::deque<Posted*> notices;  // whose notifications have not come, in the order of the operations
    uint32_t assembling = 0;      // the message from there that comes in several frames
    uint64_t assembly_left = 0;
  };
  struct WordState {
    uint64_t initial = 0;
    std::vector<Posted*> bits;
  };
  struct Worker {
    std::unique_ptr<Engine> engine;
    ModelPort* port = nullptr;
    Host* host = nullptr;
    Exports* exports = nullptr;
    Matching matching;
    Order orders[kMemories];
    bool released[kMemories] = {}, used[kMemories] = {};
    WordState words[kMemories][6], signals[kSignals];
    ReplacedWord replaced[kMemories][2];  // of 8 and of 4 bytes
    std::deque<std::pair<tw_message*, KnownMessage>> taken;
    std::deque<std::pair<tw_am_data*, Posted*>> kept;
    std::vector<Posted*> pending;
    std::unique_ptr<HeldStream> held_stream;
    std::vector<Posted*> late;  // whose buffers are the stream's still
    std::unique_ptr<Marks> marks;
    std::deque<AwaitedBefore> awaited;  // in the stream's order
    unsigned index = 0;
    World* world = nullptr;
  };

  // --- schedule.cpp
  void turns();
  void event();
  unsigned progress(Worker& worker);
  void poll(Worker& worker);
  bool asleep(const Worker& worker) const { return worker.port->armed && !worker.port->readable; }
  void stir(Worker& worker) { worker.port->armed = worker.port->readable = false; }
  void settle();
  void check_asleep();

  // --- world.cpp
  void set_up();
  void do_op(const Op& op);
  void connect(unsigned a, unsigned b);
  void end_phase();
  bool receive_the_rest();
  void check_the_end();
  void check_pending();
  Posted& post(const Op& op);
  Posted& fresh(uint32_t id, What what, uint32_t flags, unsigned worker, unsigned peer);
  Completion completion(Posted& posted);
  /// What start() and its like returned.
  void posted(Posted& posted, Status status);
  void ended(Posted& posted, Status status, const tw_recv_info& info);
  void drop(Posted& posted);
  void cover(const Posted& posted) { cover(posted, posted.what); }
  void cover(const Posted& posted, What what);
  bool dead(unsigned worker) const { return workers_[worker].port->dead; }
  const Peer* claimant(const Posted& receive);
  bool may_have_been_claimed(const Posted& receive) const;
  bool may_be_lost(const Posted& posted, unsigned from) const;
  static bool is_loss(Status status) { return status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED; }
  static void called_back(void* arg, tw_request request, tw_status status, const tw_recv_info* info);
  static void lost(void* owner, Peer& peer, Status why);
  End& end(unsigned worker, unsigned to) { return *ends_[worker][to]; }
  void wrong(const Posted& posted, const std::string& what);
  void wrong(const std::string& what);
  void fail(const char* what) override;
  /// To other threads: they test it.
  void show(tw_request request) {
    if (threads_ != nullptr) threads_->show(request);
  }
  /// Of a tag's bits: those that no message of other threads' has are among them.
  uint64_t mask_of(const Op& op) const;

  // --- messages.cpp
  void send(const Op& op);
  void receive(const Op& op);
  void probe(const Op& op);
  void take_receive(const Op& op);
  void cancel(const Op& op);
  void active(const Op& op);
  void active_receive(const Op& op);
  void active_release(const Op& op);
  void bytes(const Op& op);
  OpDesc local(const Posted& posted, Verb verb);
  void give_buffer(Posted& posted, const Op& op, uint64_t size, bool fill);
  void give_buffer(Posted& posted, uint64_t size, bool fill) { give_buffer(posted, Op{}, size, fill); }
  void order_behind_stream(Posted& posted, OpDesc& desc);
  Status start(Posted& posted, OpDesc& desc);
  void release_stream(Worker& worker);
  void match(Posted& receive, Posted& message);
  void on_arrival(unsigned from, unsigned to, const FrameHeader& header, const std::byte* body) override;
  void message_arrives(unsigned from, unsigned to, uint64_t id, uint64_t tag, uint64_t length, bool whole);
  void end_receive(Posted& posted, Status status, const tw_recv_info& info);
  void end_bytes(Posted& posted, Status status, const tw_recv_info& info);
  void read_stream(Posted& receive);
  uint64_t stream_left(unsigned from, unsigned to);
  static bool vanished(const Posted& posted) { return posted.canceled || posted.status == TW_AGAIN; }
  static Posted* next_of(std::deque<Posted*>& queue);
  void end_send(Posted& posted, Status status);
  static tw_status handler(void* arg, const tw_am_message* message);
  tw_status handle(Worker& worker, const tw_am_message& message);
  void receive_active(Worker& worker, tw_am_data* data, Posted& message, Posted& receive);
  void reply(Worker& worker, const Posted& message);
  void refused_post(Posted& posted, std::deque<Posted*>& queue, Status status);

  // --- one_sided.cpp
  void put_or_get(const Op& op);
  void atomic(const Op& op);
  void signal(const Op& op);
  void fence(const Op& op);
  void flush(const Op& op);
  void look(unsigned worker, unsigned memory);
  void look_at_signals(unsigned worker);
  void look_at_words(unsigned worker, unsigned memory);
  void release_region_of(const Op& op);
  void release_memory_of(const Op& op);
  RemoteRegion* region(End& end, unsigned memory);
  RemoteRegion* signal_region(End& end, unsigned signal);
  bool with_signal(Posted& posted, OpDesc& desc, unsigned signal);
  void enter_order(Posted& posted);
  void end_one_sided(Posted& posted, Status status);
  void end_get(Posted& posted);
  void end_atomic(Posted& posted);
  void end_flush(Posted& posted, Status status);
  /// It was seen, or said, to be applied: so is what comes before it behind a fence.
  void evidence(const Posted& posted);
  void make_data_sure(Posted& posted);
  void make_sure(Posted& posted);
  void signal_seen(Posted& posted);
  bool may_have_failed(const Posted& posted) const;
  bool any_released(unsigned worker) const;
  static bool is_put(const Posted& posted) { return posted.what == What::put || posted.what == What::put_blocks; }
  static bool is_get(const Posted& posted) { return posted.what == What::get || posted.what == What::get_blocks; }
  void check_bits(WordState& state, uint64_t value, unsigned bits, const Posted* reader, const char* what);
  void seen(const std::vector<const Access*>& accesses);

  // --- replaced.cpp
  void replace(const Op& op);
  void end_replace(Posted& posted);
  void check_replaced(ReplacedWord& word, uint64_t value, const Posted* reader, const std::string& what);

  // --- blocks.cpp
  void blocks(const Op& op);
  bool take_notification(unsigned worker);
  void check_notices(unsigned from, unsigned to);

  // --- streams.cpp
  void before(const Op& op);
  size_t awaited(const Worker& worker) const;
  void look_at_stream(Worker& worker);
  void check_stream(const Worker& worker);

  // --- ends.cpp
  void put_devices_to_work();
  void close(const Op& op);
  void cut(const Op& op);
  void kill(const Op& op);
  void break_pair(unsigned a, unsigned b);

  const Program& program_;
  Coverage* coverage_;
  Random random_;
  Net net_;
  Buffers& buffers_;
  Worker workers_[kWorkers];
  std::unique_ptr<End> ends_[kWorkers][kWorkers];
  std::deque<Posted> all_;
  std::vector<Posted*> by_id_;
  const Op* now_doing_ = nullptr;
  uint32_t clock_ = 1;
  uint32_t extra_id_ = 1000;
  bool over_ = false;  // engines are being destroyed
  std::unique_ptr<Threads> threads_;
  std::unique_ptr<Groups> groups_;
  std::string failure_;
};

}  // namespace thalweg::model
