// SPDX-License-Identifier: Apache-2.0
#include "plans/proxy.hpp"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/platform/signals.hpp"
#include "base/waiting.hpp"
#include "core/farewell.hpp"
#include "core/hello.hpp"
#include "memory/registry_state.hpp"
#include "plans/carried_end.hpp"
#include "plans/channel.hpp"
#include "plans/plan.hpp"
#include "plans/proxied.hpp"

namespace thalweg::impl {
namespace {

constexpr uint16_t kControlId = 1;
constexpr size_t kEarlyMax = 8192;          // channels of one peer that are not named here yet
constexpr uint64_t kUnsentMax = 64u << 20;  // of answers to a peer that does not read them
constexpr uint64_t kMessageCost = 512;      // beside its bytes
constexpr uint64_t kHurryNs = 2'000'000;    // after a trigger or an event: poll all the time, where cores are free
constexpr uint64_t kDrivenNs = 500'000;     // runs by the host: their thread progresses the worker
constexpr uint64_t kNapNs = 200'000;        // a replayed graph may request steps, which wakes no thread
constexpr std::chrono::microseconds kAskAgain{200};
constexpr uint64_t kLongNapNs = 20'000'000;  // no steps: deaths of peers, and imports under way, are seen after this

std::vector<std::byte> address_of(tw_context& context) {
  Proxy* proxy = nullptr;
  return is_error(Proxy::of(context, &proxy)) ? std::vector<std::byte>() : proxy->address();
}

/// A context without a proxy has none of them.
void end_token_of(tw_context& context, uint64_t token) {
  const std::lock_guard lock(context.plans_mutex);
  if (context.plans != nullptr) static_cast<Proxy*>(context.plans.get())->end_token(token);
}

[[maybe_unused]] const bool kAnswers = (set_proxy_address(address_of), set_token_ended(end_token_of), true);

}  // namespace

Proxy::Proxy(tw_context& of) : context(of) {}

Status Proxy::of(tw_context& context, Proxy** out) {
  const std::lock_guard lock(context.plans_mutex);
  if (context.plans == nullptr) {
    auto proxy = std::make_unique<Proxy>(context);
    if (Status s = proxy->open(); is_error(s)) return s;
    context.plans = std::move(proxy);
  }
  *out = static_cast<Proxy*>(context.plans.get());
  return TW_OK;
}

Status Proxy::open() {
  tw_worker_options options = TW_WORKER_OPTIONS_INIT;
  options.threads = TW_THREADS_MULTI;
  if (Status s = tw_worker_create(&context, &options, &worker_); is_error(s)) return s;
  worker_->engine->serve_kernels();
  if (Status s = tw_am_register(worker_, kControlId, ControlInbox::on_message, &inbox_); is_error(s)) return s;
  size_t length = kAddressMax;
  address_.resize(length);
  if (Status s = tw_worker_address(worker_, address_.data(), &length); is_error(s)) return s;
  address_.resize(length);
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(TW_ERR_LIMIT, "no thread for the steps of plans: %s; raise the limit (ulimit -u, pids cgroup)", error.what());
  }
  return TW_OK;
}

Proxy::~Proxy() {
  stop_.store(true);
  if (worker_ != nullptr) (void)tw_worker_wake(worker_);
  if (thread_.joinable()) thread_.join();
  channels_.clear();
  // What steps sent is complete for its senders, and may still wait for its peer's room.
  std::vector<tw_endpoint*> endpoints;
  for (const auto& [id, peer] : peers_) endpoints.push_back(peer->endpoint);
  if (worker_ != nullptr) close_all(*worker_, endpoints);
  tw_worker_destroy(worker_);
}

Status Proxy::executor(Device* device, Executor** out) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Executor>& slot = executors_[device];
  if (slot == nullptr) {
    if (device != nullptr) {
      (void)context.device_costs.of(*device);  // before a kernel of it may wait for anything
      context.device_costs.forbid();
    }
    auto made = std::make_unique<Executor>(context, device);
    if (Status s = made->open(); is_error(s)) return s;
    slot = std::move(made);
  }
  *out = slot.get();
  return TW_OK;
}

Status Proxy::executor_at(const char* place, Executor** out) {
  MemoryPlace where;
  if (Status s = parse_place(place, &where); is_error(s)) return s;
  return executor(where.kind == MemoryKind::pinned ? nullptr : where.device, out);
}

// ------------------------------------------------------------------------------------------------ peers

