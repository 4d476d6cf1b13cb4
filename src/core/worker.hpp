// SPDX-License-Identifier: Apache-2.0
// tw_worker: an engine with its ports, and the worker's side of connection set-up.
//
// Threads: `inbox` and `directory` are shared with the service thread; everything else belongs to the worker's user, in
// multi-threaded mode under the engine's lock (Engine::Guard). Callbacks of users run without it.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/platform/fork.hpp"
#include "base/waiting.hpp"
#include "core/context.hpp"
#include "core/directory.hpp"
#include "core/endpoint.hpp"
#include "core/inbox.hpp"
#include "core/listener.hpp"
#include "core/setup.hpp"
#include "memory/signal.hpp"
#include "protocols/engine.hpp"
#include "security/worker_identity.hpp"
#include "trace/trace.hpp"

struct tw_worker {
  using Status = thalweg::impl::Status;
  using Guard = thalweg::impl::Engine::Guard;

  tw_worker(tw_context& context, const tw_worker_options& options);
  Status open(const tw_worker_options& options);
  ~tw_worker();

  // --- progress
  /// progress() would find nothing, as Engine::nothing_new() says.
  bool nothing_new() { return inbox.empty() && !chores_.load(std::memory_order_relaxed) && engine->nothing_new(); }
  unsigned progress(unsigned looks = 1) { return looks == 1 && nothing_new() ? 0 : progress_all(looks); }
  unsigned progress_all(unsigned looks) {
    unsigned events = 0;
    if (!inbox.empty()) [[unlikely]]
      events = read_inbox();
    events += engine->progress_all(looks);
    if (chores_.load(std::memory_order_relaxed)) [[unlikely]]
      events += do_chores();
    return events;
  }
  Status arm(bool told = false);  // for a nap; told: as Engine::arm, where progressed() wakes this thread
  Status arm_descriptor();        // for a caller that sleeps by the descriptor
  Status wait(uint64_t timeout_ns);
  /// Progresses until done() or the time is over: spins, then yields, then sleeps (base/waiting.hpp). nap_ns: what is waited
  /// for may be a store of device code or a peer, which wakes no thread; so sleeps are no longer than this, and nothing ends
  /// them: to arm the doorbells would interrupt every core that runs a process of the library, for so short a sleep.
  /// TW_ERR_TIMED_OUT; TW_ERR_BUSY, with a text: a handler of active messages waits for what only comes behind it.
  template <class Done>
  Status wait_until(Done done, uint64_t timeout_ns, uint64_t nap_ns = 0);
  [[gnu::cold]] static Status refuse_wait();
  /// For a call that waits for other ranks: TW_ERR_BUSY, with a text, in a callback or a handler.
  Status check_waits_for_ranks();
  /// A thread has progressed, and goes. Its progress took the doorbells down that would wake those who sleep (the progress thread,
  /// and threads in wait()): they are hung up again, or the sleepers are woken.
  void progressed() {
    if (asleep.load(std::memory_order_relaxed) || waiters_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      rearm();
  }
  /// A post has left something to do while the progress thread may be asleep.
  void posted() {
    if (asleep.load(std::memory_order_relaxed)) [[unlikely]]
      kick();
  }

  // --- endpoints (lock held)
  tw_endpoint* make_endpoint(const tw_endpoint_options& options);
  Status connect(const thalweg::impl::WorkerAddress& address, const tw_endpoint_options& options, tw_endpoint** out);
  Status connect_to(const char* address, const tw_endpoint_options& options, tw_endpoint** out);
  Status close(tw_endpoint& endpoint, bool graceful, tw_request* request);
  tw_endpoint* accept(const tw_connection_request& request, const tw_endpoint_options& options);
  Status listen(const char* address, const tw_listener_options& options, tw_listener** out);
  void forget(tw_listener* listener);  // its socket is closed already
  /// Does another thread run a callback of this endpoint or listener? Then it is not to be ended yet. Under the lock.
  bool is_called(const void* one) const { return telling_.of == one && telling_.by != std::this_thread::get_id(); }
  thalweg::impl::Port* port(std::string_view name) const;

  thalweg::impl::BornHere born;
  tw_context& context;
  const thalweg::impl::WorkerIdentity identity;  // used by the service thread
  const thalweg::impl::WorkerId id;
  thalweg::impl::WorkerAddress address;
  bool multi = false;
  thalweg::impl::Inbox inbox;
  thalweg::impl::Directory directory;
  std::shared_ptr<void> mailbox;  // of its groups (groups/mailbox.hpp)
  std::unique_ptr<thalweg::impl::Engine> engine;
  thalweg::impl::UniqueFd epoll;
  const std::shared_ptr<thalweg::impl::AwaitedSignals> awaited = std::make_shared<thalweg::impl::AwaitedSignals>();
  std::unordered_map<uint64_t, tw_listener*> listeners;  // by id
  std::unordered_map<uint64_t, tw_endpoint*> pending;    // by key of the attempt
  std::atomic<bool> asleep{false};                       // the progress thread sleeps
#ifndef NDEBUG
  std::atomic<std::thread::id> user{};  // single-threaded: the thread that is inside now
#endif

 private:
  unsigned read_inbox();
  void take(thalweg::impl::ConnectionEvent&& event);
  void take_link(thalweg::impl::ConnectionEvent&& event);
  tw_endpoint* endpoint_of(const thalweg::impl::ConnectionEvent& news);
  void take_request(thalweg::impl::ConnectionEvent&& event);
  void try_again(thalweg::impl::WorkerId peer);
  void call(tw_endpoint& endpoint);
  void connect_self(tw_endpoint& endpoint);
  // Endpoints that connect behind one that closes, or by the peer's own attempt (successors.cpp).
  tw_endpoint* last_to(thalweg::impl::WorkerId remote, tw_endpoint* known) const;
  tw_endpoint* take_waiting(thalweg::impl::WorkerId remote);
  void start_successor(tw_endpoint& endpoint);
  void time_out_successors(tw_endpoint& endpoint);
  void await_peer(tw_endpoint& endpoint);
  unsigned time_out_awaiting();
  uint64_t longest_wait_to_connect();  // until the first of them times out; kForever: none waits
  Status share(tw_endpoint& endpoint, const tw_endpoint_options& options, tw_endpoint** out);
  thalweg::impl::ConnectPlan plan_for(tw_endpoint& endpoint);
  unsigned do_chores();
  /// on_lost or on_request of the next one to be called back; none: there is none, or another thread calls back.
  std::function<void()> next_callback();
  void keep_dead(tw_endpoint& endpoint);
  bool step_closing(tw_endpoint& endpoint);
  void give_flush_room(tw_endpoint& endpoint);  // to the next request
  void end_endpoint(tw_endpoint& endpoint);
  void on_lost(thalweg::impl::Peer& peer, Status why);
  void tell_watches(tw_endpoint& endpoint, Status status, const char* why);
  Status start_thread();
  void run_thread();
  void kick();  // ends the progress thread's sleep
  Status nap(uint64_t timeout_ns, int also = -1);
  static void doze(uint64_t ns);
  uint64_t longest_sleep() const;  // of the ports that are armed, ns
  void set_alarm(uint64_t ns);

  std::deque<std::unique_ptr<tw_endpoint>> endpoints_;
  std::deque<tw_endpoint*> spare_;  // released, oldest first
  std::deque<tw_endpoint*> dead_;   // lost, and without a holder
  std::vector<tw_endpoint*> closing_;
  std::vector<tw_endpoint*> awaiting_;  // the peer's own attempt; some may be connected already, or connect themselves
  std::deque<std::pair<tw_endpoint*, Status>> lost_;                                       // on_lost still to be called
  std::deque<std::pair<tw_listener*, std::unique_ptr<tw_connection_request>>> requested_;  // on_request still to be called
  struct Telling {
    const void* of = nullptr;  // an endpoint or a listener
    std::thread::id by;
  };
  Telling telling_;                     // the object whose callback runs now, without the lock
  std::atomic<bool> chores_{false};     // what follows, or one of the above, wants attention
  std::atomic<bool> signalled_{false};  // arm() found a changed signal that was not polled yet
  std::atomic<uint32_t> closings_{0};
  void rearm();
  uint64_t longest_nap();
  Status wait_for_event(uint64_t timeout_ns);
  thalweg::impl::UniqueFd alarm_;  // in epoll: ends sleeps by the descriptor that last too long
  bool alarm_set_ = false;
  std::thread thread_;
  thalweg::impl::UniqueFd kick_;  // of the progress thread alone: tw_worker_wake is not for it
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> waiters_{0};  // threads asleep in wait(), or about to be
};

template <class Done>
thalweg::impl::Status tw_worker::wait_until(Done done, uint64_t timeout_ns, uint64_t nap_ns) {
  using namespace thalweg::impl;
  constexpr unsigned kPolls = 16;  // a turn, a pause between two: for frames in progress(), for stores here
  const uint64_t longest_nap = nap_ns != 0 ? nap_ns : multi ? kMillisecond : 100 * kMillisecond;
  const bool stored = nap_ns != 0;
  Waiting waiting;
  unsigned idle = 0, busy = 0;
  uint64_t deadline = kForever;
  bool timed = false;
  trace::LateSpan span(trace::What::wait);
  const struct Leaving {
    ~Leaving() { worker.progressed(); }
    tw_worker& worker;
  } leaving{*this};
  for (;;) {
    for (unsigned poll = 1; stored && poll < kPolls; ++poll) {
      if (done()) return TW_OK;
      cpu_pause();
    }
    if (done()) return TW_OK;
    Waiting::Next next = Waiting::Next::look;
    if (progress(stored ? 1 : kPolls) != 0) {
      waiting.restart();
      if ((++busy & 63) != 0) continue;  // a peer that does not stop sending keeps no wait from its end
    } else {
      span.begin();
      next = waiting.idle();
      if (waiting.spinning() && (++idle & 63) != 0) continue;
    }
    const uint64_t now = monotonic_ns();
    if (!timed) {
      timed = true;
      if (engine->in_handler()) return refuse_wait();
      deadline = timeout_ns >= kForever - now ? kForever : now + timeout_ns;
    }
    if (now >= deadline) return done() ? TW_OK : Status(TW_ERR_TIMED_OUT);
    if (next == Waiting::Next::look) continue;
    if (stored) {
      doze(std::min(longest_nap, deadline - now));
      continue;
    }
    if (arm() != TW_OK || done()) continue;  // tw_worker_wake is for the next wait(): it stays
    nap(std::min(longest_nap, deadline - now));
  }
}
