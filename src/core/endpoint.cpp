// SPDX-License-Identifier: Apache-2.0
// Making, connecting and closing endpoints: the worker's side.
#include "core/endpoint.hpp"

#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/platform/process.hpp"
#include "core/hello.hpp"
#include "core/worker.hpp"
#include "protocols/flow.hpp"
#include "protocols/one_sided.hpp"

using namespace thalweg::impl;

namespace {

constexpr uint64_t kConnectNs = 10 * kSecond;
constexpr size_t kSparesKept = 64;  // destroyed endpoints are reused only beyond this many
constexpr size_t kDeadKept = 256;

SocketAddress socket_address(const IpAddress& ip, uint16_t port) {
  return internet_address({reinterpret_cast<const char*>(ip.bytes.data()), ip.length}, port);
}

}  // namespace

bool thalweg::impl::drained(const Peer& peer) {
  if (!peer.control.empty() || !peer.ordered.empty() || !peer.pipelines.empty() || !peer.bytes.empty()) return false;
  for (const OpRun* run = peer.waiting.front(); run != nullptr; run = run->by_peer.next) {
    if (run->op->verb != Verb::recv && run->op->verb != Verb::bytes_recv && run->op->verb != Verb::am_recv) return false;
  }
  return peer.link == nullptr || peer.link->port->queued(*peer.link) == 0;
}

bool thalweg::impl::ends_at_once(const Engine& engine, const Peer& peer) {
  if (is_error(peer.state)) return true;
  if (!drained(peer)) return false;
  if (peer.state == TW_IN_PROGRESS) return true;
  return engine.idle(peer) && (peer.link == nullptr || peer.link->port->undelivered(*peer.link) == 0);
}

tw_endpoint* tw_worker::make_endpoint(const tw_endpoint_options& options) {
  tw_endpoint* endpoint;
  if (spare_.size() > kSparesKept) {
    endpoint = spare_.front();
    spare_.pop_front();
  } else {
    endpoints_.push_back(std::make_unique<tw_endpoint>());
    endpoint = endpoints_.back().get();
  }
  endpoint->magic = tw_endpoint::kAlive;
  endpoint->worker = this;
  endpoint->peer.emplace();
  endpoint->peer->endpoint = endpoint;
  endpoint->references = 1;
  endpoint->user = nullptr;  // who held its place's last one may have set it since that ended
  endpoint->on_lost = options.on_lost;
  endpoint->on_lost_arg = options.arg;
  if (options.private_length != 0) {
    const auto* bytes = static_cast<const std::byte*>(options.private_data);
    endpoint->data.assign(bytes, bytes + options.private_length);
  }
  endpoint->forced = options.transport != nullptr ? options.transport : "";
  endpoint->timeout_ns = options.timeout_ns != 0 ? options.timeout_ns : kConnectNs;
  endpoint->connect_since = monotonic_ns();
  endpoint->tls = options.tls != 0 || context.settings.tls;
  engine->add(*endpoint->peer);
  return endpoint;
}

ConnectPlan tw_worker::plan_for(tw_endpoint& endpoint) {
  ConnectPlan plan;
  plan.worker = this;
  plan.key = context.setup->next_key();
  plan.message.worker = id;
  plan.message.incarnation = context.incarnation;
  plan.message.host = context.host;
  plan.message.token = random_id();
  plan.message.data = endpoint.data;
  plan.transport = endpoint.forced;
  plan.tls = endpoint.tls;
  plan.timeout_ns = endpoint.timeout_ns;
  plan.waited_ns = monotonic_ns() - endpoint.connect_since;
  endpoint.key = plan.key;
  pending[plan.key] = &endpoint;
  return plan;
}

