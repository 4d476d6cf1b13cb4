// SPDX-License-Identifier: Apache-2.0
// The network of the model: ports of the engines in this process, and a schedule that decides when anything happens. A frame
// that a port took is on its way until carry(), waits at the receiver until its progress, may be read straight to where the
// receiver wants it, in pieces; bytes by reference are looked at when the frame leaves. Imports are answered, releases of
// segments reported, and room made after a refusal, when the schedule says so. An armed port sleeps until one of these
// things happens to it.
//
// Threads: one at a time has the schedule, and is the only one that progresses, carries and ends anything. What others reach
// beside it, by posting, is under Net::locked() (of a run with threads), which is never held around a call of an engine.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "model/host.hpp"
#include "protocols/engine.hpp"

namespace thalweg::model {

class ModelPort;
class Net;

/// A thread that works beside the one that has the schedule: nothing ends by what it does, and its dice are its own.
struct Beside {
  bool is = false;
  Random random;
};
inline thread_local Beside beside;

struct Carried {
  FrameHeader header{};
  std::vector<std::byte> body;
  std::vector<iovec> pieces;  // by reference, not looked at yet
  void* token = nullptr;
};

struct ModelLink final : Link {
  ModelPort* owner = nullptr;
  ModelLink* other = nullptr;
  unsigned from = 0, to = 0;
  bool ended = false;       // closed here, or its loss was reported: no call but close() may name it
  bool told = false;        // of its loss
  bool closed = false;      // here: nothing of it stays
  bool broken = false;      // nothing can be sent any more
  bool loss_comes = false;  // behind what is in `in`
  Status why = TW_ERR_PEER_LOST;
  bool refused = false;                       // a frame, since room was made
  std::deque<Carried> out, in;                // sent from here and on its way; arrived here
  std::deque<std::pair<void*, Status>> sent;  // tokens to be reported
  std::vector<std::byte> reserved;
  std::shared_ptr<std::array<OfferTable, 2>> tables;  // of offered receives; one of them is this side's
  unsigned side = 0;
  uint64_t taken = 0;               // frames that were handed over here
  std::vector<FrameHeader> frames;  // that were sent from here
  // A body that is being read to where its receiver wants it.
  std::byte* destination = nullptr;
  bool discard = false;
  size_t landed = 0;
};

/// Called for each message at the moment that it is matched.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void on_arrival(unsigned from, unsigned to, const FrameHeader& header, const std::byte* body) = 0;
  virtual void fail(const char* what) = 0;
};

class ModelPort final : public Port {
 public:
  ModelPort(Net& net, Engine& engine, Host& host, unsigned worker);
  const char* name() const override { return "model"; }
  Status offer(const PeerIdentity&, SetupMessage&) override { return TW_OK; }
  Status answer(const PeerIdentity&, const SetupMessage&, SetupMessage&) override { return TW_OK; }
  Status establish(LinkInit&&, Link**) override { return TW_ERR_UNSUPPORTED; }
  Status send(Link& link, const FrameHeader& header, const void* body) override;
  std::byte* reserve(Link& link, size_t n) override;
  void commit(Link& link, const FrameHeader& header) override;
  Status send_reference(Link& link, const FrameHeader& header, const iovec* pieces, size_t count, void* token) override;
  void withdraw(Link& link, std::byte* destination) override;
  Status import(Link& link, uint64_t segment, Mapping** mapping) override;
  Status import_device(Link& link, uint64_t segment, Device& device, Mapping** mapping) override;
  bool enter_peer(Link& link) override;
  void ring(Link& link) override;
  int64_t read_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override;
  int64_t write_peer(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes) override;
  OfferTables offers(Link& link) override;
  uint64_t taken(const Link& link) override;
  bool any_behind(const Link& link, uint64_t taken, FrameTest test, const void* what) override;
  unsigned take(unsigned budget, FrameTest test) override;
  unsigned progress(unsigned budget) override;
  int fd() const override { return -1; }
  Status arm() override;
  void wake() override { rouse(); }
  void close(Link& link, bool graceful) override;
  size_t queued(const Link& link) const override;