Status Proxy::route(tw_endpoint& endpoint, Route* out) {
  Route made;
  std::vector<std::byte> proxy;
  if (Status s = say_hello(endpoint, &made.mine); is_error(s)) return s;
  if (!hello_of(endpoint, &made.theirs, &proxy)) return TW_IN_PROGRESS;
  WorkerAddress address;
  if (Status s = parse_address(proxy.data(), proxy.size(), &address); is_error(s)) return s;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ProxyPeer>& peer = peers_[address.worker];
  const bool newer = peer != nullptr && is_error(peer->lost) && !peer->tokens.contains(made.mine);
  if (newer) peer.reset();  // the user has connected again
  if (peer == nullptr) {
    auto fresh = std::make_shared<ProxyPeer>();
    if (Status s = tw_connect(worker_, proxy.data(), proxy.size(), nullptr, &fresh->endpoint); is_error(s)) {
      peers_.erase(address.worker);
      return s;
    }
    peer = std::move(fresh);
    (void)tw_worker_wake(worker_);
  }
  peer->tokens.insert(made.mine);
  if (is_error(peer->lost)) return fail(peer->lost, "the connection to the peer's proxy is lost: connect to the peer again");
  const Status state = tw_endpoint_state(peer->endpoint);
  if (state != TW_OK) return state;
  made.peer = peer;
  *out = made;
  return TW_OK;
}

Status Proxy::check_peer(tw_endpoint& endpoint) {
  const Status state = tw_endpoint_state(&endpoint);
  return is_error(state) ? fail(state, "the peer of a step, or of a channel's end, is lost") : Status{TW_OK};
}

Status Proxy::await_route(tw_endpoint& endpoint, const Deadline& deadline, Route* out) {
  const Deadline patience(kSecond);  // a missing proxy: soon the endpoint reports that its process is gone
  for (;;) {
    const Status status = route(endpoint, out);
    if (Status s = check_peer(endpoint); is_error(s)) return s;
    if (status == TW_OK || (is_error(status) ? patience : deadline).passed()) return status;
    if (Status s = interrupted(); is_error(s)) return s;
    if (tw_worker_progress(endpoint.worker) == 0) std::this_thread::yield();
  }
}

/// Also of one that has connected before this side did, or again.
ProxyPeer& Proxy::peer_of(tw_endpoint* endpoint) {
  std::shared_ptr<ProxyPeer>& peer = peers_[endpoint->remote];
  if (peer != nullptr && peer->endpoint != endpoint) {
    if (const Status state = is_error(peer->lost) ? peer->lost : tw_endpoint_state(peer->endpoint); is_error(state)) {
      lose(*peer, state);
      peer.reset();
    }
  }
  if (peer == nullptr) {
    peer = std::make_shared<ProxyPeer>();
    peer->endpoint = endpoint;
    const Engine::Guard guard(*worker_->engine);
    ++endpoint->references;
  }
  return *peer;
}

unsigned Proxy::look_at_peers() {
  unsigned events = 0;
  for (const auto& [id, peer] : peers_) {
    if (is_error(peer->lost)) continue;
    const Status state = tw_endpoint_state(peer->endpoint);
    if (!is_error(state)) continue;
    lose(*peer, state);
    ++events;
  }
  return events;
}

void Proxy::lose(ProxyPeer& peer, Status why) {
  if (is_error(peer.lost)) return;
  peer.lost = why;
  lost_.push_back(peer.shared_from_this());
  for (const auto& [key, channel] : channels_) {
    if (&channel->peer == &peer) channel->fail_end(channel->epoch(), why, "the peer is lost");
  }
  std::erase_if(early_, [&peer](const auto& kept) { return std::get<0>(kept.first) == &peer; });
  peer.early = 0;
  changed.notify_all();
}

/// By a channel, a plan, a message that is being sent, or one that is still here.
bool Proxy::in_use(const std::shared_ptr<ProxyPeer>& lost) {
  const bool known = std::any_of(peers_.begin(), peers_.end(), [&lost](const auto& one) { return one.second == lost; });
  return lost.use_count() > (known ? 2 : 1) || lost->unsent != 0 || inbox_.has(lost->endpoint);
}

void Proxy::end_token(uint64_t token) {
  const std::lock_guard lock(ended_mutex_);
  ended_tokens_.push_back(token);
}

