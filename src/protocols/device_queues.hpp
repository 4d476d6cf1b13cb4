// SPDX-License-Identifier: Apache-2.0
// An engine's work on devices: copies on own queues, found complete by progress; pinned memory for staging; runs that wait
// for a user's stream. Created at the first use: an engine without devices pays one test of a pointer per progress.
//
// A run with work under way does not end before it (OpRun::work): losing the peer meanwhile sets OpRun::ending.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "devices/device.hpp"
#include "memory/device_users.hpp"
#include "protocols/operation.hpp"
#include "protocols/stream_waits.hpp"
#include "routes/costs.hpp"

namespace thalweg::impl {

/// A point in a user's stream behind which the bytes of an operation may be touched. Counted, because a record is copied: by
/// the caller's thread without a lock, and by the one that progresses.
struct Ordering {
  std::unique_ptr<Event> event;
  std::atomic<uint32_t> references{1};
};
/// The point that a user named: TW_AFTER_STREAM (all work enqueued so far) or TW_AFTER_EVENT of `device`. Null in *out: it
/// has happened already.
Status make_ordering(Device& device, const void* native, uint32_t kind, Ordering** out);
void retain(Ordering* ordering);   // null is allowed
void release(Ordering* ordering);  // null is allowed

/// The buffer of a run, lent to devices of the other side in this process.
struct Loan {
  std::shared_ptr<DeviceUsers> users;
  uint64_t name = 0;
};

class PersistentLine;
struct ProgramRun;

/// When to check a device that finishes nothing for an error: each millisecond, by a clock that few polls read. How long a
/// poll takes is the caller's matter.
class BreakWatch {
 public:
  /// After a poll that found nothing.
  bool due();
  void moved() { polls_ = 0; }

 private:
  unsigned polls_ = 0;
  uint64_t ask_at_ = 0;  // nanoseconds
};

class DeviceQueues {
 public:
  explicit DeviceQueues(Engine& engine);
  ~DeviceQueues();  // after close()
  DeviceQueues(const DeviceQueues&) = delete;
  DeviceQueues& operator=(const DeviceQueues&) = delete;

  /// Copies on an own queue of the device; done(engine, token, status) comes from poll(), never from here. What is submitted
  /// between two polls goes to the device in one call. `users`: of memory of others in this process that is touched. Where
  /// one of them has been released before the device gets the work, nothing is touched, and it ends with TW_ERR_STALE.
  /// `flow`: they move much to another device, or from one.
  using Done = void (*)(Engine& engine, void* token, Status status);
  enum class Flow : uint8_t { none, in, out };
  Status submit(Device& device, std::span<const Copy> copies, Done done, void* token, const DeviceUserLists& users = {},
                Flow flow = Flow::none);
  /// Does an engine of the device move much against this flow?
  bool busy_against(Device& device, Flow flow);
  /// What was submitted last ends a call: it is found complete without what is submitted behind it. For pieces of a long
  /// payload, of which one goes on while the next ones are copied.
  void cut(Device& device);
  /// What the device's persistent kernel copies sooner than an engine does, in bytes; 0: the context asked for none. *free: it
  /// has room, and no engine is at work: then whatever it is given was submitted before what an engine is, and poll() keeps
  /// that order.
  uint64_t persistent_most_of(Device& device, bool* free);
  /// One such copy. False: it could not be started; submit it.
  bool submit_persistent(Device& device, const Copy& copy, Done done, void* token, const DeviceUserLists& users = {});
  /// One that can signal, without a signal.
  Status submit(Device& device, const Kernel& kernel, Done done, void* token, const DeviceUserLists& users = {});
  /// One run of a program, none of whose steps waits for a peer.
  Status submit(Device& device, const ProgramRun& program, Done done, void* token);
  /// The same, waited for: some ten microseconds. For frames whose order is that of their effects.
  Status run(Device& device, std::span<const Copy> copies);
  Status run(Device& device, const Kernel& kernel);
  /// Makes the device's queues and loads its kernels, which may wait for the whole device: before anything waits for us.
  Status prepare(Device& device);
  void measure_no_more();
  /// Do the device's queues come to the end of what is enqueued now? TW_ERR_TIMED_OUT: no call on them ended for 200 ms.
  Status check_moving(Device& device);
  StreamWaits& stream_waits() { return stream_waits_; }
  /// Before work of `device` on memory of this process that is not its own: is it memory of a device, or pinned? Gives
  /// access, once for each allocation. *kernels: kernels may touch it too. TW_ERR_UNSUPPORTED: pageable memory.
  Status admit(Device& device, uint64_t address, uint64_t length, bool* kernels);
  /// Can `device` copy to and from memory of device `there`, of this or another process? Remembered.
  bool reaches(Device& device, const Uuid& there);
  /// Calls `then` when the run's `after` has happened; at once when it has already. The run waits meanwhile.
  void when_ready(OpRun& run, Then then);
  /// Devices of the other side, in this process, may touch the run's buffer, as users of this name, until the run ends: then
  /// it completes when they are out of it.
  uint64_t lend(OpRun& run);
  /// The run is about to complete. False: a device of the other side is still at its buffer, and poll() completes it.
  bool take_back(OpRun& run, Status status);
  unsigned poll();  // events handled
  /// As poll(), within calls that post, after which there may be no poll for a while: gathered copies go to their device, if
  /// that is idle, or it is worth hiding (EngineOptions::hidden_from). Short copies behind others are gathered with what
  /// comes next.
  void start();
  /// Waits for the copies that were submitted with this token, and calls their `done`; no others'. For a caller without room
  /// for the next bytes.
  void finish(Device& device, void* token);
  void close();  // waits for the work that is under way; what waits for a stream ends with TW_ERR_CLOSED
  /// The front of an endpoint's ordered queue waits for a stream. It is polled at each of its turns; until then no thread
  /// may sleep.
  void note_awaited() { awaited_ = true; }
  bool idle() const { return pending_ == 0 && parked_.empty() && recalled_.empty() && !awaited_; }

