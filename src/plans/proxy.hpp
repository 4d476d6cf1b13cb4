// SPDX-License-Identifier: Apache-2.0
// The part of a context that works for its plans: a private worker with its own thread. It sends messages to peers' proxies
// (channels' words and receive buffers, channel.hpp) and runs the steps that an executor cannot run itself (proxied.hpp).
//
// Threads: everything below is under mutex() unless noted. Order of locks: mutex(), then the worker's own. Handlers
// of messages hold the worker's lock, so they only put into a queue that has a lock of its own.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "core/worker.hpp"
#include "plans/control_inbox.hpp"
#include "plans/control_wire.hpp"
#include "plans/executor.hpp"

struct tw_plan;

namespace thalweg::impl {

class CarriedEnd;
class Channel;
struct Proxied;
struct Watched;

inline constexpr uint64_t kMostBounced = 64u << 20;  // bytes of a peer's bounce buffers, which are pinned

/// Another process's proxy, or our own. Shared by channels, and by plans whose steps are carried there.
struct ProxyPeer : std::enable_shared_from_this<ProxyPeer> {
  tw_endpoint* endpoint = nullptr;  // null: it was lost, and is closed, as nobody used it any more
  Status lost = TW_OK;
  std::set<uint64_t> tokens;        // of the users' endpoints that lead to it
  size_t early = 0;                 // channels that it opened and that are not named here yet
  bool malformed = false;           // it sent a message that cannot be parsed, and that was logged
  std::atomic<uint64_t> unsent{0};  // what messages to it cost that are not sent yet
  /// Bounce buffers of carried steps and ends: shared memory, which it may map, and in which nothing else lies; pinned for the devices that use it,
  /// and unpinned when no kernel waits (devices/deferred_release.hpp). Made once, under the proxy's mutex.
  std::unique_ptr<Arena> bounces;
};

class Proxy final : public Extension {
 public:
  /// The context's, made at the first call. Any thread.
  static Status of(tw_context& context, Proxy** out);
  explicit Proxy(tw_context& context);
  ~Proxy() override;
  unsigned users() const override { return users_.load(); }

  std::mutex& mutex() { return mutex_; }
  tw_worker& worker() { return *worker_; }
  const std::vector<std::byte>& address() const { return address_; }
  Status executor(Device* device, Executor** out);
  /// Of "host", "cuda:1" or a kind of memory there.
  Status executor_at(const char* place, Executor** out);

  /// What an endpoint of a user leads to. TW_IN_PROGRESS: progress its worker and call again.
  struct Route {
    std::shared_ptr<ProxyPeer> peer;
    uint64_t mine = 0, theirs = 0;  // tokens
  };
  Status route(tw_endpoint& endpoint, Route* out);
  /// The same, progressing its worker. TW_IN_PROGRESS: not by the deadline.
  Status await_route(tw_endpoint& endpoint, const Deadline& deadline, Route* out);
  /// Of a user's endpoint: TW_OK, or how it was lost.
  static Status check_peer(tw_endpoint& endpoint);