/// Starts an attempt to the endpoint's worker address.
void tw_worker::call(tw_endpoint& endpoint) {
  const WorkerAddress& to = endpoint.address;
  ConnectPlan plan = plan_for(endpoint);
  plan.message.target = to.worker;
  plan.message.target_incarnation = to.incarnation;
  plan.target_host = to.host;
  const bool local = context.usable(&TransportTraits::passes_descriptors, endpoint.forced) != nullptr;
  const bool network = context.usable(&TransportTraits::over_network, endpoint.forced) != nullptr;
  SocketAddress candidate;
  if (local && to.host == context.host && context.setup->unix_candidate(to.token, &candidate)) {
    plan.candidates.push_back(candidate);
  }
  for (const IpAddress& ip : to.addresses) {
    if (network && to.port != 0) plan.candidates.push_back(socket_address(ip, to.port));
  }
  {
    std::lock_guard lock(directory.mutex);
    Directory::Entry& entry = directory.entries[to.worker];
    entry.endpoint = &endpoint;
    entry.key = plan.key;
    plan.message.previous = directory.last_ended(to.worker);
  }
  context.setup->call(std::move(plan));
}

void tw_worker::connect_self(tw_endpoint& endpoint) {
  const TransportSlot* const slot = context.usable(&TransportTraits::to_itself);
  if (slot == nullptr) {
    const std::string names = context.names_of(&TransportTraits::to_itself);
    const std::string why = "connecting to oneself needs the transport " + names + ", which is switched off";
    engine->fail(*endpoint.peer, TW_ERR_UNREACHABLE, why.c_str());
    return;
  }
  Port* const self = port(slot->name);
  LinkInit init;
  init.peer = identify(id, context.incarnation, context.host, 0);
  init.initiator = true;
  Link* link = nullptr;
  const Status status = self->establish(std::move(init), &link);
  if (is_error(status)) {
    engine->fail(*endpoint.peer, status, last_error());
    return;
  }
  link->user = &*endpoint.peer;
  endpoint.transport = self->name();
  endpoint.is_protected = (link->features & kLinkProtected) != 0;
  engine->attach(*endpoint.peer, *link);
}

/// Another handle of an endpoint that is there, which must have what its new holder asks for. While it connects, take_link() sees to
/// that.
Status tw_worker::share(tw_endpoint& endpoint, const tw_endpoint_options& options, tw_endpoint** out) {
  const bool tls = options.tls != 0 || context.settings.tls;
  const bool connected = endpoint.peer->state == TW_OK;
  const std::string wanted = options.transport != nullptr && endpoint.remote != id ? options.transport : "";
  const std::string has = connected ? endpoint.transport : endpoint.forced;
  if (connected && tls && !endpoint.is_protected) return fail(TW_ERR_AUTHENTICATION, "%s", kPlainLink);
  if (!wanted.empty() && !has.empty() && wanted != has) {
    return fail(TW_ERR_INVALID,
                "the one connection with this worker is by %s, not by %s: close all its endpoints first, or name the same "
                "transport, or none, in every tw_connect to it",
                has.c_str(), wanted.c_str());
  }
  if (!connected) {
    endpoint.tls |= tls;
    if (!wanted.empty()) endpoint.forced = wanted;
  }
  if (endpoint.on_lost == nullptr) {
    endpoint.on_lost = options.on_lost;
    endpoint.on_lost_arg = options.arg;
  }
  ++endpoint.references;
  *out = &endpoint;
  return TW_OK;
}

Status tw_worker::connect(const WorkerAddress& to, const tw_endpoint_options& options, tw_endpoint** out) {
  const bool self = to.worker == id;
  bool start = false;
  tw_endpoint* endpoint = nullptr;
  {
    std::lock_guard lock(directory.mutex);
    const auto at = directory.entries.find(to.worker);
    tw_endpoint* last = last_to(to.worker, at == directory.entries.end() ? nullptr : at->second.endpoint);
    if (last != nullptr && last->magic != tw_endpoint::kClosing) {
      if (!is_error(last->peer->state)) return share(*last, options, out);
      last = nullptr;
      directory.entries.erase(to.worker);
    }
    endpoint = make_endpoint(options);
    endpoint->remote = to.worker;
    endpoint->address = to;
    endpoint->addressed = true;
    if (last != nullptr) {
      put_behind(*last, *endpoint);
    } else {
      auto [entry, fresh] = directory.entries.try_emplace(to.worker);
      entry->second.endpoint = endpoint;
      if (self) entry->second.state = Directory::State::established;
      start = fresh;  // otherwise the peer's own attempt is on its way
    }
  }
  *out = endpoint;
  if (!start) {
    if (endpoint->predecessor == nullptr) await_peer(*endpoint);  // else time_out_successors
    return TW_OK;
  }
  if (self) {
    connect_self(*endpoint);
  } else {
    call(*endpoint);
  }
  return TW_OK;
}

