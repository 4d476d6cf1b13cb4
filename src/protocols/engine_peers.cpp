// SPDX-License-Identifier: Apache-2.0
// The life of peers: known, attached to a link, lost or closed, gone.
#include <algorithm>
#include <utility>

#include "protocols/active.hpp"
#include "protocols/bounce.hpp"
#include "protocols/bytes.hpp"
#include "protocols/engine.hpp"
#include "protocols/flow.hpp"
#include "protocols/offers.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/operation_routes.hpp"
#include "protocols/rendezvous.hpp"

namespace thalweg::impl {

void Engine::add_port(std::unique_ptr<Port> port) {
  Guard guard(*this);
  ports_.push_back(std::move(port));
}

void Engine::add(Peer& peer) {
  Guard guard(*this);
  if (std::find(peers_.begin(), peers_.end(), &peer) == peers_.end()) peers_.push_back(&peer);
  peer.engine = this;
  if (options_.traffic != nullptr) options_.traffic->add(peer.tally, options_.worker);
}

void Engine::attach(Peer& peer, Link& link) {
  Guard guard(*this);
  look_everywhere();  // its port is in use now
  add(peer);
  peer.link = &link;
  link.user = &peer;
  peer.identity = link.peer;
  peer.state = TW_OK;
  peer.distance = options_.costs != nullptr ? distance_to(*options_.costs, link) : CpuDistance::count_;
  peer.limits = limits_of(link, costs_of(peer), options_.way);
  link.body_copy.choose(costs_of(peer).streamed != 0, costs_of(peer).stream_copy);
  link.wide = costs_of(peer).wide != 0;
  open_credit(*this, peer);
  if (options_.traffic != nullptr) options_.traffic->connected(peer.tally, link.port->name(), link.peer);
  pusher_.wants(peer);
  if (overfull(*this)) [[unlikely]]
    turn_away(peer, TW_ERR_LIMIT,
              "the worker holds more unmatched messages of endpoints that have ended than its unexpected_budget: receive them, "
              "or give it a larger one");
}

bool Engine::idle(const Peer& peer) const {
  return peer.control.empty() && peer.ordered.empty() && peer.pipelines.empty() && peer.bytes.empty() && peer.waiting.empty() &&
         !unconfirmed(peer) && (peer.link == nullptr || peer.link->port->queued(*peer.link) == 0);
}

namespace {

/// What a device or a stream alone keeps: it ends well, and is in `waiting` again.
void keep_all_here(PeerRunList& waiting, PeerRunList& kept) {
  for (OpRun* run = waiting.front(); run != nullptr;) {
    OpRun* const next = run->by_peer.next;
    if (all_here(*run)) {
      waiting.remove(run);
      kept.push_back(run);
    }
    run = next;
  }
}

}  // namespace

/// The link must be gone (or its port must not touch anybody's memory any more) before runs end: their buffers go back.
void Engine::end_runs(Peer& peer, Status status, const std::string& why) {
  bool first = !is_error(peer.state);
  if (peer.link != nullptr) close_credit(*this, peer);
  peer.link = nullptr;
  peer.state = status;
  peer.why = why;
  if (first && options_.traffic != nullptr) options_.traffic->lost(peer.tally, status);
  peer.limits = Limits{};
  control_frames -= peer.control.size();
  peer.control.clear();
  peer.assembly = Assembly{};
  peer.destination = nullptr;
  if (peer.byte_stream) peer.byte_stream->destination = nullptr;
  peer.one_sided.issued = peer.one_sided.framed = peer.one_sided.confirmed = peer.one_sided.fence = 0;
  peer.one_sided.silent = peer.one_sided.reported = 0;  // what is counted is so until each run has ended
  PeerRunList kept;
  if (std::exchange(peer.doomed, false) || !first) keep_all_here(peer.waiting, kept);  // else this side gives them up, too
  while (OpRun* run = peer.waiting.front()) {
    if (run->protocol != nullptr && run->protocol->abort != nullptr) run->protocol->abort(*run, status);
    complete(*run, status, why);
  }
  while (OpRun* run = kept.pop_front()) peer.waiting.push_back(run);
  answers_cost -= std::exchange(peer.answers_cost, 0);
  peer.bounces.reset();
  receives_.lose(peer);
  active_->lose(peer);
  if (first && options_.lost != nullptr) options_.lost(options_.owner, peer, status);
}

void Engine::fail(Peer& peer, Status status, const std::string& why) {
  Guard guard(*this);
  if (Link* link = peer.link) {
    close_credit(*this, peer);
    peer.link = nullptr;  // before the port's close: nothing of this peer may be sent or handled from here on
    end_offers(*this, peer);
    link->port->close(*link, false);
  }
  end_runs(peer, status, why);
}

void Engine::close(Peer& peer, bool graceful) {
  Guard guard(*this);
  if (Link* link = peer.link; link != nullptr && graceful) {
    link->port->send(*link, make_header(Frame::goodbye, 0, 0, 0), nullptr);
    close_credit(*this, peer);
    peer.link = nullptr;
    end_offers(*this, peer);
    link->port->close(*link, true);
  }
  fail(peer, TW_ERR_CLOSED, "this side closed the endpoint");
}

void Engine::remove(Peer& peer) {
  Guard guard(*this);
  if (!is_error(peer.state)) fail(peer, TW_ERR_CLOSED, "this side closed the endpoint");
  while (OpRun* run = peer.waiting.pop_front()) {  // all_here(): it ends without its endpoint
    run->peer = nullptr;
    run->info.endpoint = nullptr;
  }
  receives_.orphan(peer);
  active_->orphan(peer);
  completions_.forget(peer);
  pusher_.forget(peer);
  std::erase_if(doomed_, [&peer](const auto& doomed) { return doomed.first == &peer; });
  peer.doomed = false;
  std::erase(peers_, &peer);
  if (options_.traffic != nullptr) options_.traffic->remove(peer.tally);
}

void Engine::doom(Peer& peer, Status status, const std::string& why) {
  if (peer.doomed || peer.link == nullptr) return;
  peer.doomed = true;
  peer.why = why;
  doomed_.emplace_back(&peer, status);
  end_calm();
}

void Engine::violation(Peer& peer, const char* what) {
  if (peer.doomed || peer.link == nullptr) return;
  tell_end(peer, TW_ERR_PROTOCOL, std::string("protocol error: ") + what);
  doom(peer, TW_ERR_PROTOCOL, std::string("the peer sent what no peer may send: ") + what);
}

void Engine::turn_away(Peer& peer, Status status, const char* why) {
  tell_end(peer, status, why);
  doom(peer, status, why);
}

/// Best effort: the peer may not be reading.
void Engine::tell_end(Peer& peer, Status status, const std::string& text) {
  const size_t bytes = std::min({text.size(), size_t{kMostSaid}, size_t{peer.link->copy_max}});
  const auto code = static_cast<uint64_t>(static_cast<int64_t>(status));
  peer.link->port->send(*peer.link, make_header(Frame::error, bytes, code, 0), text.data());
}

void Engine::close_doomed() {
  std::vector<std::pair<Peer*, Status>> doomed;
  doomed.swap(doomed_);
  for (auto& [peer, status] : doomed) {
    // It has ended the link, broken a rule, or come in vain: a hostile one would have every link of this worker wait for it here.
    const bool parted = status == TW_ERR_CLOSED || status == TW_ERR_PROTOCOL || status == TW_ERR_LIMIT;
    if (Link* link = peer->link) link->parted = parted;
    fail(*peer, status, std::string(peer->why));
  }
}

}  // namespace thalweg::impl