/// Channels of endpoints that have ended.
void Proxy::forget_ended() {
  std::vector<uint64_t> ended;
  {
    const std::lock_guard lock(ended_mutex_);
    ended = std::exchange(ended_tokens_, {});
  }
  for (const uint64_t token : ended) {
    for (const auto& [id, peer] : peers_) peer->tokens.erase(token);
    for (const auto& [key, channel] : channels_) {
      if ((channel->sender ? channel->name.sender : channel->name.receiver) == token) channel->end_for_good();
    }
    std::erase_if(early_, [token](const auto& kept) {
      const auto& [peer, name, from_sender] = kept.first;
      const bool its = (from_sender ? name.receiver : name.sender) == token;
      if (its) --peer->early;
      return its;
    });
  }
}

/// Channels that nobody names any more go when both ends are over, and those of lost peers when no plan uses them and none of their
/// buffers is out; then the peer's endpoint. peers_ has what is left of the peer as long as there are endpoints that led to it, so that
/// these are known to be lost.
void Proxy::forget_lost() {
  std::erase_if(channels_, [this](const auto& one) {
    Channel& channel = *one.second;
    if (!channel.gone() && !(is_error(channel.peer.lost) && channel.idle())) return false;
    last_epoch_ = std::max(last_epoch_, channel.epoch());
    return true;
  });
  std::erase_if(peers_, [](const auto& one) { return one.second->endpoint == nullptr && one.second->tokens.empty(); });
  if (lost_.empty()) return;
  std::erase_if(lost_, [this](const std::shared_ptr<ProxyPeer>& peer) {
    if (in_use(peer)) return false;
    (void)tw_endpoint_close(std::exchange(peer->endpoint, nullptr), TW_CLOSE_FORCE, nullptr);
    return true;
  });
}

// ------------------------------------------------------------------------------------------------ messages

void Proxy::forget(const Queue* queue) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, channel] : channels_) {
    if (channel->owner.load() == queue) channel->owner = nullptr;
  }
}

namespace {

/// False: a run of it is not over, or its peer is in the middle of a message.
bool end_left(tw_plan* plan, bool waits) {
  if (!waits && plan->is_carried()) return false;
  if (plan->prepared() && is_error(plan->at_rest())) return false;
  if (is_error(plan->release())) return false;
  delete plan;
  return true;
}

}  // namespace

void Proxy::leave(tw_plan* plan) {
  const std::lock_guard lock(leaving_);
  left_.push_back(plan);
}

void Proxy::leave(std::unique_ptr<CarriedEnd> end) {
  const std::lock_guard lock(leaving_);
  left_ends_.push_back(std::move(end));
}

/// Under no lock: a plan's end takes the proxy's, and waits.
void Proxy::release_left(bool waits) {
  std::vector<tw_plan*> all;
  std::vector<std::unique_ptr<CarriedEnd>> ends;
  {
    const std::lock_guard lock(leaving_);
    all.swap(left_);
    ends.swap(left_ends_);
  }
  if (all.empty() && ends.empty()) return;
  const std::string before = last_error();  // that a peer is still stopped is no error of the caller's
  std::erase_if(all, [waits](tw_plan* plan) { return end_left(plan, waits); });
  std::erase_if(ends, [waits](const auto& end) { return waits ? end->await_over(kSecond) : end->over(); });
  set_last_error(before);
  const std::lock_guard lock(leaving_);
  left_.insert(left_.end(), all.begin(), all.end());
  for (std::unique_ptr<CarriedEnd>& end : ends) left_ends_.push_back(std::move(end));
}

void Proxy::send(ProxyPeer& peer, const ControlMessage& message) {
  struct Sending {
    ProxyPeer* peer;
    std::vector<std::byte> bytes;
    uint64_t cost() const { return bytes.size() + kMessageCost; }
    ~Sending() { peer->unsent.fetch_sub(cost()); }
  };
  auto* one = new Sending{&peer, write_control(message)};
  const uint64_t unsent = peer.unsent.fetch_add(one->cost()) + one->cost();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = [](void* arg, tw_request, tw_status, const tw_recv_info*) { delete static_cast<Sending*>(arg); };
  options.arg = one;
  const Status status =
      tw_am_send(peer.endpoint, kControlId, nullptr, 0, one->bytes.data(), one->bytes.size(), &options, nullptr);
  if (status != TW_IN_PROGRESS) delete one;  // gone already, or the peer is lost, which look_at_peers() sees
  if (unsent > kUnsentMax && answering_) {   // what a user prepares is no answer
    const Engine::Guard guard(*worker_->engine);
    worker_->engine->doom(*peer.endpoint->peer, TW_ERR_LIMIT,
                          "the peer's proxy asks on and on and does not read the answers: its channels end");
  }
  (void)tw_worker_wake(worker_);
}