Status tw_worker::close(tw_endpoint& endpoint, bool graceful, tw_request* request) {
  if (request != nullptr) *request = TW_REQUEST_NONE;
  if (endpoint.references > 1) {
    --endpoint.references;
    return TW_OK;
  }
  OpRun *run = nullptr, *room = nullptr;
  if (graceful && !is_error(endpoint.peer->state)) {
    OpDesc op;
    op.verb = Verb::flush;
    run = engine->acquire(op, Completion{request});
    if (run != nullptr) room = engine->acquire(op, Completion{});
    if (room == nullptr && !ends_at_once(*engine, *endpoint.peer)) {
      if (run != nullptr) engine->discard(*run);
      return TW_ERR_LIMIT;
    }
  }
  endpoint.references = 0;
  endpoint.magic = tw_endpoint::kClosing;
  std::erase_if(lost_, [&](const auto& lost) { return lost.first == &endpoint; });
  std::erase(dead_, &endpoint);
  endpoint.graceful = graceful && !is_error(endpoint.peer->state);
  endpoint.flushing = false;
  endpoint.close_run = nullptr;
  endpoint.flush_room = room;
  if (run != nullptr) {
    closing_.push_back(&endpoint);
    closings_.store(uint32_t(closing_.size()), std::memory_order_relaxed);
    chores_.store(true, std::memory_order_relaxed);
    if (!step_closing(endpoint)) {
      endpoint.close_run = run;
      if (request != nullptr) *request = engine->runs().number(*run);
      return TW_IN_PROGRESS;
    }
    engine->discard(*run);
    std::erase(closing_, &endpoint);
    closings_.store(uint32_t(closing_.size()), std::memory_order_relaxed);
  }
  end_endpoint(endpoint);
  return TW_OK;
}

void tw_worker::give_flush_room(tw_endpoint& endpoint) {
  if (endpoint.flush_room != nullptr) engine->discard(*std::exchange(endpoint.flush_room, nullptr));
}

/// True when everything is sent, confirmed and reported: the endpoint may end.
bool tw_worker::step_closing(tw_endpoint& endpoint) {
  Peer& peer = *endpoint.peer;
  if (is_error(peer.state)) return true;
  if (peer.state == TW_IN_PROGRESS) {
    if (!drained(peer)) return false;
    endpoint.graceful = false;  // nothing to deliver: no need to connect first
    return true;
  }
  if (!endpoint.flushing) {
    OpDesc op;
    op.verb = Verb::flush;
    op.peer = &peer;
    give_flush_room(endpoint);
    const Status status = engine->start(op, Completion{&endpoint.flush});
    endpoint.flushing = true;
    if (status != TW_IN_PROGRESS) endpoint.flush = TW_REQUEST_NONE;
  }
  if (endpoint.flush != TW_REQUEST_NONE) {
    if (Engine::test(endpoint.flush) == TW_IN_PROGRESS) return false;
    Engine::release(endpoint.flush);
    endpoint.flush = TW_REQUEST_NONE;
  }
  return drained(peer) && (peer.link == nullptr || peer.link->port->undelivered(*peer.link) == 0);
}