  /// Something came: an armed port's descriptor is readable.
  void rouse() {
    if (armed) readable = true;
  }
  unsigned worker() const { return worker_; }
  std::atomic<bool> armed{false}, readable{false}, dead{false};

 private:
  friend class Net;
  struct Import {
    ModelLink* link;
    uint64_t segment;
    Device* device = nullptr;  // null: host memory
    enum State : uint8_t { asked, answered, mapped, refused } state = asked;
    Mapping mapping;
  };
  ModelLink& own(Link& link, const char* call);
  bool full(ModelLink& link);
  void take(ModelLink& link, Carried&& frame);
  bool hand_over(ModelLink& link);
  Carried take_first(ModelLink& link);
  bool land(ModelLink& link, const Carried& frame);
  Status import(ModelLink& link, uint64_t segment, Device* device, Mapping** mapping);
  void finish_import(Import& one);
  int64_t copy(Link& link, const iovec* local, size_t locals, const iovec* remote, size_t remotes, bool read);
  void forget_imports(ModelLink& link, Status why);

  Net& net_;
  Engine& engine_;
  Host& host_;
  unsigned worker_;
  uint32_t sleeping_ = 0;
  std::list<Import> imports_;
  std::vector<ModelLink*> links_;
};

class Net {
 public:
  Net(Random& source, Watcher& told) : random(source), watcher(told) {}
  Random& random;
  Watcher& watcher;
  std::atomic<uint32_t> refuse{0};  // of 100 frames
  bool one_process = false, threads = false;
  [[nodiscard]] std::unique_lock<std::recursive_mutex> locked() {
    return threads ? std::unique_lock(mutex_) : std::unique_lock<std::recursive_mutex>();
  }
  Random& dice() { return beside.is ? beside.random : random; }

  void add(ModelPort& port) { ports_.push_back(&port); }
  /// A connection; neither side is attached yet.
  void connect(ModelPort& a, ModelPort& b, Way way, uint32_t copy_max, uint32_t fragment, ModelLink** to_b, ModelLink** to_a);

  // --- what the schedule does
  /// Frames of a link with something on its way arrive. False: nothing is on its way.
  bool carry();
  bool answer_import();
  bool tell_release();
  bool make_room();
  /// All that was asked for from outside has come.
  bool still();
  bool is_broken(const ModelLink& link) {
    const auto lock = locked();
    return link.broken;
  }
  bool is_refused(const ModelLink& link) {
    const auto lock = locked();
    return link.refused;
  }
  void segment_released(Host& host, uint64_t segment);
  /// Its imports for devices end. False: one of them is in use.
  bool drop(uint64_t segment);

  /// Is there a link of a live port whose loss was reported and that leaks, because it was not closed?
  bool keeps_lost_links() const;
  /// Does a device of the other side use memory of this one? An end of the link waits for that.
  bool lends(const ModelLink& link);
  /// The connection breaks; some of what is on its way still arrives.
  void cut(ModelLink& link, Status here = TW_ERR_PEER_LOST, Status there = TW_ERR_PEER_LOST);
  /// The process of this port ends: nothing leaves it any more.
  void kill(ModelPort& port);
  /// cut() or kill() at the n-th call of any port from now on.
  void cut_later(ModelLink& link, uint32_t calls);
  void kill_later(ModelPort& port, uint32_t calls);
  void tick();
  /// What was to end later ends now.
  void burn() {
    if (fuse_ == 0) return;
    fuse_ = 1;
    tick();
  }

 private:
  friend class ModelPort;
  void depart(ModelLink& link, Carried& frame);
  void arrive(ModelLink& link, size_t frames);
  void break_off(ModelLink& link, Status there);
  static void drop_unsent(ModelLink& link);

  std::recursive_mutex mutex_;
  std::vector<ModelPort*> ports_;
  std::vector<std::unique_ptr<ModelLink>> links_;
  struct Release {
    ModelPort* port;
    uint64_t segment;
  };
  std::deque<Release> releases_;
  uint32_t fuse_ = 0;
  ModelLink* to_cut_ = nullptr;
  ModelPort* to_kill_ = nullptr;
};

}  // namespace thalweg::model
