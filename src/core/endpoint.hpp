// SPDX-License-Identifier: Apache-2.0
// tw_endpoint: a Peer of the protocols with what set-up and closing need around it.
//
// Life: made by tw_connect, tw_accept or an incoming connection by worker address (then it has no holder: references 0) ->
// connecting -> connected -> lost or closed -> returned to its worker's pool. Memory is only freed with the worker, so
// that a stale handle is an error and never a crash.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/address.hpp"
#include "protocols/peer.hpp"

struct tw_worker;

struct tw_endpoint {
  static constexpr uint32_t kAlive = 0x656e6470, kClosing = 0x636c6f73, kFree = 0x66726565;
  uint32_t magic = kFree;
  tw_worker* worker = nullptr;
  std::optional<thalweg::impl::Peer> peer;

  uint32_t references = 0;                   // handles that tw_connect and tw_accept gave out
  uint64_t key = 0;                          // of the attempt that is to connect it, 0 none
  thalweg::impl::WorkerId remote = 0;        // by worker address: the peer; 0: listener connection
  uint64_t token = 0;                        // by worker address: of its connection, 0 while there is none
  const char* transport = "";                // name of the link's transport
  bool is_protected = false;                 // the link is or was kLinkProtected
  std::string note;                          // why not a better transport
  std::vector<std::byte> received;           // private data that came
  uint64_t token_here = 0, token_there = 0;  // of hello.hpp: sent here, and by the peer; 0: not yet
  std::vector<std::byte> hello;              // the peer's proxy
  void* user = nullptr;
  void (*on_lost)(void* arg, tw_endpoint* endpoint, tw_status why) = nullptr;  // of the first holder that has one
  void* on_lost_arg = nullptr;

  // what a new attempt needs
  thalweg::impl::WorkerAddress address;
  std::vector<std::byte> data;
  std::string forced;
  uint64_t timeout_ns = 0;
  uint64_t connect_since = 0;  // when it was made: timeout_ns runs from then, whatever it waits for
  bool tls = false;
  bool addressed = false;  // `address` is known

  std::unordered_set<thalweg::impl::RemoteRegion*> regions;      // imported through it; outlive it as refusals
  std::vector<std::weak_ptr<thalweg::impl::LossWatch>> watches;  // called when it is lost, or closed here

  // closing
  bool graceful = false;
  bool flushing = false;
  uint64_t flush = 0;                          // request of the flush
  thalweg::impl::OpRun* close_run = nullptr;   // completes when the handle has ended
  thalweg::impl::OpRun* flush_room = nullptr;  // kept for the flush of its close, which would find no request left

  // of those that close and those that wait behind them (successors.cpp)
  tw_endpoint* successor = nullptr;    // connects to the same worker when this one has ended
  tw_endpoint* predecessor = nullptr;  // whose successor this one is
};

namespace thalweg::impl {
inline constexpr char kPlainLink[] =
    "the connection with this worker is without TLS, which an endpoint to it demands: set tls in both contexts and in every "
    "tw_connect to it, or THALWEG_TLS=1";
/// `endpoint`, which is new, connects once `before` has ended. (successors.cpp)
void put_behind(tw_endpoint& before, tw_endpoint& endpoint);
/// `endpoint` has ended or is lost: it waits behind none any more. What waits behind it keeps its place.
void unchain(tw_endpoint& endpoint);
/// Of the time that it may take to connect; 0: it is over. (successors.cpp)
uint64_t left_ns(const tw_endpoint& endpoint);
/// Does nothing but receives still run for this peer?
bool drained(const Peer& peer);
/// Is there nothing that a graceful close has to wait for?
bool ends_at_once(const Engine& engine, const Peer& peer);
}  // namespace thalweg::impl
