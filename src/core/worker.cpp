// SPDX-License-Identifier: Apache-2.0
// A worker's making and ending, progress, sleeping, the progress thread.
#include "core/worker.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/platform/process.hpp"
#include "base/platform/signals.hpp"
#include "core/hello.hpp"
#include "protocols/one_sided.hpp"
#include "trace/trace.hpp"

using namespace thalweg::impl;

tw_worker::tw_worker(tw_context& owner, const tw_worker_options& options)
    : context(owner), id(identity.worker()), directory(id) {
  multi = options.threads == TW_THREADS_MULTI || options.progress == TW_PROGRESS_THREAD;
  EngineOptions engine_options;
  engine_options.registry = context.registry.get();
  engine_options.costs = &context.costs;
  engine_options.device_costs = &context.device_costs;
  engine_options.incarnation = context.incarnation;
  if (options.unexpected_budget != 0) engine_options.unexpected_budget = options.unexpected_budget;
  engine_options.multi_threaded = multi;
  engine_options.persistent = context.settings.persistent;
  engine_options.way = context.settings.way;
  engine_options.traffic = &context.traffic;
  engine_options.worker = id;
  engine_options.owner = this;
  engine_options.lost = [](void* worker, Peer& peer, Status why) { static_cast<tw_worker*>(worker)->on_lost(peer, why); };
  engine = std::make_unique<Engine>(engine_options);
  awaited->worker.store(this, std::memory_order_release);
}

Status tw_worker::open(const tw_worker_options& options) {
  Status status = identity.status();
  if (!is_error(status)) status = inbox.open();
  if (is_error(status)) return status;
  epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "epoll_create1");
  for (TransportSlot& slot : context.transports) {
    if (!slot.why_not.empty()) continue;
    PortOptions port_options;
    port_options.sink = engine.get();
    port_options.service = &context.loop;
    port_options.registry = context.registry.get();
    port_options.worker = id;
    port_options.incarnation = context.incarnation;
    port_options.silent_timeout_ns = context.settings.silent_timeout_ns;
    port_options.multi_threaded = multi;
    std::unique_ptr<Port> port;
    status = slot.transport->open(port_options, &port);
    if (is_error(status)) return status;
    engine->add_port(std::move(port));
  }
  std::vector<int> watched{inbox.fd()};
  for (const auto& port : engine->ports()) {
    if (port->fd() >= 0) watched.push_back(port->fd());
  }
  for (int fd : watched) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl");
  }
  keep_hellos(*this);
  address.worker = id;
  address.incarnation = context.incarnation;
  address.host = context.host;
  address.token = context.setup->token();
  address.port = context.setup->port();
  if (address.port != 0) address.addresses = context.addresses;
  context.setup->enter(this);
  return options.progress == TW_PROGRESS_THREAD ? start_thread() : Status(TW_OK);  // last: it progresses at once
}

Status tw_worker::start_thread() {
  kick_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!kick_) return fail_errno(errno, "eventfd");
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run_thread(); });
  } catch (const std::system_error& error) {
    return fail(TW_ERR_LIMIT, "no thread for progress: %s; raise the limit (ulimit -u, pids cgroup)", error.what());
  }
  return TW_OK;
}

tw_worker::~tw_worker() {
  if (thread_.joinable()) {
    stop_.store(true);
    kick();
    thread_.join();
  }
  context.setup->leave(this);
  read_inbox();  // closes sockets in transit; unseen requests end with their listeners
  for (tw_endpoint* endpoint : closing_) {
    if (endpoint->close_run != nullptr) engine->complete(*endpoint->close_run, TW_OK);
    endpoint->close_run = nullptr;
    give_flush_room(*endpoint);
  }
  for (auto& endpoint : endpoints_) {
    if (!endpoint->peer) continue;
    for (RemoteRegion* region : endpoint->regions) {  // they may be released behind the worker
      unmap_region(*region);
      std::atomic_ref(region->peer).store(nullptr, std::memory_order_relaxed);
      region->revoked = true;
    }
    endpoint->regions.clear();
    // What was sent is under way: for the peer this is an endpoint that was closed, not one that was lost.
    if (!is_error(endpoint->peer->state)) engine->close(*endpoint->peer, drained(*endpoint->peer));
    engine->remove(*endpoint->peer);
    end_token(*endpoint);
  }
  for (auto& [listener_id, listener] : listeners) delete listener;
  awaited->worker.store(nullptr, std::memory_order_release);
  engine.reset();
  context.traffic.forget(id);
}

Port* tw_worker::port(std::string_view name) const {
  for (const auto& port : engine->ports()) {
    if (name == port->name()) return port.get();
  }
  return nullptr;
}