void Proxy::drop_messages(const ProxyPeer& peer, uint64_t tag) {
  if (is_error(peer.lost)) return;  // they went with it
  tw_op_options from = TW_OP_OPTIONS_INIT, into = TW_OP_OPTIONS_INIT;
  from.source = peer.endpoint;
  into.callback = [](void*, tw_request, tw_status, const tw_recv_info*) {};  // truncated, as it takes nothing
  tw_message* dropped = nullptr;
  while (tw_probe(worker_, tag, ~uint64_t{0}, &from, nullptr, &dropped) == TW_OK) {
    if (is_error(tw_message_recv(dropped, nullptr, 0, &into, nullptr))) return;
  }
}

size_t Proxy::kept() {
  const std::lock_guard lock(mutex_);
  size_t all = channels_.size() + lost_.size();
  for (const auto& [id, peer] : peers_) all += peer->tokens.size() + (is_error(peer->lost) ? 1 : 0);
  return all;
}

void Proxy::take(ProxyPeer& peer, ControlMessage&& message) {
  const auto found = channels_.find({message.name, !message.from_sender});
  if (found == channels_.end()) return take_early(peer, std::move(message));
  if (&found->second->peer == &peer) found->second->take(std::move(message));
}

/// Only the peer's newest epoch is worth keeping, until it is over: everything else answers something of ours.
void Proxy::take_early(ProxyPeer& peer, ControlMessage&& message) {
  if (is_error(peer.lost)) return;  // it said so before it went
  const auto key = std::make_tuple(&peer, message.name, message.from_sender);
  const auto kept = early_.find(key);
  if (message.type == Control::open) {
    if (kept == early_.end() && peer.early >= kEarlyMax) return refuse_early(peer, message);
    if (kept == early_.end()) ++peer.early;
    early_[key] = std::move(message);
  } else if (kept != early_.end() && (message.type == Control::refused || message.type == Control::failed)) {
    early_.erase(kept);
    --peer.early;
  } else if (message.type == Control::drop && !message.from_sender) {  // of an end that is gone: nothing of it stores there
    ControlMessage answer;
    answer.type = Control::dropped;
    answer.name = message.name;
    answer.from_sender = true;
    answer.index = message.index;
    send(peer, answer);
  }
}

/// Other peers' are not concerned.
void Proxy::refuse_early(ProxyPeer& peer, const ControlMessage& open) {
  ControlMessage answer;
  answer.type = Control::refused;
  answer.name = open.name;
  answer.from_sender = !open.from_sender;
  answer.partner = open.epoch;
  answer.status = TW_ERR_LIMIT;
  answer.text = std::to_string(kEarlyMax) +
                " channels of this process wait at the peer for plans that name them: prepare those " +
                "there first, or use fewer channels";
  send(peer, answer);
}

Status Proxy::channel(const Route& route, bool sender, uint64_t tag, uint64_t group, Executor& executor, Channel** out) {
  const ChannelName name{sender ? route.mine : route.theirs, sender ? route.theirs : route.mine, tag, group};
  std::unique_ptr<Channel>& slot = channels_[{name, sender}];
  if (slot == nullptr) {
    slot = std::make_unique<Channel>(*this, name, sender, executor, route.peer);
    if (const auto early = early_.find({route.peer.get(), name, !sender}); early != early_.end()) {
      slot->take(std::move(early->second));
      early_.erase(early);
      --route.peer->early;
    }
  }
  if (!slot->run_by(executor)) {
    return fail(TW_ERR_UNSUPPORTED, "this end of the channel is run by %s: use it from there, or another channel",
                slot->runner().name().c_str());
  }
  *out = slot.get();
  return TW_OK;
}

void Proxy::take_back(Offered& offered) {
  std::unique_lock lock(mutex_);
  for (const auto& [channel, index] : offered) channel->withdraw(index);
  const auto limit = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::erase_if(offered, [](const std::pair<Channel*, uint16_t>& one) { return one.first->withdrawn(one.second); });
    const auto now = std::chrono::steady_clock::now();
    if (offered.empty() || now >= limit) return;
    changed.wait_until(lock, std::min(limit, now + kAskAgain));  // a peer's copy that ends wakes nobody
  }
}

void Proxy::abandon(const Offered& offered) {
  const std::lock_guard lock(mutex_);
  for (const auto& [channel, index] : offered) channel->abandon(index);
}

