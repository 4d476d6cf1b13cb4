// SPDX-License-Identifier: Apache-2.0
// The protocol engine of one worker: requests, matching, the frames' dispatch table. core/ wraps it in tw_worker.
//
// Call path of a small tagged send: tw_send (core/c_message.cpp) -> eager (protocols/eager.cpp) -> Port::send (shm/ring).
// Call path of its arrival: tw_progress -> Port::progress -> Engine::on_frame -> eager::on_frame -> Matcher -> complete.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "protocols/operation.hpp"
#include "protocols/peer.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

class Registry;
class Matcher;
class RunPool;

struct EngineOptions {
  Registry* registry = nullptr;
  uint64_t incarnation = 0;
  uint64_t unexpected_budget = 64u << 20;
  bool multi_threaded = false;
};

/// Completion forms asked for by a caller.
struct Completion {
  tw_request* request = nullptr;   // where the number goes; null: not wanted
  tw_callback callback = nullptr;
  void* arg = nullptr;
};

class Engine final : public Sink {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine() override;

  // --- life of peers (progress owner)
  void add_port(std::unique_ptr<Port> port);
  void attach(Peer& peer, Link& link);                           // connected: what was queued starts
  void fail(Peer& peer, Status status, const std::string& why);  // every pending run of it ends, once

  // --- posting. Checks were made by the caller (core); these choose a protocol and start it.
  Status start(const OpDesc& op, const Completion& completion);         // send, am, bytes, put, get, atomic, signal, flush
  Status post_receive(const OpDesc& op, const Completion& completion);  // tagged
  unsigned progress();

  // --- Sink
  void on_frame(Link& link, const FrameHeader& header, const std::byte* body) override;
  std::byte* landing(Link& link, const FrameHeader& header, const std::byte* prefix, size_t prefix_length) override;
  void on_landed(Link& link, const FrameHeader& header) override;
  void on_sent(Link& link, void* token, Status status) override;
  void on_lost(Link& link, Status status, const char* why) override;
  void on_import(Link& link, uint64_t segment) override;

  // --- for the protocols
  OpRun* acquire(const OpDesc& op);
  void complete(OpRun& run, Status status);
  OpRun* find(uint64_t op_number);               // an echoed op: null when it is not alive (any more)
  uint64_t number(const OpRun& run) const;       // the request number, also the wire's op
  void wants_push(Peer& peer);                   // the peer has something queued: progress pushes
  Registry& registry() { return *options_.registry; }

 private:
  EngineOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::unique_ptr<RunPool> runs_;
  std::unique_ptr<Matcher> matcher_;
  Peer* busy_ = nullptr;
};

}  // namespace thalweg::impl