void tw_worker::end_endpoint(tw_endpoint& endpoint) {
  if (endpoint.key != 0) {
    context.setup->hang_up(endpoint.key);
    pending.erase(endpoint.key);
    endpoint.key = 0;
  }
  Peer& peer = *endpoint.peer;
  for (RemoteRegion* region : endpoint.regions) {
    unmap_region(*region);
    std::atomic_ref(region->peer).store(nullptr, std::memory_order_relaxed);
    region->revoked = true;
  }
  endpoint.regions.clear();
  if (!is_error(peer.state)) engine->close(peer, endpoint.graceful);
  if (endpoint.flush != TW_REQUEST_NONE) Engine::release(endpoint.flush);
  endpoint.flush = TW_REQUEST_NONE;
  give_flush_room(endpoint);
  engine->remove(peer);
  if (endpoint.remote != 0) directory.forget(endpoint.remote, &endpoint, endpoint.token);
  if (endpoint.close_run != nullptr) engine->complete(*endpoint.close_run, TW_OK);
  endpoint.close_run = nullptr;
  endpoint.magic = tw_endpoint::kFree;
  endpoint.remote = endpoint.token = 0;
  endpoint.transport = "";
  endpoint.is_protected = false;
  endpoint.note.clear();
  endpoint.received.clear();
  endpoint.hello.clear();
  end_token(endpoint);
  endpoint.data.clear();
  endpoint.user = nullptr;
  endpoint.on_lost = nullptr;
  endpoint.addressed = endpoint.graceful = endpoint.flushing = false;
  endpoint.address = {};
  endpoint.peer.reset();
  std::erase(awaiting_, &endpoint);
  spare_.push_back(&endpoint);
  start_successor(endpoint);
}

unsigned tw_worker::do_chores() {
  unsigned events = 0;
  {
    Guard guard(*engine);
    chores_.store(false, std::memory_order_relaxed);
    if (signalled_.exchange(false, std::memory_order_relaxed)) ++events;
    events += time_out_awaiting();
    for (size_t i = 0; i < closing_.size();) {
      tw_endpoint* endpoint = closing_[i];
      time_out_successors(*endpoint);
      if (!step_closing(*endpoint)) {
        ++i;
        continue;
      }
      closing_.erase(closing_.begin() + std::ptrdiff_t(i));
      end_endpoint(*endpoint);
      ++events;
    }
    closings_.store(uint32_t(closing_.size()), std::memory_order_relaxed);
    if (!closing_.empty() || !awaiting_.empty()) chores_.store(true, std::memory_order_relaxed);
  }
  const bool nested = std::exchange(Completions::calling_back(), true);
  while (const std::function<void()> callback = next_callback()) {
    ++events;
    callback();
    Guard guard(*engine);
    telling_ = {};
  }
  Completions::calling_back() = nested;
  return events;
}

std::function<void()> tw_worker::next_callback() {
  Guard guard(*engine);
  if (telling_.of != nullptr) return {};  // another thread calls back; it handles the rest too
  if (!lost_.empty()) {
    tw_endpoint* const endpoint = lost_.front().first;
    const Status why = lost_.front().second;
    lost_.pop_front();
    telling_ = {endpoint, std::this_thread::get_id()};
    if (endpoint->references == 0) keep_dead(*endpoint);
    if (endpoint->on_lost == nullptr) return [] {};
    return [endpoint, why, on_lost = endpoint->on_lost, arg = endpoint->on_lost_arg] { on_lost(arg, endpoint, why); };
  }
  if (!requested_.empty()) {
    tw_listener* const listener = requested_.front().first;
    tw_connection_request* const request = requested_.front().second.release();
    requested_.pop_front();
    telling_ = {listener, std::this_thread::get_id()};
    return [request, on_request = listener->on_request, arg = listener->arg] { on_request(arg, request); };
  }
  return {};
}

void tw_worker::keep_dead(tw_endpoint& endpoint) {
  dead_.push_back(&endpoint);
  // Messages of groups that no group's endpoint receives go with their endpoint.
  while (dead_.size() > kDeadKept || (dead_.size() > 1 && overfull(*engine))) {
    tw_endpoint* oldest = dead_.front();
    dead_.pop_front();
    oldest->magic = tw_endpoint::kClosing;
    end_endpoint(*oldest);
  }
}