std::vector<std::weak_ptr<const int>> Proxy::lives_of(const Offered& offered) {
  const std::lock_guard lock(mutex_);
  std::vector<std::weak_ptr<const int>> lives;
  for (const auto& [channel, index] : offered) lives.push_back(channel->life_of(index));
  return lives;
}

// ------------------------------------------------------------------------------------------------ the thread

bool Proxy::take_bounces(ProxyPeer& peer, uint64_t length, uint64_t* address) {
  {
    const std::lock_guard lock(mutex_);
    if (peer.bounces == nullptr) peer.bounces = std::make_unique<Arena>(context, MemoryPlace{});
  }
  return peer.bounces->bytes() + length <= kMostBounced && !is_error(peer.bounces->allocate(length, address));
}

void Proxy::watch(Watched* one) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(one);
  (void)tw_worker_wake(worker_);
}

Status Proxy::unwatch(Proxied* step) {
  {
    const std::lock_guard lock(mutex_);
    forget(step);
    if (step->running.load(std::memory_order_acquire) && step->request != TW_REQUEST_NONE)
      (void)tw_request_cancel(step->request);
  }
  (void)tw_worker_wake(worker_);
  const Deadline deadline(kSecond);
  while (step->running.load(std::memory_order_acquire)) {
    if (deadline.passed()) {
      watch(step);
      return fail(TW_ERR_BUSY, "a step is under way at the peer");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return TW_OK;
}

void Proxy::hurry() {
  hurried_.store(monotonic_ns(), std::memory_order_relaxed);
  (void)tw_worker_wake(worker_);
}

unsigned Proxy::look_at_steps() {
  unsigned events = 0;
  for (Watched* const one : steps_) events += one->look() ? 1 : 0;
  return events;
}

bool Proxy::drive(std::span<Proxied* const> steps) {
  drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // that it changes is enough
  if (armed_.load(std::memory_order_relaxed) && armed_.exchange(false)) [[unlikely]]
    (void)tw_worker_wake(worker_);
  bool began = false;
  for (Proxied* const step : steps) began |= step->look();
  return began || tw_worker_progress(worker_) != 0;
}

unsigned Proxy::turn() { return tw_worker_progress(worker_) + look_around(); }

/// Does a thread drive runs since this was asked last? Then the worker is left to it for a while, and not armed.
bool Proxy::keeps_away(uint64_t* drives) {
  const uint64_t now = drives_.load(std::memory_order_relaxed);
  if (std::exchange(*drives, now) == now) return false;
  std::this_thread::sleep_for(std::chrono::nanoseconds(kDrivenNs));
  return true;
}

/// What the thread does beside progress.
unsigned Proxy::look_around() {
  unsigned events = inbox_.fetch();
  const ControlInbox::Arrivals news = inbox_.take();
  const std::lock_guard lock(mutex_);
  answering_ = true;
  for (const ControlInbox::Arrival& one : news) {
    if (one.bytes.empty()) continue;  // what was to be fetched went with its peer
    ControlMessage message;
    ProxyPeer& peer = peer_of(one.endpoint);
    if (const Status s = parse_control(one.bytes.data(), one.bytes.size(), &message); is_error(s)) {
      // Once for each peer, because one that goes on would fill the log.
      if (!std::exchange(peer.malformed, true)) log(LogLevel::warning, "plans: %s", last_error());
      continue;
    }
    take(peer, std::move(message));
    ++events;
  }
  events += look_at_peers();  // first: a peer's loss looks like a release of its memory
  for (const auto& [key, channel] : channels_) events += channel->advance();
  forget_ended();
  forget_lost();
  answering_ = false;
  return events + look_at_steps();
}

void Proxy::run() {
  pthread_setname_np(pthread_self(), "thalweg-proxy");
  Waiting waiting;
  uint64_t hurried = 0, active = 0, drives = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (keeps_away(&drives)) {
      (void)look_around();
      continue;
    }
    const uint64_t last = hurried_.load(std::memory_order_relaxed);
    if (turn() != 0 || last != hurried) {
      hurried = last;
      active = monotonic_ns();
      waiting.restart();
      continue;
    }
    if (monotonic_ns() - active < kHurryNs && waiting.idle() == Waiting::Next::look) continue;
    bool waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting = !steps_.empty();
    }
    armed_.store(true, std::memory_order_relaxed);
    if (drives_.load(std::memory_order_relaxed) == drives) (void)tw_worker_wait(worker_, waiting ? kNapNs : kLongNapNs);
    armed_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace thalweg::impl