  /// kChunk bytes of pinned memory; null: there is none to be had.
  static constexpr size_t kChunk = 1u << 20;
  std::byte* take_chunk(Device& device);
  void give_chunk(Device& device, std::byte* chunk);
  unsigned chunks_out() const { return chunks_out_; }

 private:
  struct Waiter {
    uint64_t ticket;
    Done done;
    void* token;
    std::shared_ptr<DeviceUse> visit;  // null: it touches no other context's memory
    size_t copies = 0;                 // of those that are gathered
    bool last = false;                 // ... in a call
    Flow flow = Flow::none;
    uint64_t activity = 0;  // of the timeline; 0: not traced
  };
  /// A queue that counts its finished calls in pinned memory: a poll costs the host a load, a driver's query a microsecond.
  struct Line {
    std::unique_ptr<Queue> queue;
    uint64_t* finished = nullptr;
    uint64_t ticket = 0;  // of the last call
    std::deque<Waiter> pending;
    BreakWatch watch;
    uint64_t now_finished() const;
  };
  struct Place {
    Device* device = nullptr;
    DeviceCosts costs;
    Line copies, kernels;
    std::unique_ptr<PersistentLine> persistent;  // null: none
    std::vector<Copy> gathered;                  // not enqueued yet
    std::vector<Waiter> gathering;
    uint64_t gathered_bytes = 0, words = 0;
    uint64_t flow_ticket[3] = {};                 // by Flow: of the last call on `copies` that had such
    std::unordered_map<uint64_t, bool> admitted;  // by buffer id: for kernels too?
    std::vector<std::pair<Uuid, bool>> reached;
    std::vector<std::byte*> chunks;
  };
  DeviceCosts costs_of(Device& device);
  Status make_place(Device& device, Place** out);
  Status place_of(Device& device, Place** out);
  void open_persistent(Place& place);
  Status flush(Place& place);
  void start(Place& place, uint64_t much);
  unsigned poll_persistent(Place& place, const void* only);  // a token, whose copies are waited for; null: what is over
  unsigned poll(Device& device, Line& line);
  unsigned look_whether_broken(Device& device, Line& line);
  unsigned fail_pending(Device& device, Line& line, Status status);
  static void replace_broken(Device& device, Line& line);
  unsigned poll_parked();
  unsigned poll_recalled();
  void end(const Waiter& waiter, Status status);
  static std::vector<Waiter> turn_away(Place& place);
  static Status enqueue(Line& line, std::span<const Copy> copies);
  static Status launch(Line& line, Kernel kernel);
  static Status finish_call(Line& line, Status enqueued);
  static Status wait(Line& line);
  static Status wait(Line& line, uint64_t ticket);

  Engine& engine_;
  std::vector<std::unique_ptr<Place>> places_;
  unsigned pending_ = 0, chunks_out_ = 0;
  bool awaited_ = false;
  RunList parked_;
  RunList recalled_;  // ended; devices of the other side are at their buffers
  StreamWaits stream_waits_;
};

}  // namespace thalweg::impl
