// SPDX-License-Identifier: Apache-2.0
// The engine's life cycle of runs, posting and progress. Peers' lives are in engine_peers.cpp, what ports call in
// engine_sink.cpp; what waits for room is sent by the Pusher.
//
// A run is in at most one queue (run.list) and in at most one peer's `waiting` list (run.peer). Whatever ends it calls
// complete(), which takes it out of both. Its sink, if it has one, is told by Completions: callbacks at the end of progress(),
// outside the lock, so that frame handlers are never entered again from user code half-way.
#include "protocols/engine.hpp"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "protocols/active.hpp"
#include "protocols/answer.hpp"
#include "protocols/blocks.hpp"
#include "protocols/bounce.hpp"
#include "protocols/bytes.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/dispatch.hpp"
#include "protocols/flow.hpp"
#include "protocols/match.hpp"
#include "protocols/offers.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/pipeline.hpp"
#include "protocols/rendezvous.hpp"
#include "protocols/tracing.hpp"

namespace thalweg::impl {

namespace {
constexpr unsigned kBudget = 64;  // frames per port and progress
constexpr unsigned kCalm = 32;    // calls of progress between two that look everywhere

RunPool* take_pool(Engine* engine) {
  RunPool* const pool = RunPool::take(engine);
  if (pool == nullptr) throw std::length_error(last_error());
  return pool;
}
}  // namespace

Peer::Peer() = default;
Peer::~Peer() = default;

Engine::Engine(const EngineOptions& options)
    : options_(options),
      runs_(take_pool(this)),
      active_(new ActiveTable()),
      pusher_(*this),
      receives_(*this, options.first.receive),
      completions_(*this, runs_) {
  if (options.first.generation != 0) runs_->start_at(options.first.generation);
}

Engine::~Engine() {
  receives_.to_match();
  while (!peers_.empty()) remove(*peers_.back());
  receives_.end_all(TW_ERR_CLOSED, "the worker was destroyed");
  if (devices_ != nullptr) devices_->close();
  devices_.reset();
  completions_.run_callbacks();
  completions_.leave();
  ports_.clear();
  runs_->give_back();
}

void drop_dense_layout(OpDesc& op) {
  if (op.layout == nullptr || !op.layout->contiguous()) return;
  op.address += op.layout->start;
  op.layout = nullptr;
}

OpRun* Engine::acquire(const OpDesc& op) {
  OpRun* run = acquire_blank();
  if (run == nullptr) [[unlikely]]
    return nullptr;
  run->own = op;
  if (op.layout != nullptr) {
    drop_dense_layout(run->own);
    if (run->own.layout != nullptr) {
      retain(op.layout);
      run->extras = true;
    }
  }
  if (op.remote_layout != nullptr) {
    retain(op.remote_layout);
    run->extras = true;
  }
  if ((op.flags & kOpLate) != 0) {
    retain(op.after);
    run->extras = true;
  }
  return run;
}

OpRun* Engine::acquire(const OpDesc& op, const Completion& completion) {
  OpRun* run = acquire(op);
  if (run == nullptr) [[unlikely]]
    return nullptr;
  name_completion(*run, completion);
  if (trace::on()) [[unlikely]]
    trace_begin(*this, *run);
  return run;
}

void Engine::bind(OpRun& run, Peer& peer) {
  if (run.peer == &peer) return;
  if (run.peer != nullptr) run.peer->waiting.remove(&run);
  run.peer = &peer;
  peer.waiting.push_back(&run);
}

bool keep_header(OpRun& run) {
  if (run.owns_header) return true;
  auto* copy = new (std::nothrow) std::byte[run.own.header_length];
  if (copy == nullptr) return false;
  std::memcpy(copy, run.own.header, run.own.header_length);
  run.own.header = copy;
  run.owns_header = run.extras = true;
  return true;
}

DeviceQueues& Engine::devices() {
  if (devices_ == nullptr) {
    devices_ = std::make_unique<DeviceQueues>(*this);
    calm_turns_ = 0;
    end_calm();
  }
  return *devices_;
}

void Engine::start_devices() { devices_->start(); }

bool Engine::work_over(OpRun& run) {
  --run.work;
  if (!run.ended) return goes_on(run) || all_here(run);
  if (run.work == 0) {
    run.ended = false;
    complete_any(run, run.ending);
  }
  return false;
}

void Engine::unlink(OpRun& run) {
  if (run.posted) [[unlikely]] {
    if (run.offer != 0) end_offer(*this, run);
    if (run.posted) receives_.matcher(*run.op).withdraw(run);
  } else if (run.list != nullptr) {
    run.list->remove(&run);
  }
  if (run.peer != nullptr) {
    if (run.counted != Counted::no) count_out(run);
    if (run.holds_regions && run.own.blocks != nullptr) leave_notices(run);
    Peer& peer = *run.peer;
    peer.waiting.remove(&run);
    if (peer.assembly.run == &run) [[unlikely]] {
      peer.assembly.kind = Assembly::Kind::discard;  // the rest of its message is dropped
      peer.assembly.run = nullptr;
    }
    if (peer.destination == &run) [[unlikely]] {
      peer.destination = nullptr;
      if (peer.link != nullptr) peer.link->port->withdraw(*peer.link, run.op->address);
    }
    run.peer = nullptr;
  }
  incoming.end(run);
  run.cancelable = false;
}

/// Ends a layout of callbacks, which returns the status of packing or unpacking.
Status Engine::settle_calls(OpRun& run, Status status) {
  const Layout& layout = *run.own.layout;
  const Status failed = calls_failed(&layout);
  finish_calls(layout);
  if (failed == TW_OK || (is_error(status) && status != failed && status != TW_ERR_TRUNCATED)) return status;
  delete run.text;  // that of a truncated receive, perhaps
  run.text = run.detached ? nullptr : new std::string(layout.calls->text);
  return failed;
}

[[gnu::noinline]] void Engine::complete_any(OpRun& run, Status status) {
  unlink(run);
  if (run.work != 0) [[unlikely]] {  // a device still touches its buffer
    run.ended = run.late_end = true;
    run.ending = status;
    run.info.endpoint = nullptr;
    return;
  }
  if (run.loan != nullptr && !devices_->take_back(run, status)) [[unlikely]]
    return;  // ... or one of the other side, in this process
  if (run.extras && run.holds_regions) [[unlikely]]
    drop_regions(run);
  if (run.stream_wait != nullptr) release_all(std::exchange(run.stream_wait, nullptr));
  if (run.holding != nullptr) --std::exchange(run.holding, nullptr)->users;
  if (run.extras && by_calls(run.own)) [[unlikely]]
    status = settle_calls(run, status);
  if (run.traced) [[unlikely]]
    trace_end(*this, run, status);
  completions_.deliver(run, status);
}

void Engine::complete(OpRun& run, Status status, const std::string& text) {
  if (run.text == nullptr && !run.detached) {
    run.text = new std::string(text);
    run.extras = true;
  }
  complete(run, status);
}

void Engine::complete_truncated(OpRun& run) {
  complete(run, TW_ERR_TRUNCATED, truncated_text(run.info.length, run.op->length));
}

void Engine::discard(OpRun& run, Status status) {
  if (run.traced) [[unlikely]]
    trace_end(*this, run, status);
  if (run.list != nullptr) run.list->remove(&run);
  if (run.counted != Counted::no) count_out(run);
  if (run.peer != nullptr) run.peer->waiting.remove(&run);
  incoming.end(run);
  end_expected(run.sink, run.sink_target);
  runs_->free(run);
}

Status Engine::launch(const OpDesc& op, const Completion& completion, const Protocol& protocol) {
  Peer& peer = *op.peer;
  if (is_error(peer.state)) return impl::fail(peer.state, "%s", peer.why.c_str());
  RunList& queue = op.verb == Verb::bytes_send ? peer.bytes : peer.ordered;
  bool may_step = peer.link != nullptr && queue.empty() && peer.control.empty();
  bool no_wait = (op.flags & TW_OP_NO_WAIT) != 0;
  if (completion.request != nullptr) *completion.request = TW_REQUEST_NONE;
  if (!may_step && no_wait) return TW_AGAIN;
  OpRun* run = acquire(op, completion);
  if (run == nullptr) [[unlikely]]
    return TW_ERR_LIMIT;
  run->protocol = &protocol;
  run->cancelable = true;
  bind(*run, peer);
  uint64_t name = runs_->number(*run);
  Status status = may_step ? run->protocol->step(*run) : TW_AGAIN;
  if (status == TW_AGAIN) peer.tally.retries.add();
  if (status == TW_AGAIN && (!no_wait || run->stage != 0)) {
    if (op.header_length != 0 && !keep_header(*run)) {
      if (run->stage == 0) {
        discard(*run);
        return impl::fail(TW_ERR_NO_MEMORY, "no memory to queue an active message");
      }
      doom(peer, TW_ERR_NO_MEMORY, "no memory for the rest of an active message");
    }
    queue.push_back(run);
    pusher_.wants(peer);
    status = TW_IN_PROGRESS;
  } else if (status != TW_IN_PROGRESS) {
    discard(*run, status);
    return status;
  }
  if (completion.request != nullptr) *completion.request = name;
  return status;
}

Status Engine::start(const OpDesc& op, const Completion& completion) {
  Guard guard(*this);
  if (completion.kind != SinkKind::none && completion.kind != SinkKind::callback) return completions_.start(op, completion);
  return kStarters[static_cast<size_t>(op.verb)](*this, op, completion);
}

// ------------------------------------------------------------------------------------------------ progress

/// Finds the only port in use, where one alone is.
[[gnu::noinline]] unsigned Engine::progress_ports() {
  unsigned events = 0;
  for (auto& port : ports_) {
    if (port->quiet) continue;
    port->looks = 1;
    events += port->progress(kBudget);
  }
  // Counted behind them: a handler may have connected by a port that was quiet.
  unsigned used = 0;
  for (auto& port : ports_) {
    if (port->quiet) continue;
    ++used;
    lone_ = port.get();
  }
  if (used != 1) lone_ = nullptr;
  calm_turns_ = lone_ != nullptr && devices_ == nullptr && !options_.multi_threaded ? kCalm : 0;
  return events;
}

/// What devices have done, and what waits for room.
[[gnu::noinline]] unsigned Engine::progress_waiting() {
  unsigned events = 0;
  if (devices_ != nullptr && !devices_->idle()) events += devices_->poll();
  if (!pusher_.idle()) events += pusher_.push();
  if (!doomed_.empty()) [[unlikely]]
    close_doomed();
  return events;
}

/// Under the lock where there is one.
inline unsigned Engine::turn(unsigned looks) {
  unsigned events;
  progressing_ = true;
  if (lone_ != nullptr && !lone_->quiet) [[likely]] {
    lone_->looks = devices_ == nullptr || devices_->idle() ? looks : 1;
    events = lone_->progress(kBudget);
  } else {
    events = progress_ports();
  }
  if (!doomed_.empty()) [[unlikely]]
    close_doomed();  // what waits for a device or a stream ends with its peer, before anything reads the link
  if (devices_ != nullptr || !pusher_.idle()) events += progress_waiting();
  progressing_ = false;
  return events;
}

unsigned Engine::progress_all(unsigned looks) {
  if (options_.multi_threaded) [[unlikely]]
    return progress_locked();
  if (progressing_) return 0;  // from a handler of active messages
  const unsigned events = turn(looks);
  calm_ = pusher_.idle() ? calm_turns_ : 0;  // first: callbacks may end it
  return completions_.due() ? events + completions_.run_callbacks_unlocked() : events;
}

[[gnu::noinline]] unsigned Engine::progress_locked() {
  unsigned events = 0;
  {
    Guard guard(*this);
    if (progressing_) return 0;
    events = turn(1);  // another thread may wait for the lock
    if (!completions_.due()) return events;
  }
  return events + completions_.run_callbacks();
}

bool Engine::may_progress() {
  Guard guard(*this);
  return !progressing_ && !Completions::calling_back() && !RunPool::calls_back();
}

Status Engine::arm(bool told) {
  Guard guard(*this);
  look_everywhere();
  const bool due = told ? completions_.due_here() : completions_.due();
  if (due || !doomed_.empty()) return TW_ERR_BUSY;
  // A peer may be doomed by what another waits for.
  if (!pusher_.idle() && (pusher_.push() != 0 || !doomed_.empty())) return TW_ERR_BUSY;
  if (devices_ != nullptr && !devices_->idle()) return TW_ERR_BUSY;  // a device wakes no thread
  for (auto& port : ports_) {
    Status status = port->arm();
    if (status != TW_OK) return status;
  }
  return TW_OK;
}

/// May a control frame to this peer wait? As many may to all peers as to one alone, beyond which each still has its share; the peer
/// to which most wait is left.
bool Engine::may_queue(Peer& peer) {
  if (control_frames < ControlQueue::kLimit) return true;
  size_t all = 0;
  Peer* most = &peer;
  for (Peer* const one : peers()) {
    if (one->doomed) continue;  // its frames go with it, at the end of this progress
    all += one->control.size();
    if (one->control.size() > most->control.size()) most = one;
  }
  if (all < ControlQueue::kLimit || most->control.size() < ControlQueue::kShare) return true;
  doom(*most, TW_ERR_PEER_LOST, kUnreadAnswers);
  return most != &peer;
}

void Engine::send_control(Peer& peer, FrameHeader header, const void* body) {
  if (peer.link == nullptr || peer.doomed) return;
  if (peer.control.empty() && peer.link->port->send(*peer.link, header, body) == TW_OK) return;
  if (!may_queue(peer)) return;
  ControlFrame frame;
  peer.tally.retries.add();
  frame.header = header;
  if (header.length > 0) __builtin_memcpy(frame.body, body, header.length);
  peer.control.push(frame);
  ++control_frames;
  pusher_.wants(peer);
}

// ------------------------------------------------------------------------------------------------ requests

Status Engine::cancel(tw_request request) {
  Guard guard(*this);
  OpRun* run = runs_->find(request);
  if (run == nullptr) return impl::fail(TW_ERR_HANDLE, "this request is not alive: it was released");
  if (run->status.load(std::memory_order_relaxed) != TW_IN_PROGRESS || !run->cancelable) {
    return impl::fail(TW_ERR_BUSY, "too late to cancel: matched, announced or complete already");
  }
  if (run == receives_.sole()) receives_.to_match();
  if (run->offer != 0 && !end_offer(*this, *run)) return impl::fail(TW_ERR_BUSY, "too late to cancel: a peer has matched it");
  if (run->protocol != nullptr && run->protocol->abort != nullptr) run->protocol->abort(*run, TW_ERR_CANCELED);
  complete(*run, TW_ERR_CANCELED);
  return TW_OK;
}

Engine* Engine::engine_of(tw_request request) {
  RunPool* pool = nullptr;
  return RunPool::find_any(request, &pool) == nullptr ? nullptr : pool->engine();
}

bool Engine::over(tw_request request) {
  RunPool* pool = nullptr;
  const OpRun* const run = RunPool::find_any(request, &pool);
  return run != nullptr && run->status.load(std::memory_order_acquire) != TW_IN_PROGRESS;
}

Status Engine::info(tw_request request, tw_recv_info* out) {
  RunPool* pool = nullptr;
  OpRun* run = RunPool::find_any(request, &pool);
  if (run == nullptr) return impl::fail(TW_ERR_HANDLE, "this request is not alive: it was released");
  // acquire: pairs with complete(), which wrote info before the status
  if (run->status.load(std::memory_order_acquire) == TW_IN_PROGRESS) return TW_IN_PROGRESS;
  *out = run->info;
  return TW_OK;
}

const char* Engine::text_of(const OpRun& run) {
  return run.text != nullptr ? run.text->c_str() : status_text(run.status.load(std::memory_order_relaxed));
}

const char* Engine::message(tw_request request) {
  RunPool* pool = nullptr;
  OpRun* run = RunPool::find_any(request, &pool);
  if (run == nullptr) return status_text(TW_ERR_HANDLE);
  Status status = run->status.load(std::memory_order_acquire);
  return status != TW_IN_PROGRESS ? text_of(*run) : status_text(status);
}

Status Engine::finish(tw_request request) {
  RunPool* pool = RunPool::of(request);
  OpRun* run = pool == nullptr ? nullptr : pool->find_here(request);
  // acquire: what was received is visible
  if (run == nullptr || pool->engine()->options_.multi_threaded || run->status.load(std::memory_order_acquire) != TW_OK ||
      run->sink != SinkKind::none) [[unlikely]]
    return TW_IN_PROGRESS;
  pool->free(*run);
  return TW_OK;
}

Status Engine::release(tw_request request) {
  RunPool* pool = nullptr;
  OpRun* run = RunPool::find_any(request, &pool);
  Engine* engine = run == nullptr ? nullptr : pool->engine();
  if (engine == nullptr) [[unlikely]]
    return impl::fail(TW_ERR_HANDLE, "this request is not alive: it was released already");
  Guard guard(*engine);
  // Again: another thread may have released it meanwhile.
  if (engine->options_.multi_threaded) run = pool->find(request);
  if (run == nullptr || keeps_run(run->sink) || run->detached) {
    return impl::fail(TW_ERR_HANDLE,
                      "this request was released already, or is released by its callback or its completion queue");
  }
  engine->completions_.let_go(*run);
  return TW_OK;
}

}  // namespace thalweg::impl