  /// The end of a channel here; made when it is not there yet. group: as of ChannelName.
  Status channel(const Route& route, bool sender, uint64_t tag, uint64_t group, Executor& executor, Channel** out);
  /// The queue goes: no channel is used by it any more. Takes mutex().
  void forget(const Queue* queue);
  /// A plan of a queue that has gone, which ends when its peer goes on, or is lost. Nobody else has it: release_left() ends it.
  void leave(tw_plan* plan);
  /// A kernel's end that was released while its messages wait for the peer.
  void leave(std::unique_ptr<CarriedEnd> end);
  /// Ends those that can be, at calls of the user's. waits: also for their peers, a second each. Not under mutex().
  void release_left(bool waits);
  void settle() override { release_left(true); }
  void send(ProxyPeer& peer, const ControlMessage& message);
  /// The peer's messages with this tag that no receive here has taken: their senders go on, and the connection has its credit back.
  void drop_messages(const ProxyPeer& peer, uint64_t tag);
  using Offered = std::vector<std::pair<Channel*, uint16_t>>;
  /// Withdraws offered buffers, and waits up to `patience` for their senders to release them. The remaining ones are
  /// still in `offered`, and may be stored to: withdraw them again, or abandon them. Not under mutex().
  void take_back(Offered& offered);
  /// The remaining ones: they stay registered until their senders release them, without a wait.
  void abandon(const Offered& offered);
  /// For who abandons them, and asks later which of them are still out: Channel::life_of. Not under mutex().
  std::vector<std::weak_ptr<const int>> lives_of(const Offered& offered);
  ControlInbox& inbox() { return inbox_; }
  /// Channels, lost peers, and users' endpoints that lead to any.
  size_t kept();
  /// The user's endpoint has ended: nobody names its channels any more. Any thread, none of the proxy's locks is held meanwhile but one of its own.
  void end_token(uint64_t token);
  /// No channel that was here had a newer epoch: one that is named again begins behind it.
  uint32_t last_epoch() const { return last_epoch_; }
  std::chrono::milliseconds patience{5000};
  /// Waits a moment for a change; progress() is called without the lock, for what the peer's side of an import or a handshake needs.
  /// The error of interrupted(), which is asked without the lock, too: an interpreter may run anything then.
  template <class Progress>
  Status await_change(std::unique_lock<std::mutex>& lock, Progress progress) {
    changed.wait_for(lock, std::chrono::microseconds(200));
    lock.unlock();
    progress();
    const Status interrupt = interrupted();
    lock.lock();
    return interrupt;
  }
  /// Bounce buffers for messages with the peer, which are released by it. False: they would have too many bytes. Not under mutex().
  bool take_bounces(ProxyPeer& peer, uint64_t length, uint64_t* address);
  /// A step, or an end, for the host to look at from now on, until unwatch() or forget(). Not under mutex().
  void watch(Watched* one);
  /// Under mutex().
  void forget(const Watched* one) { std::erase(steps_, one); }
  /// Cancels what still waits for the peer. TW_ERR_BUSY: it is under way, the peer has begun to take it; the step stays. Not under mutex().
  Status unwatch(Proxied* step);
  /// Something was or will be triggered just now: polls more often for a while. Any thread, no lock.
  void hurry();
  /// Runs these steps in the caller's progress, once around; while calls follow each other, the proxy's thread leaves the worker to
  /// them. True: something happened. Any thread, no lock.
  bool drive(std::span<Proxied* const> steps);
  /// A thread waits for a change under mutex().
  std::condition_variable changed;

  tw_context& context;
  std::atomic<unsigned> users_{0};  // plans, queues and kernels' ends

 private:
  Status open();
  void run();
  unsigned turn();
  unsigned look_around();
  bool keeps_away(uint64_t* drives);
  unsigned look_at_peers();
  void forget_lost();
  void forget_ended();
  bool in_use(const std::shared_ptr<ProxyPeer>& lost);
  unsigned look_at_steps();
  void take(ProxyPeer& peer, ControlMessage&& message);
  void take_early(ProxyPeer& peer, ControlMessage&& message);
  void refuse_early(ProxyPeer& peer, const ControlMessage& open);
  ProxyPeer& peer_of(tw_endpoint* endpoint);
  void lose(ProxyPeer& peer, Status why);

  std::mutex mutex_;
  tw_worker* worker_ = nullptr;
  std::vector<std::byte> address_;
  std::map<WorkerId, std::shared_ptr<ProxyPeer>> peers_;
  std::vector<std::shared_ptr<ProxyPeer>> lost_;  // closed when nobody uses them
  std::map<Device*, std::unique_ptr<Executor>> executors_;
  std::map<std::pair<ChannelName, bool>, std::unique_ptr<Channel>> channels_;
  /// What peers opened, of channels that are not named here yet.
  std::map<std::tuple<ProxyPeer*, ChannelName, bool>, ControlMessage> early_;
  uint32_t last_epoch_ = 0;
  bool answering_ = false;  // the proxy's thread handles peers' messages
  std::vector<Watched*> steps_;

  std::mutex leaving_;  // of left_ and left_ends_
  std::vector<tw_plan*> left_;
  std::vector<std::unique_ptr<CarriedEnd>> left_ends_;

  ControlInbox inbox_;
  std::mutex ended_mutex_;
  std::vector<uint64_t> ended_tokens_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> hurried_{0};  // monotonic ns
  std::atomic<uint64_t> drives_{0};
  std::atomic<bool> armed_{false};  // the thread waits for the worker's events: making one costs a system call
  std::thread thread_;
};

}  // namespace thalweg::impl