Status tw_worker::arm(bool told) {
  const bool news = inbox.disarm_and_poll();
  // What was drained may be the end of another thread's wait().
  if (inbox.woken() && waiters_.load(std::memory_order_seq_cst) != 0) inbox.ring();
  if (news) return TW_ERR_BUSY;
  if (const Status s = engine->arm(told); s != TW_OK) return s;
  if (!awaited->changed()) return TW_OK;  // whatever arrives from now on rings the doorbell
  signalled_.store(true, std::memory_order_relaxed);
  chores_.store(true, std::memory_order_relaxed);
  return TW_ERR_BUSY;
}

uint64_t tw_worker::longest_sleep() const {
  uint64_t ns = kForever;
  for (const auto& port : engine->ports()) ns = std::min(ns, port->longest_sleep.load(std::memory_order_relaxed));
  return ns;
}

Status tw_worker::arm_descriptor() {
  if (const Status s = arm(); s != TW_OK) return s;
  if (inbox.woken()) return TW_ERR_BUSY;
  set_alarm(std::min(longest_sleep(), longest_nap()));
  return TW_OK;
}

/// The descriptor becomes readable after so long; kForever: it does not. Without a descriptor for the clock there is no limit.
void tw_worker::set_alarm(uint64_t ns) {
  if (ns == kForever && !alarm_set_) return;
  if (!alarm_) {
    alarm_ = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    if (!alarm_ || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, alarm_.get(), &event) != 0) return alarm_.reset();
  }
  alarm_set_ = ns != kForever;
  itimerspec when{};
  if (alarm_set_) when.it_value = {time_t(ns / kSecond), long(ns % kSecond)};
  timerfd_settime(alarm_.get(), 0, &when, nullptr);  // takes back what has rung, too
}

/// also: a descriptor that ends it, too.
Status tw_worker::nap(uint64_t timeout_ns, int also) {
  set_alarm(kForever);  // of an owner that also sleeps by the descriptor
  timeout_ns = std::min(timeout_ns, longest_sleep());
  std::array<pollfd, 2> either{pollfd{epoll.get(), POLLIN, 0}, pollfd{also, POLLIN, 0}};
  timespec limit{time_t(timeout_ns / kSecond), long(timeout_ns % kSecond)};
  const trace::Span span(trace::What::sleep);
  const int ready = ppoll(either.data(), also < 0 ? 1 : 2, timeout_ns == kForever ? nullptr : &limit, nullptr);
  return ready > 0 ? TW_OK : TW_ERR_TIMED_OUT;
}

/// A sleep that nothing ends.
void tw_worker::doze(uint64_t ns) {
  const trace::Span span(trace::What::sleep);
  const timespec limit{time_t(ns / kSecond), long(ns % kSecond)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &limit, nullptr);
}

/// A closing endpoint waits for room and answers: those make a port's descriptor readable, but never for longer than this. A header
/// that does not come while another waits for its room ends with its peer's time, and one that waits to connect with its own.
uint64_t tw_worker::longest_nap() {
  if (closings_.load(std::memory_order_relaxed) != 0) return kMillisecond;
  const Guard guard(*engine);
  return std::min(engine->headers != 0 ? 100 * kMillisecond : kForever, longest_wait_to_connect());
}

Status tw_worker::wait(uint64_t timeout_ns) {
  const Status status = wait_for_event(timeout_ns);
  progressed();
  return status;
}

Status tw_worker::wait_for_event(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  for (;;) {
    if (progress() != 0 || inbox.take_wake()) return TW_OK;
    if (deadline.passed()) return TW_ERR_TIMED_OUT;
    // Before the doorbells are hung up: a thread that takes them down afterwards sees it.
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (arm(true) == TW_OK && !inbox.woken()) nap(std::min(deadline.left_ns(), longest_nap()));
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
}

/// There is something already, which the sleepers are to take.
void tw_worker::rearm() {
  if (arm() == TW_OK) return;
  if (asleep.load(std::memory_order_relaxed)) kick();
  if (waiters_.load(std::memory_order_relaxed) != 0) inbox.ring();
}

Status tw_worker::refuse_wait() {
  return fail(
      TW_ERR_BUSY,
      "a handler of active messages runs inside progress, and cannot wait for what comes by it: post with a request or a "
      "callback, and wait outside of the handler");
}

Status tw_worker::check_waits_for_ranks() {
  if (engine->may_progress()) return TW_OK;
  return fail(
      TW_ERR_BUSY,
      "callbacks and handlers run inside progress, and cannot wait for other ranks there: call it when they have returned");
}

void tw_worker::kick() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(kick_.get(), &one, sizeof one);
}

void tw_worker::run_thread() {
  Waiting waiting;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (progress() != 0) {
      waiting.restart();
      continue;
    }
    if (waiting.idle() == Waiting::Next::look) continue;
    // A post after this store wakes this thread; arm() sees what was posted before it.
    asleep.store(true, std::memory_order_seq_cst);
    if (arm(true) == TW_OK) nap(longest_nap(), kick_.get());
    asleep.store(false, std::memory_order_relaxed);
    uint64_t kicks = 0;
    [[maybe_unused]] const ssize_t got = read(kick_.get(), &kicks, sizeof kicks);
  }
}
